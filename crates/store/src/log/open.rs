//! Opens a store with its log: finds out whose log it is, and what it has that the store does not.
//!
//! Not here: how the files are opened (`spec.rs`).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::format::{Found, Head, Point, Writer};
use super::overlay::Overlay;
use super::ring::{Batch, Ring, ring_bytes};
use super::{LOG_MIN_BYTES, LogOptions, LogStore, Mode, Shared, State, destage, writer};
use crate::medium::{Medium, wrap};
use crate::open::invalid;
use crate::store::{Backlog, Facts, Store};

impl LogStore {
    /// Opens a store with its log on this medium, or begins one there.
    ///
    /// # Errors
    /// The log is another store's, or the store has another log; or a medium fails.
    pub async fn open(
        inner: Arc<dyn Store>,
        medium: Arc<dyn Store>,
        options: LogOptions,
    ) -> io::Result<LogStore> {
        let name = format!("log {}", options.name);
        Self::opened(inner, medium, options).await.map_err(|error| wrap(name, error))
    }

    async fn opened(
        inner: Arc<dyn Store>,
        medium: Arc<dyn Store>,
        options: LogOptions,
    ) -> io::Result<LogStore> {
        let facts = inner.facts();
        let (ring_bytes, there_are) = (ring_bytes(options.bytes), medium.facts().size);
        if there_are < options.bytes {
            return Err(invalid(&format!(
                "it has only {there_are} bytes: give it that size, or remove it when it is empty"
            )));
        }
        let mark = if options.unmarked { None } else { inner.mark().await? };
        let head = match Ring::found(&*medium).await? {
            Found::Log(head) if head.store_bytes > facts.size => {
                return Err(invalid("it is the log of a larger store"));
            }
            Found::Log(head) => head,
            Found::Damaged => return Err(invalid("it is a log, and its heads are damaged")),
            Found::SomethingElse => return Err(invalid("it holds something else")),
            Found::Nothing => Head {
                number: 0,
                ring_bytes,
                store_bytes: facts.size,
                tail: Point { position: 0, sequence: 0, before: options.life },
                writer: Writer { id: options.life, life: options.life, since: 0 },
            },
        };
        let ring = Ring { medium, bytes: head.ring_bytes };
        // Of a new one there are none.
        let batches = ring.recover(&head, &facts).await?;
        let named = |head: &Head| format!("{:016x} {}", head.writer.id, options.name);
        check_mark(mark.as_deref(), &named(&head), batches.is_empty() || options.unmarked)?;
        if ring.bytes != ring_bytes && !batches.is_empty() {
            return Err(invalid(&format!(
                "its size was {} bytes: give it that again until it is empty",
                ring.bytes + options.bytes - ring_bytes
            )));
        }
        let end = batches.last().map_or(head.tail, |last| last.end);
        let mut head = Head { ring_bytes, store_bytes: facts.size, ..head };
        if !facts.read_only {
            head.number += 1;
            (head.writer.life, head.writer.since) = (options.life, end.sequence);
            if batches.is_empty() && mark.is_none() {
                // Or two stores that had the same empty log could be taken for one another.
                head.writer.id = options.life;
            }
            // A flush covers what the store has already, too, and asks the log alone.
            inner.flush().await?;
            // What was found may not be durable after `kill -9`, and the head relies on it.
            ring.medium.flush().await?;
            Ring::write_head(&*ring.medium, &head).await?;
            if !options.unmarked {
                let marked = inner.set_mark(Some(named(&head))).await;
                if marked.is_err() && mark.is_none() {
                    // Some of several files may have it.
                    let _ = inner.set_mark(None).await;
                }
                marked.map_err(|error| match error.kind() {
                    ErrorKind::Unsupported | ErrorKind::PermissionDenied => io::Error::new(
                        ErrorKind::Unsupported,
                        "its store cannot have a mark that keeps it from being served without \
                         the log: see to that yourself, and say `unmarked`",
                    ),
                    _ => error,
                })?;
            }
        }
        let mut overlay = Overlay::default();
        batches.iter().flat_map(Batch::runs).for_each(|run| overlay.insert(run));
        let shared = Arc::new(Shared {
            medium: Medium::new(Facts { name: format!("log:{}", facts.name), ..facts }),
            inner,
            ring: Ring { bytes: ring_bytes, ..ring },
            writer: head.writer,
            options,
            state: Mutex::new(State {
                overlay,
                entries: batches.iter().map(|batch| batch.entries.len()).sum(),
                batches: batches.into(),
                tail: head.tail,
                end,
                head: head.number,
                queue: VecDeque::new(),
                is_appending: false,
                late: None,
                // The head was written after them.
                durable: end.sequence,
                mode: Mode::Taken,
                is_given_up: false,
                is_over: false,
            }),
            queued: Notify::new(),
            work: Notify::new(),
            moved: Notify::new(),
        });
        let mut tasks = Vec::new();
        if !shared.medium.facts().read_only {
            tasks.push(tokio::spawn(writer::append(Arc::clone(&shared))));
            tasks.push(tokio::spawn(destage::move_on(Arc::clone(&shared))));
        }
        Ok(LogStore { shared, tasks: Arc::new(Mutex::new(tasks)) })
    }

    /// What waits in the log on a medium that nobody has open. `None`: there is no log.
    ///
    /// # Errors
    /// The medium cannot be read.
    pub async fn look(medium: Arc<dyn Store>) -> io::Result<Option<Backlog>> {
        if medium.facts().size < LOG_MIN_BYTES {
            return Ok(None);
        }
        let Found::Log(head) = Ring::found(&*medium).await? else { return Ok(None) };
        let ring = Ring { medium, bytes: head.ring_bytes };
        let any = Facts { size: u64::MAX, alignment: 1, ..ring.medium.facts() };
        let batches = ring.recover(&head, &any).await?;
        let end = batches.last().map_or(head.tail, |last| last.end);
        let bytes = end.position - head.tail.position;
        Ok(Some(Backlog { bytes, capacity: head.ring_bytes, age: None }))
    }
}

/// Refuses a store that has another log, and a log with changes for another store.
fn check_mark(mark: Option<&str>, own: &str, is_empty: bool) -> io::Result<()> {
    let id = |mark: &str| mark.split(' ').next().map(str::to_owned);
    match mark {
        Some(mark) if id(mark) == id(own) => Ok(()),
        Some(mark) => Err(invalid(&format!("the store has another log: {mark}"))),
        None if is_empty => Ok(()),
        None => Err(invalid(
            "it has changes for a store, and this one waits for none: it is another store, or \
             its log was given up, and needs another log; or it was copied without its mark, and \
             `unmarked` opens it until the log is empty",
        )),
    }
}
