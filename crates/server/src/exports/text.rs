//! What exports that are read as text have in common: the text is padded with blanks to the size of
//! the export.
//!
//! Not here: who may open them, and what their requests do (`set.rs`, `advice.rs`).

use bytes::{Bytes, BytesMut};
use undercroft_hints::{Grant, Query};
use undercroft_nbd::{
    Client, ClientError, ClientOptions, Context, Export, ExportInfo, Flags, Peer, Refusal, Session,
    Uri,
};

/// An export of text. The rights of its peer were checked when it was made; since they may change,
/// its sessions check them again.
pub(crate) struct TextExport {
    /// The whole name, with the volume's.
    pub(crate) name: String,
    pub(crate) description: &'static str,
    /// Bytes of the export: most bytes of the text.
    pub(crate) bytes: u32,
    pub(crate) read_only: bool,
    /// See [`Export::owner`].
    pub(crate) owner: u64,
    /// Begins a connection.
    pub(crate) session: Box<dyn Fn() -> Box<dyn Session> + Send + Sync>,
}

impl Export for TextExport {
    fn owner(&self) -> u64 {
        self.owner
    }

    fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: self.description.to_owned(),
            size: self.bytes.into(),
            flags: Flags { read_only: self.read_only, ..Flags::default() },
            min_block: 1,
            preferred_block: 4096,
            max_block: self.bytes,
        }
    }

    fn contexts(&self, _: &str) -> Vec<Context> {
        Vec::new()
    }

    fn connect(&self, _: &Peer, _: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok((self.session)())
    }
}

/// A part of a text, padded with blanks. The caller has checked that it lies in the export.
pub(crate) fn part(text: &Bytes, offset: u64, length: u64) -> Bytes {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    let mut part = BytesMut::from(&text[at(offset)..at(offset + length)]);
    part.resize(length as usize, b' ');
    part.freeze()
}

/// Reads a text of at most so many bytes, which begins at byte `from` of an export. What is no
/// UTF-8 is replaced.
///
/// # Errors
/// The export cannot be read.
pub(crate) async fn read(client: &Client, from: u64, bytes: u32) -> Result<String, ClientError> {
    let buffer = vec![0_u8; bytes as usize];
    let (mut buffers, result) = client.read(from, vec![Box::new(buffer)]).await;
    result?;
    let bytes = buffers.first_mut().map(|buffer| (**buffer).as_mut().to_vec()).unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Reads the status of a volume's server over NBD: the JSON of `/stats`.
///
/// # Errors
/// The server cannot be reached, or does not offer the status.
pub async fn status_over_nbd(uri: &Uri, options: &ClientOptions) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{uri}: {error}");
    let contexts = vec![Query::default().to_string()];
    let options = ClientOptions { contexts, ..options.clone() };
    let client = Client::connect(uri, &options).await.map_err(|e| failed(&e))?;
    let contexts = &client.remote().contexts;
    let grant = contexts.iter().find_map(|(_, name)| Grant::parse(name));
    let window = grant.filter(|g| g.window_bytes <= client.remote().info.max_block.into());
    let Some(Grant { window_base, window_bytes, .. }) = window else {
        return Err(failed(&"this server does not tell its status over NBD"));
    };
    read(&client, window_base, window_bytes as u32).await.map_err(|e| failed(&e))
}
