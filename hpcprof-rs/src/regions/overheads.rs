//! Classes of overhead of a region, and what follows from them (the crate `start-up` has the model).

use crate::error::{Error, Result};
use crate::regions::find::{Region, Regions};
use crate::regions::sizes::Sizes;
use start_up::calibration::{Calibration, State};
use start_up::model::{self, Program};

/// What is known beside the database.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The start-up overheads of the machine.
    pub calibration: Option<Calibration>,
    /// The workers' state at the beginning of a region; awake if `None`.
    pub state: Option<State>,
    /// How often regions were executed, by name; for those where it was not counted.
    pub executions: Vec<(String, u64)>,
    /// The regions of a serial run of the program.
    pub serial: Option<Regions>,
    /// Sizes of regions, by name: in this run, or in another one with these regions.
    pub sizes: Vec<(String, u64, Option<Regions>)>,
}

impl Known {
    pub fn state(&self) -> State {
        self.state.unwrap_or(State::Awake)
    }
}

/// The overheads t_o of all executions on all workers, nanoseconds: p t_p - t_s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overheads {
    /// Cores that wait for what the region executes serially.
    pub unparallelised: i64,
    /// Other waiting of cores for work; with the start-up, where that is not known.
    pub load_imbalance: i64,
    /// Finding and moving work: overhead of the runtime, and what the work takes longer than serially.
    pub communication: i64,
    /// Overhead of locks and barriers, and waiting for locks where that was measured.
    pub synchronisation: i64,
    /// Starting up; `None` if it is not known how often, or what it takes.
    pub start_up: Option<i64>,
}

impl Overheads {
    pub fn total(&self) -> i64 {
        let known = self.unparallelised + self.load_imbalance + self.communication;
        known + self.synchronisation + self.start_up.unwrap_or(0)
    }
}

/// Whether a region should be parallel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Parallel,
    /// Only while the workers are awake.
    ParallelIfAwake,
    /// No: its executions are too short.
    Serial,
}

impl Verdict {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Parallel => "parallel",
            Verdict::ParallelIfAwake => "parallel-if-awake",
            Verdict::Serial => "serial",
        }
    }
}

/// What is known of one region. Times are nanoseconds, over all executions unless stated.
#[derive(Clone, PartialEq, Debug)]
pub struct Assessment {
    /// p t_p.
    pub area: i64,
    /// t_s.
    pub serial: i64,
    /// They add up to `area - serial`.
    pub overheads: Overheads,
    /// Start-up by the calibration that is not in the region's waiting, as far as the run had time in which
    /// nobody worked at all.
    pub start_up_beyond: i64,
    /// Executions, where they were counted or told.
    pub executions: Option<u64>,
    /// t_PS of an execution, workers awake and asleep.
    pub start_up_each: [Option<f64>; 2],
    /// Serial time of an execution from which it pays, workers awake and asleep.
    pub break_even: [Option<f64>; 2],
    /// By the break-even, if the number of executions is known, else by the time that was gained.
    pub verdict: Verdict,
    /// t_s - t_p as measured.
    pub gain: i64,
    /// The most executions of the same work together that pay.
    pub most_executions: Option<f64>,
    /// What of it is serial and parallel, and how often: 0 if that is not known.
    pub program: Program,
    /// The number of workers with the least predicted time, and that time.
    pub best: Option<(u32, f64)>,
    /// What its sizes tell, where there are two or more.
    pub sizes: Option<Sizes>,
    /// With them, the least size that pays, workers awake and asleep.
    pub least_size: [Option<u64>; 2],
}

/// The states, in the order of the arrays above.
pub const STATES: [State; 2] = [State::Awake, State::Asleep];

/// Assesses all regions of a run on `cores`, in which nobody worked for `wait` nanoseconds, in their order.
pub fn assess(regions: &Regions, cores: u32, wait: i64, known: &Known) -> Result<Vec<Assessment>> {
    let mut executions: Vec<Option<u64>> = regions.all.iter().map(|r| r.executions).collect();
    for (name, count) in &known.executions {
        executions[regions.index_of("--executions", name)?] = Some(*count);
    }
    let mut sizes: Vec<Vec<(u64, f64)>> = vec![Vec::new(); executions.len()];
    for (name, size, other) in &known.sizes {
        let index = regions.index_of("--size", name)?;
        let region = &regions.all[index];
        let (region, count) = match other {
            None => (Some(region), executions[index]),
            Some(other) => {
                let other = region.same_in(other);
                (other, other.and_then(|other| other.executions))
            }
        };
        let time = region.zip(count).map(|(region, count)| region.parallel.work as f64 / count.max(1) as f64);
        let time = time.ok_or_else(|| {
            let why = "the run has no such region, or did not count its executions";
            Error::Usage(format!("--size {name}={size}: {why}; --executions tells those of the first run"))
        })?;
        sizes[index].push((*size, time));
    }
    let assessed = regions.all.iter().zip(executions).zip(sizes);
    let mut assessed: Vec<Assessment> =
        assessed.map(|((region, count), sizes)| region.assess(cores, count, sizes, known)).collect();
    let beyond: i64 = assessed.iter().map(|found| found.start_up_beyond).sum();
    let share = (wait.max(0) as f64 * f64::from(cores) / beyond.max(1) as f64).min(1.0);
    for found in &mut assessed {
        found.start_up_beyond = (found.start_up_beyond as f64 * share) as i64;
        found.gain -= found.start_up_beyond / i64::from(cores.max(1));
    }
    Ok(assessed)
}

impl Regions {
    /// The region of that name, which an option gives.
    fn index_of(&self, option: &str, name: &str) -> Result<usize> {
        let is_it = |r: &&Region| r.name == *name || r.name.ends_with(&format!("::{name}"));
        let found: Vec<usize> = (0..).zip(&self.all).filter(|(_, r)| is_it(r)).map(|f| f.0).collect();
        let [index] = found[..] else {
            let names: Vec<&str> = self.all.iter().map(|r| r.name.as_str()).collect();
            let (count, names) = (found.len(), names.join(", "));
            let problem = format!("{option} {name}: {count} regions have this name; there are: {names}");
            return Err(Error::Usage(problem));
        };
        Ok(index)
    }
}

impl Region {
    /// The same region of another run. Several of one name are told apart by their order in neither run.
    fn same_in<'a>(&self, other: &'a Regions) -> Option<&'a Region> {
        let is_it = |r: &&Region| (r.construct, &r.name) == (self.construct, &self.name);
        let mut found = other.all.iter().filter(is_it);
        found.next().filter(|_| found.next().is_none())
    }

    fn assess(
        &self,
        cores: u32,
        executions: Option<u64>,
        sizes: Vec<(u64, f64)>,
        known: &Known,
    ) -> Assessment {
        let (area, workers) = (self.effort(), cores.max(1));
        let work = self.serial.work + self.parallel.work;
        let serial = known.serial.as_ref().and_then(|regions| self.same_in(regions));
        let serial = serial.map_or(work, |region| region.serial.work + region.parallel.work);
        let start_up = |state| self.start_up(known.calibration.as_ref(), state, workers);
        let start_up_each = STATES.map(start_up);
        let break_even = start_up_each.map(|t| t.map(|t| model::break_even(t, workers)));

        let for_locks = self.parallel.lock_wait.clamp(0, self.parallel.idleness);
        let waiting = self.parallel.idleness - for_locks;
        let one = start_up(known.state());
        let calibrated = one.zip(executions);
        let calibrated = calibrated.map(|(t, count)| (t.max(0.0) * count as f64 * f64::from(workers)) as i64);
        let starting = calibrated.map(|t| t.min(waiting));
        let overheads = Overheads {
            unparallelised: self.serial.idleness,
            load_imbalance: waiting - starting.unwrap_or(0),
            communication: self.serial.other_overhead + self.parallel.other_overhead + work - serial,
            synchronisation: self.serial.synchronisation + self.parallel.synchronisation + for_locks,
            start_up: starting,
        };
        let start_up_beyond = calibrated.zip(starting).map_or(0, |(all, in_it)| all - in_it);
        let fixed = self.serial.work.min(serial);
        let gain = serial - area / i64::from(workers);
        let mean = executions.map(|count| (serial - fixed) as f64 / count.max(1) as f64);
        let verdict = match (mean, break_even) {
            (Some(mean), [Some(awake), _]) if mean < awake => Verdict::Serial,
            (Some(mean), [Some(_), Some(asleep)]) if mean < asleep => Verdict::ParallelIfAwake,
            (Some(_), [Some(_), _]) => Verdict::Parallel,
            _ if gain > 0 => Verdict::Parallel,
            _ => Verdict::Serial,
        };
        let most_executions =
            one.filter(|t| *t > 0.0).map(|t| model::gain((serial - fixed) as f64, 0.0, workers) / t);
        let program = Program {
            unparallelised: fixed as f64,
            serial: (serial - fixed) as f64,
            executions: executions.unwrap_or(0) as f64,
        };
        let sizes = Sizes::fit(sizes);
        let least = |t: Option<f64>| sizes.as_ref()?.least(t?, workers);
        let least_size = start_up_each.map(least);
        let best = known.calibration.as_ref().filter(|_| executions.is_some()).and_then(|calibration| {
            let start_up = |p| Some((p, self.start_up(Some(calibration), known.state(), p)?));
            let most = calibration.rows.iter().map(|r| r.workers).max()?;
            let start_ups: Vec<(u32, f64)> = (2..=most).filter_map(start_up).collect();
            (!start_ups.is_empty()).then(|| program.best(start_ups))
        });
        Assessment {
            area,
            serial,
            overheads,
            start_up_beyond,
            executions,
            start_up_each,
            break_even,
            verdict,
            gain,
            most_executions,
            program,
            best,
            sizes,
            least_size,
        }
    }

    /// t_PS of an execution on so many workers.
    pub fn start_up(&self, from: Option<&Calibration>, state: State, workers: u32) -> Option<f64> {
        from?.start_up_ns(self.construct, self.place, state, workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regions::find::Sums;
    use crate::regions::whole::Whole;
    use start_up::calibration::{Construct, Place, Row};

    const MS: i64 = 1_000_000;
    const WAIT: i64 = 20 * MS;

    fn region() -> Region {
        let sums = |work: i64, idleness: i64, synchronisation: i64, other: i64, lock_wait: i64| Sums {
            work: work * MS,
            idleness: idleness * MS,
            synchronisation: synchronisation * MS,
            other_overhead: other * MS,
            lock_wait: lock_wait * MS,
        };
        Region {
            construct: Construct::ParFor,
            place: Place::Outside,
            name: "app::solve".to_owned(),
            call: None,
            executions: None,
            parallel_loop: None,
            tasks: None,
            chunks: None,
            threads: Vec::new(),
            serial: sums(10, 10, 0, 0, 0),
            parallel: sums(700, 250, 5, 25, 50),
        }
    }

    fn known(executions: u64) -> Known {
        let row = |state, workers, start_up_ns| Row {
            construct: Construct::ParFor,
            place: Place::Outside,
            state,
            workers,
            start_up_ns,
            deviation_ns: 0.0,
            executions: 1,
        };
        let rows = vec![
            row(State::Awake, 2, 5_000.0),
            row(State::Awake, 3, 6_000.0),
            row(State::Awake, 4, 500_000.0),
            row(State::Asleep, 2, 50_000.0),
        ];
        Known {
            calibration: Some(Calibration { rows, ..Calibration::default() }),
            executions: vec![("solve".to_owned(), executions)],
            ..Known::default()
        }
    }

    fn assessed(known: &Known) -> Assessment {
        let regions = Regions { all: vec![region()], outside: Sums::default() };
        let mut all = assess(&regions, 2, WAIT, known).expect("the name is known");
        let one = all.pop().expect("one region");
        assert_eq!(one.overheads.total(), one.area - one.serial, "{one:?}");
        one
    }

    #[test]
    fn classes_add_up() {
        let plain = assessed(&Known::default());
        assert_eq!((plain.area, plain.serial), (1000 * MS, 710 * MS));
        let expected = Overheads {
            unparallelised: 10 * MS,
            load_imbalance: 200 * MS,
            communication: 25 * MS,
            synchronisation: 55 * MS,
            start_up: None,
        };
        assert_eq!(plain.overheads, expected);
        assert_eq!((plain.gain, plain.verdict), (210 * MS, Verdict::Parallel));
        assert_eq!((plain.best, plain.most_executions), (None, None));

        // 1000 executions, 2 workers, 5 us.
        let started = assessed(&known(1000));
        assert_eq!(started.overheads.start_up, Some(10 * MS));
        assert_eq!(started.overheads.load_imbalance, 190 * MS);
        assert_eq!(started.start_up_beyond, 0);

        // More than the waiting there is.
        let often = assessed(&known(100_000));
        assert_eq!(often.overheads.start_up, Some(200 * MS));
        assert_eq!(often.overheads.load_imbalance, 0);
        assert_eq!(often.start_up_beyond, 2 * WAIT, "the calibration says 800 ms, but nobody had them");
    }

    #[test]
    fn a_serial_run_tells_work_from_communication() {
        let mut serial = region();
        serial.parallel.work = 600 * MS;
        let known = Known {
            serial: Some(Regions { all: vec![serial], outside: Sums::default() }),
            ..Known::default()
        };
        let found = assessed(&known);
        assert_eq!(found.serial, 610 * MS);
        assert_eq!(found.overheads.communication, 125 * MS);
    }

    #[test]
    fn verdicts_are_by_the_time_of_an_execution() {
        // 700 ms in parallel; it pays from 10 us with workers awake, from 100 us asleep.
        let of = |executions| assessed(&known(executions));
        assert_eq!(of(1000).break_even, [Some(10_000.0), Some(100_000.0)]);
        assert_eq!(of(1000).verdict, Verdict::Parallel);
        assert_eq!(of(10_000).verdict, Verdict::ParallelIfAwake);
        assert_eq!(of(100_000).verdict, Verdict::Serial);
        assert_eq!(of(1).most_executions, Some(70_000.0));
    }

    #[test]
    fn the_best_number_of_workers_weighs_work_and_start_up() {
        let best = |executions| assessed(&known(executions)).best.expect("all is known");
        assert_eq!(best(1).0, 4);
        assert_eq!(best(1000).0, 3);
        assert_eq!(best(1_000_000), (1, 710.0 * MS as f64));
    }

    /// Three regions' worth of time: 80 ms serial outside, 20 in which nobody worked.
    #[test]
    fn the_whole_program_is_all_of_its_regions_and_the_rest() {
        let outside = Sums { work: 80 * MS, idleness: 80 * MS, ..Sums::default() };
        let regions = Regions { all: vec![region()], outside };
        let whole = |known: &Known| {
            let assessed = assess(&regions, 2, WAIT, known).expect("the name is known");
            Whole::predict((&regions, &assessed), 2, WAIT, known)
        };
        assert_eq!(whole(&Known::default()), None);
        // Outside 80, serial 10, parallel 700 on p workers, 1000 times 5, 6 or 500 us, and the wait of 20.
        let found = whole(&known(1000)).expect("there is a calibration");
        let times = found.times.iter().map(|(p, time)| (*p, (time / 1e4).round() / 100.0));
        assert_eq!(Vec::from_iter(times), [(1, 810.0), (2, 465.0), (3, 349.33), (4, 785.0)]);
        assert_eq!((found.best().0, found.measured), (3, 600e6));
        assert_eq!((found.without_start_up, found.is_outside_parallel), (0, false));
        // The run had room for 240 of the 1000 ms of start-up that the calibration says.
        let found = whole(&known(100_000)).expect("there is a calibration");
        assert!((found.start_up_scale - 0.24).abs() < 1e-9);
        assert_eq!(found.times[..2], [(1, 790e6), (2, 560e6)]);
        let known = Known { executions: Vec::new(), ..known(1) };
        let found = whole(&known).expect("there is a calibration");
        assert_eq!((found.best().0, found.without_start_up), (4, 1));
    }

    /// 700 us an execution of size 1000 here, 70 us of size 100 in another run; it pays from 10 us.
    #[test]
    fn runs_of_two_sizes_tell_the_least_one() {
        let mut known = known(1000);
        let mut other = region();
        (other.executions, other.parallel.work) = (Some(100), 7 * MS);
        let other = Regions { all: vec![other], outside: Sums::default() };
        known.sizes = vec![("solve".to_owned(), 1000, None)];
        assert_eq!(assessed(&known).sizes, None, "one size tells nothing");
        known.sizes.push(("solve".to_owned(), 100, Some(other)));
        let found = assessed(&known);
        assert!((found.sizes.expect("two sizes").power - 1.0).abs() < 1e-9);
        let near = |size: Option<u64>, least| assert!(size.is_some_and(|size| size.abs_diff(least) <= 1));
        near(found.least_size[0], 15);
        near(found.least_size[1], 143);
        known.sizes[1].2 = Some(Regions::default());
        assert!(assess(&Regions { all: vec![region()], ..Regions::default() }, 2, WAIT, &known).is_err());
    }

    #[test]
    fn unknown_names_are_refused() {
        let mut known = known(1);
        known.executions[0].0 = "olve".to_owned();
        let regions = Regions { all: vec![region()], outside: Sums::default() };
        assert!(assess(&regions, 2, WAIT, &known).is_err());
    }
}
