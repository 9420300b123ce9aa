//! The export `@advice/NAME`: the JSON of `/advice`, for those who may open the volume NAME, padded
//! with blanks. It tells of the volumes that they may open only.

use std::sync::Arc;

use bytes::Bytes;
use undercroft_nbd::{Client, ClientOptions, Command, Failure, Refusal, Request, Session, Uri};

use crate::exports::text::{self, TextExport};

use crate::layers::access::REVOKED;

/// Prefix of the export's name; the volume's name follows.
pub(crate) const ADVICE: &str = "@advice/";

/// Bytes of the export: most bytes of the JSON, that of about 50 volumes.
const ADVICE_BYTES: u32 = 1 << 20;

/// Bytes of JSON whose making counts as one step against a client's share of the processor.
const BYTES_FOR_ONE: u64 = 64;

/// Makes the JSON for a peer, unless that may not open the volume any more.
pub(crate) type Text = Arc<dyn Fn() -> Result<Bytes, Refusal> + Send + Sync>;

/// The export of one peer; `owner` is that of the volume.
pub(crate) fn export(volume: &str, owner: u64, text: Text) -> TextExport {
    TextExport {
        name: format!("{ADVICE}{volume}"),
        description: "what another policy, placement or size would be worth",
        bytes: ADVICE_BYTES,
        read_only: true,
        owner,
        session: Box::new(move || {
            Box::new(AdviceSession { text: Arc::clone(&text), told: Bytes::new(), work_debt: 0 })
        }),
    }
}

/// A connection: a text is made when its beginning is read, and kept while the rest is.
struct AdviceSession {
    text: Text,
    told: Bytes,
    work_debt: u64,
}

impl Session for AdviceSession {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        std::mem::take(&mut self.work_debt)
    }
}

impl AdviceSession {
    fn start(&mut self, request: Request) {
        let Request { command, offset, length, reply, .. } = request;
        match command {
            Command::Flush => reply.done(),
            Command::Read { .. } if offset.saturating_add(length) <= ADVICE_BYTES.into() => {
                if offset == 0 {
                    let Ok(told) = (self.text)() else {
                        return reply.fail(Failure::NotPermitted, REVOKED.to_owned());
                    };
                    self.told = told;
                    self.work_debt += self.told.len() as u64 / BYTES_FOR_ONE;
                }
                if self.told.len() > ADVICE_BYTES as usize {
                    let text = "the advice does not fit: ask the HTTP listener for /advice";
                    return reply.fail(Failure::Overflow, text.to_owned());
                }
                reply.data(vec![text::part(&self.told, offset, length)]);
            }
            _ => reply.fail(Failure::NotSupported, "this export is only read".to_owned()),
        }
    }
}

/// Reads what a server advises over NBD: the JSON of `/advice`.
///
/// # Errors
/// The server cannot be reached, or gives no advice.
pub async fn advice_over_nbd(uri: &Uri, options: &ClientOptions) -> Result<String, String> {
    let export = format!("{ADVICE}{}", uri.export);
    let failed = |error: &dyn std::fmt::Display| format!("{uri}: {error}");
    let advice = Uri { export, ..uri.clone() };
    let client = Client::connect(&advice, options).await.map_err(|error| failed(&error))?;
    text::read(&client, 0, ADVICE_BYTES).await.map_err(|error| failed(&error))
}
