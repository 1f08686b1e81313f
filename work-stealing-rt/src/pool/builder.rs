//! Setting up a pool.
//!
//! One duty: collect the settings of a pool, and make it.

use core::fmt;
use std::any::Any;
use std::{env, io, thread};

use super::error::{Cause, ThreadPoolBuildError};
use super::handlers::Handlers;
use super::life::{Hold, tracking_changed};
use super::thread_pool::ThreadPool;
use super::threads::{self, CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadSpawn};
use crate::main_loop::adopt_current;
use crate::profiler;
use crate::worker::Pool;

/// The environment variable with the default number of workers; an invalid value is an error.
const THREADS_VARIABLE: &str = "WORK_STEALING_RT_NUM_THREADS";
/// rayon's variables for the same, newest first. As in rayon, an invalid value counts as unset.
const RAYON_VARIABLES: [&str; 2] = ["RAYON_NUM_THREADS", "RAYON_RS_NUM_CPUS"];

/// The most workers that a pool can have.
const MOST_THREADS: usize = 65_535;

/// Sets up a pool.
///
/// ```
/// let pool = work_stealing_rt::ThreadPoolBuilder::new().num_threads(2).build()?;
/// let (a, b) = pool.install(|| work_stealing_rt::join(|| 1, || 2));
/// assert_eq!(a + b, 3);
/// # Ok::<(), work_stealing_rt::ThreadPoolBuildError>(())
/// ```
pub struct ThreadPoolBuilder<S = DefaultSpawn> {
    num_threads: usize,
    use_current_thread: bool,
    stack_size: Option<usize>,
    thread_name: Option<Box<dyn FnMut(usize) -> String>>,
    breadth_first: bool,
    handlers: Handlers,
    spawn: S,
}

impl Default for ThreadPoolBuilder {
    fn default() -> Self {
        ThreadPoolBuilder {
            num_threads: 0,
            use_current_thread: false,
            stack_size: None,
            thread_name: None,
            breadth_first: false,
            handlers: Handlers::default(),
            spawn: DefaultSpawn,
        }
    }
}

impl ThreadPoolBuilder {
    /// A builder with the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a pool whose threads end before this returns, so that they may borrow from the caller.
    /// Each thread calls `wrapper`, which should call [`ThreadBuilder::run`]; `with_pool` gets the
    /// pool.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// ```
    /// let limit = 3;
    /// let small = work_stealing_rt::ThreadPoolBuilder::new().build_scoped(
    ///     |thread| thread.run(),
    ///     |pool| pool.install(|| 2 < limit),
    /// )?;
    /// assert!(small);
    /// # Ok::<(), work_stealing_rt::ThreadPoolBuildError>(())
    /// ```
    pub fn build_scoped<W, F, R>(self, wrapper: W, with_pool: F) -> Result<R, ThreadPoolBuildError>
    where
        W: Fn(ThreadBuilder) + Sync,
        F: FnOnce(&ThreadPool) -> R,
    {
        let wrapper = &wrapper;
        thread::scope(|scope| {
            let pool = self
                .spawn_handler(|thread| {
                    let builder = threads::named(&thread);
                    builder.spawn_scoped(scope, move || wrapper(thread))?;
                    Ok(())
                })
                .build()?;
            Ok(with_pool(&pool))
        })
    }
}

impl<S> ThreadPoolBuilder<S> {
    /// The number of workers, at most [`max_num_threads`](crate::max_num_threads()). 0, the
    /// default, stands for the number in the environment variable
    /// `WORK_STEALING_RT_NUM_THREADS`, else in `RAYON_NUM_THREADS`, if set and not 0, else for the
    /// parallelism that the system offers the process.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// Makes the calling thread worker 0 for the rest of its life. It runs other tasks only while it waits or
    /// yields.
    pub fn use_current_thread(mut self) -> Self {
        self.use_current_thread = true;
        self
    }

    /// The stack size of each worker thread in bytes. A worker that waits runs other tasks on
    /// top of its stack, so deep recursions may need more than the standard library's default.
    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    /// The worker threads' names, by index; they have none by default.
    pub fn thread_name<F>(mut self, name: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self.thread_name = Some(Box::new(name));
        self
    }

    /// A worker takes the oldest of the tasks that it has spawned first, not the youngest.
    #[deprecated(note = "use `scope_fifo` and `spawn_fifo`")]
    pub fn breadth_first(mut self) -> Self {
        self.breadth_first = true;
        self
    }

    /// Called with the payload when a detached task or another handler panics. Without it such a
    /// panic, and always a panic of this handler, aborts the process.
    pub fn panic_handler<H>(mut self, panic_handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.handlers.panic = Some(Box::new(panic_handler));
        self
    }

    /// Called on each worker thread, with its index, when it starts. Its tasks run even if the pool has been
    /// dropped meanwhile.
    pub fn start_handler<H>(mut self, start_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.handlers.start = Some(Box::new(start_handler));
        self
    }

    /// Called on each worker thread, with its index, when the pool's last task has ended. The threads end
    /// after all calls, and after the tasks that these calls spawn.
    pub fn exit_handler<H>(mut self, exit_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.handlers.exit = Some(Box::new(exit_handler));
        self
    }

    /// Starts the pool's threads by `spawn`, which must call [`ThreadBuilder::run`] on a separate thread for
    /// each worker. A worker that does not run takes no tasks, and no other worker takes its broadcasts.
    pub fn spawn_handler<F>(self, spawn: F) -> ThreadPoolBuilder<CustomSpawn<F>>
    where
        F: FnMut(ThreadBuilder) -> io::Result<()>,
    {
        ThreadPoolBuilder {
            spawn: CustomSpawn(spawn),
            num_threads: self.num_threads,
            use_current_thread: self.use_current_thread,
            stack_size: self.stack_size,
            thread_name: self.thread_name,
            breadth_first: self.breadth_first,
            handlers: self.handlers,
        }
    }
}

impl<S: ThreadSpawn> ThreadPoolBuilder<S> {
    /// Makes the pool.
    ///
    /// # Errors
    /// [`ThreadPoolBuildError`] if an environment variable is needed and does not hold a number, if
    /// the system refuses a thread, or if the current thread should be used and is a worker already.
    pub fn build(mut self) -> Result<ThreadPool, ThreadPoolBuildError> {
        profiler::attach(tracking_changed);
        let count = match self.num_threads {
            0 => default_num_threads()?,
            given => given,
        };
        let count = count.min(MOST_THREADS);
        // On an early return, or a panic, the handle's drop ends the threads that were started.
        let pool = ThreadPool::new_owner(&Pool::new(count, self.breadth_first, self.handlers));
        for index in 0..count {
            let name = self.thread_name.as_mut().map(|name| name(index));
            if index == 0 && self.use_current_thread {
                continue;
            }
            let thread =
                ThreadBuilder { hold: Hold::new(pool.pool()), index, name, stack_size: self.stack_size };
            self.spawn.spawn(thread).map_err(Cause::Thread)?;
        }
        // Last, since a thread cannot stop being a worker.
        if self.use_current_thread && !adopt_current(pool.pool(), 0) {
            return Err(Cause::AlreadyInPool.into());
        }
        Ok(pool)
    }
}

impl<S> fmt::Debug for ThreadPoolBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPoolBuilder")
            .field("num_threads", &self.num_threads)
            .field("use_current_thread", &self.use_current_thread)
            .field("stack_size", &self.stack_size)
            .field("breadth_first", &self.breadth_first)
            .finish_non_exhaustive()
    }
}

fn default_num_threads() -> Result<usize, ThreadPoolBuildError> {
    let available = || thread::available_parallelism().map_or(1, usize::from);
    if let Some(text) = env::var_os(THREADS_VARIABLE) {
        let asked: Option<usize> = text.to_str().and_then(|text| text.trim().parse().ok());
        return match asked {
            None => Err(Cause::Variable(THREADS_VARIABLE, text).into()),
            Some(0) => Ok(available()),
            Some(asked) => Ok(asked),
        };
    }
    let [newest, oldest] =
        RAYON_VARIABLES.map(|name| env::var(name).ok().and_then(|text| text.parse::<usize>().ok()));
    Ok(match (newest, oldest) {
        (Some(asked @ 1..), _) => asked,
        (None, Some(asked @ 1..)) => asked,
        _ => available(),
    })
}

/// The most workers that a pool can have. A builder makes this many if it is asked for more.
pub fn max_num_threads() -> usize {
    MOST_THREADS
}
