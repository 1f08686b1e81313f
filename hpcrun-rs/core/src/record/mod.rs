//! Finds the contexts of samples: the unwinder, path buffer and tree of one thread, and the samples that
//! arrive while it uses them (`deferred`).
//!
//! Invariant: the backtrace cache holds the path that was inserted last into the tree, or it is empty. So the
//! path's shared outer notes are those that the tree remembers.
//!
//! Async-signal-safe, except [`Recorder::new`].

mod deferred;

pub(crate) use deferred::Deferred;

use crate::image;
use crate::lcct::{Identity, Tree};
use crate::logical::agents;
use crate::logical::{self, BacktraceCache, PathBuffer, PathRoot};
use crate::sinks::{Node, Values, Verdict};
use crate::tasks::{Chain, Task};
use crate::unwind::loadmap::Pinned;
use crate::unwind::stack::{self, StackSlot};
use crate::unwind::{Cursor, Registers, Unwind};
use hpc_formats::loss::LossCause;

/// Records that there is room for in a profile that may not be able to grow.
const AHEAD: usize = 1 << 15;
/// Frames that [`Recorder::find_frame`] looks at: more than an unoptimised lock has above its wait.
const INNERMOST: usize = 24;

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

    /// Unwinds from `registers`, in `task`, and inserts the path into the tree. Creates the tree, with
    /// `identity`, if there is none. Idle when the stack shows that the thread waits for a task. The stack of
    /// a coroutine is not known: its root is that of its thread, whose stack is `own`.
    pub(crate) fn walk(
        &mut self,
        pinned: &Pinned,
        registers: &Registers,
        task: *const Task,
        own: &StackSlot,
        identity: impl FnOnce() -> Identity,
    ) -> Verdict {
        if let Some(tree) = &self.tree {
            tree.prepare();
        }
        let Some(snapshot) = pinned.snapshot() else {
            return Verdict::Lost(LossCause::UnknownModule);
        };
        let bounds = stack::bounds_from(registers.sp());
        let physical = Cursor::new(&mut self.unwind, snapshot, registers, bounds);
        let tasks = Chain::of(task, |address| physical.stack.peek(address));
        let Some(root) = logical::backtrace(physical, tasks, &mut self.path, &mut self.cache) else {
            return Verdict::Idle;
        };
        let root = match root {
            PathRoot::Partial(LossCause::UnknownThreadRoot) if bounds.high == 0 => own.root().into(),
            root => root,
        };
        let (notes, outer) = (self.path.notes(), self.path.outer());
        let inserted = tree(&mut self.tree, identity).and_then(|tree| {
            let record = tree.insert(root, notes, outer)?;
            Ok(Node { profile: tree.start(), record })
        });
        match inserted {
            Ok(node) => Verdict::Path(node),
            Err(cause) => {
                self.cache.clear();
                Verdict::Lost(cause)
            }
        }
    }

    /// What `look` finds for the look-up address of one of the innermost frames.
    pub(crate) fn find_frame<T>(
        &mut self,
        pinned: &Pinned,
        registers: &Registers,
        look: impl Fn(u64) -> Option<T>,
    ) -> Option<T> {
        let snapshot = pinned.snapshot()?;
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

    /// The context of time without a place, of a thread with this root, in a tree that has others.
    pub(crate) fn placeless(&mut self, root: PathRoot, cause: LossCause) -> Verdict {
        let tree = self.tree.as_mut().ok_or(LossCause::TreeFull);
        match tree.and_then(|tree| Ok((tree.placeless(root, cause)?, tree.start()))) {
            Ok((record, profile)) => Verdict::Path(Node { profile, record }),
            Err(cause) => Verdict::Lost(cause),
        }
    }

    #[inline]
    pub(crate) fn tree(&mut self) -> Option<&mut Tree> {
        self.tree.as_mut()
    }

    /// Adds to a node's value of the metric at a position. False if it cannot be recorded.
    pub(crate) fn add_value(&mut self, node: Node, position: usize, amount: u64) -> bool {
        let mut words = Values::NONE.words;
        let word = words.as_flattened_mut().get_mut(position);
        let (Some(word), Some(tree)) = (word, &mut self.tree) else {
            return false;
        };
        *word = amount;
        tree.add(node.record, &words).is_ok()
    }

    /// Makes the tree, with `identity`, and room for many more records than a short program has.
    pub(crate) fn prepare(&mut self, identity: impl FnOnce() -> Identity) {
        if let Ok(tree) = tree(&mut self.tree, identity) {
            let _ = tree.reserve(AHEAD);
        }
    }

    /// Takes the tree out. If there is none and `or_new` is set, creates one.
    pub(crate) fn take_tree(&mut self, or_new: bool, identity: impl FnOnce() -> Identity) -> Option<Tree> {
        self.cache.clear();
        if or_new {
            let _ = tree(&mut self.tree, identity);
        }
        self.tree.take()
    }
}

fn tree(tree: &mut Option<Tree>, identity: impl FnOnce() -> Identity) -> Result<&mut Tree, LossCause> {
    if tree.is_none() {
        *tree = Some(image::create_profile(&identity())?);
    }
    tree.as_mut().ok_or(LossCause::TreeFull)
}
