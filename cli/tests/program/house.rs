//! How large the repository is and how it hangs together: lines, circles, globs and crowded types
//! are within docs/developer/house.toml. `tools/house.py` counts them, and here is only whether it
//! does; which code an operation runs through is `make check-slow`.

use std::path::Path;
use std::process::Command;
use std::{fs, str};

use crate::tidy::root;

/// What the tool prints, if Python is there, and whether it agrees.
fn house(arguments: &[&str]) -> Option<(String, bool)> {
    let mut tool = Command::new("python3");
    tool.arg("tools/house.py").args(arguments).current_dir(root());
    let Ok(output) = tool.output() else {
        println!("skipped: python3 is not installed");
        return None;
    };
    let said = [output.stdout, output.stderr].concat();
    Some((str::from_utf8(&said).unwrap().to_owned(), output.status.success()))
}

#[test]
fn nothing_is_beyond_its_budget() {
    let Some((said, is_within)) = house(&["--check"]) else { return };
    assert!(is_within, "{said}");
    print!("{said}");
}

/// Measures a crate of these files.
fn measured(files: &[(&str, String)]) -> Option<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Cargo.toml"), "").unwrap();
    for (name, text) in files {
        let path = folder.path().join("src").join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, text).unwrap();
    }
    let (said, _) = house(&[folder.path().to_str().unwrap(), "--json"])?;
    let found: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    Some(found["crates"]["."].clone())
}

#[test]
fn a_circle_a_glob_and_a_crowd_are_found() {
    let functions: String = (0..41).map(|i| format!("    pub fn f{i}() {{}}\n")).collect();
    let crowd = format!("/// Many.\npub struct Crowd;\n\nimpl Crowd {{\n{functions}}}\n");
    let mut files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub struct Parent;\n".to_owned()),
        ("a/mod.rs", "mod c;\nmod d;\nuse crate::b::{Other, Some as Any};\n".to_owned()),
        ("a/c.rs", "use super::d::*;\npub struct Deep;\n".to_owned()),
        ("a/d.rs", "// A comment.\npub struct X;\n".to_owned()),
        (
            "b.rs",
            "use crate::{\n    Parent,\n    a::c::{self, Deep},\n};\npub struct Other;\n"
                .to_owned(),
        ),
        ("c.rs", format!("{crowd}#[cfg(test)]\nmod tests {{\n    use crate::b::*;\n}}\n")),
    ];
    let Some(found) = measured(&files) else { return };
    assert_eq!(found["circles"], serde_json::json!([]));
    assert_eq!((&found["code"], &found["globs"]), (&59.into(), &1.into()), "{found}");
    assert_eq!(found["crowded"], serde_json::json!({ "Crowd": [41, 1] }));
    files[3].1.push_str("pub(crate) use crate::b::Other;\n");
    let found = measured(&files).unwrap();
    assert_eq!(found["circles"], serde_json::json!([["a/c.rs", "a/d.rs", "b.rs"]]));
    assert_eq!(found["circle_lines"], serde_json::json!([9]));
}
