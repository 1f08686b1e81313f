//! Time to find the loops of whole binaries, beside the time that only decoding their code takes:
//! `cargo bench -p hpcstruct-rs --bench loops [-- FILE...]`.
//!
//! Without files the bench analyses itself. No figure is checked. Each row is the median of five
//! runs; *decode* sweeps all executable sections of x86-64 with iced-x86, on as many threads, and
//! does nothing with the instructions; *loops* is instructions, jump tables, calls that never
//! return, graphs and loops of every procedure.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object as _, ObjectSection as _, SectionFlags};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const ROUNDS: usize = 5;

/// Bytes that one thread takes at a time.
const PIECE: usize = 1 << 17;

fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Decodes everything; returns the number of instructions, so that nothing is optimised away.
fn decode(pieces: &[&[u8]], threads: usize) -> usize {
    let (next, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut instruction = Instruction::default();
                while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut decoder = Decoder::with_ip(64, piece, 0, DecoderOptions::NONE);
                    let mut count = 0;
                    while decoder.can_decode() {
                        decoder.decode_out(&mut instruction);
                        count += usize::from(!instruction.is_invalid());
                    }
                    seen.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
    });
    seen.into_inner()
}

fn file(path: &Path) {
    let data = std::fs::read(path).expect("readable");
    let elf = object::File::parse(&*data).expect("an ELF file");
    let executable = u64::from(object::elf::SHF_EXECINSTR);
    let sections = elf.sections().filter(
        |s| matches!(s.flags(), SectionFlags::Elf { sh_flags } if sh_flags & executable != 0),
    );
    let code: Vec<&[u8]> = sections.filter_map(|s| s.data().ok()).collect();
    let pieces: Vec<&[u8]> = code.iter().flat_map(|c| c.chunks(PIECE)).collect();
    let megabytes = code.iter().map(|c| c.len()).sum::<usize>() as f64 / 1e6;
    println!(
        "{}: {megabytes:.1} MB of code",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    for threads in [1, 2] {
        if elf.architecture() == object::Architecture::X86_64 {
            let mut seen = 0;
            let wall = median(|| seen = decode(&pieces, threads));
            let rate = megabytes / wall;
            println!("| decode | {threads} | {wall:.3} s | {rate:.0} MB/s | {seen} instructions |");
        }
        let (mut procedures, mut loops) = (0, 0);
        let wall = median(|| {
            let found = hpcstruct_rs::loops(path, threads).expect("a module");
            procedures = found.len();
            loops = found.iter().map(|p| p.loops.len()).sum();
        });
        let rate = megabytes / wall;
        println!(
            "| loops | {threads} | {wall:.3} s | {rate:.0} MB/s | {procedures} procedures, {loops} loops |"
        );
    }
}

fn main() {
    let mut files: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|a| !a.to_string_lossy().starts_with('-'))
        .map(PathBuf::from)
        .collect();
    if files.is_empty() {
        files.push(std::env::current_exe().expect("this program"));
    }
    for path in &files {
        file(path);
    }
}
