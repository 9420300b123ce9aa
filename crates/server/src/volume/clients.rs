//! The clients of a volume, if it distinguishes them, and what they told of their caches.
//! Connections with one id are one client with one cache; all connections without an id count as
//! one client, too. The content that a client is believed to hold is recorded under its number;
//! outside only the number is shown.
//!
//! The first connection of an id sets its key. While any of them is connected, further connections
//! must give the same key. No key counts as a key of its own: all connections that give the id
//! without a key share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use serde::Serialize;
use undercroft_hints::{ClientId, ClientStat, Tracking};
use undercroft_level::{Asker, MAX_CLIENTS};

use crate::clock;
use crate::counters::CooperationStats;
use crate::lock::{lock, sleep_lock};

/// Number of used numbers from which on those of clients that have left are made free, and how many
/// of these it takes.
const SCARCE: u32 = 32;
const WORTHWHILE: u32 = 8;

/// The client that makes a request, for volumes whose placement distinguishes clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Number of the client; below [`MAX_CLIENTS`] if it is distinguished from others.
    pub client: u8,
    /// Whether the volume is told what the client evicts.
    pub tells: bool,
}

pub(crate) struct Clients {
    /// Whether clients are distinguished, and their hints used; once they are, they stay so. They
    /// are unless placement has always been access-based and the policy is not content-aware.
    are_distinguished: AtomicBool,
    /// The origin of times in microseconds.
    began: Instant,
    table: Mutex<Table>,
    /// One bit for each number in use.
    connected: AtomicU64,
    /// What they told.
    pub(crate) counts: Mutex<CooperationStats>,
    /// Bytes of filters of which they have not sent all parts.
    pub(crate) assembling: AtomicUsize,
}

#[derive(Default)]
struct Table {
    members: HashMap<Option<u128>, Weak<Member>>,
    /// Numbers that were used: the content of their clients may still be recorded.
    used: u64,
    /// Those of them that are being forgotten, since their clients have left.
    forgetting: u64,
}

/// A client with at least one connection.
pub(crate) struct Member {
    clients: Arc<Clients>,
    key: Option<u128>,
    has_id: bool,
    number: u8,
    /// Number of connections that tell what the client evicts.
    tellers: AtomicUsize,
    /// The counters it last reported.
    stat: Mutex<Option<ClientStat>>,
}

/// The error of a connection that gives a connected client's id with another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a client of this id is connected, with another key: give all connections of one client the \
     same id and key, and each client an id of its own"
)]
pub(crate) struct WrongKey;

/// What is known about a client's cache.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientCache {
    /// The client's number, or a name for all connections without an id.
    client: String,
    /// Whether the client tells what it evicts.
    tells_evictions: bool,
    /// The fields below are set only if the client has reported them.
    reads: Option<u64>,
    read_hits: Option<u64>,
    writes: Option<u64>,
    write_hits: Option<u64>,
    evictions: Option<u64>,
    capacity_blocks: Option<u64>,
    read_us_total: Option<u64>,
    /// Set only if the client has reported it.
    policy: Option<String>,
    /// Set only if the client's cache is observed from outside.
    tracking: Option<Tracked>,
}

/// How well the cache of a client that is observed from outside is known.
#[derive(Clone, Debug, Serialize)]
struct Tracked {
    late_evictions: u64,
    untold_evictions: u64,
    /// Shares, if the tracker was ever compared with the real cache.
    precision: Option<f64>,
    recall: Option<f64>,
}

impl From<Tracking> for Tracked {
    fn from(told: Tracking) -> Self {
        let share = |ppm: u64| ppm.min(1_000_000) as f64 / 1e6;
        let scored = told.precision_ppm > 0 || told.recall_ppm > 0;
        Tracked {
            late_evictions: told.late_evictions,
            untold_evictions: told.untold_evictions,
            precision: scored.then(|| share(told.precision_ppm)),
            recall: scored.then(|| share(told.recall_ppm)),
        }
    }
}

impl Clients {
    pub(crate) fn new(are_distinguished: bool) -> Arc<Self> {
        let (table, connected, counts, assembling) = Default::default();
        let (are_distinguished, began) = (are_distinguished.into(), clock::now());
        Arc::new(Self { are_distinguished, began, table, connected, counts, assembling })
    }

    pub(crate) fn are_distinguished(&self) -> bool {
        self.are_distinguished.load(Ordering::Acquire)
    }

    /// Clients are distinguished from now on.
    pub(crate) fn distinguish(&self) {
        self.are_distinguished.store(true, Ordering::Release);
    }

    /// Microseconds since the volume was opened.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_micros() as u64
    }

    /// Who asks now, for the shards.
    pub(crate) fn asker(&self, Caller { client, tells }: Caller, now: Instant) -> Asker {
        if !self.are_distinguished.load(Ordering::Acquire) {
            return Asker { client, tells, ..Asker::default() };
        }
        Asker { client, tells, now_us: self.micros(now), connected: self.connected() }
    }

    /// Counts what clients told.
    pub(crate) fn count(&self, told: &CooperationStats) {
        lock(&self.counts).sum(told);
    }

    /// Adds a connection of a client. A client gets a number that was never used, or whose last
    /// client is forgotten; if there is none, it is not distinguished from others.
    ///
    /// # Errors
    /// The client is connected with another key.
    pub(crate) fn join(self: &Arc<Self>, id: Option<ClientId>) -> Result<Arc<Member>, WrongKey> {
        let mut table = sleep_lock(&self.table);
        let (name, key) = (id.map(|id| id.number), id.and_then(|id| id.key));
        if let Some(member) = table.members.get(&name).and_then(Weak::upgrade) {
            return if member.key == key { Ok(member) } else { Err(WrongKey) };
        }
        let number = (!table.used).trailing_zeros() as u8;
        if number < MAX_CLIENTS {
            table.used |= 1 << number;
            self.connected.fetch_or(1 << number, Ordering::SeqCst);
        }
        let member = Arc::new(Member {
            clients: Arc::clone(self),
            key,
            has_id: id.is_some(),
            number,
            tellers: AtomicUsize::new(0),
            stat: Mutex::new(None),
        });
        table.members.retain(|_, member| member.strong_count() > 0);
        table.members.insert(name, Arc::downgrade(&member));
        Ok(member)
    }

    /// If numbers become scarce: the clients that have left and are now to be forgotten, one bit
    /// for each; 0 if there are too few, or others are being forgotten. Call
    /// [`forgotten`](Self::forgotten) when that is done.
    pub(crate) fn begin_to_forget(&self) -> u64 {
        let mut table = sleep_lock(&self.table);
        let gone = table.used & !self.connected.load(Ordering::SeqCst);
        let is_scarce = table.used.count_ones() >= SCARCE && gone.count_ones() >= WORTHWHILE;
        let is_full = table.used == u64::MAX;
        if table.forgetting != 0 || !(is_scarce || is_full) {
            return 0;
        }
        table.forgetting = gone;
        gone
    }

    /// Nothing is recorded of these clients any more: their numbers can be given to others.
    pub(crate) fn forgotten(&self, gone: u64) {
        let mut table = sleep_lock(&self.table);
        table.used &= !gone;
        table.forgetting &= !gone;
    }

    /// One bit for each connected client.
    pub(crate) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// What the connected clients last reported about themselves, if they are distinguished.
    pub(crate) fn told(&self) -> Option<Vec<ClientCache>> {
        if !self.are_distinguished() {
            return None;
        }
        let members = sleep_lock(&self.table);
        let members = members.members.values().filter_map(Weak::upgrade);
        let mut told: Vec<_> = members.map(|member| member.told()).collect();
        told.sort_by(|a, b| a.client.cmp(&b.client));
        Some(told)
    }
}

impl Member {
    pub(crate) fn caller(&self) -> Caller {
        Caller { client: self.number, tells: self.tellers.load(Ordering::Relaxed) > 0 }
    }

    fn told(&self) -> ClientCache {
        let stat = *sleep_lock(&self.stat);
        ClientCache {
            client: match self.number {
                _ if !self.has_id => "without id".to_owned(),
                MAX_CLIENTS => "not told apart".to_owned(),
                number => number.to_string(),
            },
            tells_evictions: self.caller().tells,
            reads: stat.map(|stat| stat.reads),
            read_hits: stat.map(|stat| stat.read_hits),
            writes: stat.map(|stat| stat.writes),
            write_hits: stat.map(|stat| stat.write_hits),
            evictions: stat.map(|stat| stat.evictions),
            capacity_blocks: stat.map(|stat| stat.capacity_blocks),
            read_us_total: stat.map(|stat| stat.read_us_total),
            policy: stat
                .map(|stat| stat.policy.as_str().to_owned())
                .filter(|name| !name.is_empty()),
            tracking: stat.and_then(|stat| stat.tracking).map(Tracked::from),
        }
    }

    pub(crate) fn set_stat(&self, stat: ClientStat) {
        *sleep_lock(&self.stat) = Some(stat);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.number < MAX_CLIENTS {
            self.clients.connected.fetch_and(!(1 << self.number), Ordering::SeqCst);
        }
    }
}

/// While this exists, its client tells what it evicts.
pub(crate) struct Teller(pub(crate) Arc<Member>);

impl Teller {
    pub(crate) fn new(member: Arc<Member>) -> Self {
        member.tellers.fetch_add(1, Ordering::SeqCst);
        Self(member)
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.tellers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128, key: impl Into<Option<u128>>) -> Option<ClientId> {
        Some(ClientId { number, key: key.into() })
    }

    #[test]
    fn the_first_connection_of_an_id_binds_its_key() {
        let clients = Clients::new(true);
        let join = |id| clients.join(id);
        let first = join(id(7, 70)).unwrap();
        assert_eq!(join(id(7, 70)).unwrap().number, first.number);
        assert_eq!(join(id(7, 71)).err(), Some(WrongKey));
        assert_eq!(join(id(7, None)).err(), Some(WrongKey), "an older client");
        assert_ne!(join(id(8, 71)).unwrap().number, first.number);
        // When the last connection ends, the id is free.
        drop(first);
        let other = join(id(7, None)).unwrap();
        assert_eq!(join(id(7, None)).unwrap().number, other.number, "older clients share an id");
        assert_eq!(join(id(7, 70)).err(), Some(WrongKey));
        let nameless = join(None).unwrap();
        assert_eq!(join(None).unwrap().number, nameless.number);
    }

    #[test]
    fn numbers_of_clients_that_left_are_given_out_when_these_are_forgotten() {
        let clients = Clients::new(true);
        let stays = clients.join(id(1000, None)).unwrap();
        for number in 0..SCARCE - 1 {
            assert_eq!(clients.begin_to_forget(), 0);
            drop(clients.join(id(number.into(), None)).unwrap());
        }
        let gone = clients.begin_to_forget();
        assert_eq!((gone.count_ones(), gone & 1 << stays.number), (SCARCE - 1, 0));
        assert_eq!(clients.begin_to_forget(), 0, "one after the other");
        // Meanwhile the others are given out, and then none.
        let others: Vec<_> = (100..132).map(|number| clients.join(id(number, None))).collect();
        let numbers = others.iter().map(|member| member.as_ref().unwrap().number);
        assert!(numbers.eq(SCARCE as u8..MAX_CLIENTS));
        let late = clients.join(id(200, None)).unwrap();
        assert_eq!(late.number, MAX_CLIENTS);
        clients.forgotten(gone);
        assert_eq!(clients.join(id(300, None)).unwrap().number, 1);
    }

    #[test]
    fn ids_and_keys_are_not_shown() {
        let clients = Clients::new(true);
        let _first = clients.join(id(0xabc_def0, 0xfed_cba0)).unwrap();
        let _nameless = clients.join(None).unwrap();
        let shown = serde_json::to_string(&clients.told()).unwrap();
        assert!(shown.contains("\"client\":\"0\"") && shown.contains("without id"), "{shown}");
        assert!(!shown.contains("abcdef0") && !shown.contains("fedcba0"), "{shown}");
    }
}
