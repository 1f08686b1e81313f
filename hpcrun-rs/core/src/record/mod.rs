//! Records samples: the unwinder, path buffer and tree of one thread, and the samples that arrive while it
//! uses them (`deferred`).
//!
//! Invariant: the backtrace cache holds the path that was inserted last into the tree, or it is empty. So the
//! path's shared outer notes are those that the tree remembers.
//!
//! Async-signal-safe, except [`Recorder::new`].

mod deferred;

pub(crate) use deferred::Deferred;

use crate::activity::Charge;
use crate::image;
use crate::lcct::metrics::MAX_GROUPS;
use crate::lcct::{Identity, Tree, Words};
use crate::logical::agents;
use crate::logical::{self, BacktraceCache, LogicalCursor, PathBuffer};
use crate::unwind::{Cursor, Registers, Unwind, loadmap, stack};
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{VALUES_PER_RECORD, header};
use std::ptr;

/// Records that there is room for in a profile that may not be able to grow.
const AHEAD: usize = 1 << 15;
/// Frames that [`Recorder::find_frame`] looks at: more than an unoptimised lock has above its wait.
const INNERMOST: usize = 24;

/// The values of one or more samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Values {
    /// One word a metric: number of samples; sum of their weights, in periods; idleness, in periods of one
    /// core; those of further metrics.
    words: Words,
    /// Oversubscription, in periods of one core.
    pub(crate) oversubscribed: f64,
    /// Monotonic clock at the last sample, nanoseconds.
    pub(crate) last_ns: u64,
}

impl Values {
    /// Of no sample.
    pub(crate) const NONE: Values =
        Values { words: [[0; VALUES_PER_RECORD]; MAX_GROUPS], oversubscribed: 0.0, last_ns: 0 };

    /// Number of samples.
    #[inline]
    pub(crate) fn samples(&self) -> u64 {
        self.words[0][0]
    }

    /// Sum of their weights, in periods.
    #[inline]
    pub(crate) fn periods(&self) -> u64 {
        self.words[0][1]
    }

    /// Adds a sample at `now` with a weight of `periods`.
    #[inline]
    pub(crate) fn add(&mut self, periods: u64, charge: Charge, now: u64) {
        let period = image::period_ns() as f64;
        let [samples, work, idleness] = &mut self.words[0];
        *samples += 1;
        *work += periods;
        *idleness = (f64::from_bits(*idleness) + charge.idleness / period).to_bits();
        self.oversubscribed += charge.oversubscribed / period;
        self.last_ns = now;
    }
}

/// The recorder of one thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    tree: Option<Tree>,
    unwind: Unwind,
    path: PathBuffer,
    cache: BacktraceCache,
}

impl Recorder {
    /// Allocates caches and buffers. Not async-signal-safe. `None` when memory cannot be allocated.
    pub(crate) fn new() -> Option<Recorder> {
        Some(Recorder {
            tree: None,
            unwind: Unwind::new(agents::owner_of)?,
            path: PathBuffer::new()?,
            cache: BacktraceCache::new()?,
        })
    }

    /// Unwinds from `registers` and inserts the path into the tree. Creates the tree, with `identity`, if
    /// there is none. `None` when the stack shows that the thread waits for a task.
    pub(crate) fn insert_path(
        &mut self,
        registers: Registers,
        identity: impl FnOnce() -> Identity,
    ) -> Result<Option<u32>, LossCause> {
        if let Some(tree) = &self.tree {
            tree.prepare();
        }
        let snapshot = loadmap::current().ok_or(LossCause::UnknownModule)?;
        let bounds = stack::bounds_from(registers.sp());
        let physical = Cursor::new(&mut self.unwind, snapshot, registers, bounds);
        let mut cursor = LogicalCursor::new(physical);
        let root = logical::backtrace(&mut cursor, &mut self.path, &mut self.cache);
        if cursor.is_idle() {
            return Ok(None);
        }
        let inserted = match tree(&mut self.tree, identity) {
            Ok(tree) => tree.insert(root, self.path.notes(), self.path.outer()),
            Err(cause) => Err(cause),
        };
        if inserted.is_err() {
            self.cache.clear();
        }
        inserted.map(Some)
    }

    /// What `look` finds for the look-up address of one of the innermost frames.
    pub(crate) fn find_frame<T>(
        &mut self,
        registers: Registers,
        look: impl Fn(u64) -> Option<T>,
    ) -> Option<T> {
        let snapshot = loadmap::current()?;
        let bounds = stack::bounds_from(registers.sp());
        let mut cursor = Cursor::new(&mut self.unwind, snapshot, registers, bounds);
        cursor.start().ok()?;
        for _ in 0..INNERMOST {
            if let Some(found) = look(cursor.frame().lookup) {
                return Some(found);
            }
            cursor.advance().ok()?;
        }
        None
    }

    /// Where the profile begins; null if there is none.
    #[inline]
    pub(crate) fn profile(&self) -> *mut u8 {
        self.tree.as_ref().map_or(ptr::null_mut(), Tree::start)
    }

    /// Adds samples to a node.
    #[inline]
    pub(crate) fn add_samples(&mut self, node: u32, values: &Values) -> Result<(), LossCause> {
        let tree = self.tree.as_mut().ok_or(LossCause::TreeFull)?;
        tree.add(node, &values.words)?;
        if values.oversubscribed > 0.0 {
            tree.add_f64(header::OVERSUBSCRIBED, values.oversubscribed);
        }
        tree.set_u64(header::LAST_NS, values.last_ns);
        Ok(())
    }

    /// Adds waiting for locks that a node's context held, nanoseconds. False if it cannot be recorded.
    pub(crate) fn add_lock_wait(&mut self, node: u32, nanoseconds: u64) -> bool {
        let position = image::current().and_then(|image| image.lock_wait);
        let mut words = Values::NONE.words;
        let word = position.and_then(|p| words.as_flattened_mut().get_mut(p));
        let (Some(word), Some(tree)) = (word, &mut self.tree) else {
            return false;
        };
        *word = nanoseconds;
        tree.add(node, &words).is_ok()
    }

    /// Makes the tree, with `identity`, and room for many more records than a short program has.
    pub(crate) fn prepare(&mut self, identity: impl FnOnce() -> Identity) {
        if let Ok(tree) = tree(&mut self.tree, identity) {
            let _ = tree.reserve(AHEAD);
        }
    }

    /// Takes the tree out. If there is none and `or_new` is set, creates one.
    pub(crate) fn take_tree(
        &mut self,
        or_new: bool,
        identity: impl FnOnce() -> Identity,
    ) -> Option<Tree> {
        self.cache.clear();
        if or_new {
            let _ = tree(&mut self.tree, identity);
        }
        self.tree.take()
    }
}

fn tree(
    tree: &mut Option<Tree>,
    identity: impl FnOnce() -> Identity,
) -> Result<&mut Tree, LossCause> {
    if tree.is_none() {
        *tree = Some(image::create_profile(&identity())?);
    }
    tree.as_mut().ok_or(LossCause::TreeFull)
}
