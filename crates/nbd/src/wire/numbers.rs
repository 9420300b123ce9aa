//! The protocol's numbers, with its own names.

/// First 8 bytes of a server: `NBDMAGIC`.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second 8 bytes of a newstyle server, and the start of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of every answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Most bytes of a string.
pub const MAX_STRING: usize = 4096;
/// Most bytes of a payload where nothing else was agreed.
pub const DEFAULT_MAX_PAYLOAD: u32 = 32 << 20;
/// Most extents of a block status chunk.
pub const MAX_EXTENTS: usize = 1 << 20;

/// Handshake flag of server and client: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag of server and client: no 124 zero bytes after EXPORT_NAME.
pub const FLAG_NO_ZEROES: u16 = 2;

/// Option: pick an export, the old way.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end the session.
pub const OPT_ABORT: u32 = 2;
/// Option: name the exports.
pub const OPT_LIST: u32 = 3;
/// Option: upgrade to TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: tell of an export.
pub const OPT_INFO: u32 = 6;
/// Option: tell of an export, and begin transmission.
pub const OPT_GO: u32 = 7;
/// Option: answer in chunks.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: name metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: select metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// Option reply: done.
pub const REP_ACK: u32 = 1;
/// Option reply: an export.
pub const REP_SERVER: u32 = 2;
/// Option reply: a piece of information.
pub const REP_INFO: u32 = 3;
/// Option reply: a metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// Set in every option reply that is an error.
pub const REP_IS_ERROR: u32 = 1 << 31;
/// Option reply: unknown option.
pub const REP_ERR_UNSUP: u32 = REP_IS_ERROR | 1;
/// Option reply: not allowed.
pub const REP_ERR_POLICY: u32 = REP_IS_ERROR | 2;
/// Option reply: malformed, or not at this point.
pub const REP_ERR_INVALID: u32 = REP_IS_ERROR | 3;
/// Option reply: TLS first.
pub const REP_ERR_TLS_REQD: u32 = REP_IS_ERROR | 5;
/// Option reply: no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_IS_ERROR | 6;
/// Option reply: the server is going away.
pub const REP_ERR_SHUTDOWN: u32 = REP_IS_ERROR | 7;
/// Option reply: ask for the block sizes first.
pub const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_IS_ERROR | 8;
/// Option reply: too large to handle.
pub const REP_ERR_TOO_BIG: u32 = REP_IS_ERROR | 9;

/// Information: size and flags of the export.
pub const INFO_EXPORT: u16 = 0;
/// Information: its canonical name.
pub const INFO_NAME: u16 = 1;
/// Information: a line for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: block sizes.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: the other flags are valid.
pub const HAS_FLAGS: u16 = 1;
/// Transmission flag: read-only.
pub const READ_ONLY: u16 = 1 << 1;
/// Transmission flag: FLUSH.
pub const SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: FUA.
pub const SEND_FUA: u16 = 1 << 3;
/// Transmission flag: seeks are slow.
pub const ROTATIONAL: u16 = 1 << 4;
/// Transmission flag: TRIM.
pub const SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: WRITE_ZEROES.
pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: DF.
pub const SEND_DF: u16 = 1 << 7;
/// Transmission flag: connections see one another's changes.
pub const CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: CACHE.
pub const SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: FAST_ZERO.
pub const SEND_FAST_ZERO: u16 = 1 << 11;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write.
pub const CMD_WRITE: u16 = 1;
/// Command: finish and close.
pub const CMD_DISC: u16 = 2;
/// Command: make durable.
pub const CMD_FLUSH: u16 = 3;
/// Command: the content is no longer needed.
pub const CMD_TRIM: u16 = 4;
/// Command: the range will be read soon.
pub const CMD_CACHE: u16 = 5;
/// Command: make the range read as zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: the status of a range.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: durable before the answer.
pub const CMD_FLAG_FUA: u16 = 1;
/// Command flag of WRITE_ZEROES: stay allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag of READ: one chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag of BLOCK_STATUS: one extent.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag of WRITE_ZEROES: only if faster than a write.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// Chunk flag: the last one of its reply.
pub const CHUNK_DONE: u16 = 1;
/// Chunk: no payload.
pub const CHUNK_NONE: u16 = 0;
/// Chunk: data.
pub const CHUNK_DATA: u16 = 1;
/// Chunk: zeroes.
pub const CHUNK_HOLE: u16 = 2;
/// Chunk: extents of a context.
pub const CHUNK_BLOCK_STATUS: u16 = 5;
/// Set in every chunk type that is an error.
pub const CHUNK_IS_ERROR: u16 = 1 << 15;
/// Chunk: error.
pub const CHUNK_ERROR: u16 = CHUNK_IS_ERROR | 1;
/// Chunk: error at an offset.
pub const CHUNK_ERROR_OFFSET: u16 = CHUNK_IS_ERROR | 2;
