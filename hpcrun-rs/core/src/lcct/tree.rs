//! Inserts logical call paths into a profile file.
//!
//! Invariants: record 0 is the synthetic root. A child's index is larger than its parent's. The header's
//! record count is raised after a record is complete, so the file is consistent at every point where the
//! process may die. Only the owning thread writes.
//!
//! Async-signal-safe.

use super::index::Index;
use super::key;
use super::metrics::{FIRST_FLOATS, MetricSet, Words};
use crate::arch::prefetch;
use crate::logical::path::MAX_NOTES;
use crate::logical::{Note, PathRoot};
use crate::memory::{FixedArray, GrowingFile, PAGE};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{
    self, HEADER_SIZE, MAX_NOTE_ID, RECORD_SIZE, RecordKind, VALUES_PER_RECORD, header, meta,
};
use std::ffi::CStr;
use std::ops::Add;
use std::sync::atomic::{Ordering, compiler_fence};

/// Maximal number of records in a tree: the file stays within 2 GiB.
const MAX_RECORDS: usize = 1 << 26;
/// File size above which no further profile is begun in a file, in bytes.
const MOST_SHARED: usize = 64 << 20;
/// Number of notes of a path that are searched for at once.
const AT_ONCE: usize = 32;
/// Number of cache lines, of two records each, that are prefetched for the next path.
const PREPARED: usize = 8;
const PATH_CAPACITY: usize = 2 * PAGE;

/// A note record as in the file; `FORMATS.md` has the table.
#[repr(C)]
struct NodeRecord {
    meta: u32,
    parent: u32,
    ip: u64,
    lip: u64,
    metric: u32,
    reserved: u32,
}

/// A metric record as in the file.
#[repr(C)]
struct MetricRecord {
    meta: u32,
    owner: u32,
    values: [u64; VALUES_PER_RECORD],
}

impl NodeRecord {
    fn new(meta: u32, parent: u32, ip: u64, lip: u64) -> NodeRecord {
        NodeRecord { meta, parent, ip, lip, metric: 0, reserved: 0 }
    }
}

const _: () = assert!(size_of::<NodeRecord>() == RECORD_SIZE);
const _: () = assert!(size_of::<MetricRecord>() == RECORD_SIZE);
const _: () = assert!(cfg!(target_endian = "little"));

/// The fields of the header that identify a profile.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // fields are documented in `hpc_formats::profile::header`
pub struct Identity {
    pub pid: u32,
    pub image: u64,
    pub thread: u32,
    pub tid: u32,
    pub period_ns: u64,
    pub creator_thread: u32,
    pub creator_node: u32,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Index of its record.
    node: u32,
    /// Hash of the path to it.
    hash: u32,
}

/// A tree under construction. When it is dropped, its file keeps the unused allocated end, since truncation
/// would take milliseconds.
pub struct Tree {
    file: GrowingFile,
    /// Offset of the profile's header in the file. Profiles of ended threads may precede it.
    offset: usize,
    len: u32,
    index: Index,
    /// The nodes of the last path, outermost first, to find a common prefix quickly.
    last: FixedArray<Level>,
    /// The file's path, with a zero at the end; not inline, since trees are moved on small stacks.
    path: FixedArray<u8>,
    last_root: u32,
    /// Number of groups of values that a node has.
    groups: u32,
    floats: u32,
}

impl Tree {
    /// Creates the profile file and its synthetic root.
    pub fn create(path: &CStr, identity: &Identity, metrics: &MetricSet) -> Result<Tree, LossCause> {
        let parts = (FixedArray::new(PATH_CAPACITY), Index::map(), FixedArray::new(MAX_NOTES));
        let (Some(mut kept), Some(index), Some(last)) = parts else {
            return Err(LossCause::TreeFull);
        };
        if !path.to_bytes_with_nul().iter().all(|byte| kept.push(*byte)) {
            return Err(LossCause::NoFile);
        }
        let file = GrowingFile::create(path, HEADER_SIZE + MAX_RECORDS * RECORD_SIZE)?;
        let mut tree =
            Tree { file, offset: 0, path: kept, len: 0, index, last, last_root: 0, groups: 0, floats: 0 };
        tree.begin(identity, metrics)?;
        Ok(tree)
    }

    /// Writes the synthetic root and the header of an empty tree.
    fn begin(&mut self, identity: &Identity, metrics: &MetricSet) -> Result<(), LossCause> {
        self.push(NodeRecord::new(meta(RecordKind::Root, 0, 0), 0, 0, 0))?;
        self.write_header(identity, metrics);
        (self.groups, self.floats) = (metrics.groups(), metrics.floats());
        Ok(())
    }

    /// Begins the profile of the next thread after this one, which is final, in the same file. On an error
    /// this profile remains the last of the file.
    pub fn begin_next(&mut self, identity: &Identity, metrics: &MetricSet) -> Result<(), LossCause> {
        let (offset, len) = (self.offset, self.len);
        let step = self.size().next_multiple_of(align_of::<u64>());
        self.offset = offset + step;
        self.len = 0;
        self.index.clear();
        self.last.clear();
        self.last_root = 0;
        let begun = self.begin(identity, metrics);
        let next = std::mem::replace(&mut self.offset, offset);
        match begun {
            Ok(()) => {
                compiler_fence(Ordering::Release);
                // The next profile is complete, so the chain leads to whole profiles whenever the process
                // dies.
                self.set(header::NEXT, step as u64);
                self.offset = next;
            }
            Err(_) => self.len = len,
        }
        begun
    }

    /// The profile's header, in the file's mapping.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        // SAFETY: the profile's first byte is within the file, which is mapped as a whole.
        unsafe { self.file.base().as_ptr().add(self.offset) }
    }

    /// Size of the header and the records, in bytes.
    fn size(&self) -> usize {
        HEADER_SIZE + self.len as usize * RECORD_SIZE
    }

    /// Prefetches the lines that the next insertion will write. Most paths have new nodes, whose records are
    /// in memory that was not written yet.
    #[inline]
    pub fn prepare(&self) {
        let start = self.start();
        let next = start.wrapping_add(self.size());
        for line in 0..PREPARED {
            prefetch(next.wrapping_add(64 * line));
        }
        prefetch(start);
    }

    fn write_header(&mut self, id: &Identity, metrics: &MetricSet) {
        self.set(header::VERSION, profile::KIND.version());
        self.set(header::HEADER_SIZE, HEADER_SIZE as u32);
        self.set(header::PID, id.pid);
        self.set(header::THREAD, id.thread);
        self.set(header::TID, id.tid);
        self.set(header::IMAGE, id.image);
        self.set(header::PERIOD_NS, id.period_ns);
        self.set(header::CREATOR_THREAD, id.creator_thread);
        self.set(header::CREATOR_NODE, id.creator_node);
        self.set(header::METRIC_COUNT, metrics.count());
        let table = metrics.table();
        // SAFETY: the header has room for a table of this size at METRICS.
        unsafe {
            self.header_at::<u8>(header::METRICS).copy_from_nonoverlapping(table.as_ptr(), table.len());
        }
        compiler_fence(Ordering::Release);
        self.set(header::MAGIC, u64::from_le_bytes(profile::KIND.magic));
    }

    /// A header field, which may be unaligned.
    #[inline]
    fn header_at<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset + size_of::<T>() <= HEADER_SIZE);
        // SAFETY: the header is within the file's mapping: `push` has written the root after it.
        unsafe { self.start().add(offset).cast() }
    }

    /// Sets a header field of this type.
    #[inline]
    pub fn set<T: Copy>(&mut self, offset: usize, value: T) {
        // SAFETY: the field is within the header.
        unsafe { self.header_at::<T>(offset).write_unaligned(value) };
    }

    /// Adds to a header field of this type.
    #[inline]
    pub fn add_to<T: Copy + Add<Output = T>>(&mut self, offset: usize, value: T) {
        let field = self.header_at::<T>(offset);
        // SAFETY: as above; any bits are a valid number.
        unsafe { field.write_unaligned(field.read_unaligned() + value) };
    }

    #[inline]
    fn record(&self, index: u32) -> *mut NodeRecord {
        debug_assert!(index < self.len);
        // SAFETY: records with an index below `len` are mapped. Callers that dereference the result have
        // checked the index, or have just created the record.
        unsafe {
            let first = self.start().add(HEADER_SIZE).cast::<NodeRecord>();
            first.add(index as usize)
        }
    }

    #[inline]
    pub fn reserve(&mut self, records: usize) -> Result<(), LossCause> {
        let end = self.offset + self.size() + records * RECORD_SIZE;
        while end > self.file.len() {
            let path = CStr::from_bytes_until_nul(self.path.as_slice());
            self.file.grow(path.map_err(|_| LossCause::NoFile)?)?;
        }
        Ok(())
    }

    fn push(&mut self, record: NodeRecord) -> Result<u32, LossCause> {
        let index = self.len;
        self.reserve(1)?;
        self.len = index + 1;
        // SAFETY: the record's bytes are mapped (just checked), and only this thread writes.
        unsafe { self.record(index).write(record) };
        compiler_fence(Ordering::Release);
        self.set(header::RECORDS, u64::from(self.len));
        Ok(index)
    }

    /// Inserts a path, and returns its innermost record. Its `outer` outermost notes are those of the
    /// previous path, under the same root; `notes` are the other notes, innermost first.
    pub fn insert(&mut self, root: PathRoot, notes: &[Note], outer: usize) -> Result<u32, LossCause> {
        let known = self.last.len();
        debug_assert!(outer <= known);
        let mut depth = outer.min(known);
        let mut at;
        let mut shared;
        if let Some(last) = depth.checked_sub(1) {
            at = self.last(last);
            shared = true;
        } else {
            at = self.root_child(root)?;
            shared = at.node == self.last_root;
            self.last_root = at.node;
        }
        let mut notes = notes.get(notes.len().saturating_sub(MAX_NOTES - depth)..).unwrap_or(notes);
        while let Some((note, inner)) = notes.split_last() {
            shared = shared && depth < known;
            if !shared {
                break;
            }
            let last = self.last(depth);
            // Compares hashes first: most records of diverging paths are not read.
            if last.hash != key::hash(at.hash, note) || !self.is_of(last.node, note) {
                break;
            }
            at = last;
            depth += 1;
            notes = inner;
        }
        self.last.truncate(depth);
        for notes in notes.rchunks(AT_ONCE) {
            at = self.descend(at, notes)?;
        }
        Ok(at.node)
    }

    /// Finds or adds at most [`AT_ONCE`] notes below a node; innermost first.
    fn descend(&mut self, from: Level, notes: &[Note]) -> Result<Level, LossCause> {
        let mut hashes = [0; AT_ONCE];
        let mut hash = from.hash;
        for (note, kept) in notes.iter().rev().zip(&mut hashes) {
            hash = key::hash(hash, note);
            *kept = hash;
            self.index.prefetch(hash);
        }
        let sought = if self.index.is_empty() { 0 } else { notes.len() };
        for hash in hashes.iter().take(sought) {
            if let Some(node) = self.index.likely(*hash) {
                prefetch(self.record(node).cast());
            }
        }
        let mut at = from;
        let before = self.len;
        for (note, hash) in notes.iter().rev().zip(hashes) {
            let node = if at.node >= before {
                // The parent is new and is the last record, so the child is new as well.
                self.push_note(at.node, note)?
            } else {
                self.child(at.node, hash, note)?
            };
            at = Level { node, hash };
            if !self.last.push(at) {
                return Err(LossCause::TreeFull);
            }
        }
        Ok(at)
    }

    #[inline]
    fn last(&self, depth: usize) -> Level {
        let level = self.last.as_slice().get(depth).copied();
        level.unwrap_or(Level { node: 0, hash: 0 })
    }

    /// Whether a node of the last path has exactly this note.
    #[inline]
    fn is_of(&self, node: u32, note: &Note) -> bool {
        // SAFETY: the last path's nodes are indices of existing records; only this thread writes them.
        let r = unsafe { &*self.record(node) };
        as_note(r) == *note
    }

    /// The node of a thread's time without a place, below its root. The last path stays the one before.
    pub fn placeless(&mut self, root: PathRoot, cause: LossCause) -> Result<u32, LossCause> {
        let root = self.root_child(root)?;
        let (ip, meta) = (CodeAddress(cause as u64), meta(RecordKind::Partial, 0, 0));
        let note = Note { ip, lip: CodeAddress::NONE, meta };
        self.child(root.node, key::hash(root.hash, &note), &note)
    }

    fn root_child(&mut self, root: PathRoot) -> Result<Level, LossCause> {
        let (kind, ip, lip) = match root {
            PathRoot::Entry => (RecordKind::Entry, 0, 0),
            PathRoot::Anchor { thread, node } => (RecordKind::Anchor, u64::from(thread), u64::from(node)),
            PathRoot::Partial(cause) => (RecordKind::Partial, cause as u64, 0),
        };
        let note = Note { ip: CodeAddress(ip), lip: CodeAddress(lip), meta: meta(kind, 0, 0) };
        let hash = key::hash(0, &note);
        let node = self.child(0, hash, &note)?;
        Ok(Level { node, hash })
    }

    /// Finds or adds the child of a node for a note; `hash` is that of the path to the child. A child whose
    /// record directly follows its parent's is found there, and is not in the index. Most nodes that a path
    /// adds are of this kind.
    fn child(&mut self, parent: u32, hash: u32, note: &Note) -> Result<u32, LossCause> {
        debug_assert!(note.meta >> 8 <= MAX_NOTE_ID);
        let is_it = |index: u32| {
            // SAFETY: indices below `len`, and those in the index, are of existing records. A metric record
            // has another kind, so no note equals it.
            let r = unsafe { &*self.record(index) };
            r.parent == parent && key::sharable(note, &as_note(r))
        };
        let behind = parent + 1;
        if behind < self.len && is_it(behind) {
            return Ok(self.shared(behind, note));
        }
        match self.index.find(hash, is_it) {
            Ok(index) => Ok(self.shared(index, note)),
            Err(_) if behind == self.len => self.push_note(parent, note),
            Err(_) if self.index.is_full() => Err(LossCause::TreeFull),
            Err(vacant) => {
                let index = self.push_note(parent, note)?;
                self.index.put(vacant, hash, index);
                Ok(index)
            }
        }
    }

    /// Shares a node with a further note. If the note is the base case of the class, the node takes its
    /// association.
    #[inline]
    fn shared(&mut self, index: u32, note: &Note) -> u32 {
        // SAFETY: callers have found the record; only this thread writes it.
        let r = unsafe { &mut *self.record(index) };
        // The store is rare: it would dirty the page, which would then be written to disk again.
        if r.meta != note.meta && key::is_base_case(note.meta >> 4 & 0xf) {
            r.meta = note.meta;
        }
        index
    }

    #[inline]
    fn push_note(&mut self, parent: u32, note: &Note) -> Result<u32, LossCause> {
        self.push(NodeRecord::new(note.meta, parent, note.ip.0, note.lip.0))
    }

    /// Adds the values of one or more samples to a node.
    #[inline]
    pub fn add(&mut self, node: u32, words: &Words) -> Result<(), LossCause> {
        // SAFETY: `node` came from `insert`, so its record exists.
        let mut metric = unsafe { (*self.record(node)).metric };
        if metric == 0 {
            metric = self.push_metrics(node)?;
        }
        self.add_group(metric, &words[0], FIRST_FLOATS);
        if self.groups > 1 {
            self.add_further(metric, words);
        }
        let [samples, periods, _] = words[0];
        self.add_to(header::SAMPLES, samples);
        self.add_to(header::WEIGHT, periods);
        Ok(())
    }

    /// Adds the groups after the first to the metric records that follow it.
    #[inline]
    fn add_further(&mut self, metric: u32, words: &Words) {
        for (group, words) in (0..self.groups).zip(words).skip(1) {
            let floats = self.floats >> (group * VALUES_PER_RECORD as u32);
            self.add_group(metric + group, words, floats);
        }
    }

    /// Adds words to those of a metric record. The lowest bits of `floats` say which are floating-point
    /// numbers.
    #[inline]
    fn add_group(&mut self, metric: u32, words: &[u64; VALUES_PER_RECORD], floats: u32) {
        // SAFETY: callers pass the index of a metric record, which has the size of a note record; only this
        // thread writes it.
        let record = unsafe { &mut *self.record(metric).cast::<MetricRecord>() };
        for (i, (sum, word)) in record.values.iter_mut().zip(words).enumerate() {
            *sum = if floats >> i & 1 == 1 {
                (f64::from_bits(*sum) + f64::from_bits(*word)).to_bits()
            } else {
                sum.wrapping_add(*word)
            };
        }
    }

    /// Adds the metric records of a node, all or none, and returns the first.
    #[inline(never)]
    fn push_metrics(&mut self, node: u32) -> Result<u32, LossCause> {
        let first = self.len;
        self.reserve(self.groups as usize)?;
        for group in 0..self.groups {
            self.push(NodeRecord::new(meta(RecordKind::Metric, 0, group), node, 0, 0))?;
        }
        // SAFETY: as in `add`; the address is taken after the file has grown.
        unsafe { (*self.record(node)).metric = first };
        Ok(first)
    }

    /// Marks the profile as final, when the thread has ended.
    pub fn finish(&mut self) {
        self.set(header::STATE, 1_u32);
    }

    /// Whether another thread's profile should follow in the file. False if the index has grown, so that
    /// clearing it would take longer than a new one, or if the file is large.
    pub fn has_room(&self) -> bool {
        self.index.is_small() && self.offset + self.size() < MOST_SHARED
    }
}

#[inline]
fn as_note(r: &NodeRecord) -> Note {
    Note { ip: CodeAddress(r.ip), lip: CodeAddress(r.lip), meta: r.meta }
}
