//! The tracker's results against an independent evaluator of activity graphs.
//!
//! Programs run in simulated time: a [`world::Fiber`] stands for a thread, and each of its operations also
//! adds nodes and edges to a graph, by the definitions of work, span and zeroed span alone. The evaluator
//! (`dag`) knows nothing of the tracker's merges.

mod dag;
mod grains;
mod hooks;
mod known;
mod limits;
mod random;
mod remote;
mod rounds;
mod world;
