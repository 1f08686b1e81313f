//! Lines of the first screen about the measurement itself. Losses come first, and only a complete measurement
//! is praised.

use crate::catalogue::metrics::sum;
use crate::catalogue::statistics::Statistics;
use crate::model::experiment::UnprofiledProgram;
use crate::render::numbers::{percent, seconds};
use hpc_formats::loss::LossCause;
use hpc_formats::process::THREAD_OF;

/// Missing times that are listed.
const LISTED: usize = 4;
/// The cause of time without samples.
pub const HELD_BACK: &str = LossCause::HeldBack.name();
/// Hosts that are named.
const HOSTS: usize = 8;
/// Share of the wall time from which unattributed wait forbids verdicts, percent.
const WAIT_PERCENT: i64 = 5;
/// Share of the wall time from which estimated waits are said, percent.
const ESTIMATED_PERCENT: i64 = 1;
/// Share of the CPU time from which spinning is said, percent.
const SPINNING_PERCENT: i64 = 5;
/// A run is serial when this share of what could idle beside one working thread did, percent.
const SERIAL_PERCENT: i64 = 98;
/// Below this share of rooted samples no verdict is given, percent.
pub const LEAST_ROOTED: f64 = 80.0;
/// From this share of the CPU time on missing time may hide what is asked, percent.
const MISSING_PERCENT: i64 = 1;
/// Waiting of fewer periods is noise.
const FEW_PERIODS: i64 = 4;

/// Whether `part` is at least this percentage of `whole`, and not 0.
fn is_share(part: i64, of_percent: i64, whole: i64) -> bool {
    part > 0 && part.saturating_mul(100) >= whole.saturating_mul(of_percent)
}

/// Whether a time is a part of the run that is worth a word: a hundredth, and more than a period.
pub fn is_worth_a_word(time: i64, run: &Statistics) -> bool {
    time > run.period_ns && is_share(time, 1, run.wall_ns)
}

/// Whether nobody worked, or others had the cores, for so long that this is said first. Missing CPU time is
/// time in which somebody worked.
pub fn is_mostly_waiting(run: &Statistics) -> bool {
    is_long(run, run.wait_ns.saturating_sub(run.missing_ns()))
}

fn is_long(run: &Statistics, time: i64) -> bool {
    let noise = run.period_ns.saturating_mul(FEW_PERIODS);
    run.samples > 0 && time > noise && is_share(time, WAIT_PERCENT, run.wall_ns)
}

/// Whether threads of the program waited long for cores that others of its threads had.
pub fn competes(run: &Statistics) -> bool {
    run.threads > u64::from(run.cores) && is_long(run, run.competition_ns())
}

/// Whether nobody worked for so long that figures about the rest carry no verdict: `waste`, idleness and
/// overhead, is not well above what all cores had to do then.
pub fn forbids_verdicts(run: &Statistics, waste: i64) -> bool {
    let nobody = run.wait_ns.saturating_sub(run.missing_ns()).saturating_sub(run.others_ns());
    let of_cores = nobody.saturating_mul(i64::from(run.cores));
    is_long(run, nobody) && waste < of_cores.saturating_mul(2)
}

/// The wall time of a run, on average, nanoseconds.
pub fn wall_of_run(run: &Statistics) -> f64 {
    run.wall_ns as f64 / run.runs.max(1) as f64
}

/// Why figures carry no answer at all, if they don't.
pub fn lack(run: &Statistics) -> Option<String> {
    let missing = run.missing_ns();
    if run.samples == 0 {
        return Some("there are no samples".to_owned());
    }
    if is_share(missing, MISSING_PERCENT, run.cpu_ns) {
        return Some(format!("{} s of CPU time are missing", seconds(missing)));
    }
    let few = format!("fewer than {LEAST_ROOTED:.0} % of the samples are rooted ({})", lost(run));
    (run.rooted_percent() < LEAST_ROOTED).then_some(few)
}

/// That others had the cores for long, if they had.
pub fn others_had_cores(run: &Statistics) -> Option<String> {
    is_long(run, run.others_ns()).then(|| {
        let (others, wall) = (seconds(run.others_ns()), seconds(run.wall_ns));
        format!("others had the cores for {others} of {wall} s: run again where it is quiet")
    })
}

/// Why there is no parallelism to judge, if there is none. `regions`: how much of the effort is in constructs
/// that could run on several threads.
pub fn serial(run: &Statistics, working: i64, idleness: i64, regions: i64) -> Option<String> {
    if run.samples == 0 {
        return None;
    }
    let of_effort = percent(regions, working.saturating_add(idleness));
    let regions = match is_share(regions, 10, working.saturating_add(idleness)) {
        true => format!(
            "; {of_effort} % of the effort is in parallel regions with one thread: look what limits them \
             (an option, OMP_NUM_THREADS and the like)"
        ),
        false => String::new(),
    };
    let others = i64::from(run.cores) - 1;
    let idles = match others {
        1 => format!(", so 1 of {} cores idles all the time", run.cores),
        n if n > 1 => format!(", so {n} of {} cores idle all the time", run.cores),
        _ => String::new(),
    };
    if run.executables.len() == 1 && run.threads <= 1 {
        return Some(format!("serial: the program runs on one thread{idles}{regions}"));
    }
    let most = working.saturating_mul(others.max(0));
    (most > 0 && is_share(idleness, SERIAL_PERCENT, most)).then(|| {
        format!("serial: of {} threads never more than one works at a time{idles}{regions}", run.threads)
    })
}

/// The lines about the measurement; without what advice says, if it is about the number of threads.
pub fn lines(run: &Statistics, has_advice: bool) -> Vec<String> {
    let mut lines = missing(run);
    if let [_, _, ..] = run.hosts[..] {
        lines.push(hosts(&run.hosts));
    }
    if is_mostly_waiting(run) {
        let others = run.others_ns();
        lines.push(match others.saturating_mul(2) > run.wait_ns {
            true => format!("{}: run again on a quiet machine", wait(run)),
            false => format!("{}: look there first", wait(run)),
        });
    }
    if competes(run) && !has_advice {
        lines.push(format!(
            "oversubscription: {} threads compete for {} cores: they waited {} s for one",
            run.threads,
            run.cores,
            seconds(run.competition_ns())
        ));
    }
    lines.push(samples(run));
    if is_share(run.spinning_ns, SPINNING_PERCENT, run.cpu_ns) {
        lines.push(format!(
            "spinning: {} s of the CPU time ({} %) went into spinning waits and searches for work, \
             which count as idle",
            seconds(run.spinning_ns),
            percent(run.spinning_ns, run.cpu_ns)
        ));
    }
    if run.unknown_lock_wait_ns > 0 {
        lines.push(format!(
            "lock-wait: {} s of waiting for locks are charged to no context: the lock was free, or who held \
             it is unknown",
            seconds(run.unknown_lock_wait_ns)
        ));
    }
    lines.extend(unknown_callers(run));
    lines
}

fn hosts(names: &[String]) -> String {
    let (listed, more) = names.split_at(names.len().min(HOSTS));
    let listed = listed.join(", ");
    match more.len() {
        0 => format!("hosts: {listed}"),
        more => format!("hosts: {listed} and {more} more"),
    }
}

/// What is known of the time in which nobody worked.
pub fn wait(run: &Statistics) -> String {
    format!(
        "unattributed wait: about {} s of the wall time, {} % \
         (estimate: others had the cores for {} s, else nobody worked)",
        seconds(run.wait_ns),
        percent(run.wait_ns, run.wall_ns),
        seconds(run.others_ns()),
    )
}

fn missing(run: &Statistics) -> Vec<String> {
    let mut lines = Vec::new();
    if !run.missing.is_empty() {
        lines.push(format!(
            "missing: {} s of CPU time that no sample stands for; they are in no figure below",
            seconds(run.missing_ns())
        ));
    }
    let (listed, more) = run.missing.split_at(run.missing.len().min(LISTED));
    lines.extend(listed.iter().map(|(what, ns)| format!("  {} s: {what}", seconds(*ns))));
    if !more.is_empty() {
        lines.push(format!(
            "  {} s: {} more (--format json has them all)",
            seconds(sum(more.iter().map(|(_, ns)| *ns))),
            more.len()
        ));
    }
    let is_named = |program: &str| run.missing.iter().any(|(what, _)| what.contains(program));
    // Threads are named where their time is missing.
    let is_program = |row: &&UnprofiledProgram| !row.reason.starts_with(THREAD_OF);
    let programs = run.unprofiled.iter().filter(is_program).filter(|row| !is_named(&row.program));
    let programs: Vec<String> = programs
        .map(|row| match row.times {
            1 => format!("{} ({})", row.program, row.reason),
            n => format!("{} ({}, {n} times)", row.program, row.reason),
        })
        .collect();
    if !programs.is_empty() {
        lines.push(format!("ran unprofiled: {}", programs.join(", ")));
    }
    lines
}

/// Lost and partial samples by cause, as in `tree-full 2`.
pub fn lost(run: &Statistics) -> String {
    let lost = run.lost.iter().filter(|(_, n)| **n > 0);
    let text = |(cause, n): (&String, &i64)| match run.lost_ns.get(cause) {
        // One such sample stands for any time.
        Some(time) if cause == HELD_BACK => format!("{cause} {} s", seconds(*time)),
        _ => format!("{cause} {n}"),
    };
    let lost: Vec<String> = lost.map(text).collect();
    lost.join(", ")
}

fn samples(run: &Statistics) -> String {
    let rooted = run.rooted_percent();
    let lost = lost(run);
    let mut text = match (run.samples, run.missing.is_empty(), lost.is_empty()) {
        (0, _, true) => "quality: no samples".to_owned(),
        (_, true, true) => {
            format!("quality: {rooted:.2} % of samples rooted at the program's entry, none lost")
        }
        (_, false, true) => {
            format!("quality: of the samples that were taken {rooted:.2} % are rooted at the program's entry")
        }
        (_, _, false) => {
            format!("quality: {rooted:.2} % of samples rooted at the program's entry, not whole: {lost}")
        }
    };
    if is_share(run.estimated_wait_ns, ESTIMATED_PERCENT, run.wall_ns) {
        text.push_str(&format!(
            "; {} s of waiting seen by state, not by a hook (estimated)",
            seconds(run.estimated_wait_ns)
        ));
    }
    text
}

/// Why a runtime's tasks have no callers, if it is one that the sampler watches where it can.
fn cannot_be_watched(runtime: &str) -> &'static str {
    match runtime {
        "libomp" => {
            "; it cannot be watched if it is linked statically, if OMP_TOOL=disabled is set, or if the \
             program has an OMPT tool of its own"
        }
        "libgomp" | "TBB" => "; it cannot be watched if it is linked statically",
        _ => "",
    }
}

/// Which runtimes ran tasks whose callers nobody recorded.
fn unknown_callers(run: &Statistics) -> Vec<String> {
    let shares = run.unknown_caller_samples.iter();
    let shares = shares.map(|(runtime, n)| (runtime, *n as f64 * 100.0 / run.samples.max(1) as f64));
    let said = shares.filter(|(_, share)| *share >= 0.1);
    said.map(|(runtime, share)| match runtime.as_str() {
        "rayon" => format!(
            "rayon's own scheduler ran the tasks: {share:.1} % of samples have no caller above their task; \
             `cargo hpcrun` shows them"
        ),
        other => format!(
            "{other} ran these tasks: {share:.1} % of samples stand under the place where its threads \
             were created, not under their callers{}",
            cannot_be_watched(other)
        ),
    })
    .collect()
}
