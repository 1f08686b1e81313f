//! The way that the last walk took, so that the next one need not go all of it again.
//!
//! Two call paths of one thread, taken shortly after each other, mostly differ in their innermost
//! frames alone. A walk depends on nothing but where it stands ([`Position`]), the load map, and
//! the words of memory that it reads from there on. So when a walk comes to a position that the
//! walk before had come to, and all words that were read from there on are unchanged, the rest of
//! both is the same, by induction from word to word: as long as the words agree, the next one to
//! be compared is just the next one that the walk would read itself. The comparison therefore
//! never touches memory that the walk would not touch, also where it leads over the stacks of
//! spawners and the headers of stolen tasks. (ReadLog are compared, not only return addresses: the
//! stack may have been left and entered again on another way with the same ones.) A walk that lost its way may have
//! read what is no stack's of its thread, nor a task, so nothing else is trusted: as soon as any stack goes the last walk is forgotten,
//! and what did not lie in a stack is read through the kernel.
//!
//! Async-signal-safe after [`BacktraceCache::new`].

use super::path::{MAX_NOTES, PathRoot};
use crate::memory::FixedArray;
use crate::unwind::Position;
use crate::unwind::read_log::{CHECKED, ReadLog, Word};
use crate::unwind::stack::{self, Window};

/// Slots of the table that finds a frame by its stack pointer; a power of two.
const SLOTS: usize = 1024;
// An index of a frame fits in a slot.
const _: () = assert!(MAX_NOTES <= 1 << 16);

/// A frame that a walk has come to.
#[derive(Clone, Copy, Debug)]
struct Frame {
    position: Position,
    /// What the logical cursor was at, see [`BacktraceCache::meet`].
    context: u64,
    /// ReadLog read before, in the walk; once kept: words read from here on.
    words: u32,
    /// Notes made before, in the walk; once kept: notes from here on.
    notes: u32,
}

/// See the module's description.
#[derive(Debug)]
pub struct BacktraceCache {
    /// The frames of the last whole walk, outermost first.
    frames: FixedArray<Frame>,
    /// Its words, last first.
    words: FixedArray<Word>,
    /// The frames of the walk under way, innermost first.
    fresh: FixedArray<Frame>,
    /// What was read through the kernel, if `is_read` says so: seldom needed, and kept apart.
    window: Box<Window>,
    is_read: bool,
    root: PathRoot,
    generation: u32,
    /// [`stack::epoch`] of the last walk's time.
    epoch: u32,
    /// Index in `words` of one that was found changed in the walk under way.
    changed: u32,
    /// Index of the frame at which the walk under way met the last one.
    met: Option<u32>,
    by_sp: [u16; SLOTS],
}

impl BacktraceCache {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<BacktraceCache> {
        Some(BacktraceCache {
            frames: FixedArray::new(MAX_NOTES)?,
            words: FixedArray::new(ReadLog::MAX)?,
            fresh: FixedArray::new(MAX_NOTES)?,
            window: Box::new(Window::new()),
            is_read: false,
            root: PathRoot::Entry,
            generation: 0,
            epoch: 0,
            changed: u32::MAX,
            met: None,
            by_sp: [0; SLOTS],
        })
    }

    /// Forgets the last walk.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.words.clear();
    }

    /// A walk begins, over this generation of the load map (`None`: it is about to change).
    #[inline]
    pub(super) fn begin(&mut self, generation: Option<u32>) {
        self.fresh.clear();
        self.changed = u32::MAX;
        self.met = None;
        self.is_read = false;
        let epoch = stack::epoch();
        if generation != Some(self.generation) || epoch != self.epoch {
            self.clear();
            self.generation = generation.unwrap_or(0);
            self.epoch = epoch;
        }
    }

    #[inline]
    fn slot(sp: u64) -> usize {
        // Frames of the usual callers are 16 bytes apart at least.
        (sp >> 4) as usize % SLOTS
    }

    /// The walk stands at `position`, having read `words` words and made `notes` notes. `context`
    /// is what else its notes from here on depend on. If the last walk was there too, and goes on
    /// from there as this one would: its root, and how many notes it has from here on.
    #[inline]
    pub(super) fn meet(
        &mut self,
        position: Position,
        context: u64,
        words: usize,
        notes: usize,
    ) -> Option<(PathRoot, usize)> {
        let index = u32::from(self.by_sp[Self::slot(position.sp)]);
        if let Some(frame) = self.frames.as_slice().get(index as usize) {
            if frame.position == position && frame.context == context {
                let outer = frame.notes as usize;
                if outer + notes <= MAX_NOTES && self.is_unchanged(frame.words) {
                    self.met = Some(index);
                    return Some((self.root, outer));
                }
            }
        }
        // A frame that finds no room is one at which no walk is met.
        self.fresh.push(Frame {
            position,
            context,
            words: words as u32,
            notes: notes as u32,
        });
        None
    }

    /// Whether the first `count` kept words are as they were.
    fn is_unchanged(&mut self, count: u32) -> bool {
        if count > self.changed {
            return false;
        }
        let words = self.words.as_slice().get(..count as usize).unwrap_or(&[]);
        for (i, word) in words.iter().enumerate().rev() {
            let is_same = if word.address & CHECKED != 0 {
                read_checked(&mut self.window, &mut self.is_read, word.address) == Some(word.value)
            } else {
                // SAFETY: it lay in a stack that was known, between the last walk's stack pointer there and the top, and no known stack has
                // gone since: mapped and readable. (One that goes in this very moment is none that the walk would read now,
                // see the module; only where it lost its way could it be one.) Any bits are a number.
                word.address != 0
                    && unsafe { (word.address as *const u64).read_unaligned() } == word.value
            };
            if !is_same {
                self.changed = i as u32;
                return false;
            }
        }
        true
    }

    /// The walk has ended at `root`, after `notes` notes of its own. It is kept for the next one, unless
    /// that could not rely on it.
    pub(super) fn end(&mut self, root: PathRoot, words: &ReadLog, notes: usize) {
        let kept = match words.get() {
            Some(words) if !matches!(root, PathRoot::Partial(_)) && self.generation != 0 => {
                self.keep(words, notes)
            }
            _ => false,
        };
        if !kept {
            self.clear();
        } else if self.met.is_none() {
            self.root = root;
        }
    }

    /// Puts the fresh frames and words in the place of those inside of the frame that was met.
    fn keep(&mut self, words: &[Word], notes: usize) -> bool {
        let met = self
            .met
            .and_then(|i| self.frames.as_slice().get(i as usize));
        let (outer_words, outer_notes) = met.map_or((0, 0), |f| (f.words, f.notes));
        self.frames.truncate(self.met.map_or(0, |i| i as usize + 1));
        self.words.truncate(outer_words as usize);
        for word in words.iter().rev() {
            if !self.words.push(*word) {
                return false;
            }
        }
        for frame in self.fresh.as_slice().iter().rev() {
            let index = self.frames.len() as u32;
            let is_kept = self.frames.push(Frame {
                words: outer_words + (words.len() as u32 - frame.words),
                notes: outer_notes + (notes as u32).wrapping_sub(frame.notes),
                ..*frame
            });
            if !is_kept {
                return false;
            }
            self.by_sp[Self::slot(frame.position.sp)] = index as u16;
        }
        true
    }
}

/// The word at an address with [`CHECKED`].
#[cold]
fn read_checked(window: &mut Window, is_read: &mut bool, address: u64) -> Option<u64> {
    if !std::mem::replace(is_read, true) {
        window.forget();
    }
    window.read(address & !CHECKED)
}
