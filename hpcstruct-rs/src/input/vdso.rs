//! The kernel's vdso, read from this very process: the same image that every process of this
//! boot has mapped.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// The name under which maps and load maps list it.
pub(crate) const NAME: &str = "[vdso]";
/// It has a few pages; more is not a vdso.
const MAX_SIZE: u64 = 1 << 20;

pub(crate) fn read() -> io::Result<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let absent = || io::Error::new(io::ErrorKind::NotFound, "this process has no vdso");
    let (start, end) = maps.lines().find(|line| line.ends_with(NAME)).and_then(range).ok_or_else(absent)?;
    let size = end.checked_sub(start).filter(|n| *n <= MAX_SIZE);
    let mut bytes = vec![0; size.ok_or_else(absent)? as usize];
    let mut memory = File::open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    memory.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// `start-end` of a line of the maps file.
fn range(line: &str) -> Option<(u64, u64)> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |s| u64::from_str_radix(s, 16).ok();
    Some((number(start)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_is_an_elf_image() {
        let bytes = read().expect("Linux maps a vdso into every process");
        assert_eq!(bytes[..4], *b"\x7fELF");
    }

    #[test]
    fn lines_of_the_maps_file() {
        assert_eq!(range("7f00-7f10 r-xp 0 00:00 0 [vdso]"), Some((0x7f00, 0x7f10)));
        assert_eq!(range("nonsense"), None);
    }
}
