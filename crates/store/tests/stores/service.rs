//! A service with the S3 protocol, in this process, that does what the worst of them do: it loses
//! answers, executes requests late, makes ETags of the content's MD5, and deletes whatever the
//! conditions are. The tests decide which requests, and when.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use md5::{Digest, Md5};

use undercroft_random::SplitMix64 as Random;

/// Most objects in one answer of a listing.
const LISTED: usize = 100;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is executed, and the answer lost.
    Lost(Told),
    /// It is executed at [`Service::release`], and the client hears something else before.
    Late(Told),
    /// It is executed, and answered, at [`Service::release`].
    Held,
}

/// What the client hears instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The connection is closed; the client's library repeats the request.
    Nothing,
    /// An answer that is none; the client's library does not repeat the request.
    Nonsense,
    /// This status; the client's library repeats the request after 500, and not after 400.
    Status(u16),
}

/// The environment in which a program finds a service at an address, and its keys.
pub(crate) fn settings(address: &str) -> [(&'static str, String); 5] {
    [
        ("AWS_ENDPOINT", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
    ]
}

/// The running service.
#[derive(Clone)]
pub(crate) struct Service(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// Faults of the next requests, with the method and a part of the path of the requests that
    /// they are for.
    faults: Vec<(&'static str, String, Fault)>,
    /// Requests that are executed later.
    late: VecDeque<Request>,
    /// Draws faults of changes, if there is one.
    random: Option<Random>,
    /// Whether changes are made on condition; without that conditions are ignored.
    ignores_conditions: bool,
    /// Method and path of each request so far.
    requests: Vec<(String, String)>,
    /// Requests that wait for [`Service::release`].
    held: usize,
    releases: u64,
}

#[derive(Clone)]
struct Request {
    method: String,
    /// Bucket and name.
    path: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Service {
    /// Serves at an address, until the process ends.
    pub(crate) fn start(address: &str) -> Service {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared { address, state: Mutex::default(), released: Condvar::new() };
        let service = Service(Arc::new(shared));
        let serving = service.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let service = serving.clone();
                std::thread::spawn(move || service.serve(stream.unwrap()));
            }
        });
        service
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// The next request with this method and this part of the path meets a fault.
    pub(crate) fn next(&self, method: &'static str, part: &str, fault: Fault) {
        self.state().faults.push((method, part.to_owned(), fault));
    }

    /// From now on faults of changes of data are drawn; `None` ends that.
    pub(crate) fn draw(&self, random: Option<Random>) {
        self.state().random = random;
    }

    /// From now on conditions are ignored.
    pub(crate) fn ignore_conditions(&self) {
        self.state().ignores_conditions = true;
    }

    /// Executes everything that is late, in its order, and lets what is held go on. Returns the
    /// status of each late request.
    pub(crate) fn release(&self) -> Vec<u16> {
        let mut state = self.state();
        state.releases += 1;
        self.0.released.notify_all();
        let late = std::mem::take(&mut state.late);
        late.iter().map(|request| state.execute(request).status).collect()
    }

    /// Waits until so many requests are held.
    pub(crate) async fn wait_for_held(&self, count: usize) {
        while self.state().held < count {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    /// Number of requests so far with this method and this part of the path.
    pub(crate) fn count(&self, method: &str, part: &str) -> usize {
        let state = self.state();
        state.requests.iter().filter(|(its, path)| its == method && path.contains(part)).count()
    }

    /// An object's bytes; the path has the bucket.
    pub(crate) fn object(&self, path: &str) -> Option<Vec<u8>> {
        self.state().objects.get(path).cloned()
    }

    /// The paths that begin so.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        let state = self.state();
        state.objects.keys().filter(|path| path.starts_with(prefix)).cloned().collect()
    }

    /// Replaces an object, as another program would.
    pub(crate) fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.state().objects.insert(path.to_owned(), bytes.into());
    }

    /// Removes an object, as another program would.
    pub(crate) fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Ok(Some(request)) = Request::read(&mut reader) {
            let Some(response) = self.answer(&request) else { return };
            if response.write(&stream, request.method == "HEAD").is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Option<Response> {
        let mut state = self.state();
        state.requests.push((request.method.clone(), request.path.clone()));
        let told = |told| match told {
            Told::Nothing => None,
            Told::Nonsense => Some(Response::error(0, "Drawn")),
            Told::Status(status) => Some(Response::error(status, "Drawn")),
        };
        match state.fault(request) {
            None => Some(state.execute(request)),
            Some(Fault::Lost(instead)) => {
                state.execute(request);
                told(instead)
            }
            Some(Fault::Late(instead)) => {
                state.late.push_back(request.clone());
                told(instead)
            }
            Some(Fault::Held) => Some(self.wait(state).execute(request)),
        }
    }

    /// Waits for the next release.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let releases = state.releases;
        state.held += 1;
        while state.releases == releases {
            state = self.0.released.wait(state).unwrap();
        }
        state.held -= 1;
        state
    }
}

impl State {
    fn fault(&mut self, request: &Request) -> Option<Fault> {
        let fits = |(method, part, _): &(&str, String, Fault)| {
            *method == request.method && request.path.contains(part.as_str())
        };
        if let Some(found) = self.faults.iter().position(fits) {
            return Some(self.faults.remove(found).2);
        }
        let random = self.random.as_mut().filter(|_| request.path.contains("/data/"))?;
        // Some of the late requests are executed before others are made.
        if random.below(8) == 0 {
            let at = random.below(self.late.len() as u64 + 1) as usize;
            if let Some(late) = self.late.remove(at) {
                self.execute(&late);
            }
        }
        let random = self.random.as_mut()?;
        let instead = match random.below(5) {
            0 => Told::Status(400),
            1 => Told::Nothing,
            2 => Told::Nonsense,
            _ => Told::Status(500),
        };
        match (request.method.as_str(), random.below(16)) {
            ("PUT", 0) => Some(Fault::Lost(instead)),
            ("PUT", 1) => Some(Fault::Late(instead)),
            _ => None,
        }
    }

    fn execute(&mut self, request: &Request) -> Response {
        let is_bucket = !request.path.contains('/');
        match request.method.as_str() {
            "PUT" => self.put(request),
            "GET" if is_bucket => self.list(request),
            "GET" | "HEAD" => self.get(request),
            "DELETE" => {
                self.objects.remove(&request.path);
                Response::ok(Vec::new())
            }
            _ => Response::error(405, "MethodNotAllowed"),
        }
    }

    fn put(&mut self, request: &Request) -> Response {
        let before = self.objects.get(&request.path).map(|bytes| tag(bytes));
        if !self.ignores_conditions {
            if request.headers.contains_key("if-none-match") && before.is_some() {
                return Response::error(412, "PreconditionFailed");
            }
            match (request.headers.get("if-match"), &before) {
                (Some(_), None) => return Response::error(404, "NoSuchKey"),
                (Some(wanted), Some(before)) if wanted != before => {
                    return Response::error(412, "PreconditionFailed");
                }
                _ => {}
            }
        }
        self.objects.insert(request.path.clone(), request.body.clone());
        Response { headers: vec![("ETag", tag(&request.body))], ..Response::ok(Vec::new()) }
    }

    fn get(&self, request: &Request) -> Response {
        let Some(bytes) = self.objects.get(&request.path) else {
            return Response::error(404, "NoSuchKey");
        };
        let mut headers = vec![
            ("ETag", tag(bytes)),
            ("Last-Modified", "Wed, 25 Nov 2026 10:00:00 GMT".to_owned()),
        ];
        let Some(range) = request.headers.get("range") else {
            return Response { headers, ..Response::ok(bytes.clone()) };
        };
        let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        if first >= bytes.len() {
            return Response::error(416, "InvalidRange");
        }
        let last = last.min(bytes.len() - 1);
        headers.push(("Content-Range", format!("bytes {first}-{last}/{}", bytes.len())));
        Response { status: 206, headers, body: bytes[first..=last].to_vec() }
    }

    fn list(&self, request: &Request) -> Response {
        let word = |name: &str| request.query.get(name).map_or("", String::as_str);
        let bucket = format!("{}/", request.path);
        let after = [word("start-after"), word("continuation-token")].into_iter().max().unwrap();
        let mut found: Vec<_> = self
            .objects
            .iter()
            .filter_map(|(path, bytes)| Some((path.strip_prefix(&bucket)?, bytes)))
            .filter(|(key, _)| {
                key.starts_with(word("prefix")) && (after.is_empty() || *key > after)
            })
            .take(LISTED + 1)
            .collect();
        let more = found.len() > LISTED;
        found.truncate(LISTED);
        let mut text = format!("<ListBucketResult><IsTruncated>{more}</IsTruncated>");
        if let Some((last, _)) = found.last().filter(|_| more) {
            text += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
        }
        for (key, bytes) in found {
            text += &format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-25T10:00:00.000Z</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size></Contents>",
                tag(bytes).replace('"', "&quot;"),
                bytes.len()
            );
        }
        Response::ok((text + "</ListBucketResult>").into_bytes())
    }
}

/// The ETag of a content.
fn tag(bytes: &[u8]) -> String {
    let digest = Md5::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

impl Request {
    /// The next request of a connection; `None` at its end.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Request>> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = query.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
        let (method, path) = (method.to_owned(), decoded(path.trim_start_matches('/')));
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Request { method, path, query, headers, body }))
    }
}

/// A text without `%2F` and the like.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        out.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
        out += &part[2..];
    }
    out
}

impl Response {
    fn ok(body: Vec<u8>) -> Response {
        Response { status: 200, headers: Vec::new(), body }
    }

    fn error(status: u16, code: &str) -> Response {
        let body = format!("<Error><Code>{code}</Code></Error>").into_bytes();
        Response { status, headers: Vec::new(), body }
    }

    fn write(&self, mut to: &TcpStream, is_head: bool) -> io::Result<()> {
        let mut text = format!("HTTP/1.1 {} Status\r\n", self.status);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n", self.body.len());
        let mut bytes = text.into_bytes();
        if !is_head {
            bytes.extend_from_slice(&self.body);
        }
        to.write_all(&bytes)
    }
}
