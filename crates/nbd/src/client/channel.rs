//! A connection as a store uses it: requests of any length, in as many as the export takes, and
//! which of the answered changes no FLUSH has covered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::{Buffer, Client, ClientError};
use crate::wire::{SEND_FLUSH, SEND_FUA};

/// A connection, and the number of changes answered on it that no FLUSH has covered.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The connection.
    pub client: Client,
    unflushed: Arc<AtomicU64>,
}

impl Channel {
    pub(super) fn new(client: Client) -> Channel {
        Channel { client, unflushed: Arc::default() }
    }

    /// The same changes over another connection.
    pub(super) fn over(&self, client: Client) -> Channel {
        Channel { client, unflushed: Arc::clone(&self.unflushed) }
    }

    pub(super) fn add_unflushed(&self) {
        self.unflushed.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn has_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::SeqCst) > 0
    }

    /// Whether the export offers all of these transmission flags.
    pub fn offers(&self, flags: u16) -> bool {
        self.client.remote().offers(flags)
    }

    /// Most bytes that a request may move.
    fn payload_bytes(&self) -> u64 {
        u64::from(self.client.remote().info.max_block.max(1))
    }

    /// Whether a durable change is asked for as such; else a FLUSH follows it.
    pub fn fua(&self, durable: bool) -> bool {
        durable && self.offers(SEND_FUA)
    }

    /// A FLUSH where a change is to be durable and FUA could not say so.
    ///
    /// # Errors
    /// The FLUSH failed.
    pub async fn settle(&self, durable: bool) -> Result<(), ClientError> {
        if durable && !self.offers(SEND_FUA) { self.flush().await } else { Ok(()) }
    }

    /// Makes everything durable that was answered before, if the export can.
    ///
    /// # Errors
    /// The FLUSH failed.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let covered = self.unflushed.load(Ordering::SeqCst);
        if self.offers(SEND_FLUSH) {
            self.client.flush().await?;
        }
        self.unflushed.fetch_sub(covered, Ordering::SeqCst);
        Ok(())
    }

    /// Fills the buffers, in requests that the export takes; they are given back.
    pub async fn read(
        &self,
        mut offset: u64,
        mut into: Vec<Buffer>,
    ) -> (Vec<Buffer>, Result<(), ClientError>) {
        let most = self.payload_bytes();
        let lengths: Vec<_> = into.iter_mut().map(|b| (**b).as_mut().len() as u64).collect();
        if lengths.iter().sum::<u64>() <= most {
            return self.client.read(offset, into).await;
        }
        let mut filled = Vec::with_capacity(into.len());
        while !into.is_empty() {
            let (rest, mut bytes) = (&lengths[filled.len()..], 0);
            let fits = |length: &&u64| {
                bytes += **length;
                bytes <= most
            };
            let count = rest.iter().take_while(fits).count();
            let result = if count > 0 {
                let group = into.drain(..count).collect();
                let (group, result) = self.client.read(offset, group).await;
                filled.extend(group);
                offset += rest[..count].iter().sum::<u64>();
                result
            } else {
                let mut buffer = into.remove(0);
                let result = self.read_large(offset, (*buffer).as_mut()).await;
                offset += rest[0];
                filled.push(buffer);
                result
            };
            if let Err(error) = result {
                filled.append(&mut into);
                return (filled, Err(error));
            }
        }
        (filled, Ok(()))
    }

    /// Fills a buffer that is too long for one request.
    async fn read_large(&self, mut offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        for part in into.chunks_mut(self.payload_bytes() as usize) {
            let (mut buffers, result) =
                self.client.read(offset, vec![Box::new(vec![0_u8; part.len()])]).await;
            result?;
            buffers.iter_mut().for_each(|buffer| part.copy_from_slice((**buffer).as_mut()));
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the pieces, in requests that the export takes.
    ///
    /// # Errors
    /// A request failed; those before it have been made.
    pub async fn write(
        &self,
        mut offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<(), ClientError> {
        let (fua, most) = (self.fua(durable), self.payload_bytes());
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut rest: VecDeque<_> = data.into();
        while let Some(mut piece) = rest.pop_front() {
            let room = most - bytes;
            if piece.len() as u64 > room {
                rest.push_front(piece.split_off(room as usize));
            }
            bytes += piece.len() as u64;
            group.push(piece);
            if bytes == most || rest.is_empty() {
                self.client.write(offset, std::mem::take(&mut group), fua).await?;
                offset += bytes;
                bytes = 0;
            }
        }
        Ok(())
    }
}
