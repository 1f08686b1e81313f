//! Paths in messages: only printable characters of them reach the terminal.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path in a sentence; unprintable characters are escaped.
pub(crate) fn shown(path: &Path) -> String {
    let quoted = format!("{path:?}");
    quoted[1..quoted.len() - 1].to_owned()
}

/// A path as a word for a shell.
pub(crate) fn word(path: &Path) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=@%,:".contains(c);
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => {
            let bytes = path.as_os_str().as_bytes().iter();
            let escaped = bytes.map(|byte| match byte {
                b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn paths_are_printable_and_words_lead_back_to_them() {
        for (path, sentence, shell) in [
            (&b"/a/b-1"[..], "/a/b-1", "/a/b-1"),
            ("/ä".as_bytes(), "/ä", "/ä"),
            (b"a b'c", "a b'c", "'a b'\\''c'"),
            (b"a\x1b[1m\n'", "a\\u{1b}[1m\\n'", "$'a\\x1b[1m\\x0a\\''"),
            (b"a\xff", "a\\xFF", "$'a\\xff'"),
        ] {
            let path = Path::new(OsStr::from_bytes(path));
            assert_eq!(shown(path), sentence);
            assert_eq!(word(path), shell);
        }
    }
}
