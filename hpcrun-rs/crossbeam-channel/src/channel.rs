//! Channels, senders and receivers.

use core::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hpcrun_api::{Edge, Strand, is_active};
use published::{RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError};

use crate::back::{Room, merge_reply};
use crate::envelope::{Envelope, Unwrapped};
use crate::waiting;

pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(published::unbounded(), None)
}

pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    channel(published::bounded(cap), Some(Arc::new(Room::new(cap))))
}

fn channel<T>(
    (sender, receiver): (published::Sender<Envelope<T>>, published::Receiver<Envelope<T>>),
    room: Option<Arc<Room>>,
) -> (Sender<T>, Receiver<T>) {
    let sender = Sender { inner: sender, room: room.clone() };
    (sender, Receiver { inner: Inner::Enveloped(receiver, room) })
}

pub fn after(duration: Duration) -> Receiver<Instant> {
    Receiver { inner: Inner::Plain(published::after(duration)) }
}

pub fn at(when: Instant) -> Receiver<Instant> {
    Receiver { inner: Inner::Plain(published::at(when)) }
}

pub fn tick(duration: Duration) -> Receiver<Instant> {
    Receiver { inner: Inner::Plain(published::tick(duration)) }
}

#[cfg(not(never_is_not_const))]
pub const fn never<T>() -> Receiver<T> {
    Receiver { inner: Inner::Plain(published::never()) }
}

/// As the published crate's `never`, before 0.5.16.
#[cfg(never_is_not_const)]
pub fn never<T>() -> Receiver<T> {
    Receiver { inner: Inner::Plain(published::never()) }
}

pub struct Sender<T> {
    pub(crate) inner: published::Sender<Envelope<T>>,
    /// Of a bounded channel.
    room: Option<Arc<Room>>,
}

impl<T> Sender<T> {
    #[inline]
    #[track_caller]
    pub fn try_send(&self, msg: T) -> Result<(), TrySendError<T>> {
        self.send_by(msg, false, |inner, envelope| inner.try_send(envelope))
    }

    #[inline]
    #[track_caller]
    pub fn send(&self, msg: T) -> Result<(), SendError<T>> {
        self.send_by(msg, true, |inner, envelope| inner.send(envelope))
    }

    #[track_caller]
    pub fn send_timeout(&self, msg: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_by(msg, true, |inner, envelope| inner.send_timeout(envelope, timeout))
    }

    #[track_caller]
    pub fn send_deadline(&self, msg: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_by(msg, true, |inner, envelope| inner.send_deadline(envelope, deadline))
    }

    /// Sends by `send`, which may wait if it `blocks`.
    #[inline]
    #[track_caller]
    fn send_by<E: Unwrapped>(
        &self,
        value: T,
        blocks: bool,
        send: impl FnOnce(&published::Sender<Envelope<T>>, Envelope<T>) -> Result<(), E>,
    ) -> Result<(), E::Error> {
        if !is_active() {
            return send(&self.inner, Envelope::plain(value)).map_err(E::unwrapped);
        }
        let send_now = |envelope| {
            if !blocks {
                return send(&self.inner, envelope);
            }
            match self.inner.try_send(envelope) {
                Ok(()) => Ok(()),
                Err(error) => waiting(|| send(&self.inner, error.into_inner())),
            }
        };
        self.tracked(value, send_now).map_err(E::unwrapped)
    }

    /// Sends by `send`, with the critical path.
    #[track_caller]
    pub(crate) fn tracked<E>(
        &self,
        value: T,
        send: impl FnOnce(Envelope<T>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut envelope = Envelope { value, strand: Strand::copy(), reply: None };
        // Tracking may just have ended; then nothing was sent as far as the room knows.
        let is_tracked = envelope.strand.is_some();
        let room = self.room.as_ref().filter(|_| is_tracked);
        match room {
            Some(room) if room.capacity == 0 => {
                let (reply, replied) = published::bounded(1);
                envelope.reply = Some(Box::new(reply));
                send(envelope)?;
                merge_reply(&replied);
            }
            Some(room) => {
                send(envelope)?;
                room.take();
            }
            None => send(envelope)?,
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.inner.is_full()
    }

    pub fn len(&self) -> usize {
        self.inner.len()
    }

    pub fn capacity(&self) -> Option<usize> {
        self.inner.capacity()
    }

    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.inner.same_channel(&other.inner)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { inner: self.inner.clone(), room: self.room.clone() }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

pub struct Receiver<T> {
    pub(crate) inner: Inner<T>,
}

pub(crate) enum Inner<T> {
    /// What senders send; with the room, if the channel is bounded.
    Enveloped(published::Receiver<Envelope<T>>, Option<Arc<Room>>),
    /// What no sender sends: time.
    Plain(published::Receiver<T>),
}

/// The same of either kind of receiver.
macro_rules! either {
    ($receiver:expr, $inner:ident => $result:expr) => {
        match &$receiver.inner {
            $crate::channel::Inner::Enveloped($inner, _) => $result,
            $crate::channel::Inner::Plain($inner) => $result,
        }
    };
}
pub(crate) use either;

impl<T> Receiver<T> {
    #[inline]
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match &self.inner {
            Inner::Enveloped(inner, room) => Ok(opened(inner.try_recv()?, room)),
            Inner::Plain(inner) => inner.try_recv(),
        }
    }

    #[inline]
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_by(published::Receiver::recv, published::Receiver::recv)
    }

    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_by(|r| r.recv_timeout(timeout), |r| r.recv_timeout(timeout))
    }

    #[track_caller]
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_by(|r| r.recv_deadline(deadline), |r| r.recv_deadline(deadline))
    }

    /// Receives by one of these, which may wait.
    #[inline]
    #[track_caller]
    fn recv_by<E>(
        &self,
        enveloped: impl FnOnce(&published::Receiver<Envelope<T>>) -> Result<Envelope<T>, E>,
        plain: impl FnOnce(&published::Receiver<T>) -> Result<T, E>,
    ) -> Result<T, E> {
        match (&self.inner, is_active()) {
            (Inner::Enveloped(inner, room), false) => Ok(opened(enveloped(inner)?, room)),
            (Inner::Enveloped(inner, room), true) => {
                let envelope = match inner.try_recv() {
                    Ok(envelope) => envelope,
                    Err(_) => waiting(|| enveloped(inner))?,
                };
                Ok(opened(envelope, room))
            }
            (Inner::Plain(inner), false) => plain(inner),
            (Inner::Plain(inner), true) => waiting(|| plain(inner)),
        }
    }

    pub fn is_empty(&self) -> bool {
        either!(self, inner => inner.is_empty())
    }

    pub fn is_full(&self) -> bool {
        either!(self, inner => inner.is_full())
    }

    pub fn len(&self) -> usize {
        either!(self, inner => inner.len())
    }

    pub fn capacity(&self) -> Option<usize> {
        either!(self, inner => inner.capacity())
    }

    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        match (&self.inner, &other.inner) {
            (Inner::Enveloped(a, _), Inner::Enveloped(b, _)) => a.same_channel(b),
            (Inner::Plain(a), Inner::Plain(b)) => a.same_channel(b),
            _ => false,
        }
    }
}

/// What was received from a channel with this room.
#[inline]
#[track_caller]
pub(crate) fn opened<T>(envelope: Envelope<T>, room: &Option<Arc<Room>>) -> T {
    let Envelope { value, strand, reply } = envelope;
    if strand.is_some() || is_active() {
        received(strand, reply.as_deref(), room.as_deref());
    }
    value
}

#[track_caller]
fn received(strand: Option<Strand>, reply: Option<&crate::back::Reply>, room: Option<&Room>) {
    let was_tracked = strand.is_some();
    Strand::merge(strand, Edge::Channel);
    match (reply, room) {
        (Some(reply), _) => {
            if let Some(strand) = Strand::copy() {
                // The sender may have given up.
                let _ = reply.try_send(strand);
            }
        }
        (None, Some(room)) if was_tracked => room.make(),
        _ => {}
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let inner = match &self.inner {
            Inner::Enveloped(inner, room) => {
                if let Some(room) = room.as_ref().filter(|_| is_active()) {
                    room.share();
                }
                Inner::Enveloped(inner.clone(), room.clone())
            }
            Inner::Plain(inner) => Inner::Plain(inner.clone()),
        };
        Receiver { inner }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        either!(self, inner => inner.fmt(f))
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> FusedIterator for Iter<'_, T> {}
impl<T> FusedIterator for IntoIter<T> {}

macro_rules! iterators {
    ($($name:literal $iterator:ty: $receive:ident;)*) => {$(
        impl<T> Iterator for $iterator {
            type Item = T;

            #[inline]
            #[track_caller]
            fn next(&mut self) -> Option<T> {
                self.receiver.$receive().ok()
            }
        }

        impl<T> fmt::Debug for $iterator {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(concat!($name, " { .. }"))
            }
        }
    )*};
}

iterators! {
    "Iter" Iter<'_, T>: recv;
    "TryIter" TryIter<'_, T>: try_recv;
    "IntoIter" IntoIter<T>: recv;
}
