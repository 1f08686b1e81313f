//! What a message costs, beside a task of rayon. `fixtures/messages` adds other crates for actors.

mod kernels;

fn main() {
    kernels::table(&kernels::OURS);
}
