//! The caching client for C: each handle has a runtime of its own, and calls wait for their end.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Runtime;
use undercroft_client::{CachedClient, CachedOptions, Report};
use undercroft_nbd::{ClientOptions, ClientTlsFiles, Uri};
use undercroft_policy::{Spec, WriteMode};

use crate::error::{Failed, run, text};

/// A write is a reference like a read: it allocates.
pub const UC_WRITE_ALLOCATE: u32 = 0;
/// A write updates a resident copy and does not allocate.
pub const UC_WRITE_NO_ALLOCATE: u32 = 1;
/// A write drops a resident copy.
pub const UC_WRITE_INVALIDATE: u32 = 2;

/// The server is told nothing; any NBD server will do.
pub const UC_REPORT_NOTHING: u32 = 0;
/// The server is told which blocks leave the cache.
pub const UC_REPORT_EVICTIONS: u32 = 1;
/// The server is also given their data.
pub const UC_REPORT_DEMOTIONS: u32 = 2;

/// How long the threads of a closed client may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// How to connect; see `undercroft.h`.
#[repr(C)]
#[allow(missing_docs, reason = "described in the header")]
pub struct UcClientOptions {
    pub struct_bytes: u32,
    pub blocks: u32,
    pub policy: *const c_char,
    pub write_mode: u32,
    pub report: u32,
    pub batch: u32,
    pub flush_after_ms: u32,
    pub timeout_ms: u32,
    pub reserved: u32,
    pub tls_roots: *const c_char,
    pub tls_certificate: *const c_char,
    pub tls_key: *const c_char,
    pub client: *const c_char,
}

/// What a client counted; see `undercroft.h`.
#[repr(C)]
#[derive(Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "described in the header")]
pub struct UcClientStats {
    pub reads: u64,
    pub read_hits: u64,
    pub writes: u64,
    pub write_hits: u64,
    pub evictions: u64,
    pub capacity_blocks: u64,
    pub resident_blocks: u64,
    pub read_us_total: u64,
    pub reconnections: u64,
    pub messages: u64,
    pub messages_refused: u64,
    pub demotions: u64,
    pub hints_lost: u64,
}

/// A client.
pub struct UcClient {
    runtime: Runtime,
    client: CachedClient,
}

/// Sets options to their defaults.
///
/// # Safety
/// `options` is null or a place for options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_options_init(options: *mut UcClientOptions) -> c_int {
    let null = std::ptr::null();
    let defaults = UcClientOptions {
        struct_bytes: size_of::<UcClientOptions>() as u32,
        blocks: 8192,
        policy: c"lru".as_ptr(),
        write_mode: UC_WRITE_ALLOCATE,
        report: UC_REPORT_EVICTIONS,
        batch: 16,
        flush_after_ms: 10,
        timeout_ms: 20_000,
        reserved: 0,
        tls_roots: null,
        tls_certificate: null,
        tls_key: null,
        client: null,
    };
    run(|| {
        if options.is_null() {
            return Err(Failed::argument("options is NULL"));
        }
        // SAFETY: not null, and our own caller promises that there is room.
        unsafe { options.write(defaults) };
        Ok(())
    })
}

impl UcClientOptions {
    /// # Safety
    /// Its texts are null or end with a zero byte.
    unsafe fn parse(&self) -> Result<CachedOptions, Failed> {
        if self.struct_bytes as usize != size_of::<UcClientOptions>() {
            let text = "options are not those of this library's version, or were not initialised";
            return Err(Failed::argument(text));
        }
        // SAFETY: as this function demands.
        let policy = unsafe { text(self.policy, "policy")? };
        let policy = Spec::parse(policy).map_err(|error| Failed::argument(error.to_string()))?;
        if self.blocks == 0 || self.blocks >= 1 << 31 {
            return Err(Failed::argument("blocks: 1 to 2^31 - 1"));
        }
        let mut options = CachedOptions::new(self.blocks, policy);
        options.write_mode = match self.write_mode {
            UC_WRITE_ALLOCATE => WriteMode::Allocate,
            UC_WRITE_NO_ALLOCATE => WriteMode::NoAllocate,
            UC_WRITE_INVALIDATE => WriteMode::Invalidate,
            _ => return Err(Failed::argument("write_mode: one of UC_WRITE_*")),
        };
        options.report = match self.report {
            UC_REPORT_NOTHING => Report::Nothing,
            UC_REPORT_EVICTIONS => Report::Evictions,
            UC_REPORT_DEMOTIONS => Report::Demotions,
            _ => return Err(Failed::argument("report: one of UC_REPORT_*")),
        };
        if !(1..=64).contains(&self.batch) || self.timeout_ms == 0 {
            return Err(Failed::argument("batch: 1 to 64; timeout_ms: at least 1"));
        }
        options.batch = self.batch as usize;
        options.flush_after = Duration::from_millis(self.flush_after_ms.into());
        options.options.timeout = Duration::from_millis(self.timeout_ms.into());
        if !self.client.is_null() {
            // SAFETY: as this function demands.
            let id = unsafe { text(self.client, "client")? };
            let id = id.parse().map_err(|error| Failed::argument(format!("client: {error}")))?;
            options.client_id = Some(id);
        }
        // SAFETY: as this function demands.
        unsafe { self.tls(&mut options.options)? };
        Ok(options)
    }

    /// # Safety
    /// As [`parse`](Self::parse).
    unsafe fn tls(&self, options: &mut ClientOptions) -> Result<(), Failed> {
        if self.tls_roots.is_null() {
            return Ok(());
        }
        // SAFETY: as this function demands.
        let roots = unsafe { text(self.tls_roots, "tls_roots")? }.into();
        let identity = if self.tls_certificate.is_null() {
            None
        } else {
            // SAFETY: as this function demands.
            let certificate = unsafe { text(self.tls_certificate, "tls_certificate")? };
            // SAFETY: as this function demands.
            let key = unsafe { text(self.tls_key, "tls_key")? };
            Some((certificate.into(), key.into()))
        };
        let loaded = ClientTlsFiles { roots, identity }.load();
        let loaded = loaded.map_err(|error| Failed::argument(format!("tls: {error}")))?;
        options.tls = Some(loaded);
        Ok(())
    }
}

/// Connects; on success `*client` is a client.
///
/// # Safety
/// See `undercroft.h`: texts that end, options that were initialised, a place for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_open(
    uri: *const c_char,
    options: *const UcClientOptions,
    client: *mut *mut UcClient,
) -> c_int {
    run(|| {
        if client.is_null() {
            return Err(Failed::argument("there is no place for the client"));
        }
        // SAFETY: not null, and our own caller promises that there is room.
        unsafe { client.write(std::ptr::null_mut()) };
        // SAFETY: our own caller promises it.
        let uri = unsafe { text(uri, "the URI")? };
        let uri: Uri = uri.parse().map_err(|error| Failed::argument(format!("{error}")))?;
        // SAFETY: null, or options as our own caller promises.
        let options = unsafe { options.as_ref() };
        let options = options.ok_or_else(|| Failed::argument("options is NULL"))?;
        // SAFETY: our own caller promises it of their texts.
        let options = unsafe { options.parse()? };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("undercroft")
            .enable_all()
            .build()
            .map_err(|error| Failed::argument(format!("no thread can be had: {error}")))?;
        let connected = runtime.block_on(CachedClient::connect(&uri, &options))?;
        let made = Box::into_raw(Box::new(UcClient { runtime, client: connected }));
        // SAFETY: as above.
        unsafe { client.write(made) };
        Ok(())
    })
}

/// A client behind a pointer.
///
/// # Safety
/// `client` is null or a handle that is not closed during `'a`.
unsafe fn handle<'a>(client: *const UcClient) -> Result<&'a UcClient, Failed> {
    // SAFETY: a handle is a box that was given away; and as this function demands.
    unsafe { client.as_ref() }.ok_or_else(|| Failed::argument("the client is NULL"))
}

fn check_length(length: usize, is_null: bool) -> Result<(), Failed> {
    match isize::try_from(length) {
        Err(_) => Err(Failed::argument(format!("{length} bytes are more than memory has"))),
        Ok(1..) if is_null => Err(Failed::argument("the data is NULL")),
        Ok(_) => Ok(()),
    }
}

/// Reads `length` bytes from `offset` on into `buffer`.
///
/// # Safety
/// See `undercroft.h`: an open client, and a buffer of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_read(
    client: *const UcClient,
    offset: u64,
    buffer: *mut u8,
    length: usize,
) -> c_int {
    run(|| {
        // SAFETY: our own caller promises it.
        let handle = unsafe { handle(client)? };
        check_length(length, buffer.is_null())?;
        let data = handle.runtime.block_on(handle.client.read(offset, length))?;
        if !data.is_empty() {
            // SAFETY: as many bytes came as were asked for, and so many has the buffer, which our
            // own caller promises and which cannot overlap memory of ours.
            unsafe { buffer.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        }
        Ok(())
    })
}

/// Writes `length` bytes at `offset`.
///
/// # Safety
/// See `undercroft.h`: an open client, and data of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_write(
    client: *const UcClient,
    offset: u64,
    data: *const u8,
    length: usize,
    fua: c_int,
) -> c_int {
    run(|| {
        // SAFETY: our own caller promises it.
        let handle = unsafe { handle(client)? };
        check_length(length, data.is_null())?;
        let data = match length {
            0 => Bytes::new(),
            // SAFETY: not null, no longer than memory, and our own caller promises the rest.
            _ => Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(data, length) }),
        };
        Ok(handle.runtime.block_on(handle.client.write(offset, data, fua != 0))?)
    })
}

/// Makes everything durable that was done before.
///
/// # Safety
/// `client` is null or an open client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_flush(client: *const UcClient) -> c_int {
    run(|| {
        // SAFETY: our own caller promises it.
        let handle = unsafe { handle(client)? };
        Ok(handle.runtime.block_on(handle.client.flush())?)
    })
}

/// Says that the content of a range is no longer needed.
///
/// # Safety
/// `client` is null or an open client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_trim(
    client: *const UcClient,
    offset: u64,
    length: u64,
) -> c_int {
    run(|| {
        // SAFETY: our own caller promises it.
        let handle = unsafe { handle(client)? };
        Ok(handle.runtime.block_on(handle.client.trim(offset, length))?)
    })
}

/// Makes a range read as zeroes.
///
/// # Safety
/// `client` is null or an open client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_write_zeroes(
    client: *const UcClient,
    offset: u64,
    length: u64,
    fua: c_int,
) -> c_int {
    run(|| {
        // SAFETY: our own caller promises it.
        let handle = unsafe { handle(client)? };
        Ok(handle.runtime.block_on(handle.client.write_zeroes(offset, length, fua != 0))?)
    })
}

/// Bytes of the volume; 0 for null.
///
/// # Safety
/// `client` is null or an open client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_size(client: *const UcClient) -> u64 {
    // SAFETY: our own caller promises it.
    unsafe { client.as_ref() }.map_or(0, |handle| handle.client.size())
}

/// Bytes of a block; 0 for null.
///
/// # Safety
/// `client` is null or an open client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_block_bytes(client: *const UcClient) -> u32 {
    // SAFETY: our own caller promises it.
    unsafe { client.as_ref() }.map_or(0, |handle| handle.client.block_bytes())
}

/// What was counted since the client connected.
///
/// # Safety
/// `client` is null or an open client, `stats` null or a place for `stats_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_stats_get(
    client: *const UcClient,
    stats: *mut UcClientStats,
    stats_bytes: usize,
) -> c_int {
    run(|| {
        // SAFETY: our own caller promises it.
        let counted = unsafe { handle(client)? }.client.stats();
        if stats.is_null() || stats_bytes != size_of::<UcClientStats>() {
            return Err(Failed::argument("stats is NULL, or not of this library's version"));
        }
        let told = UcClientStats {
            reads: counted.reads,
            read_hits: counted.read_hits,
            writes: counted.writes,
            write_hits: counted.write_hits,
            evictions: counted.evictions,
            capacity_blocks: counted.capacity_blocks.into(),
            resident_blocks: counted.resident_blocks.into(),
            read_us_total: counted.read_us_total,
            reconnections: counted.reconnections,
            messages: counted.messages,
            messages_refused: counted.messages_refused,
            demotions: counted.demotions,
            hints_lost: counted.hints_lost,
        };
        // SAFETY: not null, and our own caller promises that there is room.
        unsafe { stats.write(told) };
        Ok(())
    })
}

/// Waits for what is under way, says good-bye and frees the client; null is allowed.
///
/// # Safety
/// `client` is null or an open client, which nobody uses now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_client_close(client: *mut UcClient) {
    if client.is_null() {
        return;
    }
    run(|| {
        // SAFETY: it was given away by `uc_client_open`, and comes back once.
        let UcClient { runtime, client } = *unsafe { Box::from_raw(client) };
        runtime.block_on(client.close());
        runtime.shutdown_timeout(GRACE);
        Ok(())
    });
}
