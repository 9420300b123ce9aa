//! What of MQ shows only inside.

use super::*;
use crate::containers::period::Period;

/// Worked example `mq-adapt-1`. It reviews lifeTime more often than a cache of 2 blocks would.
#[test]
fn life_time_finds_the_distance_of_a_loop() {
    let mut mq = Mq::new(2, 8, None, 4.0);
    mq.peak_distance.as_mut().expect("adaptive by default").period = Period::new(8, 0);
    mq.grow(3);
    for entry in [0, 1, 2].repeat(4) {
        assert!(!mq.access(entry, &mut Evictions::new()));
    }
    let state = format!("{mq:?}");
    for expected in [
        "queues: [[], [], [1, 2], [], [], [], [], []], ref: {1: 4, 2: 4}",
        "life_time: 4, hist_bins_log2: {2: 6}",
    ] {
        assert!(state.contains(expected), "{state}");
    }
}
