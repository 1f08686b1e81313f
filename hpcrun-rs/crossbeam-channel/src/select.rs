//! Selection from a list of operations.

use core::convert::Infallible;
use core::fmt;
use std::time::{Duration, Instant};

use hpcrun_api::is_active;
use published::{ReadyTimeoutError, RecvError, SelectTimeoutError, SendError, TryReadyError, TrySelectError};

use crate::channel::{Inner, Receiver, Sender, either, opened};
use crate::envelope::{Envelope, Unwrapped};
use crate::waiting;

#[derive(Clone, Default)]
pub struct Select<'a> {
    inner: published::Select<'a>,
}

impl<'a> Select<'a> {
    pub fn new() -> Select<'a> {
        Select { inner: published::Select::new() }
    }

    pub fn new_biased() -> Self {
        Select { inner: published::Select::new_biased() }
    }

    pub fn send<T>(&mut self, s: &'a Sender<T>) -> usize {
        self.inner.send(&s.inner)
    }

    pub fn recv<T>(&mut self, r: &'a Receiver<T>) -> usize {
        either!(r, inner => self.inner.recv(inner))
    }

    pub fn remove(&mut self, index: usize) {
        self.inner.remove(index);
    }

    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.inner.try_select().map(|inner| SelectedOperation { inner })
    }

    pub fn select(&mut self) -> SelectedOperation<'a> {
        let inner = self.ready_or(|inner| Ok::<_, Infallible>(inner.select()));
        inner.unwrap_or_else(|never| match never {})
    }

    pub fn select_timeout(&mut self, timeout: Duration) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.ready_or(|inner| inner.select_timeout(timeout))
    }

    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.ready_or(|inner| inner.select_deadline(deadline))
    }

    /// An operation that is ready, or one by `select`, which may wait.
    fn ready_or<E>(
        &mut self,
        select: impl FnOnce(&mut published::Select<'a>) -> Result<published::SelectedOperation<'a>, E>,
    ) -> Result<SelectedOperation<'a>, E> {
        if is_active() {
            if let Ok(ready) = self.try_select() {
                return Ok(ready);
            }
        }
        waiting(|| select(&mut self.inner)).map(|inner| SelectedOperation { inner })
    }

    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.inner.try_ready()
    }

    pub fn ready(&mut self) -> usize {
        waiting(|| self.inner.ready())
    }

    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        waiting(|| self.inner.ready_timeout(timeout))
    }

    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        waiting(|| self.inner.ready_deadline(deadline))
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[must_use]
pub struct SelectedOperation<'a> {
    inner: published::SelectedOperation<'a>,
}

impl SelectedOperation<'_> {
    pub fn index(&self) -> usize {
        self.inner.index()
    }

    #[track_caller]
    pub fn send<T>(self, s: &Sender<T>, msg: T) -> Result<(), SendError<T>> {
        let sent = if is_active() {
            s.tracked(msg, |envelope| self.inner.send(&s.inner, envelope))
        } else {
            self.inner.send(&s.inner, Envelope::plain(msg))
        };
        sent.map_err(Unwrapped::unwrapped)
    }

    #[track_caller]
    pub fn recv<T>(self, r: &Receiver<T>) -> Result<T, RecvError> {
        match &r.inner {
            Inner::Enveloped(inner, room) => Ok(opened(self.inner.recv(inner)?, room)),
            Inner::Plain(inner) => self.inner.recv(inner),
        }
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
