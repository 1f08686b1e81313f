//! Tasks that depend on several messages: merge points, and reductions, which make one value from all
//! elements of an array.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hpcrun_api::Edge;

use crate::names::lock;
use crate::shared::Shared;
use crate::table::{Ended, Path};

/// A point where several messages are needed before a task goes on, for systems that follow messages alone
/// ([`actor_order(false)`](crate::SystemBuilder::actor_order)): each handler that only keeps a message adds
/// itself, [`Context::add_to`](crate::Context::add_to), and the one that goes on depends on them,
/// [`Context::depend_on`](crate::Context::depend_on). In the paper's terms: declare, maximum and reset.
///
/// By default an actor's tasks depend on those before them, so that nothing need be said.
#[derive(Debug, Default)]
pub struct MergePoint(pub(crate) Vec<Path>);

type Combine<T> = dyn Fn(T, T) -> T + Send + Sync;
type Target<T> = dyn Fn(T) + Send + Sync;

/// A value that waits for its neighbour's.
struct Waiting<T> {
    round: u64,
    value: T,
    path: Ended,
}

/// Two neighbours meet here, in any number of rounds at the same time.
type Node<T> = Mutex<Vec<Waiting<T>>>;

struct Inner<T> {
    shared: Arc<Shared>,
    /// For each element, its rounds so far.
    rounds: Box<[AtomicU64]>,
    /// The inner nodes of the tree, level by level.
    nodes: Vec<Box<[Node<T>]>>,
    combine: Box<Combine<T>>,
    target: Box<Target<T>>,
}

/// Combines one value of each element, along a binary tree, in rounds: the n-th values of all elements give
/// the n-th result. Neighbours are combined by whichever comes second, in its own task, always in the order
/// of their indices, so floating-point results do not change from run to run.
///
/// ```
/// # use work_stealing_actors::System;
/// let system = System::new(2)?;
/// let sum = system.reduction(3, |a, b| a + b, |sum| assert_eq!(sum, 30));
/// (0..3).for_each(|element| sum.contribute(element, 10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reduction<T>(Arc<Inner<T>>);

impl<T: Send> Reduction<T> {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        elements: usize,
        combine: Box<Combine<T>>,
        target: Box<Target<T>>,
    ) -> Self {
        let next = |width: &usize| (*width > 1).then(|| width.div_ceil(2));
        let widths = std::iter::successors(next(&elements), next);
        let level = |width| (0..width).map(|_| Mutex::default()).collect();
        Reduction(Arc::new(Inner {
            shared: Arc::clone(shared),
            rounds: (0..elements).map(|_| AtomicU64::new(0)).collect(),
            nodes: widths.map(level).collect(),
            combine,
            target,
        }))
    }

    /// The next value of an element. The last one of a round calls the reduction's target with the result.
    ///
    /// # Panics
    /// If there is no such element.
    #[track_caller]
    pub fn contribute(&self, element: usize, mut value: T) {
        let Inner { shared, rounds, .. } = &*self.0;
        let round = rounds[element].fetch_add(1, Ordering::Relaxed);
        let (mut index, mut width) = (element, rounds.len());
        for level in &self.0.nodes {
            if index ^ 1 < width {
                let path = shared.here();
                let mut waiting = lock(&level[index / 2]);
                let Some(at) = waiting.iter().position(|other| other.round == round) else {
                    waiting.push(Waiting { round, value, path });
                    return;
                };
                let other = waiting.swap_remove(at);
                drop(waiting);
                shared.depend_on(other.path, Edge::Join);
                let is_first = index % 2 == 0;
                let (first, second) = if is_first { (value, other.value) } else { (other.value, value) };
                value = (self.0.combine)(first, second);
            }
            index /= 2;
            width = width.div_ceil(2);
        }
        (self.0.target)(value);
    }

    /// The elements that have contributed less often than others: who is missing when a program stands still.
    pub fn missing(&self) -> Vec<usize> {
        let rounds = self.0.rounds.iter();
        let rounds: Vec<u64> = rounds.map(|n| n.load(Ordering::Relaxed)).collect();
        let most = rounds.iter().max();
        let all = 0..rounds.len();
        all.filter(|n| Some(&rounds[*n]) < most).collect()
    }
}

impl<T> Clone for Reduction<T> {
    fn clone(&self) -> Self {
        Reduction(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Reduction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction").field("elements", &self.0.rounds.len()).finish_non_exhaustive()
    }
}
