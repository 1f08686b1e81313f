//! Collective operations. Before one of them runs, another one on the same communicator, which all its
//! processes call in the same order, brings the strands to those that will have waited:
//!
//! | direction | who waits for whom |
//! |---|---|
//! | all to all | every process for all |
//! | from the root | the others for the root |
//! | to the root | the root for the others |
//! | upwards | a process for those of lower ranks |
//! | each | a process for all who send it something |
//! | neighbours | a process for those from whom it receives by the topology |
//!
//! Strands are combined on the way. A collective operation may synchronise all processes, says MPI, so no
//! correct program waits longer than it may; a root that sends does not wait for anybody's strand.

use crate::call::{Call, Form, Observed};
use crate::job::Job;
use crate::library::{Kind, Library, at, library, pmpi};
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
    /// In the topology of the communicator.
    Neighbours,
    /// All for all who send them something.
    Each,
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

/// The longer of two strands, merged with the other one; of two sessions, that of the later one alone. The
/// order does not matter: processes may combine in different ones.
fn combine(a: &RemoteStrand, b: &RemoteStrand) -> RemoteStrand {
    if a.session != b.session {
        return if a.session > b.session { *a } else { *b };
    }
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

/// What the operation that brings the strands needs to know, of a program's operation.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    direction: Direction,
    comm: usize,
    root: usize,
    /// The process waits for another one, or for all.
    receives: bool,
    /// How many it waits for, one by one.
    sources: usize,
    /// Of all to all processes, whom it sends to and receives from: counts, where they lie.
    counts: [Vec<c_int>; 4],
}

impl Plan {
    /// All processes wait for all.
    pub(crate) fn all(comm: usize) -> Plan {
        let (direction, counts) = (Direction::All, Default::default());
        Plan { direction, comm, root: 0, receives: true, sources: 0, counts }
    }

    /// `None`: nobody waits for anybody, or it is not known who does. All processes of the communicator come
    /// to the same.
    fn of(
        call: &Call<'_>,
        direction: Direction,
        comm: usize,
        observed: &Observed,
        job: &Job,
    ) -> Option<Plan> {
        let handle = call.handle(Kind::Comm, comm);
        let known = job.state().world.comm(handle).map(|comm| (comm.ranks.len(), comm.is_inter));
        if known.is_none() {
            observed.lose(LOST_UNKNOWN);
        }
        let (size, is_inter) = known?;
        if size == 1 && !is_inter && direction != Direction::Neighbours {
            return None;
        }
        let mut rank: c_int = 0;
        pmpi!(Comm_rank(handle, at(&mut rank)));
        let is_rooted = matches!(direction, Direction::FromRoot | Direction::ToRoot);
        let root = if is_rooted { call.int(comm - 1) } else { 0 };
        let receives = match direction {
            Direction::All => true,
            // Between two groups, those of the root's have constants in place of its rank.
            Direction::FromRoot if is_inter => root >= 0,
            Direction::ToRoot if is_inter => root < 0 && root != library().proc_null,
            Direction::FromRoot => rank != root,
            Direction::ToRoot => rank == root,
            Direction::Upwards => rank > 0,
            Direction::Neighbours | Direction::Each => false,
        };
        let mut plan = Plan { direction, root: root as usize, receives, ..Plan::all(handle) };
        match direction {
            Direction::Neighbours => plan.sources = sources(handle, rank),
            // In Fortran, whether the counts are those of the receives alone is not known.
            Direction::Each if call.fortran => {
                (plan.direction, plan.receives) = (Direction::All, true);
            }
            Direction::Each => {
                let has = |place, rank| c_int::from(call.count_at(place, rank) != 0);
                let in_place = library().in_place == call.arguments[0].get();
                let sent = if in_place { RECEIVED } else { SENT };
                plan.counts = [
                    (0..size).map(|rank| has(sent, rank)).collect(),
                    vec![0; size],
                    (0..size).map(|rank| has(RECEIVED, rank)).collect(),
                    (0..size as c_int).collect(),
                ];
                plan.sources = size;
            }
            _ => {}
        }
        Some(plan)
    }
}

/// Where the counts are among the arguments of an operation of all to all.
const SENT: usize = 1;
const RECEIVED: usize = 5;

/// How many processes the calling one receives from in an operation of neighbours.
fn sources(comm: usize, rank: c_int) -> usize {
    let (mut kind, mut count, mut others, mut weighted): (c_int, c_int, c_int, c_int) = (0, 0, 0, 0);
    pmpi!(Topo_test(comm, at(&mut kind)));
    let [grid, graph] = library().topologies;
    if kind == grid {
        pmpi!(Cartdim_get(comm, at(&mut count)));
        count *= 2;
    } else if kind == graph {
        pmpi!(Graph_neighbors_count(comm, rank as usize, at(&mut count)));
    } else {
        let counts = [at(&mut count), at(&mut others), at(&mut weighted)];
        pmpi!(Dist_graph_neighbors_count(comm, counts[0], counts[1], counts[2]));
    }
    count.max(0) as usize
}

/// The operation that brings the strands, beside one of the program.
#[derive(Debug)]
pub(crate) struct Companion {
    plan: Plan,
    sent: RemoteStrand,
    received: RemoteStrand,
    /// Those of each source; there may be nobody in the place of one.
    each: Vec<RemoteStrand>,
    request: usize,
}

/// Who has sent nothing.
const NOBODY: u32 = u32::MAX;

impl Companion {
    /// The program's operation is complete, so this one is or will be.
    pub(crate) fn finish(self: Box<Self>, observed: &Observed) {
        wait_for(self.request);
        self.merge(observed);
    }

    pub(crate) fn merge(&self, observed: &Observed) {
        if self.plan.receives {
            observed.import(&self.received);
        }
        let there = || self.each.iter().filter(|strand| strand.rank != NOBODY);
        observed.expect_more(there().count().saturating_sub(1));
        there().for_each(|strand| observed.import(strand));
    }

    /// Starts it.
    pub(crate) fn begin(plan: Plan, is_blocking: bool, observed: &Observed, job: &Job) -> Box<Companion> {
        let strand = *observed.strand();
        let nobody = RemoteStrand { rank: NOBODY, ..RemoteStrand::UNTRACKED };
        let each = vec![nobody; plan.sources];
        let mut companion = Box::new(Companion { plan, sent: strand, received: strand, each, request: 0 });
        let c = &mut *companion;
        // They stay where they are until the operation is complete.
        let (from, to, request) = (at(&mut c.sent), at(&mut c.received), at(&mut c.request));
        let each = c.each.as_mut_ptr().expose_provenance();
        let counts = c.plan.counts.each_mut().map(|all| all.as_mut_ptr().expose_provenance());
        let [sent, sent_at, got, got_at] = counts;
        let (comm, root, Operations { kind, longest }) = (c.plan.comm, c.plan.root, job.operations);
        match (c.plan.direction, is_blocking) {
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
            (Direction::Neighbours, true) => {
                pmpi!(Neighbor_allgather(from, 1, kind, each, 1, kind, comm))
            }
            (Direction::Neighbours, false) => {
                pmpi!(Ineighbor_allgather(from, 1, kind, each, 1, kind, comm, request))
            }
            (Direction::Each, true) => {
                pmpi!(Alltoallv(from, sent, sent_at, kind, each, got, got_at, kind, comm))
            }
            (Direction::Each, false) => {
                pmpi!(Ialltoallv(from, sent, sent_at, kind, each, got, got_at, kind, comm, request))
            }
        };
        companion
    }
}

/// (…, root if there is one, communicator, information of a persistent form, request of another form than
/// the blocking one)
pub(crate) fn collective(call: &Call<'_>, direction: Direction) -> c_int {
    let is_blocking = match call.form {
        Form::Persistent => return prepare(call, direction),
        form => form == Form::Blocking,
    };
    call.observe(true, |observed, job| {
        let comm = call.last() - usize::from(!is_blocking);
        let plan = Plan::of(call, direction, comm, observed, job);
        let companion = plan.map(|plan| Companion::begin(plan, is_blocking, observed, job));
        let result = call.run();
        match companion {
            Some(companion) if is_blocking => companion.merge(observed),
            Some(companion) => {
                let request = Request::Collective(companion);
                let handle = call.handle_at(Kind::Request, comm + 1, 0);
                job.state().world.requests.insert(handle, request);
            }
            None => {}
        }
        result
    })
}

/// Prepares a persistent operation. They may be started in any order, so the one beside each has a
/// communicator of its own, which stays.
fn prepare(call: &Call<'_>, direction: Direction) -> c_int {
    call.observe(false, |observed, job| {
        let comm = call.last() - 2;
        let plan = Plan::of(call, direction, comm, observed, job);
        let plan = plan.map(|mut plan| {
            let shared = plan.comm;
            pmpi!(Comm_dup(shared, at(&mut plan.comm)));
            plan
        });
        let result = call.run();
        if let Some(plan) = plan.filter(|_| result == 0) {
            let handle = call.handle_at(Kind::Request, comm + 2, 0);
            job.state().world.requests.insert(handle, Request::PersistentCollective(plan, None));
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
