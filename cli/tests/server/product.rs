//! The program without the laboratory (`--no-default-features`), as its users run it: it serves to
//! clients of others, attaches a program, advises while it serves, and says what was left out.
//!
//! `make test` builds it and names it in `UNDERCROFT_WITHOUT_LAB`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::clients::is_there;
use super::recording::library;
use super::support::{PATIENCE, Place, Server, seeded, text};

const BLOCK: usize = 4096;
/// More than the cache has.
const BLOCKS: usize = 1536;

/// The program without the laboratory, if there is one.
pub(crate) fn without_lab() -> Option<PathBuf> {
    std::env::var_os("UNDERCROFT_WITHOUT_LAB").map(PathBuf::from)
}

fn product() -> Option<PathBuf> {
    let named = without_lab();
    if named.is_none() {
        println!("skipped: UNDERCROFT_WITHOUT_LAB names no program; make test builds one");
    }
    named
}

#[test]
fn the_product_alone_serves_attaches_and_advises() {
    let Some(program) = product() else { return };
    if let Some(missing) = ["nbdinfo", "nbdcopy"].into_iter().find(|name| !is_there(name)) {
        return println!("skipped: {missing} is not installed");
    }
    // As packages have it: the library beside the program, which is told of nothing. Not copied by
    // this process: a child of another test could hold the file open, which would be busy then.
    let installed = tempfile::tempdir().unwrap();
    let library = library().expect("cargo test -p undercroft-preload --no-run builds it");
    let mut copy = Command::new("cp");
    copy.arg(program).arg(library).arg(installed.path());
    assert!(copy.status().unwrap().success());
    let undercroft = installed.path().join("undercroft");
    let place = Place::with(undercroft);
    let size = BLOCKS * BLOCK;
    let volume = "cache=4MiB,policy=lru,placement=auto";
    let server = place.serve(&format!("--volume d=file:d.img,size={size},{volume}"));

    let data = seeded("what is written").bytes(size);
    place.write("from", &data);
    let uri = server.uri("d");
    assert_eq!(place.run("nbdinfo", &["--size", &uri]).trim(), size.to_string());
    place.run("nbdcopy", &["--flush", "from", &uri]);
    place.run("nbdcopy", &[&uri, "to"]);
    assert!(place.read("to") == data && place.read("d.img") == data, "something else is read");

    attached(&place, &server, &data);
    advised(&place, &server);
    let stats = place.undercroft(&format!("stats {uri} --json"));
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert!(stats["volumes"]["d"]["reads"].as_u64().unwrap() >= 2 * BLOCKS as u64, "{stats:#}");
    assert_eq!(server.stop(), 0);
}

/// A program that copies the volume through one buffer: with each read the block before leaves it.
fn attached(place: &Place, server: &Server, data: &[u8]) {
    place.run("mkfifo", &["pipe"]);
    let program = format!("dd if=d.img of=pipe bs={BLOCK} status=none");
    let volume = format!("d.img=nbd+unix:///d?socket={}", place.path("socket").display());
    let arguments = format!("attach --volume {volume} --segments . -- {program}");
    let said = File::create(place.path("said")).unwrap();
    let mut command = place.undercroft_command(&arguments);
    let mut program = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
    // It gets no further than the pipe is read: not before the server knows it, and not to its end
    // before the server has heard what left its buffer.
    let mut pipe = File::open(place.path("pipe")).unwrap();
    server.wait_for_clients("d", 1);
    let mut copied = vec![0; data.len() / 2];
    pipe.read_exact(&mut copied).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while server.stats("d")["cooperation"]["known_evictions"].as_u64().unwrap_or(0) < 100 {
        let said = text(&place.read("said"));
        assert!(Instant::now() < deadline, "{said}{:#}", server.stats("d"));
        std::thread::sleep(Duration::from_millis(20));
    }
    pipe.read_to_end(&mut copied).unwrap();
    assert!(program.wait().unwrap().success(), "{}", text(&place.read("said")));
    assert!(copied == data, "the program has read something else");
}

/// Reads the volume again and again, of which LRU keeps nothing: the adviser says so.
fn advised(place: &Place, server: &Server) {
    let uri = server.uri("d");
    let deadline = Instant::now() + PATIENCE;
    loop {
        place.run("nbdcopy", &[&uri, "null:"]);
        let advice = place.undercroft(&format!("advise {uri}"));
        assert!(advice.status.success(), "{}", text(&advice.stderr));
        let advice = text(&advice.stdout);
        let unwrapped = advice.split_whitespace().collect::<Vec<_>>().join(" ");
        if unwrapped.contains("instead of lru would add") {
            return assert!(advice.contains("* today"), "{advice}");
        }
        assert!(Instant::now() < deadline, "{advice}");
    }
}

#[test]
fn what_was_left_out_is_said() {
    let Some(product) = product() else { return };
    let whole = commands(Path::new(env!("CARGO_BIN_EXE_undercroft")));
    let rest = commands(&product);
    assert!(rest.contains("serve") && rest.contains("attach") && rest.contains("advise"));
    assert!(rest.is_subset(&whole), "{rest:?}");
    let left_out: Vec<_> = whole.difference(&rest).map(String::as_str).collect();
    assert!(left_out.contains(&"simulate") && left_out.contains(&"sweep"), "{left_out:?}");
    let help = Command::new(&product).arg("--help").output().unwrap();
    let help = text(&help.stdout);
    let (_, said) = help.split_once("Built without the laboratory: ").unwrap();
    let said: BTreeSet<_> = said.split([' ', ',', '\n']).collect();
    let refused = |arguments: &[&str]| {
        let output = Command::new(&product).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        text(&output.stderr)
    };
    for name in left_out {
        assert!(said.contains(name), "{name} is left out, and --help does not say so: {help}");
        let answer = refused(&[name, "trace.csv"]);
        assert!(answer.contains(&format!("unrecognized subcommand '{name}'")), "{answer}");
        assert!(answer.contains("try '--help'"), "{answer}");
    }
    let unknown = refused(&["sevre"]);
    assert!(
        unknown.contains("unrecognized subcommand") && unknown.contains("'serve'"),
        "{unknown}"
    );
    let trace = refused(&["advise", "trace.csv"]);
    assert!(trace.contains("trace.csv") && trace.contains("HTTP listener"), "{trace}");
}

/// The commands that a program lists.
fn commands(program: &Path) -> BTreeSet<String> {
    let help = Command::new(program).arg("--help").output().unwrap();
    let help = text(&help.stdout);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    // What is wrapped is further to the right.
    let lines = list.lines().filter(|line| !line.starts_with("   "));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}
