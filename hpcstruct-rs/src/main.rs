//! temporary
use std::path::Path;
fn main() {
    let path = std::env::args().nth(1).unwrap_or_default();
    let t = std::time::Instant::now();
    match hpcstruct_rs::analyse(Path::new(&path), &hpcstruct_rs::Options::default()) {
        Ok(s) => {
            eprintln!("{:?}", t.elapsed());
            print!("{}", hpcstruct_rs::text::render(&s))
        }
        Err(e) => eprintln!("{e}"),
    }
}
