//! Memory for a known number of blocks, taken at once. Arrays that grow double: they take up to
//! twice what they need, and three times while they grow.

use super::HashedCache;

impl HashedCache {
    /// Takes memory for `known` blocks, resident and remembered. More may come; then it grows as
    /// usual.
    pub(crate) fn make_room(&mut self, known: u32) {
        self.handles.make_room(known);
        self.policy.grow(known);
        if let Some(names) = self.policy.names() {
            names.reserve_exact((known as usize).saturating_sub(names.len()));
        }
    }
}
