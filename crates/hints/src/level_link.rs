//! A connection of a level of a scheme of movement to the server that runs the next one. Every
//! request is followed by the answer of the level below: whether its block is ours now, or stays
//! there.
//!
//! Not here: what waits to be said (`level_queue.rs`), and the format of the records (`level.rs`).

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

/// What was sent, and is to be awaited: first that the message was understood, then what it is
/// answered.
pub struct LevelSaid {
    message: Option<Heard>,
    answers: Option<Read>,
}

type Heard = std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send>>;
type Read = std::pin::Pin<Box<dyn Future<Output = Result<Bytes, ClientError>> + Send>>;

impl LevelSaid {
    /// Waits until the server has understood the message.
    ///
    /// # Errors
    /// It did not, or the connection was lost.
    pub async fn heard(&mut self) -> Result<(), ClientError> {
        match self.message.take() {
            Some(message) => message.await,
            None => Ok(()),
        }
    }

    /// What the server says of the blocks; to be awaited after the request itself.
    ///
    /// # Errors
    /// The connection was lost, or what came makes no sense.
    pub async fn answers(&mut self) -> Result<Vec<Passed>, ClientError> {
        let Some(answers) = self.answers.take() else { return Ok(Vec::new()) };
        let bytes = answers.await?;
        let hints = parse(&bytes).map_err(|error| ClientError::Refused(error.to_string()))?;
        let passed = |hint| if let Hint::Pass(passed) = hint { Some(passed) } else { None };
        Ok(hints.into_iter().filter_map(passed).collect())
    }
}

impl LevelLink {
    /// The context that a connection is to be opened with for [`over`](LevelLink::over).
    pub fn context(client_id: ClientId) -> String {
        let want = Abilities { freq: true, demote: true, stat: true, ..Abilities::default() };
        Query { client: Some(client_id), want }.to_string()
    }

    /// The link over a connection that was opened with the [`context`](LevelLink::context).
    ///
    /// # Errors
    /// The server runs no level, that of another scheme, or one of other blocks.
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

    /// Blocks of the server's level and those below it.
    pub fn blocks(&self) -> u64 {
        self.level.blocks
    }

    /// Whether blocks may be handed over to it.
    pub fn takes_data(&self) -> bool {
        self.grant.grant.demote
    }

    /// Most bytes of a message.
    pub fn bytes_max(&self) -> usize {
        let most = self.grant.window_bytes.min(self.client.remote().info.max_block.into());
        (most as usize).min(MESSAGE_BYTES_MAX)
    }

    /// Sends a message, and asks for the answer to the requests that it speaks of: the next one on
    /// this connection is to be for these blocks.
    pub fn say(&self, message: &LevelMessage) -> LevelSaid {
        let heard = (!message.bytes.is_empty()).then(|| self.send(message.bytes.clone()));
        let answers = (message.asked > 0).then(|| self.read(0, message.asked));
        LevelSaid { message: heard, answers }
    }

    /// Asks what comes up for the blocks that went down so far.
    pub fn ask_exchange(&self) -> LevelSaid {
        LevelSaid { message: None, answers: Some(self.read(1, 1)) }
    }

    /// The data of the block that comes up in exchange, which was told of just now: nobody else may
    /// ask meanwhile.
    ///
    /// # Errors
    /// The connection was lost, or it is the data of another block.
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
