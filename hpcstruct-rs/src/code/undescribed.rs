//! Procedures in code that neither an unwind entry nor a symbol with a size describes: assembly, and
//! modules without an unwind table.
//!
//! Input: the machine code, the symbols, the unwind entries. A symbol without a size names what
//! control reaches from it, not all code up to the next symbol, which may be dozens of other procedures.
//! Where the code is read linearly, a procedure ends at an instruction behind which control does not
//! go on and beyond which no jump in it leads. The next one begins there if something says so: a
//! symbol, a direct call, an address that code or data holds, or the alignment of compilers.
//! llvm-symbolizer gives all such code to the symbol before it. Labels inside a procedure name none.

use super::disasm::control_transfer::{ControlTransfer, Decoded, Within};
use super::disasm::loaded_image::LoadedImage;
use super::disasm::{self, Scratch};
use super::{is_readable, is_stub_section};
use crate::base::parallel;
use crate::input::image::Image;
use crate::symbols::unwind_table::Unwind;
use crate::symbols::{Bounds, Symbol, Symbols};
use std::ops::Range;

/// What functions are aligned to.
const ALIGNMENT: u64 = 16;

/// Described ranges of one job.
const CHUNK: usize = 256;

/// Bounds the symbols without a size, leaves out labels, and adds ranges for unnamed procedures.
pub(crate) fn bound(
    image: &Image<'_>,
    memory: &LoadedImage<'_>,
    symbols: &mut Symbols<'_>,
    unwind: &mut Unwind,
    threads: usize,
) {
    let described = described(image, symbols, unwind);
    symbols.sorted.retain(|symbol| {
        let around = range_of(&described, symbol.start);
        symbol.bounds != Bounds::Label || around.is_none_or(|range| range.start == symbol.start)
    });
    if !is_readable(&image.file) {
        return;
    }
    let code = Reader { memory };
    let open = undescribed(image, &described, &code);
    if open.is_empty() {
        return;
    }
    let entries = code.entries(&open, &described, threads);
    let split = parallel::run(open.len(), threads, |i| {
        let first = symbols.sorted.partition_point(|s| s.start < open[i].start);
        let named = symbols.sorted[first..].iter().take_while(|s| s.start < open[i].end);
        code.split(&open[i], &entries, &named.collect::<Vec<_>>())
    });
    let found: Vec<Range<u64>> = split.into_iter().flatten().collect();
    symbols.sorted.retain_mut(|symbol| {
        if range_of(&open, symbol.start).is_none() {
            return true;
        }
        let at = found.binary_search_by_key(&symbol.start, |range| range.start);
        at.is_ok_and(|i| {
            symbol.end = found[i].end;
            true
        })
    });
    unwind.add_unnamed(found.into_iter().filter(|r| symbols.starting_at(r.start).is_none()));
}

/// Code that a table describes, sorted and disjoint.
fn described(image: &Image<'_>, symbols: &Symbols<'_>, unwind: &Unwind) -> Vec<Range<u64>> {
    let sized = symbols.sorted.iter().filter(|s| s.bounds == Bounds::Stated);
    let stubs = image.code.iter().filter(|(_, name)| is_stub_section(name));
    let mut ranges: Vec<Range<u64>> = unwind.ranges.clone();
    ranges.extend(sized.map(|s| s.start..s.end));
    ranges.extend(stubs.map(|(range, _)| range.clone()));
    // Sorted runs: the sort merges them.
    ranges.sort_by_key(|r| r.start);
    ranges.dedup_by(|next, kept| {
        let overlaps = next.start < kept.end;
        if overlaps {
            kept.end = kept.end.max(next.end);
        }
        overlaps
    });
    ranges
}

fn range_of(ranges: &[Range<u64>], address: u64) -> Option<&Range<u64>> {
    let next = ranges.get(ranges.partition_point(|r| r.end <= address))?;
    (next.start <= address).then_some(next)
}

/// The code between the described ranges that is no padding, each from its first instruction on.
fn undescribed(image: &Image<'_>, described: &[Range<u64>], code: &Reader<'_, '_>) -> Vec<Range<u64>> {
    let mut open = Vec::new();
    for (section, _) in &image.code {
        let mut at = section.start;
        let first = described.partition_point(|r| r.end <= section.start);
        let inside = described[first..].iter().take_while(|r| r.start < section.end);
        for range in inside.cloned().chain(std::iter::once(section.end..section.end)) {
            if at < range.start {
                open.extend(code.without_padding(at..range.start));
            }
            at = at.max(range.end);
        }
    }
    open
}

/// Addresses at which procedures may begin, sorted.
#[derive(Debug, Default)]
struct Entries {
    called: Vec<u64>,
    /// Held by code or data, which may mean a label as well.
    held: Vec<u64>,
}

/// Reads the code of a module.
#[derive(Clone, Copy)]
struct Reader<'a, 'd> {
    memory: &'a LoadedImage<'d>,
}

impl Reader<'_, '_> {
    /// The range from its first instruction that is no padding; `None` if there is none.
    fn without_padding(&self, range: Range<u64>) -> Option<Range<u64>> {
        let bytes = self.memory.bytes(range.start)?;
        let size = usize::try_from(range.end - range.start).ok()?;
        let skipped = disasm::padding(bytes.get(..size).unwrap_or(bytes));
        let start = range.start + skipped as u64;
        (start < range.end).then_some(start..range.end)
    }

    /// What may begin a procedure of the `open` ranges.
    fn entries(&self, open: &[Range<u64>], described: &[Range<u64>], threads: usize) -> Entries {
        let size = |ranges: &[Range<u64>]| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
        // Little such code (of the C start-up files) is not worth to read everything.
        let all = size(open) > size(described) / 64;
        let callers = if all { described } else { &[] };
        let jobs: Vec<&[Range<u64>]> = open.chunks(CHUNK).chain(callers.chunks(CHUNK)).collect();
        let found = parallel::run(jobs.len(), threads, |i| {
            let mut entries = Entries::default();
            let mut scratch = Scratch::default();
            for range in jobs[i] {
                self.decode(range, &mut scratch);
                let called = scratch.decoded.transfers.iter().filter_map(|t| match t.flow {
                    // The next instruction is called to learn where it lies.
                    ControlTransfer::Call(to) if to != range.start + u64::from(t.end) => Some(to),
                    _ => None,
                });
                entries.called.extend(called.filter(|to| range_of(open, *to).is_some()));
                let held = scratch.loaded().filter(|to| range_of(open, *to).is_some());
                entries.held.extend(held);
            }
            entries
        });
        let mut entries = Entries::default();
        for part in found {
            entries.called.extend(part.called);
            entries.held.extend(part.held);
        }
        let held = self.memory.addresses().filter(|to| range_of(open, *to).is_some());
        entries.held.extend(held);
        for list in [&mut entries.called, &mut entries.held] {
            list.sort_unstable();
            list.dedup();
        }
        entries
    }

    fn decode(&self, range: &Range<u64>, scratch: &mut Scratch) {
        let within = Within(std::slice::from_ref(range));
        let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let all = self.memory.bytes(range.start).unwrap_or(&[]);
        let bytes = all.get(..size).unwrap_or(all);
        let code = disasm::Range { bytes, all, address: range.start };
        disasm::decode(code, self.memory, within, scratch);
    }

    /// The procedures in `open`, in order. `named` are the symbols there.
    fn split(&self, open: &Range<u64>, entries: &Entries, named: &[&Symbol<'_>]) -> Vec<Range<u64>> {
        let mut scratch = Scratch::default();
        self.decode(open, &mut scratch);
        let Decoded { transfers, targets, .. } = &scratch.decoded;
        let called = |at: u64| entries.called.binary_search(&at).is_ok();
        let symbol = |at: u64| {
            let found = named.binary_search_by_key(&at, |s| s.start);
            found.ok().map(|i| named[i])
        };
        // Addresses that begin a procedure wherever control comes from, in order.
        let is_procedure = |s: &&&Symbol<'_>| s.bounds != Bounds::Label;
        let first = entries.called.partition_point(|at| *at <= open.start);
        let of_calls = entries.called[first..].iter().take_while(|at| **at < open.end).copied();
        let mut certain: Vec<u64> =
            named.iter().filter(is_procedure).map(|s| s.start).chain(of_calls).collect();
        certain.sort_unstable();
        let mut certain = certain.into_iter().filter(|at| *at > open.start).peekable();
        let mut out = Out { ranges: Vec::new(), start: open.start, end: open.start };
        // The furthest address that a jump of the procedure leads to.
        let mut reach = open.start;
        // Where the procedure may have ended last: traps behind that only fill space.
        let mut closed = None;
        for (i, transfer) in transfers.iter().enumerate() {
            let next = open.start + u64::from(transfer.end);
            while let Some(at) = certain.next_if(|at| *at < next) {
                out.begin(at, at);
                reach = at;
                closed = None;
            }
            if out.start >= next {
                continue;
            }
            let mut leads = |to: u64| {
                if open.contains(&to) && !called(to) {
                    reach = reach.max(to);
                }
            };
            let stops = match transfer.flow {
                ControlTransfer::Padding => continue,
                ControlTransfer::Branch(to) => {
                    leads(to);
                    false
                }
                ControlTransfer::Jump(to) => {
                    leads(to);
                    true
                }
                ControlTransfer::Table { first, count } => {
                    let known = targets.get(first as usize..(first + count) as usize);
                    known.unwrap_or(&[]).iter().copied().for_each(leads);
                    true
                }
                flow => !flow.is_call(),
            };
            let is_trap = transfer.flow == ControlTransfer::Stop && transfer.length == 1;
            if !(is_trap && closed == Some(next - 1)) {
                out.end = next;
            }
            closed = (stops && reach < next).then_some(next);
            let padding = transfers.get(i + 1).filter(|t| t.flow == ControlTransfer::Padding);
            let after = padding.map_or(next, |t| open.start + u64::from(t.end));
            let may_begin = |at: u64| {
                at % ALIGNMENT == 0 || entries.held.binary_search(&at).is_ok() || symbol(at).is_some()
            };
            if closed.is_some() && after < open.end {
                if let Some(start) = [next, after].into_iter().find(|at| may_begin(*at)) {
                    let rest = self.without_padding(start..open.end);
                    let end = out.end;
                    out.begin(rest.map_or(open.end, |rest| rest.start), end);
                }
            }
        }
        for at in certain {
            out.begin(at, at);
        }
        let ends_open = out.end <= out.start;
        let end = if ends_open { open.end } else { out.end };
        out.begin(open.end, end);
        out.ranges
    }
}

/// The procedures found so far, and the one that is read.
struct Out {
    ranges: Vec<Range<u64>>,
    start: u64,
    /// Behind its last transfer of control.
    end: u64,
}

impl Out {
    /// Ends the procedure that is read at `end`; the next one begins at `start`.
    fn begin(&mut self, start: u64, end: u64) {
        if self.start < end {
            self.ranges.push(self.start..end);
        }
        self.start = start;
    }
}
