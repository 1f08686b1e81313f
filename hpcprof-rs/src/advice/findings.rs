//! What is worth doing: for each context that matters what limits it, what to do about it, and the most that
//! the run could be shorter then.
//!
//! On n cores a second of idleness or overhead is an n-th of a second of the run, so that is the most to gain
//! by ending it: the work itself stays. Where the critical path is known, no run is shorter than what is left
//! of it without the procedure.

use crate::advice::efficiency::Thresholds;
use crate::advice::quality;
use crate::advice::rows::{Row, rows};
use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{IDLENESS, MetricSelector, OVERHEAD, WORK, busy, effort};
use crate::error::{Result, one_line};
use crate::model::advice::{Advice, Cause, Finding};
use crate::model::code::{Code, ParallelLoop};
use crate::model::metrics::CATEGORY_PREFIX;
use crate::model::tree::Label;
use crate::render::names;
use crate::render::numbers::{duration, grouped, percent, seconds};
use crate::views::prune::Limits;
use crate::views::top_down;
use crate::views::view::View;
use hpc_formats::profile::{LOCK_WAIT, MPI_WAIT, STANDSTILL};
use hpc_formats::structure::Origin;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Contexts below this share of a metric are not read, percent.
const LEAST_PART: f64 = 5.0;
/// With this share of the idleness that one working thread causes, a context is serial.
const SERIAL_SHARE: f64 = 0.9;
/// A serial context with this share of its time outside of its callees' rows is changed with them.
const OWN_SHARE: f64 = 0.2;
/// Threads whose most busy one has less than this multiple of a fair share have the same work.
const FAIR: f64 = 1.25;
/// Tasks of less time on average cost about as much as they do.
const SMALL_TASK_NS: i64 = 5_000;
/// A task of this time hardly costs anything.
const GOOD_TASK_NS: i64 = 16_000;
/// The start and the end of a parallel region of less time take a good part of it.
const SHORT_REGION_NS: i64 = 50_000;
/// What a task costs its runtime, at most, where that counts as work: rayon's and OpenMP's.
const TASK_COST_NS: [i64; 2] = [250, 500];
/// Less of the wall time is not worth advice.
const LEAST_GAIN: f64 = 0.02;
/// Of the gain that a context's own time allows, what is surely gained, whatever a change costs.
const EFFICIENCY: f64 = 0.5;
/// With this share of the CPU time, spinning waits matter.
const SPINNING: f64 = 0.1;
/// Why cores idle within a region; one change of the region ends all of it.
const WITHIN: [Cause; 3] = [Cause::TurnTaking, Cause::Imbalance, Cause::LowParallelism];
/// The category of overhead that locks and barriers are.
const SYNC: &str = "sync";
/// A thread works if it has this share of what a core could do, at least.
const LEAST_WORKER: i64 = 8;

/// What is worth doing, the most gain first, or why nothing can be said.
pub fn findings(view: &View, catalogue: &Catalogue, thresholds: Thresholds) -> Result<Advice> {
    let run = &catalogue.statistics;
    if let Some(lack) = quality::lack(run) {
        return Ok(Err(lack));
    }
    let finder = Finder { view, catalogue, thresholds };
    let rows = finder.whole(rows(view, catalogue, thresholds));
    let mut found: Vec<(Option<u32>, Finding)> = Vec::new();
    for row in &rows {
        let Some(new) = finder.of_row(row) else { continue };
        let region = finder.region(row.location);
        // The tasks of a program become larger together, and what waits in a region waits for its end.
        let is_same = |(of_region, of): &&mut (Option<u32>, Finding)| match [of.cause, new.cause] {
            [Cause::SmallTasks, Cause::SmallTasks] => true,
            causes => {
                causes.iter().all(|cause| WITHIN.contains(cause)) && region.is_some() && *of_region == region
            }
        };
        match found.iter_mut().find(is_same) {
            Some((_, known)) => {
                let both = known.most.zip(new.most);
                known.most = Some(match [known.cause, new.cause].contains(&Cause::TurnTaking) {
                    true => both.map_or((0.0, 0.0), |(a, b)| if a.0 < b.0 { b } else { a }),
                    false => both.map_or((0.0, 0.0), |(a, b)| (a.0 + b.0, a.1.hypot(b.1))),
                });
                if let Some(region) = region.filter(|_| known.cause != Cause::SmallTasks) {
                    known.least = known.least.zip(new.least).map(|(a, b)| a + b).or(known.least);
                    finder.name_region(region, known);
                }
            }
            None => found.push((region, new)),
        }
    }
    let mut all: Vec<Finding> = found.into_iter().map(|(_, of)| of).collect();
    let nobody = run.wait_ns.saturating_sub(run.missing_ns()).saturating_sub(run.others_ns());
    let nobody_of_run = nobody as f64 / run.runs.max(1) as f64;
    // While a lock or a task is handed over nobody works.
    let hands_over = |of: &Finding| matches!(of.cause, Cause::TurnTaking | Cause::SmallTasks);
    let gain = |of: &Finding| of.most.map_or(0, |(most, _)| most as i64);
    if let Some(of) = all.iter_mut().max_by_key(|of| gain(of)).filter(|of| hands_over(of)) {
        of.most = of.most.map(|(most, error)| (most + nobody_of_run, error));
    } else if quality::forbids_verdicts(run, 0) {
        let place = match mostly(finder.catalogue, STANDSTILL) {
            Some((.., name)) => format!(", mostly in {name} (--metric {STANDSTILL})"),
            None => "; `-e wall-time` says where".to_owned(),
        };
        let text = format!("nobody works: all threads sleep or wait for something outside{place}");
        all.push(finder.of_program(Cause::Waiting, text, Some((nobody_of_run, 0.0))));
    }
    let least = quality::wall_of_run(run) * LEAST_GAIN;
    all.retain(|of| of.most.is_none_or(|(most, _)| most >= least));
    all.extend(finder.late_rank()?);
    all.sort_by_key(|of| Reverse(gain(of)));
    let serial = all.iter().filter(|of| of.cause == Cause::Serial).filter_map(|of| of.most);
    let serial = serial.map(|(most, _)| most).sum();
    if let Some(threads) = finder.oversubscribed(serial)? {
        all.insert(0, threads);
    }
    if all.is_empty() {
        all.extend(rows.first().map(|row| finder.effective(row)));
    }
    Ok(Ok(all))
}

struct Finder<'a> {
    view: &'a View,
    catalogue: &'a Catalogue,
    thresholds: Thresholds,
}

impl Finder<'_> {
    fn of_program(&self, cause: Cause, text: String, most: Option<(f64, f64)>) -> Finding {
        Finding { cause, name: String::new(), place: String::new(), text, most, least: None }
    }

    fn cores(&self) -> f64 {
        f64::from(self.catalogue.statistics.cores.max(1))
    }

    fn is_idle(&self, values: &[i64]) -> bool {
        values[IDLENESS] as f64 * 100.0 / effort(values).max(1) as f64 >= self.thresholds.idleness
    }

    /// Serial contexts that do much between their callees have the rows of those, too: they change together.
    fn whole(&self, rows: Vec<Row>) -> Vec<Row> {
        let is_serial = |row: &Row| self.is_idle(&row.values) && self.idle(row).0 == Cause::Serial;
        let does_much = |row: &&Row| {
            let all = effort(self.view.inclusive.of(row.location));
            row.rest && effort(&row.values) as f64 >= all as f64 * OWN_SHARE && is_serial(row)
        };
        let outer: BTreeSet<u32> = rows.iter().filter(does_much).map(|row| row.location).collect();
        let mut whole: Vec<(u32, Row)> = Vec::new();
        for row in rows {
            let around = std::iter::successors(Some(row.location), |at| self.view.node(*at).parent);
            let outermost = around.filter(|at| outer.contains(at) && is_serial(&row)).last();
            let at = outermost.unwrap_or(row.location);
            match whole.iter_mut().find(|(known, _)| *known == at && outermost.is_some()) {
                Some((_, known)) => {
                    let values: Vec<i64> = known.values.iter().zip(&row.values).map(|(a, b)| a + b).collect();
                    let outer = if row.location == at { row } else { known.clone() };
                    *known = Row { values, mostly: None, ..outer };
                }
                None => whole.push((at, row)),
            }
        }
        whole.into_iter().map(|(_, row)| row).collect()
    }

    /// What a row limits, if it does.
    fn of_row(&self, row: &Row) -> Option<Finding> {
        let values = &row.values;
        let share = |metric: usize| values[metric] as f64 * 100.0 / effort(values).max(1) as f64;
        let is_idle = self.is_idle(values);
        let tasks = self.small_tasks(row.location);
        let (waits, by) = row.waits;
        let waits = waits.clamp(0, busy(values));
        let (cause, text) = match () {
            () if waits as f64 >= busy(values) as f64 * SPINNING && waits > values[IDLENESS] => {
                let share = percent(waits, busy(values));
                let text = format!(
                    "{share} % of its time is waiting in {by} without sleeping: wait for an event instead"
                );
                (Cause::Spinning, text)
            }
            () if tasks.is_some() => (Cause::SmallTasks, tasks.clone()?.1),
            () if let Some(text) = self.short_regions(row).filter(|_| is_idle) => (Cause::ShortRegions, text),
            () if is_idle => self.idle(row),
            () if share(OVERHEAD) >= self.thresholds.overhead => match self.overhead(values) {
                (SYNC, share) if self.region(row.location).is_some() => (
                    Cause::TurnTaking,
                    format!("threads contend for a lock ({share}): take it less often, or have several"),
                ),
                (_, share) => (Cause::Overhead, format!("{share}: do more at a time")),
            },
            () => return None,
        };
        // A lock delays all that its region does.
        let region = self.region(row.location).filter(|_| cause == Cause::TurnTaking);
        let region = region.map(|region| self.view.inclusive.of(region));
        let values = region.filter(|all| effort(all) > effort(values)).unwrap_or(values);
        let (idle, over) = match cause {
            Cause::Overhead => (0.0, 1.0),
            Cause::SmallTasks | Cause::ShortRegions | Cause::TurnTaking => (1.0, 1.0),
            Cause::Spinning => (0.0, 0.0),
            _ => (1.0, 0.0),
        };
        let per = self.cores() * self.catalogue.statistics.runs.max(1) as f64;
        let mut most = (values[IDLENESS] as f64 * idle + values[OVERHEAD] as f64 * over) / per;
        let wait =
            if cause == Cause::Spinning { (waits as f64 / busy(values).max(1) as f64).sqrt() } else { 0.0 };
        let error = self.catalogue.errors().of_weighted([wait / per, idle / per, over / per], values);
        if let Some((hidden, _)) = tasks.filter(|_| cause == Cause::SmallTasks) {
            most += hidden.min(values[WORK]) as f64 / per;
        }
        if cause == Cause::Spinning {
            most += waits as f64 / per;
        }
        let label = self.view.node(row.location).label;
        if let Some(left) = self.catalogue.zeroed_span(label) {
            most = most.min((quality::wall_of_run(&self.catalogue.statistics) - left as f64).max(0.0));
        }
        let least = match cause {
            // Tasks go to whoever is free, so that all cores have less to do.
            Cause::SmallTasks if !is_idle => most - values[IDLENESS] as f64 / per,
            Cause::Serial | Cause::Imbalance => self.alone(values) * (self.cores() - 1.0) / per,
            _ => 0.0,
        };
        let least = Some(least * EFFICIENCY - 2.0 * error).filter(|least| *least > 0.0);
        let finding = self.about(row, cause, text, Some((most, error)));
        Some(Finding { least: least.map(|least| least.min(most)), ..finding })
    }

    /// The time of a context in which surely nothing runs beside it. Where two run, as many cores less idle.
    fn alone(&self, values: &[i64]) -> f64 {
        let (busy, n) = (busy(values) as f64, self.cores());
        let idle = values[IDLENESS] as f64 / busy.max(1.0);
        busy * ((2.0 * idle - n + 2.0) / n).clamp(0.0, 1.0)
    }

    /// A process that waits less in calls of MPI than the others of its run do.
    fn late_rank(&self) -> Result<Option<Finding>> {
        let Some(metric) = self.catalogue.metrics.iter().position(|m| m.name == MPI_WAIT) else {
            return Ok(None);
        };
        let threads = self.catalogue.threads()?;
        let mut waits: BTreeMap<(&str, i64), (u32, i64)> = BTreeMap::new();
        for thread in &threads {
            let of = waits.entry((&thread.run, thread.process)).or_insert((thread.pid, 0));
            of.1 = of.1.saturating_add(thread.values[metric]);
        }
        let waits: Vec<(u32, i64)> = waits.into_values().collect();
        let Some((mean, pid, least)) = last_rank(&waits) else { return Ok(None) };
        let text = format!(
            "ranks wait in MPI for {} s on average, and process {pid} for {} s: others wait for it, so give \
             it less work (`threads --metric work`)",
            seconds(mean),
            seconds(least)
        );
        // If all have the same work, nobody waits any more.
        Ok(Some(self.of_program(Cause::LateRank, text, Some((mean as f64, 0.0)))))
    }

    /// A parallel construct of one pool that runs within that of another.
    fn nested(&self) -> Option<String> {
        let code = &self.catalogue.code;
        let name = |node: u32| self.view.node(node).label.parallel_loop(code);
        let nodes = (0..self.view.nodes.len() as u32).filter_map(|node| {
            let inner = name(node)?;
            let outer = self.loop_around(self.view.node(node).parent?)?;
            are_pools(&inner.name, &outer.name)
                .then(|| (effort(self.view.inclusive.of(node)), Reverse(node), inner, outer))
        });
        let (.., inner, outer) = nodes.max_by_key(|(effort, node, ..)| (*effort, *node))?;
        Some(format!("; {} runs within {}: let one of both be parallel", inner.name, outer.name))
    }

    fn about(&self, row: &Row, cause: Cause, text: String, most: Option<(f64, f64)>) -> Finding {
        let place = row.place(self.view, &self.catalogue.code);
        Finding { cause, name: row.called(), place, text, most, least: None }
    }

    /// Why cores are idle while a row works.
    fn idle(&self, row: &Row) -> (Cause, String) {
        let others = self.cores() - 1.0;
        let idle = row.values[IDLENESS] as f64 / busy(&row.values).max(1) as f64;
        let is_alone = idle >= others * SERIAL_SHARE;
        let spread = self.view.spreads[row.location as usize].filter(|of| of.threads > 1);
        let in_parallel = self.loop_around(row.location).is_some();
        let most = spread.map_or(1.0, |of| of.most as f64 / of.sum.max(1) as f64);
        let fair = spread.map_or(1.0, |of| f64::from(of.threads).min(self.cores()));
        let is_fair = spread.is_some() && most * fair < FAIR;
        match (is_fair, spread.is_some() || in_parallel) {
            (true, _) => (Cause::TurnTaking, self.turns()),
            _ if is_alone && (most >= SERIAL_SHARE || !in_parallel) => (
                Cause::Serial,
                format!(
                    "one thread works while {others:.0} of {:.0} cores idle: run it in parallel",
                    others + 1.0
                ),
            ),
            (_, true) => (
                Cause::Imbalance,
                format!(
                    "imbalance: one thread has {:.0} % of the work and others wait for it: smaller parts, \
                     the largest first",
                    most * 100.0
                ),
            ),
            _ => (
                Cause::LowParallelism,
                format!("{idle:.1} cores idle on average while it runs: more at once, or start it earlier"),
            ),
        }
    }

    fn turns(&self) -> String {
        match mostly(self.catalogue, LOCK_WAIT) {
            Some((_, held, holder)) => format!(
                "threads take turns: they waited {} s for a lock that {holder} holds: hold it for less time, \
                 or have several",
                seconds(held)
            ),
            None => format!(
                "threads take turns: a lock or a queue lets one work at a time: `-e {LOCK_WAIT}` names \
                 the holder"
            ),
        }
    }

    /// The largest category of overhead, and how much there is.
    fn overhead(&self, values: &[i64]) -> (&str, String) {
        let metrics = self.catalogue.metrics.iter().zip(values);
        let of = metrics.filter_map(|(m, value)| Some((*value, m.name.strip_prefix(CATEGORY_PREFIX)?)));
        let largest = of.max().map_or("", |(_, name)| name);
        let share = percent(values[OVERHEAD], effort(values));
        (largest, format!("{share} % of it is overhead, mostly {largest}"))
    }

    /// The small tasks that a node of a region has at, around or below it.
    fn small_tasks(&self, node: u32) -> Option<(i64, String)> {
        let around = small_tasks(self.loop_around(node)?);
        let mut below = vec![node];
        let found = std::iter::from_fn(|| {
            let at = below.pop()?;
            below.extend(&self.view.children[at as usize]);
            Some(self.view.node(at).label.parallel_loop(&self.catalogue.code).and_then(small_tasks))
        });
        around.or_else(|| found.flatten().max_by_key(|(hidden, _)| *hidden))
    }

    /// That a row idles in parallel regions that are short, if so.
    fn short_regions(&self, row: &Row) -> Option<String> {
        let mut below = vec![self.region(row.location).unwrap_or(row.location)];
        let (mut idle, mut loops) = (0, BTreeSet::new());
        while let Some(at) = below.pop() {
            match self.view.node(at).label {
                Label::ParallelLoop(index) => {
                    idle += self.view.inclusive.of(at)[IDLENESS];
                    loops.insert(index);
                }
                _ => below.extend(&self.view.children[at as usize]),
            }
        }
        let loops = loops.into_iter().map(|index| self.catalogue.code.parallel_loop(index));
        let counted = loops.filter_map(|of| Some((of.counts?.executions, of.task_ns)));
        let (executions, time) = counted.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let mean = (time / i64::from(self.catalogue.statistics.cores.max(1))).checked_div(executions)?;
        (idle >= row.values[IDLENESS] / 2 && mean > 0 && mean < SHORT_REGION_NS).then(|| {
            format!(
                "{} regions of {} on average, and threads wait for their start and end: do more in each, or \
                 several in one",
                grouped(executions),
                duration(mean)
            )
        })
    }

    /// The node of the parallel loop that a node is or lies in.
    fn region(&self, node: u32) -> Option<u32> {
        let mut around = std::iter::successors(Some(node), |node| self.view.node(*node).parent);
        around.find(|node| self.view.node(*node).label.parallel_loop(&self.catalogue.code).is_some())
    }

    fn loop_around(&self, node: u32) -> Option<&ParallelLoop> {
        self.view.node(self.region(node)?).label.parallel_loop(&self.catalogue.code)
    }

    /// Calls what holds for several contexts of a region by the region and the largest of them.
    fn name_region(&self, region: u32, of: &mut Finding) {
        let (label, code) = (self.view.node(region).label, &self.catalogue.code);
        let name = names::label(code, label);
        if !of.name.starts_with(&name) {
            of.place = label.location(code).map_or(String::new(), |at| names::location(code, at));
            let most = of.name.split(" (mostly ").next().unwrap_or_default();
            of.name = one_line(&format!("{name} (mostly {most})"));
        }
    }

    /// `serial`: what serial code lets idle, which the number of threads has no part in.
    fn oversubscribed(&self, serial: f64) -> Result<Option<Finding>> {
        let run = &self.catalogue.statistics;
        if !quality::competes(run) {
            return Ok(None);
        }
        let least = busy(&self.view.totals) / (LEAST_WORKER * i64::from(run.cores.max(1)));
        let threads = self.catalogue.threads()?;
        let workers = threads.iter().filter(|thread| busy(&thread.values) >= least.max(1)).count();
        let workers = workers / run.runs.max(1);
        if workers <= run.cores as usize {
            return Ok(None);
        }
        let text = format!(
            "{workers} threads compete for the {} cores that the program may use (affinity and quota \
             included) and waited {} s for one: start {} in all, in all pools together{}{}",
            run.cores,
            seconds(run.competition_ns()),
            run.cores,
            self.nested().unwrap_or_default(),
            match run.spinning_ns as f64 >= run.cpu_ns as f64 * SPINNING {
                true =>
                    "; until then idle ones spin on cores that others need (OpenMP: OMP_WAIT_POLICY=passive)",
                false => "",
            }
        );
        // The work stays.
        let per = self.cores() * run.runs.max(1) as f64;
        let most = (quality::wall_of_run(run) - self.view.totals[WORK] as f64 / per - serial).max(0.0);
        Ok(Some(self.of_program(Cause::Oversubscription, text, Some((most, 0.0)))))
    }

    /// That nothing but its work limits a program.
    fn effective(&self, row: &Row) -> Finding {
        let n = self.catalogue.statistics.cores;
        let text = match n {
            0 | 1 => "all is work: tune this code".to_owned(),
            _ => format!(
                "parallelism is effective, so tune this code; if threads write to the same cache lines it is \
                 slower than alone: `hpcrun-rs sweep --workers 1,{n} -- …` shows that"
            ),
        };
        self.about(row, Cause::Work, text, None)
    }
}

/// How much of a loop's time its tasks may cost, and what to do, if they are small.
fn small_tasks(of: &ParallelLoop) -> Option<(i64, String)> {
    let counts = of.counts.filter(|_| of.task_ns > 0)?;
    let is_openmp = of.name.starts_with("omp ");
    let tasks = match counts.splits {
        0 if of.name.starts_with("omp task") => counts.executions,
        splits => splits,
    };
    let mean = of.task_ns.checked_div(tasks)?;
    if mean >= SMALL_TASK_NS {
        return None;
    }
    let times = (GOOD_TASK_NS / mean.max(1)).max(2);
    let how = match is_openmp {
        true => {
            format!("create them only where there is {times} times as much to do (`if`, `final`)")
        }
        false => format!("with_min_len({times}) makes them {}", duration(times * mean)),
    };
    let hidden = tasks.saturating_mul(TASK_COST_NS[usize::from(is_openmp)].min(mean));
    Some((hidden, format!("{} tasks of {}: {how}", grouped(tasks), duration(mean))))
}

/// The mean of what ranks wait, and which one waits less than half of that, and how long.
fn last_rank(waits: &[(u32, i64)]) -> Option<(i64, u32, i64)> {
    let all = waits.iter().fold(0, |sum: i64, (_, wait)| sum.saturating_add(*wait));
    let mean = all.checked_div(waits.len() as i64)?;
    let (pid, least) = *waits.iter().min_by_key(|(_, wait)| *wait)?;
    (least < mean / 2).then_some((mean, pid, least))
}

/// Whether a parallel construct within another one has a pool of its own: OpenMP's regions have, one pool of
/// rayon serves all that is nested.
fn are_pools(inner: &str, outer: &str) -> bool {
    let [inner, outer] =
        [inner, outer].map(|name| (name.starts_with("omp "), name.starts_with("omp parallel")));
    (inner.1 || !inner.0) && (outer.1 || !outer.0) && (inner.0 || outer.0)
}

/// The total of a metric, if it was measured, and which of the user's procedures has most of it.
pub fn mostly(catalogue: &Catalogue, metric: &str) -> Option<(i64, i64, String)> {
    let metric = catalogue.metrics.iter().position(|m| m.name == metric)?;
    let total = *catalogue.totals().ok()?.get(metric).filter(|total| **total > 0)?;
    let limits = Limits { depth: None, threshold: Some(LEAST_PART) };
    let view = top_down::read(catalogue, limits, MetricSelector::Metric(metric), false).ok()?;
    let code: &Code = &catalogue.code;
    let held = (0..).zip(&view.nodes).filter_map(|(id, node)| match node.label {
        Label::Procedure(p) | Label::Inlined(p) if code.procedure(p).origin == Origin::User => {
            Some((view.inclusive.of(id)[metric], Reverse(id), p))
        }
        _ => None,
    });
    // The innermost of the user's procedures that has most.
    let (most, ..) = held.clone().max()?;
    let (held, _, holder) = held.filter(|(held, ..)| *held == most).last()?;
    (held > 0).then(|| (total, held, one_line(&code.procedure(holder).name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_hardly_waits_is_last() {
        assert_eq!(last_rank(&[(7, 900), (8, 100), (9, 800)]), Some((600, 8, 100)));
        assert_eq!(last_rank(&[(7, 900), (8, 500), (9, 800)]), None, "all wait for each other");
        assert_eq!((last_rank(&[(7, 900)]), last_rank(&[])), (None, None));
    }

    #[test]
    fn pools_that_run_within_others_are_told_from_tasks() {
        let (region, task, loops) = ("omp parallel for", "omp task", "xs.par_iter().sum()");
        for (inner, outer) in [(region, region), (region, loops), (loops, region)] {
            assert!(are_pools(inner, outer), "{inner} in {outer}");
        }
        for (inner, outer) in [(task, region), (region, task), (loops, loops), (task, task)] {
            assert!(!are_pools(inner, outer), "{inner} in {outer}");
        }
    }
}
