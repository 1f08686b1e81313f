//! The cargo in use, its version and host.

use hpcrun_rs::Failure;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The toolchain in use.
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// Its triple.
    pub(crate) host: String,
    /// Rust 1.MINOR.
    pub(crate) minor: u64,
}

/// The cargo that runs us, else the one in PATH.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Asks cargo for its version, which is the compiler's.
pub(crate) fn toolchain() -> Result<Toolchain, Failure> {
    let output = Command::new(cargo()).arg("-vV").output().map_err(|e| {
        Failure::own(format!("cannot run {}: {e}; install Rust, or set CARGO", cargo().to_string_lossy()))
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_toolchain(&text).ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Failure::own(format!("cargo does not tell its version: {complaint}"))
    })
}

/// The folder of the standard library's shared objects, for programs that link them.
pub(crate) fn shared_libraries() -> Option<PathBuf> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler).args(["--print", "target-libdir"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    Some(path).filter(|p| p.is_dir())
}

fn parse_toolchain(text: &str) -> Option<Toolchain> {
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name));
    Some(Toolchain {
        host: field("host: ")?.to_owned(),
        minor: field("release: 1.")?.split('.').next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toolchain_is_read_from_cargos_version() {
        let text = "cargo 1.90.0-beta (x)\nrelease: 1.90.0-beta.2\nhost: x86_64-unknown-linux-gnu\n";
        let toolchain = parse_toolchain(text).expect("both fields are there");
        assert_eq!(toolchain.minor, 90);
        assert_eq!(toolchain.host, "x86_64-unknown-linux-gnu");
        assert!(parse_toolchain("cargo 1.90.0\n").is_none());
    }
}
