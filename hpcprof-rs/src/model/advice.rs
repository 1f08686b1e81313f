//! What is worth doing, as a database keeps it.

use serde::{Deserialize, Serialize};

/// What limits a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// One thread works.
    Serial,
    /// Of several threads one works at a time.
    TurnTaking,
    Imbalance,
    /// Fewer threads work than there are cores.
    LowParallelism,
    SmallTasks,
    /// Parallel regions take hardly longer than their start and end.
    ShortRegions,
    /// The runtime, locks or the like.
    Overhead,
    /// A thread waits without sleeping.
    Spinning,
    /// More threads work than there are cores.
    Oversubscription,
    /// The other ranks of MPI wait for one.
    LateRank,
    /// Nobody works.
    Waiting,
    /// Nothing but its own work.
    Work,
}

/// One thing to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub cause: Cause,
    /// The context; empty: the program.
    pub name: String,
    /// Where it is; empty if unknown.
    pub place: String,
    /// What is wrong, and what to do.
    pub text: String,
    /// What a run could be shorter by at most, with the standard error, nanoseconds; `None` if that is not
    /// known.
    pub most: Option<(f64, f64)>,
    /// What it surely is shorter by if this is done well; `None` if that may be nothing.
    pub least: Option<f64>,
}

/// What is worth doing, the most gain first, or why nothing can be said.
pub type Advice = Result<Vec<Finding>, String>;

/// A finding of an older run beside what a newer one says of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Tested {
    pub finding: Finding,
    /// What could still be gained in the newer one, at most; `None`: nothing is to be said there.
    pub left: Option<f64>,
}

/// The advice for an older run that has a gain, beside what is left of it in a newer one.
pub fn tested(old: Advice, new: &Advice) -> Vec<Tested> {
    let left = |of: &Finding| {
        let same = new.as_ref().ok()?.iter().find(|new| (new.cause, &new.name) == (of.cause, &of.name));
        Some(same.and_then(|same| same.most).map_or(0.0, |(most, _)| most))
    };
    let all = old.unwrap_or_default().into_iter().filter(|of| of.most.is_some());
    all.map(|finding| Tested { left: left(&finding), finding }).collect()
}
