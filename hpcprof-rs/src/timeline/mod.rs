//! The timeline of the program: its tracks are logical contexts, not threads.
//!
//! A slice of work belongs to the innermost parallel loop or region around its context, else to the phase of
//! the program that it is in: what is called where the program's work divides. What is in neither belongs to
//! the main threads, or to the threads of the same name but for its digits. So ten thousand threads are some
//! tracks, each as wide as many threads work in it. [`bins`] has them over equal parts of time, [`slack`]
//! says what lies near the critical path.

pub mod bins;
pub mod slack;

use crate::catalogue::threads::Thread;
use crate::catalogue::trace::Slice;
use crate::catalogue::{Catalogue, Projection};
use crate::error::Result;
use crate::model::hash::NumberedSet;
use crate::model::metrics::{OVERHEAD, WORK};
use crate::model::tree::{Label, Tree, TreeNode};
use crate::render::names;
use crate::views::fold::{FoldOptions, Folded, fold_contexts, sums};
use hpc_formats::trace::State;

/// What a track is of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Of {
    /// The first threads of all processes.
    Main,
    Loop(u32),
    /// A phase, by folded context.
    Phase(u32),
    /// Threads of a name without digits.
    Threads(String),
}

/// The folded contexts that slices are in, and the tracks.
#[derive(Debug)]
pub struct Timeline<'a> {
    catalogue: &'a Catalogue,
    /// The folded contexts, in preorder.
    pub nodes: Vec<TreeNode>,
    /// By logical context the folded one.
    folded: Vec<Option<u32>>,
    /// By folded context the parallel loop around it.
    loops: Vec<Option<u32>>,
    /// By folded context the phase that it is in.
    phases: Vec<Option<u32>>,
    threads: Vec<Thread>,
    tracks: NumberedSet<Of>,
}

impl<'a> Timeline<'a> {
    /// That of a database, without its slices. There are at least the tracks of the main threads.
    pub fn read(catalogue: &'a Catalogue, options: FoldOptions) -> Result<Timeline<'a>> {
        let tree = catalogue.contexts(Projection::Logical)?;
        let contexts = (tree.nodes.len() as u32, |id: u32| tree.nodes[id as usize]);
        let Folded { tree: nodes, of: folded } = fold_contexts(contexts, |_| true, &catalogue.code, options);
        let mut loops: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
        for node in &nodes {
            loops.push(match node.label {
                Label::ParallelLoop(index) => Some(index),
                _ => node.parent.and_then(|parent| loops[parent as usize]),
            });
        }
        let mut tracks = NumberedSet::default();
        tracks.insert(Of::Main);
        let exclusive = sums(nodes.len(), &folded, &tree.exclusive);
        let tree = Tree { nodes, exclusive };
        let (phases, nodes) = (phases(&tree), tree.nodes);
        Ok(Timeline { catalogue, nodes, folded, loops, phases, threads: catalogue.threads()?, tracks })
    }

    /// The folded context of a slice.
    pub fn context(&self, slice: &Slice) -> Option<u32> {
        *self.folded.get(slice.context? as usize)?
    }

    /// The thread of a slice, if it has a profile.
    pub fn thread(&self, slice: &Slice) -> Option<&Thread> {
        self.threads.get(slice.thread? as usize)
    }

    /// The track of a slice; `None` if it is no work.
    pub fn track(&mut self, slice: &Slice) -> Option<usize> {
        if slice.state != Some(State::Works) {
            return None;
        }
        let context = self.context(slice);
        let of = |list: &[Option<u32>]| context.and_then(|context| list[context as usize]);
        let of = match (of(&self.loops), of(&self.phases), slice.owner.1) {
            (Some(index), ..) => Of::Loop(index),
            (None, Some(phase), _) => Of::Phase(phase),
            (None, None, 1) => Of::Main,
            (None, None, _) => Of::Threads(match self.thread(slice) {
                Some(thread) => {
                    let name =
                        thread.name.trim_end_matches(|c: char| c.is_ascii_digit() || "-_# ".contains(c));
                    name.to_owned()
                }
                None => String::new(),
            }),
        };
        Some(self.tracks.insert_full(of).0)
    }

    /// The names of all tracks, by number.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.tracks.iter().map(|of| match of {
            Of::Main => "main".to_owned(),
            Of::Loop(index) => self.name(Label::ParallelLoop(*index)),
            Of::Phase(context) => self.name(self.nodes[*context as usize].label),
            Of::Threads(name) if name.is_empty() => "other threads".to_owned(),
            Of::Threads(name) => format!("threads {name}"),
        })
    }

    pub fn name(&self, label: Label) -> String {
        names::label(&self.catalogue.code, label)
    }
}

/// By context the phase that it is in: a callee with at least a fiftieth of all work, of the innermost
/// context of which none has nine tenths.
fn phases(tree: &Tree) -> Vec<Option<u32>> {
    let inclusive = tree.inclusive();
    let work = |id: u32| inclusive.of(id)[WORK] + inclusive.of(id)[OVERHEAD];
    let mut heaviest: Vec<Option<u32>> = vec![None; tree.nodes.len() + 1];
    let mut all = 0;
    // The roots are callees of the last entry.
    let place = |parent: Option<u32>| parent.map_or(tree.nodes.len(), |parent| parent as usize);
    for (id, node) in (0..).zip(&tree.nodes) {
        let best = &mut heaviest[place(node.parent)];
        if best.is_none_or(|best| work(best) < work(id)) {
            *best = Some(id);
        }
        all += if node.parent.is_none() { work(id) } else { 0 };
    }
    let mut caller = None;
    let is_most = |callee: &u32, caller: Option<u32>| work(*callee) * 10 >= caller.map_or(all, work) * 9;
    while let Some(callee) = heaviest[place(caller)].filter(|callee| is_most(callee, caller)) {
        caller = Some(callee);
    }
    let mut phases: Vec<Option<u32>> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in (0..).zip(&tree.nodes) {
        let own = (node.parent == caller && work(id) * 50 >= all.max(1)).then_some(id);
        let above = node.parent.and_then(|parent| phases[parent as usize]);
        phases.push(own.or(above));
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_called_where_the_work_divides() {
        let mut tree = Tree::new(3);
        let contexts = [(None, 0), (Some(0), 1), (Some(1), 40), (Some(1), 0), (Some(3), 58), (Some(1), 1)];
        for (id, (parent, work)) in (0..).zip(contexts) {
            tree.push(TreeNode::new(parent, Label::Procedure(id)));
            tree.exclusive.add(id, &[work, 0, 0]);
        }
        assert_eq!(phases(&tree), [None, None, Some(2), Some(3), Some(3), None]);
        tree.exclusive.add(4, &[0, 0, 1000]);
        assert_eq!(phases(&tree), [None; 6], "one context has all");
    }
}
