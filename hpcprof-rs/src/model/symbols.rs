//! Names of code: load modules, procedures, and what each sampled address means in the source.
//!
//! Every text is held once. Identities are plain values: two procedures are one when name,
//! module, declaration and origin are equal, whatever address or inlining they came from.

use crate::model::hash::NumberedSet;
use hpc_formats::numbered;
use hpc_formats::process::Stamp;
use hpc_formats::structure::Origin;
use hpcstruct_rs::known::origin_of_module;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A text in [`Symbols`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Text(pub u32);

/// Index into [`Symbols::modules`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleIndex(pub u32);

/// Index into [`Symbols::procedures`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcedureIndex(pub u32);

/// Index into [`Symbols::frames`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FrameIndex(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Line {
    pub file: Text,
    /// Line, from 1.
    pub line: u32,
}

/// The module of code that lies in no file: generated code. Its addresses are those of one process.
pub const GENERATED: &str = "[generated code]";

/// A load module: one file, whichever processes mapped it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Module {
    /// Path, or `[vdso]`.
    pub path: String,
    /// GNU build id; empty when there is none.
    pub build_id: Vec<u8>,
    /// Its file when it was mapped, which tells it from others of that path that have no build id either.
    pub stamp: Stamp,
}

impl Module {
    pub fn base_name(&self) -> &str {
        base_name(&self.path)
    }
}

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A procedure, a loop or another named piece of code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Procedure {
    /// Qualified, readable name.
    pub name: Text,
    /// Its module; `None` for what is no code (a partial root).
    pub module: Option<ModuleIndex>,
    pub declared: Option<Line>,
    pub origin: Origin,
    /// Position of a loop among those of its procedure, sampled or not; else 0.
    pub position: u32,
}

numbered! {
    /// What a [`FrameScope`], a context or a node of a view stands for.
    Kind {
        /// A procedure with a frame of its own.
        Procedure = 1, "procedure";
        /// A procedure inlined in its parent.
        Inlined = 2, "inlined";
        Loop = 3, "loop";
        Line = 4, "line";
        /// The root of paths whose outer part is missing.
        Partial = 5, "partial";
        /// A parallel loop, which stands for its frames. Of folded trees only.
        ParallelLoop = 6, "parallel-loop";
        /// A load module. Of views only, as those that follow.
        Module = 7, "module";
        File = 8, "file";
        /// Contexts that are left out.
        Pruned = 9, "pruned";
    }
}

/// One static scope of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameScope {
    /// [`Kind::Procedure`] first, then inlined procedures and loops.
    pub kind: Kind,
    pub procedure: ProcedureIndex,
    /// Where an inlined procedure is called.
    pub call: Option<Line>,
    /// Column of that call, where it tells parallel loops of one line apart; else 0.
    pub column: u32,
}

/// What one code address means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Outermost scope first; never empty.
    pub scopes: Box<[FrameScope]>,
    /// Line of the instruction itself.
    pub line: Option<Line>,
    /// Column of the instruction's call, where it tells parallel loops of one line apart; else 0.
    pub column: u32,
    /// Overhead category of the instruction.
    pub tag: Option<Text>,
    /// Number of its machine procedure in the module's structure: two instances of one generic
    /// procedure differ in it.
    pub function: Option<u32>,
    /// Whether all its scopes are system code, which a tagged call covers.
    pub is_system: bool,
    /// What stands for the region or task of OpenMP that a call here makes.
    pub directive: Option<ProcedureIndex>,
}

#[derive(Debug, Default)]
pub struct Symbols {
    texts: NumberedSet<String>,
    pub modules: NumberedSet<Module>,
    /// Copies of the files that have gone since the measurement.
    pub copies: BTreeMap<ModuleIndex, PathBuf>,
    /// Those whose structure is known. Samples in others stay under the module's name.
    pub analysed: BTreeSet<ModuleIndex>,
    pub procedures: NumberedSet<Procedure>,
    /// Meanings of addresses.
    pub frames: Vec<Frame>,
}

impl Symbols {
    pub fn intern(&mut self, text: &str) -> Text {
        let known = self.texts.get_index_of(text);
        Text(known.unwrap_or_else(|| self.texts.insert_full(text.to_owned()).0) as u32)
    }

    pub fn find_text(&self, text: &str) -> Option<Text> {
        self.texts.get_index_of(text).map(|index| Text(index as u32))
    }

    pub fn find_procedure(&self, procedure: &Procedure) -> Option<ProcedureIndex> {
        let index = self.procedures.get_index_of(procedure);
        index.map(|index| ProcedureIndex(index as u32))
    }

    pub fn text(&self, id: Text) -> &str {
        self.texts.get_index(id.0 as usize).map_or("", String::as_str)
    }

    pub fn module(&self, id: ModuleIndex) -> &Module {
        &self.modules[id.0 as usize]
    }

    pub fn procedure(&self, id: ProcedureIndex) -> &Procedure {
        &self.procedures[id.0 as usize]
    }

    pub fn name_of(&self, id: ProcedureIndex) -> &str {
        self.text(self.procedure(id).name)
    }

    pub fn frame(&self, id: FrameIndex) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// The machine procedure of a frame: its module, and its number there.
    pub fn function_of(&self, id: FrameIndex) -> Option<(ModuleIndex, u32)> {
        let frame = self.frame(id);
        let module = self.procedure(frame.scopes.first()?.procedure).module?;
        Some((module, frame.function?))
    }

    /// The id of a module, which is new where path or build id differ, without one the file's stamp.
    pub fn add_module(&mut self, path: &str, build_id: &[u8], stamp: Stamp) -> ModuleIndex {
        let stamp = if build_id.is_empty() { stamp } else { Stamp::default() };
        let module = Module { path: path.to_owned(), build_id: build_id.to_vec(), stamp };
        ModuleIndex(self.modules.insert_full(module).0 as u32)
    }

    pub fn add_procedure(&mut self, procedure: Procedure) -> ProcedureIndex {
        ProcedureIndex(self.procedures.insert_full(procedure).0 as u32)
    }

    pub fn add_frame(&mut self, frame: Frame) -> FrameIndex {
        let id = FrameIndex(self.frames.len() as u32);
        self.frames.push(frame);
        id
    }

    /// The frame that stands for all code of a module without structure.
    pub fn module_frame(&mut self, module: ModuleIndex) -> Frame {
        let base = self.module(module).base_name();
        let origin = origin_of_module(base).unwrap_or(Origin::User);
        let name = match base.starts_with('[') {
            true => base.to_owned(),
            false => format!("[{base}]"),
        };
        let name = self.intern(&name);
        let procedure =
            self.add_procedure(Procedure { name, module: Some(module), declared: None, origin, position: 0 });
        let scope = FrameScope { kind: Kind::Procedure, procedure, call: None, column: 0 };
        Frame {
            scopes: Box::new([scope]),
            line: None,
            column: 0,
            tag: None,
            function: None,
            is_system: origin == Origin::System,
            directive: None,
        }
    }
}
