//! Writes the tools' man pages and shell completions into a folder, from the definitions of their options:
//! `manuals DIR` makes `DIR/man/man1` and `DIR/completions`.

#![forbid(unsafe_code)]

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: manuals DIR"))?;
    manuals(Path::new(&folder))
}

fn manuals(folder: &Path) -> io::Result<()> {
    let (man, completions) = (folder.join("man/man1"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    let [mut hpcrun, calibrate, sweep] = hpcrun_rs::options();
    for (command, name) in [(calibrate, "calibrate"), (sweep, "sweep")] {
        hpcrun = hpcrun.subcommand(command.name(name).bin_name(format!("hpcrun-rs {name}")));
    }
    let mut cargo_hpcrun = cargo_hpcrun::options();
    cargo_hpcrun.set_bin_name("cargo-hpcrun");
    for command in [hpcrun, hpcprof_rs::cli::Cli::command(), hpcstruct_rs::command::options(), cargo_hpcrun] {
        write(command, &man, &completions)?;
    }
    for page in fs::read_dir(man)? {
        let page = page?.path();
        let text = fs::read_to_string(&page)?;
        // Examples are set as they are: their columns would be filled up.
        if let Some((before, examples)) = text.split_once(".SH EXTRA\n") {
            let (examples, after) = examples.split_once(".SH").unwrap_or((examples, ""));
            fs::write(&page, format!("{before}.SH NOTES\n.nf\n{examples}.fi\n.SH{after}"))?;
        }
    }
    Ok(())
}

fn write(command: Command, man: &Path, completions: &Path) -> io::Result<()> {
    // `help` would have a page for each command again.
    let mut command = command.disable_help_subcommand(true);
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, &name, completions)?;
    }
    clap_mangen::generate_to(command, man)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_tool_completions() {
        let folder = env::temp_dir().join(format!("manuals-{}", std::process::id()));
        manuals(&folder).expect("written");
        let of = |path: &str| fs::read_to_string(folder.join(path)).expect(path);
        assert!(of("man/man1/hpcrun-rs-sweep.1").contains("{workers}"));
        let page = of("man/man1/hpcprof-rs-diff.1");
        assert!(page.contains(".SH OPTIONS") && page.contains(".SH NOTES\n.nf\nExamples:"), "{page}");
        assert!(of("man/man1/hpcstruct-rs.1").contains("BINARY|MEASUREMENTS"));
        for tool in ["hpcrun-rs", "cargo-hpcrun", "hpcprof-rs", "hpcstruct-rs"] {
            assert!(of(&format!("completions/{tool}.bash")).contains("complete -F"));
            assert!(of(&format!("completions/_{tool}")).starts_with("#compdef"));
            assert!(of(&format!("completions/{tool}.fish")).contains("complete -c"));
        }
        assert!(of("completions/hpcrun-rs.bash").contains("--critical-path"));
        fs::remove_dir_all(folder).expect("removed");
    }
}
