//! A build script is what cargo's `links` asks for: it keeps a second rayon-core, with a second
//! global pool, out of the program. There is nothing to link.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
