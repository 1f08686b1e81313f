//! Writes the critical paths of processes into the catalogue.

use crate::model::critical_path::CriticalPath;
use crate::model::hash::NumberedSet;
use hpc_formats::critical_path::Place;
use rusqlite::{Connection, Result, params};

/// Writes the paths, each with the index of its process.
pub(super) fn write(connection: &Connection, paths: &[(usize, CriticalPath)]) -> Result<()> {
    let mut places: NumberedSet<&Place> = NumberedSet::default();
    let sql =
        "INSERT INTO path_segment(process, edge, rank, thread, time_ns, count, begin_place, end_place)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    let mut segment = connection.prepare(sql)?;
    let sql = "INSERT INTO path_procedure(process, place, work_ns, on_path_ns, zeroed_span_ns)
        VALUES (?, ?, ?, ?, ?)";
    let mut procedure = connection.prepare(sql)?;
    let sql = "INSERT INTO path_branch(process, thread, time_ns, slack_ns, begin_place, end_place)
        VALUES (?, ?, ?, ?, ?, ?)";
    let mut branch = connection.prepare(sql)?;
    let sql = "INSERT INTO path_start(process, edge, first_ns, count, time_ns, beside_ns, place)
        VALUES (?, ?, ?, ?, ?, ?, ?)";
    let mut start = connection.prepare(sql)?;
    for (index, path) in paths {
        let process = *index as i64 + 1;
        connection.execute(
            "INSERT INTO critical_path VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                process,
                path.complete,
                signed(path.work),
                signed(path.span),
                signed(path.burdened_span),
                signed(path.span_at_least),
                signed(path.wall),
                signed(path.spawn_cost),
                signed(path.message_cost),
                signed(path.quality.resyncs),
                signed(path.quality.exact_edges),
                signed(path.quality.woken_edges),
                signed(path.quality.grains)
            ],
        )?;
        for l in &path.levels {
            // A file may name a number of cores twice.
            let sql = "INSERT OR IGNORE INTO path_level VALUES (?, ?, ?, ?)";
            let (time, work) = (signed(l.time), signed(l.work));
            connection.execute(sql, params![process, l.cores, time, work])?;
        }
        let mut id = |place| places.insert_full(place).0 as i64 + 1;
        for s in &path.segments {
            let (begin, end) = (id(&*s.begin), id(&*s.end));
            let (edge, time, count) = (s.edge.name(), signed(s.time), signed(s.count));
            let of = (s.rank, s.thread);
            segment.execute(params![process, edge, of.0, of.1, time, count, begin, end])?;
        }
        for p in &path.procedures {
            let [work, on_path, zeroed] = [p.work, p.on_path, p.zeroed_span].map(signed);
            let place = id(&*p.name.place);
            procedure.execute(params![process, place, work, on_path, zeroed])?;
        }
        for b in &path.near {
            branch.execute(params![
                process,
                b.thread,
                signed(b.time),
                signed(b.slack),
                id(&*b.begin),
                id(&*b.end)
            ])?;
        }
        for s in &path.starts {
            let [first, count, time, beside] = [s.first, s.count, s.time, s.beside].map(signed);
            let (edge, place) = (s.edge.name(), id(&*s.place));
            start.execute(params![process, edge, first, count, time, beside, place])?;
        }
        for r in &path.ranks {
            let sql =
                "INSERT INTO path_rank(process, rank, work_ns, on_path_ns) VALUES (?, ?, ?, ?)";
            let (work, on_path) = (signed(r.work), signed(r.on_path));
            connection.execute(sql, params![process, r.rank, work, on_path])?;
        }
        for (cause, edges) in &path.quality.lost_edges {
            // A file may name a cause twice.
            let sql = "INSERT INTO lost_edge VALUES (?, ?, ?)
                ON CONFLICT DO UPDATE SET edges = edges + excluded.edges";
            connection.execute(sql, params![process, cause, signed(*edges)])?;
        }
    }
    let mut insert = connection.prepare("INSERT INTO path_place VALUES (?, ?, ?, ?, ?)")?;
    for (id, place) in (1_i64..).zip(places) {
        insert.execute(params![id, place.name, place.module, place.file, place.line])?;
    }
    Ok(())
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
