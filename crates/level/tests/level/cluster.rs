//! What the tests of clients above servers share: making them, and what the servers hold.

use undercroft_level::Level;
use undercroft_policy::{Context, Spec, WriteMode};
use undercroft_sim::tree::{Division, Server, ServerSpec, Tree, TreeRules, rendezvous};

pub(crate) const ALLOCATE: WriteMode = WriteMode::Allocate;

pub(crate) fn server(
    policy: &str,
    capacity: u32,
    placement: &str,
    division: Division,
) -> ServerSpec {
    ServerSpec {
        policy: Spec::parse(policy).expect(policy),
        capacity,
        placement: placement.parse().expect(placement),
        write_mode: ALLOCATE,
        division,
    }
}

pub(crate) fn rules(shares_data: bool, peer_fetch: bool) -> TreeRules {
    TreeRules { shares_data, peer_fetch }
}

pub(crate) fn clients(count: usize, policy: &str, capacity: u32) -> Vec<Level> {
    let policy = Spec::parse(policy).expect(policy);
    let cache = || policy.build(&Context::new(capacity)).unwrap();
    (0..count).map(|_| Level::of_policy(cache(), ALLOCATE, 0)).collect()
}

pub(crate) fn cluster(clients: Vec<Level>, servers: &[ServerSpec], rules: TreeRules) -> Tree {
    let count = servers.len();
    let servers = servers.iter().map(|spec| Server::new(spec, clients.len(), 0).unwrap());
    let below = vec![servers.collect()];
    Tree::new(clients, below, move |block| rendezvous(block, count), rules).unwrap()
}

pub(crate) fn held(server: &Server) -> Vec<u64> {
    let parts = server.parts().iter();
    let mut held: Vec<u64> =
        parts.flat_map(|part| part.cache().residents()).map(|(block, _)| block).collect();
    held.sort_unstable();
    held
}
