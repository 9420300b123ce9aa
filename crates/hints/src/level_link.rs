//! A connection of a level of a movement scheme to the server that runs the next level. The level
//! below answers every request: the block moves to the asking level, or stays below.
//!
//! Not here: the queue of what is to be sent (`level_queue.rs`), and the format of the records
//! (`level.rs`).

use bytes::Bytes;
use undercroft_nbd::{Client, ClientError};

use crate::client_id::ClientId;
use crate::grant::{ANSWER_AREA_BYTES, Abilities, Grant, LevelGrant, Query};
use crate::level::Passed;
use crate::level_queue::LevelMessage;
use crate::parse::parse;
use crate::record::{Hint, MESSAGE_BYTES_MAX};

/// A connection to a server that runs the next level.
#[derive(Clone)]
pub struct LevelLink {
    client: Client,
    grant: Grant,
    level: LevelGrant,
}

/// What was sent and must be awaited: first the confirmation of the message, then the answers.
pub struct LevelSaid {
    message: Option<Heard>,
    answers: Option<Read>,
}

type Heard = std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send>>;
type Read = std::pin::Pin<Box<dyn Future<Output = Result<Bytes, ClientError>> + Send>>;

impl LevelSaid {
    /// Waits until the server has accepted the message.
    ///
    /// # Errors
    /// The server rejected it, or the connection was lost.
    pub async fn heard(&mut self) -> Result<(), ClientError> {
        match self.message.take() {
            Some(message) => message.await,
            None => Ok(()),
        }
    }

    /// The server's answers about the requested blocks. Await this after the request itself.
    ///
    /// # Errors
    /// The connection was lost, or the answer is malformed.
    pub async fn answers(&mut self) -> Result<Vec<Passed>, ClientError> {
        let Some(answers) = self.answers.take() else { return Ok(Vec::new()) };
        let bytes = answers.await?;
        let hints = parse(&bytes).map_err(|error| ClientError::Refused(error.to_string()))?;
        let passed = |hint| if let Hint::Pass(passed) = hint { Some(passed) } else { None };
        Ok(hints.into_iter().filter_map(passed).collect())
    }
}

impl LevelLink {
    /// The metadata context to request when opening a connection for [`over`](LevelLink::over).
    pub fn context(client_id: ClientId) -> String {
        let want = Abilities { freq: true, demote: true, stat: true, ..Abilities::default() };
        Query { client: Some(client_id), want }.to_string()
    }

    /// Makes a link of a connection that was opened with the [`context`](LevelLink::context).
    ///
    /// # Errors
    /// The server runs no level, runs another scheme, or uses another block size.
    pub fn over(client: Client, scheme: &str, block_bytes: u32) -> Result<LevelLink, ClientError> {
        let refused = |text: String| Err(ClientError::Refused(text));
        let contexts = &client.remote().contexts;
        let found = contexts
            .iter()
            .find_map(|(_, name)| Some((Grant::parse(name)?, LevelGrant::parse(name)?)));
        let Some((grant, level)) = found.filter(|(grant, _)| grant.grant.freq) else {
            return refused("it runs no level of a scheme (placement) there".to_owned());
        };
        if level.scheme != scheme {
            return refused(format!("it runs placement={}, and not {scheme}", level.scheme));
        }
        if grant.block_bytes != block_bytes {
            let theirs = grant.block_bytes;
            let text = "levels have blocks of one size; give the volume another with block=";
            return refused(format!(
                "its blocks are of {theirs} bytes, and not {block_bytes}: {text}"
            ));
        }
        Ok(LevelLink { client, grant, level })
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Total blocks of the server's level and those below it.
    pub fn blocks(&self) -> u64 {
        self.level.blocks
    }

    /// Whether the server accepts blocks with their data (DEMOTE).
    pub fn takes_data(&self) -> bool {
        self.grant.grant.demote
    }

    /// Most bytes of a message.
    pub fn bytes_max(&self) -> usize {
        let most = self.grant.window_bytes.min(self.client.remote().info.max_block.into());
        (most as usize).min(MESSAGE_BYTES_MAX)
    }

    /// Sends a message, and reads the answers to the requests that it announces. The next request
    /// on this connection must be for these blocks.
    pub fn say(&self, message: &LevelMessage) -> LevelSaid {
        let heard = (!message.bytes.is_empty()).then(|| self.send(message.bytes.clone()));
        let answers = (message.asked > 0).then(|| self.read(0, message.asked));
        LevelSaid { message: heard, answers }
    }

    /// Asks which block comes up in exchange for the blocks that went down so far.
    pub fn ask_exchange(&self) -> LevelSaid {
        LevelSaid { message: None, answers: Some(self.read(1, 1)) }
    }

    /// Reads the data of the block that comes up in exchange, after
    /// [`ask_exchange`](Self::ask_exchange) named it. The caller must not ask again in between.
    ///
    /// # Errors
    /// The connection was lost, or the data belong to another block.
    pub async fn fetch_exchanged(&self, block: u64) -> Result<Bytes, ClientError> {
        let length = Passed::BYTES + self.grant.block_bytes as usize;
        let bytes = self.read_area(2, length).await?;
        let head = parse(&bytes.slice(..Passed::BYTES.min(bytes.len())));
        match head.as_deref() {
            Ok([Hint::Pass(passed)]) if passed.block == block => Ok(bytes.slice(Passed::BYTES..)),
            _ => Err(ClientError::Refused(format!("block {block} did not come up"))),
        }
    }

    fn send(&self, bytes: Bytes) -> Heard {
        Box::pin(self.client.write(self.grant.window_base, vec![bytes], false))
    }

    fn read(&self, area: u64, records: usize) -> Read {
        Box::pin(self.read_area(area, records * Passed::BYTES))
    }

    fn read_area(
        &self,
        area: u64,
        bytes: usize,
    ) -> impl Future<Output = Result<Bytes, ClientError>> + Send + use<> {
        let at = self.level.answers_base + area * ANSWER_AREA_BYTES;
        let buffer: Vec<u8> = vec![0; bytes];
        let answer = self.client.read(at, vec![Box::new(buffer)]);
        async move {
            let (mut buffers, result) = answer.await;
            result?;
            let first = buffers.first_mut().map(|buffer| (**buffer).as_mut());
            Ok(first.map_or_else(Bytes::new, |bytes| Bytes::copy_from_slice(bytes)))
        }
    }
}
