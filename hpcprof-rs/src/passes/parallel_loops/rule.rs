//! What is known of one library of parallel loops.

/// How the parallel loops of one library are recognised and named. Procedures are known by name.
#[derive(Debug)]
pub struct Rule {
    /// A runtime's procedure that is part of the library. User code that calls one begins a loop.
    pub is_library: fn(&str) -> bool,
    /// A user's procedure that implements the library's interfaces: a frame within a loop, not its body.
    pub is_extension: fn(&str) -> bool,
    /// A system procedure between a loop and its body: a frame of the loop.
    pub is_shim: fn(&str) -> bool,
    /// An entry that the program does not call itself: its method alone would say nothing.
    pub is_internal: fn(&str) -> bool,
    /// The part that a frame adds to the name of its loop, `map` of an adaptor's frame.
    pub adaptor: fn(&str) -> Option<String>,
    /// Prefixes of the methods that begin a loop's expression in Rust source.
    pub source_starts: &'static [&'static str],
    /// What the directive that makes a loop begins with, after `#pragma`. Each such loop is one of its own.
    pub directive: Option<&'static str>,
}

/// The last component of a name's path, without generic arguments.
pub(super) fn last_part(name: &str) -> &str {
    let mut parts = parts(name);
    let last = parts.next().unwrap_or(name);
    match last.starts_with('<') {
        true => parts.next().unwrap_or(last),
        false => last,
    }
}

/// The components of a path, the last one first; generic arguments and `<impl A for B>` are one each.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(name);
    std::iter::from_fn(move || {
        let path = rest?;
        let bytes = path.as_bytes();
        let mut depth = 0_usize;
        let start = (0..bytes.len()).rev().find(|&at| {
            // The arrow of a function type closes nothing.
            let is_arrow = at > 0 && matches!(bytes[at - 1], b'-' | b'=');
            match bytes[at] {
                b'>' if !is_arrow => depth += 1,
                b'<' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && at > 0 && bytes[at - 1..=at] == *b"::"
        });
        rest = start.map(|at| &path[..at - 1]);
        Some(start.map_or(path, |at| &path[at + 1..]))
    })
}
