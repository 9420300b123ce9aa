//! The commands of the protocol: one row of [`COMMANDS`] for each command, with its properties, and
//! the type that a session receives. Server and client check requests by these rows.
//!
//! Not here: how a command is executed. `docs/developer/add-a-command.md` lists the steps for a new
//! one.

use bytes::Bytes;

use crate::wire::*;

/// A request's command, as a session receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answer with [`Reply::data`](crate::Reply::data).
    Read {
        /// The client wants the data in one chunk: DF.
        one_chunk: bool,
    },
    /// Answer with [`Reply::done`](crate::Reply::done).
    Write {
        /// The data, as many bytes as the request's length, in pieces.
        data: Vec<Bytes>,
    },
    /// Answer with [`Reply::done`](crate::Reply::done).
    Flush,
    /// Answer with [`Reply::done`](crate::Reply::done).
    Trim,
    /// Answer with [`Reply::done`](crate::Reply::done), or with
    /// [`Failure::NotSupported`](crate::Failure::NotSupported) for `fast`.
    WriteZeroes {
        /// NO_HOLE.
        keep_allocated: bool,
        /// FAST_ZERO.
        fast: bool,
    },
    /// Answer with [`Reply::done`](crate::Reply::done), if wanted before it is executed.
    Cache,
    /// Answer with [`Reply::extents`](crate::Reply::extents).
    BlockStatus {
        /// At most one extent per context, none longer than the request: REQ_ONE.
        one_extent: bool,
    },
}

/// The kinds of commands, in the order of [`COMMANDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// READ
    Read,
    /// WRITE
    Write,
    /// FLUSH
    Flush,
    /// TRIM
    Trim,
    /// WRITE_ZEROES
    WriteZeroes,
    /// CACHE
    Cache,
    /// BLOCK_STATUS
    BlockStatus,
}

/// Limits on the length of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// It has no range: offset and length are 0.
    None,
    /// At most the largest payload: the data go over the wire.
    Payload,
    /// Any length that a header can express: no data go over the wire.
    Effect,
}

/// What a request is charged while it is in flight, beside the memory that any request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing.
    Request,
    /// The blocks that it reads or writes.
    Blocks,
    /// For examining requests of others in its range.
    Range,
    /// Like `Range`, and also for partial blocks at its ends.
    RangeWithEnds,
    /// For an answer per metadata context, which may cost the store much work.
    Contexts,
}

/// The answer to a successful request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// No data.
    Done,
    /// As many bytes as requested.
    Data,
    /// Extents for each selected metadata context; without contexts the command is invalid.
    Extents,
}

/// The protocol's properties of a command.
#[derive(Debug)]
pub struct CommandInfo {
    /// The command.
    pub kind: CommandKind,
    /// Its number on the wire.
    pub number: u16,
    /// Its name in metrics.
    pub name: &'static str,
    /// The transmission flag by which a server offers it; 0: every server offers it.
    pub offered_by: u16,
    /// The command flags that it accepts beside FUA, each with the transmission flag by which a
    /// server offers it; 0: always offered with the command.
    pub flags: &'static [(u16, u16)],
    /// Whether data of its length follow the header.
    pub has_payload: bool,
    /// Whether it may change data or allocation; such commands are refused on read-only exports.
    pub changes: bool,
    /// Whether it needs space, so that a range behind the export's end is answered with ENOSPC.
    pub needs_space: bool,
    /// The limit on its length.
    pub length: Length,
    /// The kind of its answer.
    pub answer: AnswerKind,
    /// The kind of its charge.
    pub cost: Cost,
    /// Makes the command from a header's flags; a payload is added when it has arrived.
    pub from_flags: fn(u16) -> Command,
}

/// The defaults for rows: a command with no special properties.
const PLAIN: CommandInfo = CommandInfo {
    kind: CommandKind::Flush,
    number: CMD_FLUSH,
    name: "flush",
    offered_by: 0,
    flags: &[],
    has_payload: false,
    changes: false,
    needs_space: false,
    length: Length::Effect,
    answer: AnswerKind::Done,
    cost: Cost::Request,
    from_flags: |_| Command::Flush,
};

/// All commands that reach a session, in the order of [`CommandKind`].
pub static COMMANDS: [CommandInfo; 7] = [
    CommandInfo {
        kind: CommandKind::Read,
        number: CMD_READ,
        name: "read",
        flags: &[(CMD_FLAG_DF, SEND_DF)],
        length: Length::Payload,
        answer: AnswerKind::Data,
        cost: Cost::Blocks,
        from_flags: |flags| Command::Read { one_chunk: flags & CMD_FLAG_DF != 0 },
        ..PLAIN
    },
    CommandInfo {
        kind: CommandKind::Write,
        number: CMD_WRITE,
        name: "write",
        has_payload: true,
        changes: true,
        needs_space: true,
        length: Length::Payload,
        cost: Cost::Blocks,
        from_flags: |_| Command::Write { data: Vec::new() },
        ..PLAIN
    },
    CommandInfo { offered_by: SEND_FLUSH, length: Length::None, ..PLAIN },
    CommandInfo {
        kind: CommandKind::Trim,
        number: CMD_TRIM,
        name: "trim",
        offered_by: SEND_TRIM,
        changes: true,
        cost: Cost::Range,
        from_flags: |_| Command::Trim,
        ..PLAIN
    },
    CommandInfo {
        kind: CommandKind::WriteZeroes,
        number: CMD_WRITE_ZEROES,
        name: "write_zeroes",
        offered_by: SEND_WRITE_ZEROES,
        flags: &[(CMD_FLAG_NO_HOLE, 0), (CMD_FLAG_FAST_ZERO, SEND_FAST_ZERO)],
        changes: true,
        needs_space: true,
        cost: Cost::RangeWithEnds,
        from_flags: |flags| Command::WriteZeroes {
            keep_allocated: flags & CMD_FLAG_NO_HOLE != 0,
            fast: flags & CMD_FLAG_FAST_ZERO != 0,
        },
        ..PLAIN
    },
    CommandInfo {
        kind: CommandKind::Cache,
        number: CMD_CACHE,
        name: "cache",
        offered_by: SEND_CACHE,
        from_flags: |_| Command::Cache,
        ..PLAIN
    },
    CommandInfo {
        kind: CommandKind::BlockStatus,
        number: CMD_BLOCK_STATUS,
        name: "block_status",
        flags: &[(CMD_FLAG_REQ_ONE, 0)],
        answer: AnswerKind::Extents,
        cost: Cost::Contexts,
        from_flags: |flags| Command::BlockStatus { one_extent: flags & CMD_FLAG_REQ_ONE != 0 },
        ..PLAIN
    },
];

impl CommandInfo {
    /// The row of a command's number on the wire; `None` if no such command reaches a session.
    #[inline]
    pub fn of(number: u16) -> Option<&'static CommandInfo> {
        COMMANDS.iter().find(|info| info.number == number)
    }

    /// The command flags that a server with these transmission flags accepts. FUA is allowed with
    /// any command.
    #[inline]
    pub fn allowed_flags(&self, offered: u16) -> u16 {
        let taken = self.flags.iter().filter(|(_, by)| offered & by == *by);
        taken.fold(CMD_FLAG_FUA, |all, (flag, _)| all | flag)
    }

    /// The transmission flags that a server must offer for a request with these command flags.
    pub fn needs(&self, flags: u16) -> u16 {
        let set = self.flags.iter().filter(|(flag, _)| flags & flag != 0);
        let fua = if flags & CMD_FLAG_FUA != 0 { SEND_FUA } else { 0 };
        set.fold(self.offered_by | fua, |all, (_, by)| all | by)
    }
}

impl CommandKind {
    /// Its row in [`COMMANDS`].
    #[inline]
    pub fn info(self) -> &'static CommandInfo {
        &COMMANDS[self as usize]
    }
}

impl Command {
    /// The kind of the command.
    #[inline]
    pub fn kind(&self) -> CommandKind {
        match self {
            Command::Read { .. } => CommandKind::Read,
            Command::Write { .. } => CommandKind::Write,
            Command::Flush => CommandKind::Flush,
            Command::Trim => CommandKind::Trim,
            Command::WriteZeroes { .. } => CommandKind::WriteZeroes,
            Command::Cache => CommandKind::Cache,
            Command::BlockStatus { .. } => CommandKind::BlockStatus,
        }
    }

    /// Adds the payload that has arrived.
    pub(crate) fn fill(&mut self, payload: Vec<Bytes>) {
        if let Command::Write { data } = self {
            *data = payload;
        }
    }

    /// Whether it may change data or allocation.
    #[inline]
    pub fn changes(&self) -> bool {
        self.kind().info().changes
    }
}

/// What an export can do beyond reading: which commands and flags a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Changes are refused with EPERM.
    pub read_only: bool,
    /// TRIM.
    pub trim: bool,
    /// WRITE_ZEROES; with `fast_zero` also its flag FAST_ZERO.
    pub write_zeroes: bool,
    /// The flag FAST_ZERO of WRITE_ZEROES.
    pub fast_zero: bool,
    /// Several connections see each other's answered changes and share flushes.
    pub multi_conn: bool,
    /// The command CACHE.
    pub cache: bool,
    /// Seeks are slow: a spinning disk.
    pub rotational: bool,
}

impl Flags {
    /// Encodes the transmission flags. FLUSH and FUA are always offered, DF with `structured`
    /// replies.
    pub(crate) fn to_wire(self, structured: bool) -> u16 {
        let changes = !self.read_only;
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        HAS_FLAGS
            | SEND_FLUSH
            | SEND_FUA
            | flag(structured, SEND_DF)
            | flag(self.read_only, READ_ONLY)
            | flag(self.rotational, ROTATIONAL)
            | flag(self.trim && changes, SEND_TRIM)
            | flag(self.write_zeroes && changes, SEND_WRITE_ZEROES)
            | flag(self.write_zeroes && self.fast_zero && changes, SEND_FAST_ZERO)
            | flag(self.multi_conn, CAN_MULTI_CONN)
            | flag(self.cache, SEND_CACHE)
    }

    /// Decodes transmission flags.
    pub(crate) fn from_wire(flags: u16) -> Flags {
        let can = |flag| flags & flag != 0;
        Flags {
            read_only: can(READ_ONLY),
            trim: can(SEND_TRIM),
            write_zeroes: can(SEND_WRITE_ZEROES),
            fast_zero: can(SEND_FAST_ZERO),
            multi_conn: can(CAN_MULTI_CONN),
            cache: can(SEND_CACHE),
            rotational: can(ROTATIONAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_the_places_of_their_kinds() {
        for (place, info) in COMMANDS.iter().enumerate() {
            assert_eq!(info.kind as usize, place);
            assert_eq!((info.from_flags)(0).kind(), info.kind);
            assert_eq!(CommandInfo::of(info.number).map(|info| info.kind), Some(info.kind));
            assert!(info.has_payload <= (info.length == Length::Payload));
        }
        assert!(CommandInfo::of(CMD_DISC).is_none() && CommandInfo::of(8).is_none());
    }

    #[test]
    fn flags_are_read_as_they_were_written() {
        let all = Flags {
            read_only: false,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            multi_conn: true,
            cache: true,
            rotational: true,
        };
        assert_eq!(Flags::from_wire(all.to_wire(true)), all);
        let read_only = Flags { read_only: true, ..Flags::default() };
        assert_eq!(Flags::from_wire(read_only.to_wire(false)), read_only);
    }
}
