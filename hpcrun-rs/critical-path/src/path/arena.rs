//! The nodes of all paths.
//!
//! One duty: hand nodes out and take them back, by reference counts, within a fixed number of nodes. Each
//! thread keeps some free nodes of its own ([`Local`]), so a node is usually taken and given back without a
//! lock.
//!
//! Invariants: a node with one reference is changed only by that reference's owner; one with more references
//! is not changed at all. The owner of the last reference frees the node: the others' accesses happen before
//! that, as their decrements release and the last one acquires. The fields are atomics only so that the code
//! needs no `unsafe` to reach them; all accesses are relaxed, that is, plain loads and stores.

use core::ops::Deref;
use core::slice;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::Mutex;

use super::{Edge, Segment, Site};

/// Nodes that a thread takes from, or gives back to, all others at once.
const BATCH: usize = 16;
/// Several threads ran the segment.
const MANY_THREADS: u32 = u32::MAX;

/// One reference to a node, or none. It must be given back by [`Local::release`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u32);

impl NodeId {
    pub(crate) const NONE: NodeId = NodeId(u32::MAX);

    pub(crate) fn is_none(&self) -> bool {
        *self == NodeId::NONE
    }

    /// Takes the reference, and leaves none.
    pub(crate) fn take(&mut self) -> NodeId {
        core::mem::replace(self, NodeId::NONE)
    }
}

/// A segment at the end of a list, and the list before it.
#[repr(align(64))]
struct Node {
    references: AtomicU32,
    /// The list before it: a reference, as a number. In a free node, the next free one.
    before: AtomicU32,
    begin: AtomicU64,
    end: AtomicU64,
    time: AtomicU64,
    count: AtomicU64,
    /// Time of the segments that were folded away right before this one, and their number.
    folded_time: AtomicU64,
    folded: AtomicU32,
    /// Nodes in the list up to this one.
    depth: AtomicU32,
    thread: AtomicU32,
    edge: AtomicU32,
}

/// The content of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) segment: Segment,
    /// Time of the segments that were folded away right before this one, and their number.
    pub(super) folded_time: u64,
    pub(super) folded: u64,
}

/// The memory of all paths.
pub(crate) struct Arena {
    nodes: Nodes,
    free: Mutex<Free>,
}

/// Nodes of zeros, of which what is not touched is not committed: an allocator gets so many words from the
/// system, which commits a page when it is first written. With an unusual alignment it would clear them
/// itself, so they are aligned in here.
struct Nodes {
    words: *mut [u64],
    first: *const Node,
    count: usize,
}

// SAFETY: it owns the nodes, which are atomic numbers.
unsafe impl Send for Nodes {}
// SAFETY: as above.
unsafe impl Sync for Nodes {}

impl Nodes {
    fn new(count: usize) -> Self {
        // One more: room for the alignment.
        let length = (count + 1) * (size_of::<Node>() / size_of::<u64>());
        let words = Box::into_raw(vec![0; length].into_boxed_slice());
        let start = words.cast::<u8>();
        Nodes { words, first: start.wrapping_add(start.align_offset(align_of::<Node>())).cast(), count }
    }
}

impl Deref for Nodes {
    type Target = [Node];

    #[inline]
    fn deref(&self) -> &[Node] {
        // SAFETY: `new` has room for so many aligned nodes, of which zeros are a value; they are reached only
        // here, and not freed before `self`.
        unsafe { slice::from_raw_parts(self.first, self.count) }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // SAFETY: from a box, and the nodes need no drop.
        drop(unsafe { Box::from_raw(self.words) });
    }
}

/// The nodes that no thread keeps.
struct Free {
    /// Lists of [`BATCH`] free nodes each, by their first.
    batches: Vec<u32>,
    /// Single free nodes, of threads that have ended.
    singles: Vec<u32>,
    /// The nodes from here on were never used.
    unused: u32,
}

/// A thread's free nodes.
pub(crate) struct Local {
    first: u32,
    count: usize,
}

impl Arena {
    /// Room for this many nodes of 64 bytes, rounded up.
    pub(crate) fn new(nodes: usize) -> Self {
        let nodes = nodes.clamp(1, 1 << 30).next_multiple_of(BATCH);
        Arena {
            nodes: Nodes::new(nodes),
            free: Mutex::new(Free { batches: Vec::new(), singles: Vec::new(), unused: 0 }),
        }
    }

    #[inline]
    fn node(&self, number: u32) -> &Node {
        &self.nodes[number as usize]
    }

    /// Another reference to the same node.
    #[inline]
    pub(crate) fn share(&self, node: &NodeId) -> NodeId {
        if !node.is_none() {
            self.node(node.0).references.fetch_add(1, Ordering::Relaxed);
        }
        NodeId(node.0)
    }

    /// Nodes in the list that ends with this one.
    #[inline]
    pub(super) fn depth(&self, node: &NodeId) -> u32 {
        if node.is_none() {
            return 0;
        }
        self.node(node.0).depth.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn content_at(&self, cursor: Cursor) -> Content {
        let node = self.node(cursor.0);
        let thread = node.thread.load(Ordering::Relaxed);
        Content {
            segment: Segment {
                begin: Site(node.begin.load(Ordering::Relaxed)),
                end: Site(node.end.load(Ordering::Relaxed)),
                edge: Edge::from_number(node.edge.load(Ordering::Relaxed)).unwrap_or(Edge::Folded),
                rank: None,
                thread: (thread != MANY_THREADS).then_some(thread),
                time: node.time.load(Ordering::Relaxed),
                count: node.count.load(Ordering::Relaxed),
            },
            folded_time: node.folded_time.load(Ordering::Relaxed),
            folded: u64::from(node.folded.load(Ordering::Relaxed)),
        }
    }

    /// Whether both nodes' segments can be folded into one.
    #[inline]
    pub(super) fn alike(&self, content: &Content, cursor: Cursor) -> bool {
        let node = self.node(cursor.0);
        node.end.load(Ordering::Relaxed) == content.segment.end.0
            && node.begin.load(Ordering::Relaxed) == content.segment.begin.0
            && node.edge.load(Ordering::Relaxed) == content.segment.edge as u32
    }

    /// A place in the list of `node`, which must be kept meanwhile.
    #[inline]
    pub(super) fn cursor(&self, node: &NodeId) -> Option<Cursor> {
        (!node.is_none()).then_some(Cursor(node.0))
    }

    /// The node before.
    #[inline]
    pub(super) fn before(&self, cursor: Cursor) -> Option<Cursor> {
        let before = self.node(cursor.0).before.load(Ordering::Relaxed);
        (before != NodeId::NONE.0).then_some(Cursor(before))
    }

    /// Another reference to the list before the cursor's node.
    #[inline]
    pub(super) fn share_before(&self, cursor: Cursor) -> NodeId {
        self.before(cursor).map_or(NodeId::NONE, |before| self.share(&NodeId(before.0)))
    }

    /// Replaces the content of the node, if nobody else refers to it. The list before it stays.
    #[inline]
    pub(super) fn replace_content(&self, node: &NodeId, content: &Content) -> bool {
        let target = self.node(node.0);
        // Acquires: those who gave their references back have read the node before.
        if target.references.load(Ordering::Acquire) != 1 {
            return false;
        }
        target.write(content);
        true
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Free> {
        // Nothing panics with the lock held, but a poisoned lock would be harmless too.
        self.free.lock().unwrap_or_else(|error| error.into_inner())
    }

    /// Nodes that are in use or kept by a thread.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        let free = self.free();
        free.unused as usize - free.batches.len() * BATCH - free.singles.len()
    }
}

/// A place in a list that somebody keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Cursor(u32);

impl Node {
    #[inline]
    fn write(&self, content: &Content) {
        let segment = &content.segment;
        self.begin.store(segment.begin.0, Ordering::Relaxed);
        self.end.store(segment.end.0, Ordering::Relaxed);
        self.time.store(segment.time, Ordering::Relaxed);
        self.count.store(segment.count, Ordering::Relaxed);
        self.folded_time.store(content.folded_time, Ordering::Relaxed);
        let folded = u32::try_from(content.folded).unwrap_or(u32::MAX);
        self.folded.store(folded, Ordering::Relaxed);
        let thread = segment.thread.unwrap_or(MANY_THREADS);
        self.thread.store(thread, Ordering::Relaxed);
        self.edge.store(segment.edge as u32, Ordering::Relaxed);
    }
}

impl Local {
    pub(crate) fn new() -> Self {
        Local { first: NodeId::NONE.0, count: 0 }
    }

    /// A node with one reference, after `before`, whose reference it takes over. `Err`, with `before`: there
    /// is no room.
    #[inline]
    pub(super) fn node(
        &mut self,
        arena: &Arena,
        before: NodeId,
        content: &Content,
    ) -> Result<NodeId, NodeId> {
        if self.count == 0 && !self.refill(arena) {
            return Err(before);
        }
        let number = self.first;
        let node = arena.node(number);
        self.first = node.before.load(Ordering::Relaxed);
        self.count -= 1;
        let depth = arena.depth(&before) + 1;
        node.write(content);
        node.depth.store(depth, Ordering::Relaxed);
        node.before.store(before.0, Ordering::Relaxed);
        node.references.store(1, Ordering::Relaxed);
        Ok(NodeId(number))
    }

    /// Gives a reference back, and with the last one the node, and so on for the list before it.
    #[inline]
    pub(crate) fn release(&mut self, arena: &Arena, node: NodeId) {
        let mut number = node.0;
        while number != NodeId::NONE.0 {
            let node = arena.node(number);
            // The only reference cannot become more but by its owner, so no exchange is needed.
            if node.references.load(Ordering::Acquire) != 1 {
                if node.references.fetch_sub(1, Ordering::Release) != 1 {
                    return;
                }
                fence(Ordering::Acquire);
            }
            let before = node.before.load(Ordering::Relaxed);
            node.before.store(self.first, Ordering::Relaxed);
            self.first = number;
            self.count += 1;
            if self.count == 2 * BATCH {
                self.give_back(arena);
            }
            number = before;
        }
    }

    /// Gets free nodes; false if there are none.
    #[cold]
    fn refill(&mut self, arena: &Arena) -> bool {
        let mut free = arena.free();
        if let Some(first) = free.batches.pop() {
            (self.first, self.count) = (first, BATCH);
            return true;
        }
        let mut take = |number: u32| {
            arena.node(number).before.store(self.first, Ordering::Relaxed);
            self.first = number;
            self.count += 1;
        };
        let singles = free.singles.len().min(BATCH);
        let rest = free.singles.len() - singles;
        free.singles.drain(rest..).for_each(&mut take);
        if singles == 0 {
            if free.unused as usize == arena.nodes.len() {
                return false;
            }
            let first = free.unused;
            free.unused += BATCH as u32;
            (first..free.unused).rev().for_each(take);
        }
        true
    }

    /// Gives one batch to all threads.
    #[cold]
    fn give_back(&mut self, arena: &Arena) {
        let first = self.first;
        let mut last = first;
        for _ in 1..BATCH {
            last = arena.node(last).before.load(Ordering::Relaxed);
        }
        self.first = arena.node(last).before.load(Ordering::Relaxed);
        self.count -= BATCH;
        arena.free().batches.push(first);
    }

    /// Gives all free nodes to all threads.
    pub(crate) fn empty(&mut self, arena: &Arena) {
        let mut free = arena.free();
        while self.count != 0 {
            free.singles.push(self.first);
            self.first = arena.node(self.first).before.load(Ordering::Relaxed);
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 12;

    fn content(time: u64) -> Content {
        Content {
            segment: Segment {
                begin: Site(time),
                end: Site(time + 1),
                edge: Edge::Join,
                rank: None,
                thread: Some(3),
                time,
                count: 1,
            },
            folded_time: 0,
            folded: 0,
        }
    }

    /// Random trees of lists against a model that keeps every list as a vector.
    #[test]
    fn shared_lists_keep_their_content_and_all_nodes_come_back() {
        let arena = Arena::new(20_000);
        let mut local = Local::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) as usize % bound
        };
        let mut lists: Vec<(NodeId, Vec<Content>)> = vec![(NodeId::NONE, Vec::new())];
        for step in 0..60_000 {
            let chosen = next(lists.len());
            match next(if lists.len() > 40 { 5 } else { 4 }) {
                0 | 1 => {
                    let new = content(step);
                    let (list, model) = &mut lists[chosen];
                    model.push(new);
                    *list = local.node(&arena, list.take(), &new).expect("there is room");
                }
                2 => {
                    let (list, model) = &lists[chosen];
                    let copy = (arena.share(list), model.clone());
                    lists.push(copy);
                }
                3 => {
                    let (list, model) = &mut lists[chosen];
                    let Some(last) = model.last_mut() else {
                        continue;
                    };
                    let changed = content(step + 1_000_000);
                    if arena.replace_content(list, &changed) {
                        *last = changed;
                    }
                }
                _ => {
                    let (list, model) = lists.swap_remove(chosen);
                    let mut cursor = arena.cursor(&list);
                    for expected in model.iter().rev() {
                        let at = cursor.expect("as long as the model");
                        assert_eq!(arena.content_at(at), *expected);
                        cursor = arena.before(at);
                    }
                    assert!(cursor.is_none());
                    assert_eq!(arena.depth(&list) as usize, model.len());
                    local.release(&arena, list);
                }
            }
        }
        for (list, _) in lists {
            local.release(&arena, list);
        }
        local.empty(&arena);
        assert_eq!(arena.in_use(), 0);
    }

    #[test]
    fn a_full_arena_says_so_and_recovers() {
        let arena = Arena::new(ROOM);
        let mut local = Local::new();
        let mut list = NodeId::NONE;
        for step in 0..ROOM as u64 {
            list = local.node(&arena, list, &content(step)).expect("there is room");
        }
        let list = local.node(&arena, list, &content(0)).expect_err("full");
        local.release(&arena, list);
        local.node(&arena, NodeId::NONE, &content(0)).expect("there is room again");
    }

    /// Threads exchange shared lists; every node comes back, whoever frees it.
    #[test]
    fn threads_share_lists() {
        let arena = Arena::new(ROOM);
        let mut local = Local::new();
        let mut list = NodeId::NONE;
        for step in 0..100 {
            list = local.node(&arena, list, &content(step)).expect("room");
        }
        let threads = 4;
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let mine = arena.share(&list);
                let arena = &arena;
                scope.spawn(move || {
                    let mut local = Local::new();
                    for step in 0..20_000 {
                        let longer = local.node(arena, arena.share(&mine), &content(step));
                        let longer = longer.expect("room");
                        assert_eq!(arena.content_at(Cursor(longer.0)), content(step));
                        local.release(arena, longer);
                    }
                    local.release(arena, mine);
                    local.empty(arena);
                });
            }
        });
        assert_eq!(arena.content_at(Cursor(list.0)), content(99));
        local.release(&arena, list);
        local.empty(&arena);
        assert_eq!(arena.in_use(), 0);
    }

    /// Pages of this process that are in memory.
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
        let resident = text.split(' ').nth(1).and_then(|n| n.parse().ok());
        resident.expect("a number")
    }

    #[test]
    fn what_is_not_touched_is_not_committed() {
        let before = resident();
        let nodes = Nodes::new(1 << 23);
        assert_eq!(nodes.as_ptr().addr() % 64, 0);
        assert_eq!(nodes[12345].time.swap(1, Ordering::Relaxed), 0);
        // 512 MiB are 131,072 pages of 4 KiB.
        let after = resident();
        assert!(after < before + 20_000, "{before} to {after} pages");
    }
}
