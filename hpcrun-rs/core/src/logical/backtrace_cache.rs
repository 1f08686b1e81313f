//! Backtrace cache: reuses the outer frames of a thread's previous unwind.
//!
//! Consecutive samples of a thread usually differ only in their innermost frames. For each frame of the
//! previous unwind, the cache stores its [`Position`], and the words that the unwind read from there
//! outwards. When an unwind reaches a cached position, and all those words are unchanged, it would find the
//! same outer frames, so it stops and reuses them.
//!
//! The proof is by induction over the words: as long as the words agree, the next word to compare is the next
//! one that the unwind itself would read. So the comparison reads no memory that the unwind would not read,
//! even across stacks of spawners and headers of stolen tasks. Comparing return addresses alone is not
//! enough: the program may have left the stack and entered it again on another path with the same return
//! addresses.
//!
//! A frame is found by its stack pointer: in a table, or, as a deep stack has more frames than the table, by
//! going along with the walk (`BacktraceCache::beside`). So a walk takes as many steps as frames changed.
//!
//! A corrupt unwind may have logged arbitrary addresses. Therefore the cache is cleared when any stack is
//! unregistered, and words outside known stacks are re-read through the kernel.
//!
//! Async-signal-safe after [`BacktraceCache::new`].

use super::path::{MAX_NOTES, PathRoot};
use crate::memory::FixedArray;
use crate::tasks::Chain;
use crate::unwind::Position;
use crate::unwind::read_log::{CHECKED, ReadLog, Word};
use crate::unwind::stack;
use crate::unwind::window::Window;

/// Slots of the table that finds a frame by its stack pointer; a power of two.
const SLOTS: usize = 1024;

/// What the rest of a path depends on, beside the position and the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Situation {
    /// What the walk has noticed, or the p-note of its open chord.
    pub(super) so_far: u64,
    pub(super) tasks: Chain,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    position: Position,
    situation: Situation,
    /// Number of words: while the unwind runs, those read before this frame; in the cache, those from here
    /// on.
    words: u32,
    /// Number of notes, counted in the same way.
    notes: u32,
}

pub struct BacktraceCache {
    /// The frames of the previous unwind, outermost first.
    frames: FixedArray<Frame>,
    /// The words of the previous unwind, in reverse order of reading.
    words: FixedArray<Word>,
    /// The frames of the current unwind, innermost first.
    fresh: FixedArray<Frame>,
    /// Words read through the kernel; valid if `is_read`. Boxed, because it is rarely used.
    window: Box<Window<256>>,
    is_read: bool,
    root: PathRoot,
    generation: u32,
    /// [`stack::epoch`] at the previous unwind.
    epoch: u32,
    /// Index in `words` of a word that the current unwind found changed.
    changed: u32,
    /// Index in `frames` of the frame at which the current unwind hit.
    hit: Option<u32>,
    by_sp: [u32; SLOTS],
    /// Number of frames that the current unwind has not passed, if all are on one stack.
    beside: usize,
}

impl BacktraceCache {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<BacktraceCache> {
        Some(BacktraceCache {
            frames: FixedArray::in_heap(MAX_NOTES)?,
            words: FixedArray::in_heap(ReadLog::MAX)?,
            fresh: FixedArray::in_heap(MAX_NOTES)?,
            window: Box::new(Window::new()),
            is_read: false,
            root: PathRoot::Entry,
            generation: 0,
            epoch: 0,
            changed: u32::MAX,
            hit: None,
            by_sp: [0; SLOTS],
            beside: 0,
        })
    }

    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.words.clear();
    }

    /// Starts an unwind over this generation of the load map (`None`: a module is being unloaded).
    #[inline]
    pub(super) fn begin(&mut self, generation: Option<u32>) {
        self.fresh.clear();
        self.changed = u32::MAX;
        self.hit = None;
        self.is_read = false;
        let epoch = stack::epoch();
        if generation != Some(self.generation) || epoch != self.epoch {
            self.clear();
            self.generation = generation.unwrap_or(0);
            self.epoch = epoch;
        }
        self.beside = self.frames.len();
    }

    #[inline]
    fn slot(sp: u64) -> usize {
        // Frames of most callers are at least 16 bytes apart.
        (sp >> 4) as usize % SLOTS
    }

    /// Looks up `position`, which the unwind reaches after `words` words and `notes` notes. On a hit, returns
    /// the root of the previous unwind, and the number of its notes from here on.
    #[inline]
    pub(super) fn look_up(
        &mut self,
        position: Position,
        situation: Situation,
        words: usize,
        notes: usize,
    ) -> Option<(PathRoot, usize)> {
        let frames = self.frames.as_slice();
        let is_it = |frame: &&Frame| frame.position == position && frame.situation == situation;
        let by_table = self.by_sp[Self::slot(position.registers.sp)] as usize;
        let index = match frames.get(by_table).filter(is_it) {
            Some(_) => by_table,
            None => self.beside(position.registers.sp),
        };
        if let Some(frame) = self.frames.as_slice().get(index).filter(is_it).copied() {
            let outer = frame.notes as usize;
            if outer + notes <= MAX_NOTES && self.is_unchanged(frame.words) {
                self.hit = Some(index as u32);
                return Some((self.root, outer));
            }
        }
        // If there is no room for the frame, later unwinds cannot hit it.
        self.fresh.push(Frame { position, situation, words: words as u32, notes: notes as u32 });
        None
    }

    /// The index of the innermost frame with at least this stack pointer: passes those further in.
    #[inline]
    fn beside(&mut self, sp: u64) -> usize {
        let passed = |frame: &Frame| frame.position.registers.sp < sp;
        while self.frames.as_slice().get(self.beside.wrapping_sub(1)).is_some_and(passed) {
            self.beside -= 1;
        }
        self.beside.wrapping_sub(1)
    }

    /// Whether the first `count` cached words are unchanged.
    fn is_unchanged(&mut self, count: u32) -> bool {
        if count > self.changed {
            return false;
        }
        let words = self.words.as_slice().get(..count as usize).unwrap_or(&[]);
        for (i, word) in words.iter().enumerate().rev() {
            let is_same = if word.address & CHECKED != 0 {
                read_checked(&mut self.window, &mut self.is_read, word.address) == Some(word.value)
            } else {
                // SAFETY: the word lay in a known stack, between the previous unwind's stack pointer there
                // and the top of the stack. `begin` checked that no stack was unregistered since, so the word
                // is mapped and readable; any value is valid. A stack may be unregistered after that check.
                // By the induction above, the unwind itself would read the word now, so its stack belongs to
                // this thread or to a suspended spawner, and stays; only a corrupt unwind could have logged
                // another.
                word.address != 0 && unsafe { (word.address as *const u64).read_unaligned() } == word.value
            };
            if !is_same {
                self.changed = i as u32;
                return false;
            }
        }
        true
    }

    /// Ends the current unwind, with `root` and `notes` notes of its own. Stores it for the next one, unless
    /// it is partial or its words are incomplete.
    pub(super) fn end(&mut self, root: PathRoot, words: &ReadLog, notes: usize) {
        let kept = match words.get() {
            Some(words) if !matches!(root, PathRoot::Partial(_)) && self.generation != 0 => {
                self.keep(words, notes)
            }
            _ => false,
        };
        if !kept {
            self.clear();
        } else if self.hit.is_none() {
            self.root = root;
        }
    }

    /// Replaces the cached frames and words inside the hit frame by those of the current unwind.
    fn keep(&mut self, words: &[Word], notes: usize) -> bool {
        let hit = self.hit.and_then(|i| self.frames.as_slice().get(i as usize));
        let (outer_words, outer_notes) = hit.map_or((0, 0), |f| (f.words, f.notes));
        self.frames.truncate(self.hit.map_or(0, |i| i as usize + 1));
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
            self.by_sp[Self::slot(frame.position.registers.sp)] = index;
        }
        true
    }
}

/// Reads the word at an address with [`CHECKED`].
#[cold]
fn read_checked(window: &mut Window<256>, is_read: &mut bool, address: u64) -> Option<u64> {
    if !std::mem::replace(is_read, true) {
        window.forget();
    }
    window.word(address & !CHECKED)
}
