//! The clients of a simulation and their references: from several traces, or from the address
//! spaces of one trace.
//!
//! The trace is kept as read, with a number for each (client, space, block). One byte per number
//! names its client. If clients share data, another number names the block.

use crate::tree::{MAX_HOLDERS, rendezvous};
use undercroft_trace::{BlockOptions, Chunks, DenseTrace, Reader, Ref, Renumbering, merge};

use crate::{Error, TraceInput};

/// Whether equal block numbers of different clients are the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// They are different blocks.
    Disjoint,
    /// They are the same block, if their volumes have equal names (where traces have several
    /// volumes).
    Shared,
}

/// One reference of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientRef {
    pub(crate) client: usize,
    pub(crate) block: u32,
    pub(crate) is_write: bool,
}

/// A trace and its clients.
pub struct Population {
    trace: DenseTrace,
    data: Data,
    names: Vec<String>,
    client_of: Vec<u8>,
    /// The block of each number of the trace; `None` if every number is a block of its own.
    block_of: Option<Vec<u32>>,
    unique: u32,
    /// The volume of each address space of the trace, numbered from 0.
    volumes: Vec<u32>,
}

impl Population {
    /// One client that references everything.
    pub fn one(trace: DenseTrace, name: String) -> Self {
        let client_of = vec![0; trace.unique() as usize];
        let volumes = (0..trace.spaces().len() as u32).collect();
        let unique = trace.unique();
        let names = vec![name];
        Self { trace, data: Data::Disjoint, names, client_of, block_of: None, unique, volumes }
    }

    /// One client for each trace, with its name, all read in one way. The first trace that states a
    /// block size decides it, if `input` does not; it is returned in bytes. `progress` is called
    /// with the records read so far.
    ///
    /// # Errors
    /// Those of [`merge`] and [`TraceInput::stream`]; there are too many clients, or a client has
    /// no request.
    pub fn read(
        traces: Vec<(String, Box<dyn Reader>)>,
        input: &TraceInput,
        data: Data,
        progress: impl FnMut(u64),
    ) -> Result<(Self, u32), Error> {
        let (names, readers): (Vec<String>, Vec<_>) = traces.into_iter().unzip();
        check_number(names.len())?;
        let count = names.len();
        let (stream, block_bytes) = input.stream(merge(readers)?, BlockOptions::default())?;
        let trace = DenseTrace::load(stream, progress)?;
        // Traces with a single volume each have that volume in common.
        let mut volumes = vec![0; count];
        used(&trace).for_each(|space| volumes[space % count] += 1);
        let has_several = volumes.iter().any(|&number: &u32| number > 1);
        let volume = |space: usize| match data {
            Data::Disjoint => space.to_string(),
            Data::Shared if has_several => trace.spaces()[space].clone(),
            Data::Shared => String::new(),
        };
        let volumes = number_volumes(&trace, volume);
        Ok((Self::new(trace, data, names, |space| space % count, volumes)?, block_bytes))
    }

    /// One client for each address space (device, unit, file) of a trace.
    ///
    /// # Errors
    /// There are too many address spaces, or only one.
    pub fn of_spaces(trace: DenseTrace, data: Data) -> Result<Self, Error> {
        let names = trace.spaces().to_vec();
        check_number(names.len())?;
        if names.len() == 1 {
            let format = trace.meta().format;
            return Err(Error::Request(format!(
                "clients by address space: this {format} trace has one space only; give the \
                 traces of the other clients, or leave the option out"
            )));
        }
        let volume = |space: usize| match data {
            Data::Disjoint => space.to_string(),
            Data::Shared => String::new(),
        };
        let volumes = number_volumes(&trace, volume);
        Self::new(trace, data, names, |space| space, volumes)
    }

    fn new(
        trace: DenseTrace,
        data: Data,
        names: Vec<String>,
        client: impl Fn(usize) -> usize,
        volumes: Vec<u32>,
    ) -> Result<Self, Error> {
        let mut client_of = Vec::with_capacity(trace.unique() as usize);
        let mut numbering = Renumbering::new();
        let mut block_of = Vec::new();
        for number in 0..trace.unique() {
            let (space, block) = trace.names().block(number).unwrap_or_default();
            client_of.push(client(space as usize) as u8);
            if data == Data::Shared {
                block_of.push(numbering.number(volumes[space as usize], block)?);
            }
        }
        if let Some(idle) = (0..names.len()).find(|&c| !client_of.contains(&(c as u8))) {
            let what = format!("client {}: its trace holds no requests", names[idle]);
            return Err(undercroft_trace::Error::Format(what).into());
        }
        let is_shared = data == Data::Shared;
        let unique = if is_shared { numbering.len() } else { trace.unique() };
        let block_of = is_shared.then_some(block_of);
        Ok(Self { trace, data, names, client_of, block_of, unique, volumes })
    }

    /// The references of all clients, interleaved.
    pub fn trace(&self) -> &DenseTrace {
        &self.trace
    }

    /// Whether clients share data.
    pub fn data(&self) -> Data {
        self.data
    }

    /// The names of the clients: files, or address spaces.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Distinct blocks of all clients together.
    pub fn unique(&self) -> u32 {
        self.unique
    }

    #[inline]
    pub(crate) fn resolve(&self, r: Ref) -> ClientRef {
        let number = r.block() as usize;
        let block = self.block_of.as_ref().map_or(r.block(), |block_of| block_of[number]);
        // With one client, no look-up is needed.
        let is_one = self.names.len() == 1;
        let client = if is_one { 0 } else { self.client_of[number].into() };
        ClientRef { client, block, is_write: r.is_write() }
    }

    /// The client of a block; the first one if clients share data.
    pub(crate) fn owner(&self, block: u64) -> usize {
        match self.data {
            Data::Disjoint => self.client_of[block as usize].into(),
            Data::Shared => 0,
        }
    }

    /// The server of each block, for `servers` servers, and whether the block's volume decides it.
    /// It does if there are several volumes, and at least as many as servers; otherwise a hash of
    /// the block does.
    pub(crate) fn homes(&self, servers: usize) -> (Vec<u8>, bool) {
        let mut distinct = self.volumes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        distinct.retain(|&volume| volume != NO_VOLUME);
        let by_volume = distinct.len() > 1 && distinct.len() >= servers;
        let mut homes = vec![0; self.unique as usize];
        for number in 0..self.trace.unique() {
            let block = self.resolve(Ref::new(number, false)).block;
            let (space, _) = self.trace.names().block(number).unwrap_or_default();
            homes[block as usize] = if by_volume {
                (self.volumes[space as usize] as usize % servers) as u8
            } else {
                rendezvous(block.into(), servers) as u8
            };
        }
        (homes, by_volume)
    }

    /// The references of one client, in order.
    pub(crate) fn of_client(&self, client: usize) -> OfClient<'_> {
        OfClient {
            population: self,
            client,
            chunks: self.trace.forward(),
            ahead: Vec::new(),
            at: 0,
        }
    }
}

/// A pass over the references of one client.
pub(crate) struct OfClient<'a> {
    population: &'a Population,
    client: usize,
    chunks: Chunks<'a>,
    ahead: Vec<ClientRef>,
    at: usize,
}

impl OfClient<'_> {
    /// The next reference; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ClientRef>, Error> {
        while self.at == self.ahead.len() {
            let Some((_, refs)) = self.chunks.next()? else { return Ok(None) };
            let (population, client) = (self.population, self.client);
            self.at = 0;
            self.ahead.clear();
            let resolved = refs.iter().map(|&r| population.resolve(r));
            self.ahead.extend(resolved.filter(|r| r.client == client));
        }
        self.at += 1;
        Ok(Some(self.ahead[self.at - 1]))
    }
}

/// Marks a space that is in no trace.
const NO_VOLUME: u32 = u32::MAX;

/// The address spaces that have blocks. A merged trace also numbers spaces without blocks.
fn used(trace: &DenseTrace) -> impl Iterator<Item = usize> + '_ {
    let mut used = vec![false; trace.spaces().len()];
    for number in 0..trace.unique() {
        let (space, _) = trace.names().block(number).unwrap_or_default();
        used[space as usize] = true;
    }
    (0..used.len()).filter(move |&space| used[space])
}

/// Numbers volumes by their names, in order of the spaces.
fn number_volumes(trace: &DenseTrace, name: impl Fn(usize) -> String) -> Vec<u32> {
    let mut numbers = std::collections::HashMap::new();
    let mut volumes = vec![NO_VOLUME; trace.spaces().len()];
    for space in used(trace) {
        let next = numbers.len() as u32;
        volumes[space] = *numbers.entry(name(space)).or_insert(next);
    }
    volumes
}

fn check_number(clients: usize) -> Result<(), Error> {
    if clients <= MAX_HOLDERS {
        return Ok(());
    }
    Err(Error::Request(format!("clients: at most {MAX_HOLDERS} can be simulated, not {clients}")))
}
