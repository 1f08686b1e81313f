//! Code without unwind information: call paths that prove themselves, through frames of every shape, by
//! gcc and clang at every level of optimisation.
//!
//! In the fixture `c/tableless.c` a function's name states its depth. A path is right exactly when it goes
//! from `main` over `enter` through the depths 0, 1, 2 … without a gap. Not one sample may be elsewhere; a
//! few may have no caller, before a jump to where a register says.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{can_run, check, folder, one_core, workspace};
use hpcrun_tests::view::{Node, View};
use std::process::Command;

const RATE: u32 = 5000;
const WITHOUT_TABLES: [&str; 2] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

/// The depth that a name of the fixture states: `l03_alloca` is at 3.
fn depth(name: &str) -> Option<u32> {
    let (digits, _) = name.strip_prefix('l')?.split_once('_')?;
    digits.parse().ok()
}

/// What is wrong with a path, if anything. With `tails`, functions that ended in a call have left no frame.
fn fault(path: &[&str], tails: bool) -> Option<String> {
    let mut depths = path.iter().filter_map(|name| depth(name)).peekable();
    depths.peek()?;
    let first = path.iter().position(|name| depth(name).is_some())?;
    let above: Vec<&str> = path[..first].to_vec();
    let is_entered = above.last() == Some(&"enter") && above.contains(&"main");
    let mut next = 0;
    let is_whole = depths.all(|depth| {
        let follows = depth == next || (tails && depth > next);
        next = depth + 1;
        follows
    });
    (!is_entered || !is_whole).then(|| path.join(" > "))
}

/// Names of procedures: loops and inlined calls are inside of them.
fn names<'a>(above: &[&'a Node], node: &'a Node) -> Vec<&'a str> {
    let all = above.iter().copied().chain([node]);
    let procedures = all.filter(|n| n.kind == "procedure");
    procedures.map(|n| n.name.as_str()).collect()
}

/// Seconds in the fixture's functions under right paths, the deepest of these, and the wrong paths.
fn judge(view: &View, tails: bool) -> (f64, u32, Vec<String>) {
    let (mut right, mut deepest, mut wrong) = (0.0, 0, Vec::new());
    view.walk(&mut |above, node| {
        let is_whole = above.first().is_none_or(|root| root.kind != "partial");
        if node.busy() > 0.0 && is_whole {
            let path = names(above, node);
            match (fault(&path, tails), path.iter().filter_map(|n| depth(n)).max()) {
                (Some(fault), _) => wrong.push(fault),
                (None, Some(depth)) => {
                    right += node.busy();
                    deepest = deepest.max(depth);
                }
                (None, None) => {}
            }
        }
    });
    (right, deepest, wrong)
}

fn check_level(compiler: &str, flags: &[&str], tails: bool) {
    let what = format!("{compiler} {flags:?}");
    let test = format!("tableless-{compiler}{}", flags.concat());
    let place = folder(&format!("{test}-program"));
    let program = place.join("tableless");
    check(
        Command::new(compiler)
            .current_dir(workspace().join("fixtures/c"))
            .args(["tableless.c", "-g", "-o"])
            .arg(&program)
            .args(WITHOUT_TABLES)
            .args(flags),
    );
    let run = Spec::new(&test, &program).arguments(&["500"]).rate(RATE).succeed();
    let view = run.database().top_down();
    let (right, deepest, wrong) = judge(&view, tails);
    let quality = &view.quality;
    eprintln!("{what}: {right:.3} s right, {quality:?}");
    assert!(wrong.is_empty(), "{what}: {} wrong, {}", wrong.len(), wrong[0]);
    assert!(right > 0.3, "{what}: only {right} s");
    assert_eq!(deepest, 5, "{what}: paths reach all depths");
    assert!(quality.rooted as f64 >= 0.995 * quality.samples as f64, "{what}: {quality:?}");
}

fn check_compiler(compiler: &str) {
    if !can_run(compiler) {
        println!("SKIPPED: {compiler} is not installed; its code without unwind tables was not measured");
        return;
    }
    let _cores = one_core();
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        check_level(compiler, &[level, "-fno-optimize-sibling-calls"], false);
    }
    check_level(compiler, &["-O2"], true);
}

#[test]
fn of_gcc() {
    check_compiler("gcc");
}

#[test]
fn of_clang() {
    check_compiler("clang");
}

#[test]
fn the_judge_accepts_right_paths_only() {
    let path = |names: &'static str| -> Vec<&'static str> { names.split(' ').collect() };
    for right in [
        "_start main enter l00_plain",
        "_start main enter l00_plain l01_tail l02_switch sum",
        "_start main enter",
        "_start main printf",
    ] {
        assert_eq!(fault(&path(right), false), None, "{right}");
    }
    let gap = path("main enter l00_plain l02_tail");
    assert!(fault(&gap, false).is_some() && fault(&gap, true).is_none());
    for wrong in [
        "main l00_plain",
        "enter l00_plain",
        "main enter l00_plain l00_plain",
        "main enter l01_plain l00_plain",
        "main l00_tail enter l01_plain",
        "l00_plain main enter",
    ] {
        assert!(fault(&path(wrong), true).is_some(), "{wrong}");
    }
}
