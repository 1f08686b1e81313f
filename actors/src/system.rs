//! Systems of actors: making them, running programs in them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use critical_path::Clock;
use work_stealing_rt::{ThreadPoolBuildError, ThreadPoolBuilder};

use crate::address::{Address, Array, Setup};
use crate::names::lock;
use crate::reduction::Reduction;
use crate::report::PathReport;
use crate::shared::{RunError, Shared};
use crate::strand::{NewClock, Tables};
use crate::table::Table;
use crate::tuner::Tuner;

/// Parts of tasks that each worker keeps: 6 MB, taken as needed.
const CAPACITY: usize = 1 << 17;

/// Settings of a [`System`].
#[derive(Clone, Default)]
pub struct SystemBuilder {
    workers: usize,
    critical_path: bool,
    automatic_priorities: bool,
    messages_only: bool,
    capacity: Option<usize>,
    clock: Option<Arc<NewClock>>,
}

impl SystemBuilder {
    /// The number of workers. Default: as for a pool of work-stealing-rt.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Follows the critical path all the time. Default: not.
    #[must_use]
    pub fn critical_path(mut self, on: bool) -> Self {
        self.critical_path = on;
        self
    }

    /// Gives messages priorities by the critical path of an earlier phase, from the second phase on, as long
    /// as that pays. Actors with urgent messages come first; the order of one actor's messages stays. A phase
    /// is a [`System::run`], or ends with [`Context::end_phase`](crate::Context::end_phase). Default: not.
    #[must_use]
    pub fn automatic_priorities(mut self, on: bool) -> Self {
        self.automatic_priorities = on;
        self
    }

    /// Whether an actor's tasks depend on each other in the order in which they ran, since an actor runs one
    /// at a time; else only on messages and [merge points](crate::MergePoint), as in the paper. Default: yes.
    #[must_use]
    pub fn actor_order(mut self, on: bool) -> Self {
        self.messages_only = !on;
        self
    }

    /// How many parts of tasks each worker keeps for reports and priorities, 48 bytes each: a task has one
    /// part and one more for each message it sends. Of a phase with more, the beginning of the path is
    /// reported as one segment; its length stays exact. Default: 2^17.
    #[must_use]
    pub fn path_capacity(mut self, parts: usize) -> Self {
        self.capacity = Some(parts);
        self
    }

    /// Measures activity by another clock than the CPU time of threads; each worker makes its own.
    #[must_use]
    pub fn clock<C: Clock + 'static>(mut self, new: impl Fn() -> C + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(move || Box::new(new())));
        self
    }

    /// Makes the system and its pool of workers.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn build(self) -> Result<System, ThreadPoolBuildError> {
        let pool = ThreadPoolBuilder::new().num_threads(self.workers);
        let pool = pool.thread_name(|n| format!("actors-{n}")).build()?;
        let capacity = self.capacity.unwrap_or(CAPACITY);
        let workers = 0..pool.current_num_threads();
        let tables = Tables {
            of: workers.map(|worker| Table::new(worker, capacity)).collect(),
            actor_order: !self.messages_only,
            clock: self.clock,
        };
        let tuner = Tuner::new(self.automatic_priorities, self.critical_path);
        Ok(System(Shared::new(pool, tables, self.critical_path, tuner)))
    }
}

/// Actors, and the workers that run them.
///
/// When it is dropped its actors are stopped; messages that wait are not delivered.
#[derive(Debug)]
pub struct System(Arc<Shared>);

impl System {
    /// A system with so many workers (0: the default number) that follows no paths.
    ///
    /// # Errors
    /// As for [`SystemBuilder::build`].
    pub fn new(workers: usize) -> Result<Self, ThreadPoolBuildError> {
        System::builder().workers(workers).build()
    }

    /// Settings for a new system.
    pub fn builder() -> SystemBuilder {
        SystemBuilder::default()
    }

    /// For making an actor or an array.
    pub fn setup(&self) -> Setup {
        Setup::new(&self.0)
    }

    /// A new actor, named after its type.
    pub fn spawn<A: Send + 'static>(&self, actor: A) -> Address<A> {
        self.setup().spawn(actor)
    }

    /// A new array of actors; see [`Setup::array`].
    pub fn array<A: Send + 'static>(
        &self,
        name: &str,
        length: usize,
        make: impl FnMut(usize, &Array<A>) -> A,
    ) -> Array<A> {
        self.setup().name(name).array(length, make)
    }

    /// A reduction over so many elements: `combine` gets two values or results of neighbours, in order;
    /// `target` gets the result, in the task of the last element.
    pub fn reduction<T: Send>(
        &self,
        elements: usize,
        combine: impl Fn(T, T) -> T + Send + Sync + 'static,
        target: impl Fn(T) + Send + Sync + 'static,
    ) -> Reduction<T> {
        Reduction::new(&self.0, elements, Box::new(combine), Box::new(target))
    }

    /// Calls `program` on a worker, waits until no message is waiting or being handled (quiescence), and
    /// returns the program's result. A panic of the program resumes here, after that.
    ///
    /// # Errors
    /// Handlers that panicked, and deadlocks, since the last call.
    ///
    /// # Panics
    /// If called by a handler of this system, which would wait for itself.
    pub fn run<R: Send>(&self, program: impl FnOnce() -> R + Send) -> Result<R, RunError> {
        let shared = &self.0;
        assert!(!shared.is_worker(), "`run` waits for all handlers, so none of them may call it");
        shared.begin_phase(None);
        shared.ready.begin_program();
        let call = std::panic::AssertUnwindSafe(|| shared.program(program));
        let result = std::panic::catch_unwind(call);
        shared.ready.end_program();
        shared.ready.wait();
        while let Some(circle) = shared.break_deadlock() {
            lock(&shared.error).deadlocks.push(circle);
            shared.ready.wait();
        }
        shared.join_ends();
        shared.end_phase(None);
        let error = std::mem::take(&mut *lock(&shared.error));
        let result = result.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        if error == RunError::default() { Ok(result) } else { Err(error) }
    }

    /// The critical path of the last phase: up to now, while a program runs. Empty if it is not followed.
    pub fn critical_path(&self) -> PathReport {
        PathReport::new(&self.0, None)
    }

    /// Whether the last phase used automatic priorities.
    pub fn uses_priorities(&self) -> bool {
        self.0.tuner.is_used()
    }

    /// Messages handled so far.
    pub fn messages(&self) -> u64 {
        self.0.tables.sums()[1]
    }

    /// Messages so far whose actor had stopped, or stopped before it handled them.
    pub fn undelivered(&self) -> u64 {
        self.0.undelivered.load(Ordering::Relaxed)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.0.stop_all();
    }
}
