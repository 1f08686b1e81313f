//! Warnings: one line each, with the remedy; each said once, in the order of their first use. Details are for
//! those who ask for them.

use crate::error::one_line;
use indexmap::{IndexMap, IndexSet};

/// So many processes are named in a line.
const NAMED: usize = 3;

#[derive(Debug, Default)]
pub struct Warnings {
    /// What is said, and the processes of which it is said.
    lines: IndexMap<String, Vec<u32>>,
    details: IndexSet<String>,
}

impl Warnings {
    /// Adds a warning unless the same was given before.
    pub fn add(&mut self, text: impl AsRef<str>) {
        self.lines.entry(one_line(text.as_ref())).or_default();
    }

    /// Adds a warning about a process; what is said of several of one program is one line.
    pub fn add_of_process(&mut self, pid: u32, program: &str, text: &str) {
        self.lines.entry(one_line(&format!("({program}) {text}"))).or_default().push(pid);
    }

    pub fn add_detail(&mut self, text: &str) {
        self.details.insert(one_line(text));
    }

    pub fn lines(&self) -> impl ExactSizeIterator<Item = String> {
        self.lines.iter().map(|(line, pids)| match &pids[..] {
            [] => line.clone(),
            [pid] => format!("process {pid} {line}"),
            pids => {
                let named = pids.iter().take(NAMED).map(u32::to_string).collect::<Vec<_>>().join(", ");
                match pids.len().saturating_sub(NAMED) {
                    0 => format!("processes {named} {line}"),
                    more => format!("processes {named} and {more} more {line}"),
                }
            }
        })
    }

    pub fn details(&self) -> impl Iterator<Item = &str> {
        self.details.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_several_processes_of_a_program_is_one_line() {
        let mut warnings = Warnings::default();
        for pid in 1..=5 {
            warnings.add_of_process(pid, "/bin/a", "ended");
        }
        warnings.add_of_process(6, "/bin/b", "ended");
        warnings.add("a line");
        warnings.add("a line");
        let lines: Vec<String> = warnings.lines().collect();
        assert_eq!(
            lines,
            ["processes 1, 2, 3 and 2 more (/bin/a) ended", "process 6 (/bin/b) ended", "a line"]
        );
    }
}
