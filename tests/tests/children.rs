//! Programs that a profiled one starts run as they would without the profiler, and those that it cannot
//! see are counted.

use hpc_formats::process::Unprofiled;
use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{c_program, check, exclusive_cores, folder, scratch, tool};
use hpcrun_tests::view::value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn start(way: &str, program: &Path) -> Run {
    let program = program.to_str().expect("a path in UTF-8");
    Spec::new(&format!("children-{way}"), c_program("children")).arguments(&[way, program, "here"]).succeed()
}

/// What all processes of a run noted.
fn unprofiled(run: &Run) -> Vec<Unprofiled> {
    run.processes().into_iter().flat_map(|p| p.unprofiled).collect()
}

#[test]
fn each_process_names_its_host_and_its_job() {
    let _cores = exclusive_cores();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    let host = check(Command::new("uname").arg("-n"));
    // As under a launcher of PMIx; an empty variable is none.
    let mut spec = Spec::new("children-job", c_program("children"))
        .arguments(&["posix_spawn", "/bin/true", "here"])
        .environment("PMIX_NAMESPACE", "prterun-node1-4711@1")
        .environment("PMI_JOBID", "later in the list");
    for batch in ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"] {
        spec = spec.environment(batch, "");
    }
    let run = spec.environment("OMPI_MCA_ess_base_jobid", "").succeed();
    let named: Vec<_> =
        run.processes().into_iter().map(|p| (p.start.host, p.start.boot, p.start.job)).collect();
    let expected = (host.trim(), boot.trim(), "prterun-node1-4711@1");
    let expected = (expected.0.into(), expected.1.into(), expected.2.into());
    assert_eq!(named, [expected.clone(), expected]);
    assert_eq!(run.files("hpcnode").len(), 1, "one table a host");
}

/// By every function that starts a program, and through a shell and the interpreter of a script.
#[test]
fn a_program_that_a_preload_would_break_runs_without_it_and_is_counted() {
    let _cores = exclusive_cores();
    let script = folder("children-script").join("script");
    let program = c_program("sanitized");
    let freestanding = c_program("freestanding");
    let text = format!("#!{}\n", program.display());
    std::fs::write(&script, text).expect("the folder is writable");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("own file");
    for (way, said) in [
        ("execv", "here"),
        ("execve", "here"),
        ("execvp", "here"),
        ("execvpe", "here"),
        ("execl", "here"),
        ("execlp", "here"),
        ("execle", "here"),
        ("fexecve", "here"),
        ("execveat", "here"),
        ("vfork", "here"),
        ("posix_spawn", "here"),
        ("posix_spawnp", "here"),
        ("system", "here"),
        ("popen", "here"),
        ("script", script.to_str().expect("a path in UTF-8")),
        ("freestanding", "here"),
    ] {
        let run = match way {
            "script" => start("posix_spawn", &script),
            "freestanding" => start("execve", &freestanding),
            _ => start(way, &program),
        };
        let (program, reason) = match way {
            "freestanding" => (&freestanding, "not linked with glibc"),
            _ => (&program, "built with AddressSanitizer"),
        };
        let expected = format!("{said}: as it is\nstatus 7\n");
        assert_eq!(run.stdout(), expected, "{way}: {}", run.stderr());
        let note = Unprofiled {
            executable: program.to_str().expect("a path in UTF-8").into(),
            reason: reason.into(),
        };
        assert_eq!(unprofiled(&run), [note], "{way}");
    }
}

#[test]
fn an_ordinary_child_is_profiled_whatever_its_environment() {
    let _cores = exclusive_cores();
    for way in ["posix_spawn", "execve", "vfork", "bare-posix_spawn", "bare-execve"] {
        let run = start(way, Path::new("/bin/true"));
        assert_eq!(run.stdout(), "status 0\n", "{way}");
        assert_eq!(unprofiled(&run), [], "{way}");
        assert!(run.processes().len() >= 2, "{way}");
    }
    let run = start("execv", &c_program("static"));
    assert_eq!(unprofiled(&run)[0].reason, "statically linked");
}

#[test]
fn a_child_that_fails_to_start_a_program_leaves_its_parents_profile_alone() {
    let _cores = exclusive_cores();
    for way in ["clone", "vfork"] {
        let run = Spec::new(&format!("raw-child-{way}"), c_program("raw_child"))
            .arguments(&[way])
            .rate(1000)
            .succeed();
        let view = run.database().top_down();
        for (site, values) in &run.truth().sites {
            let (truth, measured) = (value(values, "work"), view.inclusive(site, "work"));
            assert!(
                (measured - truth).abs() < 0.05 * truth + 0.005,
                "{way}: {site}: {measured} s of {truth} s"
            );
        }
    }
}

/// Runs the launcher on a program: its output as unprofiled, one warning with these words, nothing measured.
fn assert_runs_as_it_is(program: &Path, words: &[&str]) {
    let place = folder("children-launcher");
    let plain = Command::new(program).output().expect("it runs");
    for report in [&[][..], &["--report"]] {
        let profiled =
            tool("hpcrun-rs").current_dir(&place).args(report).arg(program).output().expect("hpcrun-rs runs");
        let stderr = String::from_utf8_lossy(&profiled.stderr);
        assert_eq!(profiled.status, plain.status, "{stderr}");
        assert_eq!(profiled.stdout, plain.stdout, "{stderr}");
        assert_eq!(stderr.lines().count(), 1 + report.len(), "{stderr}");
        for word in words {
            assert!(stderr.contains(word), "it names {word}: {stderr}");
        }
        let left = std::fs::read_dir(&place).expect("readable").count();
        assert_eq!(left, 0, "no measurement directory is made");
    }
}

/// The fixture's source built by these compilers and flags; `None`, with a word, where that cannot be done.
fn built(compiler: &str, flags: &[&str], name: &str) -> Option<PathBuf> {
    let program = scratch().join(name);
    let source = scratch().join("plain.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 7; }\n")
        .expect("the folder is writable");
    let built = Command::new(compiler).args(flags).arg("-o").args([&program, &source]).output();
    let runs = built.is_ok_and(|o| o.status.success()) && Command::new(&program).output().is_ok();
    if !runs {
        println!("SKIPPED: {compiler} {} is not installed", flags.join(" "));
    }
    runs.then_some(program)
}

#[test]
fn the_launcher_runs_what_it_cannot_profile_as_it_is() {
    let _cores = exclusive_cores();
    assert_runs_as_it_is(&c_program("sanitized"), &["AddressSanitizer", "-fsanitize"]);
    assert_runs_as_it_is(&c_program("freestanding"), &["not linked with glibc", "cgo"]);
    for (compiler, flags, words) in [
        ("musl-gcc", &[][..], ["musl", "-gnu"]),
        ("cc", &["-fsanitize=address"], ["AddressSanitizer", "-fsanitize"]),
        ("cc", &["-fsanitize=thread"], ["ThreadSanitizer", "-fsanitize"]),
        ("clang", &["-fsanitize=address"], ["AddressSanitizer", "-fsanitize"]),
        ("clang", &["-fsanitize=memory"], ["MemorySanitizer", "-fsanitize"]),
        ("cc", &["-m32"], ["32-bit", "x86_64"]),
    ] {
        if let Some(program) = built(compiler, flags, "obstacle") {
            assert_runs_as_it_is(&program, &words);
        }
    }
    let place = folder("children-env");
    let script = place.join("script");
    std::os::unix::fs::symlink(c_program("sanitized"), place.join("interpreter")).expect("linked");
    std::fs::write(&script, "#!/usr/bin/env interpreter\n").expect("the folder is writable");
    check(Command::new("chmod").arg("+x").arg(&script));
    let output = tool("hpcrun-rs")
        .env("PATH", format!("{}:/usr/bin:/bin", place.display()))
        .current_dir(folder("children-env-run"))
        .arg(&script)
        .output()
        .expect("hpcrun-rs runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("AddressSanitizer"), "{stderr}");
    assert_eq!(output.status.code(), Some(7), "{stderr}");
}

/// The interpreter's name is all that the launcher can see of musl; here none is installed under it.
#[test]
fn a_musl_program_is_known_by_its_interpreter() {
    let _cores = exclusive_cores();
    let run = Spec::new("children-musl", c_program("musl")).run();
    assert_eq!(run.output.status.code(), Some(127), "{}", run.stderr());
    assert!(run.stderr().contains("linked with musl"), "{}", run.stderr());
}
