//! The program that synthetic runs pretend to have run: its calling context tree and its structure file.
//!
//! A procedure calls only those of the next layer, so no path recurses. Each code place has a line of its
//! own, so different call paths are different contexts.

use fastrand::Rng;
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId,
    Structure,
};
use std::collections::HashMap;

/// Path of its executable.
pub(crate) const EXECUTABLE: &str = "/opt/synthetic/app";
/// Build id of its executable.
pub(crate) const BUILD_ID: [u8; 4] = *b"synt";
/// The id of its only module.
pub(crate) const MODULE: ModuleId = ModuleId(1);
/// Overhead category of its tagged code.
const TAG: &str = "sync";

/// Code places of a procedure.
const PLACES: u32 = 8;
/// Bytes between two places.
const PLACE_BYTES: u32 = 16;
/// Addresses below are no code.
const FIRST_ADDRESS: u32 = 0x1000;
/// Path lengths differ by so much from the wanted depth, either way.
const DEPTH_SPREAD: u32 = 5;
/// The heaviest context has so many times the weight of the lightest at most.
const MOST_WEIGHT: u32 = 1 << 20;

/// A calling context: a code place in the context of its caller's.
pub(crate) struct Context {
    /// The caller's context, an earlier one; its own for the first, which is `main`.
    pub(crate) parent: u32,
    /// Its code place.
    pub(crate) address: CodeAddress,
    /// Its part of the samples, relative to others'. The k-th heaviest has about 1/k of the heaviest.
    pub(crate) weight: u32,
}

/// The layers of procedures: how many, and procedures in each.
#[derive(Clone, Copy)]
struct Layers {
    count: u32,
    width: u32,
}

/// Contexts, callers first.
pub(crate) struct Program {
    pub(crate) contexts: Vec<Context>,
    layers: Layers,
}

impl Program {
    /// A program with so many contexts and about so many procedures, and paths of about the given depth.
    pub(crate) fn new(contexts: u32, depth: u32, procedures: u32, random: &mut Rng) -> Program {
        let count = depth + DEPTH_SPREAD + 1;
        let layers = Layers { count, width: procedures.div_ceil(count) };
        let mut tree = Growth::new(layers, random);
        while tree.contexts.len() < contexts as usize {
            tree.add_path(depth, contexts as usize);
        }
        Program { contexts: tree.contexts, layers }
    }

    /// The overhead category of a context's own cost is [`TAG`]: the last place of some procedures.
    pub(crate) fn is_overhead(context: &Context) -> bool {
        let place = (context.address.offset() as u32 - FIRST_ADDRESS) / PLACE_BYTES;
        is_tagged(place)
    }

    /// Names, lines and scopes of all procedures.
    pub(crate) fn structure(&self) -> Structure {
        let mut structure = Structure {
            module: EXECUTABLE.to_owned(),
            build_id: BUILD_ID.to_vec(),
            complete: true,
            ..Structure::default()
        };
        let mut text = |text: String| {
            structure.strings.push(text);
            StringId(structure.strings.len() as u32 - 1)
        };
        let tag = text(TAG.to_owned());
        let helper = text("app::helper".to_owned());
        let layers = (0..self.layers.count).map(|layer| text(format!("/src/app/layer{layer}.rs")));
        let files: Vec<StringId> = layers.collect();
        let count = self.layers.count * self.layers.width;
        let names: Vec<StringId> = (0..count)
            .map(|id| {
                let (layer, index) = (id / self.layers.width, id % self.layers.width);
                text(match id {
                    0 => "app::main".to_owned(),
                    _ => format!("app::layer{layer}::procedure{index}"),
                })
            })
            .collect();
        for id in 0..count {
            let file = files[(id / self.layers.width) as usize];
            let first_line = 1 + id % self.layers.width * (PLACES + 2);
            let line = |line| Some(SourceLine { file, line });
            structure.procedures.push(Procedure {
                name: names[id as usize],
                linkage_name: names[id as usize],
                declared: line(first_line),
                origin: Origin::User,
                tag: None,
            });
            // The second half of every third procedure is inlined into it.
            let scope = (id % 3 == 1).then(|| {
                structure.scopes.push(Scope {
                    kind: ScopeKind::Inlined,
                    procedure: ProcedureId(id),
                    parent: None,
                    name: helper,
                    declared: line(first_line + PLACES / 2),
                    site: line(first_line + 1),
                    origin: Origin::User,
                });
                ScopeId(structure.scopes.len() as u32 - 1)
            });
            for place in 0..PLACES {
                let start = address(id, place).offset();
                structure.spans.push(Span {
                    start,
                    end: start + u64::from(PLACE_BYTES),
                    procedure: ProcedureId(id),
                    scope: scope.filter(|_| place >= PLACES / 2),
                    line: line(first_line + 1 + place),
                    tag: is_tagged(id * PLACES + place).then_some(tag),
                });
            }
        }
        structure
    }
}

fn address(procedure: u32, place: u32) -> CodeAddress {
    let offset = FIRST_ADDRESS + (procedure * PLACES + place) * PLACE_BYTES;
    CodeAddress::new(MODULE, u64::from(offset))
}

fn is_tagged(place: u32) -> bool {
    place % (10 * PLACES) == PLACES - 1
}

/// A calling context tree that grows path by path.
struct Growth<'a> {
    contexts: Vec<Context>,
    children: Vec<Vec<u32>>,
    /// The context of a parent and a code place.
    known: HashMap<(u32, CodeAddress), u32>,
    layers: Layers,
    random: &'a mut Rng,
}

impl<'a> Growth<'a> {
    fn new(layers: Layers, random: &'a mut Rng) -> Self {
        let mut growth = Growth {
            contexts: Vec::new(),
            children: Vec::new(),
            known: HashMap::new(),
            layers,
            random,
        };
        growth.push(0, address(0, 0));
        growth
    }

    fn push(&mut self, parent: u32, address: CodeAddress) -> u32 {
        let fraction = 1.0 - self.random.f64();
        self.contexts.push(Context {
            parent,
            address,
            weight: ((1.0 / fraction) as u32).min(MOST_WEIGHT),
        });
        self.children.push(Vec::new());
        self.contexts.len() as u32 - 1
    }

    /// Adds a path of about the given depth, which shares its outer part with others.
    fn add_path(&mut self, depth: u32, most: usize) {
        let low = depth.saturating_sub(DEPTH_SPREAD).max(1);
        let last = self.random.u32(low..=depth + DEPTH_SPREAD);
        let mut at = 0;
        for layer in 1..=last {
            let known = &self.children[at as usize];
            let follows = !known.is_empty() && self.random.u32(..12) > 0;
            at = if follows {
                // Earlier children are on more paths.
                let skewed = self.random.f64().powi(2) * known.len() as f64;
                known[skewed as usize]
            } else {
                self.call(at, layer)
            };
            if self.contexts.len() == most {
                return;
            }
        }
    }

    /// A child of `parent`: a new one, unless the place that chance chooses is known.
    fn call(&mut self, parent: u32, layer: u32) -> u32 {
        let caller = self.contexts[parent as usize].address.offset() / u64::from(PLACE_BYTES);
        // Most call places have one callee.
        let alternative = self.random.u64(..8).saturating_sub(5);
        let mixed = (caller * 4 + alternative).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let callee = layer * self.layers.width + (mixed % u64::from(self.layers.width)) as u32;
        let address = address(callee, self.random.u32(..PLACES));
        if let Some(known) = self.known.get(&(parent, address)) {
            return *known;
        }
        let id = self.push(parent, address);
        self.known.insert((parent, address), id);
        self.children[parent as usize].push(id);
        id
    }
}
