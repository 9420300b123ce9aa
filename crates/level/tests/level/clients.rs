//! Several clients above servers: small cases by hand, one client against levels in a line, and
//! a naive model of the last-copy rule. The parts of a server are in `parts.rs`.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n` runs that one again.

use crate::cluster::{ALLOCATE, clients, cluster, held, rules, server};
use crate::model::{self, Model};
use crate::support::{Random, seeds};
use undercroft_level::placement::Placement;
use undercroft_level::{DenseLevel, Level};
use undercroft_policy::{Context, PolicyInfo, Reference, Spec, WriteMode, policies};
use undercroft_sim::tree::{Division, Found, Server, ServerSpec, Tree, rendezvous};

// ------------------------------------------------------------------ by hand

/// Two clients of one block each that share data, above two blocks.
#[test]
fn the_last_copy_is_placed() {
    let (a, b) = (1, 2);
    for peer_fetch in [false, true] {
        let spec = server("lru", 2, "eviction,on-hit=move", Division::Shared);
        let mut ours = cluster(clients(2, "lru", 1), &[spec], rules(true, peer_fetch));
        let from = |peer: usize| if peer_fetch { Found::Peer(peer) } else { Found::Disk };
        let steps: [(usize, u64, Found, &[u64]); 6] = [
            (0, a, Found::Disk, &[]),
            (1, a, from(0), &[]),
            // The first gives A up; the second has it still.
            (0, b, Found::Disk, &[]),
            (1, b, from(0), &[a]),
            // A goes up; of B there is a copy left.
            (0, a, Found::Cache(2), &[]),
            (1, a, from(0), &[b]),
        ];
        for (i, (client, block, source, below)) in steps.into_iter().enumerate() {
            let cold = i == 0 || i == 2;
            assert_eq!(ours.reference(client, block, false, cold), source, "{peer_fetch} {i}");
            assert_eq!(held(&ours.servers(0)[0]), below, "{peer_fetch} {i}");
            ours.validate().unwrap();
        }
        let counts = ours.counts();
        assert_eq!((counts[0].not_last, counts[1].not_last), (2, 0));
        assert_eq!((counts[0].server_hits, counts[0].disk_reads), (1, 2));
        let peers = if peer_fetch { (3, 0) } else { (0, 3) };
        assert_eq!((counts[1].peer_hits, counts[1].disk_reads), peers);
    }
}

/// A client that wrote a block without reading it has it, and so has the server. Where clients do
/// not serve each other the server keeps it for those who will ask.
#[test]
fn a_shared_block_stays_where_clients_do_not_serve_each_other() {
    for (peer_fetch, below) in [(false, &[1_u64][..]), (true, &[])] {
        let spec = server("lru", 2, "eviction,on-hit=move", Division::Shared);
        let mut ours = cluster(clients(2, "lru", 1), &[spec], rules(true, peer_fetch));
        ours.reference(0, 1, false, true);
        ours.reference(0, 2, false, true);
        assert_eq!(ours.reference(1, 1, true, false), Found::Cache(2));
        assert_eq!(ours.reference(0, 1, false, false), Found::Cache(2));
        let mut expected = below.to_vec();
        expected.push(2);
        assert_eq!(held(&ours.servers(0)[0]), expected);
        ours.validate().unwrap();
    }
}

// ------------------------------------------------------------------ one client

/// One client above one server is two levels in a line, for every policy: that it could share data,
/// and that its server could be divided, changes nothing.
#[test]
fn one_client_is_a_line() {
    // A content-aware client is told what blocks of the line's numbers the server holds.
    let alone = |info: &&&PolicyInfo| info.name != "opt" && !info.is_content_aware();
    for info in policies().iter().filter(alone) {
        for placement in [
            "gl",
            "eviction,on-hit=move",
            "eviction,on-hit=keep,order=demote-first",
            "eviction,on-hit=move,threshold=1x,staging=2",
            "eviction,on-hit=adaptive",
        ] {
            for division in [Division::Shared, Division::Benefit] {
                one_client(info.name, placement, division, division == Division::Shared);
            }
        }
    }
}

fn one_client(policy: &str, placement: &str, division: Division, shares_data: bool) {
    for seed in seeds(2) {
        let mut random = Random(seed);
        let sizes = [1 + random.below(8), 1 + random.below(30)];
        let rules_text: Placement = placement.parse().unwrap();
        let spec = Spec::parse(policy).unwrap();
        let lower = Level::new(&spec, sizes[1], &rules_text, ALLOCATE, 0).unwrap();
        let top = spec.build(&Context::new(sizes[0])).unwrap();
        let mut theirs = Tree::line(Some((top, ALLOCATE)), vec![lower]).unwrap();
        let blocks = 100;
        let mut ours = cluster(
            clients(1, policy, sizes[0]),
            &[server(policy, sizes[1], placement, division)],
            rules(shares_data, shares_data),
        );
        let mut known = 0;
        for step in 0..1000 {
            // New blocks in order, as a dense trace has them.
            let block = random.block(blocks).min(known);
            let is_write = random.below(5) == 0;
            let source = ours.reference(0, block.into(), is_write, block >= known);
            known = known.max(block + 1);
            let found = theirs.refer(Reference::new(block, is_write));
            let at = format!("{policy} {placement} UNDERCROFT_SEED={seed} step {step}");
            assert_eq!(source, found.map_or(Found::Disk, Found::Cache), "{at}");
        }
        let mut levels = theirs.level_counts();
        levels[0].known = 0;
        assert_eq!(ours.level_counts(), levels, "{policy} {placement}");
        assert_eq!(ours.placement_counts(), theirs.placement_counts(), "{policy} {placement}");
        ours.validate().unwrap();
    }
}

/// With access-based placement it is two levels one below the other.
#[test]
fn one_client_with_placement_at_the_access() {
    for mode in [ALLOCATE, WriteMode::NoAllocate, WriteMode::Invalidate] {
        let build = |capacity| Spec::parse("mq").unwrap().build(&Context::new(capacity)).unwrap();
        let mut levels = [DenseLevel::new(build(7), mode), DenseLevel::new(build(20), mode)];
        let spec = ServerSpec { write_mode: mode, ..server("mq", 20, "access", Division::Benefit) };
        let client = vec![Level::of_policy(build(7), mode, 0)];
        let mut ours = cluster(client, &[spec], rules(false, false));
        let mut random = Random(1);
        let mut known = 0;
        for _ in 0..5000 {
            let block = random.block(100).min(known);
            let is_write = random.below(4) == 0;
            ours.reference(0, block.into(), is_write, block >= known);
            known = known.max(block + 1);
            let mut below = Vec::new();
            let reference = [Reference::new(block, is_write)];
            levels[0].replay(100, &reference, Some(&mut below));
            levels[1].replay(100, &below, None);
        }
        let strip = |level: &DenseLevel| undercroft_policy::Counts { known: 0, ..*level.counts() };
        assert_eq!(ours.level_counts(), levels.each_ref().map(strip), "{mode:?}");
    }
}

// ------------------------------------------------------------------ the last copy

/// The rules written down plainly, over the naive policies.
struct Naive {
    clients: Vec<Box<dyn Model>>,
    servers: Vec<Box<dyn Model>>,
    shares_data: bool,
    peer_fetch: bool,
}

impl Naive {
    fn holders(&self, b: u32) -> Vec<usize> {
        let holds = |&i: &usize| self.clients[i].resident().contains(&b);
        (0..self.clients.len()).filter(holds).collect()
    }

    fn reference(&mut self, client: usize, b: u32, is_write: bool) -> Found {
        let step = self.clients[client].access(b);
        let home = rendezvous(b.into(), self.servers.len());
        let mut source = Found::Cache(client);
        if is_write || !step.hit {
            let others: Vec<_> = self.holders(b).into_iter().filter(|&i| i != client).collect();
            let others = if self.shares_data { others } else { Vec::new() };
            let server = &mut self.servers[home];
            let here = server.resident().contains(&b);
            if !is_write {
                match here {
                    true if !others.is_empty() && !self.peer_fetch => {
                        server.access(b);
                    }
                    true => server.take(b),
                    false => server.note(b),
                }
            }
            source = match others.first() {
                _ if step.hit => source,
                _ if here => Found::Cache(self.clients.len() + home),
                Some(&peer) if self.peer_fetch && !is_write => Found::Peer(peer),
                _ => Found::Disk,
            };
        }
        for victim in step.evicted {
            if !self.shares_data || self.holders(victim).is_empty() {
                let home = rendezvous(victim.into(), self.servers.len());
                self.servers[home].place(victim);
            }
        }
        source
    }
}

#[test]
fn the_last_copy_rule_equals_the_naive_model() {
    for policy in ["lru", "mq", "2q", "arc", "fbr"] {
        for seed in seeds(12) {
            let mut random = Random(seed);
            let (count, size) = (1 + random.below(4) as usize, 1 + random.below(8));
            let sizes: Vec<_> = (0..1 + random.below(3)).map(|_| 1 + random.below(16)).collect();
            let shares_data = random.below(4) > 0;
            let peer_fetch = shares_data && random.below(2) == 0;
            let specs: Vec<_> = sizes
                .iter()
                .map(|&size| server(policy, size, "eviction,on-hit=move", Division::Shared))
                .collect();
            let naive = |&size: &u32| model::model(policy, &[], size);
            let mut theirs = Naive {
                clients: (0..count).map(|_| naive(&size)).collect(),
                servers: sizes.iter().map(naive).collect(),
                shares_data,
                peer_fetch,
            };
            let all = clients(count, policy, size);
            let mut ours = cluster(all, &specs, rules(shares_data, peer_fetch));
            for step in 0..800 {
                let client = random.below(count as u32) as usize;
                let own = if shares_data { 0 } else { 100 * client as u32 };
                let (block, is_write) = (own + random.block(40), random.below(5) == 0);
                let at = format!("{policy} UNDERCROFT_SEED={seed} step {step}");
                let source = ours.reference(client, block.into(), is_write, false);
                assert_eq!(source, theirs.reference(client, block, is_write), "{at}");
                for (server, naive) in ours.servers(0).iter().zip(&theirs.servers) {
                    let naive: Vec<u64> = naive.resident().into_iter().map(u64::from).collect();
                    assert_eq!(held(server), naive, "{at}");
                }
                ours.validate().unwrap_or_else(|what| panic!("{at}: {what}"));
            }
            let [top, below] = ours.level_counts()[..] else { panic!("two depths") };
            let served = |count: fn(&undercroft_sim::tree::BelowCounts) -> u64| {
                ours.counts().iter().map(count).sum::<u64>()
            };
            let missed = top.reads - top.read_hits;
            let (hits, peers) = (served(|c| c.server_hits), served(|c| c.peer_hits));
            assert_eq!((below.reads, below.read_hits), (missed, hits));
            assert_eq!(missed, hits + peers + served(|c| c.disk_reads));
        }
    }
}

/// Clients that do the same at the same time: whatever one of them misses, the other has not
/// either, or has fetched just before.
#[test]
fn of_two_equal_clients_the_second_fetches_from_the_first() {
    let spec = server("lru", 40, "eviction,on-hit=move", Division::Shared);
    let mut ours = cluster(clients(2, "lru", 10), &[spec], rules(true, true));
    let mut random = Random(3);
    for _ in 0..5000 {
        let block = random.block(100).into();
        let first = ours.reference(0, block, false, false);
        let second = ours.reference(1, block, false, false);
        match first {
            Found::Cache(0) => assert_eq!(second, Found::Cache(1)),
            _ => assert_eq!(second, Found::Peer(0)),
        }
    }
    assert_eq!(ours.counts()[1].peer_hits + ours.clients()[1].cache().counts().read_hits, 5000);
    assert_eq!(ours.counts()[1].not_last, 0, "the first evicts first, the second has the last");
}

// ------------------------------------------------------------------ refusals

#[test]
fn what_contradicts_itself_is_refused_with_the_reason() {
    let one = server("lru", 4, "eviction,on-hit=move", Division::Shared);
    let divided = ServerSpec { division: Division::Benefit, ..one.clone() };
    let opt = ServerSpec { policy: Spec::parse("opt").unwrap(), ..one.clone() };
    for (count, servers, rules, why) in [
        (65, std::slice::from_ref(&one), rules(false, false), "at most 64"),
        (2, &[][..], rules(false, false), "needs a server"),
        (2, std::slice::from_ref(&one), rules(false, true), "nothing to serve"),
        (2, std::slice::from_ref(&divided), rules(true, false), "share data"),
        (5, std::slice::from_ref(&divided), rules(false, false), "at least one block each"),
        (1, &[opt], rules(false, false), "opt"),
    ] {
        let servers = servers.iter().map(|spec| Server::new(spec, count, 0));
        let tree = servers
            .collect::<Result<Vec<_>, _>>()
            .and_then(|servers| Tree::new(clients(count, "lru", 1), vec![servers], |_| 0, rules));
        let error = tree.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}
