//! What is handed over: the contents of frames that are about to be overwritten, as the volume has
//! them, whatever the program has done with its frames meanwhile.

use undercroft_hints::Hint;

use super::servers::Running;
use super::support::{BLOCK, Event, Served, Volume};
use super::{BLOCKS, Place, play, program};

async fn serve(grants: &str) -> Served {
    Volume::new(BLOCKS * BLOCK, 1, grants, 1).serve().await
}

/// What the server was told, in order: blocks, and their contents if they were handed over.
pub(crate) fn told(served: &Served) -> Vec<(u64, Option<Vec<u8>>)> {
    let mut list = Vec::new();
    for event in &served.volume.disk().events {
        let Event::Hints(hints) = event else { panic!("{event:?}") };
        for hint in hints {
            match hint {
                Hint::Evict { runs, .. } => {
                    list.extend(runs.iter().flat_map(|run| run.blocks()).map(|block| (block, None)))
                }
                Hint::Demote { block, data, .. } => list.push((*block, Some(data.to_vec()))),
                Hint::ClientStat(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    list
}

/// Plays a list: the blocks that left, and whether each was handed over as the file has it.
async fn handed_over(list: &str, grants: &str) -> Option<Vec<(u64, bool)>> {
    let replay = program("replay")?;
    let place = Place::new();
    let served = serve(grants).await;
    play(&place, &replay, &served.uri.to_string(), list.to_owned()).await;
    let file = std::fs::read(place.file()).expect("it is there");
    let told = told(&served);
    let is_right = |(block, data): (u64, Option<Vec<u8>>)| {
        let start = (block * BLOCK) as usize;
        if let Some(data) = &data {
            assert_eq!(data[..], file[start..start + data.len()], "block {block}: {list}");
        }
        (block, data.is_some())
    };
    Some(told.into_iter().map(is_right).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_are_handed_over_as_the_volume_has_their_blocks() {
    for (list, expected) in [
        // Read, and overwritten.
        ("r 0 0 1\nr 0 1 1\n", vec![(0, true)]),
        // A frame that was marked as free.
        ("r 0 0 1\nm 0 0 1\nr 0 1 1\n", vec![(0, true)]),
        // Changed and written from its frame, and marked.
        ("r 0 0 1\nc 0 7 1\nw 0 0 1\nm 0 0 1\nr 0 1 1\n", vec![(0, true)]),
        // Changed and written from a copy with another head.
        ("r 0 0 1\nc 0 7 1\nv 0 0 1\nr 0 1 1\n", vec![(0, true)]),
        // Pages of two blocks, by one buffer and by two.
        ("r 0 0 2\nm 0 0 1\nr 0 2 2\n", vec![(0, true), (1, true)]),
        ("r 0 0 2\nm 0 0 1\nR 0 2 2\n", vec![(0, true), (1, true)]),
        // Over a part of a page.
        ("r 0 0 2\nr 1 2 1\n", vec![(1, true)]),
        // By libaio and io_uring over what was read before; a child reads into shared memory.
        ("r 0 0 1\na 0 1 1\n", vec![(0, true)]),
        ("r 0 0 1\nu 0 1 1\n", vec![(0, true)]),
        ("r 0 0 1\nf 0 1 1\n", vec![(0, true)]),
        // Read by libaio: the head is not known, until it is written or some time has passed.
        ("a 0 0 1\nr 0 1 1\n", vec![(0, false)]),
        ("a 0 0 1\nA 0 0 1\nr 0 1 1\n", vec![(0, true)]),
        ("a 0 0 1\ns 0 500 0\nm 0 0 1\nr 0 1 1\n", vec![(0, true)]),
        (
            "a 0 0 1\nr 0 1 1\ns 0 50 0\na 0 0 1\ns 0 500 0\nr 0 2 1\n",
            vec![(0, false), (1, true), (0, true)],
        ),
        // A read at the file position, or of a part of a block, keeps nothing.
        ("r 0 0 1\np 0 1 1\n", vec![(0, false)]),
        ("r 0 0 1\nR 0 1 1\n", vec![(0, false)]),
        // Memory that is no longer there.
        ("r 0 0 1\nx 0 0 1\nX 0 1 1\nr 1 2 1\nr 1 3 1\n", vec![(2, true)]),
    ] {
        let Some(told) = handed_over(list, "evict,demote,stat").await else { return };
        assert_eq!(told, expected, "{list}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_handed_over_to_servers_that_do_not_want_it() {
    let list = "r 0 0 1\nr 0 1 1\nr 0 2 1\n";
    let Some(told) = handed_over(list, "evict").await else { return };
    assert_eq!(told, [(0, false), (1, false)]);
}

/// The server is asked again and again: what it says last counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_are_handed_over_while_the_server_has_a_use_for_them() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let served = serve("evict,demote,stat").await;
    served.volume.disk().wants_contents = Some(false);
    let mut running = Running::connected(&replay, &place, &served).await;
    running.say("r 0 1 1\nr 0 2 1\n");
    assert!(running.until(|status| status.sent == 2).await, "{}", place.log());
    served.volume.disk().wants_contents = Some(true);
    assert!(running.until(|status| status.hands_over).await, "{}", place.log());
    running.say("r 1 3 1\nr 1 4 1\n");
    assert!(running.until(|status| status.handed_over == 1).await, "{}", place.log());
    served.volume.disk().wants_contents = Some(false);
    assert!(running.until(|status| !status.hands_over).await, "{}", place.log());
    running.say("r 1 5 1\n");
    let status = running.end().await;
    assert_eq!((status.kept, status.handed_over), (1, 1));
    let told: Vec<_> = told(&served).into_iter().map(|(n, data)| (n, data.is_some())).collect();
    assert_eq!(told, [(0, false), (1, false), (3, true), (4, false)]);
}

/// InnoDB evicts ahead into a list of free frames, which it marks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_in_marked_frames_have_left_before_the_frames_are_used_again() {
    // All of a pool, which is then found; two pages are freed, and another one is read again.
    let mut list: String = (0..BLOCKS / 4).map(|page| format!("r {0} {0} 4\n", page * 4)).collect();
    list += "s 0 3000 0\nm 0 0 1\nm 40 0 1\nr 252 252 4\ns 0 300 0\n";
    // They come back: that is not late.
    list += "r 0 40 4\nr 40 0 4\n";
    for (grants, has_content) in [("evict,demote", true), ("evict", false)] {
        let Some(mut told) = handed_over(&list, grants).await else { return };
        // Evictions that were noticed late, of the page that was read again.
        told.retain(|(block, _)| *block < 252);
        let expected: Vec<_> = (0..4).chain(40..44).map(|block| (block, has_content)).collect();
        assert_eq!(told, expected);
    }
}

/// More than there are slots, while the server does not answer: the program goes on, and what is
/// handed over is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_there_is_room_for_is_left_out() {
    let list: String =
        (0..60_000).map(|n| format!("r {} {} 1\n", n % 64, n * 7 % BLOCKS)).collect();
    let Some(told) = handed_over(&list, "evict,demote").await else { return };
    let with_content = told.iter().filter(|(_, has_content)| *has_content).count();
    assert!(with_content > 1000, "{with_content} of {}", told.len());
}
