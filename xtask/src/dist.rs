//! A release: `hpcrun-rs-VERSION-x86_64-linux-gnu.tar.gz` with the tools, man pages and completions, the
//! user guide and the licences, and beside it the checksum. One commit built in one place has the same bytes.

use crate::build::{self, copy, create, output_of, remove, workspace};
use crate::install::{TOOLS, built};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;

#[derive(Args)]
pub(crate) struct Options {
    /// Folder to write the archive into
    #[arg(short, long, value_name = "DIR", default_value = "dist")]
    output: PathBuf,
}

/// What of the repository goes along: what the README leads to.
const FILES: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "FORMATS.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs",
];

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let name = format!("hpcrun-rs-{}-x86_64-linux-gnu", env!("CARGO_PKG_VERSION"));
    let built = built(&[&TOOLS[..], &["manuals"]].concat())?;
    let staged = build::target()?.join("dist").join(&name);
    remove(&staged)?;
    create(&staged.join("bin"))?;
    for tool in TOOLS {
        // With its permissions, without the debug information: a third of the size.
        build::run(Command::new("strip").arg("-o").arg(staged.join("bin").join(tool)).arg(built.join(tool)))?;
    }
    for file in FILES {
        copy(&workspace().join(file), &staged.join(file))?;
    }
    build::run(Command::new(built.join("manuals")).arg(staged.join("share")))?;
    create(&options.output)?;
    let archive = format!("{name}.tar.gz");
    let mut git = Command::new("git");
    let date =
        output_of(git.current_dir(workspace()).args(["log", "-1", "--format=%ct"]), "the commit's date")?;
    build::run(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=u,go-w"])
            .arg(format!("--mtime=@{}", date.trim()))
            .args(["-I", "gzip -9n", "-cf"])
            .arg(options.output.join(&archive))
            .arg("-C")
            .arg(staged.parent().unwrap_or(&staged))
            .arg(&name),
    )?;
    let mut sum = Command::new("sha256sum");
    let sum = output_of(sum.current_dir(&options.output).arg(&archive), "the checksum")?;
    build::write(&options.output.join(format!("{archive}.sha256")), &sum)?;
    println!("{}", options.output.join(archive).display());
    Ok(())
}
