//! Recovers the structure of load modules: procedures, inlined scopes, loops, source lines and
//! overhead tags.
//!
//! The pipeline, wired in [`analyse_bytes`]: `image` (ELF) → `symbols`, `unwind` (symbol tables,
//! unwind entries) → `dwarf` (units: procedures, inlined scopes, lines) → `product` (per unit:
//! `frames` name and judge procedures by `names`, `owner`, `tags` and `rules`;
//! `paint` flattens scopes; `verdict` picks categories) → `claims` (which procedure has which
//! code) → `loops` (what [`code`] finds in the machine code, and its place among the scopes) →
//! `assemble` (parts of a structure; [`columns`] tells parallel loops of one line apart) → [`Recovered`] (put together, or written as they are).
//!
//! [`measurements`] tells what a run sampled; [`text`] prints.
//!
//! Invariants: bad input is a typed error or a note, never a panic; the result does not depend on
//! the number of threads.

#![deny(unsafe_code)]

mod assemble;
#[allow(unsafe_code)]
mod bytes;
pub mod cache;
mod claims;
pub mod code;
pub mod columns;
mod dwarf;
mod error;
mod facts;
mod frames;
mod image;
mod languages;
pub mod load_module;
mod loops;
pub mod measurements;
mod mini;
mod names;
mod owner;
mod paint;
mod parallel;
mod product;
mod progress;
mod rules;
pub mod rust_source;
mod separate;
mod split;
mod strings;
mod symbols;
mod tags;
pub mod text;
mod unwind;
mod vdso;
mod verdict;
mod wanted;
pub mod xml;

use assemble::Assembled;
pub use assemble::TagUse;
pub use error::StructError;
pub use hpc_formats::structure::Structure;
pub use progress::Progress;
pub use rules::Rules;

use bytes::FileBytes;
use claims::Claims;
use code::memory::Memory;
use facts::Facts;
use hpc_formats::structure::Origin;
use image::Image;
use product::Inputs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use symbols::Symbols;
use unwind::Unwind;
use wanted::Wanted;

/// What to analyse, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses, as the module states them, whose procedures are wanted; `None` = all.
    pub addresses: Option<Vec<u64>>,
    /// Which procedures, modules and files are overhead.
    pub rules: Rules,
    /// Threads to use; 0 counts as 1.
    pub threads: usize,
    /// Folders with separate debug files, searched in order.
    pub debug_directories: Vec<PathBuf>,
    /// Where to say how far the analysis is.
    pub progress: Option<Arc<Progress>>,
}

/// A structure, and what is not part of it.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The structure.
    pub structure: Structure,
    /// Which marks and rules tagged how much code, by category.
    pub tags: Vec<TagUse>,
    /// Whether the same files will give the same answer: nothing was looked for in vain.
    pub cacheable: bool,
}

impl Default for Options {
    /// All procedures, the built-in rules, a thread per core, `/usr/lib/debug`.
    fn default() -> Self {
        Options {
            addresses: None,
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

/// As [`analyse`], with what is not part of the structure.
///
/// # Errors
/// As [`analyse`].
pub fn analyse_fully(path: &Path, options: &Options) -> Result<Analysis, StructError> {
    if path.as_os_str() == vdso::NAME {
        let bytes = vdso::read().map_err(|error| StructError::Read {
            path: path.to_owned(),
            error,
        })?;
        return analyse_in(path, &bytes, false, options).map(Unfinished::finish);
    }
    let bytes = FileBytes::open(path)?;
    let analysis = analyse_in(path, bytes.as_slice(), true, options);
    // First: a change explains whatever else is wrong.
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
    let unwind = Unwind::read(&image);
    let symbols = symbols::candidates(&[&image]).choose(&image, &unwind.ranges);
    Ok(loops::of_image(&loops::Sources {
        image: &image,
        memory: &Memory::new(&image.file),
        symbols: &symbols,
        unwind: &unwind,
        threads,
    }))
}

/// Analyses the module `path` with these bytes. `is_file`: other files may lie beside it.
fn analyse_in(
    path: &Path,
    data: &[u8],
    is_file: bool,
    options: &Options,
) -> Result<Unfinished, StructError> {
    let image = Image::parse(path, data)?;
    let mut notes = Vec::new();
    let threads = options.threads.max(1);
    let wanted = Wanted::new(options.addresses.as_deref());
    let folders = is_file.then_some(options.debug_directories.as_slice());
    let files = separate::open(&image, path, folders, &mut notes);
    let parsed = files.parse();
    let with_entries = parsed.with_entries(&image);
    let sections = dwarf::load(&with_entries, threads, &mut notes);
    let endian = dwarf::endian(is_little_endian(&image));
    let images = parsed.with_symbols(&image);
    let ((mut debug, found), ((unwind, memory), candidates)) = parallel::both(
        threads,
        || {
            let mut found = Vec::new();
            let debug = dwarf::Debug::new(&sections, endian, threads, &mut found);
            (debug, found)
        },
        || {
            parallel::both(
                threads,
                || (Unwind::read(&image), Memory::new(&image.file)),
                || symbols::candidates(&images),
            )
        },
    );
    notes.extend(found);
    let split_files = folders.map(|folders| {
        let search = split::Search {
            files: &[path, parsed.path().unwrap_or(path)],
            folders,
        };
        split::open(wanted_skeletons(&debug, &wanted), search)
    });
    let split_sections = split_files
        .as_ref()
        .map(|f| split::load(f, threads, &mut notes));
    if let Some(sections) = &split_sections {
        split::attach(&mut debug, sections, endian, &mut notes);
    }
    let cacheable = is_file && notes.is_empty();
    notes.extend(what_is_missing_of_code(&image));
    let symbols = candidates.choose(&image, &unwind.ranges);
    let procedures = symbols.sorted.len();
    let texts = debug.size_of_texts();
    let facts = Facts::new(&path.to_string_lossy(), &options.rules, procedures, texts);
    // Of the system's own libraries nobody expects more, and nobody builds them again.
    if facts.module.origin != Some(Origin::System) {
        notes.extend(what_is_missing(&debug, &symbols));
    }
    let inputs = Inputs {
        image: &image,
        debug: &debug,
        symbols: &symbols,
        facts: &facts,
        wanted: &wanted,
        threads,
    };
    let products = products(&inputs, options.progress.as_deref());
    notes.extend(products.iter().flat_map(|p| p.notes.iter().cloned()));
    let claims = Claims::new(&inputs, &products, &unwind.ranges);
    let by_procedure = claims.by_procedure();
    let sources = loops::Sources {
        image: &image,
        memory: &memory,
        symbols: &symbols,
        unwind: &unwind,
        threads,
    };
    let noted = columns::entries(&claims, &facts);
    let found = loops::find(&claims, &by_procedure, wanted.is_all(), &noted, &sources);
    notes.extend(found.note.iter().cloned());
    let (parts, tags) = assemble::assemble(&inputs, &products, &claims, &by_procedure, &found);
    let columns = columns::find(&inputs, &parts, &claims, &found.calls);
    files.check_unchanged()?;
    split_files
        .iter()
        .try_for_each(split::Files::check_unchanged)?;
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
            tag_texts: facts.tag_texts(),
            strings: facts.into_strings(),
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
fn products(inputs: &Inputs<'_, '_>, progress: Option<&Progress>) -> Vec<product::Product> {
    let units = units_with_wanted_code(inputs);
    let weight = |i: usize| inputs.debug.weight(units[i]);
    if let Some(progress) = progress {
        progress.begin((0..units.len()).map(weight).sum());
    }
    let buffers = product::Buffers::default;
    parallel::run_heaviest_first(
        units.len(),
        inputs.threads,
        weight,
        buffers,
        |buffers, i| {
            let product = product::analyse(inputs, units[i], buffers);
            if let Some(progress) = progress {
                progress.add(weight(i));
            }
            product
        },
    )
}

fn is_little_endian(image: &Image<'_>) -> bool {
    use object::Object as _;
    image.file.is_little_endian()
}

/// Skeleton units whose stated ranges hold wanted addresses, or that state none.
fn wanted_skeletons<'d>(debug: &dwarf::Debug<'d>, wanted: &Wanted) -> Vec<dwarf::Skeleton<'d>> {
    let mut skeletons = debug.skeletons();
    skeletons.retain(|skeleton| may_have(debug, wanted, skeleton.unit));
    skeletons
}

/// Whether a unit's stated ranges hold wanted addresses; one that states none may.
fn may_have(debug: &dwarf::Debug<'_>, wanted: &Wanted, unit: u32) -> bool {
    wanted.is_all()
        || debug
            .unit_ranges(unit)
            .is_none_or(|ranges| ranges.iter().any(|r| wanted.hits(r)))
}

/// Units whose stated ranges hold wanted addresses, and units that state none.
fn units_with_wanted_code(inputs: &Inputs<'_, '_>) -> Vec<u32> {
    let units = inputs.debug.compilation_units();
    units
        .filter(|unit| may_have(inputs.debug, inputs.wanted, *unit))
        .collect()
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
            id => format!(" (build id {})", separate::hex(id)),
        };
        format!(
            "a separate debug file, without machine code: loops are missing; give the program or library that it belongs to{id}, with --debug-dir for the folder of this file"
        )
    })
}

/// What the user could do to see more.
fn what_is_missing(debug: &dwarf::Debug<'_>, symbols: &Symbols<'_>) -> Option<String> {
    if !debug.is_empty() {
        return None;
    }
    Some(if symbols.has_symtab {
        "no debug information: source lines and inlined code are missing; build with -g, or for Rust with CARGO_PROFILE_RELEASE_DEBUG=line-tables-only".to_owned()
    } else {
        "stripped: names, source lines and inlined code are missing; build with CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=line-tables-only, or -g and no -s for C, or install its debug package".to_owned()
    })
}
