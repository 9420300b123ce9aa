//! A store that loses what it had answered and not flushed while the volume lives on, as another
//! server does that is killed: who is told, what is read afterwards, and what is written again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot::Receiver;
use undercroft_nbd::{Command, Export, Peer, Session};
use undercroft_server::{Answer, Caller, Outcome, Volume, VolumeConfig, VolumeExport, Write};

use crate::common::{
    self, BLOCK, READ, Request, ZERO, ask, begin_as, config, evict, open_on, say, settle, write_of,
};
use crate::losing::{Handed, Losing};

fn open(config: VolumeConfig, store: &Arc<Losing>) -> Arc<Volume> {
    open_on(config, Arc::new(Handed(Arc::clone(store))))
}

/// A store, a volume on it, and a connection.
fn start(config: VolumeConfig) -> (Arc<Losing>, Arc<Volume>, Client) {
    let store = Losing::new();
    let volume = open(config, &store);
    let client = Client::new(&volume);
    (store, volume, client)
}

fn through() -> VolumeConfig {
    VolumeConfig { write: Write::Through, ..config(16, "lru") }
}

fn back() -> VolumeConfig {
    let dirty_age = Duration::from_secs(600);
    VolumeConfig { write: Write::Back, dirty_age, dirty_share: 1.0, ..config(16, "lru") }
}

/// A connection.
struct Client(Box<dyn Session>);

impl Client {
    fn new(volume: &Arc<Volume>) -> Client {
        Client(VolumeExport(Arc::clone(volume)).connect(&Peer::default(), &[]).unwrap())
    }

    fn begin(
        &mut self,
        command: Command,
        offset: u64,
        length: u64,
        durable: bool,
    ) -> Receiver<Outcome> {
        let (request, answer) = ask(command, offset, length, durable);
        self.0.serve(&mut vec![request]);
        answer
    }

    fn begin_write(&mut self, block: u64, byte: u8) -> Receiver<Outcome> {
        self.begin(write_of(vec![byte; BLOCK as usize]), block * BLOCK, BLOCK, false)
    }

    async fn write(&mut self, block: u64, byte: u8) {
        self.begin_write(block, byte).await.unwrap().unwrap();
    }

    async fn read(&mut self, block: u64) -> u8 {
        content(self.begin(READ, block * BLOCK, BLOCK, false)).await
    }

    async fn flush(&mut self) -> Result<(), String> {
        done(self.begin(Command::Flush, 0, 0, false)).await
    }

    async fn write_fua(&mut self, block: u64, byte: u8) -> Result<(), String> {
        done(self.begin(write_of(vec![byte; BLOCK as usize]), block * BLOCK, BLOCK, true)).await
    }
}

async fn content(answer: Receiver<Outcome>) -> u8 {
    match answer.await.unwrap().unwrap() {
        Answer::Data(pieces) => {
            let bytes = pieces.concat();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn block");
            bytes[0]
        }
        other => panic!("{other:?}"),
    }
}

async fn done(answer: Receiver<Outcome>) -> Result<(), String> {
    answer.await.unwrap().map(drop).map_err(|failed| failed.to_string())
}

fn is_told(result: &Result<(), String>) -> bool {
    matches!(result, Err(text) if text.contains("may be lost"))
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_is_read_after_a_loss_is_what_the_store_has() {
    let (store, volume, mut client) = start(through());
    client.write(1, 1).await;
    client.write(2, 1).await;
    client.flush().await.unwrap();
    client.write(1, 2).await;
    assert_eq!(client.read(1).await, 2);
    store.lose();
    assert_eq!(client.read(1).await, 1);
    volume.validate().unwrap();
    // What had been flushed is still here.
    let reads = store.reads();
    assert_eq!(client.read(2).await, 1);
    assert_eq!(store.reads(), reads);
}

#[tokio::test]
async fn a_block_that_was_driven_out_and_read_back_leaves_as_well() {
    let (store, volume, mut client) = start(through());
    client.write(1, 2).await;
    for block in 20..60 {
        client.read(block).await;
    }
    let reads = store.reads();
    assert_eq!(client.read(1).await, 2);
    assert_eq!(store.reads(), reads + 1, "it had been driven out");
    store.lose();
    assert_eq!(client.read(1).await, 0);
    volume.validate().unwrap();
}

#[tokio::test]
async fn more_changes_than_are_remembered_empty_the_cache() {
    let (store, volume, mut client) = start(through());
    client.write(1, 2).await;
    for block in 20..60 {
        client.write(block, 3).await;
    }
    assert_eq!(client.read(1).await, 2);
    store.lose();
    for block in [1, 59, 58, 20] {
        assert_eq!(client.read(block).await, 0);
    }
    volume.validate().unwrap();
}

#[tokio::test]
async fn zeroes_and_trims_can_be_lost_too() {
    let (store, volume, mut client) = start(through());
    for block in 0..8 {
        client.write(block, 1).await;
    }
    client.flush().await.unwrap();
    done(client.begin(ZERO, 0, 2 * BLOCK, false)).await.unwrap();
    done(client.begin(Command::Trim, 4 * BLOCK, 2 * BLOCK, false)).await.unwrap();
    for block in [0, 1, 4, 5] {
        assert_eq!(client.read(block).await, 0);
    }
    store.lose();
    for block in 0..8 {
        assert_eq!(client.read(block).await, 1, "block {block}");
    }
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_fetch_that_began_before_a_loss_is_made_again() {
    let store = Losing::new();
    let volume = open(through(), &store);
    // Nothing of an earlier process is left.
    settle().await;
    let mut client = Client::new(&volume);
    client.write(1, 2).await;
    for block in 20..60 {
        client.read(block).await;
    }
    store.answers.hold();
    let answer = client.begin(READ, BLOCK, BLOCK, false);
    settle().await;
    store.lose();
    store.answers.release();
    assert_eq!(content(answer).await, 0);
    assert_eq!(client.read(1).await, 0);
    volume.validate().unwrap();
}

/// A reload that a read has joined brings what the store had before the loss: nobody who came after
/// the loss may get that.
#[tokio::test]
async fn a_reload_that_was_joined_before_a_loss_is_made_again() {
    let store = Losing::new();
    let placement = "eviction,on-hit=move".parse().unwrap();
    let volume = open(VolumeConfig { placement, ..through() }, &store);
    settle().await;
    let caller = Caller { client: 3, tells: true };
    let begin = |command| begin_as(&volume, caller, command, BLOCK, BLOCK);
    begin(write_of(vec![2; BLOCK as usize])).await.unwrap().unwrap();
    assert_eq!(content(begin(READ)).await, 2);
    store.answers.hold();
    say(&volume, caller, vec![evict(1)]);
    settle().await;
    let joins = begin(READ);
    settle().await;
    assert_eq!(volume.stats().cooperation.unwrap().reloads_joined, 1);
    store.lose();
    let after = begin(READ);
    settle().await;
    store.answers.release();
    joins.await.unwrap().unwrap();
    assert_eq!(content(after).await, 0);
    volume.validate().unwrap();
}

#[tokio::test]
async fn a_write_that_began_before_a_loss_leaves_no_copy_and_is_told_of() {
    let store = Losing::new();
    let volume = open(through(), &store);
    // Nothing of an earlier process is left.
    settle().await;
    let mut client = Client::new(&volume);
    store.answers.hold();
    let answer = client.begin_write(1, 2);
    settle().await;
    store.lose();
    assert!(is_told(&client.flush().await));
    store.answers.release();
    done(answer).await.unwrap();
    assert_eq!(client.read(1).await, 0);
    assert!(is_told(&client.flush().await), "it was answered after the first one");
    client.flush().await.unwrap();
    volume.validate().unwrap();
}

#[tokio::test]
async fn each_session_that_was_open_is_told_once() {
    for write in [Write::Through, Write::Around] {
        let store = Losing::new();
        let volume = open(VolumeConfig { write, ..through() }, &store);
        let (mut writer, mut other) = (Client::new(&volume), Client::new(&volume));
        let mut durable = Client::new(&volume);
        writer.write(1, 1).await;
        store.lose();
        // One that came after the loss, before anybody was told of it.
        let mut between = Client::new(&volume);
        assert!(is_told(&other.flush().await), "it wrote nothing, and may flush for who did");
        other.flush().await.unwrap();
        assert!(is_told(&writer.flush().await));
        writer.flush().await.unwrap();
        assert!(is_told(&durable.write_fua(2, 7).await));
        durable.write_fua(2, 7).await.unwrap();
        assert!(is_told(&between.flush().await));
        between.flush().await.unwrap();
        Client::new(&volume).flush().await.unwrap();
        assert_eq!(volume.stats().flush_failures, 4);
    }
}

#[tokio::test]
async fn a_loss_that_nobody_was_told_of_is_told_to_the_next_session() {
    let store = Losing::new();
    let volume = open(through(), &store);
    let mut writer = Client::new(&volume);
    writer.write(1, 1).await;
    drop(writer);
    store.lose();
    drop(Client::new(&volume));
    let mut next = Client::new(&volume);
    assert!(is_told(&next.flush().await));
    next.flush().await.unwrap();
    Client::new(&volume).flush().await.unwrap();
}

#[tokio::test]
async fn flushes_that_are_under_way_together_tell_it_together() {
    let (store, _volume, mut client) = start(through());
    client.write(1, 1).await;
    store.flushes.hold();
    let begin = |client: &mut Client| client.begin(Command::Flush, 0, 0, false);
    let (first, second) = (begin(&mut client), begin(&mut client));
    settle().await;
    store.lose();
    store.flushes.release();
    assert!(is_told(&done(first).await) && is_told(&done(second).await));
    client.flush().await.unwrap();
}

#[tokio::test]
async fn a_volume_without_a_cache_tells_it() {
    let store = Losing::new();
    let volume = open(VolumeConfig { cache_blocks: 0, ..back() }, &store);
    let (mut client, mut other) = (Client::new(&volume), Client::new(&volume));
    client.write(1, 1).await;
    store.lose();
    assert_eq!(client.read(1).await, 0);
    assert!(is_told(&client.flush().await) && is_told(&other.flush().await));
    client.flush().await.unwrap();
    other.flush().await.unwrap();
}

#[tokio::test]
async fn write_back_loses_nothing_between_a_write_out_and_its_flush() {
    let (store, volume, mut client) = start(back());
    for block in 0..4 {
        client.write(block, 5).await;
    }
    store.flushes.hold();
    let answer = client.begin(Command::Flush, 0, 0, false);
    until(|| store.count(|request| matches!(request, Request::Write(..))) == 1).await;
    settle().await;
    assert_eq!(volume.stats().dirty, 4, "written, and not yet durable");
    assert_eq!(client.read(1).await, 5);
    store.lose();
    // Changed again meanwhile.
    client.write(3, 6).await;
    store.flushes.release();
    done(answer).await.unwrap();
    assert_eq!([0, 1, 2].map(|block| store.durable(block)), [5; 3]);
    client.flush().await.unwrap();
    assert_eq!(store.durable(3), 6);
    assert_eq!((volume.stats().dirty, volume.stats().flush_failures), (0, 0));
    store.lose();
    assert_eq!(client.read(0).await, 5);
    client.flush().await.unwrap();
    volume.validate().unwrap();
}

#[tokio::test]
async fn write_back_flushes_below_by_itself() {
    let store = Losing::new();
    let age = Duration::from_millis(5);
    let volume = open(VolumeConfig { dirty_age: age, ..back() }, &store);
    let mut client = Client::new(&volume);
    // More than the cache holds: what is driven out is written out.
    for block in 0..100 {
        client.write(block, 5).await;
    }
    until(|| volume.stats().dirty == 0).await;
    store.lose();
    for block in 0..100 {
        assert_eq!(client.read(block).await, 5, "block {block}");
        assert_eq!(store.durable(block), 5);
    }
    client.flush().await.unwrap();
    volume.validate().unwrap();
}

#[tokio::test]
async fn write_back_makes_durable_at_once_what_goes_past_the_dirty_blocks() {
    let (store, _volume, mut client) = start(VolumeConfig { write_allocate: false, ..back() });
    for block in 0..8 {
        client.write(block, 1).await;
    }
    // A miss that is not taken in goes to the store.
    assert_eq!(store.durable(0), 1);
    done(client.begin(ZERO, 0, 2 * BLOCK, false)).await.unwrap();
    done(client.begin(Command::Trim, 2 * BLOCK, 2 * BLOCK, false)).await.unwrap();
    store.lose();
    for block in 0..4 {
        assert_eq!(client.read(block).await, 0);
    }
    assert_eq!(client.read(5).await, 1);
    client.flush().await.unwrap();
}

/// Losses at random: what was flushed is there, and no write is half there.
#[tokio::test]
async fn write_back_with_losses_at_any_moment() {
    let seed = common::seed();
    let mut random = common::Random::new(seed);
    let store = Losing::new();
    store.store.jitter.store(true, Ordering::SeqCst);
    let age = Duration::from_millis(2);
    let volume = open(VolumeConfig { dirty_age: age, ..back() }, &store);
    let mut client = Client::new(&volume);
    let mut model = [0_u8; 64];
    for step in 0..3000 {
        let block = random.below(64);
        match random.below(20) {
            0 => store.lose(),
            1 => client.flush().await.unwrap(),
            2 => {
                done(client.begin(ZERO, block * BLOCK, BLOCK, false)).await.unwrap();
                model[block as usize] = 0;
            }
            3..11 => {
                let byte = random.below(255) as u8;
                client.write(block, byte).await;
                model[block as usize] = byte;
            }
            _ => {
                let found = client.read(block).await;
                assert_eq!(found, model[block as usize], "step {step}, block {block}");
            }
        }
    }
    client.flush().await.unwrap();
    volume.validate().unwrap();
    for block in 0..64 {
        assert_eq!(store.durable(block), model[block as usize], "block {block}");
    }
}

/// Reads are what the store has or what was written since; never what was lost before.
#[tokio::test]
async fn write_through_with_losses_at_any_moment() {
    let seed = common::seed();
    let mut random = common::Random::new(seed);
    let store = Losing::new();
    store.store.jitter.store(true, Ordering::SeqCst);
    let volume = open(through(), &store);
    let mut client = Client::new(&volume);
    for step in 0..3000 {
        let block = random.below(64);
        match random.below(20) {
            0 => {
                store.lose();
                let live = store.store.live();
                for block in 0..64 {
                    let found = client.read(block).await;
                    assert_eq!(found, live[(block * BLOCK) as usize], "step {step}, block {block}");
                }
                assert!(is_told(&client.flush().await));
            }
            1 => client.flush().await.unwrap(),
            2..10 => client.write(block, random.below(255) as u8).await,
            _ => {
                let (found, live) = (client.read(block).await, store.store.live());
                assert_eq!(found, live[(block * BLOCK) as usize], "step {step}, block {block}");
            }
        }
    }
    volume.validate().unwrap();
}

/// A server that was started again does not know what it wrote before, and what of that is durable.
#[tokio::test]
async fn what_was_written_before_a_start_may_be_lost_until_the_first_flush() {
    for write in [Write::Through, Write::Back] {
        let store = Losing::new();
        store.flushes.hold();
        // By the process before this one.
        let images = |change: &dyn Fn(&mut Vec<u8>)| {
            change(&mut store.store.inner.lock().unwrap().live);
        };
        images(&|live| live[BLOCK as usize..2 * BLOCK as usize].fill(7));
        let volume = open(VolumeConfig { write, ..through() }, &store);
        let mut client = Client::new(&volume);
        assert_eq!(client.read(1).await, 7);
        store.lose();
        assert_eq!(client.read(1).await, 0, "{write:?}: the copy is of what is gone");
        // From the first flush on it is durable.
        store.flushes.release();
        settle().await;
        images(&|live| live[2 * BLOCK as usize..3 * BLOCK as usize].fill(8));
        assert_eq!(client.read(2).await, 8);
        let before = store.reads();
        store.losses.fetch_add(1, Ordering::SeqCst);
        store.calls.lock().unwrap().iter().for_each(|call| call());
        assert_eq!((client.read(2).await, store.reads()), (8, before), "{write:?}");
        volume.validate().unwrap();
    }
}
