//! What the columns of a csv hold: the names that are understood in options and header lines, which
//! columns make a record, and names that look as if they mattered and are not understood.

use crate::Unit;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    Skip,
    Time(Clock),
    Op,
    /// Several columns together name a space.
    Space,
    Block,
    Byte,
    Sector,
    Blocks,
    Bytes,
    Sectors,
    /// Bytes if the address counts bytes, else of no account.
    Size,
    Buffer,
}

/// What a time counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Clock {
    /// The first value tells.
    Unknown,
    /// Decimal places that turn the number into nanoseconds.
    Decimal(u32),
    /// Hundreds of nanoseconds since 1601, as Windows counts.
    Filetime,
    /// Date and time of day, as `2026-01-31T12:00:00.5Z`.
    Calendar,
}

impl Role {
    pub(super) fn is_address(self) -> bool {
        matches!(self, Role::Block | Role::Byte | Role::Sector)
    }

    /// Whether such a column may hold any text.
    pub(super) fn is_text(self, ids_are_text: bool) -> bool {
        self == Role::Space || self == Role::Block && ids_are_text
    }

    fn is_length(self) -> bool {
        matches!(self, Role::Blocks | Role::Bytes | Role::Sectors | Role::Size)
    }

    /// The name by which an option describes such a column; none for one that is not used.
    fn option(self) -> Option<&'static str> {
        Some(match self {
            Role::Skip => return None,
            Role::Time(Clock::Decimal(6)) => "time-ms",
            Role::Time(Clock::Decimal(3)) => "time-us",
            Role::Time(Clock::Decimal(0)) => "time-ns",
            Role::Time(_) => "time",
            Role::Op => "op",
            Role::Space => "space",
            Role::Block => "id",
            Role::Byte => "byte",
            Role::Sector => "sector",
            Role::Blocks => "blocks",
            Role::Bytes => "bytes",
            Role::Sectors => "sectors",
            Role::Size => "size",
            Role::Buffer => "buffer",
        })
    }
}

/// Whether a column of that name tells reads from writes by 0 and 1, as Linux numbers them.
pub(super) fn is_flag(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "rw",
        "rw-flag",
        "rwflag",
        "direction",
        "dir",
        "is-write",
        "iswrite",
        "write",
        "write-flag",
    ];
    NAMES.contains(&&*plain(name))
}

/// A name in one spelling: `R/W` is `rw`, `Timestamp (us)` is `timestamp-us`.
fn plain(name: &str) -> String {
    let name = name.trim().to_lowercase().replace('/', "");
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// The role that a name of an option or of a header stands for.
pub(super) fn role(name: &str) -> Option<Role> {
    let name = plain(name);
    let name = name.strip_suffix("-col").or(name.strip_suffix("-field")).unwrap_or(&name);
    Some(match name {
        "id" | "obj-id" | "object" | "key" | "block" | "first-block" | "block-number" | "blkno"
        | "block-id" | "blockno" | "page" | "pageno" | "page-number" | "page-id" => Role::Block,
        "byte" | "offset" | "first-byte" | "byte-offset" | "offset-bytes" => Role::Byte,
        "sector" | "first-sector" | "start-sector" | "lba" | "start-lba" | "lbn" => Role::Sector,
        "blocks" | "block-count" => Role::Blocks,
        "bytes" | "size-bytes" | "length-bytes" | "nbytes" => Role::Bytes,
        "sectors" | "sector-count" | "nr-sectors" | "num-sectors" => Role::Sectors,
        "size" | "obj-size" | "length" | "len" | "io-size" | "iosize" | "request-size"
        | "req-size" => Role::Size,
        "buffer" | "buf" => Role::Buffer,
        "op" | "type" | "rw" | "rw-flag" | "rwflag" | "rwbs" | "operation" | "opcode"
        | "optype" | "op-type" | "op-name" | "io-type" | "iotype" | "io-op" | "request-type"
        | "req-type" | "reqtype" | "access-type" | "direction" | "dir" | "cmd" | "command"
        | "is-write" | "iswrite" | "write" | "write-flag" => Role::Op,
        _ => return time(name).or_else(|| is_space(name).then_some(Role::Space)),
    })
}

fn time(name: &str) -> Option<Role> {
    let units = [("ms", 6), ("us", 3), ("ns", 0), ("s", 9), ("sec", 9), ("seconds", 9)];
    let unit = name.rsplit_once('-').and_then(|(name, unit)| {
        let known = units.iter().find(|(name, _)| *name == unit);
        known.map(|(_, places)| (name, Clock::Decimal(*places)))
    });
    let (name, clock) = unit.unwrap_or((name, Clock::Unknown));
    let names =
        ["time", "timestamp", "ts", "datetime", "date-time", "start-time", "issue-time", "op-time"];
    names.contains(&name).then_some(Role::Time(clock))
}

/// Whether a column of that name tells a device or a file, as `disk`, `DiskNumber` or `volume_id`.
fn is_space(name: &str) -> bool {
    const NAMES: [&str; 18] = [
        "space",
        "device",
        "dev",
        "disk",
        "drive",
        "volume",
        "vol",
        "lun",
        "asu",
        "unit",
        "namespace",
        "host",
        "hostname",
        "file",
        "path",
        "inode",
        "major",
        "minor",
    ];
    let ends = ["id", "number", "no", "num", "name"].iter();
    let bare = ends.filter_map(|end| Some(name.strip_suffix(end)?.trim_end_matches('-')));
    bare.chain([name]).any(|name| NAMES.contains(&name))
}

/// The columns of a header line.
pub(super) fn header_roles(names: &[String]) -> Vec<Role> {
    names.iter().map(|name| role(name).unwrap_or(Role::Skip)).collect()
}

/// Checks that the columns make a record, and finds its unit.
pub(super) fn check_roles(roles: &[Role]) -> Result<Unit, String> {
    let once = |what: &str, is: &dyn Fn(Role) -> bool| {
        let mut found = roles.iter().copied().filter(|&role| is(role));
        let first = found.next();
        if found.next().is_some() { Err(format!("two columns for the {what}")) } else { Ok(first) }
    };
    once("time", &|role| matches!(role, Role::Time(_)))?;
    once("op", &|role| role == Role::Op)?;
    once("buffer", &|role| role == Role::Buffer)?;
    let address = once("address", &|role| role.is_address())?;
    match (address, once("length", &|role| role.is_length())?) {
        (None, _) => Err("no column for the address (id, byte or sector)".into()),
        (Some(Role::Block), None | Some(Role::Blocks | Role::Size)) => Ok(Unit::Blocks),
        (Some(Role::Block), _) => Err("a block number needs its length in blocks".into()),
        (Some(_), Some(Role::Bytes | Role::Sectors | Role::Size)) => Ok(Unit::Bytes),
        (Some(_), _) => Err("a byte or sector address needs a length (bytes, sectors)".into()),
    }
}

/// Columns as the options of the format describe them: `time=1,id=2`.
pub(super) fn description(roles: &[Role]) -> String {
    let described = roles.iter().enumerate();
    let described = described
        .filter_map(|(at, role)| role.option().map(|option| format!("{option}={}", at + 1)));
    described.collect::<Vec<_>>().join(",")
}

/// Says which column of a header line seems to hold the direction or the device and is not
/// understood, and how to describe it. `has_ops(column)` tells whether the column has values like
/// `R` and `W`.
pub(super) fn misunderstood(
    names: &[String],
    roles: &[Role],
    has_ops: impl Fn(usize) -> bool,
) -> Option<String> {
    const OPS: [&str; 10] = [
        "rw",
        "op",
        "opcode",
        "operation",
        "cmd",
        "command",
        "direction",
        "rwbs",
        "isread",
        "action",
    ];
    const DEVICES: [&str; 14] = [
        "dev",
        "device",
        "disk",
        "drive",
        "vol",
        "volume",
        "lun",
        "host",
        "hostname",
        "file",
        "partition",
        "table",
        "relation",
        "server",
    ];
    let like =
        |name: &str, known: &[&str]| plain(name).split('-').any(|word| known.contains(&word));
    let is_op = |column: usize| {
        let name = plain(&names[column]);
        like(&name, &OPS) || ["read", "is-read"].contains(&&*name) || has_ops(column)
    };
    let is_space = |column: usize| like(&names[column], &DEVICES);
    let unused = || (0..names.len()).filter(|&column| roles[column] == Role::Skip);
    let lacks = |role| !roles.contains(&role);
    let op = unused().find(|&column| lacks(Role::Op) && is_op(column));
    let space = || unused().find(|&column| lacks(Role::Space) && is_space(column));
    let (column, what, role) = match op {
        Some(column) => (column, "tell reads from writes", Role::Op),
        None => (space()?, "name a device or a file", Role::Space),
    };
    let mut described = roles.to_vec();
    described[column] = role;
    let described = description(&described);
    let (number, name) = (column + 1, names[column].trim());
    let option = role.option().unwrap_or_default();
    Some(format!(
        "column {number} (\"{name}\") seems to {what}, and is not understood: describe the columns \
         to use, as --format csv,{described}; leave {option}={number} out if it is something else"
    ))
}
