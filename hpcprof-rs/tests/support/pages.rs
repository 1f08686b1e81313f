//! The queries of a page of `docs`, and the engines that run them.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A query of a page.
#[derive(Debug)]
pub struct Query {
    /// The heading above it.
    pub title: String,
    /// What runs it: `sqlite`, `duckdb` or `clickhouse`.
    pub reader: String,
    pub sql: String,
}

/// All fenced blocks of a page that begin with `sql` and a reader.
pub fn queries(page: &str) -> Vec<Query> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(path).expect("a page of the documentation");
    let (mut found, mut title, mut inside) = (Vec::new(), "", false);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            title = heading;
        } else if let Some(reader) = line.strip_prefix("```sql ") {
            let (title, reader) = (title.to_owned(), reader.to_owned());
            found.push(Query { title, reader, sql: String::new() });
            inside = true;
        } else if line.starts_with("```") {
            inside = false;
        } else if let (true, Some(query)) = (inside, found.last_mut()) {
            query.sql += line;
            query.sql.push('\n');
        }
    }
    found
}

const SCRIPT: &str = "
import json, sys
job = json.load(sys.stdin)
if job['reader'] == 'duckdb':
    import duckdb
    rows = lambda sql: duckdb.execute(sql).fetchall()
else:
    import chdb
    rows = lambda sql: json.loads(str(chdb.query(sql, 'JSONCompact')))['data']
json.dump([rows(sql) for sql in job['queries']], sys.stdout, default=str)
";

/// Whether Python has a module; if not, with a word that what needs it is skipped.
pub fn is_installed(module: &str) -> bool {
    let import = ["-c", &format!("import {module}")];
    let mut python = Command::new("python3");
    let status = python.args(import).stderr(Stdio::null()).status();
    let is_there = status.is_ok_and(|status| status.success());
    if !is_there {
        println!("SKIPPED: python3 has no module {module}; what needs it was not run");
    }
    is_there
}

/// The rows of a query.
pub type Rows = Vec<Vec<Value>>;

/// The rows of queries by title, which an engine that is a Python module runs in a folder; `None`, with a
/// word about it, if the module is not installed.
pub fn run(reader: &str, folder: &Path, page: &[Query]) -> Option<HashMap<String, Rows>> {
    let queries: Vec<&Query> = page.iter().filter(|q| q.reader == reader).collect();
    assert!(!queries.is_empty(), "queries for {reader}");
    let module = match reader {
        "clickhouse" => "chdb",
        other => other,
    };
    if !is_installed(module) {
        return None;
    }
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let texts: Vec<&str> = queries.iter().map(|q| q.sql.as_str()).collect();
    let job = json!({"reader": reader, "queries": texts}).to_string();
    let mut stdin = python.stdin.take().expect("a pipe");
    stdin.write_all(job.as_bytes()).expect("it reads");
    drop(stdin);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{reader} runs {queries:#?}");
    let rows: Vec<Rows> = serde_json::from_slice(&output.stdout).expect("rows");
    let titles = queries.iter().map(|q| q.title.clone());
    Some(titles.zip(rows).collect())
}
