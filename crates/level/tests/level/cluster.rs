//! What the tests of clusters share: making one, and what its servers hold.

use undercroft_policy::{Spec, WriteMode};
use undercroft_sim::tree::{
    Client, Cluster, ClusterRules, Division, Server, ServerSpec, rendezvous,
};

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

pub(crate) fn rules(shares_data: bool, peer_fetch: bool) -> ClusterRules {
    ClusterRules { shares_data, peer_fetch, write_mode: ALLOCATE }
}

pub(crate) fn clients(count: usize, policy: &str, capacity: u32) -> Vec<Client> {
    vec![Client { policy: Spec::parse(policy).expect(policy), capacity }; count]
}

pub(crate) fn cluster(clients: &[Client], servers: &[ServerSpec], rules: ClusterRules) -> Cluster {
    let count = servers.len();
    Cluster::new(clients, servers, move |block| rendezvous(block, count), rules).unwrap()
}

pub(crate) fn held(server: &Server) -> Vec<u64> {
    let parts = server.parts().iter();
    let mut held: Vec<u64> =
        parts.flat_map(|part| part.cache().residents()).map(|(block, _)| block).collect();
    held.sort_unstable();
    held
}
