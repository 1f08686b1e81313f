//! Time to analyse whole binaries, beside the time that only decoding their debug information
//! takes: `cargo bench -p hpcstruct-rs --bench limit [-- FILE...]`.
//!
//! Without files the bench analyses itself. No figure is checked. Each row is the median of
//! five runs; *limit* runs all line programs and reads every attribute of every entry with
//! gimli, and does nothing with them. CPU seconds are those of all threads, in steps of 10 ms.

use gimli::{EndianSlice, LittleEndian};
use hpcstruct_rs::{Options, analyse};
use object::{Object as _, ObjectSection as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const ROUNDS: usize = 5;

type Dwarf<'d> = gimli::Dwarf<EndianSlice<'d, LittleEndian>>;

/// CPU seconds of this process so far, all threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("a name")
        .split(' ')
        .collect();
    let ticks = |i: usize| fields[i].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

/// Medians of wall and CPU seconds.
fn measure(mut work: impl FnMut()) -> (f64, f64) {
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (started, before) = (Instant::now(), cpu_seconds());
        work();
        wall.push(started.elapsed().as_secs_f64());
        cpu.push(cpu_seconds() - before);
    }
    let median = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    (median(&mut wall), median(&mut cpu))
}

/// Decodes one unit; returns how much was seen, so that nothing is optimised away.
fn decode(dwarf: &Dwarf<'_>, header: gimli::UnitHeader<EndianSlice<'_, LittleEndian>>) -> usize {
    let unit = dwarf.unit(header).expect("a whole unit");
    let mut seen = 0;
    let mut entries = unit.entries_raw(None).expect("entries");
    while !entries.is_empty() {
        let Some(abbreviation) = entries.read_abbreviation().expect("an abbreviation") else {
            continue;
        };
        for specification in abbreviation.attributes() {
            let attribute = entries
                .read_attribute(*specification)
                .expect("an attribute");
            seen += usize::from(attribute.name().0 == 1);
        }
    }
    if let Some(program) = unit.line_program {
        let mut rows = program.rows();
        while let Some((_, row)) = rows.next_row().expect("a row") {
            seen += usize::from(row.is_stmt());
        }
    }
    seen
}

fn limit(dwarf: &Dwarf<'_>, threads: usize) -> usize {
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().expect("unit headers") {
        headers.push(header);
    }
    headers.sort_by_key(|h| std::cmp::Reverse(h.length_including_self()));
    let (next, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(header) = headers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    seen.fetch_add(decode(dwarf, *header), Ordering::Relaxed);
                }
            });
        }
    });
    seen.into_inner()
}

fn file(path: &Path) {
    let data = std::fs::read(path).expect("readable");
    let elf = object::File::parse(&*data).expect("an ELF file");
    let size = |name: &str| elf.section_by_name(name).map_or(0, |s| s.size());
    println!(
        "{}: .debug_info {:.1} MB, .debug_line {:.1} MB, .text {:.1} MB",
        path.file_name().unwrap_or_default().to_string_lossy(),
        size(".debug_info") as f64 / 1e6,
        size(".debug_line") as f64 / 1e6,
        size(".text") as f64 / 1e6
    );
    let dwarf = Dwarf::load(|id| {
        let section = elf.section_by_name(id.name());
        let data = section.and_then(|s| s.data().ok()).unwrap_or(&[]);
        Ok::<_, gimli::Error>(EndianSlice::new(data, LittleEndian))
    })
    .expect("sections");
    for threads in [1, 2] {
        let mut seen = 0;
        let (wall, cpu) = measure(|| seen = limit(&dwarf, threads));
        println!("| limit | {threads} | {wall:.3} | {cpu:.2} | {seen} |");
        let options = Options {
            threads,
            ..Options::default()
        };
        let mut spans = 0;
        let (wall, cpu) = measure(|| {
            spans = analyse(path, &options).expect("analysed").spans.len();
        });
        println!("| hpcstruct-rs | {threads} | {wall:.3} | {cpu:.2} | {spans} |");
    }
}

fn main() {
    let given: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|a| a != "--bench")
        .map(PathBuf::from)
        .collect();
    println!("| what | threads | wall s | CPU s | seen |");
    println!("|---|---|---|---|---|");
    if given.is_empty() {
        file(&std::env::current_exe().expect("a path"));
    }
    for path in &given {
        file(path);
    }
}
