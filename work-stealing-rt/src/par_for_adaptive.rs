//! `par_for_adaptive`: a parallel loop that runs serially where parallel execution does not pay.
//!
//! With t_s the time of the loop's iterations and t_PS the start-up overhead, p workers pay if
//! t_s (1 - 1/p) > t_PS (Sakellariou, 1996). Both are known from earlier executions of the loop. One in some
//! is timed; t_PS of a parallel one is its time less t_s / p, so it has what communication costs in it.

use core::cell::Cell;
use core::ops::Range;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::par_for::{LARGEST_BLOCK, Watch, par_for, watched};
use crate::pool::global::with_pool;
use crate::track;
use crate::worker::Worker;

/// One execution in this many is timed.
const TIMED: u32 = 16;
/// A timed execution is parallel from this part of the time on from which that pays: so t_PS is measured
/// where it decides.
const TRIED: u64 = 4;
/// By how much an estimate may rise at once. A thread that loses its core measures too much.
const MOST_RISE: u64 = 8;
/// By how much t_PS may rise at once: by this part of it.
const START_UP_RISE: u64 = 4;
/// What t_PS is about before it is known, in picoseconds, on a worker and outside of a pool.
const START_UP_ON_WORKER: u64 = 1_000_000;
const START_UP_OUTSIDE: u64 = 10_000_000;
/// No task reaches another worker in less.
const LEAST_START_UP: u64 = 200_000;

/// As [`par_for`](crate::par_for()), but serial on the calling thread while that is faster, by what earlier
/// executions took at the same place in the source. Outside of a pool `body` then runs on a thread that is no
/// worker.
///
/// The first execution is parallel. If iterations suddenly take longer, up to 1024 of them run serially
/// before this is noticed, and the rest in parallel. While the critical path is tracked, every execution is
/// parallel.
///
/// # Panics
/// As [`par_for`](crate::par_for()).
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// let sum = AtomicUsize::new(0);
/// for _ in 0..100 {
///     work_stealing_rt::par_for_adaptive(0..10, |i| {
///         sum.fetch_add(i, Relaxed);
///     });
/// }
/// assert_eq!(sum.into_inner(), 4500);
/// ```
#[track_caller]
pub fn par_for_adaptive<F>(range: Range<usize>, body: F)
where
    F: Fn(usize) + Sync,
{
    // A place in generic code, or in a function that itself tracks its caller, has several bodies.
    let code = parallel::<F> as fn(Range<usize>, &F, &Site, &Team<'_>) as usize;
    let is_worker = !Worker::current().is_null();
    let Some(site) = Site::find(Location::caller(), code, is_worker) else {
        return par_for(range, body);
    };
    if range.is_empty() || track::is_active() {
        return par_for(range, body);
    }
    let team = Team { workers: with_pool(|pool| pool.workers().len() as u64), start_up: &site.start_up_ps };
    let known = site.iteration_ps.load(Ordering::Relaxed);
    let expected = known.saturating_mul(range.len() as u64);
    let is_timed = known == 0 || is_one_in(TIMED);
    if known == 0 || (is_timed && team.pays(expected.saturating_mul(TRIED))) {
        parallel(range, &body, site, &team);
    } else if team.pays(expected) {
        par_for(range, body);
    } else {
        let rest = serial(range, &body, site, &team, is_timed);
        if !rest.is_empty() {
            par_for(rest, body);
        }
    }
}

/// Executes the loop in parallel, and learns from it.
#[inline(never)]
fn parallel<F: Fn(usize) + Sync>(range: Range<usize>, body: &F, site: &Site, team: &Team<'_>) {
    let iterations = range.len() as u64;
    let timing = Timing::default();
    let start = Instant::now();
    let reading = picoseconds(start);
    watched(range, body, &timing);
    let elapsed = picoseconds(start);
    let busy = timing.busy_ps.into_inner();
    site.learn(busy, iterations);
    // Alone, a worker does not show what it takes until others take part.
    if timing.is_shared.into_inner() {
        // The clock was read twice for each part, and twice for all.
        let readings = 2 * timing.own_parts.into_inner() + 2;
        team.learn(elapsed.saturating_sub(busy / team.workers + readings * reading));
    }
}

/// Executes the loop on the calling thread, and returns what is left of it once parallel execution of that
/// pays.
fn serial<F: Fn(usize) + Sync>(
    mut range: Range<usize>,
    body: &F,
    site: &Site,
    team: &Team<'_>,
    is_timed: bool,
) -> Range<usize> {
    // The clock is looked at a few times until parallel execution would have paid.
    let known = site.iteration_ps.load(Ordering::Relaxed).max(1);
    let chunk = (team.break_even() / 2 / known).clamp(1, LARGEST_BLOCK as u64) as usize;
    if range.len() <= chunk && !is_timed {
        range.for_each(body);
        return 0..0;
    }
    let start = Instant::now();
    let first = range.start;
    loop {
        let stop = range.start + chunk.min(range.len());
        (range.start..stop).for_each(body);
        range.start = stop;
        let (elapsed, done) = (picoseconds(start), (stop - first) as u64);
        let rest = elapsed / done * range.len() as u64;
        if range.is_empty() || team.pays(rest) {
            site.learn(elapsed, done);
            return range;
        }
    }
}

/// Workers that could execute a loop together.
struct Team<'a> {
    workers: u64,
    /// t_PS in picoseconds: that of awake workers. Those that sleep take longer, once: then they are awake
    /// for the next loop.
    start_up: &'a AtomicU64,
}

impl Team<'_> {
    /// Whether parallel execution pays for iterations that take this many picoseconds.
    #[inline]
    fn pays(&self, serial: u64) -> bool {
        let gain = serial / self.workers * (self.workers - 1);
        gain > self.start_up.load(Ordering::Relaxed)
    }

    /// The time in picoseconds from which it pays.
    #[inline]
    fn break_even(&self) -> u64 {
        let start_up = self.start_up.load(Ordering::Relaxed);
        let others = (self.workers - 1).max(1);
        start_up.saturating_mul(self.workers) / others
    }

    /// The least t_PS of late: what is more was other load, or imbalance.
    fn learn(&self, start_up: u64) {
        let known = self.start_up.load(Ordering::Relaxed);
        let most = known + known / START_UP_RISE;
        let least = start_up.clamp(LEAST_START_UP, most);
        self.start_up.store(least, Ordering::Relaxed);
    }
}

/// A call of [`par_for_adaptive`] in the program, on a worker or outside of a pool.
struct Site {
    /// What it is known by; 0: nobody's yet.
    key: AtomicUsize,
    /// Time of an iteration in picoseconds; 0: unknown.
    iteration_ps: AtomicU64,
    /// t_PS in picoseconds.
    start_up_ps: AtomicU64,
}

const SITES: usize = 1024;
/// Places at which a site may be.
const PROBES: usize = 8;

static ALL_SITES: [Site; SITES] = [const {
    Site {
        key: AtomicUsize::new(0),
        iteration_ps: AtomicU64::new(0),
        start_up_ps: AtomicU64::new(START_UP_ON_WORKER),
    }
}; SITES];

impl Site {
    /// The site of a place and of the code that is called there; `None` if there are too many.
    #[inline]
    fn find(place: &'static Location<'static>, code: usize, is_worker: bool) -> Option<&'static Site> {
        let key = ptr::from_ref(place).addr() ^ code.rotate_left(usize::BITS / 2);
        // Never 0.
        let key = key & !3 | 1 | usize::from(is_worker) << 1;
        let hash = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (hash >> 32) as usize;
        (first..first + PROBES).find_map(|index| {
            let site = &ALL_SITES[index % SITES];
            match site.key.load(Ordering::Relaxed) {
                found if found == key => Some(site),
                0 => site.claim(key, is_worker),
                _ => None,
            }
        })
    }

    #[cold]
    fn claim(&'static self, key: usize, is_worker: bool) -> Option<&'static Site> {
        let claim = self.key.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_ok() && !is_worker {
            self.start_up_ps.store(START_UP_OUTSIDE, Ordering::Relaxed);
        }
        claim.is_ok().then_some(self)
    }

    /// Iterations have taken this many picoseconds.
    fn learn(&self, elapsed: u64, iterations: u64) {
        let known = self.iteration_ps.load(Ordering::Relaxed);
        let most = if known == 0 { u64::MAX } else { known.saturating_mul(MOST_RISE) };
        let now = (elapsed / iterations).clamp(1, most);
        self.iteration_ps.store(now, Ordering::Relaxed);
    }
}

/// What the workers spend in the iterations of one execution.
#[derive(Default)]
struct Timing {
    busy_ps: AtomicU64,
    /// The first worker that takes part; null before.
    first: AtomicPtr<Worker>,
    /// How many parts it runs.
    own_parts: AtomicU64,
    /// Others take part, too.
    is_shared: AtomicBool,
}

impl Watch for &Timing {
    type Start = Instant;

    fn start(self) -> Instant {
        let (me, null) = (Worker::current().cast_mut(), ptr::null_mut());
        let first = self.first.compare_exchange(null, me, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() || first == Err(me) {
            self.own_parts.fetch_add(1, Ordering::Relaxed);
        } else {
            self.is_shared.store(true, Ordering::Relaxed);
        }
        Instant::now()
    }

    fn stop(self, start: Instant) {
        self.busy_ps.fetch_add(picoseconds(start), Ordering::Relaxed);
    }
}

/// Since then; at most half a year.
fn picoseconds(start: Instant) -> u64 {
    (start.elapsed().as_nanos() as u64).saturating_mul(1000)
}

/// True once in `count` calls of a thread, at random distances.
#[inline]
fn is_one_in(count: u32) -> bool {
    thread_local! {
        static RANDOM: Cell<u32> = const { Cell::new(0x9e37_79b9) };
    }
    RANDOM.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x % count == 0
    })
}
