//! The receiving side of summaries: what is known of a neighbour that publishes.

use super::bloom::{Filter, Shape};
use super::summary::{Body, Follower, Publication, Unusable};

/// What is known from the summaries of a neighbour.
pub(super) struct Heard {
    follower: Follower,
    /// For knowledge that is one exchange old: the filter before the last publication.
    old: Option<Filter>,
    /// Whether the last publication was a whole filter.
    was_whole: bool,
}

/// The blocks of which a publication may say something new.
pub(super) enum Touched {
    /// Any block.
    All,
    /// Blocks at these positions of the filter.
    At(Vec<u32>),
}

impl Heard {
    /// For a neighbour that publishes filters of this shape; nothing is known yet. With `is_old`,
    /// it uses knowledge that is one exchange old.
    pub(super) fn new(shape: Shape, is_old: bool) -> Self {
        let follower = Follower::of_shape(shape);
        let old = is_old.then(|| follower.filter().clone());
        Self { follower, old, was_whole: true }
    }

    /// The current bits.
    pub(super) fn filter(&self) -> &Filter {
        self.follower.filter()
    }

    /// The bits that count.
    pub(super) fn believed(&self) -> &Filter {
        self.old.as_ref().unwrap_or(self.follower.filter())
    }

    /// Takes in a publication. That takes as many steps as this and the last one are long; one that
    /// is unusable takes none for the last.
    ///
    /// # Errors
    /// The publication is unusable; the knowledge is unchanged.
    pub(super) fn apply(&mut self, publication: &Publication) -> Result<Touched, Unusable> {
        let is_whole = matches!(publication.body, Body::Whole(_));
        if self.old.is_none() {
            self.follower.apply(publication)?;
            self.was_whole = is_whole;
            let changed = || Touched::At(self.follower.changed().to_vec());
            return Ok(if is_whole { Touched::All } else { changed() });
        }
        let was = self.follower.filter().shape();
        let whole_before = is_whole.then(|| self.filter().clone());
        self.follower.apply(publication)?;
        let was_whole = std::mem::replace(&mut self.was_whole, is_whole);
        let (now, changed) = (self.follower.filter(), self.follower.changed_before());
        if let Some(before) = whole_before {
            self.old = Some(before);
        } else if was_whole {
            let mut before = now.clone();
            self.follower.changed().iter().for_each(|&position| before.flip(position));
            self.old = Some(before);
        } else if let Some(old) = &mut self.old {
            // The changes of the publication before are one exchange old now.
            changed.iter().for_each(|&position| old.flip(position));
        }
        let is_other = was_whole || now.shape() != was;
        Ok(if is_other { Touched::All } else { Touched::At(changed.to_vec()) })
    }

    /// Whether the neighbour is believed to hold a block.
    pub(super) fn holds(&self, block: u64) -> bool {
        self.believed().holds(block)
    }
}
