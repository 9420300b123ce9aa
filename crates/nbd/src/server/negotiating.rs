//! Connections that have not opened an export. They cost little, and some may belong to clients
//! that never will. Their number is limited; beyond the limit a new connection replaces the one
//! that has been negotiating longest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The negotiating connections.
pub(super) struct Negotiating {
    limit: usize,
    /// In the order of their arrival.
    places: Mutex<VecDeque<Arc<Notify>>>,
}

/// The place of one connection; dropping it frees the place.
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

    /// Adds a connection; if the limit is reached, the oldest one loses its place.
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
    /// Waits until a newer connection has taken the place.
    pub(super) async fn is_lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.all.places().retain(|place| !Arc::ptr_eq(place, &self.lost));
    }
}
