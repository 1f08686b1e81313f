//! Finds the files that hold the entries of split units: a package (`.dwp`) beside the module,
//! or an object (`.dwo`) for each unit.
//!
//! Input: the skeleton units of the module's debug information. Invariants: only a unit with the
//! skeleton's id is taken; units whose file is missing or damaged are counted in a note.

use crate::base::error::StructError;
use crate::base::parallel;
use crate::dwarf::{self, Debug, Reader, Sections, Skeleton};
use crate::input::file_bytes::FileBytes;
use crate::input::image;
use gimli::{DwarfPackage, DwarfPackageSections, EndianSlice, RunTimeEndian};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where split units may lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'a> {
    pub(crate) files: &'a [&'a Path],
    pub(crate) folders: &'a [PathBuf],
}

/// The bytes of the files of split units.
#[derive(Debug)]
pub(crate) struct Files<'d> {
    package: Option<FileBytes>,
    /// Unit files, each with its skeleton.
    objects: Vec<(Skeleton<'d>, Option<FileBytes>)>,
}

/// Their sections.
#[derive(Debug)]
pub(crate) struct Loaded<'b, 'd> {
    package: Option<DwarfPackageSections<Cow<'b, [u8]>>>,
    objects: Vec<(Skeleton<'d>, Option<Sections<'b>>)>,
}

pub(crate) fn open<'d>(skeletons: Vec<Skeleton<'d>>, search: Search<'_>) -> Files<'d> {
    let package =
        if skeletons.is_empty() { None } else { search.files.iter().find_map(|file| package_of(file)) };
    let objects = skeletons
        .into_iter()
        .map(|skeleton| {
            // A package has all units: what it lacks is nowhere else.
            let bytes = if package.is_some() { None } else { object_of(&skeleton, search) };
            (skeleton, bytes)
        })
        .collect();
    Files { package, objects }
}

impl Files<'_> {
    /// As [`FileBytes::check_unchanged`], of all of them.
    pub(crate) fn check_unchanged(&self) -> Result<(), StructError> {
        let objects = self.objects.iter().filter_map(|(_, bytes)| bytes.as_ref());
        let mut files = self.package.iter().chain(objects);
        files.try_for_each(FileBytes::check_unchanged)
    }
}

fn package_of(file: &Path) -> Option<FileBytes> {
    let file = std::fs::canonicalize(file).ok()?;
    let mut name = file.file_name()?.to_os_string();
    name.push(".dwp");
    FileBytes::open(&file.with_file_name(name)).ok()
}

fn object_of(skeleton: &Skeleton<'_>, search: Search<'_>) -> Option<FileBytes> {
    let name = Path::new(OsStr::from_bytes(skeleton.name));
    let directory = Path::new(OsStr::from_bytes(skeleton.directory));
    let mut places = vec![directory.join(name)];
    // Units may have been moved: beside the module, or into a debug folder.
    if let Some(base) = name.file_name() {
        let beside = search.files.iter().filter_map(|file| file.parent());
        places.extend(beside.map(|folder| folder.join(base)));
        places.extend(search.folders.iter().map(|folder| folder.join(base)));
    }
    places.into_iter().find_map(|p| FileBytes::open(&p).ok())
}

/// Loads the sections of the files on all threads: decompression takes long.
pub(crate) fn load<'b, 'd>(files: &'b Files<'d>, threads: usize, notes: &mut Vec<String>) -> Loaded<'b, 'd> {
    let package = files.package.as_ref().and_then(|bytes| {
        let file = parse(bytes.as_slice(), notes)?;
        let loaded = load_package(&file, threads, notes);
        let damaged = |e| notes.push(format!("damaged split debug information: {e}"));
        loaded.map_err(damaged).ok()
    });
    let count = files.objects.len();
    let bytes = |i: usize| files.objects[i].1.as_ref();
    let weight = |i: usize| bytes(i).map_or(0, |b| b.as_slice().len() as u64);
    let job = |(): &mut (), i: usize| {
        let mut notes = Vec::new();
        let file = bytes(i).and_then(|b| parse(b.as_slice(), &mut notes));
        let sections = file.map(|file| dwarf::from_sections(|id| section(&file, id, &mut notes).into()));
        (sections, notes)
    };
    let loaded = parallel::run_heaviest_first(count, threads, weight, || (), job);
    let mut objects = Vec::with_capacity(count);
    for ((skeleton, _), (sections, found)) in files.objects.iter().zip(loaded) {
        notes.extend(found);
        objects.push((*skeleton, sections));
    }
    Loaded { package, objects }
}

fn load_package<'b>(
    file: &object::File<'b>,
    threads: usize,
    notes: &mut Vec<String>,
) -> gimli::Result<DwarfPackageSections<Cow<'b, [u8]>>> {
    let mut ids = Vec::new();
    DwarfPackageSections::<()>::load(|id| {
        ids.push(id);
        Ok::<_, gimli::Error>(())
    })?;
    let mut loaded = parallel::run(ids.len(), threads, |i| {
        let mut notes = Vec::new();
        (section(file, ids[i], &mut notes), notes)
    });
    DwarfPackageSections::load(|id| {
        let at = ids.iter().position(|known| *known == id);
        let found = at.and_then(|at| loaded.get_mut(at)).map(std::mem::take);
        let (data, found) = found.unwrap_or_default();
        notes.extend(found);
        Ok(data)
    })
}

fn parse<'b>(data: &'b [u8], notes: &mut Vec<String>) -> Option<object::File<'b>> {
    let parsed = object::File::parse(data);
    let damaged = |e| notes.push(format!("damaged split debug information: {e}"));
    parsed.map_err(damaged).ok()
}

fn section<'b>(file: &object::File<'b>, id: gimli::SectionId, notes: &mut Vec<String>) -> Cow<'b, [u8]> {
    let Some(name) = id.dwo_name() else {
        return Cow::default();
    };
    image::section_of(file, name).unwrap_or_else(|what| {
        notes.push(format!("damaged split debug information: {what}"));
        Cow::default()
    })
}

/// Attaches the entries to the skeletons of `debug`; a note counts the skeletons without any.
pub(crate) fn attach<'b>(
    debug: &mut Debug<'b>,
    loaded: &'b Loaded<'b, '_>,
    endian: RunTimeEndian,
    notes: &mut Vec<String>,
) {
    let empty = EndianSlice::new(&[][..], endian);
    let borrow = |data: &'b Cow<'b, [u8]>| -> Reader<'b> { EndianSlice::new(data, endian) };
    let package = loaded.package.as_ref().and_then(|sections| {
        let package = sections.borrow(borrow, empty);
        let damaged = |e| notes.push(format!("damaged split debug information: {e}"));
        package.map_err(damaged).ok()
    });
    let mut missing = 0;
    for (skeleton, sections) in &loaded.objects {
        let found = match (&package, sections) {
            (Some(package), _) => in_package(package, debug, skeleton, notes),
            (None, Some(sections)) => Some(sections.borrow(borrow)),
            (None, None) => None,
        };
        let attached = found.is_some_and(|dwarf| debug.attach(skeleton.unit, dwarf, notes));
        missing += usize::from(!attached);
    }
    notes.extend(note_of_missing(missing, loaded.objects.first().map(|(s, _)| s)));
}

fn in_package<'b>(
    package: &DwarfPackage<Reader<'b>>,
    debug: &Debug<'b>,
    skeleton: &Skeleton<'_>,
    notes: &mut Vec<String>,
) -> Option<gimli::Dwarf<Reader<'b>>> {
    match package.find_cu(skeleton.id?, debug.own_dwarf()?) {
        Ok(found) => found,
        Err(error) => {
            notes.push(format!("damaged split debug information: {error}"));
            None
        }
    }
}

/// What the user can do about units without entries.
fn note_of_missing(missing: usize, first: Option<&Skeleton<'_>>) -> Option<String> {
    let name = String::from_utf8_lossy(first?.name);
    (missing > 0).then(|| {
        format!(
            "{missing} units keep their debug information in files that are not found (such as \
             {name}): inlined code is missing there; keep the .dwo files where they were built, put a \
             .dwp file beside the program, name their folder with --debug-dir, or build without split \
             debug information"
        )
    })
}
