//! Fills the only part of a device with copies, in its journal and its table, as a server would in
//! hours: for `make bench-flash`. The server has made the part (`--flash DEVICE,restart=warm`, one
//! volume of one shard that is all zeroes), and has ended since. The copies of the first blocks,
//! 1 GiB of them, have the checks of zeroes; those of others would be found damaged.
//!
//!     fill DEVICE BYTES
//!
//! Not here: the data, of which nothing is written: what reads as zeroes is good.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, Waker};
use std::{env, future, io};

use undercroft_flash::{
    Directory, Evidence, PARTS_AT, PARTS_BYTES, Parts, Slots, check_of, recover,
    slots_beside_journal,
};

/// Blocks with the checks of zeroes.
const CHECKED: u64 = 1 << 18;

/// Slots that are entered between two commits: so many records fit into a page.
const BETWEEN: u32 = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().collect();
    let [_, path, bytes] = &arguments[..] else { return Err("fill DEVICE BYTES".into()) };
    let device = OpenOptions::new().read(true).write(true).open(path)?;
    let [one, other] = PARTS_AT.map(|byte| read(&device, byte, PARTS_BYTES));
    let parts = Parts::read(&one?, &other?, bytes.parse()?);
    let [part] = parts.all() else { return Err("there is not one part".into()) };
    // As the server has them (`crates/server/src/flash/journals.rs`).
    let id = undercroft_random::hash(part.id);
    let slots = Slots::new(slots_beside_journal(part.bytes, part.block_bytes), id);
    let read_page = |byte, length| future::ready(read(&device, part.first_byte + byte, length));
    let (mut directory, stamp) = now(recover(id, slots, read_page))?;
    let stamp = stamp.ok_or("no server has ended there in order")?;

    let (zeroes, capacity) = (vec![0; part.block_bytes as usize], directory.capacity());
    let (mut full, most) = (0, directory.limit().min(2 * u64::from(capacity)));
    for block in CHECKED..most {
        // A set that is full lets others go.
        let Some((_, gone)) = directory.place(block, Evidence::Hit) else { continue };
        full += u32::from(gone.is_none());
        if full == capacity {
            break;
        }
    }
    for block in 0..CHECKED {
        let Some((slot, _)) = directory.place(block, Evidence::Hit) else { continue };
        directory.set_check(slot, check_of(block, &zeroes));
    }
    for slot in 0..capacity {
        if let Some(block) = directory.block_in(slot) {
            directory.enter(slot, block);
        }
        if slot % BETWEEN == BETWEEN - 1 || slot + 1 == capacity {
            let commit = directory.commit(stamp).ok_or("no journal")?;
            for (byte, page) in [commit.journal, commit.table] {
                device.write_all_at(&page, part.first_byte + byte)?;
            }
            directory.committed();
        }
    }
    device.sync_all()?;
    println!("{} of {capacity} slots are full", directory.entered_count());
    Ok(())
}

fn read(device: &File, byte: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    device.read_exact_at(&mut bytes, byte)?;
    Ok(bytes)
}

/// The value of a future that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> T {
    let (mut context, mut future) = (Context::from_waker(Waker::noop()), std::pin::pin!(future));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}
