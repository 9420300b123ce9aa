//! Programs that install a filter of system calls, which kills them at any call that they do not
//! make themselves: they live, and are followed as far as that is possible.

use super::support::Volume;
use super::{BLOCK, BLOCKS, Place, contents, program, run, shown};

/// What the program reads of the volume that it opens last, under the filter.
const OPENED_LAST: std::ops::Range<u64> = 128..192;

/// Runs the program. `before`: it reads before it installs its filter. Returns how many blocks the
/// server was told of, and how many of those were read through the descriptor opened last.
async fn told(before: bool, how: &str) -> Option<(usize, usize)> {
    let filter = program("filter")?;
    let place = Place::new();
    let served = Volume::new(BLOCKS * BLOCK, 1, "evict,demote,stat", 1).serve().await;
    let mut command = place.tracked(&filter, &served.uri.to_string());
    let before = if before { "1" } else { "0" };
    command.arg(place.file()).args([before, how]).env("UNDERCROFT_BYPASS", before);
    let output = run(command).await;
    assert!(output.status.success(), "{how}, {before}: {}{}", shown(&output), place.log());
    let told = contents::told(&served);
    let last = told.iter().filter(|(block, _)| OPENED_LAST.contains(block)).count();
    Some((told.len(), last))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_under_its_own_filter_lives_and_is_followed() {
    for how in ["prctl", "seccomp", "refused"] {
        let Some((_, last)) = told(true, how).await else { return };
        assert!(last > 0, "{how}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_of_all_threads_ends_the_sender_before() {
    for how in ["threads", "twice", "strict", "fork"] {
        let Some((all, last)) = told(true, how).await else { return };
        assert!(all > 0 && last == 0, "{how}: {all}, {last}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_filter_nothing_begins() {
    for how in ["prctl", "threads", "fork", "strict"] {
        let Some((all, _)) = told(false, how).await else { return };
        assert_eq!(all, 0, "{how}");
    }
}
