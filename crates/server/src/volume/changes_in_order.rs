//! Changes of the same bytes, one after the other, for a volume without a cache. A store that is
//! another server repeats a change whose answer was lost with the connection, and any store may
//! execute late what it answers late: neither may replace a change that was answered since. With a
//! cache the queues of blocks see to this.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;

use crate::lock::sleep_lock;

/// The changes under way in a volume without a cache.
#[derive(Debug, Default)]
pub(crate) struct ChangesInOrder {
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    last: u64,
    /// By order of arrival: the bytes of a change, and what is closed when it ends.
    changes: BTreeMap<u64, (Range<u64>, Arc<Semaphore>)>,
}

/// A change under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Change {
    all: Arc<ChangesInOrder>,
    number: u64,
    bytes: Range<u64>,
}

impl ChangesInOrder {
    /// Registers a change, after all that were registered before.
    pub(crate) fn begin(self: &Arc<Self>, bytes: Range<u64>) -> Change {
        let mut under_way = sleep_lock(&self.under_way);
        under_way.last += 1;
        let number = under_way.last;
        let ended = Arc::new(Semaphore::new(0));
        under_way.changes.insert(number, (bytes.clone(), ended));
        Change { all: Arc::clone(self), number, bytes }
    }
}

impl Change {
    /// Waits until all earlier changes of these bytes have ended.
    pub(crate) async fn turn(&self) {
        let mut below = self.number;
        while let Some((number, ended)) = self.earlier(below) {
            // Closed when the change ends.
            let _ = ended.acquire().await;
            // What came after it has been looked at: a change looks at each other one once.
            below = number;
        }
    }

    /// The latest change of these bytes with a number below this one, and its end.
    fn earlier(&self, below: u64) -> Option<(u64, Arc<Semaphore>)> {
        let under_way = sleep_lock(&self.all.under_way);
        let overlaps =
            |bytes: &Range<u64>| bytes.start < self.bytes.end && self.bytes.start < bytes.end;
        let mut earlier = under_way.changes.range(..below).rev();
        let (number, (_, ended)) = earlier.find(|(_, (bytes, _))| overlaps(bytes))?;
        Some((*number, Arc::clone(ended)))
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some((_, ended)) = sleep_lock(&self.all.under_way).changes.remove(&self.number) {
            ended.close();
        }
    }
}
