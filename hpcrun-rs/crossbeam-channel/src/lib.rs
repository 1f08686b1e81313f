//! crossbeam-channel's interface on top of the published crate.
//!
//! One duty: let the critical path travel beside each value. `cargo hpcrun` compiles this crate in the
//! published one's place, and the published one under another name below it. All channels are the published
//! crate's; here, a value is put into an envelope with its sender's strand, and each receive merges that.
//! The documentation is the published crate's: everything means the same. The README has the edges.
//!
//! While nothing is tracked, an operation costs one branch more, and a value is two words longer. None of
//! this blocks where the published crate would not, but for the moments between a receive and what it tells;
//! see `back`.
#![cfg(feature = "std")]
#![forbid(unsafe_code)]
#![allow(missing_docs)]

extern crate published_crossbeam_channel as published;

mod back;
mod channel;
mod envelope;
mod macros;
mod select;

pub use channel::{IntoIter, Iter, Receiver, Sender, TryIter, after, at, bounded, never, tick, unbounded};
pub use published::{
    ReadyTimeoutError, RecvError, RecvTimeoutError, SelectTimeoutError, SendError, SendTimeoutError,
    TryReadyError, TryRecvError, TrySelectError, TrySendError,
};
pub use select::{Select, SelectedOperation};

/// Says that what `wait` does is no activity of the calling thread.
fn waiting<R>(wait: impl FnOnce() -> R) -> R {
    struct Waiting;
    impl Drop for Waiting {
        fn drop(&mut self) {
            hpcrun_api::resume();
        }
    }
    if !hpcrun_api::is_active() {
        return wait();
    }
    hpcrun_api::pause();
    let _ends_here_even_in_a_panic = Waiting;
    wait()
}
