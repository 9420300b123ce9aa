//! A server process of a test's own, always ended with the test, and ways to talk to it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

/// How long anything may take that should be quick, on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder in which servers are started and other programs run, and which `undercroft` it is.
pub(crate) struct Place(TempDir, PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        Place::with(env!("CARGO_BIN_EXE_undercroft").into())
    }

    /// With another build of `undercroft`.
    pub(crate) fn with(undercroft: PathBuf) -> Place {
        Place(TempDir::new().unwrap(), undercroft)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Another program with the folder as its own. The system's programs come first: some want
    /// the interpreter that they were installed with.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("/usr/bin:/bin:/usr/sbin:/sbin:{path}"));
        command.args(arguments).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a program that must succeed: what it prints.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
        text(&output.stdout)
    }

    /// `undercroft` with arguments that are separated by blanks. Nothing that is set outside of
    /// the test reaches it.
    pub(crate) fn undercroft_command(&self, arguments: &str) -> Command {
        self.undercroft_within(&[], arguments)
    }

    /// `undercroft` with arguments that are separated by blanks, begun by the program `outer`.
    fn undercroft_within(&self, outer: &[&str], arguments: &str) -> Command {
        let mut words = outer.to_vec();
        words.push(self.1.to_str().unwrap());
        words.extend(arguments.split_whitespace());
        let mut command = self.command(words[0], &words[1..]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UNDERCROFT_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs `undercroft` to its end.
    pub(crate) fn undercroft(&self, arguments: &str) -> Output {
        self.undercroft_command(arguments).output().unwrap()
    }

    /// Runs `undercroft serve`, which must end by itself with this code: the one line that it
    /// says.
    pub(crate) fn refused(&self, code: i32, arguments: &str) -> String {
        let mut child = self.undercroft_command(&format!("serve {arguments}")).spawn().unwrap();
        let status = ended(&mut child, arguments);
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(status.code(), Some(code), "{arguments}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
        said
    }

    /// Starts `undercroft serve` on the socket `socket` and a free port for HTTP, and waits until
    /// it says that it serves.
    pub(crate) fn serve(&self, arguments: &str) -> Server {
        self.serve_within(&[], arguments)
    }

    /// Starts `undercroft serve` through a program that becomes it, as `nsenter` does with its
    /// arguments.
    pub(crate) fn serve_within(&self, outer: &[&str], arguments: &str) -> Server {
        self.start(outer, &format!("--http 127.0.0.1:0 {arguments}"))
    }

    /// Starts `undercroft serve` on the socket `socket`, with an address for HTTP among the
    /// arguments.
    pub(crate) fn start(&self, outer: &[&str], arguments: &str) -> Server {
        let errors = self.path("stderr");
        let log = File::options().create(true).append(true).open(&errors).unwrap();
        let all = format!("serve --listen unix:socket {arguments}");
        let mut child = self.undercroft_within(outer, &all).stderr(log).spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let mut server =
            Server { child, socket: self.path("socket"), errors, announced: String::new() };
        let deadline = Instant::now() + PATIENCE;
        // The address of the HTTP listener is the last line.
        while !server.announced.contains("  live ") {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => server.announced += &(line + "\n"),
                Err(error) => {
                    let why = match error {
                        RecvTimeoutError::Timeout => "is silent",
                        RecvTimeoutError::Disconnected => "has ended",
                    };
                    panic!("serve {arguments}: {why}: {}{}", server.announced, server.log());
                }
            }
        }
        server
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a process prints, line by line.
fn lines_of(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody listens any more: the rest is read all the same, so that nobody gets stuck.
            let _ = sender.send(line);
        }
    });
    lines
}

/// Waits for a process that is about to end; one that does not is killed.
pub(crate) fn ended(child: &mut Child, what: &str) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("{what}: does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server that serves; killed if the test ends before it.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    errors: PathBuf,
    /// What it printed when it was ready.
    pub(crate) announced: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What all servers of this folder have logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    pub(crate) fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket.display())
    }

    /// The port of its TCP listener.
    pub(crate) fn port(&self) -> u16 {
        let (_, rest) = self.announced.split_once("://127.0.0.1:").unwrap();
        rest.split('/').next().unwrap().parse().unwrap()
    }

    /// Where it answers HTTP: `http://127.0.0.1:PORT`, or `unix:PATH`.
    pub(crate) fn http(&self) -> String {
        let live = self.announced.lines().find(|line| line.starts_with("  live ")).unwrap();
        let url = live.split_whitespace().nth(1).unwrap();
        url.trim_end_matches('/').to_owned()
    }

    /// Body of a page.
    pub(crate) fn page(&self, path: &str) -> String {
        let mut answer = ureq::get(format!("{}{path}", self.http())).call().unwrap();
        answer.body_mut().read_to_string().unwrap()
    }

    /// Counters of a volume.
    pub(crate) fn stats(&self, volume: &str) -> Value {
        let all: Value = serde_json::from_str(&self.page("/stats")).unwrap();
        all["volumes"][volume].clone()
    }

    pub(crate) fn count(&self, volume: &str, name: &str) -> u64 {
        let stats = self.stats(volume);
        stats[name].as_u64().unwrap_or_else(|| panic!("no {name} in {stats}"))
    }

    /// Waits until a counter of a volume is as wanted.
    pub(crate) fn wait_for(&self, volume: &str, name: &str, wanted: impl Fn(u64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !wanted(self.count(volume, name)) {
            assert!(Instant::now() < deadline, "{name} stays {}", self.count(volume, name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until a volume has so many clients.
    pub(crate) fn wait_for_clients(&self, volume: &str, wanted: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.stats(volume)["clients"].as_array().unwrap().len() != wanted {
            assert!(Instant::now() < deadline, "{}", self.stats(volume)["clients"]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the log has a part.
    pub(crate) fn wait_for_log(&self, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(part) {
            assert!(Instant::now() < deadline, "no '{part}' in {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) async fn try_connect(
        &self,
        volume: &str,
        options: &ClientOptions,
    ) -> Result<Client, ClientError> {
        let uri: Uri = self.uri(volume).parse().unwrap();
        Client::connect(&uri, options).await
    }

    pub(crate) async fn connect(&self, volume: &str) -> Client {
        self.try_connect(volume, &ClientOptions::default()).await.unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Has the configuration read again: what is logged until `part` is there.
    pub(crate) fn reload(&self, part: &str) -> String {
        let before = self.log().len();
        self.signal(Signal::HUP);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log()[before..].to_owned();
            if log.contains(part) {
                return log;
            }
            assert!(Instant::now() < deadline, "no '{part}' in {log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGKILL: nothing is finished.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: it must end by itself; its exit code.
    pub(crate) fn stop(mut self) -> i32 {
        self.signal(Signal::TERM);
        let status = ended(&mut self.child, "serve, after SIGTERM");
        status.code().unwrap_or_else(|| panic!("{status}: {}", self.log()))
    }
}

/// Reads `length` bytes.
pub(crate) async fn read(
    client: &Client,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, ClientError> {
    let (mut buffers, result) = client.read(offset, vec![Box::new(vec![0_u8; length])]).await;
    result.map(|()| (*buffers[0]).as_mut().to_vec())
}

/// Writes, without FUA; sent by the call itself.
pub(crate) fn write(
    client: &Client,
    offset: u64,
    data: Vec<u8>,
) -> impl Future<Output = Result<(), ClientError>> + Send + use<> {
    client.write(offset, vec![Bytes::from(data)], false)
}

pub(crate) use undercroft_random::SplitMix64 as Random;

/// The generator of a random test, whose seed is printed with what it is for.
pub(crate) fn seeded(what: &str) -> Random {
    println!("{what}:");
    Random::seeded()
}
