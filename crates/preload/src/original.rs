//! The original functions that are intercepted.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function of a library behind this one, looked up at its first use.
pub(crate) struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if no library has it.
    #[inline(always)]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let found = if next.is_null() { in_any_object(self.name) } else { next };
        self.address.store(found, Relaxed);
        found
    }
}

/// Finds a function in libraries loaded after the program's start. A plugin opened by `dlopen` with
/// `RTLD_LOCAL` has libraries that are in no other search order than its own. The library stays
/// loaded from then on. Returns null if no library has the function.
fn in_any_object(name: &CStr) -> *mut c_void {
    let mut objects = Vec::<CString>::new();
    // SAFETY: `note` is called with a valid description each time, and with this list. Nothing is
    // opened before it returns: while it runs it holds a lock of the loader.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut objects).cast()) };
    for object in objects {
        // SAFETY: the name ends with a zero; nothing is loaded that is not loaded already.
        let handle = unsafe { libc::dlopen(object.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            continue;
        }
        // SAFETY: the handle is open, the name ends with a zero.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if !found.is_null() && object_of(found) != object_of(in_any_object as *const c_void) {
            return found;
        }
        // SAFETY: opened above, and not used after that.
        unsafe { libc::dlclose(handle) };
    }
    std::ptr::null_mut()
}

/// Adds the path of a loaded object to a list. The program itself has no path and is left out: its
/// calls are intercepted already.
unsafe extern "C" fn note(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    objects: *mut c_void,
) -> c_int {
    // SAFETY: valid during the call, by the word of `dl_iterate_phdr`.
    let name = unsafe { (*info).dlpi_name };
    if !name.is_null() {
        // SAFETY: a path that ends with a zero, and lives during the call.
        let name = unsafe { CStr::from_ptr(name) };
        if !name.is_empty() {
            // SAFETY: the list that was given to `dl_iterate_phdr`.
            unsafe { (*objects.cast::<Vec<CString>>()).push(name.to_owned()) };
        }
    }
    0
}

/// The start address of the object that contains an address.
fn object_of(address: *const c_void) -> *mut c_void {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; zeroes are a valid `Dl_info`.
    unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        info.assume_init().dli_fbase
    }
}

/// Defines functions under their C names. Each has a body, in which `original` is the original
/// function. If no library has the original, the result is the expression after `else`.
macro_rules! instead_of {
    ($(
        $name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr,
        |$original:ident| $body:expr
    )*) => {$(
        #[allow(clippy::unused_unit, reason = "the type of some results")]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            static ORIGINAL: $crate::original::Original =
                $crate::original::Original::new(
                    // A literal with a zero at its end and none before.
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!("a name of C"),
                    },
                );
            let address = ORIGINAL.address();
            if address.is_null() {
                return $missing;
            }
            // SAFETY: the function of this name has this type (1. in the head of the library).
            let original = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(address) };
            // Copies the arguments, so that they can stay in registers.
            // SAFETY: called with the arguments that the program gave.
            let $original = move || unsafe { original($($argument),*) };
            $body
        }
    )*};
}

pub(crate) use instead_of;

/// The result of a function that no library has.
pub(crate) fn not_there<T: From<i8>>() -> T {
    crate::shim::set_errno(libc::ENOSYS);
    T::from(-1)
}
