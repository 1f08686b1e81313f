//! The threads of a pool: how they are started.
//!
//! Each worker runs on a thread of the standard library, or on one that the user starts.

use core::fmt;
use std::{io, thread};

use super::life::Hold;
use crate::main_loop::main_loop;

/// A worker that waits for its thread; see
/// [`spawn_handler`](crate::ThreadPoolBuilder::spawn_handler). Its pool does not end before it has
/// run or is dropped.
pub struct ThreadBuilder {
    /// Keeps the pool from ending before the worker's start handler has run.
    pub(super) hold: Hold,
    pub(super) index: usize,
    pub(super) name: Option<String>,
    pub(super) stack_size: Option<usize>,
}

impl ThreadBuilder {
    /// The worker's index in its pool, from 0 on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name that the pool's builder gives the thread, if any.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The stack size, in bytes, that the pool's builder was asked for, if any.
    pub fn stack_size(&self) -> Option<usize> {
        self.stack_size
    }

    /// Makes the calling thread the worker. Returns when the pool has ended.
    ///
    /// # Panics
    /// If the calling thread is a worker already.
    pub fn run(self) {
        main_loop(self.hold, self.index);
    }
}

impl fmt::Debug for ThreadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBuilder")
            .field("index", &self.index)
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}

mod sealed {
    //! Keeps [`super::ThreadSpawn`] to the types of this module.

    /// See the module.
    pub trait Sealed {}
}

/// Starts threads for a pool. Only [`DefaultSpawn`] and [`CustomSpawn`] implement it.
pub trait ThreadSpawn: sealed::Sealed {
    #[doc(hidden)]
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()>;
}

/// Starts threads of the standard library.
#[derive(Debug, Default)]
pub struct DefaultSpawn;

impl sealed::Sealed for DefaultSpawn {}

impl ThreadSpawn for DefaultSpawn {
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        named(&thread).spawn(|| thread.run()).map(drop)
    }
}

/// Starts threads by the user's function.
#[derive(Debug)]
pub struct CustomSpawn<F>(pub(super) F);

impl<F> sealed::Sealed for CustomSpawn<F> where F: FnMut(ThreadBuilder) -> io::Result<()> {}

impl<F> ThreadSpawn for CustomSpawn<F>
where
    F: FnMut(ThreadBuilder) -> io::Result<()>,
{
    #[inline]
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        (self.0)(thread)
    }
}

/// The standard library's builder with the worker's name and stack size.
pub(super) fn named(worker: &ThreadBuilder) -> thread::Builder {
    let mut builder = thread::Builder::new();
    if let Some(name) = worker.name() {
        builder = builder.name(name.to_owned());
    }
    if let Some(size) = worker.stack_size() {
        builder = builder.stack_size(size);
    }
    builder
}
