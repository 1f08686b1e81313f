//! OpenMP's edges of the critical path. A thread's part in a region is a strand of its own, and so is a task.
//!
//! | event | follows |
//! |---|---|
//! | a thread's part in a region begins; the join | the fork; the ends of all parts and tasks |
//! | a barrier is passed | all arrivals at it, and the tasks that were run until then |
//! | a task begins | its creation, and the ends of those that it depends on |
//! | tasks are waited for | the ends of the tasks that one has made |
//!
//! Strands are left at objects, which are named by numbers of regions and tasks: no memory is there. Nothing
//! happens in a run without critical path. Libraries' own waits are pauses of the thread, so no activity.

use crate::events::{Place, amend, tell};
use critical_path::Edge;
use hpcrun_core::path;
use hpcrun_core::tasks::{Dependences, OnPath, Task};
use hpcrun_core::threads::{self, OwnThread};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The bits of an object's name below its kind.
const NAMES: usize = (1 << 62) - 1;
/// Parts of a name.
const FORK: usize = 0;
const JOIN: usize = 1;
const SPAWN: usize = 2;
const CHILDREN: usize = 3;

fn object(number: u64, part: usize) -> usize {
    1 << 63 | (((number as usize) << 2) & NAMES) | part
}

/// A barrier of a region, by how many there were before.
fn barrier(team: u64, round: u32) -> usize {
    3 << 62 | (((team as usize) << 32) & NAMES) | round as usize
}

/// A number for a region or task; 0 if nobody tracks.
#[inline]
fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if path::is_active() { LAST.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 }
}

fn forget(objects: impl IntoIterator<Item = usize>) {
    amend(|tracked| objects.into_iter().for_each(|object| tracked.forget(object)));
}

pub(super) struct Team {
    number: u64,
    /// Barriers that some thread has passed.
    rounds: AtomicU32,
}

impl Team {
    /// The calling thread begins a region, by a call that returns to `from`.
    #[inline]
    pub(super) fn fork(from: usize) -> Team {
        let number = number();
        if number != 0 {
            tell(Place::of_call(from), |tracked, at| tracked.release(object(number, FORK), at));
        }
        Team { number, rounds: AtomicU32::new(0) }
    }

    /// The calling thread begins its part of the region.
    #[inline]
    pub(super) fn begin(&self, task: &Task, path: &OnPath, from: usize) {
        if self.number == 0 {
            return;
        }
        path.team.set(self.number);
        path.number.set(number());
        task.path.set(path);
        let fork = object(self.number, FORK);
        path.left.set(tell(Place::of_call(from), |tracked, at| tracked.begin_task(fork, at)));
    }

    /// The region is over.
    #[inline]
    pub(super) fn join(&self, from: usize) {
        if self.number == 0 {
            return;
        }
        let (fork, join) = (object(self.number, FORK), object(self.number, JOIN));
        tell(Place::of_call(from), |tracked, at| tracked.follow(join, Edge::Join, at));
        let rounds = self.rounds.load(Ordering::Relaxed);
        let last = rounds.saturating_sub(KEPT)..=rounds;
        forget([fork, join].into_iter().chain(last.map(|round| barrier(self.number, round))));
    }
}

/// Barriers whose arrivals are kept: who arrives at the next one has passed the last one, so all have passed
/// the one before.
const KEPT: u32 = 2;

fn on_path(task: &Task) -> Option<&OnPath> {
    // SAFETY: null, or of the record's life (`Task::path`).
    unsafe { task.path.get().as_ref() }
}

/// The innermost task of the calling thread.
fn current(thread: &OwnThread) -> Option<&Task> {
    // SAFETY: null, or a record of a task that this thread is in.
    unsafe { thread.task().as_ref() }
}

/// The calling thread's part in its innermost region.
fn part(thread: &OwnThread) -> Option<&OnPath> {
    let mut task = current(thread);
    while let Some(record) = task {
        if let Some(path) = on_path(record).filter(|path| path.team.get() != 0) {
            return Some(path);
        }
        // SAFETY: as in `current`.
        task = unsafe { record.outer().as_ref() };
    }
    None
}

#[inline]
pub(super) fn arrive(thread: &OwnThread, from: usize) {
    if !path::is_active() {
        return;
    }
    let Some(part) = part(thread) else { return };
    let (team, round) = (part.team.get(), part.round.get());
    tell(Place::of_call(from), |tracked, at| {
        tracked.release(barrier(team, round), at);
        // Of the last barrier of a region nobody may tell that it was passed.
        tracked.release(object(team, JOIN), at);
        if let Some(old) = round.checked_sub(KEPT) {
            tracked.forget(barrier(team, old));
        }
    });
}

#[inline]
pub(super) fn pass(thread: &OwnThread, from: usize) {
    if !path::is_active() {
        return;
    }
    let Some(part) = part(thread) else { return };
    let (team, round) = (part.team.get(), part.round.get());
    part.round.set(round.wrapping_add(1));
    tell(Place::of_call(from), |tracked, at| {
        tracked.follow(barrier(team, round), Edge::Barrier, at);
    });
}

/// The task of the calling thread has waited for those that it has made.
#[inline]
pub(super) fn join_tasks(thread: &OwnThread, from: usize) {
    let number = current(thread).and_then(on_path).map_or(0, |path| path.number.get());
    if number != 0 {
        let children = object(number, CHILDREN);
        tell(Place::of_call(from), |tracked, at| {
            tracked.follow(children, Edge::Join, at);
            tracked.forget(children);
        });
    }
}

/// The task of the calling thread ends. `is_told`: others follow it, since they may be yet to wait for it.
#[inline]
pub(super) fn end(task: &Task, from: usize, is_told: bool) {
    let Some(path) = on_path(task) else { return };
    let Some(left) = path.left.take() else { return };
    let OnPath { team, parent, around, .. } = path;
    let [team, parent, around] = [team, parent, around].map(Cell::get);
    let mut followed = [object(team, JOIN), 0, 0];
    if team == 0 {
        // It is over before the thread passes the next barrier.
        let thread = threads::current();
        let part = thread.as_ref().and_then(part).filter(|part| part.team.get() == around);
        let round = part.map_or(0, |part| barrier(around, part.round.get()));
        followed = [object(around, JOIN), object(parent, CHILDREN), round];
    }
    let has_name = |object: &usize| is_told && *object != 0;
    let dependences = path.dependences.take();
    tell(Place::of_call(from), |tracked, at| {
        for (object, _) in dependences.iter().flat_map(|all| all.iter()) {
            tracked.release(*object, at);
        }
        tracked.end_task(left, followed.into_iter().filter(has_name), at);
    });
}

/// A task that was made.
#[derive(Clone, Copy)]
pub(super) struct Spawned {
    number: u64,
    parent: u64,
    around: u64,
    /// Its record makes several tasks.
    is_several: bool,
    /// A box; null: it has none.
    dependences: *mut Dependences,
}

/// The object of what a task depends on.
fn dependence(address: usize) -> usize {
    1 << 62 | (address & NAMES)
}

impl Spawned {
    /// The calling thread makes it. One that is not `deferred` is part of the task that makes it.
    #[inline]
    pub(super) fn new(thread: &OwnThread, from: usize, is_several: bool, deferred: bool) -> Spawned {
        let dependences = ptr::null_mut();
        let none = Spawned { number: 0, parent: 0, around: 0, is_several, dependences };
        if !path::is_active() {
            return none;
        }
        let number = if deferred { number() } else { 0 };
        let parent = current(thread).and_then(on_path).map_or(0, |path| path.number.get());
        if number == 0 || parent == 0 {
            return Spawned { parent, ..none };
        }
        let around = part(thread).map_or(0, |part| part.team.get());
        tell(Place::of_call(from), |tracked, at| tracked.release(object(number, SPAWN), at));
        Spawned { number, parent, around, ..none }
    }

    /// It depends on what is at these addresses, and reads it only or not.
    pub(super) fn depend(&mut self, on: impl Iterator<Item = (usize, bool)>) {
        if self.number != 0 && self.dependences.is_null() {
            let on = on.map(|(address, reads)| (dependence(address), reads));
            self.dependences = Box::into_raw(Box::new(on.collect()));
        }
    }

    /// The calling thread begins it.
    #[inline]
    pub(super) fn begin(&self, task: &Task, path: &OnPath, from: usize) {
        if self.parent == 0 {
            return;
        }
        task.path.set(path);
        if self.number == 0 {
            return path.number.set(self.parent);
        }
        path.number.set(number());
        path.parent.set(self.parent);
        path.around.set(self.around);
        let spawn = object(self.number, SPAWN);
        // SAFETY: null, or the box that `depend` has made; only one task begins that has dependences.
        let dependences = unsafe { (!self.dependences.is_null()).then(|| Box::from_raw(self.dependences)) };
        path.left.set(tell(Place::of_call(from), |tracked, at| {
            let left = tracked.begin_task(spawn, at);
            for (object, reads) in dependences.iter().flat_map(|all| all.iter()) {
                tracked.acquire(*object, *reads, Edge::Spawn, at);
            }
            left
        }));
        path.dependences.set(dependences);
        if !self.is_several {
            self.forget();
        }
    }

    /// No more tasks begin by it.
    pub(super) fn forget(&self) {
        if self.number != 0 {
            forget([object(self.number, SPAWN)]);
        }
    }
}
