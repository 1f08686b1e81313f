//! Readable Rust names of usual symbols, in one pass.
//!
//! Input: a symbol of either of Rust's mangling schemes. Invariant: what is told here is what
//! `rustc_demangle` tells in its short form, with single braces; what is rare (identifiers that are not ASCII,
//! constants that are no numbers, damage, depth) is `None` and left to it. Tests compare the two.
//!
//! Source of the encodings: the Rust reference of the v0 scheme (RFC 2603); the legacy scheme is that
//! of C++ with escapes between dollar signs.

/// Deeper symbols, and longer names, are left to the full demangler, which has limits of its own.
const MAX_DEPTH: u32 = 100;
const MAX_LENGTH: usize = 1 << 16;

/// The readable name of `symbol`, whose suffixes are stripped; `None` when only the full demangler
/// can tell.
pub(crate) fn readable(symbol: &str) -> Option<String> {
    let mut out = String::with_capacity(2 * symbol.len());
    if let Some(body) = symbol.strip_prefix("_R") {
        // Lower-case letters are reserved for later versions of the scheme.
        if !body.is_ascii() || !body.starts_with(|c: char| c.is_ascii_uppercase()) {
            return None;
        }
        let mut printer = Printer {
            symbol: body,
            next: 0,
            depth: 0,
            bound: 0,
            quiet: false,
            out,
        };
        printer.path(true)?;
        // The crate that the code was instantiated in.
        if printer.next < body.len() {
            printer.quiet = true;
            printer.path(false)?;
        }
        return (printer.next == body.len()).then_some(printer.out);
    }
    legacy(symbol.strip_prefix("_ZN")?, &mut out)?;
    Some(out)
}

/// Path segments with their lengths before them, up to a final `E`.
fn legacy(body: &str, out: &mut String) -> Option<()> {
    if !body.is_ascii() {
        return None;
    }
    let mut rest = body;
    while rest != "E" {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = rest.get(..digits)?.parse().ok()?;
        let segment = rest.get(digits..digits.checked_add(length)?)?;
        rest = &rest[digits + length..];
        let hex = |b: u8| b.is_ascii_hexdigit();
        if rest == "E"
            && segment
                .strip_prefix('h')
                .is_some_and(|h| h.bytes().all(hex))
        {
            break;
        }
        if !out.is_empty() {
            out.push_str("::");
        }
        unescape(segment, out)?;
    }
    // The first segment might be empty, and then no separator was written.
    (!out.is_empty() && !body.starts_with('0')).then_some(())
}

/// Appends a segment of the legacy scheme.
fn unescape(segment: &str, out: &mut String) -> Option<()> {
    let mut rest = segment;
    if rest.starts_with("_$") {
        rest = &rest[1..];
    }
    while let Some(at) = rest.bytes().position(|b| matches!(b, b'$' | b'.')) {
        plain(&rest[..at], out)?;
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("..") {
            out.push_str("::");
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            out.push('.');
            rest = after;
        } else {
            let (escape, after) = rest[1..].split_once('$')?;
            rest = after;
            match escape {
                "SP" => out.push('@'),
                "BP" => out.push('*'),
                "RF" => out.push('&'),
                "LT" => out.push('<'),
                "GT" => out.push('>'),
                "LP" => out.push('('),
                "RP" => out.push(')'),
                "C" => out.push(','),
                // Names show closures in single braces.
                "u7b" if rest.starts_with("$u7b$") => {
                    rest = &rest[5..];
                    out.push('{');
                }
                "u7d" if rest.starts_with("$u7d$") => {
                    rest = &rest[5..];
                    out.push('}');
                }
                "u20" => out.push(' '),
                "u22" => out.push('"'),
                "u27" => out.push('\''),
                "u2b" => out.push('+'),
                "u3b" => out.push(';'),
                "u5b" => out.push('['),
                "u5d" => out.push(']'),
                _ => return None,
            }
        }
    }
    plain(rest, out)
}

/// Appends text without braces: doubled ones have a meaning of their own.
fn plain(text: &str, out: &mut String) -> Option<()> {
    if text.bytes().any(|b| matches!(b, b'{' | b'}')) {
        return None;
    }
    out.push_str(text);
    Some(())
}

/// Reads a symbol of the v0 scheme and writes its name.
struct Printer<'s> {
    symbol: &'s str,
    next: usize,
    depth: u32,
    /// Lifetimes that the binders around bind.
    bound: u64,
    /// Only reads.
    quiet: bool,
    out: String,
}

impl<'s> Printer<'s> {
    fn peek(&self) -> Option<u8> {
        self.symbol.as_bytes().get(self.next).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.next += 1;
        Some(byte)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.next += usize::from(found);
        found
    }

    fn print(&mut self, text: &str) {
        if !self.quiet {
            self.out.push_str(text);
        }
    }

    fn print_number(&mut self, mut value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        if !self.quiet {
            self.out.extend(digits[at..].iter().map(|d| char::from(*d)));
        }
    }

    fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= MAX_DEPTH && self.out.len() <= MAX_LENGTH).then_some(())
    }

    /// A number to the base of 62 up to an underscore.
    fn base_62(&mut self) -> Option<u64> {
        if self.eat(b'_') {
            return Some(0);
        }
        let mut value = 0u64;
        loop {
            let digit = match self.take()? {
                b'_' => return value.checked_add(1),
                d @ b'0'..=b'9' => d - b'0',
                d @ b'a'..=b'z' => d - b'a' + 10,
                d @ b'A'..=b'Z' => d - b'A' + 36,
                _ => return None,
            };
            value = value.checked_mul(62)?.checked_add(u64::from(digit))?;
        }
    }

    /// The same behind a tag; 0 where the tag is missing.
    fn optional_base_62(&mut self, tag: u8) -> Option<u64> {
        if self.eat(tag) {
            self.base_62()?.checked_add(1)
        } else {
            Some(0)
        }
    }

    fn identifier(&mut self) -> Option<&'s str> {
        let first = self.take()?;
        let mut length = usize::from(first.checked_sub(b'0').filter(|d| *d < 10)?);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            if length == 0 {
                break;
            }
            length = length.checked_mul(10)? + usize::from(digit - b'0');
            self.next += 1;
        }
        self.eat(b'_');
        let end = self.next.checked_add(length)?;
        let text = self.symbol.get(self.next..end)?;
        self.next = end;
        let braces = text.bytes().any(|b| matches!(b, b'{' | b'}'));
        (!braces).then_some(text)
    }

    /// Reads on at an earlier place.
    fn back(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let start = self.next - 1;
        let target = usize::try_from(self.base_62()?).ok()?;
        if target >= start {
            return None;
        }
        if self.quiet {
            return Some(());
        }
        let after = std::mem::replace(&mut self.next, target);
        self.enter()?;
        read(self)?;
        self.depth -= 1;
        self.next = after;
        Some(())
    }

    /// Elements up to an `E`; returns their number.
    fn list(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<usize> {
        let mut count = 0;
        while !self.eat(b'E') {
            if count > 0 {
                self.print(", ");
            }
            element(self)?;
            count += 1;
        }
        Some(count)
    }

    fn path(&mut self, in_value: bool) -> Option<()> {
        self.enter()?;
        let tag = self.take()?;
        match tag {
            b'C' => {
                self.optional_base_62(b's')?;
                let name = self.identifier()?;
                self.print(name);
            }
            b'N' => self.nested(in_value)?,
            b'M' | b'X' | b'Y' => {
                if tag != b'Y' {
                    // Where the implementation is written.
                    self.optional_base_62(b's')?;
                    let quiet = std::mem::replace(&mut self.quiet, true);
                    self.path(false)?;
                    self.quiet = quiet;
                }
                self.print("<");
                self.kind()?;
                if tag != b'M' {
                    self.print(" as ");
                    self.path(false)?;
                }
                self.print(">");
            }
            b'I' => {
                self.path(in_value)?;
                self.print(if in_value { "::<" } else { "<" });
                self.list(Self::argument)?;
                self.print(">");
            }
            b'B' => self.back(|this| this.path(in_value))?,
            _ => return None,
        }
        self.depth -= 1;
        Some(())
    }

    /// A name within a path.
    fn nested(&mut self, in_value: bool) -> Option<()> {
        let space = self.take()?;
        if !space.is_ascii_alphabetic() {
            return None;
        }
        self.path(in_value)?;
        let number = self.optional_base_62(b's')?;
        let name = self.identifier()?;
        if space.is_ascii_lowercase() {
            if !name.is_empty() {
                self.print("::");
                self.print(name);
            }
            return Some(());
        }
        match space {
            b'C' => self.print("::{closure"),
            b'S' => self.print("::{shim"),
            _ => return None,
        }
        if !name.is_empty() {
            self.print(":");
            self.print(name);
        }
        self.print("#");
        self.print_number(number);
        self.print("}");
        Some(())
    }

    fn argument(&mut self) -> Option<()> {
        if self.eat(b'L') {
            let index = self.base_62()?;
            self.lifetime(index)
        } else if self.eat(b'K') {
            self.constant()
        } else {
            self.kind()
        }
    }

    /// A lifetime: 0 is none, others count the binders around from the inside.
    fn lifetime(&mut self, index: u64) -> Option<()> {
        if self.quiet {
            return Some(());
        }
        if index == 0 {
            self.print("'_");
            return Some(());
        }
        let outer = self.bound.checked_sub(index)?;
        let letter = u8::try_from(outer).ok().filter(|l| *l < 26)?;
        self.out.push('\'');
        self.out.push(char::from(b'a' + letter));
        Some(())
    }

    /// What a binder of lifetimes is around.
    fn binder(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let count = self.optional_base_62(b'G')?;
        if self.quiet || count == 0 {
            return read(self);
        }
        if count > 26 {
            return None;
        }
        self.print("for<");
        for i in 0..count {
            if i > 0 {
                self.print(", ");
            }
            self.bound += 1;
            self.lifetime(1)?;
        }
        self.print("> ");
        read(self)?;
        self.bound -= count;
        Some(())
    }

    /// A type.
    fn kind(&mut self) -> Option<()> {
        let tag = self.take()?;
        if let Some(name) = basic(tag) {
            self.print(name);
            return Some(());
        }
        self.enter()?;
        match tag {
            b'R' | b'Q' => {
                self.print("&");
                if self.eat(b'L') {
                    let index = self.base_62()?;
                    if index != 0 {
                        self.lifetime(index)?;
                        self.print(" ");
                    }
                }
                if tag == b'Q' {
                    self.print("mut ");
                }
                self.kind()?;
            }
            b'P' | b'O' => {
                self.print(if tag == b'P' { "*const " } else { "*mut " });
                self.kind()?;
            }
            b'A' | b'S' => {
                self.print("[");
                self.kind()?;
                if tag == b'A' {
                    self.print("; ");
                    self.constant()?;
                }
                self.print("]");
            }
            b'T' => {
                self.print("(");
                if self.list(Self::kind)? == 1 {
                    self.print(",");
                }
                self.print(")");
            }
            b'F' => self.binder(Self::function)?,
            b'D' => {
                self.print("dyn ");
                self.binder(Self::bounds)?;
                if !self.eat(b'L') {
                    return None;
                }
                let index = self.base_62()?;
                if index != 0 {
                    self.print(" + ");
                    self.lifetime(index)?;
                }
            }
            b'B' => self.back(Self::kind)?,
            b'C' | b'N' | b'M' | b'X' | b'Y' | b'I' => {
                self.next -= 1;
                self.path(false)?;
            }
            _ => return None,
        }
        self.depth -= 1;
        Some(())
    }

    /// A function type.
    fn function(&mut self) -> Option<()> {
        if self.eat(b'U') {
            self.print("unsafe ");
        }
        if self.eat(b'K') {
            if !self.eat(b'C') {
                return None;
            }
            self.print("extern \"C\" ");
        }
        self.print("fn(");
        self.list(Self::kind)?;
        self.print(")");
        if !self.eat(b'u') {
            self.print(" -> ");
            self.kind()?;
        }
        Some(())
    }

    /// The traits of a trait object.
    fn bounds(&mut self) -> Option<()> {
        let mut is_first = true;
        while !self.eat(b'E') {
            if !is_first {
                self.print(" + ");
            }
            is_first = false;
            let mut open = false;
            self.open_path(&mut open)?;
            while self.eat(b'p') {
                self.print(if open { ", " } else { "<" });
                open = true;
                let name = self.identifier()?;
                self.print(name);
                self.print(" = ");
                if self.eat(b'K') {
                    self.constant()?;
                } else {
                    self.kind()?;
                }
            }
            if open {
                self.print(">");
            }
        }
        Some(())
    }

    /// A path whose generic arguments, if it has any, may go on.
    fn open_path(&mut self, open: &mut bool) -> Option<()> {
        if self.eat(b'B') {
            return self.back(|this| this.open_path(open));
        }
        *open = self.eat(b'I');
        self.path(false)?;
        if *open {
            self.print("<");
            self.list(Self::argument)?;
        }
        Some(())
    }

    /// A constant: a number, a truth value, or none.
    fn constant(&mut self) -> Option<()> {
        let tag = self.take()?;
        match tag {
            b'p' => self.print("_"),
            b'h' | b't' | b'm' | b'y' | b'o' | b'j' => {
                let value = self.hexadecimal()?;
                self.print_number(value);
            }
            b'a' | b's' | b'l' | b'x' | b'n' | b'i' => {
                if self.eat(b'n') {
                    self.print("-");
                }
                let value = self.hexadecimal()?;
                self.print_number(value);
            }
            b'b' => match self.hexadecimal()? {
                0 => self.print("false"),
                1 => self.print("true"),
                _ => return None,
            },
            b'B' => {
                self.enter()?;
                self.back(Self::constant)?;
                self.depth -= 1;
            }
            _ => return None,
        }
        Some(())
    }

    /// Lower-case hexadecimal digits up to an underscore; `None` when they are too many.
    fn hexadecimal(&mut self) -> Option<u64> {
        let mut value = 0u64;
        loop {
            let digit = match self.take()? {
                b'_' => return Some(value),
                d @ b'0'..=b'9' => d - b'0',
                d @ b'a'..=b'f' => d - b'a' + 10,
                _ => return None,
            };
            if value >> 60 != 0 {
                return None;
            }
            value = value << 4 | u64::from(digit);
        }
    }
}

/// A type that a letter stands for.
fn basic(tag: u8) -> Option<&'static str> {
    Some(match tag {
        b'a' => "i8",
        b'b' => "bool",
        b'c' => "char",
        b'd' => "f64",
        b'e' => "str",
        b'f' => "f32",
        b'h' => "u8",
        b'i' => "isize",
        b'j' => "usize",
        b'l' => "i32",
        b'm' => "u32",
        b'n' => "i128",
        b'o' => "u128",
        b'p' => "_",
        b's' => "i16",
        b't' => "u16",
        b'u' => "()",
        b'v' => "...",
        b'x' => "i64",
        b'y' => "u64",
        b'z' => "!",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
