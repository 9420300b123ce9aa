//! Programs in C against the built library, and once more under valgrind if that is there.

#[path = "../../client/tests/client/support.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{BLOCK, Volume, present, shown};

/// Compiles one of the programs.
fn compile(folder: &Path, name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The library lies beside the test: both were built from the same sources.
    let test = std::env::current_exe().expect("a running test has a file");
    let library = test.with_file_name("libundercroft_capi.a");
    let program = folder.join(name);
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/c").join(name).with_extension("c"))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "cc {name}.c: {}", shown(&output));
    program
}

/// Runs it, and runs it under valgrind.
fn check(program: &Path, argument: Option<&str>) {
    let output = Command::new(program).args(argument).output().expect("it was compiled");
    assert!(output.status.success(), "{}: {}", program.display(), shown(&output));
    if !present("valgrind") {
        return;
    }
    let output = Command::new("valgrind")
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(program)
        .args(argument)
        .output()
        .expect("it is there");
    assert!(output.status.success(), "valgrind {}: {}", program.display(), shown(&output));
}

#[test]
fn the_table_works_from_c() {
    if present("cc") {
        let folder = tempfile::tempdir().expect("a folder");
        check(&compile(folder.path(), "table"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_works_from_c() {
    if !present("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let session = compile(folder.path(), "session");
    let served = Volume::new(64 * BLOCK, 1, "evict,demote,stat", 1).serve().await;
    let uri = served.uri.to_string();
    tokio::task::spawn_blocking(move || check(&session, Some(&uri))).await.expect("no panic");
    let disk = served.volume.disk();
    assert!(disk.wrongs.is_empty() && !disk.events.is_empty(), "{:?}", disk.wrongs);
}
