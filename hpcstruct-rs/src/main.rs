//! The `hpcstruct-rs` command.

#![forbid(unsafe_code)]

/// All threads make small tables at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    hpcstruct_rs::command::main()
}
