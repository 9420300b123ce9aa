//! `undercroft set`, `drop`, `flash add` and `flash remove`: the export `@set/NAME`, by which an
//! administrator changes a volume while it is served; without a name it is the first volume. A
//! WRITE at 0 carries the options, one `KEY=VALUE` a line, or `drop`, by which the volume drops
//! what it has cached, or `flash add` or `flash remove`, which concern the server. It is answered
//! when that is done, or fails with the reason. A READ at 0 then returns what was changed.
//!
//! Who may: over a unix socket the server's own user and root, whom the kernel names; over TLS the
//! certificates that the configuration lists. One request is taken at a time, of at most
//! [`SET_BYTES`]; what it says becomes a checked configuration before anything changes. Who may is
//! asked at each request, and when its turn has come, since the list may change meanwhile.
//!
//! Not here: what changes and how (`change.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use undercroft_nbd::{
    Client, ClientError, ClientOptions, Command, Failure, Peer, Refusal, Request, Session, Uri,
};

use crate::exports::text::{self, TextExport};
use crate::lock::sleep_lock;

use crate::layers::access::UNTRUSTED;

/// Prefix of the export's name; the volume's name follows.
pub(crate) const SET: &str = "@set/";

/// [`Export::owner`](undercroft_nbd::Export::owner) of these exports, which belong to no volume.
pub(crate) const OWNER: u64 = u64::MAX;

/// Bytes of the export: most bytes of a request, and of an answer.
const SET_BYTES: u32 = 4096;

/// What is asked for in place of options if a volume is to drop what it has cached.
pub(crate) const DROP: &str = "drop";

/// What is asked for in place of options if the server's level on flash is to come or go.
pub(crate) const FLASH_ADD: &str = "flash add";
pub(crate) const FLASH_REMOVE: &str = "flash remove";

/// What becomes of the level on flash of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashChange {
    /// The configured device is used again.
    Add,
    /// It is used no more.
    Remove,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The options are wrong, or do not fit the volume.
    #[error("{0}")]
    Wrong(String),
    /// The server refuses, cannot be reached, or has no room.
    #[error("{0}")]
    Failed(String),
}

/// Takes requests from administrators, and hands them to the running server.
#[derive(Default)]
pub(crate) struct AdminRequests {
    administrators: RwLock<Vec<String>>,
    /// Whether a request is being served.
    is_busy: AtomicBool,
    next: Mutex<Option<AdminRequest>>,
    come: Notify,
}

/// A change that an administrator asks for: give it to
/// [`Running::set`](crate::process::Running::set).
pub struct AdminRequest {
    pub(crate) volume: String,
    /// `KEY=VALUE`, one a line.
    pub(crate) options: String,
    /// Who asks, for the log.
    pub(crate) by: String,
    pub(crate) peer: Peer,
    answer: Option<oneshot::Sender<Result<String, SetError>>>,
    admin: Arc<AdminRequests>,
}

impl AdminRequest {
    pub(crate) fn answer(mut self, result: Result<String, SetError>) {
        if let Some(answer) = self.answer.take() {
            // Nobody may wait for it any more.
            let _ = answer.send(result);
        }
    }
}

impl Drop for AdminRequest {
    fn drop(&mut self) {
        self.admin.is_busy.store(false, Ordering::SeqCst);
    }
}

impl AdminRequests {
    /// Sets whose certificates open the export.
    pub(crate) fn set_administrators(&self, names: &[String]) {
        let mut all = self.administrators.write().unwrap_or_else(PoisonError::into_inner);
        *all = names.to_vec();
    }

    /// Who a peer is, for the log.
    ///
    /// # Errors
    /// Why the peer is no administrator.
    pub(crate) fn admit(&self, peer: &Peer) -> Result<String, String> {
        match (peer.credentials, &peer.certificate) {
            _ if !peer.is_trusted() => Err(UNTRUSTED.to_owned()),
            (Some(who), _) if who.user == 0 || own_user() == Some(who.user) => {
                Ok(format!("user {} at {}", who.user, peer.address))
            }
            (_, Some(name)) if peer.encrypted && self.names(name) => {
                Ok(format!("certificate '{name}' at {}", peer.address))
            }
            _ => Err("changes are for the server's own user and root, over its unix socket, and \
                      for client certificates that its configuration lists (administrators = \
                      ['NAME']), over TLS"
                .to_owned()),
        }
    }

    /// Answers the request that waits, if its administrator is none any more.
    pub(crate) fn refuse_the_removed(&self) {
        let waits = sleep_lock(&self.next).take_if(|asked| self.admit(&asked.peer).is_err());
        if let Some(asked) = waits {
            let why = self.admit(&asked.peer).err().unwrap_or_default();
            asked.answer(Err(SetError::Failed(why)));
        }
    }

    /// The export by which a peer changes a volume.
    ///
    /// # Errors
    /// The peer is no administrator.
    pub(crate) fn open(self: &Arc<Self>, volume: &str, peer: &Peer) -> Result<TextExport, Refusal> {
        self.admit(peer).map_err(Refusal::Denied)?;
        let (admin, peer) = (Arc::clone(self), peer.clone());
        let administrator = Administrator { admin, volume: volume.to_owned(), peer };
        Ok(TextExport {
            name: format!("{SET}{volume}"),
            description: "changes of a volume while it is served",
            bytes: SET_BYTES,
            read_only: false,
            owner: OWNER,
            session: Box::new(move || {
                Box::new(SetSession { by: administrator.clone(), told: Arc::default() })
            }),
        })
    }

    fn names(&self, certificate: &String) -> bool {
        let all = self.administrators.read().unwrap_or_else(PoisonError::into_inner);
        all.contains(certificate)
    }

    /// Hands a request over; `None` while another one is served.
    fn ask(
        self: &Arc<Self>,
        who: &Administrator,
        by: String,
        options: String,
    ) -> Option<oneshot::Receiver<Result<String, SetError>>> {
        if self.is_busy.swap(true, Ordering::SeqCst) {
            return None;
        }
        let (answer, awaited) = oneshot::channel();
        let (volume, peer, admin) = (who.volume.clone(), who.peer.clone(), Arc::clone(self));
        let asked = AdminRequest { volume, options, by, peer, answer: Some(answer), admin };
        *sleep_lock(&self.next) = Some(asked);
        self.come.notify_one();
        Some(awaited)
    }

    /// Waits for the next request.
    pub(crate) async fn next(&self) -> AdminRequest {
        loop {
            if let Some(asked) = sleep_lock(&self.next).take() {
                return asked;
            }
            self.come.notified().await;
        }
    }
}

/// The number by which the kernel names all users of other user namespaces.
const SOMEBODY: u32 = 65_534;

/// The user that this process runs as: the owner of its folder in /proc. `None` if others could
/// have the same number.
fn own_user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|its| its.uid()).filter(|&user| user != SOMEBODY)
}

/// Who changes a volume.
#[derive(Clone)]
struct Administrator {
    admin: Arc<AdminRequests>,
    volume: String,
    peer: Peer,
}

/// A connection of an administrator.
struct SetSession {
    by: Administrator,
    /// What the last request changed.
    told: Arc<Mutex<Bytes>>,
}

impl Session for SetSession {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }
}

impl SetSession {
    fn start(&mut self, request: Request) {
        let Request { command, offset, length, reply, .. } = request;
        let by = match self.by.admin.admit(&self.by.peer) {
            Ok(by) => by,
            Err(why) => return reply.fail(Failure::NotPermitted, why),
        };
        if offset.saturating_add(length) > SET_BYTES.into() {
            return reply.fail(Failure::Invalid, format!("at most {SET_BYTES} bytes"));
        }
        match command {
            Command::Flush => reply.done(),
            Command::Read { .. } => {
                reply.data(vec![text::part(&sleep_lock(&self.told), offset, length)]);
            }
            Command::Write { data } if offset == 0 => {
                let bytes: Vec<u8> = data.iter().flat_map(|piece| piece.iter().copied()).collect();
                let Ok(options) = String::from_utf8(bytes) else {
                    return reply.fail(Failure::Invalid, "the options are no text".to_owned());
                };
                let Some(awaited) = self.by.admin.ask(&self.by, by, options) else {
                    let text = "another change is being made: try again when it has ended";
                    return reply.fail(Failure::Io, text.to_owned());
                };
                let told = Arc::clone(&self.told);
                tokio::spawn(async move {
                    match awaited.await {
                        Ok(Ok(text)) => {
                            *sleep_lock(&told) = Bytes::from(text);
                            reply.done();
                        }
                        Ok(Err(SetError::Wrong(why))) => reply.fail(Failure::Invalid, why),
                        Ok(Err(SetError::Failed(why))) => reply.fail(Failure::NotPermitted, why),
                        Err(_) => {
                            let text = "the server ends, or is reloading; ask again";
                            reply.fail(Failure::ShuttingDown, text.to_owned());
                        }
                    }
                });
            }
            _ => reply.fail(Failure::NotSupported, "WRITE at 0 asks, READ answers".to_owned()),
        }
    }
}

/// Changes options of a volume of a running server. Returns what was changed, in lines.
///
/// # Errors
/// What is wrong, or why the server does not do it. Nothing has changed then.
pub async fn set_over_nbd(
    uri: &Uri,
    options: &ClientOptions,
    volume: &str,
    changes: &[String],
) -> Result<String, SetError> {
    ask_over_nbd(uri, options, volume, changes.join("\n")).await
}

/// Has the volume of a URI drop what it has cached. Returns what was dropped, in lines.
///
/// # Errors
/// Why the server does not do it. Nothing is dropped then.
pub async fn drop_over_nbd(uri: &Uri, options: &ClientOptions) -> Result<String, SetError> {
    ask_over_nbd(uri, options, &uri.export, DROP.to_owned()).await
}

/// Has the level on flash of a server come or go. Returns what was done, in lines.
///
/// # Errors
/// Why the server does not do it.
pub async fn flash_over_nbd(
    uri: &Uri,
    options: &ClientOptions,
    change: FlashChange,
) -> Result<String, SetError> {
    let text = match change {
        FlashChange::Add => FLASH_ADD,
        FlashChange::Remove => FLASH_REMOVE,
    };
    ask_over_nbd(uri, options, &uri.export, text.to_owned()).await
}

async fn ask_over_nbd(
    uri: &Uri,
    options: &ClientOptions,
    volume: &str,
    text: String,
) -> Result<String, SetError> {
    let uri = Uri { export: format!("{SET}{volume}"), ..uri.clone() };
    if text.len() > SET_BYTES as usize {
        return Err(SetError::Wrong(format!("more than {SET_BYTES} bytes of options")));
    }
    let failed = |error: ClientError| match error {
        ClientError::Server { failure: Failure::Invalid, text } => SetError::Wrong(text),
        ClientError::Server { text, .. } if !text.is_empty() => SetError::Failed(text),
        other => SetError::Failed(other.to_string()),
    };
    let client = Client::connect(&uri, options).await.map_err(failed)?;
    client.write(0, vec![Bytes::from(text)], false).await.map_err(failed)?;
    text::read(&client, 0, SET_BYTES).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_waits_is_not_served_for_one_who_is_removed() {
        let admin = Arc::new(AdminRequests::default());
        let certificate = Some("admin".to_owned());
        let peer = Peer { certificate, encrypted: true, ..Peer::default() };
        assert!(admin.open("v", &peer).is_err());
        admin.set_administrators(&["admin".to_owned()]);
        admin.open("v", &peer).unwrap();
        let who = Administrator { admin: Arc::clone(&admin), volume: "v".to_owned(), peer };
        let ask = || admin.ask(&who, String::new(), "client=admin".to_owned());
        let mut waits = ask().unwrap();
        admin.refuse_the_removed();
        assert!(waits.try_recv().is_err(), "it is one still");
        assert!(ask().is_none(), "one at a time");
        admin.set_administrators(&[]);
        admin.refuse_the_removed();
        let answer = waits.try_recv().unwrap().unwrap_err();
        assert!(answer.to_string().contains("administrators = ['NAME']"), "{answer}");
        assert!(sleep_lock(&admin.next).is_none() && !admin.is_busy.load(Ordering::SeqCst));
        assert!(admin.admit(&who.peer).is_err());
    }
}
