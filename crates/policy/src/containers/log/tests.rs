//! Compares several logs with lists, with some searches; and helpers for tests of logs.

use super::{Entry, Log, Places};

impl<D> Log<D> {
    /// Starts the positions of an empty log at `position`; near the maximum they wrap around soon.
    pub(crate) fn start_at(&mut self, position: u32) {
        (self.oldest, self.scanned, self.end, self.limit) =
            (position, position, position, position);
        self.cursor = position;
    }

    /// Whether compaction is running.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }
}

/// Lists and slots in full; only a few slots are allowed.
struct Seats(Vec<Option<(u32, u32)>>);

impl Places for Seats {
    const SLOTS: u32 = 128;

    fn is_at(&self, entry: Entry, list: u32, slot: u32) -> bool {
        self.0[entry as usize] == Some((list, slot))
    }

    fn put(&mut self, entry: Entry, list: u32, slot: u32) {
        self.0[entry as usize] = Some((list, slot));
    }

    fn shift(&mut self, entry: Entry, list: u32, from: u32, to: u32) -> bool {
        let is_there = self.is_at(entry, list, from);
        if is_there {
            self.put(entry, list, to);
        }
        is_there
    }
}

/// Entries move between three logs at random. In some phases nearly all are in one log, which
/// reaches its largest length and holds up to all but one of its slots.
#[test]
fn several_agree_with_lists() {
    let mut x = 7_u64;
    for (entries, start) in [(5, 0), (60, u32::MAX - 3000), (127, u32::MAX - 30_000)] {
        let mut seats = Seats(vec![None; entries]);
        let mut logs: [Log<u64>; 3] = [(0, 2), (1, 4), (2, 2)].map(|(l, s)| Log::new(l, s));
        logs.iter_mut().for_each(|log| log.start_at(start));
        let mut model: [Vec<(Entry, u64)>; 3] = Default::default();
        let mut is_wanted = vec![false; entries];
        let mut found = 0;
        for step in 0..40_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let entry = (x >> 33) as u32 % entries as u32;
            let to = (x >> 20) as usize % 3;
            let to = if x >> 61 == 0 { to } else { step / 5000 % 3 };
            if x >> 56 & 7 == 0 {
                let front = logs[to].front_with(&seats);
                assert_eq!(front, model[to].first().copied());
                if let Some((front, _)) = front {
                    model[to].remove(0);
                    assert_eq!(logs[to].pop(&seats), Some(front));
                    seats.0[front as usize] = None;
                    logs[to].front(&seats);
                }
                continue;
            }
            if let Some((list, slot)) = seats.0[entry as usize] {
                let from = list as usize;
                let at = model[from].iter().position(|it| it.0 == entry).unwrap();
                model[from].remove(at);
                let was_front = logs[from].may_be_front(slot);
                assert!(was_front || at > 0);
                // A stale place in the same log is harmless during compaction.
                if from == to && x >> 40 & 1 == 0 {
                    logs[to].renew(&mut seats, slot, entry, x);
                    model[to].push((entry, x));
                } else {
                    seats.0[entry as usize] = None;
                    logs[from].remove(slot);
                }
                if was_front {
                    logs[from].front(&seats);
                }
            }
            if seats.0[entry as usize].is_none() && x >> 50 & 15 > 0 {
                logs[to].push(&mut seats, entry, x);
                model[to].push((entry, x));
            }
            // Some entries start to match, which the log is told; most that were found stop
            // matching.
            if x >> 44 & 3 == 0 {
                if let Some((list, slot)) = seats.0[entry as usize].filter(|_| x >> 30 & 3 == 0) {
                    is_wanted[entry as usize] = true;
                    logs[list as usize].search_again_from(&seats, slot);
                }
                let window = (x >> 24) as u32 % (entries as u32 + 2);
                let wanted = |&(entry, _): &(Entry, u64)| is_wanted[entry as usize];
                let first = model[to].iter().take(window as usize).copied().find(wanted);
                let ours = logs[to].search(&seats, window, |entry| is_wanted[entry as usize]);
                assert_eq!(ours, first.map(|(entry, _)| entry), "window {window}");
                found += u32::from(ours.is_some());
                if let Some(entry) = ours.filter(|_| x >> 28 & 3 > 0) {
                    is_wanted[entry as usize] = false;
                }
                assert_eq!(logs[to].back(&seats), model[to].last().map(|&(entry, _)| entry));
            }
            for (log, list) in logs.iter().zip(&model) {
                assert!(log.iter(&seats).eq(list.iter().copied()));
                log.check(&seats).unwrap();
            }
        }
        assert!(found > 100, "{found}");
        assert!(logs.iter().all(|log| log.slots.len() <= Seats::SLOTS as usize));
    }
}
