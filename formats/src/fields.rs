//! Fields of entries and payloads: how each type is written and read.

use crate::address::CodeAddress;
use crate::bytes::{ByteReader, ByteWriter};

/// What an entry or a payload consists of. Reading returns `None` past the end or for an impossible value.
pub(crate) trait Field: Sized {
    fn write(&self, w: &mut ByteWriter);
    fn read(r: &mut ByteReader<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ident)*) => { $(
        impl Field for $number {
            fn write(&self, w: &mut ByteWriter) {
                w.$number(*self);
            }
            fn read(r: &mut ByteReader<'_>) -> Option<Self> {
                r.$number()
            }
        }
    )* };
}

numbers! { u8 u16 u32 u64 f64 }

impl Field for i64 {
    fn write(&self, w: &mut ByteWriter) {
        w.u64(*self as u64);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        r.u64().map(|value| value as i64)
    }
}

/// Structures whose fields follow one another.
macro_rules! structures {
    ($($kind:ty, $name:ident { $($field:ident)* })*) => { $(
        impl Field for $kind {
            fn write(&self, w: &mut $crate::bytes::ByteWriter) {
                $(self.$field.write(w);)*
            }
            fn read(r: &mut $crate::bytes::ByteReader<'_>) -> Option<Self> {
                Some($name { $($field: Field::read(r)?),* })
            }
        }
    )* };
}

/// Enums that are known by their numbers.
macro_rules! by_number {
    ($($kind:ident)*) => { $(
        impl Field for $kind {
            fn write(&self, w: &mut ByteWriter) {
                w.u8(*self as u8);
            }
            fn read(r: &mut ByteReader<'_>) -> Option<Self> {
                $kind::from_number(r.u8()?)
            }
        }
    )* };
}

impl Field for CodeAddress {
    fn write(&self, w: &mut ByteWriter) {
        w.u64(self.0);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        r.u64().map(CodeAddress)
    }
}

impl Field for bool {
    fn write(&self, w: &mut ByteWriter) {
        u8::from(*self).write(w);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        [false, true].get(usize::from(r.u8()?)).copied()
    }
}

impl Field for String {
    fn write(&self, w: &mut ByteWriter) {
        w.string(self);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        r.string()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn write(&self, w: &mut ByteWriter) {
        self.0.write(w);
        self.1.write(w);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        Some((A::read(r)?, B::read(r)?))
    }
}

impl<T: Field> Field for Vec<T> {
    fn write(&self, w: &mut ByteWriter) {
        (self.len() as u32).write(w);
        self.iter().for_each(|element| element.write(w));
    }
    /// Takes memory for each element that is there, whatever the count says.
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        (0..r.u32()?).map(|_| T::read(r)).collect()
    }
}

pub(crate) use {by_number, structures};
