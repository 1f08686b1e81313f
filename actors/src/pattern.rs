//! Phases: sequences of tasks that a path repeats.

use std::collections::BTreeMap;

/// A sequence of tasks that occurs again and again along a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Where it occurs, as numbers of steps of the path; without overlaps.
    pub starts: Vec<usize>,
    /// Its number of steps.
    pub length: usize,
    /// The length of the shortest sequence of which it is a repetition: one iteration, if it has several.
    pub period: usize,
}

/// Steps that are looked at, the last ones of a path.
pub(crate) const MOST_STEPS: usize = 1 << 14;

/// The sequence with the greatest `count * length^2` of all that occur at least `support` times without
/// overlaps, of equals the shortest. Sequences grow by one step at a time as long as they are frequent, for a
/// sequence is no more frequent than its beginning. Time: in proportion to the steps and to the length of the
/// longest frequent sequence, which is at most steps / support.
pub(crate) fn repeated(steps: &[u32], support: usize) -> Option<Phase> {
    let mut groups = vec![(0..steps.len()).collect::<Vec<usize>>()];
    let mut best = (0, Vec::new(), 0);
    for length in 1..=steps.len() {
        let mut longer = Vec::new();
        for starts in groups {
            let mut by_last: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
            for start in starts {
                if let Some(last) = steps.get(start + length - 1) {
                    by_last.entry(*last).or_default().push(start);
                }
            }
            for starts in by_last.into_values() {
                let count = apart(&starts, length).count();
                if count >= support {
                    if count * length * length > best.0 {
                        best = (count * length * length, starts.clone(), length);
                    }
                    longer.push(starts);
                }
            }
        }
        groups = longer;
    }
    let (weight, starts, length) = best;
    let starts: Vec<usize> = apart(&starts, length).collect();
    (weight != 0).then(|| Phase { period: period(&steps[starts[0]..starts[0] + length]), starts, length })
}

/// The starts that are at least `length` apart, the first one first.
fn apart(starts: &[usize], length: usize) -> impl Iterator<Item = usize> + '_ {
    let mut free = 0;
    starts.iter().copied().filter(move |start| {
        let is_free = *start >= free;
        if is_free {
            free = start + length;
        }
        is_free
    })
}

/// The length of the shortest sequence of which this one is a repetition.
fn period(steps: &[u32]) -> usize {
    let whole = steps.len();
    let repeats = |length: &usize| whole % length == 0 && steps[*length..] == steps[..whole - length];
    (1..=whole).find(repeats).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_iteration_is_found_between_other_tasks() {
        let text = ["x", &"abbbc".repeat(6), "y", "abbbc", "zz"].concat();
        let steps: Vec<u32> = text.bytes().map(u32::from).collect();
        let phase = repeated(&steps, 6).expect("it occurs seven times");
        assert_eq!((phase.starts.len(), phase.starts[6]), (7, 32));
        assert_eq!((phase.length, phase.period), (5, 5));
        assert_eq!(repeated(&[1, 2].repeat(60), 6).map(|phase| phase.period), Some(2));
    }

    /// Against all sequences of random texts.
    #[test]
    fn no_other_sequence_has_a_greater_weight() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let (length, letters) = (random.usize(1..40), random.u32(1..4));
            let steps: Vec<u32> = (0..length).map(|_| random.u32(0..letters)).collect();
            let mut most = 0;
            for start in 0..length {
                for end in start + 1..=length {
                    let found = &steps[start..end];
                    let starts: Vec<usize> =
                        (0..length).filter(|at| steps[*at..].starts_with(found)).collect();
                    let count = apart(&starts, found.len()).count();
                    if count >= 3 {
                        most = most.max(count * found.len() * found.len());
                    }
                }
            }
            let found = repeated(&steps, 3);
            assert_eq!(found.map_or(0, |phase| phase.starts.len() * phase.length.pow(2)), most);
        }
    }
}
