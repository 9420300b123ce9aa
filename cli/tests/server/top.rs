//! `undercroft top` in a real terminal, tmux's, and where its output is no terminal.

use std::process::Command;
use std::time::{Duration, Instant};

use super::support::{PATIENCE, Place, read, text};

/// A terminal of a test's own; ended with it.
struct Terminal(String);

impl Terminal {
    /// Runs a command of a shell in a terminal of this size; `None` without tmux.
    fn new(place: &Place, size: (u32, u32), command: &str) -> Option<Terminal> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("skipped: tmux is not installed");
            return None;
        }
        // A socket of its own: one whose server is just ending would be taken for this one's.
        let socket = place.path(&format!("tmux-{}x{}", size.0, size.1));
        let terminal = Terminal(socket.display().to_string());
        let (width, height) = (size.0.to_string(), size.1.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            command,
        ]);
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-S", &self.0])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn keys(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// What is on the screen, once it is as wanted.
    fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "no {what} on\n{screen}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.0, "kill-server"]).output();
    }
}

const VOLUMES: &str = "--volume db=mem:,size=1MiB,cache=256KiB --volume log=mem:,size=1MiB";

/// A command that shows how `top` ended.
fn top(uri: &str) -> String {
    format!(
        "'{}' top '{uri}' --every 1; echo ended $?; sleep 1000",
        env!("CARGO_BIN_EXE_undercroft")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_in_a_terminal_through_outages() {
    let place = Place::new();
    let server = place.serve(VOLUMES);
    let client = server.connect("db").await;
    let uri = server.uri("log");
    let Some(terminal) = Terminal::new(&place, (160, 40), &top(&uri)) else { return };
    terminal.wait_for("figures", |screen| screen.contains("Healthy: 2 volumes served"));
    let deadline = Instant::now() + PATIENCE;
    let screen = loop {
        for block in 0..100_u64 {
            read(&client, block % 10 * 4096, 4096).await.unwrap();
        }
        let screen = terminal.tmux(&["capture-pane", "-p"]);
        let row = screen.lines().find(|line| line.starts_with("db ")).unwrap_or_default();
        if row.contains('%') && row.contains('\u{2588}') && row.contains("iB/s") {
            break screen;
        }
        assert!(Instant::now() < deadline, "{screen}");
    };
    for part in ["The cache served ", "hit ratio", "miss 50 %", "client", "all "] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    // Median and 99th percentile of reads that hit.
    let times = screen.split("response times in us").nth(1).unwrap().lines();
    let row = times.clone().find(|line| line.starts_with("db ")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    let us = |at: usize| cells[at].replace(',', "").parse::<u64>().unwrap();
    assert!(cells.len() == 9 && us(1) <= us(2) && us(2) > 0, "{screen}");
    // A smaller terminal shows what fits, and can be moved.
    terminal.tmux(&["resize-window", "-x", "50", "-y", "8"]);
    let small = terminal.wait_for("small screen", |screen| screen.starts_with("undercroft top"));
    assert!(small.lines().count() <= 8, "{small}");
    terminal.keys("Down");
    terminal.wait_for("movement", |screen| !screen.starts_with("undercroft top"));
    terminal.keys("Home");
    // The usual terminal: no sentence is cut, sizes are in sight, other columns can be reached.
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    let usual = terminal.wait_for("volumes", |screen| screen.contains("resident"));
    // However lines break.
    let joined = |screen: &str| screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined(&usual).contains("(? shows keys, q ends)"), "{usual}");
    assert!(!usual.contains("reloaded"), "{usual}");
    let row = usual.lines().find(|line| line.starts_with("db ")).unwrap();
    assert!(row.contains("256 KiB"), "{usual}");
    for _ in 0..20 {
        terminal.keys("Right");
    }
    let moved = terminal.wait_for("other columns", |screen| screen.contains("reloaded"));
    assert!(moved.lines().any(|line| line.starts_with("db ")), "names stay:\n{moved}");
    for (key, what) in [("s", "volumes by hit ratio"), ("?", "sort volumes"), ("?", "by hit ratio")]
    {
        terminal.keys(key);
        terminal.wait_for(what, |screen| joined(screen).contains(what));
    }
    terminal.tmux(&["resize-window", "-x", "160", "-y", "40"]);
    drop(client);
    server.kill();
    terminal.wait_for("loss", |screen| screen.contains("lost, trying again"));
    let server = place.serve(VOLUMES);
    terminal.wait_for("return", |screen| {
        !screen.contains("lost, trying again") && screen.contains("Healthy: 2 volumes served")
    });
    terminal.keys("q");
    let screen = terminal.wait_for("end", |screen| screen.contains("ended 0"));
    assert!(!screen.contains("hit ratio"), "the terminal is as before:\n{screen}");
    drop(terminal);
    let Some(terminal) = Terminal::new(&place, (80, 24), &top(&server.http())) else { return };
    terminal.wait_for("figures", |screen| screen.contains("Healthy"));
    terminal.keys("C-c");
    terminal.wait_for("end", |screen| screen.contains("ended 0"));
    assert_eq!(server.stop(), 0);
}

#[test]
fn figures_one_after_another() {
    let place = Place::new();
    let server = place.start(&[], &format!("--http unix:pages {VOLUMES}"));
    for uri in ["unix:pages".to_owned(), server.uri("db")] {
        let output = place.undercroft(&format!("top {uri} --every 1 --count 2"));
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(said.matches("Healthy: 2 volumes served").count(), 2, "{said}");
        assert!(said.lines().any(|line| line.starts_with("log ")), "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
    // What is wrong at the start ends it.
    for (uri, code) in [("unix:nothing", 1), ("ftp://x", 2)] {
        assert_eq!(place.undercroft(&format!("top {uri}")).status.code(), Some(code), "{uri}");
    }
    assert_eq!(server.stop(), 0);
}
