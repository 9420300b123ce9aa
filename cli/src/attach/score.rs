//! How well a tracker knows the cache that it watches: what it believes against what the database
//! itself says, page by page.
//!
//! Databases go on while they are asked, so what is compared is what stood still meanwhile: the
//! tracker is read before and after. Where the pages are on the volume is asked of the file system.
//!
//! A page that a database makes in a frame, without reading it, cannot be known before it is
//! written. Such pages are counted apart; one can also wait until there are none.

mod frames;
mod innodb;
mod postgres;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use frames::Frames;
use serde::Serialize;

use crate::error::Error;
use crate::table::{bytes, percent};

/// What is told apart on the volume, in bytes. Pages of databases are multiples of it.
const GRANULE: u64 = 4096;

/// How long a quiet moment is waited for, and how often it is looked for.
const QUIET_WITHIN: Duration = Duration::from_secs(60);
const QUIET_AGAIN: Duration = Duration::from_secs(1);

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
    /// Whether it was changed, or made, and is not written yet.
    is_unwritten: bool,
    /// Whether it is only written when it leaves, as those of temporary tables are.
    is_temporary: bool,
}

/// What a database said of its cache.
#[derive(Debug, Default, PartialEq)]
struct Pool {
    pages: Vec<Page>,
    /// Frames that hold no page, by their numbers.
    free: HashSet<u64>,
    /// Bytes of a frame.
    frame_bytes: u64,
    /// All files whose pages are kept in these frames.
    files: Vec<PathBuf>,
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
    /// Believed, likewise, and of a file whose pages the database keeps in other caches, about
    /// which it says nothing: not compared.
    pub(crate) other_files: u64,
    /// Believed, and the frame holds another page.
    pub(crate) wrong: u64,
    /// In the cache, and not believed.
    pub(crate) unknown: u64,
    /// In the cache, not believed, and not written since it was changed: it was made there.
    pub(crate) unwritten: u64,
    /// In the cache, not believed, and of a temporary table: it is written only when it leaves.
    pub(crate) temporary: u64,
    /// In the cache, but in a file that is on none of the volumes.
    pub(crate) untracked: u64,
    /// In the cache, and at a place of its file that has none on the volume yet, because the file
    /// system chooses it when it writes: nobody can know of these.
    pub(crate) unallocated: u64,
    /// What came or went while the database was asked: not compared.
    pub(crate) moving: u64,
    /// right / (right + wrong + elsewhere + in free frames).
    pub(crate) precision_with_free_frames: f64,
    /// right / (right + wrong + elsewhere).
    pub(crate) precision: f64,
    /// right / (right + unknown).
    pub(crate) recall: f64,
}

impl Score {
    /// All that the database says it has on volumes, and that did not move.
    fn present(&self) -> u64 {
        self.right + self.unknown + self.unwritten + self.temporary + self.unallocated
    }
}

/// Where a byte of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the volume of this number, at this byte.
    On(u32, u64),
    /// Nowhere yet, in a file of a volume.
    Unallocated,
    /// On none of the volumes.
    Elsewhere,
}

/// Where files are on the volumes.
pub(crate) trait Places {
    /// Where byte `offset` of a file is.
    fn locate(&mut self, file: &Path, offset: u64) -> Place;

    /// All that a file takes of the volumes: the volume's number, and the bytes there.
    fn pieces(&mut self, file: &Path) -> Vec<(u32, Range<u64>)>;

    /// Files may have grown since they were asked for.
    fn forget(&mut self);
}

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
        ("other files", score.other_files, "believed; of other caches of it, which are not asked"),
        ("unknown", score.unknown, "there, and not believed"),
        ("unwritten", score.unwritten, "likewise, but made there and not written yet"),
        ("temporary", score.temporary, "likewise, of temporary tables"),
        ("untracked", score.untracked, "there, and on none of the volumes"),
        ("unallocated", score.unallocated, "there, and without a place on the volume yet"),
        ("moving", score.moving, "came or went meanwhile, not compared"),
    ];
    for (name, granules, what) in rows {
        writeln!(out, "{name:<15} {:>12}  {what}", bytes(granules * GRANULE))?;
    }
    let (precision, all) = (percent(score.precision), percent(score.precision_with_free_frames));
    writeln!(out, "precision       {precision:>12}  with free frames {all}")?;
    writeln!(out, "recall          {:>12}", percent(score.recall))?;
    if score.unallocated > 0 {
        writeln!(
            out,
            "Of {} in the cache these figures are about {}; the {} that the file system has not \
             given a place yet are in neither. `sync` makes it do so; then ask again.",
            bytes(score.present() * GRANULE),
            bytes((score.right + score.unknown) * GRANULE),
            bytes(score.unallocated * GRANULE)
        )?;
    }
    Ok(())
}

/// Asks a database through its own client program, and compares. `read` gives what the tracker
/// believes, now. With `when_quiet`, waits until nothing moves and all that changed is written.
///
/// # Errors
/// Says which program failed, and what it said; or what was not quiet.
pub(crate) fn score(
    client: &[String],
    when_quiet: bool,
    mut read: impl FnMut() -> Result<Vec<Believed>, String>,
    places: &mut dyn Places,
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
    let mut last = ask(client)?;
    let end = Instant::now() + QUIET_WITHIN;
    loop {
        let before = read()?;
        let pool = ask(client)?;
        let score = compare(&before, &pool, &read()?, places);
        let waits = |page: &&Page| page.is_unwritten && !page.is_temporary;
        let unwritten = pool.pages.iter().filter(waits).count();
        if !when_quiet || unwritten == 0 && score.moving == 0 && pool == last {
            return Ok(score);
        }
        if Instant::now() > end {
            return Err(format!(
                "not quiet within {} s: {unwritten} pages are changed and not written, {} of its \
                 cache moved. Stop the load; to have InnoDB write, set global \
                 innodb_max_dirty_pages_pct=0; or ask without --when-quiet",
                QUIET_WITHIN.as_secs(),
                bytes(score.moving * GRANULE),
            ));
        }
        last = pool;
        places.forget();
        std::thread::sleep(QUIET_AGAIN);
    }
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

/// What the files of a database's frames take of the volumes.
struct Extent(Vec<(u32, Range<u64>)>);

impl Extent {
    fn new(files: &[PathBuf], places: &mut dyn Places) -> Extent {
        let mut pieces: Vec<_> = files.iter().flat_map(|file| places.pieces(file)).collect();
        pieces.sort_unstable_by_key(|(volume, bytes)| (*volume, bytes.start));
        Extent(pieces)
    }

    fn has(&self, (volume, granule): Granule) -> bool {
        let byte = granule * GRANULE;
        let after = self.0.partition_point(|piece| (piece.0, piece.1.start) <= (volume, byte));
        let piece = after.checked_sub(1).map(|at| &self.0[at]);
        piece.is_some_and(|piece| piece.0 == volume && piece.1.contains(&byte))
    }
}

fn compare(before: &[Believed], pool: &Pool, after: &[Believed], places: &mut dyn Places) -> Score {
    let (before, after) = (granules(before), granules(after));
    let stood = |granule: &Granule| before.get(granule) == after.get(granule);
    let mut score = Score::default();
    let mut present = HashSet::new();
    let mut frames = Frames::new(pool);
    let filled: HashSet<u64> = pool.pages.iter().map(|page| page.frame).collect();
    for page in &pool.pages {
        for from in (0..page.bytes).step_by(GRANULE as usize) {
            let (volume, byte) = match places.locate(&page.file, page.offset + from) {
                Place::On(volume, byte) => (volume, byte),
                Place::Unallocated => {
                    score.unallocated += 1;
                    continue;
                }
                Place::Elsewhere => {
                    score.untracked += 1;
                    continue;
                }
            };
            let granule = (volume, byte / GRANULE);
            present.insert(granule);
            if !stood(&granule) {
                score.moving += 1;
            } else if let Some(&address) = before.get(&granule) {
                score.right += 1;
                frames.learn(page.frame, address - from.min(address));
            } else if page.is_unwritten {
                *(if page.is_temporary { &mut score.temporary } else { &mut score.unwritten }) += 1;
            } else {
                score.unknown += 1;
            }
        }
    }
    let extent = Extent::new(&pool.files, places);
    for (granule, &address) in before.iter().filter(|(granule, _)| !present.contains(*granule)) {
        if !stood(granule) {
            score.moving += 1;
            continue;
        }
        let mut frame = frames.at(address);
        let counted = if frame.clone().any(|frame| pool.free.contains(&frame)) {
            &mut score.in_free_frames
        } else if frame.any(|frame| filled.contains(&frame)) {
            &mut score.wrong
        } else if extent.has(*granule) {
            &mut score.elsewhere
        } else {
            &mut score.other_files
        };
        *counted += 1;
    }
    let compared = score.right + score.wrong + score.elsewhere;
    score.believed = compared + score.in_free_frames + score.other_files;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    score.precision_with_free_frames = share(score.right, compared + score.in_free_frames);
    score.precision = share(score.right, compared);
    score.recall = share(score.right, score.right + score.unknown);
    score
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 4 * GRANULE;

    fn believed(address: u64, offset: u64) -> Believed {
        Believed { address, volume: 0, offset, bytes: FRAME }
    }

    fn page(offset: u64, frame: u64) -> Page {
        let (is_unwritten, is_temporary) = (false, false);
        Page { file: "a".into(), offset, bytes: FRAME, frame, is_unwritten, is_temporary }
    }

    /// One file that is the volume, up to byte 9 * FRAME, and has no place behind that.
    struct OneFile;

    impl Places for OneFile {
        fn locate(&mut self, file: &Path, byte: u64) -> Place {
            match byte < 9 * FRAME {
                _ if file != Path::new("a") => Place::Elsewhere,
                true => Place::On(0, byte),
                false => Place::Unallocated,
            }
        }

        fn pieces(&mut self, file: &Path) -> Vec<(u32, Range<u64>)> {
            assert_eq!(file, Path::new("a"));
            vec![(0, 8 * FRAME..9 * FRAME), (0, 0..8 * FRAME)]
        }

        fn forget(&mut self) {}
    }

    #[test]
    fn what_is_believed_is_compared_with_what_is_there() {
        const BASE: u64 = 1 << 40;
        let frame = |number: u64| BASE + number * FRAME;
        let made = Page { is_unwritten: true, ..page(3 * FRAME, 7) };
        let pool = Pool {
            pages: vec![
                page(0, 0),
                Page { is_unwritten: true, ..page(FRAME, 1) },
                page(6 * FRAME, 4),
                page(5 * FRAME, 5),
                Page { file: "b".into(), ..page(0, 6) },
                page(9 * FRAME, 9),
                page(10 * FRAME, 10),
                made,
            ],
            free: [2, 3].into(),
            frame_bytes: FRAME,
            files: vec!["a".into()],
        };
        let before = vec![
            believed(frame(0), 0),
            believed(frame(1), FRAME),
            believed(frame(2), 2 * FRAME),
            believed(frame(4), 4 * FRAME),
            believed(frame(5), 5 * FRAME),
            believed(1 << 20, 7 * FRAME),
            believed(2 << 20, 20 * FRAME),
            // Of another file, but in a frame.
            believed(frame(7), 21 * FRAME),
            believed(frame(8), 8 * FRAME),
        ];
        let after = before[..8].to_vec();
        let score = compare(&before, &pool, &after, &mut OneFile);
        assert_eq!((score.right, score.believed), (12, 32));
        assert_eq!((score.in_free_frames, score.wrong), (4, 8));
        assert_eq!((score.elsewhere, score.other_files), (4, 4));
        assert_eq!((score.unknown, score.unwritten), (4, 4));
        assert_eq!((score.untracked, score.moving), (4, 4));
        assert_eq!(score.unallocated, 8);
        assert_eq!((score.precision, score.recall), (12.0 / 24.0, 12.0 / 16.0));
        assert_eq!(score.precision_with_free_frames, 12.0 / 28.0);
        let mut said = Vec::new();
        print(&mut said, &score).unwrap();
        let said = String::from_utf8(said).unwrap();
        let end = "Of 112 KiB in the cache these figures are about 64 KiB; the 32 KiB that";
        assert!(said.contains(end), "{said}");
        let empty = compare(&[], &pool, &[], &mut OneFile);
        assert_eq!((empty.unknown, empty.unwritten), (12, 8));
        assert_eq!((empty.recall, empty.precision), (0.0, 0.0));
        let page = Page { is_unwritten: true, is_temporary: true, ..page(3 * FRAME, 7) };
        let pool = Pool { pages: vec![page], ..Pool::default() };
        let temporary = compare(&[], &pool, &[], &mut OneFile);
        assert_eq!((temporary.temporary, temporary.unwritten), (4, 0));
    }
}
