//! The commands of README and three pages, run as printed: each line of output that a page shows
//! must come, in that order. `...` stands for lines that are left out, or for the end of a line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Place;

/// Pages whose commands are run.
const PAGES: [&str; 4] =
    ["README.md", "docs/user/guide.md", "docs/user/decision.md", "docs/user/report.md"];

/// Beginnings of commands that are not run, and why.
const NOT_RUN: [(&str, &str); 4] = [
    ("undercroft simulate bad.trc", "its damaged trace is made in a test of its own"),
    ("undercroft simulate cut.uct.zst", "likewise"),
    ("undercroft bench nbd", "ten seconds of load, for numbers that differ each time"),
    (
        "undercroft replay examples/postgres-tpcc.uct.zst --to nbd://127.0.0.1:10809/small",
        "its \
      server is not on the page",
    ),
];

/// The addresses of the pages: of a server, and of its live page.
const ADDRESSES: [&str; 2] = ["127.0.0.1:10809", "127.0.0.1:10880"];

/// Lines that begin so have times: the rest of them is not compared.
const TIMED: [&str; 3] = ["latency", "took", "simulated"];

/// A command of a page, and what is printed below it.
struct Shown {
    line: usize,
    command: String,
    output: Vec<String>,
}

fn commands(page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut is_open, mut continues) = (false, false);
    for (number, line) in (1..).zip(page.lines()) {
        let Some(text) = line.strip_prefix("    ") else {
            is_open = false;
            continue;
        };
        let last = all.last_mut().filter(|_| is_open);
        match (text.strip_prefix("$ "), last) {
            (Some(command), _) => {
                let (command, output) = (command.to_owned(), Vec::new());
                all.push(Shown { line: number, command, output });
                is_open = true;
            }
            (None, Some(shown)) if continues => shown.command += text,
            (None, Some(shown)) => shown.output.push(text.to_owned()),
            (None, None) => {}
        }
        let command = all.last_mut().filter(|shown| is_open && shown.output.is_empty());
        continues = command.is_some_and(|shown| {
            let joined = shown.command.strip_suffix('\\').map(str::to_owned);
            joined.map(|joined| shown.command = joined).is_some()
        });
    }
    all
}

/// A line without what differs between runs.
fn comparable(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_timed = words.first().is_some_and(|first| TIMED.contains(first));
    if is_timed { words[0].to_owned() } else { words.join(" ") }
}

/// The first line of what is shown that does not come.
fn missing<'a>(shown: &'a [String], printed: &str) -> Option<&'a str> {
    let mut lines = printed.lines().map(comparable);
    let mut wanted = shown.iter().filter(|line| !line.trim().is_empty() && line.trim() != "...");
    let is = |line: &str, wanted: &str| match wanted.strip_suffix(" ...") {
        Some(begin) => line.starts_with(begin),
        None => line == wanted,
    };
    wanted.find(|wanted| !lines.any(|line| is(&line, &comparable(wanted)))).map(String::as_str)
}

/// A folder in which the commands of a page are run, and the server that runs now.
struct Reader {
    place: Place,
    /// Those that stand for the addresses of the page.
    addresses: [String; 2],
    server: Option<Child>,
}

impl Reader {
    fn new() -> Self {
        let place = Place::new();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        symlink(examples, place.path("examples")).unwrap();
        let free = ADDRESSES.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = free.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
        Self { place, addresses, server: None }
    }

    /// A text of the page with the addresses of here.
    fn here(&self, text: &str) -> String {
        let pairs = ADDRESSES.iter().zip(&self.addresses);
        pairs.fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
    }

    /// A text of here with the addresses of the page.
    fn there(&self, text: &str) -> String {
        let pairs = ADDRESSES.iter().zip(&self.addresses);
        pairs.fold(text.to_owned(), |text, (theirs, ours)| text.replace(ours, theirs))
    }

    fn shell(&self, command: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_undercroft")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PATH", path).env("RUST_LOG", "error");
        shell.current_dir(self.place.path("")).stdin(Stdio::null()).stdout(Stdio::piped());
        shell
    }

    /// Runs a command; what it prints, with the address of the page.
    fn run(&mut self, shown: &Shown) -> String {
        let command = self.here(&shown.command);
        if command == "kill %1; wait" {
            assert!(self.server.is_some(), "there is no server to end");
            self.end();
            return String::new();
        }
        let Some(serve) = command.strip_suffix(" &") else {
            let output = self.shell(&format!("{{ {command}; }} 2>&1")).output().unwrap();
            return self.there(&String::from_utf8(output.stdout).unwrap());
        };
        self.end();
        // The data of the page's server before this one are not its own.
        let _ = fs::remove_file(self.place.path("demo.img"));
        let serve = format!("exec {serve} --listen {}", self.addresses[0]);
        let mut server = self.shell(&serve).spawn().unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let count = if serve.contains("--http") { 4 } else { 3 };
        let printed: Vec<String> = lines.take(count).map(Result::unwrap).collect();
        self.server = Some(server);
        self.there(&printed.join("\n"))
    }

    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
            server.wait().unwrap();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn the_commands_of_pages_print_what_is_shown() {
    let (mut run, mut left_out, mut wrong) = (0, 0, Vec::new());
    for name in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let mut all = commands(&fs::read_to_string(path).unwrap());
        // The traces of a page are made before they are used.
        all.sort_by_key(|shown| !shown.command.starts_with("undercroft trace generate"));
        let mut reader = Reader::new();
        for shown in &all {
            if let Some(file) = shown.command.strip_prefix("cat ") {
                fs::write(reader.place.path(file), shown.output.join("\n") + "\n").unwrap();
            }
            if NOT_RUN.iter().any(|(begin, _)| shown.command.starts_with(begin)) {
                left_out += 1;
                continue;
            }
            run += 1;
            let printed = reader.run(shown);
            if let Some(line) = missing(&shown.output, &printed) {
                let Shown { line: number, command, .. } = shown;
                wrong.push(format!(
                    "{name}:{number}: $ {command}\nmissing: {line}\nprinted:\n{printed}"
                ));
            }
        }
    }
    println!("documents: {run} commands run, {left_out} not run");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(run > 30 && left_out <= 6, "{run} run, {left_out} not");
}
