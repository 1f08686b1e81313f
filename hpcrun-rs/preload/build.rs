//! Links the library so that the dynamic linker calls its constructor before all others, those of the
//! program's `.preinit_array` included.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // `bindings` writes into the global offset table: to make it writable for that takes longer.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,norelro");
    // The unwinder that the standard library asks for: as a library of its own it would be loaded into every
    // program, and its start takes longer than ours.
    println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
}
