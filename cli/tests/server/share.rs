//! Shares that move between volumes (`share=auto`), of a running program: memory goes where it
//! saves disk reads, what is cached stays right, and the whole stays the same.

use std::time::{Duration, Instant};

use undercroft_nbd::Client;

use super::support::{Place, Server, read, text, write};

const BLOCK: u64 = 4096;

/// Reads blocks in a row, and checks what they hold.
async fn pass(client: &Client, blocks: u64) {
    for block in 0..blocks {
        let data = read(client, block * BLOCK, BLOCK as usize).await.unwrap();
        assert!(data.iter().all(|&byte| u64::from(byte) == block % 251), "block {block}");
    }
}

async fn fill(client: &Client, blocks: u64) {
    for block in 0..blocks {
        write(client, block * BLOCK, vec![(block % 251) as u8; BLOCK as usize]).await.unwrap();
    }
}

fn sizes(server: &Server) -> [u64; 2] {
    ["loops", "little"].map(|name| server.count(name, "capacity_blocks"))
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_goes_where_it_saves_disk_reads() {
    let place = Place::new();
    let volume = |name: &str| format!("--volume {name}=delay(200us):mem:,size=8MiB,cache=512KiB");
    let volumes = format!("{} {},cache-min=192KiB", volume("loops"), volume("little"));
    let checked = text(&place.undercroft(&format!("serve --check --share auto {volumes}")).stdout);
    for least in ["128KiB", "192KiB"] {
        let terms = format!("share auto, keeps at least {least}, lends when idle for 60 s\n");
        assert!(checked.contains(&terms), "{checked}");
    }
    let alone = format!("serve --check {},share=auto {}", volume("a"), volume("b"));
    let alone = text(&place.undercroft(&alone).stdout);
    assert!(alone.contains("share=auto has no effect: no other volume has it"), "{alone}");

    let server = place.serve(&format!("-v --policy lru --share auto {volumes}"));
    let (loops, little) = (server.connect("loops").await, server.connect("little").await);
    // A loop over one and a half times the share: LRU serves none of it.
    let (many, few) = (192, 16);
    fill(&loops, many).await;
    fill(&little, few).await;
    pass(&loops, many).await;
    let hits = |before: u64| server.count("loops", "read_hits") - before;
    let before = server.count("loops", "read_hits");
    pass(&loops, many).await;
    assert_eq!(hits(before), 0);

    let deadline = Instant::now() + Duration::from_secs(180);
    while sizes(&server)[0] < many {
        pass(&loops, many).await;
        for _ in 0..20 {
            pass(&little, few).await;
        }
        let all: u64 = sizes(&server).iter().sum();
        assert!(all <= 256, "{all} of 256 blocks");
        assert!(Instant::now() < deadline, "{:?}: {}", sizes(&server), server.log());
    }
    // What one volume gave is free before the other one gets it.
    server.wait_for("loops", "capacity_blocks", |blocks| blocks >= many);
    let [large, small] = sizes(&server);
    let shares = ["loops", "little"].map(|name| server.count(name, "share_blocks"));
    assert_eq!(shares.iter().sum::<u64>(), 256);
    assert!(large >= many && small >= 48 && large + small <= 256, "{large} {small}");
    pass(&loops, many).await;
    let before = server.count("loops", "read_hits");
    pass(&loops, many).await;
    assert_eq!(hits(before), many, "all of it fits now");
    pass(&little, few).await;
    assert_eq!(server.count("little", "reads"), server.count("little", "read_hits"));
    server.wait_for_log("gets a part of another volume's share: that saves");
    let shown = text(&place.undercroft(&format!("stats {}", server.uri("little"))).stdout);
    let (_, table) = shown.split_once("cache now").expect("there is a table of sizes");
    assert!(table.contains("auto") && table.contains("192 KiB"), "{table}");

    // A change of a cache by hand gives all what is configured.
    let set = place.undercroft(&format!("set {} little share=fixed", server.uri("")));
    assert!(set.status.success(), "{}", text(&set.stderr));
    server.wait_for("loops", "capacity_blocks", |blocks| blocks == 128);
    server.wait_for("little", "capacity_blocks", |blocks| blocks == 128);
    pass(&loops, many).await;
    assert_eq!(server.stop(), 0);
}
