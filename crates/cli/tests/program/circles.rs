//! No circle of more than six files: files that import each other in a loop can only be understood
//! together. What counts are `use` lines outside of tests; a module's own parents do not, since
//! their names and lists are where everything below is found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::tidy::{files, report, root};

const FILES_MAX: usize = 6;

/// The name of a module within its crate: `["level", "counts"]`.
type Module = Vec<String>;

/// The module that a source file below `src` is.
fn module(path: &Path) -> Module {
    let parts = path.with_extension("");
    let mut parts: Module = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The paths that the `use` items of a file name, without braces.
fn imports(text: &str) -> Vec<Vec<String>> {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let mut all = Vec::new();
    let mut rest = code.lines();
    while let Some(line) = rest.next() {
        let line = line.trim_start();
        let words = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) "));
        let words = words.or(line.strip_prefix("pub ")).unwrap_or(line);
        let Some(first) = words.strip_prefix("use ") else { continue };
        let mut item = first.to_owned();
        while !item.contains(';') {
            item.push_str(rest.next().expect("an import ends"));
        }
        expand(&item.replace([' ', ';'], ""), &[], &mut all);
    }
    all
}

/// Appends the paths of `item`, as `a::{b,c::d}`, each after `before`.
fn expand(item: &str, before: &[String], all: &mut Vec<Vec<String>>) {
    let (head, braced) = match item.split_once('{') {
        Some((head, tail)) => (head, tail.strip_suffix('}')),
        None => (item, None),
    };
    let mut path = before.to_vec();
    path.extend(head.split("::").filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(braced) = braced else { return all.push(path) };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in braced.char_indices().chain([(braced.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&braced[start..at], &path, all);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The module of the same crate that a path leads into, from a file that is `from`.
fn target(path: &[String], from: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut at = from.clone();
    let mut rest = path.iter();
    let mut parts = rest.clone();
    match parts.next()?.as_str() {
        "crate" => {
            at.clear();
            rest = parts;
        }
        "self" => rest = parts,
        "super" => {
            while rest.clone().next().is_some_and(|part| part == "super") {
                rest.next();
                at.pop();
            }
        }
        _ => {}
    }
    for part in rest {
        at.push(part.clone());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// Who is reached from each, itself included where a loop leads back.
fn reached(arrows: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let mut all = BTreeSet::new();
    let mut next: Vec<&Module> = vec![from];
    while let Some(module) = next.pop() {
        for to in arrows.get(module).into_iter().flatten() {
            if all.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    all
}

/// The circles of more than so many files among those of one crate.
fn circles(files: &[(PathBuf, String)], most: usize) -> Vec<String> {
    let modules: BTreeSet<Module> = files.iter().map(|(path, _)| module(path)).collect();
    let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (path, text) in files {
        let from = module(path);
        let to = imports(text).into_iter().filter_map(|path| target(&path, &from, &modules));
        let to = to.filter(|to| !from.starts_with(to)).collect();
        arrows.insert(from, to);
    }
    let reach: BTreeMap<_, _> = modules.iter().map(|m| (m, reached(&arrows, m))).collect();
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for module in &modules {
        let circle: Vec<&Module> =
            reach[module].iter().filter(|other| reach[other].contains(module)).collect();
        if circle.len() > most && known.insert(circle.clone()) {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            all.push(names.join(", "));
        }
    }
    all
}

#[test]
fn no_circle_has_more_than_six_files() {
    let mut crates: BTreeMap<PathBuf, Vec<(PathBuf, String)>> = BTreeMap::new();
    for (path, text) in files(".rs") {
        let within = path.strip_prefix(root()).expect("a file of the repository").to_owned();
        let parts: Vec<_> = within.iter().collect();
        if let [kind, name, source, file @ ..] = &parts[..] {
            if *kind == "crates" && *source == "src" {
                let file = (file.iter().collect(), text);
                crates.entry(Path::new(name).to_owned()).or_default().push(file);
            }
        }
    }
    let wrong = crates.iter().flat_map(|(name, files)| {
        let circles = circles(files, FILES_MAX);
        circles.into_iter().map(move |circle| format!("{}: {circle}", name.display()))
    });
    report("circles of more than six files", &wrong.collect::<Vec<_>>());
}

#[test]
fn a_circle_is_found() {
    let file = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
    let files = [
        file("lib.rs", "mod a;\nmod b;\n"),
        file("a/mod.rs", "mod c;\nuse crate::b::{Other, Some as Any};\n"),
        file("a/c.rs", "use super::Parent;\n"),
        file("b.rs", "use crate::{\n    a::c::{self, Deep},\n};\n"),
        file("c.rs", "#[cfg(test)]\nmod tests { use crate::b; }\n"),
    ];
    assert_eq!(circles(&files, 0), Vec::<String>::new());
    let mut files = files.to_vec();
    files[2].1.push_str("use crate::a::d::X;\n");
    files.push(file("a/d.rs", "pub(crate) use crate::b::Other;\n"));
    assert_eq!(circles(&files, 2), ["a::c, a::d, b"]);
    assert!(circles(&files, 3).is_empty());
}
