//! The timeline of the program: its tracks are logical contexts, not threads.
//!
//! A slice of work belongs to the innermost parallel loop or region around its context, else to the main
//! threads, else to the threads of the same name but for its digits. So ten thousand threads are some tracks,
//! each as wide as many threads work in it. [`bins`] has them over equal parts of time.

pub mod bins;

use crate::catalogue::threads::Thread;
use crate::catalogue::trace::Slice;
use crate::catalogue::{Catalogue, Projection};
use crate::error::Result;
use crate::model::hash::NumberedSet;
use crate::model::tree::{Label, TreeNode};
use crate::render::names;
use crate::views::fold::{FoldOptions, Folded, fold_contexts};
use hpc_formats::trace::State;

/// What a track is of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Of {
    /// The first threads of all processes.
    Main,
    /// A parallel loop or region, by index.
    Loop(u32),
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
        Ok(Timeline { catalogue, nodes, folded, loops, threads: catalogue.threads()?, tracks })
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
        let of = match (self.context(slice).and_then(|context| self.loops[context as usize]), slice.owner.1) {
            (Some(index), _) => Of::Loop(index),
            (None, 1) => Of::Main,
            (None, _) => Of::Threads(match self.thread(slice) {
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
            Of::Threads(name) if name.is_empty() => "other threads".to_owned(),
            Of::Threads(name) => format!("threads {name}"),
        })
    }

    /// The name of a context.
    pub fn name(&self, label: Label) -> String {
        names::label(&self.catalogue.code, label)
    }
}
