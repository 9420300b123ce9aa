//! What memory that goes from one volume to another would be worth.

use undercroft_text::Bytes;

use crate::estimate::Estimate;
use crate::figures::{Figures, State};
use crate::sentences::{Measured, amount};

/// The parts of a volume's memory that could go, with their names.
const PARTS: [(f64, &str); 3] = [(0.25, "a quarter"), (1.0 / 3.0, "a third"), (0.5, "half")];

/// The best move of memory between two volumes, in sentences. `volumes`: their names, figures and
/// measurements.
pub fn between(volumes: &[(&str, &Figures, Measured)]) -> Vec<String> {
    let known: Vec<_> = volumes.iter().filter_map(Curve::of).collect();
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
        false => "nothing".to_owned(),
    };
    vec![format!(
        "Volume {from} would lose {lost} if {part} of its memory ({}) went to {to}, which would \
         save {} disk reads a second there.",
        Bytes(bytes),
        amount(&gain)
    )]
}

/// The disk reads a second that a volume saves by its size.
struct Curve<'a> {
    name: &'a str,
    block_bytes: f64,
    /// Bytes of its cache today.
    today: f64,
    /// Sizes in bytes, rising, and what is saved there.
    points: Vec<(f64, Estimate)>,
}

impl<'a> Curve<'a> {
    fn of((name, figures, measured): &(&'a str, &'a Figures, Measured)) -> Option<Self> {
        let today = figures.today().filter(|_| figures.state == State::Ready)?;
        let block_bytes = f64::from(measured.block_bytes);
        let of_today = figures
            .cells
            .iter()
            .filter(|cell| (&cell.policy, &cell.placement) == (&today.policy, &today.placement));
        let mut points: Vec<_> = of_today
            .map(|cell| {
                let bytes = f64::from(cell.blocks) * block_bytes;
                (bytes, cell.saved.times(measured.reads_per_s))
            })
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let today = f64::from(today.blocks) * block_bytes;
        Some(Self { name, block_bytes, today, points })
    }

    /// What is saved with so many bytes: on the straight line between the sizes beside it, and
    /// beyond the last one no more than there.
    fn at(&self, bytes: f64) -> Estimate {
        let next = self.points.iter().position(|(size, _)| *size >= bytes);
        let Some(next) = next else {
            return self.points.last().map(|last| last.1).unwrap_or_default();
        };
        let (end, after) = self.points[next];
        let Some(before) = next.checked_sub(1) else { return after };
        let (start, before) = self.points[before];
        let share = (bytes - start) / (end - start);
        let between = |from: f64, to: f64| from + share * (to - from);
        Estimate {
            value: between(before.value, after.value),
            error: between(before.error, after.error),
        }
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
    fn of(from: &Curve<'a>, to: &Curve<'a>, (share, part): (f64, &'static str)) -> Self {
        let bytes = (from.today * share / from.block_bytes).floor() * from.block_bytes;
        let loss = from.at(from.today - bytes).times(-1.0);
        let gain = to.at(to.today + bytes);
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
            ["Volume b would lose nothing if half of its memory (2MiB) went to a, which would \
              save 150 +- 5 disk reads a second there."]
        );
        assert!(between(&all[..1]).is_empty());
        let same = [("a", &gives, measured()), ("b", &gives, measured())];
        assert_eq!(between(&same), ["No memory is worth moving from one volume to another."]);
    }
}
