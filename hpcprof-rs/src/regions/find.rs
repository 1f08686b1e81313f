//! Finds the regions of the logical call paths, and adds up what is in them.

use crate::catalogue::Catalogue;
use crate::model::code::Code;
use crate::model::metrics::{CATEGORY_PREFIX, IDLENESS, OVERHEAD, WORK};
use crate::model::tree::{SourceLocation, Tree};
use crate::regions::construct::{Role, is_hand_over, role};
use hpc_formats::profile::LOCK_WAIT;
use hpc_formats::structure::Origin;
use start_up::calibration::{Construct, Place};
use std::collections::BTreeSet;

/// Sums over some contexts, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Work.
    pub work: i64,
    /// Idleness.
    pub idleness: i64,
    /// Overhead of the category `sync`.
    pub synchronisation: i64,
    /// Other overhead.
    pub other_overhead: i64,
    /// Waiting for locks that these contexts held, where it was measured.
    pub lock_wait: i64,
}

impl Sums {
    /// Work, idleness and overhead.
    pub fn effort(&self) -> i64 {
        self.work + self.idleness + self.synchronisation + self.other_overhead
    }
}

/// A region.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// The construct.
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
    /// What is executed serially in it.
    pub serial: Sums,
    /// What is executed in parallel.
    pub parallel: Sums,
}

/// The regions, and what lies outside of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Regions {
    /// Those with the most effort first.
    pub all: Vec<Region>,
    /// The rest of the program.
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

/// Finds the regions of a tree, the logical projection of a database.
pub fn find(catalogue: &Catalogue, tree: &Tree) -> Regions {
    let code = &catalogue.code;
    let position = |name: &str| catalogue.metrics.iter().position(|m| m.name == name);
    let sync = position(&format!("{CATEGORY_PREFIX}sync"));
    let lock_wait = position(LOCK_WAIT);
    let roles: Vec<Option<Role>> = code.procedures.iter().map(|p| role(&p.name)).collect();
    let hands_over: Vec<bool> = code.procedures.iter().map(|p| is_hand_over(&p.name)).collect();
    let mut regions = Regions::default();
    // Loops in other regions: not all of their executions begin a region.
    let mut inner = BTreeSet::new();
    let mut states: Vec<State> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in (0..).zip(&tree.nodes) {
        let mut state = node.parent.map_or(State::default(), |p| states[p as usize]);
        let procedure = node.label.procedure();
        let own = procedure.and_then(|p| roles[p as usize]);
        let role = match node.parallel_loop {
            Some(_) if own.is_none_or(|own| !is_openmp(own.construct())) => {
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
                    construct if is_openmp(construct) => Place::Worker,
                    _ if state.is_in_pool => Place::Worker,
                    _ => Place::Outside,
                };
                // OpenMP's are counted where they are called.
                let counted_at = match is_openmp(role.construct()) {
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
                    serial: Sums::default(),
                    parallel: Sums::default(),
                }));
            } else if state.parallel_loop != node.parallel_loop {
                inner.extend(node.parallel_loop);
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
    regions.all.retain(|r| r.effort() > 0);
    for region in &mut regions.all {
        let is_inner = region.parallel_loop.is_some_and(|l| inner.contains(&l));
        region.executions = region.executions.filter(|_| !is_inner);
    }
    regions.all.sort_by_key(|r| -r.effort());
    regions
}

fn is_openmp(construct: Construct) -> bool {
    matches!(construct, Construct::Libgomp | Construct::Libomp)
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

fn name_of(code: &Code, role: Role, procedure: Option<u32>, user: Option<u32>) -> String {
    let named = match role.construct() {
        Construct::Libgomp | Construct::Libomp => procedure,
        _ => user,
    };
    named.map_or("?".to_owned(), |p| code.procedure(p).name.clone())
}

impl Region {
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
