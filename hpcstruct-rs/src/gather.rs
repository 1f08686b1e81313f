//! Builds one long vector out of parts, on several threads: every element is written once, in its
//! place. Unsafe code is here, in `bytes` and in `reclaim`.
//!
//! Invariant: the result is the parts in their order, whatever the number of threads.

use crate::parallel;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// The elements of `part(0)`, `part(1)` and so on; part `i` has `lengths[i]` elements. Of a longer
/// one the rest is left out, a shorter one is filled up with `filler`.
pub(crate) fn concat<T: Clone + Send + Sync, I: Iterator<Item = T>>(
    lengths: &[usize],
    threads: usize,
    filler: &T,
    part: impl Fn(usize) -> I + Sync,
) -> Vec<T> {
    let total = lengths.iter().sum();
    let mut out: Vec<T> = Vec::with_capacity(total);
    let mut rest = &mut out.spare_capacity_mut()[..total];
    let mut places: Vec<Mutex<&mut [MaybeUninit<T>]>> = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (place, after) = rest.split_at_mut(*length);
        places.push(Mutex::new(place));
        rest = after;
    }
    parallel::run(places.len(), threads, |i| {
        let mut place = places[i].lock().unwrap_or_else(PoisonError::into_inner);
        let mut elements = part(i);
        for slot in place.iter_mut() {
            slot.write(elements.next().unwrap_or_else(|| filler.clone()));
        }
    });
    drop(places);
    // SAFETY: the vector owns room for `total` elements, which `places` divided among the jobs
    // without gaps; `run` has returned, so every job has written every slot of its place. A job
    // that panics passes its panic on before this line: the vector is then still empty, and what
    // was written is leaked.
    unsafe { out.set_len(total) };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other() {
        let lengths = [3, 0, 1, 200, 0];
        let part = |i: usize| (0..lengths[i]).map(move |k| format!("{i}.{k}"));
        let expected: Vec<String> = (0..lengths.len()).flat_map(part).collect();
        for threads in [1, 2, 9] {
            assert_eq!(concat(&lengths, threads, &String::new(), part), expected);
        }
        assert!(concat(&[], 2, &0, |_| 0..9).is_empty());
    }

    #[test]
    fn wrong_lengths_are_made_good() {
        assert_eq!(concat(&[2, 2], 2, &9, |i| 0..i), [9, 9, 0, 9]);
        assert_eq!(concat(&[1], 1, &9, |_| 5..8), [5]);
    }
}
