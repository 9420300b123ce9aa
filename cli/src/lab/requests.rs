//! What the requests of a trace are like, in lines that `characterize` and `trace info` share:
//! times, rates, sizes, how many are sequential.

use undercroft_sim::characterize::{RequestReport, SizeRow};

use crate::table::{bytes, count, percent};

/// Duration and mean rates; none without times.
pub(crate) fn times(requests: &RequestReport) -> Option<String> {
    let seconds = requests.duration_s?;
    let (rate, speed) = (requests.requests_per_s?, requests.bytes_per_s?);
    let (rate, speed) = (count(rate.round() as u64), bytes(speed as u64));
    Some(format!("{seconds:.1} s; in the mean {rate} requests/s, {speed}/s"))
}

/// The mean size of requests, and the most frequent sizes.
pub(crate) fn sizes(requests: &RequestReport) -> String {
    let mean = (requests.read_bytes + requests.write_bytes) / requests.requests.max(1);
    let mut rows = requests.sizes.clone();
    rows.sort_by_key(|row| std::cmp::Reverse(row.requests));
    if rows.len() == 1 && mean == rows[0].up_to_bytes {
        return format!("{} each", bytes(mean));
    }
    let part = |row: &SizeRow| {
        let share = percent(row.requests as f64 / requests.requests.max(1) as f64);
        format!("{share} up to {}", bytes(row.up_to_bytes))
    };
    let most: Vec<_> = rows.iter().take(3).map(part).collect();
    format!("{} in the mean; most frequent: {}", bytes(mean), most.join(", "))
}

/// How many requests continue the one before, in so many devices or files.
pub(crate) fn sequential(requests: &RequestReport, spaces: usize) -> String {
    let before = match spaces {
        0 | 1 => "the last".into(),
        spaces => format!("the last to their device or file, of {},", count(spaces as u64)),
    };
    let share = percent(requests.sequential_share);
    format!("{share} of the requests begin where {before} ended")
}
