//! NCCL's functions, by its own numbers.

/// A number of `ncclFunc_t`.
pub type Func = u8;

const NAMES: [&str; 11] = [
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AllReduce",
    "SendRecv",
    "Send",
    "Recv",
    "AlltoAll",
    "Scatter",
    "Gather",
];

/// Its name, if it is one that we know.
pub fn name(func: Func) -> Option<&'static str> {
    NAMES.get(usize::from(func)).copied()
}

/// The function of this name.
pub(super) fn named(name: &[u8]) -> Option<Func> {
    NAMES.iter().position(|n| n.as_bytes() == name).map(|i| i as Func)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!((named(b"AllReduce"), name(4), named(b"Send")), (Some(4), Some("AllReduce"), Some(6)));
        assert_eq!((named(b"Allreduce"), named(b""), name(11)), (None, None, None));
    }
}
