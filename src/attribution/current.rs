//! The label of what a thread posts: NCCL's proxy thread says which step it is at, and then posts.

use super::Label;
use core::cell::Cell;

thread_local! {
    static CURRENT: Cell<Label> = const { Cell::new(Label::NONE) };
}

/// The calling thread's.
#[inline]
pub fn current() -> Label {
    CURRENT.try_with(Cell::get).unwrap_or(Label::NONE)
}

/// What the calling thread posts belongs to this from now on.
#[inline]
pub fn set(label: Label) {
    let _ = CURRENT.try_with(|c| c.set(label));
}

/// A step is over: if it is the calling thread's, what follows is nobody's.
#[inline]
pub fn leave(label: Label) {
    if current() == label {
        set(Label::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        let (a, b) = (Label::new(1, 5), Label::new(2, 5));
        set(a);
        std::thread::spawn(move || {
            assert_eq!(current(), Label::NONE);
            set(b);
        })
        .join()
        .unwrap();
        assert_eq!(current(), a);
        leave(b);
        assert_eq!(current(), a);
        leave(a);
        assert_eq!(current(), Label::NONE);
    }
}
