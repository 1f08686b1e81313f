//! Names parallel loops. The name is the first of these that is known:
//!
//! 1. the chain of calls, or the directive, in the source;
//! 2. the adaptors through which the loop is driven, with its method;
//! 3. the method.
//!
//! Where several loops of one line have one name, the column of the call is part of it.

use crate::model::contexts::{ContextIndex, ContextTree};
use crate::model::loops::{LoopIndex, ParallelLoops};
use crate::model::symbols::{Kind, Line, Symbols};
use crate::passes::parallel_loops::rayon::{self, last_part};
use crate::passes::parallel_loops::{openmp, tbb};
use crate::sources::source_text::SourceFiles;
use std::collections::BTreeMap;

pub fn name(loops: &mut ParallelLoops, symbols: &Symbols, tree: &ContextTree) {
    let mut files = SourceFiles::default();
    let mut chains = adaptor_chains(loops, symbols, tree);
    let bodies = bodies(loops, symbols, tree);
    for (index, (key, known)) in (0..).zip(&mut loops.all) {
        let entry = symbols.name_of(key.entry);
        let module = symbols.procedure(key.entry).module.map(|m| symbols.module(m).path.as_str());
        if openmp::is_outlined(entry) {
            let body = bodies.get(&LoopIndex(index)).copied();
            let body = body.filter(|body| key.call.is_some_and(|call| call.file == body.file));
            let mut places = key.call.into_iter().chain(body);
            let found =
                places.find_map(|at| files.directive(module, (symbols.text(at.file), at.line), "omp "));
            known.name_from_source = found.is_some();
            let (name, line) = found.unzip();
            known.name = name.unwrap_or_else(|| entry.to_owned());
            known.line = line;
            continue;
        }
        if tbb::is_library(entry) {
            known.name = tbb::written(entry);
            continue;
        }
        if !rayon::is_library(entry) {
            continue;
        }
        let method = last_part(entry);
        let found = key.call.and_then(|line| {
            let place = (symbols.text(line.file), line.line, key.column);
            files.call_chain(module, place, method, rayon::SOURCE_STARTS)
        });
        known.name_from_source = found.is_some();
        let has_twin = found.as_ref().is_none_or(|found| found.has_twin);
        known.name = match (found, chains.remove(&LoopIndex(index))) {
            (Some(found), _) => found.chain,
            (None, Some(chain)) => format!("{}.{method}", chain.join(".")),
            // Without a call of the program's the method alone says nothing.
            (None, None) if key.call.is_none() || entry.contains("::plumbing::") => entry.to_owned(),
            (None, None) => method.to_owned(),
        };
        if key.column > 0 && has_twin {
            known.name += &format!(" at column {}", key.column);
        }
    }
}

/// Where the bodies of directives begin: a call of the runtime in inlined code may have the line of something
/// else (GCC).
fn bodies(loops: &ParallelLoops, symbols: &Symbols, tree: &ContextTree) -> BTreeMap<LoopIndex, Line> {
    let frames = loops.frames.iter().filter_map(|(context, index)| {
        let body = tree.scope(*context).procedure;
        let declared = symbols.procedure(body).declared?;
        symbols.name_of(body).contains("._omp_fn.").then_some((*index, declared))
    });
    frames.collect()
}

/// For each loop the adaptors through which it is driven, innermost (first applied) first; the
/// longest chain that was seen.
fn adaptor_chains(
    loops: &ParallelLoops,
    symbols: &Symbols,
    tree: &ContextTree,
) -> BTreeMap<LoopIndex, Vec<String>> {
    let mut longest: BTreeMap<LoopIndex, Vec<String>> = BTreeMap::new();
    for (context, index) in &loops.frames {
        let part = |at: ContextIndex| {
            let context = tree.scope(at);
            let adaptor = rayon::adaptor(symbols.name_of(context.procedure));
            adaptor.filter(|_| context.kind != Kind::Line)
        };
        if part(*context).is_none() {
            continue;
        }
        let parent = |at: &ContextIndex| tree.parent(*at);
        let path = std::iter::successors(Some(*context), parent);
        let frames = path.take_while(|at| loops.frames.get(at) == Some(index));
        let mut chain: Vec<String> = frames.filter_map(part).collect();
        // An indexed adaptor shows up by two methods, one around the other.
        chain.dedup();
        let known = longest.entry(*index).or_default();
        if (chain.len(), &*known) > (known.len(), &chain) {
            *known = chain;
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_the_last_part_of_a_path() {
        for (name, method) in [
            ("rayon::iter::ParallelIterator::sum", "sum"),
            ("rayon::iter::ParallelIterator::sum::<a::B<u8>>", "sum"),
            ("<[T] as rayon::slice::ParallelSliceMut<T>>::par_sort", "par_sort"),
            (
                "rayon::iter::<impl rayon::iter::ParallelExtend<T> for alloc::vec::Vec<T>>::par_extend",
                "par_extend",
            ),
            ("a::b::<fn(c::D) -> e::F<g::H>>", "b"),
            ("<a::B as c::D>::e::<f::G>", "e"),
            ("sum", "sum"),
        ] {
            assert_eq!(last_part(name), method);
        }
    }
}
