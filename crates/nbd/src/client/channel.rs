//! A connection in the form that stores use: requests of any length, split as the export needs, and
//! tracking of answered changes that no FLUSH has covered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::{Buffer, Client, ClientError};
use crate::wire::{SEND_FLUSH, SEND_FUA};

/// A connection, with the record of answered changes on it and its predecessors that no FLUSH has
/// covered.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The connection.
    pub client: Client,
    /// Number of the connection; it increases with each successor.
    pub(super) number: u64,
    changes: Arc<Changes>,
}

/// Counts of answered changes. Both numbers only increase, so that FLUSHes may overlap.
#[derive(Debug, Default)]
struct Changes {
    answered: AtomicU64,
    /// Number of the first changes that a FLUSH has covered.
    flushed: AtomicU64,
}

impl Changes {
    fn add(&self) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of changes that a FLUSH starting now will cover.
    fn to_cover(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    fn cover(&self, changes: u64) {
        self.flushed.fetch_max(changes, Ordering::SeqCst);
    }

    fn any_left(&self) -> bool {
        self.flushed.load(Ordering::SeqCst) < self.answered.load(Ordering::SeqCst)
    }
}

impl Channel {
    /// The first connection to an export. With `earlier` there may be earlier changes that no FLUSH
    /// has covered.
    pub(super) fn new(client: Client, earlier: bool) -> Channel {
        let channel = Channel { client, number: 0, changes: Arc::default() };
        if earlier {
            channel.add_unflushed();
        }
        channel
    }

    /// A further connection to the same export. Changes that no FLUSH has covered on this
    /// connection are covered by the next FLUSH on that one, unless they were lost.
    pub(super) fn over(&self, client: Client, number: u64) -> Channel {
        Channel { client, number, changes: Arc::clone(&self.changes) }
    }

    /// Its number, which increases with each connection that replaces a lost one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether somebody else has it, too: a request is under way.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.changes) > 1
    }

    pub(super) fn add_unflushed(&self) {
        self.changes.add();
    }

    pub(super) fn has_unflushed(&self) -> bool {
        self.changes.any_left()
    }

    /// Whether the export offers all of these transmission flags.
    pub fn offers(&self, flags: u16) -> bool {
        self.client.remote().offers(flags)
    }

    /// Most bytes of data in one request.
    fn payload_bytes(&self) -> u64 {
        u64::from(self.client.remote().info.max_block.max(1))
    }

    /// Whether a durable change is requested with FUA; otherwise a FLUSH must follow it.
    pub fn fua(&self, durable: bool) -> bool {
        durable && self.offers(SEND_FUA)
    }

    /// Makes everything durable that was answered before, if the export supports FLUSH.
    ///
    /// # Errors
    /// The FLUSH failed.
    pub(super) async fn flush(&self) -> Result<(), ClientError> {
        let covered = self.changes.to_cover();
        if self.offers(SEND_FLUSH) {
            self.client.flush().await?;
        }
        self.changes.cover(covered);
        Ok(())
    }

    /// Reads into the buffers, in requests of a size that the export accepts; returns the buffers.
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

    /// Writes the pieces, in requests of a size that the export accepts.
    ///
    /// # Errors
    /// A request failed; earlier ones have been executed.
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

#[cfg(test)]
mod tests {
    use super::Changes;

    /// Two FLUSHes that begin together cover the same changes, not twice as many.
    #[test]
    fn flushes_may_overlap() {
        let changes = Changes::default();
        (0..3).for_each(|_| changes.add());
        let (first, second) = (changes.to_cover(), changes.to_cover());
        changes.cover(first);
        assert!(!changes.any_left());
        (0..3).for_each(|_| changes.add());
        changes.cover(second);
        assert!(changes.any_left());
        changes.cover(changes.to_cover());
        assert!(!changes.any_left());
    }
}
