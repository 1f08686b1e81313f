//! From nested, possibly inconsistent scope ranges to a flat list: the innermost scope everywhere.
//!
//! Output: sorted segments that cover exactly the procedure's ranges. Nothing is assumed about
//! nesting: a scope counts only inside the procedure; where scopes overlap the deeper one wins, and
//! at equal depth the later one.

use std::collections::BinaryHeap;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct ScopeRange {
    pub(crate) range: Range<u64>,
    /// Its depth in the tree of scopes.
    pub(crate) depth: u32,
    pub(crate) scope: usize,
}

/// A piece of code with its innermost scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) range: Range<u64>,
    pub(crate) scope: Option<usize>,
}

/// Buffers of [`flatten`], reused from procedure to procedure.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    base: Vec<Range<u64>>,
    /// Starts of scope_ranges with their numbers.
    starts: Vec<(u64, u32)>,
    open: Vec<(u32, u32)>,
    late: BinaryHeap<(u32, u32)>,
}

/// Finds the innermost of `scope_ranges`, given in any order, all over `base`; segments go to `out`.
pub(crate) fn flatten(
    base: &[Range<u64>],
    scope_ranges: &[ScopeRange],
    scratch: &mut Scratch,
    out: &mut Vec<Segment>,
) {
    let Scratch { base: sorted, starts, open, late } = scratch;
    out.clear();
    sorted.clear();
    sorted.extend(base.iter().filter(|r| r.start < r.end).cloned());
    sorted.sort_by_key(|r| (r.start, r.end));
    let filled = scope_ranges.iter().zip(0u32..);
    let filled = filled.filter(|(scope_range, _)| scope_range.range.start < scope_range.range.end);
    starts.clear();
    starts.extend(filled.map(|(scope_range, i)| (scope_range.range.start, i)));
    starts.sort_unstable();
    let mut starts = starts.iter().copied().peekable();
    // Those that began: by depth, then number. Usual ones begin within those before them: the
    // innermost is the last. Others go where the innermost of them is found. Those that ended leave
    // when they are the innermost.
    open.clear();
    late.clear();
    let mut free_from = 0;
    for range in sorted.iter() {
        let mut at = range.start.max(free_from);
        while at < range.end {
            while let Some((_, i)) = starts.next_if(|s| s.0 <= at) {
                let scope_range = (scope_ranges[i as usize].depth, i);
                match open.last() {
                    Some(last) if *last > scope_range => late.push(scope_range),
                    _ => open.push(scope_range),
                }
            }
            let has_ended = |top: &(u32, u32)| scope_ranges[top.1 as usize].range.end <= at;
            while open.last().is_some_and(has_ended) {
                open.pop();
            }
            while late.peek().is_some_and(has_ended) {
                late.pop();
            }
            let innermost = open.last().max(late.peek());
            let innermost = innermost.map(|(_, i)| &scope_ranges[*i as usize]);
            let mut end = innermost.map_or(range.end, |l| l.range.end.min(range.end));
            if let Some((start, _)) = starts.peek() {
                end = end.min(*start);
            }
            push(out, at..end, innermost.map(|l| l.scope));
            at = end;
        }
        free_from = free_from.max(range.end);
    }
}

fn push(out: &mut Vec<Segment>, range: Range<u64>, scope: Option<usize>) {
    match out.last_mut() {
        Some(last) if last.scope == scope && last.range.end == range.start => {
            last.range.end = range.end;
        }
        _ => out.push(Segment { range, scope }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope_range(range: Range<u64>, depth: u32, scope: usize) -> ScopeRange {
        ScopeRange { range, depth, scope }
    }

    /// The same by definition: look at every address.
    fn slow(base: &[Range<u64>], scope_ranges: &[ScopeRange], address: u64) -> Option<Option<usize>> {
        base.iter().any(|r| r.contains(&address)).then(|| {
            let holds = |(_, l): &(usize, &ScopeRange)| l.range.contains(&address);
            let found = scope_ranges.iter().enumerate().filter(holds);
            found.max_by_key(|(i, l)| (l.depth, *i)).map(|(_, l)| l.scope)
        })
    }

    fn flattened(base: &[Range<u64>], scope_ranges: &[ScopeRange]) -> Vec<Segment> {
        let mut out = Vec::new();
        flatten(base, scope_ranges, &mut Scratch::default(), &mut out);
        out
    }

    fn check(base: &[Range<u64>], scope_ranges: &[ScopeRange]) {
        let flattened = flattened(base, scope_ranges);
        for pair in flattened.windows(2) {
            assert!(pair[0].range.end <= pair[1].range.start, "{flattened:?}");
        }
        for address in 0..64 {
            let found = flattened.iter().find(|s| s.range.contains(&address));
            assert_eq!(
                found.map(|s| s.scope),
                slow(base, scope_ranges, address),
                "at {address}: {base:?} {scope_ranges:?}"
            );
        }
    }

    #[test]
    fn random_layers_agree_with_the_definition() {
        let mut source = fastrand::Rng::with_seed(1);
        let mut random = |n: u64| source.u64(..n);
        for _ in 0..2000 {
            let mut range = || {
                let start = random(60);
                start..start + random(12)
            };
            let base: Vec<_> = (0..3).map(|_| range()).collect();
            let ranges: Vec<_> = (0..6).map(|_| range()).collect();
            let scope_ranges: Vec<_> =
                ranges.into_iter().enumerate().map(|(i, r)| scope_range(r, random(4) as u32, i)).collect();
            check(&base, &scope_ranges);
        }
    }
}
