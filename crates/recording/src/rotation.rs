//! A trace in several files, one after the other, so that a recording can go on for ever.
//!
//! A file gets its name when it is complete: when it has enough records, when it is old enough, or
//! at the end. Then the next one begins, and the oldest is deleted if there are too many. A process
//! that is killed leaves its unfinished file behind, under a name that begins with a dot; the next
//! recording into the folder deletes it.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::{Error, Meta, Record, Unit, Writer, uct};

/// Where the files are, and when one ends.
#[derive(Clone, Debug)]
pub struct RotationOptions {
    /// The folder of the files; made if it is missing. Nobody else may write traces there.
    pub folder: PathBuf,
    /// The end of each name, behind its number, with the format: `.uct.zst`.
    pub ending: String,
    /// Block size of the cache that is recorded, in bytes; it is written down only.
    pub block_bytes: u32,
    /// Whether there may be records of evictions.
    pub has_evictions: bool,
    /// Records after which a file is complete; some more if they are written together.
    pub records: NonZero<u64>,
    /// Time after which a file is complete; none: it has no limit.
    pub every: Option<Duration>,
    /// Complete files to keep; older ones are deleted.
    pub files: NonZero<u32>,
}

impl RotationOptions {
    /// Properties of the trace.
    fn meta(&self) -> Meta {
        Meta {
            format: "uct",
            unit: Unit::Bytes,
            block_bytes: Some(self.block_bytes),
            has_ops: true,
            has_time: true,
            has_buffers: false,
            has_evictions: self.has_evictions,
        }
    }
}

/// A trace that is written to several files.
pub struct Rotation {
    options: RotationOptions,
    /// Number of the file that is written, or that comes next.
    number: u64,
    /// The file that is written, and the records in it.
    open: Option<(Box<dyn Writer>, u64)>,
    /// When the file is old enough.
    due: Option<Instant>,
}

impl Rotation {
    /// Begins behind the complete files that are in the folder. No file is made before there are
    /// records.
    ///
    /// # Errors
    /// The folder, which the error names, cannot be made, read or cleaned up.
    pub fn new(options: RotationOptions) -> Result<Self, Error> {
        let mut rotation = Self { options, number: 0, open: None, due: None };
        let begun = rotation.begin();
        let folder = &rotation.options.folder;
        begun.map_err(|source| Error::Io { path: folder.clone(), source })?;
        rotation.due = rotation.next_due();
        Ok(rotation)
    }

    fn begin(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.options.folder)?;
        self.number = self.complete_ones()?.last().map_or(1, |last| last + 1);
        for name in self.names()?.filter(|name| is_unfinished(name)) {
            fs::remove_file(self.options.folder.join(name))?;
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        Instant::now().checked_add(self.options.every?)
    }

    /// Time until the file is old enough; none if it has no limit.
    pub fn left(&self) -> Option<Duration> {
        Some(self.due?.saturating_duration_since(Instant::now()))
    }

    /// Appends records, and completes the file if it has enough or is old enough. `spaces` are the
    /// names of their spaces.
    ///
    /// # Errors
    /// A file cannot be written, or one that is too many cannot be deleted. No further call may
    /// follow.
    pub fn write(&mut self, records: &[Record], spaces: &[String]) -> Result<(), Error> {
        if !records.is_empty() {
            let (mut writer, count) = match self.open.take() {
                Some(open) => open,
                None => (uct::create(&self.path(self.number), &self.options.meta())?, 0),
            };
            writer.write(records, spaces)?;
            let count = count + records.len() as u64;
            self.open = Some((writer, count));
            if count >= self.options.records.get() {
                self.complete()?;
            }
        }
        if self.left() == Some(Duration::ZERO) { self.complete() } else { Ok(()) }
    }

    /// Gives the file its name, and deletes those that are too many.
    ///
    /// # Errors
    /// Those of [`Rotation::write`].
    pub fn complete(&mut self) -> Result<(), Error> {
        self.due = self.next_due();
        let Some((writer, _)) = self.open.take() else { return Ok(()) };
        writer.finish()?;
        self.number += 1;
        let complete = self.complete_ones();
        let failed = |source| Error::Io { path: self.options.folder.clone(), source };
        let most = self.options.files.get() as usize;
        for &old in complete.map_err(failed)?.iter().rev().skip(most) {
            let path = self.path(old);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Numbers of the complete files, in order.
    fn complete_ones(&self) -> io::Result<Vec<u64>> {
        let number = |name: String| name.strip_suffix(&self.options.ending)?.parse().ok();
        let mut numbers: Vec<u64> = self.names()?.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The names of the files in the folder that are text.
    fn names(&self) -> io::Result<impl Iterator<Item = String> + use<>> {
        let entries = fs::read_dir(&self.options.folder)?.collect::<io::Result<Vec<_>>>()?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.options.folder.join(format!("{number:06}{}", self.options.ending))
    }
}

/// Whether a file is what a killed process left of the trace that it was writing.
fn is_unfinished(name: &str) -> bool {
    name.starts_with(".undercroft-") && name.ends_with(".part")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread::sleep;
    use std::time::Duration;

    use super::{Rotation, RotationOptions};
    use crate::{Op, Record};

    fn options(folder: &Path) -> RotationOptions {
        RotationOptions {
            folder: folder.to_owned(),
            ending: ".uct.zst".to_owned(),
            block_bytes: 4096,
            has_evictions: true,
            records: 100.try_into().unwrap(),
            every: None,
            files: 2.try_into().unwrap(),
        }
    }

    fn rotation(folder: &Path) -> Rotation {
        Rotation::new(options(folder)).unwrap()
    }

    const RECORD: Record = Record {
        time_ns: 0,
        op: Op::Read,
        space: 0,
        address: 0,
        length: 512,
        buffer: None,
        client: 0,
    };

    fn write(files: &mut Rotation, records: usize) {
        files.write(&vec![RECORD; records], &["db".to_owned()]).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_files_are_kept_and_their_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other.uct.zst"), b"of somebody else").unwrap();
        for _ in 0..3 {
            let mut files = rotation(folder.path());
            write(&mut files, 3);
            files.complete().unwrap();
        }
        let ending = ".1in16.uct.zst".to_owned();
        let mut sample = Rotation::new(RotationOptions { ending, ..options(folder.path()) });
        write(sample.as_mut().unwrap(), 1);
        sample.unwrap().complete().unwrap();
        let own = ["000001.1in16.uct.zst", "000002.uct.zst", "000003.uct.zst", "other.uct.zst"];
        assert_eq!(names(folder.path()), own);
    }

    #[test]
    fn what_a_killed_process_left_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let mut killed = rotation(folder.path());
        write(&mut killed, 1);
        // A process that is killed runs no destructor.
        std::mem::forget(killed);
        assert_eq!(names(folder.path()).len(), 1);
        let mut next = rotation(folder.path());
        assert_eq!(names(folder.path()), [""; 0]);
        write(&mut next, 1);
        next.complete().unwrap();
        assert_eq!(names(folder.path()), ["000001.uct.zst"]);
    }

    #[test]
    fn nothing_recorded_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = rotation(folder.path());
        write(&mut files, 0);
        files.complete().unwrap();
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn a_file_ends_after_its_records_and_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = rotation(folder.path());
        write(&mut files, 100);
        assert_eq!(names(folder.path()), ["000001.uct.zst"]);
        let every = Some(Duration::from_millis(50));
        let mut files = Rotation::new(RotationOptions { every, ..options(folder.path()) }).unwrap();
        assert!(files.left().unwrap() <= Duration::from_millis(50));
        write(&mut files, 1);
        sleep(Duration::from_millis(60));
        let begin = std::time::Instant::now();
        write(&mut files, 0);
        assert_eq!(names(folder.path()), ["000001.uct.zst", "000002.uct.zst"]);
        // The next file has its own time, and the machine may have been busy elsewhere meanwhile.
        let left = files.left().unwrap();
        assert!(left > Duration::ZERO || begin.elapsed() >= Duration::from_millis(50));
    }
}
