//! File formats that the tools share. FORMATS.md has the byte tables; each module is one file format and
//! changes together with its table.
//!
//! * [`profile`]: one thread's logical calling context tree, written while the program runs.
//! * [`process`]: one process image: identity, load map, end-of-run counters.
//! * [`critical_path`]: the critical path of one process image.
//! * [`trace`]: what each thread of one process image did when.
//! * [`structure`]: procedures, inlined scopes, lines and overhead tags of one load module.
//! * [`address`]: the normalised code address of profiles and process files.
//! * [`inlined`]: which procedures contain the code at an address, inlined ones included.
//! * [`loss`]: the causes for which a sample is lost or partial.
//! * [`error`]: kinds of files, and why one is not readable.
//! * [`environment`]: the settings that the launcher passes to the preloaded library.
//! * [`numbered!`]: enums with numbers and names.
//! * [`preload`]: which programs that library cannot be preloaded into.
//! * [`sealed`]: the header of files that are one checksummed payload.
//! * [`json`]: values as JSON.
//! * [`message!`]: what the tools tell the user.
//!
//! Readers never panic: whatever the bytes are, they return data or a typed error.

#![forbid(unsafe_code)]
// FORMATS.md has the fields: names that speak need no sentence here.
#![allow(missing_docs)]

pub mod address;
mod bytes;
pub mod critical_path;
pub mod environment;
pub mod error;
mod fields;
pub mod inlined;
pub mod json;
pub mod loss;
pub mod message;
pub mod numbered;
pub mod preload;
pub mod process;
pub mod profile;
pub mod sealed;
pub mod structure;
pub mod trace;
