//! Several clients or servers, and a clock, as Python asks for them.

use pyo3::prelude::*;
use undercroft_sim::tree::Division;
use undercroft_sim::{Data, Error, Population, Prepared, ReloadTime, Sharing, Timing, load};
use undercroft_text::Bytes;
use undercroft_trace::BlockOptions;

use crate::trace::Trace;
use crate::watch::Watch;

/// Who the clients are, and what they and the servers share.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Clients {
    more: Option<More>,
    data: Option<String>,
    partition: Option<String>,
    peer_fetch: bool,
    servers: Option<u32>,
}

/// The clients beside the first.
#[derive(FromPyObject)]
enum More {
    /// `spaces`: every address space of the trace is a client.
    Spaces(String),
    /// A trace each.
    Traces(Vec<Py<Trace>>),
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Request(why.into()))
}

impl Clients {
    /// Refuses options that need several clients where there is one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_shared = self.data.is_some() || self.partition.is_some() || self.peer_fetch;
        if is_shared && self.more.is_none() {
            return refuse("data, partition, peer_fetch: there is one client; give clients");
        }
        Ok(())
    }

    /// What clients and servers share, unless there is one of each.
    pub(crate) fn sharing(&self) -> Result<Option<Sharing>, Error> {
        let division = match self.partition.as_deref() {
            None | Some("shared") => Division::Shared,
            Some("equal") => Division::Equal,
            Some("benefit") => Division::Benefit,
            Some(other) => {
                return refuse(format!("partition '{other}': expected shared, equal or benefit"));
            }
        };
        let (servers, peer_fetch) = (self.servers.unwrap_or(1), self.peer_fetch);
        let is_used = self.more.is_some() || self.servers.is_some();
        Ok(is_used.then_some(Sharing { servers, division, peer_fetch }))
    }

    fn data(&self) -> Result<Data, Error> {
        match self.data.as_deref() {
            None | Some("disjoint") => Ok(Data::Disjoint),
            Some("shared") => Ok(Data::Shared),
            Some(other) => refuse(format!("data '{other}': expected disjoint or shared")),
        }
    }

    /// Reads the traces of all clients. Not to be called with the interpreter's lock.
    pub(crate) fn load(&self, first: &Trace, watch: &Watch) -> Result<Prepared, Error> {
        let (data, name) = (self.data()?, first.path().display().to_string());
        let others = match &self.more {
            Some(More::Traces(others)) => others,
            Some(More::Spaces(word)) if word != "spaces" => {
                return refuse(format!("clients '{word}': expected traces, or 'spaces'"));
            }
            by_space => {
                let (stream, block_bytes) = first.stream(watch, BlockOptions::default())?;
                let trace = load(stream, first.path(), |_| ())?;
                let population = match by_space {
                    Some(_) => Population::of_spaces(trace, data)?,
                    None => Population::one(trace, name.clone()),
                };
                return Ok(Prepared::of_clients(population, &name, block_bytes));
            }
        };
        let mut readers = Vec::new();
        for trace in std::iter::once(first).chain(others.iter().map(Py::get)) {
            let (own, wanted) = (trace.input(), first.input());
            if (&own.block, own.unit) != (&wanted.block, wanted.unit) {
                return refuse("clients: open all traces with the same block and unit");
            }
            readers.push((trace.path().display().to_string(), trace.reader(watch)?));
        }
        let (population, block_bytes) = Population::read(readers, first.input(), data, |_| ())?;
        Ok(Prepared::of_clients(population, &name, block_bytes))
    }
}

/// How long things take.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Clock {
    outstanding: Option<u32>,
    think_us: Option<u64>,
    disks: Option<u32>,
    disk_us: Option<u64>,
    link: Option<String>,
    reloads: Option<String>,
}

impl Clock {
    /// The times.
    pub(crate) fn timing(&self) -> Result<Timing, Error> {
        let rate = |text: &String| match text.parse() {
            Ok(Bytes(bytes)) if bytes > 0 => Ok(bytes as f64),
            _ => refuse(format!("link '{text}': expected bytes a second, as 40MiB")),
        };
        Ok(Timing {
            outstanding: self.outstanding.unwrap_or(1),
            think_us: self.think_us.unwrap_or(0),
            disks: self.disks.unwrap_or(1),
            disk_us: self.disk_us.unwrap_or(Timing::DISK_US),
            link_bytes_per_s: self.link.as_ref().map(rate).transpose()?,
            reloads: match self.reloads.as_deref() {
                None | Some("idle") => ReloadTime::Idle,
                Some("demand") => ReloadTime::Demand,
                Some(other) => {
                    return refuse(format!("reloads '{other}': expected idle or demand"));
                }
            },
        })
    }
}
