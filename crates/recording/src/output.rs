//! Where a written trace goes: a temporary file beside its place, compressed if its name says so,
//! and renamed when it is whole. What is interrupted leaves nothing under the real name.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::Error;

/// Level of compression: for zstd a good ratio at more than 100 MB/s.
const ZSTD_LEVEL: i32 = 3;

/// A file being written.
pub struct Output {
    path: PathBuf,
    packer: Packer,
    /// The temporary file, and the place that it will take.
    target: Option<(NamedTempFile, PathBuf)>,
}

type Sink = BufWriter<Box<dyn Write + Send>>;

enum Packer {
    Plain(Sink),
    Zstd(zstd::stream::write::Encoder<'static, Sink>),
    Gzip(flate2::write::GzEncoder<Sink>),
}

impl Output {
    /// Begins to write `path`; `-` is standard output. A device or pipe is written directly, since
    /// a rename would put a plain file in its place.
    pub fn create(path: &Path) -> Result<Output, Error> {
        let fail = |source| Error::Io { path: path.to_owned(), source };
        let extension = path.extension().and_then(|extension| extension.to_str());
        if let Some("bz2" | "xz") = extension {
            let why = "traces are written compressed by zstd or gzip: end the name in .zst or .gz";
            return Err(Error::Format(format!("{}: {why}", path.display())));
        }
        let direct = fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let (file, target): (Box<dyn Write + Send>, _) = if path.as_os_str() == "-" {
            (Box::new(io::stdout()), None)
        } else if direct {
            (Box::new(File::options().write(true).open(path).map_err(fail)?), None)
        } else {
            // A link stays a link: the file that it names is replaced.
            let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            if place.is_dir() {
                return Err(fail(io::ErrorKind::IsADirectory.into()));
            }
            let temporary = temporary(&place).map_err(fail)?;
            (Box::new(temporary.reopen().map_err(fail)?), Some((temporary, place)))
        };
        let sink = BufWriter::with_capacity(1 << 16, file);
        let packer = match extension {
            Some("zst" | "zstd") => {
                Packer::Zstd(zstd::stream::write::Encoder::new(sink, ZSTD_LEVEL).map_err(fail)?)
            }
            Some("gz") => Packer::Gzip(flate2::write::GzEncoder::new(sink, Default::default())),
            _ => Packer::Plain(sink),
        };
        Ok(Output { path: path.to_owned(), packer, target })
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file without a name, for work that needs two passes.
    pub fn scratch(&self) -> Result<File, Error> {
        let file = match &self.target {
            Some((_, place)) => tempfile::tempfile_in(folder(place)),
            None => tempfile::tempfile(),
        };
        file.map_err(|source| self.error(source))
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = match &mut self.packer {
            Packer::Plain(sink) => sink.write_all(bytes),
            Packer::Zstd(encoder) => encoder.write_all(bytes),
            Packer::Gzip(encoder) => encoder.write_all(bytes),
        };
        written.map_err(|source| self.error(source))
    }

    /// Completes the file and gives it its name.
    pub fn finish(self) -> Result<(), Error> {
        let Output { path, packer, target } = self;
        let fail = |source| Error::Io { path: path.clone(), source };
        let mut sink = match packer {
            Packer::Plain(sink) => sink,
            Packer::Zstd(encoder) => encoder.finish().map_err(fail)?,
            Packer::Gzip(encoder) => encoder.finish().map_err(fail)?,
        };
        sink.flush().map_err(fail)?;
        if let Some((temporary, place)) = target {
            temporary.as_file().sync_all().map_err(fail)?;
            temporary.persist(place).map_err(|error| fail(error.error))?;
        }
        Ok(())
    }

    /// What the system said about this file.
    pub fn error(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

fn temporary(place: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".undercroft-").suffix(".part");
    #[cfg(unix)]
    {
        // The trace shall be as readable as any file the user makes: the umask decides.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        builder.permissions(permissions);
    }
    builder.tempfile_in(folder(place))
}

fn folder(place: &Path) -> &Path {
    match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
