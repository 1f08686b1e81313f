//! Reads contexts of the folded tree by their keys, so that databases can be compared.

use crate::catalogue::Catalogue;
use crate::catalogue::files::DataFile;
use crate::catalogue::sql::inconsistent;
use crate::error::Result;
use crate::model::metrics::FIXED;
use crate::model::tree::add_all;
use crate::schema;
use std::collections::BTreeMap;

/// The contexts of a key: first and last rows, in order. Those that lie in others of the key are left out.
pub type Ranges = Vec<(i64, i64)>;

/// Adds a context behind others, unless it lies in the last one.
pub fn add_range(ranges: &mut Ranges, context: (i64, i64)) {
    if ranges.last().is_none_or(|(_, before)| context.0 > *before) {
        ranges.push(context);
    }
}

impl Catalogue {
    /// The values of contexts with those of all contexts below them.
    pub fn inclusive_in(&self, ranges: &Ranges) -> Result<Vec<i64>> {
        self.query(|connection| {
            let mut sum = vec![0; self.metrics.len()];
            let sql = "SELECT metric, inclusive FROM value WHERE context = ?";
            let mut query = connection.prepare_cached(sql)?;
            for (first, _) in ranges {
                let mut rows = query.query([first])?;
                while let Some(row) = rows.next()? {
                    let slot: &mut i64 = &mut sum[self.metric_at(row.get(0)?)?];
                    *slot = slot.saturating_add(row.get(1)?);
                }
            }
            Ok(sum)
        })
    }

    /// Work, idleness and overhead of each run, those of one job together, in each of some sets of contexts.
    pub fn by_run(&self, of: &[Ranges]) -> Result<Vec<Vec<[i64; FIXED.len()]>>> {
        let (contexts, sets) = self.query(|connection| {
            let sql = "SELECT COALESCE(MAX(last), 0) FROM context";
            let contexts: i64 = connection.query_row(sql, [], |row| row.get(0))?;
            let mut query = connection.prepare("SELECT key, run_set FROM run")?;
            let rows = query.query_map([], |row| row.try_into())?;
            let sets: Vec<(String, i64)> = rows.collect::<rusqlite::Result<_>>()?;
            let contexts = usize::try_from(contexts).map_err(|_| inconsistent("context.last"));
            contexts.map(|contexts| (contexts, sets))
        })?;
        let mut files: BTreeMap<i64, Vec<DataFile>> = BTreeMap::new();
        for (run, set) in sets {
            let own = self.files_of(schema::CONTEXTS, &run, schema::LOGICAL_FILE)?;
            files.entry(set).or_default().extend(own);
        }
        let sums = files.values().map(|files| {
            // By row of the folded tree what lies before and in it.
            let mut before = vec![[0; FIXED.len()]; contexts + 1];
            self.each_folded(files, contexts, FIXED.len(), |row, metric, amount| {
                let slot: &mut i64 = &mut before[row as usize + 1][metric];
                *slot = slot.saturating_add(amount);
            })?;
            for row in 1..=contexts {
                let above = before[row - 1];
                add_all(&mut before[row], &above);
            }
            let at = |row: i64| before[usize::try_from(row).map_or(0, |row| row.min(contexts))];
            let sum = |ranges: &Ranges| {
                let mut sum = [0; FIXED.len()];
                for (first, last) in ranges {
                    let (below, own) = (at(first - 1), at(*last));
                    for (slot, (own, below)) in sum.iter_mut().zip(own.into_iter().zip(below)) {
                        *slot += own - below;
                    }
                }
                sum
            };
            Ok(of.iter().map(sum).collect())
        });
        sums.collect()
    }
}
