//! Stable keys: what tells a context or a run apart in every database, whatever the build or the machine.

use crate::model::code::{Code, Procedure};
use crate::model::tree::{Label, TreeNode};
use hpc_formats::structure::Origin;

/// The 64-bit FNV-1a hash, which is the same in every version and on every machine.
#[derive(Clone, Copy, Debug)]
pub struct StableHash(pub u64);

impl Default for StableHash {
    fn default() -> Self {
        StableHash(0xcbf2_9ce4_8422_2325)
    }
}

impl StableHash {
    /// Goes on with bytes and an end mark.
    pub fn with(self, bytes: &[u8]) -> StableHash {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        StableHash(step(bytes.iter().fold(self.0, step), &0xff))
    }
}

/// The keys of all contexts of a tree (FORMATS.md: order and keys).
///
/// A key is a hash of the path of the user's procedures and of the context's own name. What a compiler, a
/// library or a change elsewhere decides has no part in it: lines, files, frames of the system and of
/// runtimes further out, loops around a call. A loop counts by its position in its procedure, sampled or
/// not. Contexts that differ in nothing else have one key.
pub fn contexts(nodes: impl ExactSizeIterator<Item = TreeNode>, code: &Code) -> Vec<i64> {
    let hash = |p: &Procedure| of_name(&p.name);
    let names: Vec<u64> = code.procedures.iter().map(hash).collect();
    // By context: its key, and that of the nearest procedure of the user's at or around it.
    let mut keys: Vec<(i64, u64)> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let (above, path) = node.parent.map_or((0, 0), |p| keys[p as usize]);
        let is_user = node.label.origin(code) == Origin::User;
        let named = |name: u64| StableHash(path).with(&name.to_le_bytes()).0;
        let own = match node.label {
            Label::Procedure(p) | Label::Inlined(p) => named(names[p as usize]),
            Label::Partial(r) => named(hash(&code.regions[r as usize])),
            Label::Loop(r) => {
                let around = if is_user { path } else { above as u64 };
                let position = code.regions[r as usize].position;
                StableHash(around).with(b"loop").with(&position.to_le_bytes()).0
            }
            Label::ParallelLoop(l) => {
                named(StableHash::default().with(code.parallel_loop(l).name.as_bytes()).0)
            }
            _ => above as u64,
        };
        let is_code = matches!(node.label, Label::Procedure(_) | Label::Inlined(_) | Label::Partial(_));
        keys.push((own as i64, if is_user && is_code { own } else { path }));
    }
    keys.into_iter().map(|(key, _)| key).collect()
}

pub fn of_name(name: &str) -> u64 {
    StableHash::default().with(plain(name).as_bytes()).0
}

/// A procedure's name without what compilers and linkers add to that of a part or a copy of it.
fn plain(name: &str) -> &str {
    const MARKS: [&str; 7] = ["@", ".cold", ".constprop.", ".isra.", ".llvm.", ".lto_priv.", ".part."];
    let cuts = MARKS.iter().filter_map(|mark| name.find(mark));
    cuts.filter(|at| *at > 0).min().map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_procedure_has_its_name() {
        for (name, known) in [
            ("scale.constprop.0.isra.0", "scale"),
            ("pthread_create@@GLIBC_2.34", "pthread_create"),
            ("app::main::{closure#0}", "app::main::{closure#0}"),
            ("a::<&dyn b::C>.llvm.123", "a::<&dyn b::C>"),
            ("@", "@"),
        ] {
            assert_eq!(plain(name), known);
        }
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // FNV-1a of "a", then the end mark.
        let a = 0xaf63_dc4c_8601_ec8c_u64;
        let end = (a ^ 0xff).wrapping_mul(0x100_0000_01b3);
        assert_eq!(StableHash::default().with(b"a").0, end);
    }
}
