//! Reads the values of threads in some contexts, from the Parquet files of all runs. Files are read in
//! batches, so memory follows what is made of the values; of a batch without such a context no other column
//! is read.

use crate::catalogue::Catalogue;
use crate::catalogue::column::{Column, row_count};
use crate::catalogue::keyed::Ranges;
use crate::error::Result;
use crate::model::metrics::Metric;
use crate::schema;
use parquet::data_type::{ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::RowGroupReader;
use std::collections::BTreeMap;

const BATCH: usize = 1 << 16;

pub(super) struct ThreadValue {
    /// The thread's position.
    pub(super) thread: usize,
    /// The metric's position.
    pub(super) metric: usize,
    /// Id of the logical context.
    pub(super) context: i32,
    pub(super) amount: i64,
}

impl Catalogue {
    /// The values by metric of all threads in the contexts that are folded into some of the ranges; `None`
    /// for threads without any.
    pub(super) fn values_in(&self, ranges: &Ranges, threads: usize) -> Result<Vec<Option<Vec<i64>>>> {
        // By id.
        let mut wanted: Vec<bool> = Vec::new();
        let files = self.files(schema::CONTEXTS, schema::LOGICAL_FILE)?;
        self.each_group(schema::CONTEXTS, &files, |group| read_contexts(group, ranges, &mut wanted))?;
        let mut values: Vec<Option<Vec<i64>>> = vec![None; threads];
        let none = || vec![0; self.metrics.len()];
        self.each_value(
            |id| usize::try_from(id).is_ok_and(|id| wanted.get(id) == Some(&true)),
            |value| {
                let thread = values.get_mut(value.thread)?;
                let sum = &mut thread.get_or_insert_with(none)[value.metric];
                *sum = sum.saturating_add(value.amount);
                Some(())
            },
        )?;
        Ok(values)
    }

    /// The values by metric that threads have in groups of contexts, by group and thread's position. `groups`
    /// has that of each context of the logical projection.
    pub fn values_by_group(&self, groups: &[Option<u32>]) -> Result<BTreeMap<(u32, usize), Vec<i64>>> {
        let group = |context: i32| {
            let index = usize::try_from(context.checked_sub(1)?).ok()?;
            groups.get(index).copied().flatten()
        };
        let mut all: BTreeMap<(u32, usize), Vec<i64>> = BTreeMap::new();
        let none = || vec![0; self.metrics.len()];
        self.each_value(
            |context| group(context).is_some(),
            |value| {
                let of = all.entry((group(value.context)?, value.thread)).or_insert_with(none);
                of[value.metric] = of[value.metric].saturating_add(value.amount);
                Some(())
            },
        )?;
        Ok(all)
    }

    /// Calls `add` with each value in a wanted context, one thread after the other. It returns `None` for
    /// what cannot be.
    pub(super) fn each_value(
        &self,
        is_wanted: impl Fn(i32) -> bool,
        mut add: impl FnMut(ThreadValue) -> Option<()>,
    ) -> Result<()> {
        let files = self.files(schema::THREAD_VALUES, "part-*.parquet")?;
        self.each_group(schema::THREAD_VALUES, &files, |group| {
            read_values(group, &self.metrics, &is_wanted, &mut add)
        })
    }
}

fn is_within(ranges: &Ranges, id: i32) -> bool {
    let id = i64::from(id);
    let before = ranges.partition_point(|(first, _)| *first <= id);
    before.checked_sub(1).is_some_and(|at| id <= ranges[at].1)
}

/// Finds the contexts that are folded into the ranges.
fn read_contexts(group: &dyn RowGroupReader, ranges: &Ranges, wanted: &mut Vec<bool>) -> ParquetResult<()> {
    let ids = Column::<Int32Type>::required(group, "id")?;
    let folded = Column::<Int32Type>::optional(group, "folded")?;
    for (id, target) in ids.values.iter().zip(folded.rows()) {
        let id = usize::try_from(*id).ok();
        if let Some(id) = id.filter(|_| target.is_some_and(|target| is_within(ranges, *target))) {
            wanted.resize(wanted.len().max(id + 1), false);
            wanted[id] = true;
        }
    }
    Ok(())
}

/// Calls `add` with the values of a group of rows in wanted contexts.
fn read_values(
    group: &dyn RowGroupReader,
    known: &[Metric],
    is_wanted: &impl Fn(i32) -> bool,
    add: &mut impl FnMut(ThreadValue) -> Option<()>,
) -> ParquetResult<()> {
    let mut contexts = Column::<Int32Type>::begin(group, "context")?;
    let mut threads = Column::<Int32Type>::begin(group, "thread")?;
    let mut names = Column::<ByteArrayType>::begin(group, "metric")?;
    let mut amounts = Column::<Int64Type>::begin(group, "value")?;
    let all = row_count(group);
    for rows in (0..all).step_by(BATCH).map(|begin| BATCH.min(all - begin)) {
        contexts.read(rows)?;
        if !contexts.values.iter().any(|id| is_wanted(*id)) {
            threads.skip(rows)?;
            names.skip(rows)?;
            amounts.skip(rows)?;
            continue;
        }
        threads.read(rows)?;
        names.read(rows)?;
        amounts.read(rows)?;
        let wanted = (0..rows).filter(|row| is_wanted(contexts.values[*row]));
        for row in wanted {
            let name = names.values[row].data();
            let value = || {
                let thread = threads.values[row].checked_sub(1)?;
                Some(ThreadValue {
                    thread: usize::try_from(thread).ok()?,
                    metric: known.iter().position(|m| m.name.as_bytes() == name)?,
                    context: contexts.values[row],
                    amount: amounts.values[row],
                })
            };
            let wrong = || ParquetError::General("a reference leads nowhere".to_owned());
            value().and_then(&mut *add).ok_or_else(wrong)?;
        }
    }
    Ok(())
}
