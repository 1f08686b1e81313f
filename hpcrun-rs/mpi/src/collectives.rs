//! Collective operations. Before one of them runs, another one on the same communicator, which all its
//! processes call in the same order, brings the strands to those that will have waited:
//!
//! | direction | who waits for whom |
//! |---|---|
//! | all to all | every process for all |
//! | from the root | the others for the root |
//! | to the root | the root for the others |
//! | upwards | a process for those of lower ranks |
//!
//! Strands are combined on the way. A collective operation may synchronise all processes, says MPI, so no
//! correct program waits longer than it may; a root that sends does not wait for anybody's strand.

use crate::call::{Call, Function, Observed, observe};
use crate::job::Job;
use crate::library::{Library, at, pmpi};
use crate::requests::{Request, wait_for};
use hpcrun_abi::{LOST_UNKNOWN, RemoteStrand, SAVINGS, Saving};
use std::ffi::{c_int, c_void};

/// Who waits for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    All,
    FromRoot,
    ToRoot,
    Upwards,
}

/// MPI's handles of the strand as a type, and of its maximum as an operation.
#[derive(Debug)]
pub(crate) struct Operations {
    kind: usize,
    longest: usize,
}

impl Operations {
    /// # Safety
    /// MPI runs.
    pub(crate) unsafe fn new(library: &Library) -> Operations {
        let (mut kind, mut longest) = (0, 0);
        // SAFETY: MPI's functions on locals; the operation is a function of this library, which stays.
        unsafe {
            pmpi!(Type_contiguous(
                size_of::<RemoteStrand>(),
                library.byte,
                at(&mut kind)
            ));
            pmpi!(Type_commit(at(&mut kind)));
            pmpi!(Op_create(
                combine_all as *const () as usize,
                1,
                at(&mut longest)
            ));
        }
        Operations { kind, longest }
    }

    /// # Safety
    /// MPI still runs.
    pub(crate) unsafe fn free(&self) {
        let (mut kind, mut longest) = (self.kind, self.longest);
        // SAFETY: MPI's functions on handles of ours.
        unsafe {
            pmpi!(Type_free(at(&mut kind)));
            pmpi!(Op_free(at(&mut longest)));
        }
    }
}

unsafe extern "C" fn combine_all(
    from: *const c_void,
    into: *mut c_void,
    count: *const c_int,
    _: *const c_void,
) {
    // SAFETY: MPI passes so many strands, not necessarily aligned.
    unsafe {
        for index in 0..*count as usize {
            let other = from.cast::<RemoteStrand>().add(index).read_unaligned();
            let mine = into.cast::<RemoteStrand>().add(index);
            mine.write_unaligned(combine(&other, &mine.read_unaligned()));
        }
    }
}

/// The longer of two strands, merged with the other one. The order does not matter: processes may combine in
/// different ones.
fn combine(a: &RemoteStrand, b: &RemoteStrand) -> RemoteStrand {
    let order = |s: &RemoteStrand| (s.length, std::cmp::Reverse((s.rank, s.export)));
    let (mut longer, shorter) = if order(a) > order(b) {
        (*a, b)
    } else {
        (*b, a)
    };
    longer.burdened = longer.burdened.max(shorter.burdened);
    let gap = longer.length - shorter.length;
    let known = |strand: &RemoteStrand| SAVINGS.min(strand.count as usize);
    let others = &shorter.savings[..known(shorter)];
    let mut kept = 0;
    for index in 0..known(&longer) {
        let Saving { procedure, time } = longer.savings[index];
        let other = others.iter().find(|other| other.procedure == procedure);
        let time = time.min(gap + other.map_or(0, |other| other.time));
        if time > 0 {
            longer.savings[kept] = Saving { procedure, time };
            kept += 1;
        }
    }
    longer.savings[kept..].fill(Saving::default());
    longer.count = kept as u32;
    longer
}

/// The operation that brings the strands, beside a nonblocking one of the program.
#[derive(Debug)]
pub(crate) struct Companion {
    sent: RemoteStrand,
    received: RemoteStrand,
    /// The process waits for others.
    receives: bool,
    request: usize,
}

impl Companion {
    /// The program's operation is complete, so this one is or will be.
    pub(crate) fn finish(self: Box<Self>, observed: Observed, _: &Job) {
        wait_for(self.request);
        self.merge(observed);
    }

    fn merge(&self, observed: Observed) {
        if self.receives {
            observed.import(&self.received);
        }
    }

    /// Starts it; `None`: nobody waits for anybody, or it is not known who does.
    ///
    /// # Safety
    /// All processes of the communicator do the same.
    unsafe fn begin(
        direction: Direction,
        comm: usize,
        root: c_int,
        is_blocking: bool,
        observed: Observed,
        job: &Job,
    ) -> Option<Box<Companion>> {
        let mut state = job.state();
        state.flush();
        let Some(known) = state.comm(comm) else {
            observed.lose(LOST_UNKNOWN);
            return None;
        };
        let size = known.ranks.len();
        drop(state);
        if size == 1 {
            return None;
        }
        let mut rank: c_int = 0;
        // SAFETY: MPI's function on a local.
        unsafe { pmpi!(Comm_rank(comm, at(&mut rank))) };
        let is_root = rank == root;
        let mut strand = RemoteStrand::default();
        observed.export(&mut strand);
        let mut companion = Box::new(Companion {
            sent: strand,
            received: strand,
            receives: match direction {
                Direction::All => true,
                Direction::FromRoot => !is_root,
                Direction::ToRoot => is_root,
                Direction::Upwards => rank > 0,
            },
            request: 0,
        });
        let c = &mut *companion;
        let (sent, received) = (at(&mut c.sent), at(&mut c.received));
        let (request, root) = (at(&mut c.request), root as usize);
        let Operations { kind, longest } = job.operations;
        // SAFETY: as MPI's functions ask; the strands and the request stay where they are until it is
        // complete.
        unsafe {
            match (direction, is_blocking) {
                (Direction::All, true) => {
                    pmpi!(Allreduce(sent, received, 1, kind, longest, comm))
                }
                (Direction::All, false) => {
                    pmpi!(Iallreduce(sent, received, 1, kind, longest, comm, request))
                }
                (Direction::FromRoot, true) => pmpi!(Bcast(received, 1, kind, root, comm)),
                (Direction::FromRoot, false) => {
                    pmpi!(Ibcast(received, 1, kind, root, comm, request))
                }
                (Direction::ToRoot, true) => {
                    pmpi!(Reduce(sent, received, 1, kind, longest, root, comm))
                }
                (Direction::ToRoot, false) => {
                    pmpi!(Ireduce(
                        sent, received, 1, kind, longest, root, comm, request
                    ))
                }
                (Direction::Upwards, true) => {
                    pmpi!(Exscan(sent, received, 1, kind, longest, comm))
                }
                (Direction::Upwards, false) => {
                    pmpi!(Iexscan(sent, received, 1, kind, longest, comm, request))
                }
            };
        }
        Some(companion)
    }
}

// What is unsafe here relies on the caller's arguments being those that MPI's function takes: the
// communicator is the last one, before it the root, if there is one, behind it the request of a nonblocking
// one.
macro_rules! directions {
    ($($blocking:ident $nonblocking:ident $direction:ident;)*) => { $(
        pub(crate) unsafe fn $blocking(call: Call<'_>, real: impl Function) -> c_int {
            // SAFETY: see above.
            unsafe { run(call, real, Direction::$direction, true) }
        }

        pub(crate) unsafe fn $nonblocking(call: Call<'_>, real: impl Function) -> c_int {
            // SAFETY: see above.
            unsafe { run(call, real, Direction::$direction, false) }
        }
    )* };
}

directions! {
    all begin_all All;
    from_root begin_from_root FromRoot;
    to_root begin_to_root ToRoot;
    upwards begin_upwards Upwards;
}

unsafe fn run(
    call: Call<'_>,
    real: impl Function,
    direction: Direction,
    is_blocking: bool,
) -> c_int {
    observe(&call, &real, |observed, job| {
        let comm = call.arguments.len() - if is_blocking { 1 } else { 2 };
        let is_rooted = matches!(direction, Direction::FromRoot | Direction::ToRoot);
        // SAFETY: see above.
        let companion = unsafe {
            let root = if is_rooted { call.int(comm - 1) } else { 0 };
            Companion::begin(direction, call.comm(comm), root, is_blocking, observed, job)
        };
        let result = real(call.arguments);
        match companion {
            Some(companion) if is_blocking => companion.merge(observed),
            Some(companion) => {
                // SAFETY: see above.
                let handle = unsafe { call.request_at(comm + 1, 0) };
                job.state()
                    .requests
                    .insert(handle, Request::Collective(companion));
            }
            None => {}
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strand(rank: u32, length: u64, savings: &[(u64, u64)]) -> RemoteStrand {
        let mut strand = RemoteStrand {
            length,
            burdened: length + u64::from(rank),
            rank,
            session: 1,
            count: savings.len() as u32,
            ..RemoteStrand::default()
        };
        for (to, (procedure, time)) in strand.savings.iter_mut().zip(savings) {
            *to = Saving {
                procedure: *procedure,
                time: *time,
            };
        }
        strand
    }

    #[test]
    fn the_longest_goes_on_whatever_the_order() {
        let strands = [
            strand(0, 100, &[(1, 60), (2, 30)]),
            strand(1, 100, &[(1, 60), (3, 20)]),
            strand(2, 90, &[(1, 5), (2, 15)]),
        ];
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let [a, b, c] = order.map(|index| &strands[index]);
            let all = combine(&combine(a, b), c);
            // Without procedure 1 the third one is the longest: 90 - 5. Without 2 it is the second one.
            let expected = RemoteStrand {
                burdened: 101,
                ..strand(0, 100, &[(1, 15)])
            };
            assert_eq!(all, expected, "{order:?}");
            assert_eq!(combine(a, &combine(b, c)), expected, "{order:?}");
        }
    }
}
