//! Reads the few attributes that are needed, for the forms that compilers use.
//!
//! Input: an abbreviation, then the bytes of entries of it. Invariants: the layout is worked out
//! once for all entries of an abbreviation; whatever it cannot express (other forms, big-endian
//! files) is left to gimli; nothing beyond the unit's end is read.

use super::Reader;
use super::skip::{self, Step};
use gimli::AttributeValue::RangeListsRef;
use gimli::{
    Abbreviation, AttributeValue, DebugAddrIndex, DebugInfoOffset, DebugRngListsIndex,
    DebugStrOffset, DwAt, DwForm, RawRangeListsOffset, UnitHeader, UnitOffset, constants,
};

/// Declares an enumeration and the list of all its values.
macro_rules! listed {
    ($(#[$attribute:meta])* $visibility:vis enum $name:ident { $($value:ident,)* }, $all:ident) => {
        $(#[$attribute])*
        $visibility enum $name { $($value,)* }
        const $all: &[$name] = &[$($name::$value,)*];
    };
}

listed! {
    /// The attributes that are needed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(u8)]
    pub(crate) enum Field {
        Name,
        Linkage,
        Low,
        High,
        Ranges,
        Origin,
        Specification,
        CallFile,
        CallLine,
        DeclFile,
        DeclLine,
    },
    ALL
}

const FIELDS: usize = ALL.len();

/// The layout of the entries of one abbreviation.
#[derive(Debug)]
pub(crate) struct Fields {
    takes: Box<[Take]>,
    forms: [DwForm; FIELDS],
    /// The same for entries of a fixed size, which most are.
    fixed: Option<Fixed>,
    extent: Extent,
    /// Whether the entry that describes them is in the same unit.
    is_near: bool,
}

/// How entries state their code.
#[derive(Clone, Copy, Debug)]
enum Extent {
    None,
    /// First address and size.
    Sized,
    /// A list in the section of ranges.
    List,
    Other,
}

/// Where the code of an entry is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Code<'d> {
    /// It states none.
    #[default]
    None,
    /// First address, and one past the last.
    Range(u64, u64),
    /// What a list says.
    List(RawRangeListsOffset),
    /// As the attributes say.
    Stated {
        /// First address.
        low: Option<AttributeValue<Reader<'d>>>,
        /// End address, or size.
        high: Option<AttributeValue<Reader<'d>>>,
        /// List of ranges.
        ranges: Option<AttributeValue<Reader<'d>>>,
    },
}

#[derive(Clone, Copy, Debug)]
enum Take {
    Skip(Step),
    /// A number of so many bytes, little-endian.
    Number(Field, usize),
    Leb(Field),
    /// The abbreviation has the value.
    Constant(Field, u64),
}

/// Where the values of entries of a fixed size are.
#[derive(Debug)]
struct Fixed {
    places: [Place; FIELDS],
    constants: Vec<u64>,
    /// Bytes of all attributes.
    size: u16,
}

/// Where a value is. There are many of these: they are small.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The entries do not have it.
    Absent,
    /// So many bytes after the first attribute, and of so many bytes.
    At(u16, u8),
    /// In the abbreviation: an index into [`Fixed::constants`].
    Constant(u8),
}

/// The values of one entry.
#[derive(Debug)]
pub(crate) struct Values<'f> {
    fields: &'f Fields,
    source: Source<'f>,
    /// Where the entry ends.
    pub(crate) end: usize,
}

#[derive(Debug)]
enum Source<'f> {
    /// The entry's bytes and what follows, at least eight bytes; a value is read when it is asked for.
    Fixed(&'f Fixed, &'f [u8]),
    /// The values, and which of them are there, as bits.
    Read([u64; FIELDS], u16),
}

/// The field of an attribute.
fn field(name: DwAt) -> Option<Field> {
    Some(match name {
        constants::DW_AT_name => Field::Name,
        constants::DW_AT_linkage_name | constants::DW_AT_MIPS_linkage_name => Field::Linkage,
        constants::DW_AT_low_pc => Field::Low,
        constants::DW_AT_high_pc => Field::High,
        constants::DW_AT_ranges => Field::Ranges,
        constants::DW_AT_abstract_origin => Field::Origin,
        constants::DW_AT_specification => Field::Specification,
        constants::DW_AT_call_file => Field::CallFile,
        constants::DW_AT_call_line => Field::CallLine,
        constants::DW_AT_decl_file => Field::DeclFile,
        constants::DW_AT_decl_line => Field::DeclLine,
        _ => return None,
    })
}

impl Fields {
    /// The layout; `None` when entries have to be read in the general way.
    pub(crate) fn new(
        abbreviation: &Abbreviation,
        header: &UnitHeader<Reader<'_>>,
        little_endian: bool,
    ) -> Option<Fields> {
        let mut takes: Vec<Take> = Vec::new();
        let mut fields = Fields {
            takes: Box::default(),
            forms: [DwForm(0); FIELDS],
            fixed: None,
            extent: Extent::Other,
            is_near: false,
        };
        for specification in abbreviation.attributes() {
            let form = specification.form();
            let size = specification.size(header);
            let take = match field(specification.name()) {
                None => match size {
                    Some(size) => Take::Skip(Step::Bytes(size)),
                    None => Take::Skip(skip::step_of(form)),
                },
                Some(field) => {
                    // Nothing may be stated twice.
                    if fields.has(field) {
                        return None;
                    }
                    fields.forms[field as usize] = form;
                    match (specification.implicit_const_value(), size) {
                        (Some(value), _) => Take::Constant(field, u64::try_from(value).ok()?),
                        (None, Some(size @ (1 | 2 | 4 | 8))) => Take::Number(field, size),
                        (None, None) if skip::step_of(form) == Step::Leb => Take::Leb(field),
                        _ => return None,
                    }
                }
            };
            match (takes.last_mut(), &take) {
                (_, Take::Skip(Step::Unknown)) => return None,
                (Some(Take::Skip(Step::Bytes(sum))), Take::Skip(Step::Bytes(size))) => *sum += size,
                _ => takes.push(take),
            }
        }
        fields.fixed = Fixed::new(&takes);
        fields.takes = takes.into();
        fields.extent = fields.extent();
        let origin = reference(fields.forms[Field::Origin as usize], 0);
        fields.is_near = matches!(origin, Some(AttributeValue::UnitRef(_)));
        // Of both the later one counts.
        let two = fields.has(Field::Origin) && fields.has(Field::Specification);
        (little_endian && !two && fields.is_understood()).then_some(fields)
    }

    /// Whether the forms are those that the accessors of [`Values`] know.
    fn is_understood(&self) -> bool {
        ALL.iter().all(|field| {
            let form = self.forms[*field as usize];
            form == DwForm(0)
                || match field {
                    Field::Name | Field::Linkage => form == constants::DW_FORM_strp,
                    Field::Low => address(form, 0).is_some(),
                    Field::High => address(form, 0).is_some() || is_constant(form),
                    Field::Ranges => ranges(form, 0).is_some(),
                    Field::Origin | Field::Specification => reference(form, 0).is_some(),
                    Field::CallFile | Field::CallLine | Field::DeclFile | Field::DeclLine => {
                        is_constant(form)
                    }
                }
        })
    }

    fn extent(&self) -> Extent {
        let form = |field: Field| self.forms[field as usize];
        match (form(Field::Low), form(Field::High), form(Field::Ranges)) {
            (DwForm(0), _, DwForm(0)) => Extent::None,
            (constants::DW_FORM_addr, high, DwForm(0)) if is_constant(high) => Extent::Sized,
            (DwForm(0), _, list) if matches!(ranges(list, 0), Some(RangeListsRef(_))) => {
                Extent::List
            }
            _ => Extent::Other,
        }
    }

    /// Whether entries have a field.
    pub(crate) fn has(&self, field: Field) -> bool {
        self.forms[field as usize] != DwForm(0)
    }

    /// Where a field of entries of a fixed size is, so many bytes after the first attribute, and its
    /// bytes, which are at least one.
    pub(super) fn place(&self, field: Field) -> Option<(u16, u8)> {
        match self.fixed.as_ref()?.places[field as usize] {
            Place::At(offset, size) => Some((offset, size)),
            Place::Absent | Place::Constant(_) => None,
        }
    }

    /// Bytes of all attributes, where that is the same for all entries.
    pub(super) fn size(&self) -> Option<u16> {
        self.fixed.as_ref().map(|fixed| fixed.size)
    }

    /// Whether the entry that describes them is in the same unit.
    pub(super) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Whether it is in some unit of the same file.
    pub(super) fn is_in_file(&self) -> bool {
        let form = self.forms[Field::Origin as usize];
        matches!(reference(form, 0), Some(AttributeValue::DebugInfoRef(_)))
    }

    /// Whether they state their code as a first address and a size.
    pub(super) fn has_range(&self) -> bool {
        matches!(self.extent, Extent::Sized)
    }

    /// Whether they state their code as a list in the section of ranges.
    pub(super) fn has_list(&self) -> bool {
        matches!(self.extent, Extent::List)
    }

    /// Whether entries can have code.
    pub(crate) fn may_have_code(&self) -> bool {
        self.has(Field::Low) || self.has(Field::Ranges)
    }

    /// Reads the entry whose attributes begin at `at`.
    #[inline]
    pub(crate) fn read<'f>(&'f self, data: &'f [u8], at: usize) -> Option<Values<'f>> {
        if let Some(fixed) = &self.fixed {
            let rest = data.get(at..)?;
            // Mostly there is more behind the entry.
            let size = usize::from(fixed.size);
            if rest.len() >= size + 8 {
                return Some(Values {
                    fields: self,
                    source: Source::Fixed(fixed, rest),
                    end: at + size,
                });
            }
        }
        self.read_in_order(data, at)
    }

    fn read_in_order(&self, data: &[u8], at: usize) -> Option<Values<'_>> {
        let mut values = [0; FIELDS];
        let mut present = 0;
        let mut end = at;
        for take in &self.takes {
            let (field, value) = match take {
                Take::Skip(step) => {
                    end = step.end(data, end)?;
                    continue;
                }
                Take::Number(field, size) => {
                    let value = number(data, end, *size)?;
                    end += size;
                    (*field, value)
                }
                Take::Leb(field) => {
                    let (value, after) = skip::leb(data, end)?;
                    end = after;
                    (*field, value)
                }
                Take::Constant(field, value) => (*field, *value),
            };
            values[field as usize] = value;
            present |= 1 << field as u8;
        }
        (end <= data.len()).then_some(Values {
            fields: self,
            source: Source::Read(values, present),
            end,
        })
    }
}

impl Fixed {
    /// `None` when the size depends on the bytes.
    fn new(takes: &[Take]) -> Option<Fixed> {
        let mut fixed = Fixed {
            places: [Place::Absent; FIELDS],
            constants: Vec::new(),
            size: 0,
        };
        for take in takes {
            let (field, place, size) = match *take {
                Take::Skip(Step::Bytes(size)) => {
                    fixed.size = fixed.size.checked_add(u16::try_from(size).ok()?)?;
                    continue;
                }
                Take::Skip(_) | Take::Leb(_) => return None,
                Take::Number(field, size) => (field, Place::At(fixed.size, size as u8), size),
                Take::Constant(field, value) => {
                    let place = Place::Constant(fixed.constants.len() as u8);
                    fixed.constants.push(value);
                    (field, place, 0)
                }
            };
            fixed.places[field as usize] = place;
            fixed.size = fixed.size.checked_add(size as u16)?;
        }
        Some(fixed)
    }

    #[inline]
    fn number(&self, field: Field, data: &[u8]) -> Option<u64> {
        match self.places[field as usize] {
            Place::Absent => None,
            Place::Constant(at) => self.constants.get(usize::from(at)).copied(),
            Place::At(offset, size) => {
                let wide = data.get(usize::from(offset)..)?.first_chunk()?;
                Some(u64::from_le_bytes(*wide) & mask(usize::from(size)))
            }
        }
    }
}

/// The bits of a number of 1 to 8 bytes.
fn mask(size: usize) -> u64 {
    u64::MAX >> (64 - 8 * size)
}

/// A little-endian number of 1, 2, 4 or 8 bytes.
fn number(data: &[u8], at: usize, size: usize) -> Option<u64> {
    let rest = data.get(at..)?;
    match rest.first_chunk() {
        // Mostly there is more behind it.
        Some(wide) => Some(u64::from_le_bytes(*wide) & mask(size)),
        None => {
            let bytes = rest.get(..size)?;
            Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        }
    }
}

impl Values<'_> {
    fn get<'d>(
        &self,
        field: Field,
        meaning: fn(DwForm, u64) -> Option<AttributeValue<Reader<'d>>>,
    ) -> Option<AttributeValue<Reader<'d>>> {
        meaning(self.fields.forms[field as usize], self.number(field)?)
    }

    /// A plain number.
    #[inline]
    pub(crate) fn number(&self, field: Field) -> Option<u64> {
        match &self.source {
            Source::Fixed(fixed, data) => fixed.number(field, data),
            Source::Read(values, present) => {
                let is_there = present >> field as u8 & 1 == 1;
                is_there.then_some(values[field as usize])
            }
        }
    }

    /// A plain number that is small.
    #[inline]
    pub(crate) fn small(&self, field: Field) -> Option<u32> {
        self.number(field).and_then(|n| u32::try_from(n).ok())
    }

    /// Where the entry is that describes this one, if it is in the same unit.
    #[inline]
    pub(super) fn origin_in_unit(&self) -> Option<UnitOffset<usize>> {
        let number = self.number(Field::Origin).filter(|_| self.fields.is_near)?;
        offset(number).map(UnitOffset)
    }

    /// A name.
    pub(crate) fn text<'d>(&self, field: Field) -> Option<AttributeValue<Reader<'d>>> {
        self.get(field, |_, v| {
            Some(AttributeValue::DebugStrRef(DebugStrOffset(offset(v)?)))
        })
    }

    /// Where the code is.
    #[inline]
    pub(super) fn code<'d>(&self) -> Code<'d> {
        let number = |field| self.number(field).unwrap_or(0);
        match self.fields.extent {
            Extent::None => Code::None,
            Extent::Sized => match number(Field::Low).checked_add(number(Field::High)) {
                Some(end) => Code::Range(number(Field::Low), end),
                None => Code::None,
            },
            Extent::List => match offset(number(Field::Ranges)) {
                Some(offset) => Code::List(RawRangeListsOffset(offset)),
                None => Code::None,
            },
            Extent::Other => self.stated_code(),
        }
    }

    /// The same in a form that few compilers use.
    #[cold]
    fn stated_code<'d>(&self) -> Code<'d> {
        Code::Stated {
            low: self.get(Field::Low, address),
            high: self.get(Field::High, |form, v| {
                address(form, v).or(Some(AttributeValue::Udata(v)))
            }),
            ranges: self.get(Field::Ranges, ranges),
        }
    }

    /// An entry that describes this one.
    pub(crate) fn entry<'d>(&self, field: Field) -> Option<AttributeValue<Reader<'d>>> {
        self.get(field, reference)
    }
}

fn offset(value: u64) -> Option<usize> {
    usize::try_from(value).ok()
}

fn is_constant(form: DwForm) -> bool {
    matches!(
        form,
        constants::DW_FORM_data1
            | constants::DW_FORM_data2
            | constants::DW_FORM_data4
            | constants::DW_FORM_data8
            | constants::DW_FORM_udata
            | constants::DW_FORM_implicit_const
    )
}

fn address<'d>(form: DwForm, value: u64) -> Option<AttributeValue<Reader<'d>>> {
    match form {
        constants::DW_FORM_addr => Some(AttributeValue::Addr(value)),
        constants::DW_FORM_addrx
        | constants::DW_FORM_addrx1
        | constants::DW_FORM_addrx2
        | constants::DW_FORM_addrx4
        | constants::DW_FORM_GNU_addr_index => Some(AttributeValue::DebugAddrIndex(
            DebugAddrIndex(offset(value)?),
        )),
        _ => None,
    }
}

fn ranges<'d>(form: DwForm, value: u64) -> Option<AttributeValue<Reader<'d>>> {
    let value = offset(value)?;
    match form {
        constants::DW_FORM_sec_offset | constants::DW_FORM_data4 | constants::DW_FORM_data8 => {
            Some(RangeListsRef(RawRangeListsOffset(value)))
        }
        constants::DW_FORM_rnglistx => Some(AttributeValue::DebugRngListsIndex(
            DebugRngListsIndex(value),
        )),
        _ => None,
    }
}

fn reference<'d>(form: DwForm, value: u64) -> Option<AttributeValue<Reader<'d>>> {
    let value = offset(value)?;
    match form {
        constants::DW_FORM_ref1
        | constants::DW_FORM_ref2
        | constants::DW_FORM_ref4
        | constants::DW_FORM_ref8
        | constants::DW_FORM_ref_udata => Some(AttributeValue::UnitRef(UnitOffset(value))),
        constants::DW_FORM_ref_addr => Some(AttributeValue::DebugInfoRef(DebugInfoOffset(value))),
        constants::DW_FORM_GNU_ref_alt
        | constants::DW_FORM_ref_sup4
        | constants::DW_FORM_ref_sup8 => {
            Some(AttributeValue::DebugInfoRefSup(DebugInfoOffset(value)))
        }
        _ => None,
    }
}
