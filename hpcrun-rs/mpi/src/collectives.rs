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

use crate::call::{Call, Observed};
use crate::job::Job;
use crate::library::{Library, at, pmpi};
use crate::requests::{Request, wait_for};
use hpcrun_abi::{LOST_UNKNOWN, RemoteStrand, SAVINGS, Saving};
use std::ffi::{c_int, c_void};

/// Who waits for whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    All,
    FromRoot,
    ToRoot,
    Upwards,
}

/// MPI's handles of the strand as a type, and of its maximum as an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operations {
    kind: usize,
    longest: usize,
}

impl Operations {
    pub(crate) fn new(library: &Library) -> Operations {
        let (mut kind, mut longest) = (0, 0);
        pmpi!(Type_contiguous(size_of::<RemoteStrand>(), library.byte, at(&mut kind)));
        pmpi!(Type_commit(at(&mut kind)));
        pmpi!(Op_create(combine_all as *const () as usize, 1, at(&mut longest)));
        Operations { kind, longest }
    }

    pub(crate) fn free(&self) {
        let (mut kind, mut longest) = (self.kind, self.longest);
        pmpi!(Type_free(at(&mut kind)));
        pmpi!(Op_free(at(&mut longest)));
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
    let (mut longer, shorter) = if order(a) > order(b) { (*a, b) } else { (*b, a) };
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
    pub(crate) fn finish(self: Box<Self>, observed: &Observed) {
        wait_for(self.request);
        self.merge(observed);
    }

    fn merge(&self, observed: &Observed) {
        if self.receives {
            observed.import(&self.received);
        }
    }

    /// Starts it; `None`: nobody waits for anybody, or it is not known who does. All processes of the
    /// communicator do the same.
    fn begin(
        direction: Direction,
        (comm, root): (usize, c_int),
        is_blocking: bool,
        observed: &Observed,
        job: &Job,
    ) -> Option<Box<Companion>> {
        let size = job.state().world.comm(comm).map(|comm| comm.ranks.len());
        if size.is_none() {
            observed.lose(LOST_UNKNOWN);
        }
        size.filter(|size| *size > 1)?;
        let mut rank: c_int = 0;
        pmpi!(Comm_rank(comm, at(&mut rank)));
        let mut strand = *observed.strand();
        strand.name = 0;
        let mut companion = Box::new(Companion {
            sent: strand,
            received: strand,
            receives: match direction {
                Direction::All => true,
                Direction::FromRoot => rank != root,
                Direction::ToRoot => rank == root,
                Direction::Upwards => rank > 0,
            },
            request: 0,
        });
        let c = &mut *companion;
        // They stay where they are until the operation is complete.
        let (from, to, request) = (at(&mut c.sent), at(&mut c.received), at(&mut c.request));
        let (root, Operations { kind, longest }) = (root as usize, job.operations);
        match (direction, is_blocking) {
            (Direction::All, true) => pmpi!(Allreduce(from, to, 1, kind, longest, comm)),
            (Direction::All, false) => {
                pmpi!(Iallreduce(from, to, 1, kind, longest, comm, request))
            }
            (Direction::FromRoot, true) => pmpi!(Bcast(to, 1, kind, root, comm)),
            (Direction::FromRoot, false) => pmpi!(Ibcast(to, 1, kind, root, comm, request)),
            (Direction::ToRoot, true) => pmpi!(Reduce(from, to, 1, kind, longest, root, comm)),
            (Direction::ToRoot, false) => {
                pmpi!(Ireduce(from, to, 1, kind, longest, root, comm, request))
            }
            (Direction::Upwards, true) => pmpi!(Exscan(from, to, 1, kind, longest, comm)),
            (Direction::Upwards, false) => {
                pmpi!(Iexscan(from, to, 1, kind, longest, comm, request))
            }
        };
        Some(companion)
    }
}

/// The communicator is the last argument, before it the root, if there is one, behind it the request of a
/// nonblocking operation.
pub(crate) fn run(call: &Call<'_>, direction: Direction, is_blocking: bool) -> c_int {
    call.observe(true, |observed, job| {
        let comm = call.arguments.len() - if is_blocking { 1 } else { 2 };
        let is_rooted = matches!(direction, Direction::FromRoot | Direction::ToRoot);
        let root = if is_rooted { call.int(comm - 1) } else { 0 };
        let place = (call.comm(comm), root);
        let companion = Companion::begin(direction, place, is_blocking, observed, job);
        let result = call.run();
        match companion {
            Some(companion) if is_blocking => companion.merge(observed),
            Some(companion) => {
                let request = Request::Collective(companion);
                let handle = call.request_at(comm + 1, 0);
                job.state().world.requests.insert(handle, request);
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
            *to = Saving { procedure: *procedure, time: *time };
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
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let [a, b, c] = order.map(|index| &strands[index]);
            let all = combine(&combine(a, b), c);
            // Without procedure 1 the third one is the longest: 90 - 5. Without 2 it is the second one.
            let expected = RemoteStrand { burdened: 101, ..strand(0, 100, &[(1, 15)]) };
            assert_eq!(all, expected, "{order:?}");
            assert_eq!(combine(a, &combine(b, c)), expected, "{order:?}");
        }
    }
}
