//! Plugins that a program opens for itself, with libraries that are in no order of search but their
//! own; and strangers' files where the segments are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::support::{present, shown};
use super::{Place, run, serve};

/// Compiles one half of `plugin.c`.
fn half(place: &Place, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let headers = ["/usr/include/liburing.h", "/usr/include/libaio.h"];
    if !present("cc") || !headers.iter().all(|header| Path::new(header).exists()) {
        println!("skipped: no compiler, liburing-dev or libaio-dev");
        return None;
    }
    let made = place.path(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/plugin.c");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-o"]);
    let output = command.arg(&made).arg(source).args(flags).output().expect("a compiler");
    assert!(output.status.success(), "cc: {}", shown(&output));
    Some(made)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_with_libraries_of_its_own_is_answered_as_without() {
    let place = Place::new();
    let Some(program) = half(&place, "host", &["-ldl"]) else { return };
    let shared = ["-DPLUGIN", "-shared", "-fPIC", "-laio", "-luring"];
    let Some(plugin) = half(&place, "plugin.so", &shared) else { return };
    let with = |mut command: Command| {
        command.arg(&plugin).arg(place.file());
        command
    };
    let expected = run(with(place.plain(&program))).await;
    let said = String::from_utf8_lossy(&expected.stdout);
    assert!(expected.status.success() && said.contains("io_submit 1\n"), "{}", shown(&expected));
    let served = serve().await;
    let found = run(with(place.tracked(&program, &served.uri.to_string()))).await;
    assert_eq!(shown(&found), shown(&expected));
}

/// Without any libaio the function is this library's, and is what that of libaio is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn io_submit_from_nowhere_is_the_system_call() {
    let place = Place::new();
    let Some(program) = half(&place, "host", &["-ldl"]) else { return };
    let bare = ["-DPLUGIN", "-DBARE", "-shared", "-fPIC"];
    let Some(plugin) = half(&place, "plugin.so", &bare) else { return };
    let served = serve().await;
    let mut command = place.tracked(&program, &served.uri.to_string());
    command.arg(&plugin).arg(place.file());
    let found = run(command).await;
    let said = String::from_utf8_lossy(&found.stdout);
    assert_eq!(said, "io_submit 1\nread 4096, empty 0, wrong -22\n", "{}", shown(&found));
}

/// A pipe with the name of a segment used to hold every tracked program up before `main`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_pipe_holds_no_program_up() {
    let place = Place::new();
    let served = serve().await;
    for pid in [i32::MAX as u32, std::process::id()] {
        let pipe = place.path(&format!("undercroft-cct.{pid}"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o666), 0).expect("a pipe");
    }
    let mut child =
        place.tracked(Path::new("true"), &served.uri.to_string()).spawn().expect("true");
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => {
                child.kill().expect("killed");
                panic!("the program does not begin");
            }
        }
    };
    assert!(status.success());
}
