//! Debug information, one compilation unit at a time.
//!
//! Input: the debug sections of a module or of its separate debug file, of the file that dwz shares
//! among modules, and of split units (`.dwo`, `.dwp`). [`struct@Debug`] knows all units; [`walk`] finds the
//! procedures and inlined scopes of one, [`die_names`] their names, [`line_table`] its lines.
//! Invariant: damaged input is no failure; what cannot be read is left out, and a note says so.

mod attributes;
pub(crate) mod die_names;
pub(crate) mod line_table;
pub(crate) mod split_dwarf;
pub(crate) mod walk;

use crate::base::parallel;
use crate::input::image::section_of;
use attributes::UnitRef;
use gimli::{Dwarf, DwarfSections, EndianSlice, RunTimeEndian, Section as _, SectionId, Unit};
use object::{Object as _, ObjectSection as _};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// How section bytes are read.
pub(crate) type Reader<'d> = EndianSlice<'d, RunTimeEndian>;

/// Sections, decompressed where needed; owns what [`struct@Debug`] borrows.
pub(crate) type Sections<'d> = DwarfSections<Cow<'d, [u8]>>;

/// The sections that are read. Others (locations, macros) can be large and hold no structure.
const USED: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Loads the debug sections of `files` on all threads, the largest first: decompression takes long. A
/// damaged section counts as absent and adds a note.
pub(crate) fn load<'d>(
    files: &[&object::File<'d>],
    threads: usize,
    notes: &mut Vec<String>,
) -> Vec<Sections<'d>> {
    let count = files.len() * USED.len();
    let place = |i: usize| (files[i / USED.len()], USED[i % USED.len()].name());
    let weight = |i: usize| {
        let (file, name) = place(i);
        file.section_by_name(name).map_or(0, |s| s.size())
    };
    let job = |(): &mut (), i: usize| {
        let (file, name) = place(i);
        section_of(file, name)
    };
    let mut loaded = parallel::run_heaviest_first(count, threads, weight, || (), job);
    let of_file = loaded.chunks_mut(USED.len()).map(|loaded| {
        from_sections(|id| {
            let at = USED.iter().position(|used| *used == id)?;
            let data = std::mem::replace(&mut loaded[at], Ok(Cow::Borrowed(&[])));
            let damaged = |what| notes.push(format!("damaged debug information: {what}"));
            data.map_err(damaged).ok()
        })
    });
    of_file.collect()
}

/// Sections by their ids; absent ones are empty.
pub(crate) fn from_sections<'d>(mut section: impl FnMut(SectionId) -> Option<Cow<'d, [u8]>>) -> Sections<'d> {
    let loaded: Result<_, std::convert::Infallible> =
        DwarfSections::load(|id| Ok(section(id).unwrap_or(Cow::Borrowed(&[]))));
    let Ok(sections) = loaded;
    sections
}

#[derive(Debug)]
struct DebugFile<'d> {
    dwarf: Arc<Dwarf<Reader<'d>>>,
    /// Number of its first unit.
    first: usize,
    /// Offsets of the units' starts in its `.debug_info`, ascending.
    starts: Vec<usize>,
}

/// All units of the debug information.
#[derive(Debug)]
pub(crate) struct Debug<'d> {
    /// The module's own debug information, then the shared file's, then those of split units.
    files: Vec<DebugFile<'d>>,
    /// All units, file by file, in the order of each file.
    pub(crate) units: Vec<Unit<Reader<'d>>>,
    own: usize,
    /// By unit: its file, and the unit that has its line table.
    places: Vec<Place>,
    /// By own unit: the unit that holds its entries, itself unless it is split.
    full: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    file: u32,
    lines: u32,
}

/// A debug information entry: index of its unit, offset in the unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EntryRef {
    pub(crate) unit: u32,
    /// Offset from the unit's start.
    pub(crate) offset: gimli::UnitOffset<usize>,
}

/// A unit whose entries are in another file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skeleton<'d> {
    pub(crate) unit: u32,
    /// What the other file's unit calls itself.
    pub(crate) id: Option<gimli::DwoId>,
    /// File name of the `.dwo` file.
    pub(crate) name: &'d [u8],
    /// The folder that a relative name starts from.
    pub(crate) directory: &'d [u8],
}

impl<'d> Debug<'d> {
    /// Reads all unit headers: of the module's own sections, which come first, and of dwz's shared file.
    pub(crate) fn new(
        sections: &'d [Sections<'_>],
        endian: RunTimeEndian,
        threads: usize,
        notes: &mut Vec<String>,
    ) -> Self {
        let borrow = |sections: &'d Sections<'_>| {
            let mut dwarf = sections.borrow(|data| EndianSlice::new(data, endian));
            dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
            dwarf
        };
        let mut debug =
            Debug { files: Vec::new(), units: Vec::new(), own: 0, places: Vec::new(), full: Vec::new() };
        let Some(own) = sections.first() else {
            return debug;
        };
        let shared = sections.get(1);
        let mut dwarf = borrow(own);
        if let Some(shared) = shared {
            dwarf.set_sup(borrow(shared));
        }
        debug.add_file(dwarf, threads, notes);
        debug.own = debug.units.len();
        debug.full = (0..debug.own as u32).collect();
        if let Some(shared) = shared {
            debug.add_file(borrow(shared), threads, notes);
        }
        debug
    }

    fn add_file(&mut self, dwarf: Dwarf<Reader<'d>>, threads: usize, notes: &mut Vec<String>) {
        let mut headers = Vec::new();
        let mut iter = dwarf.units();
        loop {
            match iter.next() {
                Ok(Some(header)) => headers.push(header),
                Ok(None) => break,
                Err(error) => {
                    notes.push(format!("damaged debug information: {error}"));
                    break;
                }
            }
        }
        let read = parallel::run(headers.len(), threads, |i| dwarf.unit(headers[i]));
        let number = self.files.len() as u32;
        let mut file = DebugFile { dwarf: Arc::new(dwarf), first: self.units.len(), starts: Vec::new() };
        for (header, unit) in headers.iter().zip(read) {
            let Some(start) = header.offset().as_debug_info_offset() else {
                continue;
            };
            match unit {
                Ok(unit) => {
                    self.places.push(Place { file: number, lines: self.units.len() as u32 });
                    file.starts.push(start.0);
                    self.units.push(unit);
                }
                Err(error) => notes.push(format!("damaged compilation unit: {error}")),
            }
        }
        self.files.push(file);
    }

    /// Own units with code whose entries are in other files.
    pub(crate) fn skeletons(&self) -> Vec<Skeleton<'d>> {
        let own = self.units.iter().take(self.own).zip(0u32..);
        own.filter_map(|(unit, number)| {
            let name = unit.dwo_name().ok()??;
            let name = self.dwarf(number)?.attr_string(unit, name).ok()?;
            Some(Skeleton {
                unit: number,
                id: unit.dwo_id,
                name: name.slice(),
                directory: unit.comp_dir.map_or(&[][..], |d| d.slice()),
            })
        })
        .collect()
    }

    /// The debug information of the module itself.
    pub(crate) fn own_dwarf(&self) -> Option<&Arc<Dwarf<Reader<'d>>>> {
        self.files.first().map(|f| &f.dwarf)
    }

    /// The file of the split unit with this id.
    pub(crate) fn split_dwarf(&self, id: gimli::DwoId) -> Option<Arc<Dwarf<Reader<'d>>>> {
        let mut split = self.units.iter().zip(&self.places).skip(self.own);
        let (_, place) = split.find(|(unit, _)| unit.dwo_id == Some(id))?;
        let file = self.files.get(place.file as usize)?;
        Some(file.dwarf.clone())
    }

    /// Takes the entries of skeleton `unit` from the unit of `dwarf` with the same id; `false` if there is
    /// none.
    pub(crate) fn attach(
        &mut self,
        unit: u32,
        mut dwarf: Dwarf<Reader<'d>>,
        notes: &mut Vec<String>,
    ) -> bool {
        let (Some(own), Some(skeleton)) = (self.own_dwarf(), self.units.get(unit as usize)) else {
            return false;
        };
        dwarf.make_dwo(own);
        let id = skeleton.dwo_id;
        let first = self.units.len();
        self.add_file(dwarf, 1, notes);
        let skeleton = unit as usize;
        let (before, added) = self.units.split_at_mut(first);
        let found = added.iter().position(|u| u.dwo_id == id);
        for (i, split) in added.iter_mut().enumerate() {
            split.copy_relocated_attributes(&before[skeleton]);
            self.places[first + i].lines = unit;
        }
        if let Some(found) = found {
            self.full[skeleton] = (first + found) as u32;
        }
        found.is_some()
    }

    /// The sections that unit `unit` reads.
    pub(crate) fn dwarf(&self, unit: u32) -> Option<&Dwarf<Reader<'d>>> {
        let place = self.places.get(unit as usize)?;
        self.files.get(place.file as usize).map(|f| &*f.dwarf)
    }

    pub(crate) fn entries_of(&self, unit: u32) -> u32 {
        self.full.get(unit as usize).copied().unwrap_or(unit)
    }

    /// The unit that has the line table of unit `unit`.
    pub(crate) fn lines_of(&self, unit: u32) -> u32 {
        self.places.get(unit as usize).map_or(unit, |p| p.lines)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The module's own units that can have code, in order.
    pub(crate) fn compilation_units(&self) -> impl Iterator<Item = u32> {
        let own = self.units.iter().take(self.own).zip(0u32..);
        own.filter(|(unit, _)| can_have_code(unit)).map(|(_, i)| i)
    }

    /// Bytes of the entries of a unit: an estimate of the time to analyse it.
    pub(crate) fn weight(&self, unit: u32) -> u64 {
        let unit = self.units.get(self.entries_of(unit) as usize);
        unit.map_or(0, |u| u.header.length_including_self() as u64)
    }

    /// The entry that a section offset of a file names.
    fn entry_at(&self, file: usize, offset: usize) -> Option<EntryRef> {
        let file = self.files.get(file)?;
        let after = file.starts.partition_point(|s| *s <= offset);
        let nearest = after.checked_sub(1)?;
        let offset = offset.checked_sub(file.starts[nearest])?;
        Some(EntryRef { unit: u32::try_from(file.first + nearest).ok()?, offset: gimli::UnitOffset(offset) })
    }

    /// The entry that a reference attribute of unit `unit` names.
    pub(crate) fn reference(&self, unit: u32, value: gimli::AttributeValue<Reader<'d>>) -> Option<EntryRef> {
        match value {
            gimli::AttributeValue::UnitRef(offset) => Some(EntryRef { unit, offset }),
            gimli::AttributeValue::DebugInfoRef(offset) => {
                let file = self.places.get(unit as usize)?.file;
                self.entry_at(file as usize, offset.0)
            }
            gimli::AttributeValue::DebugInfoRefSup(offset) => {
                self.own_dwarf()?.sup()?;
                self.entry_at(1, offset.0)
            }
            _ => None,
        }
    }

    /// The code ranges that a unit states for itself; `None` when it states none.
    pub(crate) fn unit_ranges(&self, number: u32) -> Option<Vec<Range<u64>>> {
        let unit = UnitRef::new(self, number)?;
        let mut entries = unit.unit.entries_raw(None).ok()?;
        let root = entries.read_abbreviation().ok()??;
        let attributes = unit.attributes(&mut entries, root.attributes()).ok()?;
        let mut ranges = Vec::new();
        // A list that is damaged says less than is true.
        unit.ranges(&attributes, |range| ranges.push(range)).ok()?;
        (!ranges.is_empty()).then_some(ranges)
    }

    /// A string attribute's text; bytes that are not UTF-8 make it absent.
    pub(crate) fn text(&self, number: u32, value: gimli::AttributeValue<Reader<'d>>) -> Option<&'d str> {
        let unit = self.units.get(number as usize)?;
        let dwarf = self.dwarf(number)?;
        if let gimli::AttributeValue::DebugStrRef(offset) = value {
            // The usual case; the search for the end is a fast one.
            let rest = dwarf.debug_str.reader().slice().get(offset.0..)?;
            let text = std::ffi::CStr::from_bytes_until_nul(rest).ok()?;
            return text.to_str().ok();
        }
        let reader = dwarf.attr_string(unit, value).ok()?;
        std::str::from_utf8(reader.slice()).ok()
    }
}

/// Partial units (of dwz) and type units only describe.
fn can_have_code(unit: &Unit<Reader<'_>>) -> bool {
    let Ok(mut entries) = unit.entries_raw(None) else {
        return false;
    };
    let Ok(Some(root)) = entries.read_abbreviation() else {
        return false;
    };
    !matches!(root.tag(), gimli::DW_TAG_partial_unit | gimli::DW_TAG_type_unit)
}
