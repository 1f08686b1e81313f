//! The end-to-end tests as one program, so that the tools are built and linked once. Each file is a module:
//! `cargo test -p hpcrun-tests --test end_to_end -- oracle::` runs one.

mod actors;
mod bounds;
mod children;
mod damage;
mod deep_paths;
mod demo;
mod generated;
mod guest;
mod harness;
mod house;
mod launcher;
mod lifecycle;
mod locks;
mod mpi;
mod mutations;
mod node;
mod oracle;
mod oyama;
mod paths;
mod rayon;
mod regions;
mod rounds;
mod runtimes;
mod scenarios;
mod signal_safety;
mod tableless;
mod tag_shares;
mod torture;
mod trace;
mod truth;
mod views;
