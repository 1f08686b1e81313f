//! Finds the regions of the logical call paths, and adds up what is in them.

use crate::catalogue::{Catalogue, Projection};
use crate::error::Result;
use crate::model::code::Code;
use crate::model::loops::directive_of;
use crate::model::metrics::{CATEGORY_PREFIX, IDLENESS, OVERHEAD, WORK};
use crate::model::tree::SourceLocation;
use crate::regions::construct::{Role, is_hand_over, role};
use hpc_formats::process::DirectiveKind;
use hpc_formats::profile::LOCK_WAIT;
use hpc_formats::structure::Origin;
use start_up::calibration::{Construct, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Sums over some contexts, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    pub work: i64,
    pub idleness: i64,
    /// Overhead of the category `sync`.
    pub synchronisation: i64,
    pub other_overhead: i64,
    /// Waiting for locks that these contexts held, where it was measured.
    pub lock_wait: i64,
}

impl Sums {
    pub fn effort(&self) -> i64 {
        self.work + self.idleness + self.synchronisation + self.other_overhead
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    pub construct: Construct,
    /// Where it is executed: on a worker, or outside of a pool that takes it over. Of what has no pool, its
    /// caller is a worker.
    pub place: Place,
    /// Who executes it: the nearest procedure of the program around it; of a parallel iterator its chain of
    /// calls; of an OpenMP region the procedure that the compiler made of it.
    pub name: String,
    /// Where it is executed.
    pub call: Option<SourceLocation>,
    /// How often, if a runtime has counted that: of a parallel iterator with machine code of its own.
    pub executions: Option<u64>,
    /// Of a parallel iterator.
    pub(super) parallel_loop: Option<u32>,
    /// How many tasks were made in it, if a runtime has counted that.
    pub tasks: Option<u64>,
    /// Chunks of its loops that the runtime has handed out, and iterations in these, if it has.
    pub chunks: Option<[u64; 2]>,
    /// What each thread had in it, in the order of processes and threads.
    pub threads: Vec<Part>,
    /// What is executed serially in it.
    pub serial: Sums,
    /// What is executed in parallel.
    pub parallel: Sums,
}

/// A thread's part in a region, of all executions. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The process's id.
    pub process: u32,
    /// The thread's number in the process.
    pub thread: u32,
    /// Its work and overhead.
    pub busy: i64,
    /// The idleness that it is charged with: while others had nothing to do, it worked.
    pub idleness: i64,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Regions {
    /// Those with the most effort first.
    pub all: Vec<Region>,
    pub outside: Sums,
}

/// Where a context is.
#[derive(Clone, Copy, Default)]
struct State {
    /// The region around it.
    region: Option<usize>,
    /// The first loop in it.
    parallel_loop: Option<u32>,
    is_forked: bool,
    is_in_pool: bool,
    /// The nearest procedure of the program, itself included.
    user: Option<u32>,
}

pub fn find(catalogue: &Catalogue) -> Result<Regions> {
    let tree = &catalogue.contexts(Projection::Logical)?;
    let code = &catalogue.code;
    let position = |name: &str| catalogue.metrics.iter().position(|m| m.name == name);
    let sync = position(&format!("{CATEGORY_PREFIX}sync"));
    let lock_wait = position(LOCK_WAIT);
    let roles: Vec<Option<Role>> = code.procedures.iter().map(|p| role(&p.name)).collect();
    let hands_over: Vec<bool> = code.procedures.iter().map(|p| is_hand_over(&p.name)).collect();
    let mut regions = Regions::default();
    // Loops in other regions: not all of their executions begin a region.
    let mut inner = BTreeSet::new();
    // The regions that make tasks of a loop.
    let mut makers: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    let mut states: Vec<State> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in (0..).zip(&tree.nodes) {
        let mut state = node.parent.map_or(State::default(), |p| states[p as usize]);
        let procedure = node.label.procedure();
        let own = procedure.and_then(|p| roles[p as usize]);
        let role = match node.parallel_loop {
            Some(_) if own.is_none_or(|own| !is_own_loop(own.construct())) => {
                Some(Role::Forks(Construct::ParIter))
            }
            _ => own,
        };
        if let Some(role) = role {
            if state.region.is_none() {
                let (name, call) = match node.parallel_loop.map(|l| code.parallel_loop(l)) {
                    Some(found) => (found.name.clone(), found.call),
                    None => (name_of(code, role, procedure, state.user), node.call.location()),
                };
                let place = match role.construct() {
                    Construct::StdThread => Place::Worker,
                    construct if is_own_loop(construct) => Place::Worker,
                    _ if state.is_in_pool => Place::Worker,
                    _ => Place::Outside,
                };
                // These are counted where they are called.
                let counted_at = match is_own_loop(role.construct()) {
                    true => Place::Outside,
                    false => place,
                };
                let executions = node.parallel_loop.and_then(|l| executions(code, l, counted_at));
                state.region = Some(regions.find_or_add(Region {
                    construct: role.construct(),
                    place,
                    name,
                    call,
                    executions,
                    parallel_loop: node.parallel_loop,
                    tasks: None,
                    chunks: node.parallel_loop.and_then(|l| chunks(code, l)),
                    threads: Vec::new(),
                    serial: Sums::default(),
                    parallel: Sums::default(),
                }));
            } else if state.parallel_loop != node.parallel_loop {
                inner.extend(node.parallel_loop);
            }
            if let (Some(region), Some(l)) = (state.region, node.parallel_loop) {
                if makes_tasks(code, l) {
                    makers.entry(l).or_default().insert(region);
                }
            }
            state.parallel_loop = state.parallel_loop.or(node.parallel_loop);
            state.is_forked |= matches!(role, Role::Forks(_));
        } else if let Some(own) = procedure.filter(|p| code.procedure(*p).origin == Origin::User) {
            state.user = Some(own);
        }
        state.is_in_pool |= procedure.is_some_and(|p| hands_over[p as usize]);
        states.push(state);
        let values = tree.exclusive.of(id);
        let value = |metric: Option<usize>| metric.map_or(0, |m| values[m]);
        let sums = match state.region.map(|r| &mut regions.all[r]) {
            None => &mut regions.outside,
            Some(region) if state.is_forked => &mut region.parallel,
            Some(region) => &mut region.serial,
        };
        sums.work += values[WORK];
        sums.idleness += values[IDLENESS];
        sums.synchronisation += value(sync);
        sums.other_overhead += values[OVERHEAD] - value(sync);
        sums.lock_wait += value(lock_wait);
    }
    for (made, regions_of) in makers {
        // Of tasks that several regions make, nobody knows how many are whose.
        if let (Some(only), 1, Some(counts)) =
            (regions_of.first(), regions_of.len(), code.parallel_loop(made).counts)
        {
            let counted = u64::try_from(counts.executions.max(counts.splits)).unwrap_or(0);
            let tasks = &mut regions.all[*only].tasks;
            *tasks = Some(tasks.unwrap_or(0) + counted);
        }
    }
    let of: Vec<Option<u32>> = states.iter().map(|state| state.region.map(|region| region as u32)).collect();
    let threads = catalogue.threads()?;
    for ((region, thread), values) in catalogue.values_by_group(&of)? {
        let known = &threads[thread];
        let (busy, idleness) = (values[WORK] + values[OVERHEAD], values[IDLENESS]);
        if busy + idleness > 0 {
            let (process, thread) = (known.pid, known.ordinal);
            let part = Part { process, thread, busy, idleness };
            regions.all[region as usize].threads.push(part);
        }
    }
    regions.all.retain(|r| r.effort() > 0);
    for region in &mut regions.all {
        let is_inner = region.parallel_loop.is_some_and(|l| inner.contains(&l));
        region.executions = region.executions.filter(|_| !is_inner);
    }
    regions.all.sort_by_key(|r| -r.effort());
    Ok(regions)
}

/// Whether each of the construct's loops is one by itself, whatever the procedures in it are called.
fn is_own_loop(construct: Construct) -> bool {
    use Construct::{Libgomp, Libomp, Pool, Tbb};
    matches!(construct, Libgomp | Libomp | Tbb | Pool)
}

/// Whether a loop's executions are tasks, or its splits are.
fn makes_tasks(code: &Code, parallel_loop: u32) -> bool {
    let known = code.parallel_loop(parallel_loop);
    let kind = directive_of(&code.procedure(known.entry).name);
    match kind {
        Some(kind) => !matches!(kind, DirectiveKind::GompRegion | DirectiveKind::OmpRegion),
        None => known.counts.is_some_and(|counts| counts.splits > 0),
    }
}

/// How often a loop was executed, if it does not share its counts with others.
fn executions(code: &Code, parallel_loop: u32, place: Place) -> Option<u64> {
    let known = code.parallel_loop(parallel_loop);
    let counts = known.counts.filter(|_| known.shared_by <= 1)?;
    let counted = match place {
        Place::Outside => counts.outside,
        Place::Worker => counts.executions - counts.outside,
    };
    u64::try_from(counted).ok().filter(|count| *count > 0)
}

/// The chunks of a region's loops, and their iterations.
fn chunks(code: &Code, parallel_loop: u32) -> Option<[u64; 2]> {
    let known = code.parallel_loop(parallel_loop);
    let counts = known.counts.filter(|counts| known.shared_by <= 1 && counts.chunks > 0)?;
    Some([counts.chunks, counts.iterations].map(|count| u64::try_from(count).unwrap_or(0)))
}

fn name_of(code: &Code, role: Role, procedure: Option<u32>, user: Option<u32>) -> String {
    let named =
        if matches!(role.construct(), Construct::Libgomp | Construct::Libomp) { procedure } else { user };
    named.map_or("?".to_owned(), |p| code.procedure(p).name.clone())
}

impl Region {
    /// The thread that others waited for most: the one with the most idleness, and its share of all.
    pub fn last(&self) -> Option<(&Part, f64)> {
        let all: i64 = self.threads.iter().map(|part| part.idleness).sum();
        let last = self.threads.iter().max_by_key(|part| part.idleness)?;
        (all > 0).then(|| (last, last.idleness as f64 / all as f64))
    }

    /// Least, mean and most time of a thread.
    pub fn times(&self) -> Option<[i64; 3]> {
        let times = || self.threads.iter().map(|part| part.busy);
        let mean = times().sum::<i64>() / i64::try_from(self.threads.len()).ok()?.max(1);
        Some([times().min()?, mean, times().max()?])
    }

    /// All effort in it: p t_p.
    pub fn effort(&self) -> i64 {
        self.serial.effort() + self.parallel.effort()
    }
}

impl Regions {
    fn find_or_add(&mut self, new: Region) -> usize {
        let is_it = |r: &Region| {
            (r.construct, r.place, &r.name, r.call, r.parallel_loop)
                == (new.construct, new.place, &new.name, new.call, new.parallel_loop)
        };
        if let Some(found) = self.all.iter().position(is_it) {
            return found;
        }
        self.all.push(new);
        self.all.len() - 1
    }
}
