//! Links the library so that the dynamic linker calls its constructor before all others, those of the
//! program's `.preinit_array` included.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
