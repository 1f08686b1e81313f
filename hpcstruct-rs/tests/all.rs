//! The analyser's tests as one program, so that it is linked once. Each file is a module:
//! `cargo test -p hpcstruct-rs --test all -- landing_pads::` runs one.

mod binaries;
mod code_models;
mod columns;
mod command;
mod common;
mod damage;
mod forms;
mod landing_pads;
mod languages;
mod loop_lines;
mod loop_oracle;
mod names;
mod oracle;
mod separate;
mod tags;
mod undescribed;
