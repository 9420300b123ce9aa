//! `undercroft attach`: an unmodified program whose evictions become known to the server of its
//! volume, and what is known of one that runs.

use std::io::{Write, stdout};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use undercroft_hints::ClientId;

use crate::attach::record::RecordOptions;
use crate::attach::volume::VolumeArg;
use crate::attach::{check, program, score};
use crate::error::Error;

/// The library that is loaded into programs.
const LIBRARY: &str = "libundercroft_cct.so";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  undercroft attach --volume /srv/mysql=nbd://storage/db -- mariadbd --defaults-file=my.cnf
  undercroft attach --volume /srv/mysql=nbd://storage/db --record /srv/traces -- mariadbd
  undercroft attach --check $(pidof mariadbd)
  undercroft attach --score $(pidof mariadbd) -- mariadb -uroot")]
pub(crate) struct Args {
    /// A volume that the program uses: a disk, a folder on its file system, or an image, and the
    /// address of its export; repeated for several
    #[arg(long, value_name = "WHERE=URI", conflicts_with_all = ["check", "score"])]
    volume: Vec<VolumeArg>,
    /// Only files whose path matches this, as '*.ibd'; repeated for several. Default: all on the
    /// volumes
    #[arg(long, value_name = "PATTERN", requires = "volume")]
    track: Vec<String>,
    /// Reads of files leave hardly anything in the page cache here, where the kernel can do so
    /// (Linux 6.14 and later): one cache less between the program and the server
    #[arg(long, requires = "volume")]
    bypass_page_cache: bool,
    /// Tells servers which blocks leave, and never hands over what is in them
    #[arg(long, requires = "volume")]
    no_contents: bool,
    /// The id in hexadecimal with which the program's own connections name themselves, and after a
    /// colon their key. Default: none, as the drivers of kernels and of virtual machines do
    #[arg(long, value_name = "ID[:KEY]", requires = "volume")]
    client: Option<ClientId>,
    /// Whose memory can be a cache: that of each process (`all`), or only what processes share
    /// (`shared`). Default: shared for PostgreSQL
    #[arg(long, value_name = "WHOSE", requires = "volume", value_parser = ["all", "shared"])]
    frames: Option<String>,
    /// The library that is loaded into the program; default: libundercroft_cct.so beside this
    /// program, or in ../lib of it
    #[arg(long, value_name = "FILE", requires = "volume")]
    library: Option<PathBuf>,
    /// Where the tracker's memory is, a folder in memory
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    segments: PathBuf,
    #[command(flatten)]
    record: RecordOptions,
    /// Print the environment that the program would be given, and do not start it
    #[arg(long, requires = "volume")]
    print: bool,
    /// What a tracked process is known to do: is it tracked, is the server told
    #[arg(long, value_name = "PID", conflicts_with = "score")]
    check: Option<u32>,
    /// Compare what is believed of a database's cache with what the database says; after --, its
    /// client (mariadb or psql) with the options that let it in
    #[arg(long, value_name = "PID")]
    score: Option<u32>,
    /// With --score, wait for a moment in which nothing moves and all changes are written, for a
    /// minute at most
    #[arg(long, requires = "score")]
    when_quiet: bool,
    /// With --check and --score, print JSON
    #[arg(long)]
    json: bool,
    /// The program, with its arguments, after --
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut out = stdout().lock();
    if let Some(pid) = args.check {
        let status = check::segment(&args.segments, pid).map_err(Error::Work)?.status();
        if args.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&check::json(&status))?)?;
            return Ok(());
        }
        return check::print(&mut out, &status);
    }
    if let Some(pid) = args.score {
        return scored(&mut out, args, pid);
    }
    if let Some(pid) = args.record.running() {
        return args.record.run(&args.segments, pid);
    }
    if args.volume.is_empty() {
        let why = "--volume WHERE=URI is missing: which volumes the program uses";
        return Err(Error::Usage(why.to_owned()));
    }
    if args.program.is_empty() && !args.print {
        return Err(Error::Usage("after --, give the program with its arguments".to_owned()));
    }
    attach(&mut out, args)
}

fn attach(out: &mut impl Write, args: &Args) -> Result<(), Error> {
    let library = library(args.library.as_deref()).map_err(Error::Usage)?;
    let path = match args.program.first() {
        Some(name) => {
            let path = program::find(name).map_err(Error::Work)?;
            program::can_be_watched(&path).map_err(Error::Work)?;
            path
        }
        None => PathBuf::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut volumes = Vec::new();
    for volume in &args.volume {
        let local = volume.local().map_err(Error::Usage)?;
        let exported = runtime.block_on(volume.check(&local)).map_err(Error::Work)?;
        eprintln!("attach: {}", exported.describe(&local, &volume.uri));
        volumes.push(format!("{}={}", local.path.display(), volume.uri));
    }
    let mut environment = vec![
        ("LD_PRELOAD", preload(&library)),
        ("UNDERCROFT_VOLUMES", volumes.join(";")),
        ("UNDERCROFT_SEGMENT_DIR", args.segments.display().to_string()),
    ];
    if !args.track.is_empty() {
        environment.push(("UNDERCROFT_TRACK", args.track.join(":")));
    }
    if let Some(client) = args.client {
        environment.push(("UNDERCROFT_CLIENT", client.to_string()));
    }
    let shares = path.file_name().is_some_and(|name| name == "postgres");
    if let Some(frames) = args.frames.as_deref().or(shares.then_some("shared")) {
        environment.push(("UNDERCROFT_FRAMES", frames.to_owned()));
    }
    if args.bypass_page_cache {
        environment.push(("UNDERCROFT_BYPASS", "1".to_owned()));
    }
    if args.no_contents {
        environment.push(("UNDERCROFT_CONTENTS", "0".to_owned()));
    }
    if args.print {
        for (name, value) in &environment {
            writeln!(out, "{name}={value}")?;
        }
        return Ok(());
    }
    args.record.start(&args.segments)?;
    let mut command = Command::new(&path);
    command.arg0(&args.program[0]).args(&args.program[1..]).envs(environment);
    // Comes back only if it fails.
    let error = command.exec();
    Err(Error::Work(format!("{}: {error}", path.display())))
}

/// Ours, before what is loaded anyway.
fn preload(library: &Path) -> String {
    let library = library.display().to_string();
    match std::env::var("LD_PRELOAD") {
        Ok(others) if !others.is_empty() => format!("{library}:{others}"),
        _ => library,
    }
}

fn library(given: Option<&Path>) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = match given {
        Some(path) => vec![path.to_owned()],
        None => ["", "deps", "../lib", "../lib/undercroft"]
            .map(|at| folder.join(at).join(LIBRARY))
            .into(),
    };
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    let found = found.ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
        format!(
            "{LIBRARY} is not at {}: `cargo build --release -p undercroft-preload` makes it; or \
             say --library FILE",
            places.join(", ")
        )
    })?;
    // The loader takes blanks and colons for the ends of names, and would skip the rest silently.
    let name = found.to_str().filter(|name| !name.contains([' ', ':']));
    name.map(PathBuf::from)
        .ok_or_else(|| format!("{}: no library can be preloaded from such a path", found.display()))
}

fn scored(out: &mut impl Write, args: &Args, pid: u32) -> Result<(), Error> {
    if args.program.is_empty() {
        let why = "after --, give the database's client, as `mariadb -uroot` or `psql -U postgres`";
        return Err(Error::Usage(why.to_owned()));
    }
    let score = check::score(&args.segments, pid, &args.program, args.when_quiet);
    let score = score.map_err(Error::Work)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&score)?)?;
        return Ok(());
    }
    score::print(out, &score)
}
