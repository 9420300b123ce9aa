//! What the tests share: exports to serve, and a client that says exactly what it is told to.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use undercroft_nbd::wire::*;
use undercroft_nbd::{
    Context, Export, ExportInfo, Exports, Listener, Peer, Refusal, Request, Server, ServerOptions,
    Session,
};

pub(crate) use crate::export::{PAGE, Ram};

/// Longest time that anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An export whose requests come out of a channel, for the test to answer.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) info: ExportInfo,
    requests: mpsc::UnboundedSender<Request>,
    /// How many requests it takes.
    pub(crate) room: Arc<AtomicUsize>,
    /// Whether a client has left without notice.
    pub(crate) is_left: Arc<AtomicBool>,
}

impl Held {
    pub(crate) fn new(size: u64) -> (Held, mpsc::UnboundedReceiver<Request>) {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (room, is_left) = (Arc::new(usize::MAX.into()), Arc::default());
        (Held { info: Ram::new("held", size).info, requests, room, is_left }, receiver)
    }
}

impl Exports for Held {
    fn list(&self, _peer: &Peer) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, _name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(self.clone()))
    }
}

impl Export for Held {
    fn info(&self, _peer: &Peer, _contexts: &[Context]) -> ExportInfo {
        self.info.clone()
    }

    /// Two contexts, `test:a` and `test:b`.
    fn contexts(&self, query: &str) -> Vec<Context> {
        let all = [("test:a", 7), ("test:b", 9)];
        let fits = |name: &str| query == name || query.is_empty() || query == "test:";
        let found = all.into_iter().filter(|(name, _)| fits(name));
        found.map(|(name, key)| Context { name: name.to_owned(), key, kept: None }).collect()
    }

    fn connect(&self, _peer: &Peer, _contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Held {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }

    fn room(&mut self, _: &Waker) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    fn no_more(&mut self, is_gone: bool) {
        self.is_left.fetch_or(is_gone, Ordering::SeqCst);
    }
}

impl Held {
    fn start(&mut self, request: Request) {
        // A test that is not interested any more drops it: EIO.
        let _ = self.requests.send(request);
    }
}

/// A server, and a client connected to it by a socket pair.
pub(crate) fn serve(exports: impl Exports, options: ServerOptions) -> (Server, Raw) {
    let server = Server::new(Arc::new(exports), options);
    let raw = connect(&server);
    (server, raw)
}

/// One more client.
pub(crate) fn connect(server: &Server) -> Raw {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let server = server.clone();
    tokio::spawn(async move { server.attend(theirs, Peer::default()).await });
    Raw { stream: ours }
}

/// A server without limits that would be in the way.
pub(crate) fn ram(size: u64) -> (Server, Raw) {
    serve(Ram::new("ram", size), ServerOptions::default())
}

/// Has a server take clients.
pub(crate) fn listen(server: &Server, listener: Listener) -> JoinHandle<()> {
    let server = server.clone();
    tokio::spawn(async move { server.listen(listener).await })
}

/// Waits until a server has no connection left.
pub(crate) async fn deserted(server: &Server) {
    let begin = std::time::Instant::now();
    while server.connections() > 0 {
        assert!(begin.elapsed() < PATIENCE, "a connection stays");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A client in charge of every byte.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
}

impl Raw {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let sent = timeout(PATIENCE, self.stream.write_all(bytes)).await;
        sent.expect("the server is stuck").expect("the server hung up");
    }

    pub(crate) async fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = timeout(PATIENCE, self.stream.read_exact(&mut bytes)).await;
        read.expect("the server is silent").expect("the server hung up");
        bytes
    }

    async fn array<const N: usize>(&mut self) -> [u8; N] {
        self.receive(N).await.try_into().expect("as many as asked for")
    }

    /// The server has hung up, and sends nothing before.
    pub(crate) async fn hung_up(mut self) {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await;
        // A reset says the same.
        let _ = read.expect("the server does not hang up");
        assert_eq!(rest, [], "the server says something before it hangs up");
    }

    pub(crate) async fn greet(&mut self, flags: u32) {
        let greeting = Greeting::parse(&self.array().await).unwrap();
        assert_eq!(greeting.flags, FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        self.send(&flags.to_be_bytes()).await;
    }

    pub(crate) async fn option(&mut self, option: u32, data: &[u8]) {
        let mut out = BytesMut::new();
        put_option(&mut out, option, data);
        self.send(&out).await;
    }

    /// The next answer to this option.
    pub(crate) async fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        let header = OptionReplyHeader::parse(&self.array().await).unwrap();
        assert_eq!(header.option, option);
        (header.reply, self.receive(header.length as usize).await)
    }

    /// Sends an option; its only answer's kind.
    pub(crate) async fn ask(&mut self, option: u32, data: &[u8]) -> u32 {
        self.option(option, data).await;
        self.option_reply(option).await.0
    }

    pub(crate) async fn info(&mut self, option: u32, name: &str, wanted: &[u16]) -> Vec<InfoReply> {
        let request = InfoRequest { name: name.to_owned(), wanted: wanted.to_vec() };
        self.option(option, &request.bytes()).await;
        let mut told = Vec::new();
        loop {
            match self.option_reply(option).await {
                (REP_INFO, data) => told.push(InfoReply::parse(&data).unwrap()),
                (reply, _) => {
                    assert_eq!(reply, REP_ACK);
                    return told;
                }
            }
        }
    }

    /// Through the handshake, with chunks and these contexts or without.
    pub(crate) async fn go(&mut self, structured: bool, contexts: &[&str]) {
        self.greet(3).await;
        if structured {
            assert_eq!(self.ask(OPT_STRUCTURED_REPLY, &[]).await, REP_ACK);
        }
        if !contexts.is_empty() {
            let queries = contexts.iter().map(|name| (*name).to_owned()).collect();
            let query = ContextQuery { name: String::new(), queries };
            self.option(OPT_SET_META_CONTEXT, &query.bytes()).await;
            while self.option_reply(OPT_SET_META_CONTEXT).await.0 != REP_ACK {}
        }
        self.info(OPT_GO, "", &[INFO_BLOCK_SIZE]).await;
    }

    pub(crate) async fn request(&mut self, request: RequestHeader, data: &[u8]) {
        self.send(&[&request.bytes(), data].concat()).await;
    }

    /// The next simple reply: error and cookie.
    pub(crate) async fn simple(&mut self) -> (u32, u64) {
        match ReplyHeader::parse(&self.receive(16).await).unwrap() {
            Some((ReplyHeader::Simple { error, cookie }, 16)) => (error, cookie),
            other => panic!("not a simple reply: {other:?}"),
        }
    }

    /// The next chunk.
    pub(crate) async fn chunk(&mut self) -> (ChunkHeader, Vec<u8>) {
        match ReplyHeader::parse(&self.receive(20).await).unwrap() {
            Some((ReplyHeader::Chunk(header), 20)) => {
                let payload = self.receive(header.length as usize).await;
                (header, payload)
            }
            other => panic!("not a chunk: {other:?}"),
        }
    }
}

/// A request without payload.
pub(crate) fn request(command: u16, cookie: u64, offset: u64, length: u64) -> RequestHeader {
    let payload_length = if command == CMD_WRITE { length } else { 0 };
    RequestHeader { flags: 0, command, cookie, offset, length, payload_length }
}

/// A folder of its own for a test, removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("undercroft-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a program is there; if not, says so.
pub(crate) fn present(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}
