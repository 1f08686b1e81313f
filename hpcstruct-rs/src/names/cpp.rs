//! Readable names of C++: without parameters and return types, as llvm-symbolizer spells them.
//!
//! `cpp_demangle` reads the Itanium scheme. What it does not know is rewritten before, what it writes in a
//! form that no C++ has is put right behind it. llvm-symbolizer differs still in lambdas (`'lambda'(int)`
//! for `{lambda(int)#1}`), in unnamed namespaces, and in that it writes parameters.

use std::borrow::Cow;

/// Longest readable name; substitutions can make a short symbol exponentially long.
const MAX_NAME: usize = 1 << 16;

/// Most parameter lists of one name that are moved; real ones have two.
const MAX_MOVES: usize = 16;

/// A string that refuses to grow beyond [`MAX_NAME`].
struct Bounded(String);

impl cpp_demangle::DemangleWrite for Bounded {
    fn write_string(&mut self, s: &str) -> std::fmt::Result {
        if self.0.len() + s.len() > MAX_NAME {
            return Err(std::fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

/// The readable name of a mangled one; `None` if it cannot be read.
pub(super) fn readable(stem: &str) -> Option<String> {
    match thunk(stem) {
        Some((kind, target)) => Some(format!("{kind} to {}", name(&format!("_Z{target}"))?)),
        None => name(stem),
    }
}

fn name(stem: &str) -> Option<String> {
    let name = match demangle(stem) {
        Some(name) => name,
        None => without_marked(&demangle(&rewritten(stem)?)?),
    };
    let mut name = spelling(&name);
    // A lambda is its call operator; qualifiers are part of the parameters that are left out.
    let mut plain = name.len();
    for qualifier in [" &&", " &", " volatile", " const"] {
        plain = name[..plain].strip_suffix(qualifier).map_or(plain, str::len);
    }
    name.truncate(plain);
    if let Some(lambda) = name.strip_suffix("::operator()").filter(|n| n.ends_with('}')) {
        name.truncate(lambda.len());
    }
    Some(name)
}

fn demangle(stem: &str) -> Option<String> {
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(160);
    let symbol = cpp_demangle::BorrowedSymbol::with_tail_and_options(stem.as_bytes(), &parse);
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(160);
    let mut out = Bounded(String::new());
    symbol.ok()?.0.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

/// The kind of a thunk, and the mangled name of what it calls, without `_Z`.
fn thunk(stem: &str) -> Option<(&'static str, &str)> {
    /// Behind an offset: `h` or `v`, numbers with `n` for minus, each ended by `_`.
    fn offset(text: &str) -> Option<&str> {
        let numbers = match text.as_bytes().first()? {
            b'h' => 1,
            b'v' => 2,
            _ => return None,
        };
        let mut rest = &text[1..];
        for _ in 0..numbers {
            let digits = rest.strip_prefix('n').unwrap_or(rest);
            let (number, after) = digits.split_once('_')?;
            if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            rest = after;
        }
        Some(rest)
    }
    let text = stem.strip_prefix("_ZT")?;
    if let Some(text) = text.strip_prefix('c') {
        return Some(("covariant return thunk", offset(offset(text)?)?));
    }
    let kind = if text.starts_with('h') { "non-virtual thunk" } else { "virtual thunk" };
    Some((kind, offset(text)?))
}

/// Stands before the type of a template parameter.
const MARK: &str = "__declared_type";

/// Since clang 16 an argument may follow the declaration of its parameter (`Tn` and a type). Makes two
/// arguments of that, the mark and the type. GCC writes a member of a type (`sr`) with a whole type: makes a
/// cast of it, `(type)(member)`. `None` if there is neither.
fn rewritten(stem: &str) -> Option<String> {
    let bytes = stem.is_ascii().then_some(stem.as_bytes())?;
    let mut out = String::with_capacity(stem.len() + 64);
    let (mut at, mut copied, mut item_ends) = (0, 0, 0);
    while at < bytes.len() {
        let rest = &stem[at..];
        let after = rest[1..].trim_start_matches(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
        let is_declared = rest.starts_with("Tn");
        if is_declared || rest.starts_with("srN") || rest.starts_with("srS") {
            out.push_str(&stem[copied..at]);
            out.push_str(&if is_declared { format!("L_Z{}{MARK}E", MARK.len()) } else { "cv".to_owned() });
            at += 2;
            copied = at;
        } else if rest.starts_with(['S', 'T']) && after.starts_with('_') {
            at += rest.len() - after.len() + 1;
            item_ends = at;
        } else if bytes[at].is_ascii_digit() {
            let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            // Numbers of arrays, literals and entities are no lengths of names.
            let before = (at != item_ends).then(|| bytes[at - 1]);
            let literal = at >= 2 && bytes[at - 2] == b'L' && bytes[at - 1].is_ascii_lowercase();
            let counts = !literal && !matches!(before, Some(b'A' | b'_' | b'n'));
            let length = if counts { rest[..digits].parse().unwrap_or(0) } else { 0 };
            at = at.saturating_add(digits).saturating_add(length);
            item_ends = at;
        } else {
            at += 1;
        }
    }
    out.push_str(&stem[copied..]);
    (copied > 0).then_some(out)
}

/// Removes each mark and the argument behind it.
fn without_marked(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, marked)) = rest.split_once(MARK) {
        out.push_str(before);
        let behind = marked.strip_prefix(", ").unwrap_or(marked);
        let mut depth = 0;
        let end = behind.char_indices().find(|(at, c)| match c {
            '<' | '(' => {
                depth += 1;
                false
            }
            '>' | ')' => {
                depth -= 1;
                depth < 0
            }
            ',' => depth == 0 && behind[at + 1..].starts_with(' '),
            _ => false,
        });
        let behind = &behind[end.map_or(behind.len(), |(at, _)| at)..];
        rest = behind.strip_prefix(", ").unwrap_or(behind);
    }
    out + rest
}

/// Numbers with their suffixes, nothing for empty packs, parameters behind the name that has them.
fn spelling(name: &str) -> String {
    let mut name = Cow::Borrowed(name);
    for (prefix, suffix) in [
        ("(unsigned int)", "u"),
        ("(unsigned long)", "ul"),
        ("(long)", "l"),
        ("(unsigned long long)", "ull"),
        ("(long long)", "ll"),
    ] {
        if name.contains(prefix) {
            name = Cow::Owned(with_suffix(&name, prefix, suffix));
        }
    }
    for (from, to) in [
        (", &&)", ")"),
        (", &)", ")"),
        (", &&,", ","),
        (", &,", ","),
        ("<, ", "<"),
        (", , ", ", "),
        (", >", ">"),
        (", )", ")"),
        // What a type of a class that is named by a substitution should not have.
        ("*::", "::"),
    ] {
        if name.contains(from) {
            name = Cow::Owned(name.replace(from, to));
        }
    }
    let mut name = name.into_owned();
    for _ in 0..MAX_MOVES {
        match parameters_moved(&name) {
            Some(moved) => name = moved,
            None => break,
        }
    }
    name
}

/// `(unsigned int)8` becomes `8u`; the type before what is no number stays.
fn with_suffix(name: &str, prefix: &str, suffix: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut parts = name.split(prefix);
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let sign = usize::from(part.starts_with('-'));
        let digits = part[sign..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            out.push_str(prefix);
            out.push_str(part);
        } else {
            let (number, rest) = part.split_at(sign + digits);
            out.extend([number, suffix, rest]);
        }
    }
    out
}

/// The first `A(int)::f const::` in a name as `A::f(int) const::`.
fn parameters_moved(name: &str) -> Option<String> {
    let at = name.match_indices(" const::").map(|(at, _)| at).find(|at| {
        let before = name.as_bytes()[..*at].last();
        before.is_some_and(|b| !matches!(b, b')' | b'>' | b'*' | b'&'))
    })?;
    let start = name[..at].rfind(")::")? + 1;
    let function = &name[start..at];
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'~');
    if !function.bytes().all(is_word) {
        return None;
    }
    let mut depth = 0;
    let open = name[..start].char_indices().rev().find(|(_, c)| {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    });
    let (open, _) = open?;
    let (class, parameters) = (&name[..open], &name[open..start]);
    Some(format!("{class}{function}{parameters}{}", &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::readable;

    /// As `llvm-cxxfilt` of LLVM 19 has them, but for parameters and lambdas.
    #[test]
    fn names_are_those_that_cpp_has() {
        for (symbol, name) in [
            ("_ZThn16_N4Both1gEv", "non-virtual thunk to Both::g"),
            ("_ZTv0_n24_NSt10ostrstreamD0Ev", "virtual thunk to std::ostrstream::~ostrstream"),
            ("_ZTch0_h16_N1B1fEv", "covariant return thunk to B::f"),
            ("_ZNO3Url4takeEv", "Url::take"),
            ("_ZNKR3Url4takeEv", "Url::take"),
            ("_ZN3MgrIiJEE3runEv", "Mgr<int>::run"),
            ("_ZN3MgrIJEE3runEv", "Mgr<>::run"),
            ("_ZN1VIiLj8EE3runEv", "V<int, 8u>::run"),
            ("_ZN1VILmn3ELl7ELs2EE3runEv", "V<-3ul, 7l, (short)2>::run"),
            ("_ZN2PrIP2IdPNS0_4DataEE3getEv", "Pr<Id*, Id::Data*>::get"),
            ("_Z3conIiTnNSt9enable_ifIXsr11is_integralE5valueEbE4typeELb1EET_S2_", "con<int, true>"),
            ("_ZN1AITnjLj4ETniLi5EE3TnxEv", "A<4u, 5>::Tnx"),
            (
                "_ZN1a1fIZN3par4copyIN2on2v11pEEENSt9enable_ifIXsrN3par2isIT_EE5valueEiE4typeEvEUliE_EEvv",
                "a::f<par::copy<on::v1::p>()::{lambda(int)#1}>",
            ),
            (
                "_ZNSt17_Function_handlerIFiRKN1n2ExEEZNKS1_4hashEvEUlS3_E_E9_M_invokeERKSt9_Any_dataS3_",
                "std::_Function_handler<int (n::Ex const&), \
                 n::Ex::hash() const::{lambda(n::Ex const&)#1}>::_M_invoke",
            ),
        ] {
            assert_eq!(readable(symbol).as_deref(), Some(name), "{symbol}");
        }
    }
}
