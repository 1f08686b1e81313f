//! Rounds of equal length: no program runs in step with its samples, at any rate.
//!
//! `rounds` has three phases in a round; the profile's shares of them are compared with those of the
//! program's own CPU clocks. With samples at equal distances a share is off by 0.15 and more (whole phases
//! are never seen, or alone), and with weights that depend on the place in a period by 0.06.

use hpcrun_tests::run::{Run, Spec, is_long, stolen_seconds};
use hpcrun_tests::tools::{exclusive_cores, one_core};
use hpcrun_tests::view::{assert_close, value};
use nix::time::{ClockId, clock_getres};

/// Standard errors that a right profile is off by, at most: once in some 10^6 comparisons.
const ERRORS: f64 = 5.0;

/// Milliseconds from one of the kernel's ticks to the next.
fn tick_ms() -> f64 {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).expect("there is a coarse clock");
    tick.tv_nsec() as f64 * 1e-6
}

/// `rounds` of so many milliseconds at a rate, for so many samples.
fn profile(rate: u32, round_ms: f64, samples: f64, more: &[&str]) -> Run {
    let seconds = samples / f64::from(rate);
    let (round, seconds) = (round_ms.to_string(), seconds.to_string());
    let mut arguments = vec![round.as_str(), seconds.as_str()];
    arguments.extend(more);
    let test = format!("rounds-{rate}-{round}{}", more.concat());
    Spec::fixture(&test, "rounds").rate(rate).arguments(&arguments).succeed()
}

/// Each phase's share of all phases, beside the program's own figure. `together`: as many samples as see the
/// same phase because they come at one distance. On the average over distances from a whole period that is
/// one: few distances fit a round, at the others a sequence of samples goes over it evenly. Larger here, as a
/// run has some hundred distances only.
fn check_shares(rate: u32, round_ms: f64, samples: f64, together: f64) {
    let run = profile(rate, round_ms, samples, &[]);
    let (view, truth) = (run.database().top_down(), run.truth());
    let measured = |site: &str| view.inclusive(site, "work");
    let all: f64 = truth.sites.keys().map(|site| measured(site)).sum();
    let period = 1.0 / f64::from(rate);
    for (site, values) in &truth.sites {
        let share = value(values, "work") / truth.total("work");
        // A share of independent draws is binomial, and whole periods for a weight add a quarter to the
        // variance at most.
        let independent = truth.total("work") / period / together;
        let error = (share * (1.0 - share) * 1.25 / independent).sqrt();
        let what = format!("{site}: share at {rate} Hz in rounds of {round_ms} ms");
        eprintln!("{what}: {:.3}, truth {share:.3}, standard error {error:.3}", measured(site) / all);
        assert_close(&what, measured(site) / all, share, ERRORS * error);
    }
}

/// Timers that fire in ticks see a round of five ticks at five places, in steps of 10 and 5 ms at two or four
/// of them.
#[test]
fn rounds_of_whole_ticks() {
    let _cores = one_core();
    // Five standard errors are 0.12 and 0.09.
    for (rate, samples) in [(100, 500.0), (200, 1000.0)] {
        check_shares(rate, 5.0 * tick_ms(), samples, 1.0);
    }
}

/// Rounds of one period: in steps of a period they would be seen at one place.
#[test]
fn rounds_of_one_period() {
    let _cores = one_core();
    // Five standard errors are 0.09, 0.06 and 0.06.
    for (rate, samples) in [(1000, 8_000.0), (2000, 16_000.0), (5000, 16_000.0)] {
        // A short run has the rates around it.
        if rate == 2000 && !is_long() {
            continue;
        }
        check_shares(rate, 1000.0 / f64::from(rate), samples, 8.0);
    }
}

/// Threads that live for less than a period have as many samples as their time is worth.
///
/// That time is between what the program asks for and what its clocks say: a sample takes some of the
/// thread's own time, and so a life that was sampled is longer by that than it would have been.
#[test]
fn lives_shorter_than_a_period() {
    let _cores = exclusive_cores();
    for (rate, life_ms) in [(200, 1.0), (1000, 0.4)] {
        let samples: f64 = 600.0;
        let stolen_before = stolen_seconds();
        let run = profile(rate, life_ms, samples, &["lives"]);
        let stolen = stolen_seconds() - stolen_before;
        let (view, truth) = (run.database().top_down(), run.truth());
        let files = run.files("hpcprofile").len();
        assert!(files < 40, "threads that follow each other share files: {files}");
        let mut measured = 0.0;
        for site in truth.sites.keys() {
            measured += view.inclusive(site, "work");
        }
        let asked = samples / f64::from(rate);
        let what = format!("lives of {life_ms} ms at {rate} Hz");
        eprintln!(
            "{what}: {measured:.3} s, asked for {asked:.3} s, by the program's clocks {:.3} s, {stolen:.2} s stolen",
            truth.total("work")
        );
        // A thread has one sample or none: a count, whose standard error is its root.
        let share = ERRORS / samples.sqrt();
        // Time that a hypervisor takes ends with a tick, and is not the thread's: whoever it was taken from
        // has a sample, which stands for a period. It takes a millisecond or more each time.
        let extra = stolen * 1e3 / f64::from(rate);
        let right = measured.clamp(asked, truth.total("work").max(asked));
        assert_close(&what, measured, right, share * asked + extra);
    }
}
