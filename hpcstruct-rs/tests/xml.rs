//! HPCToolkit's XML: a strict reader that follows the rules of HPCToolkit's own finds in it what
//! the structure says; `xmllint`, where it is installed, validates it.

mod common;

use common::{Folder, NAMES_RS, whole};
use hpcstruct_rs::{Structure, xml};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;

/// The elements and attributes of HPCToolkit's structure files 4.9, as its reader takes them.
const DTD: &str = r#"<!DOCTYPE HPCToolkitStructure [
<!ELEMENT HPCToolkitStructure (LM)*>
<!ATTLIST HPCToolkitStructure version CDATA #REQUIRED i CDATA #REQUIRED n CDATA #IMPLIED>
<!ELEMENT LM (F|P)*>
<!ATTLIST LM i CDATA #REQUIRED n CDATA #REQUIRED has-calls CDATA #REQUIRED v CDATA #IMPLIED>
<!ELEMENT F (P|L|S)*>
<!ATTLIST F i CDATA #REQUIRED n CDATA #REQUIRED>
<!ELEMENT P (P|A|L|S|C)*>
<!ATTLIST P i CDATA #REQUIRED n CDATA #REQUIRED ln CDATA #IMPLIED l CDATA #IMPLIED s CDATA #IMPLIED v CDATA #IMPLIED>
<!ELEMENT A (A|L|S|C)*>
<!ATTLIST A i CDATA #REQUIRED f CDATA #IMPLIED n CDATA #IMPLIED ln CDATA #IMPLIED l CDATA #IMPLIED v CDATA #IMPLIED>
<!ELEMENT L (A|L|S|C)*>
<!ATTLIST L i CDATA #REQUIRED l CDATA #REQUIRED f CDATA #IMPLIED v CDATA #IMPLIED>
<!ELEMENT S EMPTY>
<!ATTLIST S i CDATA #REQUIRED l CDATA #REQUIRED v CDATA #IMPLIED>
<!ELEMENT C (C)*>
<!ATTLIST C i CDATA #REQUIRED l CDATA #REQUIRED v CDATA #IMPLIED t CDATA #IMPLIED d CDATA #IMPLIED>
]>
"#;

/// One element on its way through the text.
#[derive(Debug)]
struct Element {
    tag: String,
    attributes: HashMap<String, String>,
}

fn unescape(text: &str) -> String {
    assert!(!text.contains('<'), "{text}");
    let mut out = text.to_owned();
    for (entity, c) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
    ] {
        out = out.replace(entity, c);
    }
    out.replace("&amp;", "&")
}

/// `name="value"` pairs; anything else fails.
fn attributes(mut text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    while !text.trim().is_empty() {
        let (name, rest) = text.trim_start().split_once("=\"").expect("an attribute");
        let (value, rest) = rest.split_once('"').expect("a closed value");
        assert!(
            found.insert(name.to_owned(), unescape(value)).is_none(),
            "{name} twice"
        );
        text = rest;
    }
    found
}

/// `{[0xstart-0xend) …}`.
fn ranges(text: &str) -> Vec<(u64, u64)> {
    let body = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
    let number = |t: &str| u64::from_str_radix(t.strip_prefix("0x").expect("0x"), 16).expect("hex");
    body.expect("braces")
        .split_whitespace()
        .map(|range| {
            let inner = range.strip_prefix('[').and_then(|r| r.strip_suffix(')'));
            let (start, end) = inner.expect("a range").split_once('-').expect("two ends");
            (number(start), number(end))
        })
        .inspect(|(start, end)| assert!(start < end))
        .collect()
}

/// What one address means: procedure, inlined calls (call line, name), file, line.
type Meaning = (String, Vec<(u32, String)>, String, u32);

/// Reads the XML as HPCToolkit does; returns the meaning of each range of code.
fn read(text: &str) -> BTreeMap<(u64, u64), Meaning> {
    let mut open: Vec<Element> = Vec::new();
    let mut numbers = BTreeSet::new();
    let mut entries = BTreeSet::new();
    let mut leaves = BTreeMap::new();
    let body = text.strip_prefix("<?xml version=\"1.0\"?>\n");
    for line in body.expect("a prologue").lines() {
        let inner = line.strip_prefix('<').and_then(|l| l.strip_suffix('>'));
        for piece in inner.expect("one or more elements a line").split("><") {
            if let Some(tag) = piece.strip_prefix('/') {
                assert_eq!(open.pop().map(|e| e.tag).as_deref(), Some(tag));
                continue;
            }
            let is_empty = piece.ends_with('/');
            let piece = piece.trim_end_matches('/');
            let (tag, rest) = piece.split_once(' ').expect("attributes");
            let element = Element {
                tag: tag.to_owned(),
                attributes: attributes(rest),
            };
            assert!(numbers.insert(element.attributes["i"].clone()), "{line}");
            let around = open.last().map(|e| e.tag.as_str());
            match tag {
                "HPCToolkitStructure" => assert_eq!(around, None),
                "LM" => assert_eq!(around, Some("HPCToolkitStructure")),
                "F" => assert_eq!(around, Some("LM")),
                "P" => {
                    assert_eq!(around, Some("F"));
                    let entry = ranges(&element.attributes["v"]);
                    assert!(matches!(entry[..], [(start, end)] if end == start + 1));
                    assert!(entries.insert(entry[0].0), "entries are distinct: {line}");
                }
                "A" => assert!(matches!(around, Some("P" | "A" | "L"))),
                "L" => {
                    assert!(matches!(around, Some("P" | "A" | "L")));
                    assert_eq!(ranges(&element.attributes["v"]).len(), 1);
                }
                "S" => {
                    assert!(is_empty);
                    let line = number(&element, "l");
                    let (procedure, calls, file) = context(&open);
                    for range in ranges(&element.attributes["v"]) {
                        let meaning = (procedure.clone(), calls.clone(), file.clone(), line);
                        assert!(leaves.insert(range, meaning).is_none());
                    }
                }
                other => panic!("unknown element {other}"),
            }
            if !is_empty {
                open.push(element);
            }
        }
    }
    assert!(open.is_empty());
    leaves
}

fn number(element: &Element, name: &str) -> u32 {
    element.attributes[name].parse().expect("a number")
}

/// Procedure, inlined calls and file around a statement: the second of two `A` is a call.
fn context(open: &[Element]) -> (String, Vec<(u32, String)>, String) {
    let (mut procedure, mut calls, mut file) = (None, Vec::new(), None);
    let mut site: Option<u32> = None;
    for element in open {
        let name = || element.attributes["n"].clone();
        match element.tag.as_str() {
            "F" => file = Some(name()),
            "P" => procedure = Some(name()),
            "A" => {
                file = element.attributes.get("f").cloned().or(file);
                site = match site {
                    None => Some(number(element, "l")),
                    Some(line) => {
                        calls.push((line, name()));
                        None
                    }
                };
            }
            "L" => {
                file = element.attributes.get("f").cloned().or(file);
                site = None;
            }
            _ => {}
        }
    }
    let file = file.expect("a statement is in a file");
    (procedure.expect("and in a procedure"), calls, file)
}

/// The same from the structure itself, by address.
fn check(structure: &Structure) {
    let text = xml::render(structure);
    let leaves = read(&text);
    let bytes = |ranges: &mut dyn Iterator<Item = (u64, u64)>| -> u64 {
        ranges.map(|(start, end)| end - start).sum()
    };
    let covered = bytes(&mut leaves.keys().copied());
    let stated = bytes(&mut structure.spans.iter().map(|s| (s.start, s.end)));
    assert_eq!(covered, stated, "every byte once");
    for span in &structure.spans {
        let (range, meaning) = leaves
            .range(..=(span.start, u64::MAX))
            .next_back()
            .expect("covered");
        assert!(range.0 <= span.start && span.end <= range.1);
        let procedure = &structure.procedures[span.procedure.0 as usize];
        assert_eq!(meaning.0, structure.string(procedure.name));
        let calls: Vec<(u32, String)> = structure
            .scope_chain(span)
            .iter()
            .map(|id| &structure.scopes[id.0 as usize])
            .filter(|s| s.kind == hpc_formats::structure::ScopeKind::Inlined)
            .map(|s| {
                let line = s.site.map_or(0, |l| l.line);
                (line, structure.string(s.name).to_owned())
            })
            .collect();
        assert_eq!(meaning.1, calls, "at {:#x}", span.start);
        if let Some(line) = span.line {
            let place = (structure.string(line.file), line.line);
            assert_eq!((meaning.2.as_str(), meaning.3), place);
        }
    }
}

#[test]
fn every_address_means_in_the_xml_what_it_means_in_the_structure() {
    let folder = Folder::new("xml");
    folder.write("names.rs", NAMES_RS);
    let program = folder.rustc("names.rs", "names", &["-O", "-g"]);
    let structure = whole(&program);
    check(&structure);
    folder.run("strip", &["-s", "names"]);
    check(&whole(&program));

    let text = xml::render(&structure);
    let (prologue, rest) = text.split_once('\n').expect("lines");
    let path = folder.write("with-dtd.xml", format!("{prologue}\n{DTD}{rest}"));
    match Command::new("xmllint")
        .args(["--huge", "--noout", "--valid"])
        .arg(&path)
        .output()
    {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(_) => eprintln!("SKIPPED: xmllint is not installed; only our own reader looked"),
    }
}
