//! Time to analyse whole binaries, and to find their loops alone, beside the time that only decoding debug
//! information and code takes: `cargo bench -p hpcstruct-rs [-- FILE...]`.
//!
//! Without files the bench analyses itself. No figure is checked. Each row is the median of five runs.
//! *limit* runs all line programs and reads every attribute of every entry with gimli, *decode* sweeps all
//! executable sections of x86-64 with iced-x86, and they do nothing with them; *loops* is instructions, jump
//! tables, calls that never return, graphs and loops of every procedure. CPU seconds are those of all
//! threads, in steps of 10 ms.

use gimli::{EndianSlice, LittleEndian};
use hpcstruct_rs::{Options, analyse, parallel};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object as _, ObjectSection as _, SectionFlags};
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROUNDS: usize = 5;
/// Bytes of code that one thread takes at a time.
const PIECE: usize = 1 << 17;

type Dwarf<'d> = gimli::Dwarf<EndianSlice<'d, LittleEndian>>;

/// CPU seconds of this process so far, all threads.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split(' ').collect();
    let ticks = |i: usize| fields[i].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

/// A row: the medians of wall and CPU seconds, and what was seen, so that nothing is optimised away.
fn row(what: &str, threads: usize, mut work: impl FnMut() -> usize) {
    let (mut wall, mut cpu, mut seen) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let (started, before) = (Instant::now(), cpu_seconds());
        seen = work();
        wall.push(started.elapsed().as_secs_f64());
        cpu.push(cpu_seconds() - before);
    }
    let [wall, cpu] = [wall, cpu].map(|mut list| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    });
    println!("| {what} | {threads} | {wall:.3} | {cpu:.2} | {seen} |");
}

/// Reads one unit; returns how much was seen.
fn read(dwarf: &Dwarf<'_>, header: gimli::UnitHeader<EndianSlice<'_, LittleEndian>>) -> usize {
    let unit = dwarf.unit(header).expect("a whole unit");
    let mut seen = 0;
    let mut entries = unit.entries_raw(None).expect("entries");
    while !entries.is_empty() {
        let Some(abbreviation) = entries.read_abbreviation().expect("an abbreviation") else {
            continue;
        };
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification).expect("an attribute");
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
    let seen = parallel::for_each(&headers, threads, || 0, |seen, _, header| *seen += read(dwarf, *header));
    seen.into_iter().sum()
}

/// Decodes everything; returns the number of instructions.
fn decode(pieces: &[&[u8]], threads: usize) -> usize {
    let sweep = |count: &mut usize, _, piece: &&[u8]| {
        let mut instruction = Instruction::default();
        let mut decoder = Decoder::with_ip(64, piece, 0, DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            *count += usize::from(!instruction.is_invalid());
        }
    };
    let counts = parallel::for_each(pieces, threads, || 0, sweep);
    counts.into_iter().sum()
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
    let executable = u64::from(object::elf::SHF_EXECINSTR);
    let sections = elf
        .sections()
        .filter(|s| matches!(s.flags(), SectionFlags::Elf { sh_flags } if sh_flags & executable != 0));
    let code: Vec<&[u8]> = sections.filter_map(|s| s.data().ok()).collect();
    let pieces: Vec<&[u8]> = code.iter().flat_map(|c| c.chunks(PIECE)).collect();
    for threads in [1, 2] {
        row("limit", threads, || limit(&dwarf, threads));
        let options = Options { threads, ..Options::default() };
        row("hpcstruct-rs", threads, || analyse(path, &options).expect("analysed").spans.len());
        if elf.architecture() == object::Architecture::X86_64 {
            row("decode", threads, || decode(&pieces, threads));
        }
        row("loops", threads, || {
            let found = hpcstruct_rs::loops(path, threads).expect("a module");
            found.iter().map(|p| p.loops.len()).sum()
        });
    }
}

fn main() {
    let given: Vec<PathBuf> =
        std::env::args_os().skip(1).filter(|a| a != "--bench").map(PathBuf::from).collect();
    println!("| what | threads | wall s | CPU s | seen |");
    println!("|---|---|---|---|---|");
    if given.is_empty() {
        file(&std::env::current_exe().expect("a path"));
    }
    for path in &given {
        file(path);
    }
}
