//! Targets of the Makefile at their smallest size, with this program: those that take seconds.
//! `make check-commands` runs all of them.

use std::path::Path;
use std::process::Command;

#[test]
fn targets_that_take_seconds_work() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !["make", "python3", "zstd"].into_iter().all(has) {
        return println!("skipped: it needs make, python3 and zstd");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Path::new(env!("CARGO_BIN_EXE_undercroft")).parent().unwrap();
    let mut commands = Command::new("python3");
    commands.arg("tools/commands.py").arg(built).arg("--quick").current_dir(root);
    let output = commands.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("0 failed") && said.lines().count() > 10, "{said}");
}
