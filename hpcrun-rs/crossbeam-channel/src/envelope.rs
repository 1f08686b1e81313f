//! What travels through the published crate's channels.

use hpcrun_api::Strand;
use published::{SendError, SendTimeoutError, TrySendError};

use crate::back::Reply;

/// A value, and what of its sender is known. Dropped on the way, its strand is forgotten.
pub(crate) struct Envelope<T> {
    pub(crate) value: T,
    /// `None`: nothing was tracked when it was sent.
    pub(crate) strand: Option<Strand>,
    /// Where the receiver's strand goes, if the sender waits for it.
    pub(crate) reply: Option<Box<Reply>>,
}

impl<T> Envelope<T> {
    #[inline]
    pub(crate) fn plain(value: T) -> Self {
        Envelope { value, strand: None, reply: None }
    }
}

/// The same error, about the value alone.
pub(crate) trait Unwrapped {
    type Error;
    fn unwrapped(self) -> Self::Error;
}

impl<T> Unwrapped for SendError<Envelope<T>> {
    type Error = SendError<T>;
    fn unwrapped(self) -> SendError<T> {
        SendError(self.0.value)
    }
}

impl<T> Unwrapped for TrySendError<Envelope<T>> {
    type Error = TrySendError<T>;
    fn unwrapped(self) -> TrySendError<T> {
        match self {
            TrySendError::Full(envelope) => TrySendError::Full(envelope.value),
            TrySendError::Disconnected(envelope) => TrySendError::Disconnected(envelope.value),
        }
    }
}

impl<T> Unwrapped for SendTimeoutError<Envelope<T>> {
    type Error = SendTimeoutError<T>;
    fn unwrapped(self) -> SendTimeoutError<T> {
        match self {
            SendTimeoutError::Timeout(envelope) => SendTimeoutError::Timeout(envelope.value),
            SendTimeoutError::Disconnected(envelope) => SendTimeoutError::Disconnected(envelope.value),
        }
    }
}
