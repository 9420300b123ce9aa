//! Memory that moves between caches: who gets it and when, what is counted, and what a store or a
//! client that behaves badly can do. The clock is the runtime's, so that minutes pass at once. The
//! rules alone are tested beside them (`process/lending`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;
use undercroft_server::Volume;
use undercroft_server::process::{OpeningStore, Running, ServerConfig, Settings, Surroundings};

use crate::common::{BLOCK, Shared, TestStore, read, write};

const SECOND: Duration = Duration::from_secs(1);

/// A server with volumes in memory, and what they may have together.
struct Server {
    running: Running,
    stores: HashMap<String, Arc<TestStore>>,
    blocks: u64,
}

/// A configuration of volumes with these options.
fn config(volumes: &[(&str, &str)]) -> ServerConfig {
    let of = |(name, options): &(&str, &str)| {
        Settings::volume(&format!("{name}=mem(4MiB):,policy=lru,{options}")).unwrap()
    };
    let volumes: Vec<_> = volumes.iter().map(of).collect();
    let mut config = Settings::default().set("volume", volumes).set("cache", "2MiB").config();
    config.as_mut().unwrap().listen.clear();
    config.unwrap()
}

impl Server {
    async fn start(volumes: &[(&str, &str)]) -> Server {
        let config = config(volumes);
        let store = |name: &str| (name.to_owned(), TestStore::new(4 << 20, 512, 1));
        let stores: HashMap<_, _> = volumes.iter().map(|(name, _)| store(name)).collect();
        let given = stores.clone();
        let open = |s: &Arc<TestStore>| -> OpeningStore {
            Box::pin(std::future::ready(Ok(Arc::new(Shared(s.clone())) as _)))
        };
        let give = move |name: &str| given.get(name).map(open);
        let surroundings = Surroundings { stores: Some(Arc::new(give)), ..Surroundings::default() };
        let running = Running::start_in(&config, surroundings).await.unwrap();
        let blocks = config.volumes.iter().map(|volume| u64::from(volume.cache_blocks)).sum();
        Server { running, stores, blocks }
    }

    fn volume(&self, name: &str) -> Arc<Volume> {
        self.running.volumes().into_iter().find(|v| v.config().name == name).unwrap()
    }

    /// Blocks of a volume's cache now.
    fn size(&self, name: &str) -> u64 {
        self.volume(name).stats().capacity_blocks
    }

    /// Lets a second pass, in which the volumes read so many blocks, all others in turn; what all
    /// have together never exceeds what they were given.
    async fn second(&self, readers: &[(&str, u64)], second: u64) {
        for (name, count) in readers {
            let volume = self.volume(name);
            for block in 0..*count {
                read(&volume, (second * count + block) % 1024 * BLOCK, BLOCK).await.unwrap();
            }
        }
        sleep(SECOND).await;
        let volumes = self.running.volumes();
        let taken = volumes.iter().map(|v| v.stats().capacity_blocks + v.surplus_frames());
        // Spare frames depend on the size, and have their bounds.
        let taken: u64 = taken.sum();
        assert!(taken <= self.blocks + 32, "{taken} of {}", self.blocks);
        let sizes: u64 = volumes.iter().map(|volume| volume.stats().capacity_blocks).sum();
        assert!(sizes <= self.blocks, "{sizes} of {}", self.blocks);
        volumes.iter().for_each(|volume| volume.validate().unwrap());
    }

    async fn seconds(&self, readers: &[(&str, u64)], seconds: u64) {
        for second in 0..seconds {
            self.second(readers, second).await;
        }
    }

    /// Waits until a cache has a size; returns the seconds.
    async fn until(&self, readers: &[(&str, u64)], name: &str, blocks: u64) -> u64 {
        for second in 0..300 {
            if self.size(name) == blocks {
                return second;
            }
            self.second(readers, second).await;
        }
        panic!("{name} has {} blocks, not {blocks}", self.size(name));
    }
}

const LENDER: (&str, &str) = ("a", "cache=1MiB,cache-min=256KiB,cache-idle-s=30");
const BORROWER: (&str, &str) = ("b", "cache=512KiB,cache-max=2MiB");
const FIXED: (&str, &str) = ("c", "cache=512KiB");

#[tokio::test(start_paused = true)]
async fn idle_room_is_lent_and_comes_back_with_the_first_references() {
    let server = Server::start(&[LENDER, BORROWER, FIXED]).await;
    server.seconds(&[("a", 40), ("b", 40), ("c", 40)], 20).await;
    assert_eq!([server.size("a"), server.size("b"), server.size("c")], [256, 128, 128]);
    let seconds = server.until(&[("b", 40), ("c", 40)], "b", 320).await;
    assert!((30..=90).contains(&seconds), "{seconds}");
    assert_eq!([server.size("a"), server.size("c")], [64, 128]);
    let stats = server.volume("a").stats();
    assert_eq!((stats.share_blocks, stats.capacity_blocks), (256, 64));
    assert_eq!(server.volume("b").stats().share_blocks, 128);
    // What fits now is not missed any more, and the room stays.
    server.seconds(&[("b", 300)], 3).await;
    assert_eq!(server.size("b"), 320);
    let back = server.until(&[("a", 40), ("b", 40)], "a", 256).await;
    assert!(back <= 8, "{back} s");
    assert_eq!(server.size("b"), 128);
    server.running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lent_unless_it_is_asked_for() {
    for volumes in [
        [("a", "cache=1MiB"), ("b", "cache=512KiB")],
        [LENDER, ("b", "cache=512KiB")],
        [("a", "cache=1MiB"), BORROWER],
    ] {
        let server = Server::start(&volumes).await;
        server.seconds(&[("b", 60)], 100).await;
        assert_eq!([server.size("a"), server.size("b")], [256, 128], "{volumes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_share_moves_lends_to_a_quarter_and_borrows_without_a_bound() {
    let volumes =
        [("a", "cache=1MiB,share=auto,cache-idle-s=30"), ("b", "cache=512KiB,share=auto"), FIXED];
    let server = Server::start(&volumes).await;
    server.seconds(&[("a", 10), ("b", 40), ("c", 40)], 3).await;
    server.until(&[("b", 40), ("c", 40)], "b", 320).await;
    assert_eq!([server.size("a"), server.size("c")], [64, 128]);
    let back = server.until(&[("a", 40), ("b", 40)], "a", 256).await;
    assert!(back <= 8, "{back} s");
    assert_eq!([server.size("b"), server.volume("a").stats().share_blocks], [128, 256]);
    server.running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_seems_busy_gets_no_more_than_idle_ones_lend() {
    let busy = ("a", "cache=1MiB,cache-min=256KiB,cache-max=2MiB,cache-idle-s=30");
    let thief = ("b", "cache=512KiB,cache-max=1GiB,cache-min=4KiB");
    let server = Server::start(&[busy, thief, FIXED]).await;
    for second in 0..100 {
        // Three references a second are enough to be left alone; and both could use more.
        server.second(&[("a", 3), ("b", 1000)], second).await;
        assert_eq!([server.size("a"), server.size("b"), server.size("c")], [256, 128, 128]);
    }
    // The owner of a minimum keeps it, whatever another one does.
    server.seconds(&[("b", 1000)], 100).await;
    assert_eq!([server.size("a"), server.size("b"), server.size("c")], [64, 320, 128]);
}

#[tokio::test(start_paused = true)]
async fn what_is_configured_wins_and_is_free_of_loans() {
    let mut server = Server::start(&[LENDER, BORROWER, FIXED]).await;
    let reload = async |server: &mut Server, volumes: &[(&str, &str)]| {
        server.running.reload(Ok(config(volumes))).await
    };
    let lend = async |server: &Server| {
        server.seconds(&[("a", 10), ("b", 40)], 3).await;
        server.until(&[("b", 40)], "b", 320).await;
    };
    lend(&server).await;
    // A reload that changes nothing takes nothing back.
    assert_eq!(reload(&mut server, &[LENDER, BORROWER, FIXED]).await, [""; 0]);
    assert_eq!([server.size("a"), server.size("b")], [64, 320]);
    // Room that is lent can be given away by its owner.
    let smaller = ("a", "cache=512KiB,cache-min=256KiB,cache-idle-s=30");
    let larger = ("c", "cache=1MiB");
    assert_eq!(reload(&mut server, &[smaller, BORROWER, larger]).await, [""; 0]);
    assert_eq!([server.size("a"), server.size("b"), server.size("c")], [128, 128, 256]);
    server.until(&[("b", 40)], "b", 192).await;
    // A volume comes while another one's room is lent; and a lender goes.
    let small = ("c", "cache=512KiB");
    let added = ("d", "cache=512KiB");
    assert_eq!(reload(&mut server, &[smaller, BORROWER, small, added]).await, [""; 0]);
    assert_eq!([server.size("a"), server.size("b"), server.size("d")], [128, 128, 128]);
    server.until(&[("b", 40)], "b", 192).await;
    assert_eq!(reload(&mut server, &[BORROWER, small, added]).await, [""; 0]);
    server.blocks = 384;
    sleep(3 * SECOND).await;
    server.until(&[("b", 40)], "b", 128).await;
    // To lend is an option that changes like all others.
    let fixed = ("b", "cache=512KiB");
    assert_eq!(reload(&mut server, &[fixed, small, added]).await, [""; 0]);
    assert_eq!(server.volume("b").now().cache_max, None);
    server.running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_ever_keeps_what_was_lent_for_its_dirty_blocks_and_no_more() {
    let dirty = ",write=back,dirty-age-s=600,dirty-percent=100";
    let borrower = format!("{}{dirty}", BORROWER.1);
    let volumes = [LENDER, ("b", borrower.as_str()), FIXED];
    let mut server = Server::start(&volumes).await;
    server.seconds(&[("a", 10)], 3).await;
    server.until(&[("b", 40)], "b", 320).await;
    let (b, store) = (server.volume("b"), Arc::clone(&server.stores["b"]));
    store.fail_writes.store(true, Ordering::SeqCst);
    for block in 0..320 {
        write(&b, block * BLOCK, vec![(block % 255) as u8 + 1; 4096]).await.unwrap();
    }
    // The lender is back; 192 blocks cannot leave the memory, beyond the borrower's spare frames.
    server.seconds(&[("a", 100)], 60).await;
    assert!(server.size("a") < 256 && server.size("a") >= 64, "{}", server.size("a"));
    for block in 0..320 {
        let data = read(&b, block * BLOCK, BLOCK).await.unwrap();
        assert_eq!(data, vec![(block % 255) as u8 + 1; 4096], "block {block}");
    }
    // What cannot be taken back cannot be given away either.
    let larger = ("c", "cache=768KiB");
    let smaller = ("a", "cache=768KiB");
    let said = server.running.reload(Ok(config(&[smaller, volumes[1], larger]))).await.join("\n");
    assert!(said.contains("volume 'b' has not given back what it borrowed"), "{said}");
    assert_eq!(server.size("c"), 128);
    store.fail_writes.store(false, Ordering::SeqCst);
    server.until(&[("a", 100)], "a", 256).await;
    assert_eq!(server.size("b"), 128);
    for block in 0..320 {
        let data = read(&b, block * BLOCK, BLOCK).await.unwrap();
        assert_eq!(data, vec![(block % 255) as u8 + 1; 4096], "block {block}");
    }
    drop(b);
    server.running.stop().await.unwrap();
    assert!((0..320).all(|block| store.live()[block * 4096] == (block % 255) as u8 + 1));
}

#[tokio::test(start_paused = true)]
async fn the_process_may_end_amid_a_move() {
    let dirty = ",write=back,dirty-age-s=600,dirty-percent=100";
    let borrower = format!("{}{dirty}", BORROWER.1);
    for seconds in 0..6 {
        for is_clean in [true, false] {
            let server = Server::start(&[LENDER, ("b", borrower.as_str()), FIXED]).await;
            server.seconds(&[("a", 10)], 3).await;
            server.until(&[("b", 40)], "b", 320).await;
            let (b, store) = (server.volume("b"), Arc::clone(&server.stores["b"]));
            for block in 0..320 {
                write(&b, block * BLOCK, vec![(block % 255) as u8 + 1; 4096]).await.unwrap();
            }
            server.seconds(&[("a", 100)], seconds).await;
            drop(b);
            if is_clean {
                server.running.stop().await.unwrap();
                let live = store.live();
                assert!((0..320).all(|block| live[block * 4096] == (block % 255) as u8 + 1));
            } else {
                drop(server);
                sleep(10 * SECOND).await;
            }
        }
    }
}
