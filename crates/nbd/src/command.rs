//! The commands of the protocol: for each one row of [`COMMANDS`] with what it takes, and the type
//! that a session gets. What is written down here the server checks requests by, and the client
//! its own.
//!
//! Not here: what a command does. `docs/developer/add-a-command.md` says what to touch for a new
//! one.

use bytes::Bytes;

use crate::wire::*;

/// What a request asks for, as a session gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answer with [`Reply::data`](crate::Reply::data).
    Read {
        /// The client wants the data in one piece: DF.
        one_chunk: bool,
    },
    /// Answer with [`Reply::done`](crate::Reply::done).
    Write {
        /// As many bytes as the request's length, in pieces.
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
    /// Answer with [`Reply::done`](crate::Reply::done), perhaps before it is done.
    Cache,
    /// Answer with [`Reply::extents`](crate::Reply::extents).
    BlockStatus {
        /// At most one extent a context, none longer than asked: REQ_ONE.
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

/// How long a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// It has no range: offset and length are 0.
    None,
    /// As long as the largest payload: as many bytes go over the wire.
    Payload,
    /// As long as a header can say: few bytes go over the wire.
    Effect,
}

/// What a request is charged while it is in flight, beside the memory that any request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing.
    Request,
    /// The blocks that it reads or writes.
    Blocks,
    /// Looks at requests of others in its range.
    Range,
    /// As `Range`; and its ends may lie within blocks.
    RangeWithEnds,
    /// An answer for each metadata context, for which the store may have to look at much.
    Contexts,
}

/// What is sent in answer to a request that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// That it is done.
    Done,
    /// As many bytes as it asked for.
    Data,
    /// Extents for each selected metadata context, without which it means nothing.
    Extents,
}

/// What the protocol says of a command.
#[derive(Debug)]
pub struct CommandInfo {
    /// Which one.
    pub kind: CommandKind,
    /// Its number on the wire.
    pub number: u16,
    /// Its name in metrics.
    pub name: &'static str,
    /// The transmission flag by which a server offers it; 0: every server does.
    pub offered_by: u16,
    /// The command flags that it takes beside FUA, each with the transmission flag by which a
    /// server offers it; 0: with the command itself.
    pub flags: &'static [(u16, u16)],
    /// Whether as many bytes as its length follow the header.
    pub has_payload: bool,
    /// Whether it may change contents or allocation: not on a read-only export.
    pub changes: bool,
    /// Whether it needs space, which behind the end of the export there is none of.
    pub needs_space: bool,
    /// What its length is limited by.
    pub length: Length,
    /// What it is answered.
    pub answers: Answers,
    /// What it is charged.
    pub cost: Cost,
    /// The command that a header with these flags asks for; a payload is added when it has come.
    pub from_flags: fn(u16) -> Command,
}

/// The row of a command that does as little as any.
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
    answers: Answers::Done,
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
        answers: Answers::Data,
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
        answers: Answers::Extents,
        cost: Cost::Contexts,
        from_flags: |flags| Command::BlockStatus { one_extent: flags & CMD_FLAG_REQ_ONE != 0 },
        ..PLAIN
    },
];

impl CommandInfo {
    /// The row of a number on the wire; none if no such command reaches a session.
    #[inline]
    pub fn of(number: u16) -> Option<&'static CommandInfo> {
        COMMANDS.iter().find(|info| info.number == number)
    }

    /// Which command flags a server that offers these transmission flags takes. FUA goes with any
    /// command.
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
    /// What the protocol says of it.
    #[inline]
    pub fn info(self) -> &'static CommandInfo {
        &COMMANDS[self as usize]
    }
}

impl Command {
    /// Which of the commands it is.
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

    /// Gives it the payload that has come.
    pub(crate) fn fill(&mut self, payload: Vec<Bytes>) {
        if let Command::Write { data } = self {
            *data = payload;
        }
    }

    /// Whether it may change contents or allocation.
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
    /// Several connections see one another's answered changes and share flushes.
    pub multi_conn: bool,
    /// The command CACHE.
    pub cache: bool,
    /// Seeking costs: a spinning disk.
    pub rotational: bool,
}

impl Flags {
    /// The transmission flags that a client is told. FLUSH and FUA are always offered, DF with
    /// `structured` replies.
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

    /// What transmission flags say.
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
