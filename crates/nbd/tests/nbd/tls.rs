//! TLS, with certificates made here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::sync::mpsc;
use undercroft_nbd::wire::*;
use undercroft_nbd::{
    Client, ClientOptions, ClientTlsFiles, Export, Exports, Listener, Peer, Refusal, Server,
    ServerOptions, ServerTls, Tls, TlsFiles, TlsKeys, Uri,
};

/// A folder of keys, removed with it.
struct Keys {
    folder: Folder,
}

impl Keys {
    /// A root, a server named `localhost`, and a client named `alice`.
    fn new(name: &str) -> Keys {
        let keys = Keys { folder: Folder::new(&format!("tls-{name}")) };
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the root");
        let root_key = KeyPair::generate().unwrap();
        fs::write(keys.path("root.pem"), params.self_signed(&root_key).unwrap().pem()).unwrap();
        let root = Issuer::new(params, root_key);
        keys.issue("server", "the server", &root);
        keys.issue("client", "alice", &root);
        keys
    }

    fn issue(&self, file: &str, name: &str, root: &Issuer<'_, KeyPair>) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::OrganizationName, "a company");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, root).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.0.join(file)
    }

    fn server(&self, ask_clients: bool) -> TlsKeys {
        TlsKeys::new(self.server_tls(ask_clients))
    }

    fn server_tls(&self, ask_clients: bool) -> ServerTls {
        let files = TlsFiles {
            certificates: self.path("server.pem"),
            key: self.path("server.key"),
            client_roots: ask_clients.then(|| self.path("root.pem")),
        };
        files.load().unwrap()
    }

    fn client(&self, show: bool) -> ClientOptions {
        let identity = show.then(|| (self.path("client.pem"), self.path("client.key")));
        let files = ClientTlsFiles { roots: self.path("root.pem"), identity };
        ClientOptions { tls: Some(files.load().unwrap()), ..ClientOptions::default() }
    }
}

/// An export that only exists for encrypted peers, and tells the test who they were.
struct Private {
    ram: Ram,
    peers: mpsc::UnboundedSender<Peer>,
}

impl Exports for Private {
    fn list(&self, peer: &Peer) -> Vec<(String, String)> {
        self.ram.list(peer)
    }

    fn find(&self, name: &str, peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        self.peers.send(peer.clone()).unwrap();
        if peer.encrypted { self.ram.find(name, peer) } else { Err(Refusal::TlsRequired) }
    }
}

struct Running {
    server: Server,
    peers: mpsc::UnboundedReceiver<Peer>,
    plain: Uri,
    encrypted: Uri,
    socket: PathBuf,
}

fn run(keys: &Keys, tls: Tls) -> Running {
    let (sender, peers) = mpsc::unbounded_channel();
    let exports = Private { ram: Ram::new("ram", 1 << 20), peers: sender };
    let server = Server::new(Arc::new(exports), ServerOptions { tls, ..Default::default() });
    let socket = keys.path("socket");
    let listener = Listener::unix(&socket).unwrap();
    listen(&server, listener);
    let uri = |scheme: &str| format!("{scheme}+unix:///?socket={}", socket.display());
    let (plain, encrypted) = (uri("nbd").parse().unwrap(), uri("nbds").parse().unwrap());
    Running { server, peers, plain, encrypted, socket }
}

async fn works(uri: &Uri, options: &ClientOptions) -> Result<Client, String> {
    let client = Client::connect(uri, options).await.map_err(|error| error.to_string())?;
    client.flush().await.map_err(|error| error.to_string())?;
    Ok(client)
}

#[tokio::test]
async fn an_export_may_insist_where_tls_is_offered() {
    let keys = Keys::new("offered");
    let mut running = run(&keys, Tls::Offered(keys.server(false)));
    let error = works(&running.plain, &ClientOptions::default()).await.unwrap_err();
    assert!(error.contains("wants TLS"), "{error}");
    assert!(!running.peers.recv().await.unwrap().encrypted);
    let client = works(&running.encrypted, &keys.client(false)).await.unwrap();
    assert!(client.remote().encrypted);
    let peer = running.peers.recv().await.unwrap();
    assert_eq!((peer.encrypted, peer.certificate), (true, None));
    // Much data, so that records and reads fall apart in every way.
    let data = bytes::Bytes::from((0..1u32 << 18).flat_map(u32::to_be_bytes).collect::<Vec<_>>());
    client.write(0, vec![data.slice(..100), data.slice(100..)], false).await.unwrap();
    let (mut buffers, result) = client.read(0, vec![Box::new(vec![0u8; 1 << 20])]).await;
    result.unwrap();
    assert!(*(*buffers[0]).as_mut() == *data);
    client.close().await;
    deserted(&running.server).await;
}

#[tokio::test]
async fn where_tls_is_required_nothing_else_works() {
    let keys = Keys::new("required");
    let running = run(&keys, Tls::Required(keys.server(false)));
    let mut raw = Raw { stream: tokio::net::UnixStream::connect(&running.socket).await.unwrap() };
    raw.greet(3).await;
    for option in [OPT_LIST, OPT_GO, OPT_INFO, OPT_STRUCTURED_REPLY, OPT_SET_META_CONTEXT, 77] {
        assert_eq!(raw.ask(option, &[]).await, REP_ERR_TLS_REQD);
    }
    assert_eq!(raw.ask(OPT_STARTTLS, b"x").await, REP_ERR_INVALID);
    raw.option(OPT_EXPORT_NAME, b"ram").await;
    raw.hung_up().await;
    works(&running.encrypted, &keys.client(false)).await.unwrap();
    let list = Client::list(&running.encrypted, &keys.client(false)).await.unwrap();
    assert_eq!(list.len(), 1);
}

#[tokio::test]
async fn plain_text_after_starttls_is_not_taken_over() {
    let keys = Keys::new("injected");
    let running = run(&keys, Tls::Required(keys.server(false)));
    let mut raw = Raw { stream: tokio::net::UnixStream::connect(&running.socket).await.unwrap() };
    raw.greet(3).await;
    let mut out = bytes::BytesMut::new();
    put_option(&mut out, OPT_STARTTLS, &[]);
    put_option(&mut out, OPT_LIST, &[]);
    raw.send(&out).await;
    raw.hung_up().await;
}

#[tokio::test]
async fn a_client_certificate_names_the_peer() {
    let keys = Keys::new("mutual");
    let mut running = run(&keys, Tls::Required(keys.server(true)));
    works(&running.encrypted, &keys.client(false)).await.unwrap_err();
    works(&running.encrypted, &keys.client(true)).await.unwrap();
    let peer = running.peers.recv().await.unwrap();
    assert_eq!(peer.certificate.as_deref(), Some("alice"));
    // A certificate of another root is none.
    let strangers = Keys::new("strangers");
    let mut options = keys.client(false);
    let identity = Some((strangers.path("client.pem"), strangers.path("client.key")));
    let files = ClientTlsFiles { roots: keys.path("root.pem"), identity };
    options.tls = Some(files.load().unwrap());
    works(&running.encrypted, &options).await.unwrap_err();
}

#[tokio::test]
async fn a_client_trusts_only_its_roots_and_the_right_name() {
    let (keys, strangers) = (Keys::new("trusted"), Keys::new("untrusted"));
    let running = run(&keys, Tls::Offered(keys.server(false)));
    let error = works(&running.encrypted, &strangers.client(false)).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    let options = ClientOptions { tls_name: Some("elsewhere".to_owned()), ..keys.client(false) };
    let error = works(&running.encrypted, &options).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    let error = works(&running.encrypted, &ClientOptions::default()).await.unwrap_err();
    assert!(error.contains("which certificates to trust"), "{error}");
}

#[tokio::test]
async fn new_keys_reach_new_connections() {
    let (old, new) = (Keys::new("old"), Keys::new("new"));
    let server_keys = old.server(false);
    let running = run(&old, Tls::Required(server_keys.clone()));
    let client = works(&running.encrypted, &old.client(false)).await.unwrap();
    server_keys.replace(new.server_tls(false));
    works(&running.encrypted, &old.client(false)).await.unwrap_err();
    works(&running.encrypted, &new.client(false)).await.unwrap();
    client.flush().await.expect("those that are there stay");
}

#[tokio::test]
async fn a_client_may_leave_in_the_middle_of_the_tls_handshake() {
    let keys = Keys::new("leaving");
    let running = run(&keys, Tls::Required(keys.server(false)));
    for after in [&b""[..], b"\x16", b"\x16\x03\x01\x02\0\x01", b"no tls at all, and long enough"] {
        let mut raw =
            Raw { stream: tokio::net::UnixStream::connect(&running.socket).await.unwrap() };
        raw.greet(3).await;
        assert_eq!(raw.ask(OPT_STARTTLS, &[]).await, REP_ACK);
        raw.send(after).await;
    }
    deserted(&running.server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdinfo_comes_in_over_tls_with_its_certificate() {
    if !present("nbdinfo") {
        return;
    }
    let keys = Keys::new("nbdinfo");
    for (ours, theirs) in [
        ("root.pem", "ca-cert.pem"),
        ("client.pem", "client-cert.pem"),
        ("client.key", "client-key.pem"),
    ] {
        fs::copy(keys.path(ours), keys.path(theirs)).unwrap();
    }
    let mut running = run(&keys, Tls::Required(keys.server(true)));
    let listener = Listener::tcp("localhost:0").await.unwrap();
    let port = listener.tcp_address().unwrap().port();
    listen(&running.server, listener);
    let folder = keys.folder.0.display();
    let uri = format!("nbds://localhost:{port}/ram?tls-certificates={folder}");
    let mut command = std::process::Command::new("nbdinfo");
    command.arg(&uri);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("with TLS") && told.contains("export=\"ram\""), "{told}{errors}");
    assert_eq!(running.peers.recv().await.unwrap().certificate.as_deref(), Some("alice"));
}

#[test]
fn missing_and_empty_files_are_named() {
    let keys = Keys::new("files");
    let mut files = TlsFiles {
        certificates: keys.path("server.pem"),
        key: keys.path("server.key"),
        client_roots: Some(keys.path("none.pem")),
    };
    let error = |files: &TlsFiles| files.load().unwrap_err().to_string();
    assert!(error(&files).contains("none.pem"));
    files.client_roots = None;
    files.certificates = Path::new("/dev/null").to_owned();
    assert!(error(&files).contains("holds no certificate"));
    files.certificates = keys.path("server.pem");
    files.key = keys.path("client.key");
    assert!(error(&files).contains("client.key"));
}
