//! Whether a volume is empty, so that a replay overwrites nothing.

use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

/// The metadata context that says where a volume has data.
const ALLOCATION: &str = "base:allocation";

/// The bit of its status for bytes that read as zeroes.
const ZERO: u32 = 2;

/// Most bytes of a question.
const ASKED: u64 = 1 << 30;

/// The first byte of a volume that is not known to be zero; `None` if all are. A server that does
/// not say where its volume has data knows of no byte.
///
/// # Errors
/// The server cannot be reached, or a request failed.
pub async fn first_data(uri: &Uri, options: &ClientOptions) -> Result<Option<u64>, ClientError> {
    let options = ClientOptions { contexts: vec![ALLOCATION.to_owned()], ..options.clone() };
    let client = Client::connect(uri, &options).await?;
    let remote = client.remote();
    let size = remote.info.size;
    let context = remote.contexts.iter().find(|(_, name)| name == ALLOCATION);
    let Some(&(context, _)) = context else { return Ok((size > 0).then_some(0)) };
    let mut at = 0;
    while at < size {
        let from = at;
        let told = client.block_status(at, (size - at).min(ASKED), false).await?;
        let extents = told.into_iter().filter(|(number, _)| *number == context);
        for extent in extents.flat_map(|(_, extents)| extents) {
            if extent.status & ZERO == 0 {
                return Ok(Some(at));
            }
            at += extent.length;
        }
        if at == from {
            return Ok(Some(at));
        }
    }
    client.close().await;
    Ok(None)
}
