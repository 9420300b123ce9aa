//! The client content table for C.

use std::ffi::{c_int, c_void};

use undercroft_level::{Cct, Frames};

use crate::error::{Failed, run};

/// Those into which a single block has been read are frames of the cache.
pub const UC_FRAMES_READ: c_int = 0;
/// All addresses are.
pub const UC_FRAMES_ANY: c_int = 1;

/// Most blocks of a request.
const BLOCKS_MAX: u32 = 1 << 20;

/// A table.
pub struct UcCct {
    table: Cct,
}

/// Told of one evicted block.
pub type UcEvicted = Option<unsafe extern "C" fn(context: *mut c_void, block: u64)>;

/// Where evicted blocks are told.
struct Listener {
    evicted: UcEvicted,
    context: *mut c_void,
}

impl Listener {
    /// # Safety
    /// The function may be called with the context, and no handle is borrowed.
    unsafe fn tell(&self, blocks: &[u64]) {
        let Some(evicted) = self.evicted else { return };
        for &block in blocks {
            // SAFETY: as this function demands.
            unsafe { evicted(self.context, block) };
        }
    }
}

/// Makes a table; null on error.
#[unsafe(no_mangle)]
pub extern "C" fn uc_cct_new(
    block_bytes: u32,
    frames: c_int,
    max_slots: u32,
    seed: u64,
) -> *mut UcCct {
    let mut made = std::ptr::null_mut();
    run(|| {
        let frames = match frames {
            UC_FRAMES_READ => Frames::Read,
            UC_FRAMES_ANY => Frames::Any,
            _ => return Err(Failed::argument("frames: UC_FRAMES_READ or UC_FRAMES_ANY")),
        };
        if block_bytes == 0 || max_slots == 0 {
            return Err(Failed::argument("block_bytes and max_slots: at least 1"));
        }
        let table = Cct::new(block_bytes, frames, max_slots, seed);
        made = Box::into_raw(Box::new(UcCct { table }));
        Ok(())
    });
    made
}

/// A table behind a pointer.
///
/// # Safety
/// `cct` is null or a handle that nothing else uses for `'a`.
unsafe fn table<'a>(cct: *mut UcCct) -> Result<&'a mut Cct, Failed> {
    // SAFETY: a handle is a box that was given away; and as this function demands.
    let cct = unsafe { cct.as_mut() };
    cct.map(|cct| &mut cct.table).ok_or_else(|| Failed::argument("the table is NULL"))
}

fn blocks(first: u64, count: u32) -> Result<impl ExactSizeIterator<Item = u64>, Failed> {
    if count > BLOCKS_MAX || first.checked_add(count.into()).is_none() {
        let text = format!("count: up to {BLOCKS_MAX} blocks, whose numbers fit 64 bits");
        return Err(Failed::argument(text));
    }
    Ok((0..count).map(move |at| first + u64::from(at)))
}

/// Changes a table, and tells what that has evicted.
///
/// # Safety
/// As [`uc_cct_read`].
unsafe fn change(
    cct: *mut UcCct,
    listener: Listener,
    change: impl FnOnce(&mut Cct, &mut Vec<u64>) -> Result<(), Failed>,
) -> c_int {
    run(|| {
        let mut gone = Vec::new();
        // SAFETY: our own caller promises the same; the borrow ends in this line.
        change(unsafe { table(cct)? }, &mut gone)?;
        // SAFETY: our own caller promises that it may be called.
        unsafe { listener.tell(&gone) };
        Ok(())
    })
}

/// A client reads blocks into its memory at `address`.
///
/// # Safety
/// See `undercroft.h`: a table that is used by nobody else now, a callback that takes `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_cct_read(
    cct: *mut UcCct,
    client: u32,
    address: u64,
    first_block: u64,
    count: u32,
    evicted: UcEvicted,
    context: *mut c_void,
) -> c_int {
    let read = |table: &mut Cct, gone: &mut Vec<u64>| {
        table.read(client, address, blocks(first_block, count)?, gone);
        Ok(())
    };
    // SAFETY: our own caller promises the same.
    unsafe { change(cct, Listener { evicted, context }, read) }
}

/// A client writes blocks from its memory at `address`.
///
/// # Safety
/// As [`uc_cct_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_cct_write(
    cct: *mut UcCct,
    client: u32,
    address: u64,
    first_block: u64,
    count: u32,
    evicted: UcEvicted,
    context: *mut c_void,
) -> c_int {
    let write = |table: &mut Cct, gone: &mut Vec<u64>| {
        table.write(client, address, blocks(first_block, count)?, gone);
        Ok(())
    };
    // SAFETY: our own caller promises the same.
    unsafe { change(cct, Listener { evicted, context }, write) }
}

/// A range of a client's memory is gone, or is used for something else.
///
/// # Safety
/// As [`uc_cct_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_cct_unmap(
    cct: *mut UcCct,
    client: u32,
    address: u64,
    length: u64,
    evicted: UcEvicted,
    context: *mut c_void,
) -> c_int {
    let unmap = |table: &mut Cct, gone: &mut Vec<u64>| {
        let end = address.checked_add(length);
        let end = end.ok_or_else(|| Failed::argument("the range passes the end of memory"))?;
        table.unmap(client, address..end, gone);
        Ok(())
    };
    // SAFETY: our own caller promises the same.
    unsafe { change(cct, Listener { evicted, context }, unmap) }
}

/// Forgets a client without telling what it held.
///
/// # Safety
/// `cct` is null or a table that is used by nobody else now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_cct_forget(cct: *mut UcCct, client: u32) -> c_int {
    run(|| {
        // SAFETY: our own caller promises the same.
        unsafe { table(cct)? }.forget(client);
        Ok(())
    })
}

/// Frees a table; null is allowed.
///
/// # Safety
/// `cct` is null or a table, which nobody uses now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uc_cct_free(cct: *mut UcCct) {
    if !cct.is_null() {
        run(|| {
            // SAFETY: it was given away by `uc_cct_new`, and comes back once.
            drop(unsafe { Box::from_raw(cct) });
            Ok(())
        });
    }
}
