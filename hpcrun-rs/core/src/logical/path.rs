//! The notes of one logical call path, stored innermost first in fixed memory.
//!
//! Async-signal-safe after [`PathBuffer::new`].

use crate::memory::FixedArray;
use crate::unwind::stack::StackRoot;
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{Association, RecordKind, meta};

/// Maximal number of notes in a path; a deeper path is partial (cause `too-deep`).
pub const MAX_NOTES: usize = 1 << 20;
/// Number of notes that a path keeps if it is too deep, or takes too long: the next one has others.
const INNERMOST: usize = 1 << 10;

/// The paper's X-structure: a p-note and an l-note at the same position of a bichord.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Note {
    /// Physical address; none if the p-chord is shorter.
    pub ip: CodeAddress,
    /// Logical address; none if the l-chord is shorter.
    pub lip: CodeAddress,
    /// Kind, association and note-id, packed by [`meta`].
    pub meta: u32,
}

/// The parent of a path's outermost note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathRoot {
    /// The program's entry point.
    Entry,
    /// A context in another tree: of a thread's creation, or of a spawn that kept its context.
    Anchor {
        /// Thread ordinal.
        thread: u32,
        /// Record index in its tree.
        node: u32,
    },
    /// Unknown: the outer part of the path is missing.
    Partial(LossCause),
}

impl From<StackRoot> for PathRoot {
    fn from(root: StackRoot) -> PathRoot {
        match root {
            StackRoot::Entry => PathRoot::Entry,
            StackRoot::Thread(thread, node) => PathRoot::Anchor { thread, node },
            StackRoot::Unknown => PathRoot::Partial(LossCause::UnknownThreadRoot),
        }
    }
}

/// A path under construction.
pub struct PathBuffer {
    notes: FixedArray<Note>,
    /// The number of outermost notes that the path shares with the previous path. They are not in `notes`.
    outer: usize,
    pnotes: FixedArray<CodeAddress>,
    lnotes: FixedArray<CodeAddress>,
}

impl PathBuffer {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<PathBuffer> {
        Some(PathBuffer {
            notes: FixedArray::in_heap(MAX_NOTES)?,
            outer: 0,
            pnotes: FixedArray::in_heap(MAX_NOTES)?,
            lnotes: FixedArray::in_heap(MAX_NOTES)?,
        })
    }

    /// The stored notes, innermost first: all but the shared [`outer`](Self::outer) ones.
    #[inline]
    pub fn notes(&self) -> &[Note] {
        self.notes.as_slice()
    }

    /// The number of outermost notes that the path shares with the previous path, and does not store.
    #[inline]
    pub fn outer(&self) -> usize {
        self.outer
    }

    /// Starts a path.
    #[inline]
    pub fn clear(&mut self) {
        self.notes.clear();
        self.open();
        self.outer = 0;
    }

    /// Declares that the remaining notes are the `outer` outermost notes of the previous path.
    #[inline]
    pub(super) fn share(&mut self, outer: usize) {
        self.outer = outer;
    }

    /// Keeps the innermost whole bichords: the rest of the path will not be known.
    pub(super) fn keep_innermost(&mut self) {
        let notes = self.notes();
        let kept = notes.get(..INNERMOST).unwrap_or(notes);
        let is_outermost = |note: &Note| note.meta >> 8 == 1;
        let whole = kept.iter().rposition(is_outermost).map_or(0, |last| last + 1);
        self.notes.truncate(whole);
    }

    /// The number of notes so far, including those of the open bichord.
    #[inline]
    pub(super) fn reached(&self) -> usize {
        self.notes.len() + self.lnotes.len()
    }

    #[inline]
    pub(super) fn open(&mut self) {
        self.pnotes.clear();
        self.lnotes.clear();
    }

    #[inline]
    pub(super) fn push_pnote(&mut self, ip: CodeAddress) -> bool {
        self.pnotes.push(ip)
    }

    #[inline]
    pub(super) fn push_lnote(&mut self, lip: CodeAddress) -> bool {
        self.lnotes.push(lip)
    }

    /// Adds a 1 <-> 1 bichord of a native frame; false when the path is full.
    #[inline]
    pub(super) fn push_native(&mut self, code: CodeAddress) -> bool {
        let meta = const { meta(RecordKind::Note, Association::OneToOne as u8, 1) };
        self.notes.push(Note { ip: code, lip: code, meta })
    }

    /// Forms the notes of the open bichord from its chords; false when the path is full. Note `j` of the
    /// bichord (1 = outermost) pairs the j-th p-note with the j-th l-note, counted from the outermost; the
    /// chords are stored innermost first. When the outer notes are shared, forms only the inner ones.
    pub(super) fn close(&mut self, association: Association) -> bool {
        let (p, l) = (self.pnotes.len(), self.lnotes.len() + self.outer);
        let n = p.max(l);
        for j in (self.outer + 1..=n).rev() {
            let at = |chord: &FixedArray<CodeAddress>, len: usize| {
                len.checked_sub(j).and_then(|i| chord.as_slice().get(i).copied()).unwrap_or(CodeAddress::NONE)
            };
            let note = Note {
                ip: at(&self.pnotes, p),
                lip: at(&self.lnotes, l),
                meta: meta(RecordKind::Note, association as u8, j as u32),
            };
            if !self.notes.push(note) {
                return false;
            }
        }
        self.open();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u64) -> CodeAddress {
        CodeAddress(n)
    }

    /// Physical and logical address and note-id of each note.
    fn shape(path: &PathBuffer) -> Vec<(u64, u64, u32)> {
        let notes = path.notes().iter();
        notes.map(|n| (n.ip.0, n.lip.0, n.meta >> 8)).collect()
    }

    #[test]
    fn one_to_many_puts_the_scheduler_frame_beside_the_outermost_user_frame() {
        let mut path = PathBuffer::new().unwrap();
        path.open();
        path.push_pnote(address(9));
        for l in [3, 2, 1] {
            path.push_lnote(address(l)); // innermost first: 3 = spawner, 1 = entry
        }
        assert!(path.close(Association::OneToMany));
        assert_eq!(shape(&path), [(0, 3, 3), (0, 2, 2), (9, 1, 1)]);
    }

    #[test]
    fn only_the_inner_notes_of_a_shared_bichord_are_formed() {
        let mut path = PathBuffer::new().unwrap();
        path.open();
        path.push_pnote(address(9));
        path.push_lnote(address(4));
        path.push_lnote(address(3));
        assert_eq!(path.reached(), 2);
        path.share(2);
        assert!(path.close(Association::OneToMany));
        assert_eq!(shape(&path), [(0, 4, 4), (0, 3, 3)]);
        assert_eq!(path.outer(), 2);
    }

    #[test]
    fn many_to_zero_has_no_logical_addresses() {
        let mut path = PathBuffer::new().unwrap();
        path.open();
        path.push_pnote(address(5));
        path.push_pnote(address(6));
        assert!(path.close(Association::ManyToZero));
        assert_eq!(shape(&path), [(5, 0, 2), (6, 0, 1)]);
    }

    #[test]
    fn a_full_buffer_refuses() {
        let mut path = PathBuffer::new().unwrap();
        for i in 0..MAX_NOTES {
            path.open();
            path.push_pnote(address(i as u64 + 1));
            path.push_lnote(address(i as u64 + 1));
            assert!(path.close(Association::OneToOne));
        }
        path.open();
        path.push_pnote(address(1));
        path.push_lnote(address(1));
        assert!(!path.close(Association::OneToOne));
    }
}
