//! The formulas. Times are in any one unit, the same for all arguments; p is a number of workers from 1.

/// t_PS of code that takes `serial` serially and `parallel` on `workers`, if it has no other overhead: the
/// paper's equation 3.
pub fn start_up(parallel: f64, serial: f64, workers: u32) -> f64 {
    parallel - serial / f64::from(workers)
}

/// What parallel execution saves of `serial`: the left side of the paper's equation 4. Negative for code that
/// should be executed serially.
pub fn gain(serial: f64, start_up: f64, workers: u32) -> f64 {
    serial * (1.0 - 1.0 / f64::from(workers)) - start_up
}

/// The serial time from which parallel execution pays; infinite on one worker.
pub fn break_even(start_up: f64, workers: u32) -> f64 {
    start_up / (1.0 - 1.0 / f64::from(workers))
}

/// The least size at which parallel execution pays, up to `most`. `serial` is the serial time of a size and
/// does not fall with it.
pub fn least_size(start_up: f64, workers: u32, most: u64, serial: impl Fn(u64) -> f64) -> Option<u64> {
    let pays = |size| gain(serial(size), start_up, workers) > 0.0;
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if pays(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    pays(low).then_some(low)
}

/// A program, as far as the time on any number of workers follows from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Program {
    /// Time of the code that is executed serially.
    pub unparallelised: f64,
    /// Serial time of the code that is executed in parallel.
    pub serial: f64,
    /// How often that code is executed.
    pub executions: f64,
}

impl Program {
    /// Its time on `workers`, each execution of the parallel code starting up in `start_up`: the paper's
    /// equations 1 and 2, without further overheads.
    pub fn time(&self, start_up: f64, workers: u32) -> f64 {
        self.unparallelised + self.serial / f64::from(workers) + self.executions * start_up
    }

    /// The number of workers with the least time, and that time: of serial execution, and of the given
    /// numbers of workers with their start-ups.
    pub fn best(&self, start_ups: impl IntoIterator<Item = (u32, f64)>) -> (u32, f64) {
        let serial = (1, self.unparallelised + self.serial);
        let times = start_ups.into_iter().map(|(p, t)| (p, self.time(t, p)));
        times.fold(serial, |best, next| if next.1 < best.1 { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's table 1: t_PS in cycles on p = 2 to 16 processors of a KSR1.
    const REGION: [f64; 15] = [
        17829.0, 18912.0, 19583.0, 21796.0, 23060.0, 23766.0, 24963.0, 25680.0, 26424.0, 26693.0, 27101.0,
        27425.0, 28857.0, 30334.0, 31943.0,
    ];
    const TILE: [f64; 15] = [
        22456.0, 24081.0, 24534.0, 26231.0, 27043.0, 27896.0, 29368.0, 30551.0, 31891.0, 33145.0, 34776.0,
        36092.0, 37820.0, 38842.0, 40246.0,
    ];
    const HERTZ: f64 = 20e6;

    /// The cycles of TRED2's loop nests for a size (section 4.1).
    const NESTS: [fn(f64) -> f64; 3] =
        [|l| 97.0 * l + 51.0 * l * l, |l| 50.0 * l + 53.0 * l * (l + 1.0) / 2.0, |l| 17.0 * l + 85.0 * l * l];

    fn tred2(table: &[f64; 15], p: u32) -> [u64; 3] {
        let start_up = table[p as usize - 2];
        NESTS.map(|nest| least_size(start_up, p, 127, |l| nest(l as f64)).expect("pays at N = 128"))
    }

    #[test]
    fn least_sizes_of_tred2() {
        assert_eq!(tred2(&REGION, 2), [26, 36, 21]);
        assert_eq!(tred2(&REGION, 4), [22, 30, 18]);
        assert_eq!(tred2(&REGION, 8), [23, 32, 19]);
        assert_eq!(tred2(&REGION, 16), [25, 35, 20]);
        assert_eq!(tred2(&TILE, 2), [29, 40, 23]);
        assert_eq!(tred2(&TILE, 16), [29, 39, 23]);
    }

    #[test]
    fn least_sizes_are_where_the_gain_changes_its_sign() {
        for (table, p) in [(&REGION, 2), (&REGION, 9), (&TILE, 5), (&TILE, 16)] {
            let start_up = table[p as usize - 2];
            for (nest, least) in NESTS.iter().zip(tred2(table, p)) {
                assert!(gain(nest(least as f64), start_up, p) > 0.0);
                assert!(gain(nest(least as f64 - 1.0), start_up, p) <= 0.0);
            }
        }
        assert_eq!(least_size(1e9, 2, 127, |l| NESTS[0](l as f64)), None);
        assert_eq!(least_size(1.0, 1, 127, |l| NESTS[0](l as f64)), None);
    }

    /// Section 4.2, on p workers: two nests, each of them executed 2741 times.
    fn barotropic(table: &[f64; 15]) -> (u32, Vec<f64>) {
        let program = Program { unparallelised: 3.92, serial: 22.81, executions: 5482.0 };
        let start_ups: Vec<(u32, f64)> = (2..).zip(table.map(|cycles| cycles / HERTZ)).collect();
        let times = start_ups.iter().map(|(p, t)| program.time(*t, *p)).collect();
        (program.best(start_ups).0, times)
    }

    #[test]
    fn best_number_of_processors_of_the_barotropic_model() {
        let (best, times) = barotropic(&REGION);
        assert_eq!(best, 13);
        for (p, seconds) in [(2, 20.21), (13, 13.19), (16, 14.10)] {
            let time = times[p - 2];
            assert!((time - seconds).abs() < 0.005, "p = {p}: {time}");
        }
        let (best, times) = barotropic(&TILE);
        assert_eq!(best, 8);
        assert!((times[8 - 2] - 14.82).abs() < 0.005, "{times:?}");
    }

    #[test]
    fn the_barotropic_loops_pay_on_any_number_of_processors() {
        for (p, cycles) in (2..).zip(TILE) {
            assert!(gain(0.00416, cycles / HERTZ, p) > 0.0);
            assert!(break_even(cycles / HERTZ, p) < 0.00416);
        }
    }

    #[test]
    fn the_formulas_agree() {
        let (serial, start_up_time, p) = (12.0, 1.5, 4);
        let parallel = serial / 4.0 + start_up_time;
        assert!((start_up(parallel, serial, p) - start_up_time).abs() < 1e-12);
        assert!((gain(serial, start_up_time, p) - (serial - parallel)).abs() < 1e-12);
        let least = break_even(start_up_time, p);
        assert!(gain(least, start_up_time, p).abs() < 1e-12);
        assert!(break_even(start_up_time, 1).is_infinite());
        let tiny = Program { unparallelised: 0.0, serial: 1.0, executions: 1.0 };
        assert_eq!(tiny.best([(2, 0.6), (3, 0.7)]), (1, 1.0));
    }
}
