//! Slots for contents: claimed once, taken once, bounded, and free again when their process is
//! gone; and heads, which belong to the block that a frame has.

use undercroft_tracker::GRANULE;
use undercroft_tracker::contents::{Contents, Ticket};
use undercroft_tracker::segment::Segment;
use undercroft_tracker::segment::layout::SLOTS;
use undercroft_tracker::table::{HEAD, Key, Place, Table};

use crate::{Nobody, Random};

type Bytes = [u8; GRANULE as usize];

fn segment() -> Segment {
    let segment = Segment::anonymous(1 << 20).unwrap();
    segment.fill_contents().unwrap();
    segment
}

fn fill(contents: &Contents<'_>, ticket: Ticket, word: u64) {
    for at in contents.content(ticket) {
        at.store(word, std::sync::atomic::Ordering::Relaxed);
    }
}

fn taken(contents: &Contents<'_>, ticket: Ticket) -> Option<u64> {
    let mut bytes: Bytes = [0; GRANULE as usize];
    contents.take(ticket, &mut bytes).then(|| {
        let word = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes.to_vec(), word.to_ne_bytes().repeat(bytes.len() / 8));
        word
    })
}

#[test]
fn a_content_is_taken_once() {
    let segment = segment();
    let contents = Contents::new(&segment);
    let tickets: Vec<_> = (0..5).map(|_| contents.claim(1).unwrap()).collect();
    tickets.iter().zip(70..).for_each(|(ticket, word)| fill(&contents, *ticket, word));
    for (ticket, word) in tickets.iter().zip([70, 71, 72, 73, 74]).rev() {
        assert_eq!(Ticket::from_word(ticket.word()), Some(*ticket));
        assert_eq!(taken(&contents, *ticket), Some(word));
        assert_eq!(taken(&contents, *ticket), None);
    }
    assert!(contents.is_empty());
}

#[test]
fn slots_run_out_and_come_back() {
    let segment = segment();
    let contents = Contents::new(&segment);
    let mut random = Random::seeded();
    let mut held: Vec<(Ticket, u64)> = Vec::new();
    for word in 0..50_000 {
        if random.below(100) < 55 {
            if let Some(ticket) = contents.claim(1) {
                fill(&contents, ticket, word);
                held.push((ticket, word));
            }
        } else if !held.is_empty() {
            let (ticket, word) = held.swap_remove(random.below(held.len() as u64) as usize);
            if random.one_in(3) {
                contents.free(ticket);
            } else {
                assert_eq!(taken(&contents, ticket), Some(word));
            }
        }
        assert!(held.len() <= SLOTS);
    }
    assert_eq!(contents.len(), held.len());
    assert!(held.len() > SLOTS / 2, "{} in use", held.len());
}

#[test]
fn slots_of_dead_processes_are_free_after_a_while() {
    let segment = segment();
    let contents = Contents::new(&segment);
    let old: Vec<_> = std::iter::from_fn(|| contents.claim(1_000_000)).collect();
    assert_eq!(old.len(), SLOTS);
    contents.free_old(2_000_000);
    assert_eq!(contents.claim(2_000_000), None, "they may still be needed");
    contents.free_old(60_000_000);
    let new = contents.claim(60_000_000).unwrap();
    fill(&contents, new, 9);
    // Whoever was so slow has nothing any more, and does not disturb.
    for ticket in old {
        contents.free(ticket);
        assert_eq!(taken(&contents, ticket), None);
    }
    assert_eq!(taken(&contents, new), Some(9));
}

#[test]
fn a_head_is_that_of_the_block_in_the_frame() {
    let segment = segment();
    let table = Table::new(&segment);
    let place = |frame: u64| Place::new(0, 0x10_0000 + frame * GRANULE).unwrap();
    let block = |number| Key::new(1, number).unwrap();
    let head = |byte| Some([byte; HEAD]);
    let held = |frame| table.held(place(frame)).map(|(block, head)| (block.granule(), head));
    assert_eq!(held(0), None);
    table.read(place(0), block(5), &mut Nobody);
    assert_eq!(held(0), Some((5, None)), "it is not known yet");
    table.set_head(place(0), block(5), head(1));
    assert_eq!(held(0), Some((5, head(1))));
    // Another block in the frame has another head, or none.
    table.read(place(0), block(6), &mut Nobody);
    assert_eq!(held(0), Some((6, None)));
    table.set_head(place(0), block(5), head(2));
    assert_eq!(held(0), Some((6, None)), "block 5 is in no frame");
    table.set_head(place(0), block(6), head(3));
    // Written from elsewhere, the frame that holds it has the new head.
    table.write(place(9), block(6), false, &mut Nobody);
    table.set_head(place(9), block(6), head(4));
    assert_eq!(held(0), Some((6, head(4))));
    assert_eq!(held(9), None);
    // It is unknown from now on.
    table.set_head(place(0), block(6), None);
    assert_eq!(held(0), Some((6, None)));
}
