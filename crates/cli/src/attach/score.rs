//! How well a tracker knows the cache that it watches: what it believes against what the database
//! itself says, page by page.
//!
//! Databases go on while they are asked, so what is compared is what stood still meanwhile: the
//! tracker is read before and after. Where the pages are on the volume is asked of the file system.

mod innodb;
mod postgres;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::error::Error;
use crate::table::{bytes, percent};

/// What is told apart on the volume, in bytes. Pages of databases are multiples of it.
const GRANULE: u64 = 4096;

/// A piece of a volume that the tracker believes to be in the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Believed {
    /// Where in the memory.
    pub(crate) address: u64,
    /// Number of the volume.
    pub(crate) volume: u32,
    /// Where on the volume, in bytes.
    pub(crate) offset: u64,
    /// How much.
    pub(crate) bytes: u64,
}

/// A page that a database says it has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    file: PathBuf,
    offset: u64,
    bytes: u64,
    /// Number of the frame that it is in.
    frame: u64,
}

/// What a database said of its cache.
#[derive(Debug, Default)]
struct Pool {
    pages: Vec<Page>,
    /// Frames that hold no page, by their numbers.
    free: HashSet<u64>,
    /// Bytes of a frame.
    frame_bytes: u64,
}

/// The result. Counts are granules of 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Score {
    /// Believed to be in the cache, and so before and after the database was asked.
    pub(crate) believed: u64,
    /// Believed and there.
    pub(crate) right: u64,
    /// Believed, and in a frame that has been freed since: it shows when the frame is used again.
    pub(crate) in_free_frames: u64,
    /// Believed, and in memory of which no page of the database is known nearby.
    pub(crate) elsewhere: u64,
    /// Believed, and the frame holds another page.
    pub(crate) wrong: u64,
    /// In the cache, and not believed.
    pub(crate) unknown: u64,
    /// In the cache, but in a file that is on none of the volumes.
    pub(crate) untracked: u64,
    /// What came or went while the database was asked: not compared.
    pub(crate) moving: u64,
    /// right / believed.
    pub(crate) precision_with_free_frames: f64,
    /// right / (believed - in free frames).
    pub(crate) precision: f64,
    /// right / (right + unknown).
    pub(crate) recall: f64,
}

/// Where byte `offset` of a file is: the volume's number, and the byte there; none if on none.
pub(crate) type Locate<'a> = dyn FnMut(&std::path::Path, u64) -> Option<(u32, u64)> + 'a;

/// As people read it.
pub(crate) fn print(out: &mut impl Write, score: &Score) -> Result<(), Error> {
    let rows = [
        ("right", score.right, "believed to be in the cache, and there"),
        (
            "in free frames",
            score.in_free_frames,
            "believed; the frame is free and not yet used again",
        ),
        ("wrong", score.wrong, "believed; the frame holds something else"),
        ("elsewhere", score.elsewhere, "believed; not in memory that is known to be a frame"),
        ("unknown", score.unknown, "there, and not believed"),
        ("untracked", score.untracked, "there, and on none of the volumes"),
        ("moving", score.moving, "came or went meanwhile, not compared"),
    ];
    for (name, granules, what) in rows {
        writeln!(out, "{name:<15} {:>12}  {what}", bytes(granules * GRANULE))?;
    }
    let (precision, all) = (percent(score.precision), percent(score.precision_with_free_frames));
    writeln!(out, "precision       {precision:>12}  with free frames {all}")?;
    writeln!(out, "recall          {:>12}", percent(score.recall))?;
    Ok(())
}

/// Asks a database through its own client program, and compares. `read` gives what the tracker
/// believes, now.
///
/// # Errors
/// Says which program failed, and what it said.
pub(crate) fn score(
    client: &[String],
    mut read: impl FnMut() -> Result<Vec<Believed>, String>,
    locate: &mut Locate<'_>,
) -> Result<Score, String> {
    let name = client.first().map_or("", |name| name.rsplit('/').next().unwrap_or(name));
    let ask = match name {
        "mariadb" | "mysql" => innodb::pool,
        "psql" => postgres::pool,
        _ => {
            let why = "after --, give the database's client with its options, as `mariadb -uroot`";
            return Err(format!("'{name}': {why}, or `psql -d DATABASE` of its superuser"));
        }
    };
    // The first time brings in what the question itself takes.
    ask(client)?;
    let before = read()?;
    let pool = ask(client)?;
    Ok(compare(&before, &pool, &read()?, locate))
}

/// Runs the client with an SQL statement: its rows, columns apart by tabs.
fn query(client: &[String], options: &[&str], sql: &str) -> Result<Vec<Vec<String>>, String> {
    let (program, given) = client.split_first().ok_or("no client program")?;
    let mut command = Command::new(program);
    command.args(given).args(options).arg(sql).stdin(Stdio::null());
    // Not the client is to be watched.
    command.env_remove("LD_PRELOAD");
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{program}: {}: {}", output.status, said.trim()));
    }
    let rows = String::from_utf8_lossy(&output.stdout);
    Ok(rows.lines().map(|row| row.split('\t').map(str::to_owned).collect()).collect())
}

/// A column of a row as a number.
fn number(row: &[String], column: usize) -> Result<u64, String> {
    let text = row.get(column).map_or("", String::as_str);
    text.parse().map_err(|_| format!("the database says '{text}' where a number should be"))
}

/// A granule of a volume.
type Granule = (u32, u64);

fn granules(believed: &[Believed]) -> HashMap<Granule, u64> {
    let each = believed.iter().flat_map(|piece| {
        (0..piece.bytes / GRANULE).map(|index| {
            let from = index * GRANULE;
            ((piece.volume, (piece.offset + from) / GRANULE), piece.address + from)
        })
    });
    each.collect()
}

fn compare(before: &[Believed], pool: &Pool, after: &[Believed], locate: &mut Locate<'_>) -> Score {
    let (before, after) = (granules(before), granules(after));
    let stood = |granule: &Granule| before.get(granule) == after.get(granule);
    let mut score = Score::default();
    let mut present = HashSet::new();
    let mut frames = Frames::new(pool);
    let filled: HashSet<u64> = pool.pages.iter().map(|page| page.frame).collect();
    for page in &pool.pages {
        for from in (0..page.bytes).step_by(GRANULE as usize) {
            let Some((volume, byte)) = locate(&page.file, page.offset + from) else {
                score.untracked += 1;
                continue;
            };
            let granule = (volume, byte / GRANULE);
            present.insert(granule);
            if !stood(&granule) {
                score.moving += 1;
            } else if let Some(&address) = before.get(&granule) {
                score.right += 1;
                frames.learn(page.frame, address - from.min(address));
            } else {
                score.unknown += 1;
            }
        }
    }
    for (granule, &address) in before.iter().filter(|(granule, _)| !present.contains(*granule)) {
        if !stood(granule) {
            score.moving += 1;
            continue;
        }
        let mut frame = frames.at(address);
        match frame.clone().any(|frame| pool.free.contains(&frame)) {
            true => score.in_free_frames += 1,
            false if frame.any(|frame| filled.contains(&frame)) => score.wrong += 1,
            false => score.elsewhere += 1,
        }
    }
    score.believed = score.right + score.in_free_frames + score.wrong + score.elsewhere;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    score.precision_with_free_frames = share(score.right, score.believed);
    score.precision = share(score.right, score.believed - score.in_free_frames);
    score.recall = share(score.right, score.right + score.unknown);
    score
}

/// Which frame is at an address, learnt from the pages that are known to both sides: frames with
/// consecutive numbers lie behind one another, in chunks.
struct Frames {
    bytes: u64,
    /// Address of a frame: its number.
    known: BTreeMap<u64, u64>,
}

impl Frames {
    fn new(pool: &Pool) -> Frames {
        Frames { bytes: pool.frame_bytes.max(1), known: BTreeMap::new() }
    }

    fn learn(&mut self, frame: u64, address: u64) {
        self.known.insert(address, frame);
    }

    /// The frame of an address, counted from the known one below it and from the one above it. At
    /// the border of a chunk these differ, and it is one of them.
    fn at(&self, address: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        /// Frames of a chunk, at most, as far as one may count.
        const NEAR: u64 = 512;
        let below = self.known.range(..=address).next_back();
        let above = self.known.range(address..).next();
        let from_below = below.and_then(|(&known, &frame)| {
            let steps = (address - known) / self.bytes;
            (steps < NEAR).then_some(frame + steps)
        });
        let from_above = above.and_then(|(&known, &frame)| {
            let steps = (known - address).div_ceil(self.bytes);
            if steps < NEAR { frame.checked_sub(steps) } else { None }
        });
        from_below.into_iter().chain(from_above.filter(|&frame| Some(frame) != from_below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FRAME: u64 = 4 * GRANULE;

    fn believed(address: u64, offset: u64) -> Believed {
        Believed { address, volume: 0, offset, bytes: FRAME }
    }

    fn page(offset: u64, frame: u64) -> Page {
        Page { file: "a".into(), offset, bytes: FRAME, frame }
    }

    #[test]
    fn what_is_believed_is_compared_with_what_is_there() {
        const BASE: u64 = 1 << 40;
        let frame = |number: u64| BASE + number * FRAME;
        let pool = Pool {
            pages: vec![
                page(0, 0),
                page(FRAME, 1),
                page(6 * FRAME, 4),
                page(5 * FRAME, 5),
                page(9 * FRAME, 6),
            ],
            free: [2, 3].into(),
            frame_bytes: FRAME,
        };
        let before = vec![
            believed(frame(0), 0),
            believed(frame(1), FRAME),
            believed(frame(2), 2 * FRAME),
            believed(frame(4), 4 * FRAME),
            believed(frame(5), 5 * FRAME),
            believed(1 << 20, 7 * FRAME),
            believed(frame(8), 8 * FRAME),
        ];
        let after = before[..6].to_vec();
        let mut locate = |file: &Path, byte: u64| {
            assert_eq!(file, Path::new("a"));
            (byte < 9 * FRAME).then_some((0, byte))
        };
        let score = compare(&before, &pool, &after, &mut locate);
        assert_eq!((score.right, score.believed), (12, 24));
        assert_eq!((score.in_free_frames, score.wrong, score.elsewhere), (4, 4, 4));
        assert_eq!((score.unknown, score.untracked, score.moving), (4, 4, 4));
        assert_eq!((score.precision, score.recall), (12.0 / 20.0, 12.0 / 16.0));
        let empty = compare(&[], &pool, &[], &mut locate);
        assert_eq!((empty.unknown, empty.recall, empty.precision), (16, 0.0, 0.0));
    }

    #[test]
    fn frames_of_several_chunks_are_told_apart() {
        let mut frames = Frames { bytes: 10, known: BTreeMap::new() };
        let at = |frames: &Frames, address| frames.at(address).collect::<Vec<_>>();
        assert!(at(&frames, 50).is_empty());
        frames.learn(3, 130);
        assert_eq!([139, 140, 120].map(|address| at(&frames, address)), [[3], [4], [2]]);
        assert!(at(&frames, 90).is_empty(), "before the first of all");
        assert!(at(&frames, 1 << 20).is_empty(), "far behind the last");
        // Five steps above lies the next number but one: another chunk begins between.
        frames.learn(5, 180);
        assert_eq!(at(&frames, 150), [5, 2]);
        assert_eq!([185, 180].map(|address| at(&frames, address)), [[5], [5]]);
    }
}
