//! Reads what threads did when, and the edges between them, from the Parquet files of all runs.

use crate::catalogue::Catalogue;
use crate::catalogue::column::{Column, row_count};
use crate::error::Result;
use crate::schema;
use hpc_formats::trace::State;
use parquet::data_type::{ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::RowGroupReader;
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

/// A thread has waited for a moment of another one. Times as in slices.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Who, and until when.
    pub to: ((i64, u32), i64),
    pub from: ((i64, u32), i64),
    pub kind: String,
    /// Number of the edge on the critical path, in its order.
    pub on_path: Option<i32>,
}

impl Edge {
    /// Whether it only says where the critical path begins, ends, or goes on in the same thread.
    pub fn is_own(&self) -> bool {
        self.to.0 == self.from.0
    }
}

impl Slice {
    pub fn end(&self) -> i64 {
        self.start.saturating_add(self.duration)
    }
}

impl Catalogue {
    pub fn is_traced(&self) -> Result<bool> {
        Ok(!self.files(schema::TRACES, schema::TRACE_FILE)?.is_empty())
    }

    /// Calls `add` with each slice, one thread after the other.
    pub fn each_slice(&self, mut add: impl FnMut(Slice)) -> Result<()> {
        let starts = self.starts()?;
        let mut add = |slice: Slice| {
            let start = starts.get(&slice.owner.0).copied().unwrap_or(0);
            add(Slice { start: slice.start.saturating_add(start), ..slice });
        };
        let files = self.files(schema::TRACES, schema::TRACE_FILE)?;
        self.each_group(schema::TRACES, &files, |group| read(group, &mut add))
    }

    pub fn edges(&self) -> Result<Vec<Edge>> {
        let starts = self.starts()?;
        let mut edges = Vec::new();
        let files = self.files(schema::TRACES, schema::EDGES_FILE)?;
        self.each_group(schema::TRACES, &files, |group| read_edges(group, &mut edges))?;
        for ((process, _), time) in edges.iter_mut().flat_map(|edge| [&mut edge.to, &mut edge.from]) {
            *time = time.saturating_add(starts.get(process).copied().unwrap_or(0));
        }
        Ok(edges)
    }

    /// The stretches of the critical path: the thread, and from when to when.
    pub fn stretches(edges: &[Edge]) -> Vec<((i64, u32), i64, i64)> {
        let mut path: Vec<&Edge> = edges.iter().filter(|edge| edge.on_path.is_some()).collect();
        path.sort_by_key(|edge| edge.on_path);
        path.windows(2).map(|pair| (pair[0].to.0, pair[0].to.1, pair[1].from.1)).collect()
    }

    /// By process, how long after the first run its own has begun, nanoseconds.
    fn starts(&self) -> Result<BTreeMap<i64, i64>> {
        self.query(|connection| {
            let sql = "SELECT p.id, r.start_ns - (SELECT MIN(start_ns) FROM run)
                FROM process p JOIN run r ON r.id = p.run";
            let mut query = connection.prepare(sql)?;
            let rows = query.query_map([], |row| row.try_into())?;
            rows.collect()
        })
    }
}

fn read_edges(group: &dyn RowGroupReader, edges: &mut Vec<Edge>) -> ParquetResult<()> {
    let moment = |process, ordinal, time| {
        let int = |name| Column::<Int32Type>::required(group, name).map(|column| column.values);
        let times = Column::<Int64Type>::required(group, time)?;
        let threads = int(process)?.into_iter().map(i64::from).zip(int(ordinal)?);
        let threads = threads.map(|(process, ordinal)| (process, ordinal as u32));
        Ok::<Vec<_>, ParquetError>(threads.zip(times.values).collect())
    };
    let to = moment("process", "ordinal", "time")?;
    let from = moment("from_process", "from_ordinal", "from_time")?;
    let kinds = Column::<ByteArrayType>::required(group, "edge")?;
    let numbers = Column::<Int32Type>::optional(group, "on_path")?;
    let others = kinds.values.iter().zip(numbers.rows());
    edges.extend(to.into_iter().zip(from).zip(others).map(|((to, from), (kind, number))| {
        let kind = String::from_utf8_lossy(kind.data()).into_owned();
        Edge { to, from, kind, on_path: number.copied() }
    }));
    Ok(())
}

fn read(group: &dyn RowGroupReader, add: &mut impl FnMut(Slice)) -> ParquetResult<()> {
    let wrong = || ParquetError::General("a slice is impossible".to_owned());
    let index = |id: i32| u32::try_from(id.checked_sub(1).ok_or_else(wrong)?).map_err(|_| wrong());
    let int = |name| Column::<Int32Type>::required(group, name);
    let optional = |name| Column::<Int32Type>::optional(group, name);
    let long = |name| Column::<Int64Type>::required(group, name);
    let (processes, ordinals) = (int("process")?, int("ordinal")?);
    let (threads, contexts) = (optional("thread")?, optional("context")?);
    let (times, durations, sampled) = (long("time")?, long("duration")?, long("sampled")?);
    let states = Column::<ByteArrayType>::required(group, "state")?;
    let mut named = threads.rows().zip(contexts.rows());
    for row in 0..row_count(group) {
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
    Ok(())
}
