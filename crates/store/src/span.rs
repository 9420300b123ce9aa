//! One store made of several: concatenated or striped. A request is split at the borders of parts,
//! and the pieces for each part are joined to one request.
//!
//! One function describes both layouts, [`Layout::before`]: the number of bytes of a part that lie
//! before an address. Since the bytes of a part keep their order, any range of the whole
//! corresponds to one range of each part.

mod spec;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::medium::{
    MAX_BYTES, Medium, append, buffers_bytes, cut, pieces_bytes, ready, scatter, wrap,
};
use crate::open::invalid;
use crate::store::{
    Absence, Answer, Backlog, Buffer, Extent, Facts, MAX_EXTENTS, OnLoss, Store, Zeroing,
};

pub(crate) use spec::KINDS;

/// Most parts.
const MAX_PARTS: usize = 1024;

/// A store that consists of several others.
pub struct SpanStore {
    inner: Arc<Inner>,
}

struct Inner {
    medium: Medium,
    parts: Vec<Arc<dyn Store>>,
    layout: Layout,
}

/// The arrangement of the parts.
enum Layout {
    /// The first byte of each part.
    Concat(Vec<u64>),
    /// Bytes of a stripe, and the number of parts.
    Stripe(u64, u64),
}

/// A range of one part.
struct Share {
    part: usize,
    offset: u64,
    length: u64,
}

impl SpanStore {
    /// Concatenates the parts. If the last one grows, so does the whole.
    ///
    /// # Errors
    /// There are no parts or too many, or their sizes do not fit together (see the error's text).
    pub fn concat(parts: Vec<Arc<dyn Store>>) -> io::Result<SpanStore> {
        let mut starts = vec![0];
        for part in &parts {
            let start = starts[starts.len() - 1];
            starts.push(sum(start, part.facts().size)?);
        }
        starts.pop();
        SpanStore::new(parts, Layout::Concat(starts))
    }

    /// Distributes stripes of `stripe_bytes` over the parts in turn. Of every part as many whole
    /// stripes are used as the smallest part has; the whole grows when all parts have grown.
    ///
    /// # Errors
    /// There are no parts or too many, or the stripe is 0 or not aligned for every part.
    pub fn stripe(parts: Vec<Arc<dyn Store>>, stripe_bytes: u64) -> io::Result<SpanStore> {
        if stripe_bytes == 0 {
            return Err(invalid("a stripe needs at least 1 byte"));
        }
        let count = parts.len() as u64;
        SpanStore::new(parts, Layout::Stripe(stripe_bytes, count))
    }

    fn new(parts: Vec<Arc<dyn Store>>, layout: Layout) -> io::Result<SpanStore> {
        if !(1..=MAX_PARTS).contains(&parts.len()) {
            return Err(invalid(&format!("1 to {MAX_PARTS} parts, not {}", parts.len())));
        }
        let facts: Vec<Facts> = parts.iter().map(|part| part.facts()).collect();
        let alignment = facts.iter().map(|facts| facts.alignment).max().unwrap_or(1);
        let sizes: Vec<u64> = facts.iter().map(|facts| facts.size).collect();
        let names: Vec<&str> = facts.iter().map(|facts| &*facts.name).collect();
        let name = match &layout {
            Layout::Concat(_) => format!("concat({})", names.join(";")),
            Layout::Stripe(bytes, _) => format!("stripe({bytes};{})", names.join(";")),
        };
        let size = layout.size(&sizes)?;
        layout.check(&sizes, u64::from(alignment)).map_err(|error| wrap(name.clone(), error))?;
        let medium = Medium::new(Facts {
            size,
            alignment,
            read_only: facts.iter().any(|facts| facts.read_only),
            zeroes_fast: facts.iter().all(|facts| facts.zeroes_fast),
            name,
        });
        Ok(SpanStore { inner: Arc::new(Inner { medium, parts, layout }) })
    }

    /// Checks a change, sends it to each part that the range touches, and combines the answers.
    fn change(
        &self,
        doing: &'static str,
        (offset, length): (u64, u64),
        mut send: impl FnMut(&dyn Store, u64, u64) -> Answer<io::Result<()>>,
    ) -> Answer<io::Result<()>> {
        if let Err(error) = self.inner.medium.check_change(doing, offset, length) {
            return ready(Err(error));
        }
        let sent: Vec<_> = self
            .inner
            .shares(offset, length)
            .into_iter()
            .map(|share| {
                let part = &*self.inner.parts[share.part];
                (share.part, send(part, share.offset, share.length))
            })
            .collect();
        join(sent)
    }
}

impl Layout {
    /// Number of bytes of a part that lie before an address of the whole.
    fn before(&self, part: usize, at: u64) -> u64 {
        match self {
            Layout::Concat(starts) => {
                let end = starts.get(part + 1).copied().unwrap_or(u64::MAX);
                at.min(end).saturating_sub(starts[part])
            }
            Layout::Stripe(bytes, count) => {
                let row = bytes * count;
                at / row * bytes + (at % row).saturating_sub(part as u64 * bytes).min(*bytes)
            }
        }
    }

    /// The part that contains an address, and the number of contiguous bytes there.
    fn place(&self, at: u64) -> (usize, u64) {
        match self {
            Layout::Concat(starts) => {
                // An empty part has the same start as the next one, which is the one that counts.
                let part = starts.partition_point(|start| *start <= at) - 1;
                let end = starts.get(part + 1).copied().unwrap_or(u64::MAX);
                (part, end - at)
            }
            Layout::Stripe(bytes, count) => ((at / bytes % count) as usize, bytes - at % bytes),
        }
    }

    fn size(&self, sizes: &[u64]) -> io::Result<u64> {
        match self {
            Layout::Concat(starts) => sum(starts[starts.len() - 1], sizes[sizes.len() - 1]),
            Layout::Stripe(bytes, count) => {
                let rows = sizes.iter().min().map_or(0, |size| size / bytes);
                let row = bytes.checked_mul(*count).filter(|row| *row <= MAX_BYTES);
                let size = row.and_then(|row| row.checked_mul(rows));
                size.filter(|size| *size <= MAX_BYTES).ok_or_else(too_large)
            }
        }
    }

    /// Checks that the borders between parts are aligned for both sides, so that requests can cross
    /// them.
    fn check(&self, sizes: &[u64], alignment: u64) -> io::Result<()> {
        match self {
            Layout::Concat(_) => match sizes.iter().position(|size| size % alignment != 0) {
                Some(part) => Err(invalid(&format!(
                    "the size of part {} is {}, but must be a multiple of {alignment}, as the \
                     alignment of another part is",
                    part + 1,
                    sizes[part]
                ))),
                None => Ok(()),
            },
            Layout::Stripe(bytes, _) if bytes % alignment != 0 => {
                Err(invalid(&format!("the stripe must be a multiple of {alignment}, not {bytes}")))
            }
            Layout::Stripe(..) => Ok(()),
        }
    }
}

impl Inner {
    fn shares(&self, offset: u64, length: u64) -> Vec<Share> {
        let share = |part| {
            let start = self.layout.before(part, offset);
            let end = self.layout.before(part, offset + length);
            Share { part, offset: start, length: end - start }
        };
        (0..self.parts.len()).map(share).filter(|share| share.length > 0).collect()
    }

    async fn extents(&self, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
        let end = offset + length;
        let mut out = Vec::new();
        let mut at = offset;
        // No more requests to the parts than extents.
        for _ in 0..MAX_EXTENTS {
            if at >= end || out.len() >= MAX_EXTENTS {
                break;
            }
            let (part, run) = self.layout.place(at);
            let asked = run.min(end - at);
            let told = self.parts[part].extents(self.layout.before(part, at), asked).await;
            for extent in told.map_err(|error| of_part(part, error))? {
                at += extent.length;
                append(&mut out, extent);
            }
        }
        Ok(out)
    }

    async fn reload(&self) -> io::Result<u64> {
        let sizes = join_all(self.parts.iter().map(|part| part.reload())).await;
        let mut known = Vec::with_capacity(sizes.len());
        for (part, size) in sizes.into_iter().enumerate() {
            known.push(size.map_err(|error| of_part(part, error))?);
        }
        // Only the last part may grow; bytes beyond the other parts' original sizes are
        // unreachable.
        Ok(self.medium.grow(self.layout.size(&known)?))
    }
}

impl Store for SpanStore {
    fn facts(&self) -> Facts {
        self.inner.medium.facts()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let length = buffers_bytes(&mut into);
        if let Err(error) = self.inner.medium.check("read", offset, length) {
            return ready((into, Err(error)));
        }
        let deal = Deal::new(&self.inner.layout, self.inner.parts.len(), offset, into);
        let sent: Vec<_> = self
            .inner
            .shares(offset, length)
            .into_iter()
            .zip(deal.hands)
            .map(|(share, hand)| {
                assert_eq!(share.part, hand.part);
                let answer = self.inner.parts[share.part].read(share.offset, hand.buffers);
                async move { (hand.part, hand.homes, answer.await) }
            })
            .collect();
        let mut kept = deal.kept;
        Box::pin(async move {
            let mut result = Ok(());
            for (part, homes, (buffers, read)) in join_all(sent).await {
                result = result.and(read.map_err(|error| of_part(part, error)));
                bring_home(&mut kept, &homes, buffers);
            }
            (kept.into_iter().flatten().collect(), result)
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        let length = pieces_bytes(&data);
        if let Err(error) = self.inner.medium.check_change("write", offset, length) {
            return ready(Err(error));
        }
        let layout = &self.inner.layout;
        let mut pieces: Vec<Vec<Bytes>> = vec![Vec::new(); self.inner.parts.len()];
        let mut done = 0;
        while done < length {
            let (part, run) = layout.place(offset + done);
            let run = run.min(length - done);
            pieces[part].extend(cut(&data, done, run));
            done += run;
        }
        let mut pieces = pieces.into_iter().filter(|pieces| !pieces.is_empty());
        self.change("write", (offset, length), |part, at, _| {
            part.write(at, pieces.next().unwrap_or_default(), durable)
        })
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        self.change("zero", (offset, length), |part, at, bytes| part.zero(at, bytes, how, durable))
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        self.change("trim", (offset, length), |part, at, bytes| part.trim(at, bytes, durable))
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        join(self.inner.parts.iter().map(|part| part.flush()).enumerate().collect())
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        if let Err(error) = self.inner.medium.check("extents", offset, length) {
            return ready(Err(error));
        }
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.extents(offset, length).await })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.reload().await })
    }

    fn astray(&self) -> Answer<Option<String>> {
        let asked = join_all(self.inner.parts.iter().map(|part| part.astray()));
        Box::pin(async move { asked.await.into_iter().flatten().next() })
    }

    fn mark(&self) -> Answer<io::Result<Option<String>>> {
        let asked = join_all(self.inner.parts.iter().map(|part| part.mark()));
        Box::pin(async move {
            let mut marks = asked.await.into_iter().collect::<io::Result<Vec<_>>>()?;
            let is_one = marks.windows(2).all(|two| two[0] == two[1]);
            let each = || marks.iter().flatten().map(String::as_str).collect::<Vec<_>>();
            Ok(if is_one {
                marks.remove(0)
            } else {
                Some(format!("parts have: {}", each().join("; ")))
            })
        })
    }

    fn set_mark(&self, mark: Option<String>) -> Answer<io::Result<()>> {
        let parts = self.inner.parts.iter().map(|part| part.set_mark(mark.clone()));
        join(parts.enumerate().collect())
    }

    fn backlog(&self) -> Option<Backlog> {
        let all = self.inner.parts.iter().filter_map(|part| part.backlog());
        all.reduce(|one, more| Backlog {
            bytes: one.bytes + more.bytes,
            capacity: one.capacity + more.capacity,
            age: one.age.max(more.age),
        })
    }

    fn losses(&self) -> Option<u64> {
        let known = self.inner.parts.iter().filter_map(|part| part.losses());
        known.reduce(|sum, more| sum + more)
    }

    fn stopped(&self) -> Option<String> {
        self.inner.parts.iter().find_map(|part| part.stopped())
    }

    fn on_loss(&self, call: OnLoss) {
        self.inner.parts.iter().for_each(|part| part.on_loss(Arc::clone(&call)));
    }

    fn absence(&self) -> Option<Absence> {
        self.inner.parts.iter().find_map(|part| part.absence())
    }

    fn close(&self) -> Answer<io::Result<()>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let closed = join_all(inner.parts.iter().map(|part| part.close())).await;
            let mut closed = closed.into_iter().enumerate();
            closed.try_for_each(|(part, one)| one.map_err(|error| of_part(part, error)))
        })
    }
}

/// Distributes the buffers of one read to the parts.
struct Deal {
    /// One entry for each part that gets buffers.
    hands: Vec<Hand>,
    /// All buffers of the request, in order; `None` while a part has the buffer.
    kept: Vec<Option<Buffer>>,
}

#[derive(Default)]
struct Hand {
    part: usize,
    buffers: Vec<Buffer>,
    homes: Vec<Home>,
}

/// Where the content of a buffer belongs after a part has filled it.
enum Home {
    /// It is the request's own buffer with this index.
    Place(usize),
    /// It is a copy for a piece of the request's buffer with this index, from this byte on; a
    /// border cuts that buffer.
    Copy(usize, usize),
}

impl Deal {
    fn new(layout: &Layout, parts: usize, offset: u64, buffers: Vec<Buffer>) -> Deal {
        let mut hands: Vec<Hand> =
            (0..parts).map(|part| Hand { part, ..Hand::default() }).collect();
        let mut kept = Vec::with_capacity(buffers.len());
        let mut at = offset;
        for (number, mut buffer) in buffers.into_iter().enumerate() {
            let length = (*buffer).as_mut().len();
            let (part, run) = layout.place(at);
            if length > 0 && length as u64 <= run {
                hands[part].buffers.push(buffer);
                hands[part].homes.push(Home::Place(number));
                kept.push(None);
                at += length as u64;
                continue;
            }
            let mut done = 0;
            while done < length {
                let (part, run) = layout.place(at);
                // At most the buffer's own length.
                let count = run.min((length - done) as u64) as usize;
                hands[part].buffers.push(Box::new(vec![0; count]));
                hands[part].homes.push(Home::Copy(number, done));
                done += count;
                at += count as u64;
            }
            kept.push(Some(buffer));
        }
        hands.retain(|hand| !hand.buffers.is_empty());
        Deal { hands, kept }
    }
}

fn bring_home(kept: &mut [Option<Buffer>], homes: &[Home], buffers: Vec<Buffer>) {
    for (home, mut buffer) in homes.iter().zip(buffers) {
        match home {
            Home::Place(number) => kept[*number] = Some(buffer),
            Home::Copy(number, skip) => {
                if let Some(whole) = &mut kept[*number] {
                    scatter(std::slice::from_mut(whole), *skip, (*buffer).as_mut());
                }
            }
        }
    }
}

/// Waits for all answers. The first error is returned, with the number of its part.
fn join(sent: Vec<(usize, Answer<io::Result<()>>)>) -> Answer<io::Result<()>> {
    Box::pin(async move {
        let parts = sent.into_iter().map(|(part, answer)| async move {
            answer.await.map_err(|error| of_part(part, error))
        });
        join_all(parts).await.into_iter().collect()
    })
}

fn of_part(part: usize, error: io::Error) -> io::Error {
    wrap(format!("part {}", part + 1), error)
}

fn sum(start: u64, size: u64) -> io::Result<u64> {
    start.checked_add(size).filter(|end| *end <= MAX_BYTES).ok_or_else(too_large)
}

fn too_large() -> io::Error {
    invalid(&format!("the parts together have more than {MAX_BYTES} bytes"))
}
