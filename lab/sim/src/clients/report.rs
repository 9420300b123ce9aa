//! The results of several clients, with the fixed names that scripts rely on.

use crate::tree::Division;
use serde::{Deserialize, Serialize};

use super::{Data, Population};
use crate::{ClientsOutcome, Config};

/// The results of each client, and how servers and data were shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientsReport {
    /// `disjoint` or `shared`.
    pub data: String,
    /// `shared`, `equal` or `benefit`.
    pub partition: String,
    /// Blocks moved between parts of caches, over the whole trace.
    pub moved_blocks: u64,
    /// Reads that one client served to another.
    pub peer_hits: u64,
    /// How a block's server is found if there are several: `volume` or `hash`.
    pub home: String,
    /// Read hit ratio of each server.
    pub servers: Vec<f64>,
    /// One object for each client, in the order of the command line, or of the spaces of the trace.
    pub clients: Vec<ClientReport>,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    /// File, or address space.
    pub name: String,
    /// Policy of its own cache.
    pub policy: String,
    /// Size of its own cache in blocks.
    pub capacity_blocks: u32,
    /// Blocks read.
    pub reads: u64,
    /// Reads that hit in its own cache.
    pub read_hits: u64,
    /// Read hits / reads.
    pub read_hit_ratio: f64,
    /// Blocks written.
    pub writes: u64,
    /// Reads served by a server.
    pub server_hits: u64,
    /// Reads served by another client.
    pub peer_hits: u64,
    /// Reads served by the disk.
    pub disk_reads: u64,
    /// Evicted blocks that another client still held.
    pub evictions_not_last: u64,
    /// Its part of the servers' caches at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_blocks: Option<u64>,
}

impl ClientsReport {
    /// The results of a simulation of `config`.
    pub(crate) fn new(population: &Population, config: &Config, outcome: &ClientsOutcome) -> Self {
        let clients = outcome.clients.iter().zip(population.names()).enumerate();
        let clients = clients.map(|(number, (client, name))| ClientReport {
            name: name.clone(),
            policy: config.client(number).policy.to_string(),
            capacity_blocks: config.client(number).capacity,
            reads: client.own.reads,
            read_hits: client.own.read_hits,
            read_hit_ratio: client.own.read_hit_ratio(),
            writes: client.own.writes,
            server_hits: client.below.server_hits,
            peer_hits: client.below.peer_hits,
            disk_reads: client.below.disk_reads,
            evictions_not_last: client.below.not_last,
            part_blocks: client.part_blocks,
        });
        let data = match population.data() {
            Data::Disjoint => "disjoint",
            Data::Shared => "shared",
        };
        let partition = match config.sharing.unwrap_or_default().division {
            Division::Shared => "shared",
            Division::Equal => "equal",
            Division::Benefit => "benefit",
        };
        Self {
            data: data.into(),
            partition: partition.into(),
            moved_blocks: outcome.moved,
            peer_hits: outcome.peer_hits(),
            home: if outcome.by_volume { "volume" } else { "hash" }.into(),
            servers: outcome.servers.iter().map(|counts| counts.read_hit_ratio()).collect(),
            clients: clients.collect(),
        }
    }
}
