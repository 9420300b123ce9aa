//! What memory that goes from one volume to another would be worth.
//!
//! Not here: what is said of it (`sentences.rs`), and who gets memory.

use crate::curve::Curve;
use crate::estimate::Estimate;
use crate::figures::Figures;
use crate::finding::Finding;
use crate::sentences::Measured;

/// The parts of a volume's memory that could go, with their names.
const PARTS: [(f64, &str); 3] = [(0.25, "a quarter"), (1.0 / 3.0, "a third"), (0.5, "half")];

/// The best move of memory between two volumes, if at least two are known. `volumes`: their names,
/// figures and measurements.
pub fn between(volumes: &[(&str, &Figures, Measured)]) -> Option<Finding> {
    let known: Vec<_> = volumes.iter().filter_map(Known::of).collect();
    if known.len() < 2 {
        return None;
    }
    let pairs = known.iter().flat_map(|from| known.iter().map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from.name != to.name);
    let moves = pairs.flat_map(|(from, to)| PARTS.map(|part| moved(from, to, part)));
    let best = moves.flatten().max_by(|one, other| one.0.value.total_cmp(&other.0.value));
    Some(best.map_or(Finding::NoMove, |(_, best)| best))
}

/// A move, and the disk reads that it saves in a second over all, if it certainly saves any.
fn moved(
    from: &Known,
    to: &Known,
    (share, part): (f64, &'static str),
) -> Option<(Estimate, Finding)> {
    let block = f64::from(from.measured.block_bytes);
    let bytes = (from.curve.today() * share / block).floor() * block;
    let loss = from.at(from.curve.today() - bytes).times(-1.0);
    let gain = to.at(to.curve.today() + bytes);
    let net = gain.minus(&loss);
    let (from, to, bytes) = (from.name.to_owned(), to.name.to_owned(), bytes as u64);
    (net.is_above_zero() && gain.is_above_zero())
        .then_some((net, Finding::Move { from, to, part, bytes, loss, gain }))
}

/// A volume whose advice is ready.
struct Known<'a> {
    name: &'a str,
    curve: Curve,
    measured: Measured,
}

impl<'a> Known<'a> {
    fn of(&(name, figures, measured): &(&'a str, &'a Figures, Measured)) -> Option<Self> {
        let curve = Curve::of(figures, measured.block_bytes)?;
        Some(Self { name, curve, measured })
    }

    /// The disk reads a second that are saved with so many bytes.
    fn at(&self, bytes: f64) -> Estimate {
        self.curve.at(bytes).times(self.measured.reads_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sentences::Words;
    use crate::sentences::tests::{figures, measured};

    #[test]
    fn the_best_move_is_said() {
        let wants = figures(&[("lru", 512, -0.2, 0.01), ("lru", 2048, 0.3, 0.01)]);
        let gives = figures(&[
            ("lru", 256, -0.3, 0.01),
            ("lru", 512, -0.001, 0.002),
            ("lru", 2048, 0.0, 0.01),
        ]);
        let all = [("a", &wants, measured()), ("b", &gives, measured())];
        let said = |volumes| Words::of_server(&measured()).finding(&between(volumes).unwrap());
        assert_eq!(
            said(&all),
            "Volume b would lose nothing (1.0 +- 2.0 disk reads a second) if half of its memory \
             (2MiB) went to a, which would save 150 +- 5 disk reads a second there."
        );
        assert!(between(&all[..1]).is_none());
        let same = [("a", &gives, measured()), ("b", &gives, measured())];
        assert_eq!(said(&same), "No memory is worth moving from one volume to another.");
    }
}
