//! The load generator with hints in front of its reads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::export::Ram;
use bytes::Bytes;
use undercroft_hints::{self as hint, Abilities, Grant, Hint, Query};
use undercroft_nbd::{
    ClientOptions, Command, Context, Export, ExportInfo, Exports, Failure, Listener, Peer, Refusal,
    Request, Server, ServerOptions, Session, Uri,
};
use undercroft_tools::{Load, LoadReport};

const SIZE: u64 = (1 << 20) - 4096;
const BASE: u64 = 1 << 20;

/// A disk in memory with a mailbox, if it grants anything.
#[derive(Clone)]
struct Mail {
    ram: Ram,
    grants: &'static str,
    refuses: bool,
    /// For each message the blocks in it.
    messages: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl Exports for Mail {
    fn list(&self, _peer: &Peer) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, _name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(self.clone()))
    }
}

impl Export for Mail {
    fn info(&self, peer: &Peer, contexts: &[Context]) -> ExportInfo {
        let size = if contexts.is_empty() { SIZE } else { BASE + (1 << 20) };
        ExportInfo { size, ..self.ram.info(peer, contexts) }
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        let Some(query) = Query::parse(query) else { return Vec::new() };
        let grant = query.want.and(Abilities::parse(self.grants));
        let window_bytes = 1 << 20;
        let (epoch, block_bytes, news) = (1, 4096, None);
        let grant = Grant { epoch, block_bytes, window_base: BASE, window_bytes, news, grant };
        vec![Context { name: grant.to_string(), key: 1, kept: None }]
    }

    fn connect(&self, _peer: &Peer, _contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Mail {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }
}

impl Mail {
    fn start(&mut self, request: Request) {
        if request.offset < BASE {
            assert!(request.offset + request.length <= SIZE, "beyond the volume");
            self.ram.serve(&mut vec![request]);
            return;
        }
        let Command::Write { data } = request.command else { panic!("a window is for messages") };
        if self.refuses {
            return request.reply.fail(Failure::Invalid, "on demand".to_owned());
        }
        let hints = hint::parse(&Bytes::from(data.concat())).expect("a message");
        let [Hint::Evict { runs, .. }] = &hints[..] else { panic!("not evictions: {hints:?}") };
        let blocks = runs.iter().flat_map(|run| run.blocks()).collect();
        self.messages.lock().unwrap().push(blocks);
        request.reply.done();
    }
}

/// Puts a load on: what came of it, and the messages that came.
async fn run(
    load: Load,
    grants: &'static str,
    refuses: bool,
) -> Result<(LoadReport, Vec<Vec<u64>>), String> {
    let name = format!("undercroft-{}-{grants}-{refuses}-{:?}", std::process::id(), load.hints);
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("socket");
    let messages = Arc::default();
    let mail = Mail { ram: Ram::new("ram", SIZE), grants, refuses, messages };
    let server = Server::new(Arc::new(mail.clone()), ServerOptions::default());
    let listener = Listener::unix(&socket).unwrap();
    let listening = tokio::spawn({
        let server = server.clone();
        async move { server.listen(listener).await }
    });
    let uri: Uri = format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap();
    let run = move || load.run(&uri, &ClientOptions::default());
    let report = tokio::task::spawn_blocking(run).await.unwrap();
    server.shutdown(Duration::from_secs(5)).await;
    listening.abort();
    std::fs::remove_dir_all(&folder).unwrap();
    let messages = mail.messages.lock().unwrap().clone();
    report.map(|report| (report, messages)).map_err(|error| error.to_string())
}

fn load(hints: Option<u32>) -> Load {
    let duration = Duration::from_millis(50);
    Load { hints, duration, depth: 7, connections: 2, read_percent: 80, ..Load::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_go_in_front_of_so_many_reads() {
    for each in [1, 16, 64] {
        let (report, messages) = run(load(Some(each)), "evict", false).await.unwrap();
        assert_eq!((report.errors, report.messages), (0, messages.len() as u64));
        assert!(messages.iter().all(|blocks| blocks.len() == each as usize));
        assert!(messages.iter().flatten().all(|&block| block < SIZE / 4096));
        // What is left on each of the two connections did not fill another message.
        let (reads, told) = (report.reads.count(), report.messages * u64::from(each));
        assert!(reads >= told && reads < told + 2 * u64::from(each), "{reads} reads, {told} told");
        assert!(report.messages > 0 && report.writes.count() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_hints_there_is_only_the_form_of_the_answers() {
    let (report, messages) = run(load(Some(0)), "evict", false).await.unwrap();
    assert_eq!((report.errors, report.messages, messages.len()), (0, 0, 0));
    assert!(report.reads.count() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_told() {
    let (report, _) = run(load(Some(4)), "evict", true).await.unwrap();
    assert!(report.messages > 0 && report.errors == report.messages);
    let error = run(load(Some(4)), "demote", false).await.unwrap_err();
    assert!(error.contains("the server takes no hints of evictions"), "{error}");
    let error = run(load(Some(65)), "evict", false).await.unwrap_err();
    assert!(error.contains("hints: up to 64 blocks"), "{error}");
}
