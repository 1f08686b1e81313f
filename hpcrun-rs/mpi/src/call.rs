//! One call of a hook: its arguments, in C or Fortran, and whom it tells.

use crate::job::{self, Job};
use crate::library::{Kind, Status, Statuses, at, library};
use hpcrun_abi::{
    CALL_NESTED, Entered, LOST_UNKNOWN, MESSAGES_SYMBOL, MessageTable, Messages, RemoteStrand, host,
};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

/// The form of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Blocking,
    /// Its request is the last argument.
    Immediate,
    /// It prepares an operation; the same.
    Persistent,
}

/// A call of a hook.
///
/// Invariant: the arguments are those of MPI's function, which is called with them; and whoever asks for one
/// of them says its place and its kind as that function has them. `hooks` sees to both, so the rest is safe.
pub(crate) struct Call<'a> {
    /// Words, which in Fortran are all addresses.
    pub(crate) arguments: &'a [Cell<usize>],
    /// MPI's function.
    pub(crate) real: &'a dyn Fn() -> c_int,
    pub(crate) fortran: bool,
    pub(crate) form: Form,
    pub(crate) has_large_counts: bool,
    /// Whether MPI's function may wait for other processes.
    pub(crate) waits: bool,
    pub(crate) address: u64,
}

impl Call<'_> {
    /// Calls MPI's function.
    #[inline]
    pub(crate) fn run(&self) -> c_int {
        (self.real)()
    }

    #[inline]
    fn word(&self, index: usize) -> usize {
        self.arguments[index].get()
    }

    /// A number among the arguments.
    #[inline]
    pub(crate) fn int(&self, index: usize) -> c_int {
        if self.fortran { self.int_at(index, 0) } else { self.word(index) as c_int }
    }

    /// A number of the array at an address among them.
    #[inline]
    pub(crate) fn int_at(&self, index: usize, at: usize) -> c_int {
        // SAFETY: an array of numbers that has it (the invariant).
        unsafe { *ptr::with_exposed_provenance::<c_int>(self.word(index)).add(at) }
    }

    /// A handle among them.
    #[inline]
    pub(crate) fn handle(&self, kind: Kind, index: usize) -> usize {
        match self.fortran {
            false => library().handle(self.word(index)),
            true => self.handle_at(kind, index, 0),
        }
    }

    /// A handle of the array at an address among them.
    #[inline]
    pub(crate) fn handle_at(&self, kind: Kind, index: usize, at: usize) -> usize {
        match self.fortran {
            // SAFETY: an array of handles that has it (the invariant).
            false => unsafe { library().handle_at(self.word(index), at) },
            true => library().handle_of(kind, self.int_at(index, at)),
        }
    }

    /// A count of the array at an address among them.
    pub(crate) fn count_at(&self, index: usize, at: usize) -> i64 {
        match self.has_large_counts {
            false => self.int_at(index, at).into(),
            // SAFETY: an array of large counts that has it (the invariant).
            true => unsafe { *ptr::with_exposed_provenance::<i64>(self.word(index)).add(at) },
        }
    }

    /// The place of the last argument, which many functions return something in.
    pub(crate) fn last(&self) -> usize {
        self.arguments.len() - 1
    }

    /// Calls MPI's function with room for `count` statuses in place of what the caller does not want, and
    /// then `read` with the statuses.
    #[inline]
    pub(crate) fn with_statuses<R>(
        &self,
        index: usize,
        count: usize,
        read: impl FnOnce(c_int, Statuses) -> R,
    ) -> R {
        let (mut one, mut many): (Status, Vec<Status>) = ([0; 6], Vec::new());
        if library().is_ignored(self.word(index), self.fortran) {
            self.arguments[index].set(at(&mut one));
            if count > 1 {
                many.resize(count, one);
                self.arguments[index].set(many.as_mut_ptr().expose_provenance());
            }
        }
        read(self.run(), Statuses::at(self.word(index)))
    }

    /// Runs the call: `act` in a job that tracks its path, else MPI's function alone. With `sends`, the
    /// strand is there for others. A call that MPI makes itself, within another one, is MPI's own.
    #[inline]
    pub(crate) fn observe(&self, sends: bool, act: impl FnOnce(&Observed, &Job) -> c_int) -> c_int {
        self.observe_in(job::current(), sends, |observed, job| match job {
            Some(job) => act(observed, job),
            None => {
                if self.waits && job::has_sessions() {
                    observed.lose(LOST_UNKNOWN);
                }
                self.run()
            }
        })
    }

    /// As [`Self::observe`], in a job or not.
    #[inline]
    pub(crate) fn observe_in(
        &self,
        job: Option<&Job>,
        sends: bool,
        act: impl FnOnce(&Observed, Option<&Job>) -> c_int,
    ) -> c_int {
        let Some(table) = table() else {
            return self.run();
        };
        let entered = (table.enter)(self.address, sends && job.is_some(), self.waits);
        if entered.site == CALL_NESTED {
            return self.run();
        }
        let observed = Observed { table, entered, waits: Cell::new(1) };
        let result = act(&observed, job);
        if observed.waits.get() > 0 {
            // SAFETY: null is no strand.
            unsafe { (table.leave)(entered.site, ptr::null(), true) };
        }
        result
    }
}

/// The profiler's functions; `None` if the process is not measured.
#[inline]
pub(crate) fn table() -> Option<&'static MessageTable> {
    static TABLE: OnceLock<Option<&'static MessageTable>> = OnceLock::new();
    *TABLE.get_or_init(|| {
        let symbol = host::symbol(MESSAGES_SYMBOL);
        if symbol.is_null() {
            return None;
        }
        // SAFETY: the profiler's library exports this symbol with this type; its table is never freed.
        unsafe {
            let messages = std::mem::transmute::<*mut libc::c_void, Messages>(symbol);
            host::known(messages(table as *const () as usize))
        }
    })
}

/// A call that is observed.
pub(crate) struct Observed {
    table: &'static MessageTable,
    entered: Entered,
    /// For how many processes it may still have to wait; 0: it is over.
    waits: Cell<usize>,
}

/// In place of a strand that is not tracked.
static UNTRACKED: RemoteStrand = RemoteStrand::UNTRACKED;

impl Observed {
    /// The thread's strand, in a call that sends; of its savings, those that count.
    #[inline]
    pub(crate) fn strand(&self) -> &RemoteStrand {
        // SAFETY: null, or the thread's own until its next call.
        unsafe { self.entered.strand.as_ref() }.unwrap_or(&UNTRACKED)
    }

    /// Waits for at most so many other processes, but for one.
    pub(crate) fn expect(&self, processes: usize) {
        self.waits.set(processes.max(1));
    }

    /// Waits for so many more.
    pub(crate) fn expect_more(&self, processes: usize) {
        self.waits.set(self.waits.get() + processes);
    }

    /// Has waited for another process.
    #[inline]
    pub(crate) fn import(&self, strand: &RemoteStrand) {
        let waits = self.waits.get() - 1;
        self.waits.set(waits);
        // SAFETY: a reference.
        unsafe { (self.table.leave)(self.entered.site, strand, waits == 0) };
    }

    #[cold]
    pub(crate) fn lose(&self, cause: u32) {
        (self.table.lose)(cause);
    }
}
