//! Measuring again until it is steady.
//!
//! One duty: of some passes over the same measurements, tell which are steady, and their values. Other
//! load, a thread on a slow core or a late wake-up makes start-ups longer, hardly ever shorter: so a
//! start-up is steady once the two least of its passes agree.

use crate::calibration::{Construct, Place, Row, State};

/// So far may two passes that agree be apart, as a share, or in nanoseconds.
const SHARE: f64 = 0.1;
const LEAST_NS: f64 = 100.0;

/// The rows of all passes, by what they measure.
#[derive(Default)]
pub(super) struct Passes(Vec<Vec<Row>>);

impl Passes {
    /// A measurement of the last pass.
    pub(super) fn add(&mut self, row: Row) {
        match self.0.iter_mut().find(|rows| kind(&rows[0]) == kind(&row)) {
            Some(rows) => rows.push(row),
            None => self.0.push(vec![row]),
        }
    }

    /// Whether all that was measured there is steady.
    pub(super) fn are_steady(&self, is_it: impl Fn(&Row) -> bool) -> bool {
        let mut rows = self.0.iter().filter(|rows| is_it(&rows[0])).peekable();
        rows.peek().is_some() && rows.all(|rows| result(rows).1)
    }

    /// The start-ups, and those of them that are not steady.
    pub(super) fn results(&self) -> (Vec<Row>, Vec<Row>) {
        let all = self.0.iter().map(|rows| result(rows));
        let unsteady = all.clone().filter(|(_, is_steady)| !is_steady).map(|(row, _)| row);
        (all.clone().map(|(row, _)| row).collect(), unsteady.collect())
    }
}

/// What a row is the start-up of.
fn kind(row: &Row) -> (Construct, Place, State, u32) {
    (row.construct, row.place, row.state, row.workers)
}

/// Of the passes' rows, one, and whether it is steady. If not, its deviation leads to the least and to the
/// greatest of them.
fn result(rows: &[Row]) -> (Row, bool) {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.start_up_ns.total_cmp(&b.start_up_ns));
    let executions = rows.iter().map(|row| row.executions).sum();
    let middle = |a: &Row, b: &Row| {
        let half = (b.start_up_ns - a.start_up_ns) / 2.0;
        (a.start_up_ns + half, half)
    };
    if let [first, second, ..] = rows[..] {
        let (start_up_ns, half) = middle(&first, &second);
        if 2.0 * half <= LEAST_NS.max(SHARE * first.start_up_ns) {
            let deviation_ns = first.deviation_ns.max(half);
            return (Row { start_up_ns, deviation_ns, executions, ..first }, true);
        }
    }
    let (start_up_ns, deviation_ns) = middle(&rows[0], &rows[rows.len() - 1]);
    (Row { start_up_ns, deviation_ns, executions, ..rows[0] }, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_up_is_steady_once_two_passes_agree() {
        let mut passes = Passes::default();
        let mut add = |start_up_ns| {
            passes.add(Row {
                construct: Construct::Join,
                place: Place::Worker,
                state: State::Awake,
                workers: 2,
                start_up_ns,
                deviation_ns: 1.0,
                executions: 10,
            });
            let (all, unsteady) = passes.results();
            assert_eq!(all.len(), 1);
            assert_eq!(passes.are_steady(|_| true), unsteady.is_empty());
            (all[0].start_up_ns, all[0].deviation_ns, all[0].executions, unsteady.len())
        };
        assert_eq!(add(824e3), (824e3, 0.0, 10, 1));
        assert_eq!(add(67e3), (445_500.0, 378_500.0, 20, 1));
        assert_eq!(add(400e3), (445_500.0, 378_500.0, 30, 1));
        // Two of them do not agree by being slow.
        assert_eq!(add(402e3), (445_500.0, 378_500.0, 40, 1));
        assert_eq!(add(69e3), (68e3, 1e3, 50, 0));
    }
}
