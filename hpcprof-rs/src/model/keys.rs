//! Stable keys: what tells a context or a run apart in every database, whatever the build or the machine.

use crate::model::code::{Code, Procedure};
use crate::model::hash::{FastMap, FastSet};
use crate::model::symbols::{Kind, base_name};
use crate::model::tree::TreeNode;

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

/// The keys of all contexts of a tree (MODEL.md: a context has a stable key): a hash of the path of qualified
/// names with their files, without lines. Loops count within their parent, in the order of the tree.
pub fn contexts(nodes: impl ExactSizeIterator<Item = TreeNode>, code: &Code) -> Vec<i64> {
    let own: Vec<u64> = code.procedures.iter().map(|p| procedure(p, code)).collect();
    let mut keys: Vec<i64> = Vec::with_capacity(nodes.len());
    // Siblings with the same name have the same key at first: how many more there are.
    let mut known: FastSet<u64> = FastSet::default();
    let mut twins: FastMap<u64, u64> = FastMap::default();
    for node in nodes {
        let above = node.parent.map_or(0, |p| keys[p as usize]);
        if node.kind == Kind::Line {
            keys.push(above);
            continue;
        }
        let name = match (node.kind, node.parallel_loop) {
            (Kind::Loop, _) => StableHash::default().with(b"loop").0,
            (Kind::ParallelLoop, Some(index)) => {
                StableHash::default().with(code.parallel_loop(index).name.as_bytes()).0
            }
            _ => own[node.procedure as usize],
        };
        let key = StableHash(above as u64).with(&name.to_le_bytes());
        let key = if known.insert(key.0) {
            key
        } else {
            let twin = twins.entry(key.0).or_default();
            *twin += 1;
            key.with(&twin.to_le_bytes())
        };
        keys.push(key.0 as i64);
    }
    keys
}

fn procedure(procedure: &Procedure, code: &Code) -> u64 {
    let file = procedure.declared.map_or("", |at| relative(code.file(at.file)));
    let module = match procedure.declared {
        Some(_) => "",
        None => code.module_of(procedure).map_or("", base_name),
    };
    let hash = StableHash::default().with(procedure.name.as_bytes());
    hash.with(file.as_bytes()).with(module.as_bytes()).0
}

/// A source file's path within its crate or package: from the last `src` on, else its last two components.
fn relative(path: &str) -> &str {
    if let Some(at) = path.rfind("/src/") {
        return &path[at + 1..];
    }
    let mut slashes = path.rmatch_indices('/').map(|(at, _)| at);
    slashes.nth(1).map_or(path, |at| &path[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_depend_on_where_a_package_lies() {
        for (path, inner) in [
            ("/users/a/.cargo/registry/src/index-1f/serde-1.0.1/src/de/mod.rs", "src/de/mod.rs"),
            ("/somewhere/app/src/main.rs", "src/main.rs"),
            ("/build/glibc-2.36/nptl/pthread_create.c", "nptl/pthread_create.c"),
            ("main.c", "main.c"),
            ("/main.c", "/main.c"),
        ] {
            assert_eq!(relative(path), inner);
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
