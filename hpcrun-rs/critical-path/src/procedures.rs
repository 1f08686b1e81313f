//! What the longest path knows of each procedure: its time on the path, and what zeroing it saves.
//!
//! One duty: keep both exact for all procedures at once, at constant cost an event. Hollingsworth carries the
//! longest path without a selected procedure. Here the *saving* is carried: by how much that path is shorter
//! than the longest one. Time under a procedure then changes the saving of that procedure alone. At a merge
//! of a path of length `a` with one of length `b <= a`, the path without the procedure is the longer of
//! `a - saving_a` and `b - saving_b`, so
//!
//! ```text
//! saving = min(saving_a, a - b + saving_b)
//! ```
//!
//! which is 0 if the procedure does not occur on the longer path. So only procedures on the path need an
//! entry: the first [`DENSE`] ones have one each, any others are in a list.

/// A procedure that [`Tracker::procedure`](crate::Tracker::procedure) has numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Procedure(pub(crate) u32);

impl Procedure {
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// Procedures with an entry in every path.
pub(crate) const DENSE: usize = 8;

/// Of one procedure, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    /// Its time on the path.
    pub(crate) on_path: u64,
    /// The path's length less the longest path without the procedure's time.
    pub(crate) saving: u64,
}

/// Of all procedures.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Procedures {
    dense: [Times; DENSE],
    /// By procedure; only those with time.
    others: Vec<(u32, Times)>,
}

impl Procedures {
    /// Makes these equal to `other`.
    #[inline]
    pub(crate) fn copy_from(&mut self, other: &Procedures) {
        self.dense = other.dense;
        if !(self.others.is_empty() && other.others.is_empty()) {
            self.others.clone_from(&other.others);
        }
    }

    /// The path becomes longer by `time` under the procedure.
    #[inline]
    pub(crate) fn add(&mut self, procedure: Procedure, time: u64) {
        let entry = self.entry(procedure);
        entry.on_path += time;
        entry.saving += time;
    }

    /// The path becomes longer by another one.
    pub(crate) fn append(&mut self, other: &Procedures) {
        for (procedure, times) in other.iter() {
            if times != Times::default() {
                let entry = self.entry(procedure);
                entry.on_path += times.on_path;
                entry.saving += times.saving;
            }
        }
    }

    /// Merges those of a path that is shorter by `gap`.
    #[inline]
    pub(crate) fn merge(&mut self, shorter: &Procedures, gap: u64) {
        let merge = |mine: &mut Times, other: &Times| {
            mine.saving = mine.saving.min(gap + other.saving);
        };
        for (mine, other) in self.dense.iter_mut().zip(&shorter.dense) {
            merge(mine, other);
        }
        for (procedure, mine) in &mut self.others {
            merge(mine, &shorter.get(Procedure(*procedure)));
        }
    }

    pub(crate) fn get(&self, procedure: Procedure) -> Times {
        let number = procedure.0 as usize;
        if number < DENSE {
            return self.dense[number];
        }
        let found = self.others.binary_search_by_key(&procedure.0, |o| o.0);
        found.map_or(Times::default(), |at| self.others[at].1)
    }

    /// The procedures with entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Procedure, Times)> {
        let dense = (0..).zip(self.dense);
        let all = dense.chain(self.others.iter().copied());
        all.map(|(number, times)| (Procedure(number), times))
    }

    /// The times of the first ones on the path.
    pub(crate) fn dense(&self) -> [u64; DENSE] {
        self.dense.map(|times| times.on_path)
    }

    /// Those beyond the first ones, with their times on the path.
    pub(crate) fn others(&self) -> Box<[(Procedure, u64)]> {
        let others = self.others.iter();
        others.map(|(number, times)| (Procedure(*number), times.on_path)).collect()
    }

    /// Sets what zeroing a procedure saves.
    pub(crate) fn set_saving(&mut self, procedure: Procedure, saving: u64) {
        self.entry(procedure).saving = saving;
    }

    fn entry(&mut self, procedure: Procedure) -> &mut Times {
        let number = procedure.0 as usize;
        if number < DENSE {
            return &mut self.dense[number];
        }
        let at = match self.others.binary_search_by_key(&procedure.0, |o| o.0) {
            Ok(at) => at,
            Err(at) => {
                self.others.insert(at, (procedure.0, Times::default()));
                at
            }
        };
        &mut self.others[at].1
    }
}
