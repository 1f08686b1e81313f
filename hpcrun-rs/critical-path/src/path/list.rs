//! A list of segments, kept short.
//!
//! One duty: append a segment in constant time, such that
//!
//! * equal consecutive segments, and equal consecutive groups of up to [`LONGEST_LOOP`] segments, are one,
//!   with counts: a loop takes as much memory as one of its turns;
//! * a list has at most `2 * keep` nodes: from then on its older half is folded into one number. That copies
//!   `keep` nodes after at least as many appended ones;
//! * if there is no room for a node, its time is kept as folded.
//!
//! Invariant: the times of all segments, with the folded ones, add up to the times appended.

use super::arena::{Arena, Content, Cursor, Local, NodeId};
use super::{Edge, Segment, Site, remote};
use hpcrun_abi::RemoteStrand;
use std::collections::HashMap;

/// The longest group of segments whose repetition is recognised.
const LONGEST_LOOP: usize = 4;

/// A list of segments; its node must be released.
#[derive(Debug)]
pub(crate) struct List {
    node: NodeId,
    /// If the chain comes from another process: from which of its exports, and its length there.
    origin: Option<(Site, u64)>,
    /// Time of the segments after the node that found no room, and their number.
    folded_time: u64,
    folded: u64,
}

impl Default for List {
    fn default() -> Self {
        List::EMPTY
    }
}

impl From<&RemoteStrand> for List {
    /// What goes on after an export of another process.
    fn from(strand: &RemoteStrand) -> List {
        List { origin: Some((Site(strand.site()), strand.length)), ..List::EMPTY }
    }
}

impl List {
    pub(crate) const EMPTY: List = List { node: NodeId::NONE, origin: None, folded_time: 0, folded: 0 };

    /// The same list, to be extended or released on its own.
    #[inline]
    pub(crate) fn share(&self, arena: &Arena) -> List {
        List { node: arena.share(&self.node), ..*self }
    }

    /// Gives the list's memory back.
    #[inline]
    pub(crate) fn release(self, arena: &Arena, local: &mut Local) {
        local.release(arena, self.node);
    }

    /// Appends a segment. `keep`: see the module.
    #[inline]
    pub(crate) fn append(&mut self, arena: &Arena, local: &mut Local, segment: Segment, keep: u32) {
        let content = Content {
            segment,
            folded_time: core::mem::take(&mut self.folded_time),
            folded: core::mem::take(&mut self.folded),
        };
        let last = arena.cursor(&self.node);
        if let Some(last) = last.filter(|last| arena.alike(&content, *last)) {
            self.fold_last(arena, local, last, &content);
            return;
        }
        if let Some(length) = last.and_then(|last| loop_length(arena, last, &content)) {
            self.fold_loop(arena, local, length, &content);
            return;
        }
        self.push(arena, local, &content);
        if arena.depth(&self.node) >= 2 * keep {
            self.shorten(arena, local, keep);
        }
    }

    /// Folds `content` into the last node.
    #[inline(never)]
    fn fold_last(&mut self, arena: &Arena, local: &mut Local, last: Cursor, content: &Content) {
        let folded = joined(&arena.content_at(last), content);
        if !arena.replace_content(&self.node, &folded) {
            let before = arena.share_before(last);
            let old = core::mem::replace(&mut self.node, before);
            self.push(arena, local, &folded);
            local.release(arena, old);
        }
    }

    /// Appends a node, or, if there is no room, its time.
    #[inline]
    fn push(&mut self, arena: &Arena, local: &mut Local, content: &Content) {
        match local.node(arena, self.node.take(), content) {
            Ok(node) => self.node = node,
            Err(node) => {
                self.node = node;
                self.folded_time = content.folded_time + content.segment.time;
                self.folded = content.folded + content.segment.count;
            }
        }
    }

    /// Folds the last `length - 1` nodes and `content` into the `length` nodes before them.
    #[inline(never)]
    fn fold_loop(&mut self, arena: &Arena, local: &mut Local, length: usize, content: &Content) {
        let Some(newest) = arena.cursor(&self.node) else {
            return;
        };
        let mut nodes = [newest; 2 * LONGEST_LOOP];
        for at in 1..2 * length - 1 {
            let Some(before) = arena.before(nodes[at - 1]) else {
                return;
            };
            nodes[at] = before;
        }
        let mut contents = [*content; LONGEST_LOOP];
        for (at, folded) in contents[..length].iter_mut().enumerate() {
            // From the oldest to `content`.
            let old = arena.content_at(nodes[2 * length - 2 - at]);
            *folded = if at + 1 == length {
                joined(&old, content)
            } else {
                joined(&old, &arena.content_at(nodes[length - 2 - at]))
            };
        }
        let before = arena.share_before(nodes[2 * length - 2]);
        self.rebuild(arena, local, before, &contents[..length]);
    }

    /// Replaces the list by `before` and new nodes.
    fn rebuild(&mut self, arena: &Arena, local: &mut Local, before: NodeId, contents: &[Content]) {
        let old = core::mem::replace(&mut self.node, before);
        for content in contents {
            let content = Content {
                folded_time: content.folded_time + core::mem::take(&mut self.folded_time),
                folded: content.folded + core::mem::take(&mut self.folded),
                ..*content
            };
            self.push(arena, local, &content);
        }
        local.release(arena, old);
    }

    /// Folds all but the last `keep` nodes.
    #[cold]
    fn shorten(&mut self, arena: &Arena, local: &mut Local, keep: u32) {
        let mut contents: Vec<Content> = Vec::with_capacity(keep as usize);
        let mut cursor = arena.cursor(&self.node);
        let (mut time, mut count) = (0, 0);
        while let Some(at) = cursor {
            let content = arena.content_at(at);
            if contents.len() < keep as usize {
                contents.push(content);
            } else {
                time += content.segment.time + content.folded_time;
                count += content.segment.count + content.folded;
            }
            cursor = arena.before(at);
        }
        contents.reverse();
        if let Some(first) = contents.first_mut() {
            first.folded_time += time;
            first.folded += count;
        }
        self.rebuild(arena, local, NodeId::NONE, &contents);
    }

    /// The segments in order; folded ones as one of [`Edge::Folded`].
    pub(crate) fn segments(&self, arena: &Arena) -> Vec<Segment> {
        let mut segments = Vec::from_iter(folded(self.folded_time, self.folded));
        let mut cursor = arena.cursor(&self.node);
        while let Some(at) = cursor {
            let content = arena.content_at(at);
            segments.push(content.segment);
            segments.extend(folded(content.folded_time, content.folded));
            cursor = arena.before(at);
        }
        segments.extend(self.origin.map(remote));
        segments.reverse();
        segments
    }

    /// Adds the list to others, which share nodes with it; the number of the last one.
    pub(crate) fn add_to(&self, arena: &Arena, tree: &mut Tree) -> Option<u32> {
        let mut new = Vec::new();
        let mut cursor = arena.cursor(&self.node);
        let mut last = self.origin.and_then(|origin| tree.origin(origin));
        while let Some(at) = cursor {
            if let Some(known) = tree.known.get(&at) {
                last = Some(*known);
                break;
            }
            new.push(at);
            cursor = arena.before(at);
        }
        for at in new.into_iter().rev() {
            let content = arena.content_at(at);
            last = tree.add(last, folded(content.folded_time, content.folded));
            last = tree.add(last, Some(content.segment));
            tree.known.extend(last.map(|number| (at, number)));
        }
        tree.add(last, folded(self.folded_time, self.folded))
    }

    /// The number of nodes.
    #[cfg(test)]
    fn len(&self, arena: &Arena) -> usize {
        arena.depth(&self.node) as usize
    }
}

/// What stands for so many segments that were folded away, if any were.
fn folded(time: u64, count: u64) -> Option<Segment> {
    (count != 0).then_some(Segment {
        begin: Site(0),
        end: Site(0),
        edge: Edge::Folded,
        rank: None,
        thread: None,
        time,
        count,
    })
}

/// The segments of many lists, which share nodes.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    known: HashMap<Cursor, u32>,
    origins: HashMap<Site, u32>,
    /// Each with the number of the one before it.
    pub(crate) segments: Vec<(Option<u32>, Segment)>,
}

impl Tree {
    fn origin(&mut self, origin: (Site, u64)) -> Option<u32> {
        if let Some(known) = self.origins.get(&origin.0) {
            return Some(*known);
        }
        let number = self.add(None, Some(remote(origin)));
        self.origins.extend(number.map(|number| (origin.0, number)));
        number
    }

    fn add(&mut self, before: Option<u32>, segment: Option<Segment>) -> Option<u32> {
        let Some(segment) = segment else {
            return before;
        };
        self.segments.push((before, segment));
        Some(self.segments.len() as u32 - 1)
    }
}

/// The length of the group that ends with `content`, after `last`, and equals the group before it.
#[inline]
fn loop_length(arena: &Arena, last: Cursor, content: &Content) -> Option<usize> {
    let mut same = last;
    for length in 2..=LONGEST_LOOP {
        same = arena.before(same)?;
        if arena.alike(content, same) && are_equal(arena, last, arena.before(same)?, length - 1) {
            return Some(length);
        }
    }
    None
}

/// Whether the `count` segments that end at both cursors are alike.
fn are_equal(arena: &Arena, mut new: Cursor, mut old: Cursor, count: usize) -> bool {
    for left in (0..count).rev() {
        if !arena.alike(&arena.content_at(new), old) {
            return false;
        }
        if left != 0 {
            let (Some(a), Some(b)) = (arena.before(new), arena.before(old)) else {
                return false;
            };
            (new, old) = (a, b);
        }
    }
    true
}

/// Two alike contents as one.
fn joined(old: &Content, new: &Content) -> Content {
    Content {
        segment: Segment {
            time: old.segment.time + new.segment.time,
            count: old.segment.count + new.segment.count,
            thread: old.segment.thread.filter(|_| old.segment.thread == new.segment.thread),
            ..old.segment
        },
        folded_time: old.folded_time + new.folded_time,
        folded: old.folded + new.folded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: u32 = 1000;

    fn segment(place: u64, time: u64) -> Segment {
        Segment {
            begin: Site(place),
            end: Site(place + 1),
            edge: Edge::Spawn,
            rank: None,
            thread: Some(1),
            time,
            count: 1,
        }
    }

    fn list(arena: &Arena, local: &mut Local, places: &[u64], keep: u32) -> List {
        let mut list = List::EMPTY;
        for (at, place) in places.iter().enumerate() {
            list.append(arena, local, segment(*place, at as u64 + 1), keep);
        }
        list
    }

    fn places(list: &List, arena: &Arena) -> Vec<(u64, u64)> {
        let segments = list.segments(arena);
        segments.iter().map(|s| (s.begin.0, s.count)).collect()
    }

    #[test]
    fn loops_become_counts() {
        let arena = Arena::new(10_000);
        let mut local = Local::new();
        let run = list(&arena, &mut local, &[1, 1, 1, 2], KEEP);
        assert_eq!(places(&run, &arena), [(1, 3), (2, 1)]);
        assert_eq!(run.segments(&arena)[0].time, 1 + 2 + 3);
        let pair = list(&arena, &mut local, &[9, 1, 2, 1, 2, 1, 2, 7], KEEP);
        assert_eq!(places(&pair, &arena), [(9, 1), (1, 3), (2, 3), (7, 1)]);
        assert_eq!(pair.segments(&arena)[1].time, 2 + 4 + 6);
        let four: Vec<u64> = (0..400).map(|i| i % 4).collect();
        let four = list(&arena, &mut local, &four, KEEP);
        assert_eq!(places(&four, &arena), [(0, 100), (1, 100), (2, 100), (3, 100)]);
        let nested = list(&arena, &mut local, &[1, 1, 2, 1, 1, 1, 2, 1, 2], KEEP);
        assert_eq!(places(&nested, &arena), [(1, 6), (2, 3)]);
    }

    #[test]
    fn a_loop_on_several_threads_is_on_none_in_particular() {
        let arena = Arena::new(100);
        let mut local = Local::new();
        let mut list = List::EMPTY;
        for thread in [1, 1, 2] {
            let segment = Segment { thread: Some(thread), ..segment(5, 1) };
            list.append(&arena, &mut local, segment, KEEP);
        }
        assert_eq!(list.segments(&arena)[0].thread, None);
        assert_eq!(list.segments(&arena)[0].count, 3);
    }

    #[test]
    fn the_oldest_segments_are_folded() {
        let arena = Arena::new(10_000);
        let mut local = Local::new();
        // No two groups are equal.
        let all: Vec<u64> = (0..1000).collect();
        let list = list(&arena, &mut local, &all, 50);
        assert!(list.len(&arena) < 100);
        let segments = list.segments(&arena);
        assert_eq!(segments[0].edge, Edge::Folded);
        let kept = segments.len() - 1;
        assert_eq!(segments[0].count as usize, 1000 - kept);
        assert_eq!(segments.iter().map(|s| s.time).sum::<u64>(), 500_500);
        assert_eq!(segments[kept], segment(999, 1000));
    }

    #[test]
    fn without_room_only_times_are_kept() {
        let arena = Arena::new(1);
        let mut local = Local::new();
        let all: Vec<u64> = (0..6000).collect();
        let list = list(&arena, &mut local, &all, u32::MAX / 2);
        let segments = list.segments(&arena);
        let last = segments.last().expect("not empty");
        assert_eq!((last.edge, last.count), (Edge::Folded, 6000 - 16));
        assert_eq!(segments.iter().map(|s| s.time).sum::<u64>(), 6000 * 6001 / 2);
        list.release(&arena, &mut local);
    }

    /// Random appends, copies and releases: sums and counts agree with what was appended, lists stay short.
    #[test]
    fn random_lists_keep_sums() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 33) % bound
        };
        let arena = Arena::new(8192);
        let mut local = Local::new();
        let mut lists = vec![(List::EMPTY, 0, 0)];
        for _ in 0..100_000 {
            let chosen = next(lists.len() as u64) as usize;
            match next(10) {
                0 if lists.len() < 30 => {
                    let (list, time, count) = &lists[chosen];
                    let copy = (list.share(&arena), *time, *count);
                    lists.push(copy);
                }
                1 if lists.len() > 1 => {
                    let (list, time, count) = lists.swap_remove(chosen);
                    let segments = list.segments(&arena);
                    assert_eq!(segments.iter().map(|s| s.time).sum::<u64>(), time);
                    assert_eq!(segments.iter().map(|s| s.count).sum::<u64>(), count);
                    assert!(list.len(&arena) < 200);
                    list.release(&arena, &mut local);
                }
                _ => {
                    let (list, time, count) = &mut lists[chosen];
                    let new = segment(next(6), next(100));
                    *time += new.time;
                    *count += 1;
                    list.append(&arena, &mut local, new, 100);
                }
            }
        }
    }
}
