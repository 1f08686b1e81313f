//! Names parallel loops: by the chain of calls in the source, where the file can be read, else by
//! the types of the adaptors through which the loop is driven. Where that leaves several loops of one line
//! with one name, the column of the call is part of it.

use crate::model::contexts::{ContextIndex, ContextTree};
use crate::model::loops::{LoopIndex, ParallelLoops};
use crate::model::symbols::{Kind, Symbols};
use crate::sources::source_text::SourceFiles;
use std::collections::BTreeMap;

/// Gives every loop its name.
pub fn name(loops: &mut ParallelLoops, symbols: &Symbols, tree: &ContextTree) {
    let mut files = SourceFiles::default();
    let chains = adaptor_chains(loops, symbols, tree);
    for index in 0..loops.all.len() {
        let key = loops.all[index].key;
        let entry = symbols.text(symbols.procedures[key.entry.0 as usize].name);
        let method = last_part(entry);
        let quoted = key.call.and_then(|line| {
            let path = symbols.text(line.file);
            files.call_chain(path, (line.line, key.column), method)
        });
        let known = &mut loops.all[index];
        known.quoted = quoted.is_some();
        let has_twin = quoted.as_ref().is_none_or(|quoted| quoted.has_twin);
        let chain = quoted.map(|quoted| quoted.chain);
        known.name = chain.unwrap_or_else(|| match chains.get(&LoopIndex(index as u32)) {
            Some(chain) => format!("{}.{method}", chain.join(".")),
            // Without a call of the program's the method alone says nothing.
            None if key.call.is_none() || entry.contains("::plumbing::") => entry.to_owned(),
            None => method.to_owned(),
        });
        if key.column > 0 && has_twin {
            known.name += &format!(" at column {}", key.column);
        }
    }
}

/// The last component of a name's path, without generic arguments.
fn last_part(name: &str) -> &str {
    let mut parts = parts(name);
    let last = parts.next().unwrap_or(name);
    match last.starts_with('<') {
        true => parts.next().unwrap_or(last),
        false => last,
    }
}

/// The components of a path, the last one first; generic arguments and `<impl A for B>` are one each.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(name);
    std::iter::from_fn(move || {
        let path = rest?;
        let bytes = path.as_bytes();
        let mut depth = 0_usize;
        let start = (0..bytes.len()).rev().find(|&at| {
            // The arrow of a function type closes nothing.
            let is_arrow = at > 0 && matches!(bytes[at - 1], b'-' | b'=');
            match bytes[at] {
                b'>' if !is_arrow => depth += 1,
                b'<' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && at > 0 && bytes[at - 1..=at] == *b"::"
        });
        rest = start.map(|at| &path[..at - 1]);
        Some(start.map_or(path, |at| &path[at + 1..]))
    })
}

/// For each loop the adaptors through which it is driven, innermost (first applied) first; the
/// longest chain that was seen.
fn adaptor_chains(
    loops: &ParallelLoops,
    symbols: &Symbols,
    tree: &ContextTree,
) -> BTreeMap<LoopIndex, Vec<String>> {
    let mut longest: BTreeMap<LoopIndex, Vec<String>> = BTreeMap::new();
    for (context, index) in &loops.machinery {
        let procedure = tree.contexts[context.0 as usize].procedure;
        let name = symbols.text(symbols.procedures[procedure.0 as usize].name);
        if adaptor(name).is_none() {
            continue;
        }
        let chain = chain_above(*context, *index, loops, symbols, tree);
        let known = longest.entry(*index).or_default();
        if (chain.len(), &*known) > (known.len(), &chain) {
            *known = chain;
        }
    }
    longest
}

fn chain_above(
    from: ContextIndex,
    index: LoopIndex,
    loops: &ParallelLoops,
    symbols: &Symbols,
    tree: &ContextTree,
) -> Vec<String> {
    let mut chain: Vec<String> = Vec::new();
    let mut next = Some(from);
    while let Some(at) = next.filter(|at| loops.machinery.get(at) == Some(&index)) {
        let context = &tree.contexts[at.0 as usize];
        let name = symbols.text(symbols.procedures[context.procedure.0 as usize].name);
        if let Some(part) = adaptor(name).filter(|_| context.kind != Kind::Line) {
            // An indexed adaptor shows up by two methods, one around the other.
            if chain.last() != Some(&part) {
                chain.push(part);
            }
        }
        next = context.parent;
    }
    chain
}

/// `map` of `<rayon::iter::map::Map<I,F> as rayon::iter::ParallelIterator>::drive_unindexed`, and
/// `slice::Iter` of the iterator over a slice.
fn adaptor(name: &str) -> Option<String> {
    let drives = [">::drive_unindexed", ">::drive", ">::with_producer"];
    drives.iter().find(|method| name.ends_with(*method))?;
    let (own, _) = name.strip_prefix('<')?.split_once(" as ")?;
    let path = own.split('<').next()?.trim_start_matches(['&', ' ']);
    let path = path.trim_start_matches("mut ");
    let inside = path.strip_prefix("rayon::").unwrap_or(path);
    let Some(adaptor) = inside.strip_prefix("iter::") else {
        return Some(inside.to_owned());
    };
    if last_part(adaptor) == "IterBridge" {
        return Some("par_bridge".to_owned());
    }
    let mut out = String::new();
    for c in last_part(adaptor).chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptors_are_named_as_their_methods() {
        let of = |own: &str| {
            adaptor(&format!(
                "<{own} as rayon::iter::ParallelIterator>::drive_unindexed"
            ))
        };
        for (own, name) in [
            ("rayon::iter::filter_map::FilterMap<P,F>", "filter_map"),
            ("rayon::iter::par_bridge::IterBridge<I>", "par_bridge"),
            ("rayon::slice::Iter<T>", "slice::Iter"),
            ("rayon::range::Iter<u64>", "range::Iter"),
            ("app::Mine<T>", "app::Mine"),
        ] {
            assert_eq!(of(own).as_deref(), Some(name));
        }
        assert_eq!(adaptor("rayon::iter::ParallelIterator::sum"), None);
    }

    #[test]
    fn methods_are_the_last_part_of_a_path() {
        for (name, method) in [
            ("rayon::iter::ParallelIterator::sum", "sum"),
            ("rayon::iter::ParallelIterator::sum::<a::B<u8>>", "sum"),
            (
                "<[T] as rayon::slice::ParallelSliceMut<T>>::par_sort",
                "par_sort",
            ),
            (
                "rayon::iter::extend::<impl rayon::iter::ParallelExtend<T> for alloc::vec::Vec<T>>::par_extend",
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
