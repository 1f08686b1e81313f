//! What samples tell of a path: the contexts that were sampled on it, and what zeroing a function saves.
//!
//! One duty: keep both along a path, shared between strands until a sample or a merge changes them, so that
//! an event costs the same with any number of functions. A function's time includes what it calls.

use crate::path::Site;
use crate::savings::{Savings, Times};
use hpcrun_abi::Saving;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// A calling context: a record of a thread's profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context {
    /// The number of the profile.
    pub profile: u32,
    /// The number of the record.
    pub record: u32,
}

/// A function, by whatever number the caller resolves to a name after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function(pub u64);

/// Knows the contexts of a thread's samples.
pub trait Sampler {
    /// The number of the thread's profile.
    fn profile(&self) -> u32;
    /// The functions in the context that a record stands for, each once. The context is logical: that of a
    /// task begins with its spawner's.
    fn functions(&mut self, record: u32) -> Arc<[Function]>;
    /// Whether the code is in a loop that only another thread can end: a wait.
    fn waits(&mut self, record: u32) -> bool {
        let _ = record;
        false
    }
    /// The same for events of different threads that are in equal contexts.
    fn place(&mut self, event: Site) -> Site {
        event
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sampled(Option<Arc<Content>>);

#[derive(Debug, Clone, Default)]
struct Content {
    /// By function.
    savings: Savings,
    /// The largest of them.
    most: u64,
    /// Those of them that a message carries.
    heaviest: OnceLock<Vec<Saving>>,
    on_path: Option<Arc<Contexts>>,
}

/// A list of the contexts' times. Each part is longer than the next, in which new ones are merged, so that a
/// path of n samples has log n parts.
#[derive(Debug)]
struct Contexts {
    before: Option<Arc<Contexts>>,
    times: Box<[(Context, u64)]>,
}

/// The times of the contexts on a path.
#[derive(Debug)]
pub(crate) struct OnPath(Option<Arc<Contexts>>);

impl OnPath {
    /// Adds the lists of times to those of other paths, which share parts with them; the number of the last.
    pub(crate) fn add_to(&self, tree: &mut ContextTree) -> Option<u32> {
        fn add(part: Option<&Arc<Contexts>>, tree: &mut ContextTree) -> Option<u32> {
            let part = part?;
            if let Some(known) = tree.known.get(&Arc::as_ptr(part).addr()) {
                return Some(*known);
            }
            let before = add(part.before.as_ref(), tree);
            let number = tree.parts.len() as u32;
            tree.parts.push((before, part.times.to_vec()));
            tree.known.insert(Arc::as_ptr(part).addr(), number);
            Some(number)
        }
        add(self.0.as_ref(), tree)
    }
}

/// A list of contexts' times, and the number of the one that it adds to.
pub(crate) type ContextTimes = (Option<u32>, Vec<(Context, u64)>);

/// The lists of many paths, which share parts.
#[derive(Debug, Default)]
pub(crate) struct ContextTree {
    known: HashMap<usize, u32>,
    /// The part before each, and its times.
    pub(crate) parts: Vec<ContextTimes>,
}

impl Sampled {
    /// The path becomes longer, up to this length, by times of functions and of contexts, which are in order.
    pub(crate) fn add(
        &mut self,
        functions: &[(Function, u64)],
        contexts: Vec<(Context, u64)>,
        saved: u32,
        length: u64,
    ) {
        let times = functions.iter();
        let times = times.map(|(function, time)| (function.0, Times::of(*time, saved)));
        self.append_savings(times, length);
        self.append_contexts(contexts);
    }

    /// In order.
    fn append_contexts(&mut self, mut times: Vec<(Context, u64)>) {
        let content = Arc::make_mut(self.0.get_or_insert_default());
        let mut before = content.on_path.take();
        while let Some(last) = before.as_ref().filter(|last| last.times.len() <= times.len()) {
            times = union(&last.times, &times);
            before = last.before.clone();
        }
        content.on_path = Some(Arc::new(Contexts { before, times: times.into() }));
    }

    fn append_savings(&mut self, times: impl IntoIterator<Item = (u64, Times)>, length: u64) {
        let content = Arc::make_mut(self.0.get_or_insert_default());
        content.heaviest.take();
        content.savings.append(times, length);
        content.most = content.savings.most();
    }

    /// The path becomes longer, up to this length, by another one.
    pub(crate) fn append(&mut self, other: &Sampled, length: u64) {
        if let Some(content) = &other.0 {
            self.append_savings(content.savings.all(), length);
            self.append_contexts(other.on_path());
        }
    }

    /// Merges those of a path that is shorter by `gap`.
    #[inline]
    pub(crate) fn merge(&mut self, shorter: &Sampled, gap: u64) {
        let Some(mine) = self.0.as_mut().filter(|mine| gap < mine.most) else { return };
        match &shorter.0 {
            Some(other) if Arc::ptr_eq(mine, other) => {}
            Some(other) => merge(mine, &other.savings, gap),
            None => merge(mine, &Savings::default(), gap),
        }
    }

    /// Merges with a path of another process, which has these savings and is longer, or shorter, by `gap`.
    #[inline]
    pub(crate) fn merge_received(&mut self, theirs: &[Saving], is_longer: bool, gap: u64) {
        let has_contexts = self.0.as_ref().is_some_and(|mine| mine.on_path.is_some());
        if self.is_received(theirs) && !(is_longer && has_contexts) {
            return;
        }
        let mut received = Sampled::received(theirs);
        if is_longer {
            std::mem::swap(self, &mut received);
        }
        self.merge(&received, gap);
    }

    #[inline]
    pub(crate) fn has_savings(&self) -> bool {
        self.0.is_some()
    }

    /// Whether these are the savings, as [`Self::heaviest`] returns them.
    #[inline]
    fn is_received(&self, savings: &[Saving]) -> bool {
        match &self.0 {
            None => savings.is_empty(),
            Some(mine) => {
                let heaviest = mine.heaviest.get();
                heaviest.is_some_and(|own| own == savings) && mine.savings.len() == savings.len()
            }
        }
    }

    /// What is known of a path of another process with these savings.
    #[cold]
    fn received(heaviest: &[Saving]) -> Sampled {
        let mut content = Content { heaviest: heaviest.to_vec().into(), ..Content::default() };
        content.savings.receive(heaviest);
        content.most = content.savings.most();
        Sampled((!heaviest.is_empty()).then(|| Arc::new(content)))
    }

    /// The largest savings of functions, those that are nearly all of the path last.
    #[inline]
    pub(crate) fn heaviest(&self, most: usize, length: u64) -> &[Saving] {
        let Some(content) = &self.0 else { return &[] };
        content.heaviest.get_or_init(|| {
            let mut all: Vec<Saving> = content.savings.send().collect();
            let is_whole = |saving: u64| saving / 19 >= length / 20;
            all.sort_unstable_by_key(|s| (is_whole(s.time), std::cmp::Reverse(s.time)));
            all.truncate(most);
            all
        })
    }

    /// The contexts' times, shared.
    pub(crate) fn contexts(&self) -> OnPath {
        OnPath(self.0.as_ref().and_then(|content| content.on_path.clone()))
    }

    /// By function.
    pub(crate) fn savings(&self) -> Option<&Savings> {
        self.0.as_ref().map(|content| &content.savings)
    }

    /// The times of the contexts on the path.
    pub(crate) fn on_path(&self) -> Vec<(Context, u64)> {
        let mut all = Vec::new();
        let mut part = self.0.as_ref().and_then(|content| content.on_path.as_ref());
        while let Some(contexts) = part {
            all = union(&all, &contexts.times);
            part = contexts.before.as_ref();
        }
        all
    }
}

#[inline(never)]
fn merge(mine: &mut Arc<Content>, shorter: &Savings, gap: u64) {
    if mine.savings.are_changed_by(shorter, gap) {
        let content = Arc::make_mut(mine);
        content.heaviest.take();
        content.savings.merge(shorter, gap);
        content.most = content.savings.most();
    }
}

/// The sums of two lists, which are in order.
fn union(a: &[(Context, u64)], b: &[(Context, u64)]) -> Vec<(Context, u64)> {
    let mut sums = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a, b);
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        let (take_a, take_b) = (x.0 <= y.0, y.0 <= x.0);
        sums.push((x.0.min(y.0), x.1 * u64::from(take_a) + y.1 * u64::from(take_b)));
        a = &a[usize::from(take_a)..];
        b = &b[usize::from(take_b)..];
    }
    sums.extend_from_slice(a);
    sums.extend_from_slice(b);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(record: u32) -> Context {
        Context { profile: 1, record }
    }

    fn savings(path: &Sampled) -> Vec<(u64, u64)> {
        let savings = path.savings().into_iter().flat_map(Savings::all);
        savings.map(|(key, times)| (key, times.saving)).collect()
    }

    #[test]
    fn contexts_add_up_and_copies_stay() {
        let mut path = Sampled::default();
        let mut copies = Vec::new();
        for turn in 0..1000_u32 {
            if turn % 100 == 0 {
                copies.push((turn, path.clone()));
            }
            let both = [(Function(3), 2), (Function(9), 2)];
            path.add(&both, vec![(context(turn * 7 % 31), 2)], 0, u64::MAX);
        }
        copies.push((1000, path));
        for (turns, copy) in copies {
            let mut expected = std::collections::BTreeMap::new();
            for turn in 0..turns {
                *expected.entry(context(turn * 7 % 31)).or_insert(0) += 2;
            }
            assert_eq!(copy.on_path(), Vec::from_iter(expected));
            let saving = u64::from(turns) * 2;
            let both = [(3, saving), (9, saving)];
            assert_eq!(savings(&copy), &both[..2 * usize::from(turns > 0)]);
        }
    }

    #[test]
    fn a_merge_keeps_the_least_saving() {
        let path = |times: &[(u64, u64)]| {
            let mut path = Sampled::default();
            let times = times.iter().map(|(function, time)| (Function(*function), *time));
            path.add(&Vec::from_iter(times), Vec::new(), 0, u64::MAX);
            path
        };
        let savings = |longer: &[(u64, u64)], shorter: &[(u64, u64)], gap| {
            let mut merged = path(longer);
            merged.merge(&path(shorter), gap);
            savings(&merged)
        };
        assert_eq!(savings(&[(1, 50), (2, 5)], &[(1, 20)], 10), [(1, 30), (2, 5)]);
        assert_eq!(savings(&[(1, 5), (2, 50)], &[(0, 9), (2, 45)], 2), [(1, 2), (2, 47)]);
        assert_eq!(savings(&[(1, 5), (3, 50)], &[], 60), [(1, 5), (3, 50)]);
        assert_eq!(savings(&[], &[(1, 20)], 10), []);
    }
}
