//! The page: its blocks are read back here as its scripts read them, and must have the amounts of the JSON
//! views; nothing of a database stands in its markup. What it shows is tried in a browser (tests/browser).

use crate::support::program::*;
use crate::support::*;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

struct Page {
    html: String,
    text: Value,
    /// For each database and metric, the own amounts by name.
    own: Vec<Vec<BTreeMap<String, i64>>>,
}

/// What lies between two texts.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).expect(before);
    rest.split_once(after).expect(after).0
}

fn block(html: &str, id: &str) -> Vec<u8> {
    let packed = between(html, &format!("id=\"{id}\">"), "</script>");
    let packed = BASE64_STANDARD.decode(packed).expect("base64");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("gzip");
    bytes
}

fn leb128(bytes: &mut std::vec::IntoIter<u8>) -> i64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes.next().expect("a whole number");
        value |= i64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn page(databases: &[&Path], options: &[&str]) -> Page {
    let temp = TempDir::new();
    let path = temp.join("page.html");
    let databases: Vec<&str> = databases.iter().map(|path| text(path)).collect();
    let arguments = [&["view", "-o", text(&path)], &databases[..], options].concat();
    assert_eq!(tool(&arguments).expect("a page"), "", "nothing on standard output");
    let html = std::fs::read_to_string(&path).expect("UTF-8");
    let json: Value = serde_json::from_slice(&block(&html, "text")).expect("JSON");
    let mut bytes = block(&html, "numbers").into_iter();
    let count = leb128(&mut bytes);
    let mut room = 0;
    for _ in 0..count {
        room += 1 - leb128(&mut bytes);
        assert!(room > 0, "a context is no deeper than a callee of the one before");
    }
    let scopes: Vec<usize> = (0..count).map(|_| leb128(&mut bytes) as usize).collect();
    let name = |node: usize| json["scopes"][scopes[node]][1].as_str().expect("a name").to_owned();
    let length = |of: &str| json[of].as_array().expect(of).len();
    let mut column = || {
        let mut own: BTreeMap<String, i64> = BTreeMap::new();
        let mut node = 0;
        for _ in 0..leb128(&mut bytes) {
            node += leb128(&mut bytes) as usize;
            *own.entry(name(node)).or_default() += leb128(&mut bytes);
        }
        own
    };
    let metrics = length("metrics");
    let own = (0..length("databases")).map(|_| (0..metrics).map(|_| column()).collect()).collect();
    assert_eq!(bytes.next(), None, "nothing is left");
    Page { html, text: json, own }
}

/// Own amounts by name, of the JSON of a view.
fn expected(json: &Value, metric: &str) -> BTreeMap<String, i64> {
    fn visit(node: &Value, metric: &str, into: &mut BTreeMap<String, i64>) {
        let own = nanoseconds(&node["exclusive"][metric]);
        if own != 0 {
            *into.entry(node["name"].as_str().expect("a name").to_owned()).or_default() += own;
        }
        node["children"].as_array().into_iter().flatten().for_each(|of| visit(of, metric, into));
    }
    let mut own = BTreeMap::new();
    json["roots"].as_array().expect("roots").iter().for_each(|of| visit(of, metric, &mut own));
    own
}

fn assert_same(page: &Page, number: usize, database: &Path) {
    let json = view(database, "top-down", &[]);
    for (metric, own) in page.text["metrics"].as_array().expect("metrics").iter().zip(&page.own[number]) {
        let metric = metric["name"].as_str().expect("a name");
        match &json["totals"][metric] {
            Value::Null => assert!(own.is_empty() || metric == "samples", "{metric}"),
            _ => assert_eq!(own, &expected(&json, metric), "{metric}"),
        }
    }
}

#[test]
fn the_page_has_the_amounts_of_the_views() {
    let database = database(&full_run());
    let page = page(&[&database], &[]);
    assert_same(&page, 0, &database);
    let summary = page.text["reports"]["summary"].as_str().expect("text");
    assert!(summary.contains("effort"), "{summary}");
    assert_eq!(page.text["reports"]["threads"]["schema"], "hpcprof-rs/threads/1");
    assert_eq!(page.text["reports"]["path"], Value::Null, "nothing was tracked");
}

#[test]
fn two_databases_are_one_tree_with_the_newer_one_first() {
    let small = run_of(|thread, entry| {
        let in_main = thread.natives(entry, &[START, MAIN]);
        thread.sample(in_main, 50, 0.5);
    });
    let (old, new) = (database(&full_run()), database(&small));
    let page = page(&[&old, &new], &[]);
    assert_same(&page, 0, &new);
    assert_same(&page, 1, &old);
}

#[test]
fn nothing_but_its_own_script_runs() {
    let page = page(&[&database(&full_run())], &["--no-source"]);
    let policy = between(&page.html, "content=\"default-src 'none'; ", "\"");
    for (name, tag) in [("script-src", "<script>"), ("style-src", "<style>")] {
        let body = between(&page.html, tag, &tag.replace('<', "</"));
        let hash = BASE64_STANDARD.encode(Sha256::digest(body));
        assert!(policy.contains(&format!("{name} 'sha256-{hash}'")), "{policy}");
    }
    assert!(!page.html.contains("app::leaf"), "names are in the blocks");
    for file in page.text["source"].as_array().expect("files") {
        assert_eq!(file["missing"], "left out by --no-source");
    }
}
