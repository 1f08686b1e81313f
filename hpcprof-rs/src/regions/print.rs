//! Prints regions with their assessments, as text and as JSON.

use crate::catalogue::Catalogue;
use crate::error::one_line;
use crate::model::tree::SourceLocation;
use crate::regions::find::{Part, Region, Regions};
use crate::regions::overheads::{Assessment, Known, STATES, Verdict};
use crate::regions::whole::Whole;
use crate::render::names;
use crate::render::numbers::{duration, grouped, seconds};
use crate::render::style::Style;
use hpc_formats::profile::LOCK_WAIT;
use serde_json::{Value, json};
use start_up::calibration::{Construct, State};
use std::io::{self, Write};

const SCHEMA: &str = "hpcprof-rs/regions/1";

#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    pub catalogue: &'a Catalogue,
    pub regions: &'a Regions,
    pub assessed: &'a [Assessment],
    pub known: &'a Known,
    pub whole: Option<&'a Whole>,
    pub no_calibration: Option<&'a str>,
}

/// Titles of the columns of the table: p t_p, t_s and the classes between them.
const COLUMNS: [&str; 8] =
    ["p*t_p", "t_s", "unparall.", "imbalance", "communic.", "sync", "start-up", "gain"];
const CELL: usize = 10;
/// Text leaves out regions below this part of all effort.
const LEAST_SHARE: i64 = 100;
/// Text does not tell whom threads waited for where that is less than this part of a region.
const LEAST_IDLENESS: i64 = 20;

impl Report<'_> {
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let run = &self.catalogue.statistics;
        let program = one_line(&run.program);
        let head = format!("regions of {program}: p = {} cores", run.cores);
        writeln!(out, "{}", names::middle(&head, style.line))?;
        let titles: String = COLUMNS.iter().map(|title| format!("{title:>CELL$}")).collect();
        let room = style.line.saturating_sub(COLUMNS.len() * CELL + 2);
        // On a narrow terminal a name has a line of its own.
        let is_narrow = room < 24;
        let row = |cells: &str, name: &str| match is_narrow {
            true => format!("{}\n{cells}", names::middle(name, style.line)),
            false => format!("{cells:<0$}  {1}", COLUMNS.len() * CELL, names::middle(name, room)),
        };
        writeln!(out, "{}", style.bold(&row(&titles, "seconds; region")))?;
        let all: i64 = self.assessed.iter().map(|a| a.area).sum::<i64>() + self.regions.outside.effort();
        let is_large = |a: &&Assessment| a.area + a.start_up_beyond > all / LEAST_SHARE;
        let regions = self.regions.all.iter().zip(self.assessed);
        for (region, found) in regions.filter(|(_, a)| is_large(a)) {
            let classes = &found.overheads;
            let cells = [
                Some(found.area),
                Some(found.serial),
                Some(classes.unparallelised),
                Some(classes.load_imbalance),
                Some(classes.communication),
                Some(classes.synchronisation),
                classes.start_up,
                Some(found.gain),
            ];
            let cells = cells.map(|cell| cell.map_or("?".to_owned(), seconds));
            let cells: String = cells.iter().map(|cell| format!("{cell:>CELL$}")).collect();
            let name = one_line(&self.title(region));
            writeln!(out, "{}", row(&cells, &name))?;
            for line in self.sentences(region, found) {
                for line in names::wrap(&line, style.line.saturating_sub(CELL)) {
                    writeln!(out, "{:CELL$}{line}", "")?;
                }
            }
        }
        let smaller: Vec<&Assessment> = self.assessed.iter().filter(|a| !is_large(a)).collect();
        if !smaller.is_empty() {
            let area = seconds(smaller.iter().map(|a| a.area).sum());
            writeln!(out, "{area:>CELL$}  {} smaller regions (--format json)", smaller.len())?;
        }
        let outside = &self.regions.outside;
        let rest = [outside.effort(), outside.work, outside.idleness].map(seconds);
        let rest: String = rest.iter().map(|cell| format!("{cell:>CELL$}")).collect();
        writeln!(out, "{}", row(&rest, "outside of regions"))?;
        for line in self.whole.iter().flat_map(|whole| whole_program(whole, run.cores)) {
            writeln!(out, "{}", names::wrap(&line, style.line).join("\n"))?;
        }
        for line in self.lacks() {
            writeln!(out, "{}", names::wrap(&format!("note: {}", one_line(&line)), style.line).join("\n"))?;
        }
        Ok(())
    }

    fn title(&self, region: &Region) -> String {
        let call = region.call.map(|at| format!(" at {}", names::location(&self.catalogue.code, at)));
        format!("{} ({}{})", region.name, region.construct.name(), call.unwrap_or_default())
    }

    fn sentences(&self, region: &Region, found: &Assessment) -> Vec<String> {
        let time = |nanoseconds: f64| duration(nanoseconds as i64);
        let mut lines = Vec::new();
        let verdict = match found.verdict {
            Verdict::Parallel => "should be parallel",
            Verdict::ParallelIfAwake => "should be parallel only while workers are awake",
            Verdict::Serial => "should be serial",
        };
        let mut line = verdict.to_owned();
        if let Some(count) = found.executions {
            let mean = found.serial as f64 / count.max(1) as f64;
            line += &format!(": executed {} times", grouped(count as i64));
            if let Some(tasks) = region.tasks {
                line += &format!(", {} tasks", grouped(tasks as i64));
            }
            if let Some([chunks, iterations]) = region.chunks {
                let [chunks, iterations] = [chunks, iterations].map(|count| grouped(count as i64));
                line += &format!(", {chunks} chunks, {iterations} iterations in them");
            }
            if found.serial > 0 {
                line += &format!(", serially {} each", time(mean));
            }
        }
        if let Some((workers, best)) = found.best {
            line += &format!("; best p = {workers}, predicted {} s", seconds(best as i64));
        }
        lines.push(line);
        lines.extend(self.threads(region));
        if let [Some(awake), asleep] = found.break_even {
            let asleep = asleep.map_or("?".to_owned(), time);
            let mut line = format!(
                "an execution pays from {} of serial time, {asleep} if workers are asleep",
                time(awake.max(0.0))
            );
            if let (Some(most), None) = (found.most_executions, found.executions) {
                line += &format!(": so do up to {} executions together", grouped(most as i64));
            }
            lines.push(line);
        }
        if let Some(sizes) = &found.sizes {
            let measured = sizes.measured.iter();
            let measured =
                measured.map(|(size, t)| format!("{} at size {}", time(*t), grouped(*size as i64)));
            let size = |least: Option<u64>| least.map_or("?".to_owned(), |size| grouped(size as i64));
            let [awake, asleep] = found.least_size.map(size);
            let mut line = format!(
                "serially {} (its power of {:.2}): it pays from size {awake}, {asleep} if workers sleep",
                Vec::from_iter(measured).join(", "),
                sizes.power
            );
            let is_openmp = matches!(region.construct, Construct::Libgomp | Construct::Libomp);
            if let Some(least) = found.least_size[index_of(self.known.state())].filter(|_| is_openmp) {
                line += &format!(": give its directive `if(size >= {least})`");
            }
            lines.push(line);
        }
        if found.start_up_beyond > 0 {
            let beyond = seconds(found.start_up_beyond);
            lines.push(format!("by the calibration {beyond} s more of start-up, in time when nobody worked"));
        }
        lines
    }

    /// How the region's time is spread over threads, and who was last.
    fn threads(&self, region: &Region) -> Option<String> {
        let count = region.threads.len();
        let [least, mean, most] = region.times().filter(|_| count > 1)?.map(seconds);
        let mut line = format!("{count} threads: {least} to {most} s each, {mean} s in the mean");
        let idleness = region.serial.idleness + region.parallel.idleness;
        let last = region.last().filter(|_| idleness > region.effort() / LEAST_IDLENESS);
        if let Some((last, share)) = last {
            let process = match self.catalogue.statistics.executables.len() {
                1 => String::new(),
                _ => format!(" of process {}", last.process),
            };
            let share = (share * 100.0).round();
            line += &format!("; thread {}{process} was last: {share} % of the idleness is its", last.thread);
        }
        Some(line)
    }

    /// What the figures leave open, and how to know it.
    fn lacks(&self) -> Vec<String> {
        let run = &self.catalogue.statistics;
        let mut lines = Vec::new();
        if self.regions.all.is_empty() {
            lines.push(
                "no region found: regions are known by the names of procedures and inlined functions; \
                 build with debug = 1 or more"
                    .to_owned(),
            );
            return lines;
        }
        if let Some(problem) = self.no_calibration {
            lines.push(format!("start-up and break-even are not known: {problem}"));
        } else if self.assessed.iter().any(|a| a.break_even[0].is_none()) {
            lines.push(format!(
                "the calibration lacks constructs on {} workers: break-even is not known everywhere",
                run.cores
            ));
        }
        if self.assessed.iter().any(|a| a.executions.is_none()) {
            lines.push(
                "where the number of executions is not known, start-up is part of the load imbalance: give \
                 --executions NAME=COUNT; `cargo hpcrun` counts rayon's parallel iterators"
                    .to_owned(),
            );
        }
        if self.known.serial.is_none() {
            lines.push(
                "t_s is the work of this run: what work takes longer in parallel is not seen; give --serial \
                 with the database of a run on one worker"
                    .to_owned(),
            );
        }
        if !self.catalogue.metrics.iter().any(|m| m.name == LOCK_WAIT) {
            lines.push(
                "waiting for locks is part of the load imbalance; measure with -e lock-wait".to_owned(),
            );
        }
        if run.wait_ns > 0 {
            lines.push(format!(
                "in {} s nobody worked, in no region: starting up from outside of a pool is part of that",
                seconds(run.wait_ns)
            ));
        }
        // Regions of OpenMP are known by their procedures, wherever these run.
        let is_told = |runtime: &str| ["libgomp", "libomp"].contains(&runtime);
        let unknown = run.unknown_caller_samples.iter();
        let unknown: i64 = unknown.filter(|(runtime, _)| !is_told(runtime)).map(|u| u.1).sum();
        if unknown > 0 {
            lines.push(format!(
                "{} s of work in tasks of unknown callers is where their worker was made; `cargo hpcrun` \
                 knows rayon's callers",
                seconds(unknown.saturating_mul(run.period_ns))
            ));
        }
        lines
    }

    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let run = &self.catalogue.statistics;
        let regions = self.regions.all.iter().zip(self.assessed);
        let regions: Vec<Value> = regions.map(|(r, found)| self.region(r, found)).collect();
        let outside = &self.regions.outside;
        let calibration = self.known.calibration.as_ref();
        let calibration = calibration.map(|c| json!({"host": one_line(&c.host), "cpu": one_line(&c.cpu)}));
        let report = json!({
            "schema": SCHEMA,
            "unit": "seconds",
            "program": one_line(&run.program),
            "cores": run.cores,
            "calibration": calibration,
            "workers": self.known.state().name(),
            "regions": regions,
            "whole": self.whole.map(|whole| json!({
                "outside": whole.outside / 1e9,
                "wait": whole.wait / 1e9,
                "start_up_scale": whole.start_up_scale,
                "measured": whole.measured / 1e9,
                "predicted": whole.times.iter().copied().map(at_workers).collect::<Vec<_>>(),
                "best": at_workers(whole.best()),
                "without_start_up": whole.without_start_up,
            })),
            "outside": {
                "work": exact(outside.work),
                "idleness": exact(outside.idleness),
                "overhead": exact(outside.synchronisation + outside.other_overhead),
            },
            "lacks": self.lacks(),
        });
        writeln!(out, "{report}")
    }

    fn region(&self, region: &Region, found: &Assessment) -> Value {
        let code = &self.catalogue.code;
        let call = region.call;
        let file = call.map(|at: SourceLocation| one_line(code.file(at.file)));
        let classes = &found.overheads;
        let pair = |times: [Option<f64>; 2]| {
            json!({
                STATES[0].name(): times[0].map(|t| t / 1e9),
                STATES[1].name(): times[1].map(|t| t / 1e9),
            })
        };
        json!({
            "name": one_line(&region.name),
            "construct": region.construct.name(),
            "place": region.place.name(),
            "file": file,
            "line": call.map(|at| at.line),
            "area": exact(found.area),
            "serial": exact(found.serial),
            "overheads": {
                "unparallelised": exact(classes.unparallelised),
                "load_imbalance": exact(classes.load_imbalance),
                "communication": exact(classes.communication),
                "synchronisation": exact(classes.synchronisation),
                "start_up": classes.start_up.map(exact),
            },
            "start_up_beyond": exact(found.start_up_beyond),
            "gain": exact(found.gain),
            "executions": found.executions,
            "tasks": region.tasks,
            "chunks": region.chunks.map(|[chunks, _]| chunks),
            "iterations": region.chunks.map(|[_, iterations]| iterations),
            "threads": threads(region),
            "start_up_each": pair(found.start_up_each),
            "break_even": pair(found.break_even),
            "most_executions": found.most_executions,
            "verdict": found.verdict.name(),
            "best": found.best.map(at_workers),
            "sizes": found.sizes.as_ref().map(|sizes| json!({
                "measured": sizes.measured.iter().map(|(size, time)| json!({
                    "size": size,
                    "seconds": time / 1e9,
                })).collect::<Vec<_>>(),
                "power": sizes.power,
                "least": {
                    STATES[0].name(): found.least_size[0],
                    STATES[1].name(): found.least_size[1],
                },
            })),
        })
    }
}

/// The place of a state in pairs.
fn index_of(state: State) -> usize {
    STATES.iter().position(|one| *one == state).unwrap_or(0)
}

/// What is predicted for the whole program, whose run had so many cores.
fn whole_program(whole: &Whole, cores: u32) -> Vec<String> {
    let time = |nanoseconds: f64| duration(nanoseconds as i64);
    let best = whole.best();
    let is_shown = |p: u32| p.is_power_of_two() || p == cores || p == best.0;
    let times = whole.times.iter().filter(|(p, _)| is_shown(*p));
    let times = times.map(|(p, t)| format!("{} with p = {p}", time(*t)));
    let mut lines = vec![
        format!("the whole program took {} with p = {cores}; predicted:", time(whole.measured)),
        format!("{}; use p = {}", Vec::from_iter(times).join(", "), best.0),
    ];
    if whole.is_outside_parallel {
        lines.push(format!(
            "! {} outside of regions were not serial in this run: they are predicted as if they were",
            time(whole.outside)
        ));
    }
    if whole.start_up_scale < 0.995 {
        lines.push(format!(
            "! start-ups of the calibration times {:.2}: this run had no room for more",
            whole.start_up_scale
        ));
    }
    if whole.without_start_up > 0 {
        lines.push(format!(
            "! without the start-up of {} regions, which is not known",
            whole.without_start_up
        ));
    }
    lines
}

fn threads(region: &Region) -> Value {
    let each = |part: &Part| {
        json!({
            "process": part.process,
            "thread": part.thread,
            "seconds": exact(part.busy),
            "idleness": exact(part.idleness),
        })
    };
    let [least, mean, most] = region.times().unwrap_or_default();
    json!({
        "count": region.threads.len(),
        "least": exact(least),
        "mean": exact(mean),
        "most": exact(most),
        "imbalance": (mean > 0).then(|| most as f64 / mean as f64),
        "last": region.last().map(|(part, _)| each(part)),
        "each": region.threads.iter().map(each).collect::<Vec<_>>(),
    })
}

fn at_workers((workers, time): (u32, f64)) -> Value {
    json!({"workers": workers, "seconds": time / 1e9})
}

/// Seconds.
fn exact(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}
