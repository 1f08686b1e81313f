//! Reads what threads did when, from the Parquet files of all runs, in batches.

use crate::catalogue::Catalogue;
use crate::catalogue::column::{Column, row_count};
use crate::catalogue::files::DataFile;
use crate::error::Result;
use crate::schema;
use hpc_formats::trace::State;
use parquet::data_type::{ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::FileReader;
use std::collections::BTreeMap;

/// What a thread did for a while. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Id of its process in the catalogue, and the thread's ordinal there.
    pub owner: (i64, u32),
    /// The thread's position, if it has a profile.
    pub thread: Option<u32>,
    /// Since the first run's start, by the wall clocks of the hosts.
    pub start: i64,
    pub duration: i64,
    /// `None`: not known.
    pub state: Option<State>,
    /// Number of the logical context, from 0, if it is known.
    pub context: Option<u32>,
    /// What the samples in it stand for.
    pub sampled: i64,
}

impl Slice {
    /// When it ends.
    pub fn end(&self) -> i64 {
        self.start.saturating_add(self.duration)
    }
}

impl Catalogue {
    /// Whether a trace was kept.
    pub fn is_traced(&self) -> Result<bool> {
        Ok(!self.files(schema::TRACES, schema::TRACE_FILE)?.is_empty())
    }

    /// Calls `add` with each slice, one thread after the other.
    pub fn each_slice(&self, mut add: impl FnMut(Slice)) -> Result<()> {
        let starts: BTreeMap<i64, i64> = self.query(|connection| {
            let sql = "SELECT p.id, r.start_ns - (SELECT MIN(start_ns) FROM run)
                FROM process p JOIN run r ON r.id = p.run";
            let mut query = connection.prepare(sql)?;
            let rows = query.query_map([], |row| row.try_into())?;
            rows.collect()
        })?;
        let mut add = |slice: Slice| {
            let start = starts.get(&slice.owner.0).copied().unwrap_or(0);
            add(Slice { start: slice.start.saturating_add(start), ..slice });
        };
        for file in self.files(schema::TRACES, schema::TRACE_FILE)? {
            read(&file, &mut add).map_err(|e| self.unreadable(schema::TRACES, &e.to_string()))?;
        }
        Ok(())
    }
}

fn read(file: &DataFile, add: &mut impl FnMut(Slice)) -> ParquetResult<()> {
    let wrong = || ParquetError::General("a slice is impossible".to_owned());
    let index = |id: i32| u32::try_from(id.checked_sub(1).ok_or_else(wrong)?).map_err(|_| wrong());
    let reader = file.open()?;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let group = group.as_ref();
        let rows = row_count(group);
        let int = |name| {
            let mut column = Column::<Int32Type>::required(group, name)?;
            column.read(rows).map(|()| column)
        };
        let optional = |name| {
            let mut column = Column::<Int32Type>::optional(group, name)?;
            column.read(rows).map(|()| column)
        };
        let long = |name| {
            let mut column = Column::<Int64Type>::required(group, name)?;
            column.read(rows).map(|()| column)
        };
        let (processes, ordinals) = (int("process")?, int("ordinal")?);
        let (threads, contexts) = (optional("thread")?, optional("context")?);
        let (times, durations, sampled) = (long("time")?, long("duration")?, long("sampled")?);
        let mut states = Column::<ByteArrayType>::required(group, "state")?;
        states.read(rows)?;
        let mut named = threads.rows().zip(contexts.rows());
        for row in 0..rows {
            let (thread, context) = named.next().ok_or_else(wrong)?;
            let slice = Slice {
                owner: (processes.values[row].into(), ordinals.values[row] as u32),
                thread: thread.map(|id| index(*id)).transpose()?,
                start: times.values[row],
                duration: durations.values[row],
                state: std::str::from_utf8(states.values[row].data()).ok().and_then(State::from_name),
                context: context.map(|id| index(*id)).transpose()?,
                sampled: sampled.values[row],
            };
            if slice.duration < 0 || slice.start < 0 {
                return Err(wrong());
            }
            add(slice);
        }
    }
    Ok(())
}
