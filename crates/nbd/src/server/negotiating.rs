//! Connections that have not opened an export yet. They cost little, and cannot be told from those
//! of a client that never will: there may be so many, and who comes when there are takes the place
//! of the one that has been negotiating for longest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The places.
pub(super) struct Negotiating {
    limit: usize,
    /// In the order of their arrival.
    places: Mutex<VecDeque<Arc<Notify>>>,
}

/// One of them, given up when this is dropped.
pub(super) struct Place<'a> {
    all: &'a Negotiating,
    lost: Arc<Notify>,
}

impl Negotiating {
    pub(super) fn new(limit: usize) -> Negotiating {
        Negotiating { limit: limit.max(1), places: Mutex::default() }
    }

    fn places(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more, at the cost of the oldest if there are enough.
    pub(super) fn enter(&self) -> Place<'_> {
        let lost = Arc::new(Notify::new());
        let mut places = self.places();
        if places.len() >= self.limit {
            if let Some(oldest) = places.pop_front() {
                oldest.notify_one();
            }
        }
        places.push_back(Arc::clone(&lost));
        Place { all: self, lost }
    }
}

impl Place<'_> {
    /// Waits until somebody else has taken it.
    pub(super) async fn is_lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.all.places().retain(|place| !Arc::ptr_eq(place, &self.lost));
    }
}
