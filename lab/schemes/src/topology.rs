//! The caches of a hierarchy, their order, and the clients.

use std::fmt;

/// A cache of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Capacity in blocks, at least 1.
    pub capacity: u32,
    /// The cache that serves its misses; `None`: the disk.
    pub below: Option<usize>,
}

/// Caches in a forest: every cache is above one other or above the disk, every client is at one
/// cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    /// For each client: the caches from its own down to the last above the disk.
    paths: Vec<Vec<usize>>,
}

/// Most caches of a topology. A byte names a queue of one (PROMOTE), and a cache has up to four.
pub const MAX_NODES: usize = 31;

/// Why a topology is not valid; says what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError(String);

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// Levels one below the other, with one client at the first.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn line(capacities: &[u32]) -> Result<Self, TopologyError> {
        let last = capacities.len().saturating_sub(1);
        let node = |(i, &capacity)| Node { capacity, below: (i < last).then_some(i + 1) };
        Self::new(capacities.iter().enumerate().map(node).collect(), &[0])
    }

    /// Caches, and the cache of each client.
    ///
    /// # Errors
    /// There is no cache or no client, or there are too many; a cache has no capacity or is below
    /// itself; or a number names no cache.
    pub fn new(nodes: Vec<Node>, clients: &[usize]) -> Result<Self, TopologyError> {
        let wrong = |what: String| Err(TopologyError(what));
        let clients_fit = (1..=usize::from(u16::MAX)).contains(&clients.len());
        if nodes.is_empty() || nodes.len() > MAX_NODES || !clients_fit {
            return wrong(format!(
                "{} caches and {} clients: expected 1 to {MAX_NODES} caches, 1 to 65535 clients",
                nodes.len(),
                clients.len()
            ));
        }
        for (i, node) in nodes.iter().enumerate() {
            if node.capacity == 0 {
                return wrong(format!("cache {i}: it needs room for at least one block"));
            }
            if node.below.is_some_and(|below| below >= nodes.len()) {
                return wrong(format!("cache {i}: there is no cache below it of that number"));
            }
        }
        let mut paths = Vec::new();
        for &client in clients {
            let Some(_) = nodes.get(client) else {
                return wrong(format!("a client stands at cache {client}, which does not exist"));
            };
            let path: Vec<usize> = std::iter::successors(Some(client), |&i| nodes[i].below)
                .take(MAX_NODES + 1)
                .collect();
            if path.len() > MAX_NODES {
                return wrong(format!("cache {client}: it is below itself"));
            }
            paths.push(path);
        }
        match (0..nodes.len()).find(|i| !paths.iter().any(|path| path.contains(i))) {
            Some(idle) => wrong(format!("cache {idle}: no client is above it")),
            None => Ok(Self { nodes, paths }),
        }
    }

    /// Number of caches.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.paths.len()
    }

    /// Blocks that a cache may hold.
    pub fn capacity(&self, node: usize) -> u32 {
        self.nodes[node].capacity
    }

    /// The cache directly below a cache; `None`: the disk.
    pub fn below(&self, node: usize) -> Option<usize> {
        self.nodes[node].below
    }

    /// The caches directly above a cache.
    pub fn uppers(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(move |&i| self.nodes[i].below == Some(node))
    }

    /// The caches of a client from its own down.
    pub fn path(&self, client: usize) -> &[usize] {
        &self.paths[client]
    }

    /// Whether the caches stand one below the other, in the order of their numbers.
    pub fn is_line(&self) -> bool {
        self.paths.iter().all(|path| path.len() == self.nodes.len())
    }

    /// Blocks of the cache `above` and of the caches on one way above it. Of several ways, the one
    /// with the most blocks counts.
    pub fn capacity_down_to(&self, above: usize) -> u64 {
        let most = self.uppers(above).map(|i| self.capacity_down_to(i)).max().unwrap_or(0);
        most + u64::from(self.nodes[above].capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, Topology};

    #[test]
    fn trees_and_what_is_none() {
        let node = |below| Node { capacity: 2, below };
        let tree = Topology::new(vec![node(Some(2)), node(Some(2)), node(None)], &[0, 1]).unwrap();
        assert_eq!((tree.path(0), tree.path(1)), (&[0, 2][..], &[1, 2][..]));
        assert!(!tree.is_line() && Topology::line(&[1, 2, 3]).unwrap().is_line());
        assert_eq!(tree.capacity_down_to(2), 4);
        for (nodes, clients, why) in [
            (vec![], vec![0], "expected"),
            (vec![node(None)], vec![], "expected"),
            (vec![node(Some(0))], vec![0], "below itself"),
            (vec![node(Some(7))], vec![0], "no cache below"),
            (vec![node(None)], vec![1], "does not exist"),
            (vec![node(None), node(None)], vec![0], "no client"),
            (vec![Node { capacity: 0, below: None }], vec![0], "room"),
        ] {
            let error = Topology::new(nodes, &clients).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
