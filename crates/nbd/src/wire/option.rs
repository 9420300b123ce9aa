//! The messages of the handshake.

use bytes::{BufMut, BytesMut};

use super::{
    Fields, INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME, MAGIC, Malformed,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, text,
};

/// The first 18 bytes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// `FLAG_*`.
    pub flags: u16,
}

impl Greeting {
    /// Bytes of a greeting.
    pub const SIZE: usize = 18;

    /// Parses a greeting.
    ///
    /// # Errors
    /// This is no NBD server, or one that only speaks the obsolete oldstyle protocol.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<Greeting, Malformed> {
        let mut fields = Fields::new(bytes);
        if fields.u64()? != MAGIC {
            return Err(Malformed::new("this is not an NBD server"));
        }
        if fields.u64()? != OPTION_MAGIC {
            return Err(Malformed::new("the server speaks only the oldstyle protocol"));
        }
        Ok(Greeting { flags: fields.u16()? })
    }

    /// Encodes the greeting.
    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[16..].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }
}

/// The header of an option; `length` bytes follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// `OPT_*`.
    pub option: u32,
    /// Bytes that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Bytes of the header.
    pub const SIZE: usize = 16;

    /// Parses the header.
    ///
    /// # Errors
    /// It does not begin with the magic number: the stream is out of step.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<OptionHeader, Malformed> {
        let mut fields = Fields::new(bytes);
        let magic = fields.u64()?;
        if magic != OPTION_MAGIC {
            return Err(Malformed::new(format!("an option begins with {magic:#018x}")));
        }
        Ok(OptionHeader { option: fields.u32()?, length: fields.u32()? })
    }
}

/// Appends an option.
pub fn put_option(out: &mut BytesMut, option: u32, data: &[u8]) {
    out.put_u64(OPTION_MAGIC);
    out.put_u32(option);
    out.put_u32(u32::try_from(data.len()).expect("options are small"));
    out.put_slice(data);
}

/// The header of an answer to an option; `length` bytes follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that it answers.
    pub option: u32,
    /// `REP_*`.
    pub reply: u32,
    /// Bytes that follow.
    pub length: u32,
}

impl OptionReplyHeader {
    /// Bytes of the header.
    pub const SIZE: usize = 20;

    /// Parses the header.
    ///
    /// # Errors
    /// It does not begin with the magic number: the stream is out of step.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<OptionReplyHeader, Malformed> {
        let mut fields = Fields::new(bytes);
        let magic = fields.u64()?;
        if magic != OPTION_REPLY_MAGIC {
            return Err(Malformed::new(format!("an option's answer begins with {magic:#018x}")));
        }
        Ok(OptionReplyHeader { option: fields.u32()?, reply: fields.u32()?, length: fields.u32()? })
    }
}

/// Appends an answer to an option.
pub fn put_option_reply(out: &mut BytesMut, option: u32, reply: u32, data: &[u8]) {
    out.put_u64(OPTION_REPLY_MAGIC);
    out.put_u32(option);
    out.put_u32(reply);
    out.put_u32(u32::try_from(data.len()).expect("answers are small"));
    out.put_slice(data);
}

/// Appends a string with its length before it.
pub fn put_string(out: &mut BytesMut, string: &str) {
    out.put_u32(u32::try_from(string.len()).expect("strings are small"));
    out.put_slice(string.as_bytes());
}

/// The data of the options INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest {
    /// Export name; empty for the default one.
    pub name: String,
    /// The requested `INFO_*`, including unknown ones.
    pub wanted: Vec<u16>,
}

impl InfoRequest {
    /// Parses the data of an option.
    ///
    /// # Errors
    /// The lengths in it do not fit, or the name is not valid text.
    pub fn parse(data: &[u8]) -> Result<InfoRequest, Malformed> {
        let mut fields = Fields::new(data);
        let name = fields.string()?;
        let count = fields.u16()?;
        let wanted = (0..count).map(|_| fields.u16()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(InfoRequest { name, wanted })
    }

    /// Encodes the data of the option.
    pub fn bytes(&self) -> BytesMut {
        let mut out = BytesMut::new();
        put_string(&mut out, &self.name);
        out.put_u16(u16::try_from(self.wanted.len()).expect("few are known"));
        self.wanted.iter().for_each(|info| out.put_u16(*info));
        out
    }
}

/// The data of the options LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextQuery {
    /// Export name; empty for the default one.
    pub name: String,
    /// Queries of the form `namespace:leaf`.
    pub queries: Vec<String>,
}

impl ContextQuery {
    /// Parses the data of an option.
    ///
    /// # Errors
    /// The lengths in it do not fit, or a string is not valid text.
    pub fn parse(data: &[u8]) -> Result<ContextQuery, Malformed> {
        let mut fields = Fields::new(data);
        let name = fields.string()?;
        // The count is not trusted: the vector grows only with the strings that are present.
        let count = fields.u32()?;
        let queries = (0..count).map(|_| fields.string()).collect::<Result<_, _>>()?;
        fields.end()?;
        Ok(ContextQuery { name, queries })
    }

    /// Encodes the data of the option.
    pub fn bytes(&self) -> BytesMut {
        let mut out = BytesMut::new();
        put_string(&mut out, &self.name);
        out.put_u32(u32::try_from(self.queries.len()).expect("few are asked"));
        self.queries.iter().for_each(|query| put_string(&mut out, query));
        out
    }
}

/// One piece of information about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InfoReply {
    /// Size in bytes, and transmission flags.
    Export {
        /// Size in bytes.
        size: u64,
        /// `HAS_FLAGS` and the like.
        flags: u16,
    },
    /// Canonical name.
    Name(String),
    /// A description for people.
    Description(String),
    /// Block sizes in bytes.
    BlockSize {
        /// Smallest unit of a request.
        min: u32,
        /// Preferred unit of a request.
        preferred: u32,
        /// Most bytes of a payload.
        max: u32,
    },
    /// Information of a kind unknown to this program.
    Unknown(u16),
}

impl InfoReply {
    /// Parses the data of a `REP_INFO`.
    ///
    /// # Errors
    /// The length does not fit the kind, or a string is not valid text.
    pub fn parse(data: &[u8]) -> Result<InfoReply, Malformed> {
        let mut fields = Fields::new(data);
        let info = match fields.u16()? {
            INFO_EXPORT => InfoReply::Export { size: fields.u64()?, flags: fields.u16()? },
            INFO_NAME => InfoReply::Name(text(fields.rest())?),
            INFO_DESCRIPTION => InfoReply::Description(text(fields.rest())?),
            INFO_BLOCK_SIZE => InfoReply::BlockSize {
                min: fields.u32()?,
                preferred: fields.u32()?,
                max: fields.u32()?,
            },
            unknown => {
                fields.rest();
                InfoReply::Unknown(unknown)
            }
        };
        fields.end()?;
        Ok(info)
    }

    /// Encodes the data of the `REP_INFO`.
    pub fn bytes(&self) -> BytesMut {
        let mut out = BytesMut::new();
        match self {
            InfoReply::Export { size, flags } => {
                out.put_u16(INFO_EXPORT);
                out.put_u64(*size);
                out.put_u16(*flags);
            }
            InfoReply::Name(name) => {
                out.put_u16(INFO_NAME);
                out.put_slice(name.as_bytes());
            }
            InfoReply::Description(line) => {
                out.put_u16(INFO_DESCRIPTION);
                out.put_slice(line.as_bytes());
            }
            InfoReply::BlockSize { min, preferred, max } => {
                out.put_u16(INFO_BLOCK_SIZE);
                [min, preferred, max].into_iter().for_each(|size| out.put_u32(*size));
            }
            InfoReply::Unknown(info) => out.put_u16(*info),
        }
        out
    }
}
