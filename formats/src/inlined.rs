//! Which procedures contain the code at an address, inlined ones included, and which loops wait: a table of
//! some modules, which the launcher makes and the preloaded library maps. It is no part of a measurement.
//!
//! Little-endian words of 32 bits after a magic: the counts of modules, spans and members; of each module
//! its first span and the end of its identity in the last part; of each span its first address; of each span
//! the place of its list among the members; the members, in which a list is a count and so many pairs of a
//! procedure and its depth; the identities. A span ends where the next one of its module begins.

use std::collections::HashMap;

const MAGIC: &[u8; 8] = b"HPCRINL1";

/// A procedure that contains an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Around {
    /// Its number in the module.
    pub procedure: u32,
    /// How many procedures are around it: 0 for the one that has the machine code, more for inlined ones.
    pub depth: u32,
}

/// Beside the procedures: the code is in a loop that only another thread can end.
pub const SPINS: Around = Around { procedure: u32::MAX, depth: 0 };

/// What a module is known by: its build id, or its path if it has none.
pub fn identity<'a>(build_id: &'a [u8], path: &'a str) -> &'a [u8] {
    match build_id {
        [] => path.as_bytes(),
        id => id,
    }
}

/// A table under construction.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// First span, end of the identity.
    modules: Vec<[u32; 2]>,
    starts: Vec<u32>,
    lists: Vec<u32>,
    members: Vec<u32>,
    known: HashMap<Vec<Around>, u32>,
    identities: Vec<u8>,
}

impl Builder {
    /// The following spans belong to the module of this [`identity`].
    pub fn begin_module(&mut self, identity: &[u8]) {
        self.identities.extend(identity);
        self.modules.push([self.starts.len() as u32, self.identities.len() as u32]);
    }

    /// From this address to that of the next span, the code is in these procedures; none: it is not known in
    /// which. Spans of a module are added in ascending order.
    pub fn add(&mut self, start: u32, around: &[Around]) {
        let list = self.known.get(around).copied().unwrap_or_else(|| {
            let list = self.members.len() as u32;
            self.members.push(around.len() as u32);
            let pairs = around.iter().flat_map(|a| [a.procedure, a.depth]);
            self.members.extend(pairs);
            self.known.insert(around.to_vec(), list);
            list
        });
        let first = self.modules.last().map_or(0, |module| module[0] as usize);
        if self.lists[first..].last() != Some(&list) {
            self.starts.push(start);
            self.lists.push(list);
        }
    }

    pub fn finish(&self) -> Vec<u8> {
        let counts = [&self.modules.len(), &self.starts.len(), &self.members.len()];
        let counts = counts.into_iter().map(|count| *count as u32);
        let modules = self.modules.iter().flatten().copied();
        let tables = [&self.starts, &self.lists, &self.members];
        let tables = tables.into_iter().flatten().copied();
        let words = counts.chain(modules).chain(tables);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(words.flat_map(u32::to_le_bytes));
        bytes.extend(&self.identities);
        bytes
    }
}

/// A table in memory. Damaged ones give wrong answers or none.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    words: &'a [u8],
    modules: usize,
    spans: usize,
    members: usize,
}

/// A module of a [`Table`]: the spans that belong to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Module {
    first: usize,
    end: usize,
}

impl<'a> Table<'a> {
    /// `None`: the bytes are no table.
    pub fn new(bytes: &'a [u8]) -> Option<Table<'a>> {
        let words = bytes.strip_prefix(MAGIC)?;
        let mut table = Table { words, modules: 0, spans: 0, members: 0 };
        let count = |at| Some(table.word(at)? as usize);
        (table.modules, table.spans, table.members) = (count(0)?, count(1)?, count(2)?);
        (table.identities() <= words.len()).then_some(table)
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.words.get(at.checked_mul(4)?..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Words before the spans' first addresses.
    fn starts(&self) -> usize {
        3 + 2 * self.modules
    }

    /// Bytes before the identities.
    fn identities(&self) -> usize {
        4 * (self.starts() + 2 * self.spans + self.members)
    }

    pub fn module(&self, identity: &[u8]) -> Option<Module> {
        let (mut begin, identities) = (0, self.words.get(self.identities()..)?);
        for index in 0..self.modules {
            let at = 3 + 2 * index;
            let end = self.word(at + 1)? as usize;
            if identities.get(begin..end)? == identity {
                let last = index + 1 == self.modules;
                let next = if last { None } else { self.word(at + 2) };
                return Some(Module {
                    first: self.word(at)? as usize,
                    end: next.map_or(self.spans, |next| next as usize),
                });
            }
            begin = end;
        }
        None
    }

    /// The procedures that contain an address, as the module states it; nothing where they are not known.
    pub fn around(&self, module: Module, address: u64) -> impl Iterator<Item = Around> {
        self.list(module, address).into_iter().flatten()
    }

    fn list(&self, module: Module, address: u64) -> Option<impl Iterator<Item = Around>> {
        let (mut first, mut end) = (module.first, module.end);
        while first < end {
            let middle = first + (end - first) / 2;
            if u64::from(self.word(self.starts() + middle)?) <= address {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        let span = first.checked_sub(1).filter(|span| *span >= module.first)?;
        let list = self.word(self.starts() + self.spans + span)? as usize;
        let members = self.starts() + 2 * self.spans + list;
        let table = *self;
        let pair = move |index: usize| {
            let at = members + 1 + 2 * index;
            Some(Around { procedure: table.word(at)?, depth: table.word(at + 1)? })
        };
        Some((0..self.word(members)? as usize).map_while(pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(pairs: &[(u32, u32)]) -> Vec<Around> {
        let around = |(procedure, depth): &(u32, u32)| Around { procedure: *procedure, depth: *depth };
        pairs.iter().map(around).collect()
    }

    #[test]
    fn spans_are_found_in_their_module() {
        let mut builder = Builder::default();
        builder.begin_module(b"/bin/a");
        builder.add(0x10, &around(&[(1, 0)]));
        builder.add(0x18, &around(&[(1, 0), (2, 3)]));
        builder.add(0x1c, &around(&[(1, 0), (2, 3)]));
        builder.add(0x20, &[]);
        builder.begin_module(&[0xff, 0]);
        builder.add(0, &around(&[(1, 0)]));
        builder.begin_module(b"empty");
        let bytes = builder.finish();
        let table = Table::new(&bytes).expect("a table");
        let at = |module: &[u8], address| {
            let module = table.module(module).expect("it is known");
            table.around(module, address).collect::<Vec<_>>()
        };
        let both = around(&[(1, 0), (2, 3)]);
        for (address, expected) in [
            (0xf, &[][..]),
            (0x10, &both[..1]),
            (0x17, &both[..1]),
            (0x18, &both),
            (0x1f, &both),
            (0x20, &[]),
            (u64::MAX, &[]),
        ] {
            assert_eq!(at(b"/bin/a", address), expected, "{address:#x}");
        }
        assert_eq!(at(&[0xff, 0], 1 << 40), &both[..1]);
        assert_eq!(at(b"empty", 0), []);
        assert_eq!(table.module(b"/bin"), None);
        assert_eq!(builder.starts.len(), 4, "equal spans are one");
    }

    #[test]
    fn damage_is_no_panic() {
        let mut builder = Builder::default();
        builder.begin_module(b"a");
        builder.add(1, &around(&[(1, 0), (2, 1)]));
        builder.add(9, &[]);
        let bytes = builder.finish();
        for length in 0..bytes.len() {
            assert!(Table::new(&bytes[..length]).is_none_or(|t| t.module(b"a").is_none()));
        }
        for at in MAGIC.len()..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let Some(table) = Table::new(&damaged) else {
                    continue;
                };
                let module = table.module(b"a");
                assert!(module.is_none_or(|m| table.around(m, 5).count() <= damaged.len()));
            }
        }
    }
}
