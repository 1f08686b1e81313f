//! Recovers the structure of load modules: procedures, inlined scopes, loops, source lines and
//! overhead tags.
//!
//! `analyse_in` wires the rooms, which ARCHITECTURE.md lists in the order of the passes.
//!
//! Invariants: bad input is a typed error or a note, never a panic; the result does not depend on
//! the number of threads.

#![deny(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod base;
pub mod cache;
pub mod code;
mod code_map;
pub mod command;
mod dwarf;
mod input;
pub mod known;
mod loops;
mod names;
mod output;
mod overhead;
mod structure;
mod symbols;
mod unit_analysis;

pub use base::error::StructError;
pub use base::parallel;
pub use base::progress::Progress;
pub use hpc_formats::structure::Structure;
pub use input::{measurements, sigbus};
pub use names::rust_source;
pub use output::{inlined, text};
pub use overhead::rules::Rules;
pub use structure::assemble::TagUse;

use code::disasm::loaded_image::LoadedImage;
use code::undescribed;
use code_map::CodeMap;
use dwarf::split_dwarf as split;
use hpc_formats::structure::{Columns, Origin};
use input::address_filter::AddressFilter;
use input::file_bytes::FileBytes;
use input::image::Image;
use input::{debug_file, vdso};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use structure::assemble::{self, Assembled};
use structure::columns;
use symbols::Symbols;
use symbols::go_table::GoTable;
use symbols::unwind_table::Unwind;
use unit_analysis::Inputs;
use unit_analysis::classify::Classifier;

/// What to analyse, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses, as the module states them, whose procedures are wanted; `None` = all.
    pub addresses: Option<Vec<u64>>,
    /// Whether loops are wanted, and the columns of calls that begin parallel ones.
    pub loops: bool,
    /// Which procedures, modules and files are overhead.
    pub rules: Rules,
    /// Threads to use; 0 counts as 1.
    pub threads: usize,
    /// Folders with separate debug files, searched in order.
    pub debug_directories: Vec<PathBuf>,
    /// Where to say how far the analysis is.
    pub progress: Option<Arc<Progress>>,
}

/// A structure, and what else the analysis found.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The structure.
    pub structure: Structure,
    /// Which marks and rules tagged how much code, by category.
    pub tags: Vec<TagUse>,
    /// Whether the same files give the same answer later: no file that could add to it was missing.
    pub cacheable: bool,
}

impl Default for Options {
    /// All procedures with their loops, the built-in rules, a thread per core, `/usr/lib/debug`.
    fn default() -> Self {
        Options {
            addresses: None,
            loops: true,
            rules: Rules::built_in(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            progress: None,
        }
    }
}

/// Analyses the load module at `path`; `[vdso]` is the vdso of the running kernel.
///
/// # Errors
/// The file cannot be read, is not ELF, is truncated or corrupt in its headers, or is no load
/// module. Damage elsewhere is a note of the structure.
pub fn analyse(path: &Path, options: &Options) -> Result<Structure, StructError> {
    analyse_fully(path, options).map(|analysis| analysis.structure)
}

/// As [`analyse`], with what else the analysis found.
///
/// # Errors
/// As [`analyse`].
pub fn analyse_fully(path: &Path, options: &Options) -> Result<Analysis, StructError> {
    if path.as_os_str() == vdso::NAME {
        let bytes = vdso::read().map_err(StructError::reading(path))?;
        return analyse_in(path, &bytes, false, options).map(Unfinished::finish);
    }
    let bytes = FileBytes::open(path)?;
    let analysis = analyse_in(path, bytes.as_slice(), true, options);
    // First: a change explains all other errors.
    bytes.check_unchanged()?;
    drop(bytes);
    analysis.map(Unfinished::finish)
}

/// Analyses a load module in memory (the vdso), which `name` names.
///
/// # Errors
/// As [`analyse`], except that nothing is read from files.
pub fn analyse_bytes(name: &str, data: &[u8], options: &Options) -> Result<Structure, StructError> {
    analyse_in(Path::new(name), data, false, options).map(|found| found.finish().structure)
}

/// The loops of every procedure of the load module at `path`, by entry, as the machine code has
/// them; a symbol or an unwind entry makes a procedure. Debug information is not looked at.
///
/// # Errors
/// As [`analyse`].
pub fn loops(path: &Path, threads: usize) -> Result<Vec<code::ProcedureLoops>, StructError> {
    let bytes = FileBytes::open(path)?;
    let image = Image::parse(path, bytes.as_slice())?;
    let mut unwind = Unwind::read(&image);
    let memory = LoadedImage::new(&image.file);
    let mut symbols = symbols::candidates(&[&image]).choose(&image, &unwind.ranges);
    undescribed::bound(&image, &memory, &mut symbols, &mut unwind, threads);
    Ok(loops::of_image(&loops::Sources {
        image: &image,
        memory: &memory,
        symbols: &symbols,
        unwind: &unwind,
        threads,
    }))
}

/// Analyses the module `path` with these bytes. `is_file`: other files may lie beside it.
fn analyse_in(path: &Path, data: &[u8], is_file: bool, options: &Options) -> Result<Unfinished, StructError> {
    let image = Image::parse(path, data)?;
    let mut notes = Vec::new();
    let threads = options.threads.max(1);
    let wanted = AddressFilter::new(options.addresses.as_deref());
    let folders = is_file.then_some(options.debug_directories.as_slice());
    let files = debug_file::open(&image, path, folders, &mut notes);
    let parsed = files.parse();
    let with_entries = parsed.with_entries(&image);
    let sections = dwarf::load(&with_entries, threads, &mut notes);
    let endian = image.endian();
    let images = parsed.with_symbols(&image);
    let ((mut debug, found), ((mut unwind, memory), candidates)) = parallel::both(
        threads,
        || {
            let mut found = Vec::new();
            let debug = dwarf::Debug::new(&sections, endian, threads, &mut found);
            (debug, found)
        },
        || {
            parallel::both(
                threads,
                || (Unwind::read(&image), LoadedImage::new(&image.file)),
                || symbols::candidates(&images),
            )
        },
    );
    notes.extend(found);
    let split_files = folders.map(|folders| {
        let search = split::Search { files: &[path, parsed.path().unwrap_or(path)], folders };
        let mut skeletons = debug.skeletons();
        skeletons.retain(|skeleton| may_have(&debug, &wanted, skeleton.unit));
        split::open(skeletons, search)
    });
    let split_sections = split_files.as_ref().map(|f| split::load(f, threads, &mut notes));
    if let Some(sections) = &split_sections {
        split::attach(&mut debug, sections, endian, &mut notes);
    }
    let cacheable = is_file && notes.is_empty();
    notes.extend(what_is_missing_of_code(&image));
    let go = GoTable::read(&image, |address| memory.pointer(address));
    let candidates = candidates.with_go(go.iter().flat_map(GoTable::functions));
    let mut symbols = candidates.choose(&image, &unwind.ranges);
    undescribed::bound(&image, &memory, &mut symbols, &mut unwind, threads);
    let classifier = Classifier::new(&path.to_string_lossy(), &options.rules);
    // Users do not rebuild the system's libraries.
    if classifier.module.origin != Some(Origin::System) && go.is_none() {
        notes.extend(what_is_missing(&debug, &symbols));
    }
    let inputs = Inputs {
        image: &image,
        debug: &debug,
        symbols: &symbols,
        classifier: &classifier,
        wanted: &wanted,
        threads,
    };
    let mut products = products(&inputs, options.progress.as_deref());
    let go = go.filter(|_| debug.is_empty());
    products.extend(go.map(|table| unit_analysis::lines_of_go(&inputs, &table)));
    notes.extend(products.iter().flat_map(|p| p.notes.iter().cloned()));
    let code_map = CodeMap::new(&inputs, &products, &unwind);
    let by_procedure = code_map.by_procedure();
    let sources =
        loops::Sources { image: &image, memory: &memory, symbols: &symbols, unwind: &unwind, threads };
    let noted = columns::entries(&code_map, &classifier);
    let found = match options.loops {
        true => loops::find(&code_map, &by_procedure, wanted.is_all(), &noted, &sources),
        false => loops::Found::default(),
    };
    notes.extend(found.note.iter().cloned());
    let (parts, tags) = assemble::assemble(&inputs, &products, &code_map, &by_procedure, &found);
    let columns = match options.loops {
        true => columns::find(&inputs, &parts, &code_map, &found.calls),
        false => Columns::default(),
    };
    files.check_unchanged()?;
    split_files.iter().try_for_each(split::Files::check_unchanged)?;
    let identity = Structure {
        module: path.to_string_lossy().into_owned(),
        build_id: image.build_id.clone(),
        complete: wanted.is_all(),
        notes: tidy(&notes),
        columns,
        ..Structure::default()
    };
    Ok(Unfinished {
        assembled: Assembled {
            parts,
            tag_texts: classifier.tag_texts(),
            strings: classifier.into_strings(),
            identity,
        },
        tags,
        cacheable,
        threads,
    })
}

/// An [`Analysis`] whose tables are not put together yet: the module's bytes can be dropped first.
struct Unfinished {
    assembled: Assembled,
    tags: Vec<TagUse>,
    cacheable: bool,
    threads: usize,
}

impl Unfinished {
    fn finish(self) -> Analysis {
        Analysis {
            structure: self.assembled.structure(self.threads),
            tags: self.tags,
            cacheable: self.cacheable,
        }
    }
}

/// Analyses all units that may have wanted code.
fn products(inputs: &Inputs<'_, '_>, progress: Option<&Progress>) -> Vec<unit_analysis::UnitAnalysis> {
    let units = inputs.debug.compilation_units();
    let units = units.filter(|unit| may_have(inputs.debug, inputs.wanted, *unit));
    let units: Vec<u32> = units.collect();
    let weight = |i: usize| inputs.debug.weight(units[i]);
    if let Some(progress) = progress {
        progress.begin((0..units.len()).map(weight).sum());
    }
    let buffers = unit_analysis::Buffers::default;
    parallel::run_heaviest_first(units.len(), inputs.threads, weight, buffers, |buffers, i| {
        let product = unit_analysis::analyse(inputs, units[i], buffers);
        if let Some(progress) = progress {
            progress.add(weight(i));
        }
        product
    })
}

/// Whether a unit's stated ranges hold wanted addresses; one that states none may.
fn may_have(debug: &dwarf::Debug<'_>, wanted: &AddressFilter, unit: u32) -> bool {
    wanted.is_all() || debug.unit_ranges(unit).is_none_or(|ranges| ranges.iter().any(|r| wanted.hits(r)))
}

/// Each note once, on one line, with the number of times that it was made.
fn tidy(notes: &[String]) -> Vec<String> {
    let mut out: Vec<(String, usize)> = Vec::new();
    for note in notes {
        let line = note.split_whitespace().collect::<Vec<_>>().join(" ");
        match out.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => out.push((line, 1)),
        }
    }
    out.into_iter()
        .map(|(line, count)| match count {
            1 => line,
            n => format!("{line} ({n} times)"),
        })
        .collect()
}

/// What the user could do to see loops, where the file has no code.
fn what_is_missing_of_code(image: &Image<'_>) -> Option<String> {
    let lacks_code = !image.has_code();
    lacks_code.then(|| {
        let id = match image.build_id.as_slice() {
            [] => String::new(),
            id => format!(" (build id {})", debug_file::hex(id)),
        };
        format!(
            "a separate debug file, without machine code: loops are missing; give the program or \
             library that it belongs to{id}, with --debug-dir for the folder of this file"
        )
    })
}

/// What the user could do to see more.
fn what_is_missing(debug: &dwarf::Debug<'_>, symbols: &Symbols<'_>) -> Option<String> {
    if !debug.is_empty() {
        return None;
    }
    Some(if symbols.has_symtab {
        "no debug information: source lines and inlined code are missing; build with -g, or for Rust \
         with CARGO_PROFILE_RELEASE_DEBUG=line-tables-only"
            .to_owned()
    } else {
        "stripped: names, source lines and inlined code are missing; build with \
         CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=line-tables-only, or -g and no \
         -s for C, or install its debug package"
            .to_owned()
    })
}
