//! Writes the critical paths of processes into the catalogue.

use crate::model::critical_path::{CriticalPath, Place};
use crate::model::hash::NumberedSet;
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
    for (index, path) in paths {
        let process = *index as i64 + 1;
        connection.execute(
            "INSERT INTO critical_path VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                process,
                path.complete,
                path.work,
                path.span,
                path.burdened_span,
                path.wall,
                path.spawn_cost,
                path.message_cost,
                path.quality.resyncs,
                path.quality.exact_edges,
                path.quality.woken_edges
            ],
        )?;
        let mut id = |place: u32| places.insert_full(path.place(place)).0 as i64 + 1;
        for s in &path.segments {
            let (begin, end) = (id(s.begin), id(s.end));
            segment.execute(params![
                process, s.edge, s.rank, s.thread, s.time, s.count, begin, end
            ])?;
        }
        for p in &path.procedures {
            let times = [p.work, p.on_path, p.zeroed_span];
            procedure.execute(params![process, id(p.place), times[0], times[1], times[2]])?;
        }
        for b in &path.branches {
            branch.execute(params![
                process,
                b.thread,
                b.time,
                b.slack,
                id(b.begin),
                id(b.end)
            ])?;
        }
        for r in &path.ranks {
            let sql =
                "INSERT INTO path_rank(process, rank, work_ns, on_path_ns) VALUES (?, ?, ?, ?)";
            connection.execute(sql, params![process, r.rank, r.work, r.on_path])?;
        }
        for (cause, edges) in &path.quality.lost_edges {
            // A file may name a cause twice.
            let sql = "INSERT INTO lost_edge VALUES (?, ?, ?)
                ON CONFLICT DO UPDATE SET edges = edges + excluded.edges";
            connection.execute(sql, params![process, cause, edges])?;
        }
    }
    let mut insert = connection.prepare("INSERT INTO path_place VALUES (?, ?, ?, ?, ?)")?;
    for (id, place) in (1_i64..).zip(places) {
        insert.execute(params![
            id,
            place.name,
            place.module,
            place.file,
            place.line
        ])?;
    }
    Ok(())
}
