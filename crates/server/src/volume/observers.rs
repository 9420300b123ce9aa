//! Who looks on while clients ask and tell: the recorder, and the adviser's sample. Both see
//! requests and evictions in the order in which the volume takes them, before these take effect.

use std::time::Instant;

use undercroft_cache::ClientEviction;
use undercroft_nbd::Request;

use crate::volume::Volume;
use crate::volume::clients::Caller;

impl Volume {
    /// Shows requests of a client that arrived together.
    pub(super) fn note_requests(&self, requests: &[Request], caller: Caller, arrived: Instant) {
        let at_us = || self.micros(arrived);
        if let Some(recorder) = &self.recorder {
            recorder.note(requests, self.size(), caller.client, at_us());
        }
        self.advice.tap.note(requests, &self.geometry, caller, at_us);
    }

    /// Shows evictions that a client told, `with_contents` or without.
    pub(super) fn note_evictions(&self, gone: &[ClientEviction], client: u8, with_contents: bool) {
        if let Some(recorder) = &self.recorder {
            recorder.note_evictions(gone, client);
        }
        self.advice.tap.note_evictions(gone, client, with_contents);
    }
}
