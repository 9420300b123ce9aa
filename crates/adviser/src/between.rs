//! What memory that goes from one volume to another would be worth.

use undercroft_text::Bytes;

use crate::curve::Curve;
use crate::estimate::Estimate;
use crate::figures::Figures;
use crate::sentences::{Measured, amount};

/// The parts of a volume's memory that could go, with their names.
const PARTS: [(f64, &str); 3] = [(0.25, "a quarter"), (1.0 / 3.0, "a third"), (0.5, "half")];

/// The best move of memory between two volumes, in sentences. `volumes`: their names, figures and
/// measurements.
pub fn between(volumes: &[(&str, &Figures, Measured)]) -> Vec<String> {
    let known: Vec<_> = volumes.iter().filter_map(Known::of).collect();
    if known.len() < 2 {
        return Vec::new();
    }
    let pairs = known.iter().flat_map(|from| known.iter().map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from.name != to.name);
    let moves = pairs.flat_map(|(from, to)| PARTS.map(|part| Move::of(from, to, part)));
    let worth_it = moves.filter(|one| one.net.is_above_zero() && one.gain.is_above_zero());
    let best = worth_it.max_by(|one, other| one.net.value.total_cmp(&other.net.value));
    let Some(Move { from, to, part, bytes, loss, gain, .. }) = best else {
        return vec!["No memory is worth moving from one volume to another.".to_owned()];
    };
    let lost = match loss.is_above_zero() {
        true => format!("{} disk reads a second", amount(&loss)),
        false => format!("nothing ({} disk reads a second)", amount(&loss)),
    };
    vec![format!(
        "Volume {from} would lose {lost} if {part} of its memory ({}) went to {to}, which would \
         save {} disk reads a second there.",
        Bytes(bytes),
        amount(&gain)
    )]
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

struct Move<'a> {
    from: &'a str,
    to: &'a str,
    part: &'static str,
    bytes: u64,
    loss: Estimate,
    gain: Estimate,
    net: Estimate,
}

impl<'a> Move<'a> {
    fn of(from: &Known<'a>, to: &Known<'a>, (share, part): (f64, &'static str)) -> Self {
        let block = f64::from(from.measured.block_bytes);
        let bytes = (from.curve.today() * share / block).floor() * block;
        let loss = from.at(from.curve.today() - bytes).times(-1.0);
        let gain = to.at(to.curve.today() + bytes);
        let net = gain.minus(&loss);
        Self { from: from.name, to: to.name, part, bytes: bytes as u64, loss, gain, net }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let said = between(&all);
        assert_eq!(
            said,
            ["Volume b would lose nothing (1.0 +- 2.0 disk reads a second) if half of its memory \
              (2MiB) went to a, which would \
              save 150 +- 5 disk reads a second there."]
        );
        assert!(between(&all[..1]).is_empty());
        let same = [("a", &gives, measured()), ("b", &gives, measured())];
        assert_eq!(between(&same), ["No memory is worth moving from one volume to another."]);
    }
}
