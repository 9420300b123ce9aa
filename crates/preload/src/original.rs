//! The functions that ours stand in front of.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function of a library behind ours, looked up when it is first needed.
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
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Relaxed);
        found
    }
}

/// Defines functions under their names in C. Each has a body, in which `original` is the function
/// behind it, or none if no library has that: then the result is what follows `else`.
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
            // Copies the arguments: they can stay in registers then.
            // SAFETY: called with the arguments that the program gave.
            let $original = move || unsafe { original($($argument),*) };
            $body
        }
    )*};
}

pub(crate) use instead_of;

/// What a function answers that no library has.
pub(crate) fn not_there<T: From<i8>>() -> T {
    crate::shim::set_errno(libc::ENOSYS);
    T::from(-1)
}
