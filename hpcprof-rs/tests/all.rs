//! The tests of builds and views as one program, so that it is linked once. Each file is a module:
//! `cargo test -p hpcprof-rs --test all -- golden::` runs one.

mod advice;
mod bad_input;
mod cache;
mod chance;
mod check;
mod conservation;
mod critical_path;
mod diff;
mod end_to_end;
mod exports;
mod expressions;
mod first_screen;
mod golden;
mod keys;
mod lazy;
mod missing;
mod page;
mod parallel_loops;
mod predictions;
mod queries;
mod runs;
mod schemas;
mod support;
mod sweep;
mod synthetic;
mod terminal;
mod threads;
mod trace;
