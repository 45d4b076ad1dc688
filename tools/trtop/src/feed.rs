//! Refreshes in a thread of their own: the screen draws the last one, and obeys keys, however long the next one takes.

use crate::frame::{Frame, RowId};
use crate::keys::Seek;
use crate::rows::View;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the screen shows besides counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The row whose details are shown.
    pub row: Option<RowId>,
    /// The view.
    pub view: View,
    /// Between refreshes.
    pub every: Duration,
}

/// What the screen asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Everything anew.
    Sample(Want),
    /// The counters as they are, with what is wanted besides.
    Look(Want),
    /// Of a replay: everything anew, from elsewhere.
    Seek(Want, Vec<Seek>),
}

impl Ask {
    /// What is wanted besides counters.
    pub fn want(&self) -> Want {
        let (Ask::Sample(want) | Ask::Look(want) | Ask::Seek(want, _)) = self;
        *want
    }
}

/// Where frames come from.
pub trait Source {
    /// What `ask` asks for, after the frame `last`, which is empty at first.
    fn frame(&mut self, ask: Ask, last: Frame) -> Frame;
}

/// The thread's other end.
pub struct Feed {
    /// `None` ends the thread.
    asks: Option<Sender<Ask>>,
    frames: Receiver<Frame>,
    bell: Arc<OwnedFd>,
    waiting: bool,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Starts the thread. `refresh` makes the next frame of the one before, which is empty at first.
    ///
    /// # Errors
    /// No file descriptor or no thread is to be had.
    pub fn start(mut refresh: impl FnMut(Ask, Frame) -> Frame + Send + 'static) -> io::Result<Feed> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (asks, asked) = channel();
        let (made, frames) = channel();
        let ring = bell.clone();
        let thread = std::thread::Builder::new().name("trtop-sampler".into()).spawn(move || {
            let mut frame = Frame::default();
            while let Ok(ask) = asked.recv() {
                frame = refresh(ask, frame);
                if made.send(frame.clone()).is_err() {
                    return;
                }
                let _ = rustix::io::write(&ring, &1u64.to_ne_bytes());
            }
        })?;
        Ok(Feed { asks: Some(asks), frames, bell, waiting: false, thread: Some(thread) })
    }

    /// Asks for a frame, unless one that was asked for has not come yet. Whether it did.
    pub fn ask(&mut self, ask: Ask) -> bool {
        if self.is_free() && self.asks.as_ref().is_some_and(|a| a.send(ask).is_ok()) {
            self.waiting = true;
            return true;
        }
        false
    }

    /// Whether every frame that was asked for has come.
    pub fn is_free(&self) -> bool {
        !self.waiting
    }

    /// The frame that was asked for, if it is there.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn take(&mut self) -> io::Result<Option<Frame>> {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut rung);
        match self.frames.try_recv() {
            Ok(frame) => {
                self.waiting = false;
                Ok(Some(frame))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::Error::other("the thread that reads segments has ended")),
        }
    }

    /// Becomes readable when a frame is there.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Feed {
    /// Waits for the thread: a replay removes its files.
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its hook.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    const WANT: Want = Want { row: None, view: View::Ports, every: Duration::from_secs(1) };

    #[test]
    fn a_frame_that_takes_long_keeps_nobody_waiting() {
        let (go, wait) = channel();
        let mut feed = Feed::start(move |ask, mut last| {
            wait.recv().unwrap();
            assert!(matches!(ask, Ask::Sample(_)));
            last.denied += 1;
            last
        })
        .unwrap();
        for n in 1..4 {
            assert!(feed.ask(Ask::Sample(WANT)));
            assert!(!feed.ask(Ask::Sample(WANT)), "one at a time");
            assert!(feed.take().unwrap().is_none());
            go.send(()).unwrap();
            poll(&mut [PollFd::new(&feed.bell(), PollFlags::IN)], None).unwrap();
            assert_eq!(feed.take().unwrap().unwrap().denied, n);
        }
    }

    #[test]
    fn the_thread_has_let_go_of_everything_when_the_feed_is_gone() {
        let held = Arc::new(());
        let seen = Arc::downgrade(&held);
        let mut feed = Feed::start(move |_, last| {
            let _ = &held;
            last
        })
        .unwrap();
        assert!(feed.ask(Ask::Sample(WANT)));
        drop(feed);
        assert!(seen.upgrade().is_none());
    }

    #[test]
    fn the_end_of_the_thread_is_an_error() {
        let mut feed = Feed::start(|_, _| panic!("as intended by the test")).unwrap();
        feed.ask(Ask::Look(WANT));
        let error = loop {
            match feed.take() {
                Ok(None) => std::thread::yield_now(),
                Ok(Some(_)) => panic!("a frame"),
                Err(e) => break e,
            }
        };
        assert!(error.to_string().contains("has ended"));
    }
}
