//! Reads structure files. The result is consistent, or an error says what is wrong.

use super::{
    Columns, FLAG_COMPLETE, KIND, Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine,
    Span, StringId, Structure,
};
use crate::bytes::{ByteReader, apart};
use crate::error::FileError;

/// Reads the payload's elements; every method returns `None` past the end or out of range.
struct Decoder<'a>(ByteReader<'a>);

impl<'a> Decoder<'a> {
    fn number(&mut self) -> Option<u64> {
        self.0.number()
    }

    /// A number of elements. Each takes at least one byte, which bounds the memory to reserve.
    fn count(&mut self) -> Option<usize> {
        let n = usize::try_from(self.number()?).ok()?;
        (n <= self.0.remaining()).then_some(n)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.count()?;
        self.0.take(n)
    }

    /// How many elements there are, and each of them.
    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.count()?).map(|_| each(self)).collect()
    }

    fn string(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// An index below `limit`.
    fn index(&mut self, limit: usize) -> Option<u32> {
        below(u32::try_from(self.number()?).ok()?, limit)
    }

    /// An optional index below `limit`.
    fn option(&mut self, limit: usize) -> Option<Option<u32>> {
        match self.number()? {
            0 => Some(None),
            v => below(u32::try_from(v - 1).ok()?, limit).map(Some),
        }
    }

    fn line(&mut self, strings: usize) -> Option<Option<SourceLine>> {
        let Some(file) = self.option(strings)? else {
            return Some(None);
        };
        let line = u32::try_from(self.number()?).ok()?;
        Some(Some(SourceLine { file: StringId(file), line }))
    }

    fn procedure(&mut self, strings: usize) -> Option<Procedure> {
        Some(Procedure {
            name: StringId(self.index(strings)?),
            linkage_name: StringId(self.index(strings)?),
            declared: self.line(strings)?,
            origin: origin(self.number()?)?,
            tag: self.option(strings)?.map(StringId),
        })
    }

    fn scope(&mut self, at: usize, before: Option<&Scope>, limits: &Structure) -> Option<Scope> {
        let strings = limits.strings.len();
        let kind = self.number()?;
        let procedure = before.map_or(0, |b| b.procedure.0);
        let procedure = below(apart(self.number()?, procedure)?, limits.procedures.len())?;
        let parent = match self.number()? {
            0 => None,
            up => {
                let parent = (at as u64).checked_sub(up)?;
                Some(ScopeId(u32::try_from(parent).ok()?))
            }
        };
        Some(Scope {
            kind: match kind % 4 {
                1 => ScopeKind::Inlined,
                2 => ScopeKind::Loop,
                _ => return None,
            },
            procedure: ProcedureId(procedure),
            parent,
            name: StringId(self.index(strings)?),
            declared: self.line(strings)?,
            site: self.line(strings)?,
            origin: origin(kind / 4)?,
        })
    }

    fn span(&mut self, before: Option<&Span>, limits: &Structure) -> Option<Span> {
        let start = before.map_or(0, |b| b.end).checked_add(self.number()?)?;
        let end = start.checked_add(self.number()?)?;
        if end == start {
            return None;
        }
        let procedure = before.map_or(0, |b| b.procedure.0);
        let procedure = below(apart(self.number()?, procedure)?, limits.procedures.len())?;
        let scope = match self.number()? {
            0 => None,
            v => {
                let from = before.and_then(|b| b.scope).map_or(0, |s| s.0);
                Some(ScopeId(below(apart(v - 1, from)?, limits.scopes.len())?))
            }
        };
        Some(Span {
            start,
            end,
            procedure: ProcedureId(procedure),
            scope,
            line: self.line(limits.strings.len())?,
            tag: self.option(limits.strings.len())?.map(StringId),
        })
    }
}

/// A list of columns: ascending keys below `limit`.
fn columns(d: &mut Decoder<'_>, limit: u64) -> Option<Vec<(u64, u32)>> {
    let count = d.count()?;
    let mut out: Vec<(u64, u32)> = Vec::with_capacity(count);
    for _ in 0..count {
        let before = out.last().map(|c| c.0);
        let step = d.number()?;
        let key = before.unwrap_or(0).checked_add(step)?;
        if key >= limit || (before.is_some() && step == 0) {
            return None;
        }
        out.push((key, u32::try_from(d.number()?).ok()?));
    }
    Some(out)
}

fn below(index: u32, limit: usize) -> Option<u32> {
    ((index as usize) < limit).then_some(index)
}

fn origin(number: u64) -> Option<Origin> {
    Origin::from_number(u32::try_from(number).ok()?)
}

impl Structure {
    /// Decodes a structure file. What it returns is consistent: every id is in range, spans are
    /// sorted and do not overlap, a scope's parent comes before it.
    pub fn decode(data: &[u8]) -> Result<Structure, FileError> {
        let (minor, flags, payload) = KIND.open(data)?;
        let mut structure = Structure { complete: flags & FLAG_COMPLETE != 0, ..Structure::default() };
        let mut decoder = Decoder(ByteReader::new(payload));
        structure.decode_payload(&mut decoder)?;
        if minor >= 1 {
            structure.decode_columns(&mut decoder)?;
        }
        Ok(structure)
    }

    fn decode_payload(&mut self, d: &mut Decoder<'_>) -> Result<(), FileError> {
        let corrupt = |what| KIND.corrupt(what);
        self.module = d.string().ok_or(corrupt("module"))?;
        self.build_id = d.bytes().ok_or(corrupt("build id"))?.to_vec();
        self.notes = d.list(Decoder::string).ok_or(corrupt("notes"))?;
        self.strings = d.list(Decoder::string).ok_or(corrupt("strings"))?;
        let strings = self.strings.len();
        self.procedures = d.list(|d| d.procedure(strings)).ok_or(corrupt("procedures"))?;
        let scopes = d.count().ok_or(corrupt("scopes"))?;
        for at in 0..scopes {
            let scope = d.scope(at, self.scopes.last(), self);
            self.scopes.push(scope.ok_or(corrupt("scopes"))?);
        }
        let spans = d.count().ok_or(corrupt("spans"))?;
        for _ in 0..spans {
            let span = d.span(self.spans.last(), self);
            self.spans.push(span.ok_or(corrupt("spans"))?);
        }
        Ok(())
    }

    fn decode_columns(&mut self, d: &mut Decoder<'_>) -> Result<(), FileError> {
        let scopes = columns(d, self.scopes.len() as u64);
        let calls = scopes.and_then(|scopes| Some((scopes, columns(d, u64::MAX)?)));
        let (scopes, calls) = calls.ok_or(KIND.corrupt("columns"))?;
        // Every key is below the number of scopes, so it fits.
        let scope = |(key, column)| (ScopeId(key as u32), column);
        self.columns = Columns { scopes: scopes.into_iter().map(scope).collect(), calls };
        Ok(())
    }
}
