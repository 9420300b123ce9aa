//! Errors as C has them: a negative number, and a text that is kept for each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use undercroft_nbd::ClientError;

/// Done.
pub const UC_OK: c_int = 0;
/// An argument is not allowed; nothing happened.
pub const UC_ERROR_ARGUMENT: c_int = -1;
/// The server answered with an error, or does not offer that.
pub const UC_ERROR_SERVER: c_int = -2;
/// The server cannot be reached as asked: no such export, no such hints.
pub const UC_ERROR_REFUSED: c_int = -3;
/// The connection is lost, or was never there.
pub const UC_ERROR_LOST: c_int = -4;
/// Of a flush: the connection was lost with changes that were not flushed.
pub const UC_ERROR_UNFLUSHED: c_int = -6;
/// A mistake in this library.
pub const UC_ERROR_INTERNAL: c_int = -5;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call failed.
pub(crate) struct Failed {
    code: c_int,
    text: String,
}

impl Failed {
    pub(crate) fn argument(text: impl Into<String>) -> Failed {
        Failed { code: UC_ERROR_ARGUMENT, text: text.into() }
    }
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        let code = match &error {
            ClientError::Argument(_) => UC_ERROR_ARGUMENT,
            ClientError::Server { .. } => UC_ERROR_SERVER,
            ClientError::Refused(_) | ClientError::Busy(_) | ClientError::Away(_) => {
                UC_ERROR_REFUSED
            }
            ClientError::Malformed(_) | ClientError::Lost(_) => UC_ERROR_LOST,
            ClientError::Unflushed => UC_ERROR_UNFLUSHED,
        };
        Failed { code, text: error.to_string() }
    }
}

/// Runs the body of a function that C calls; the text of a failure is kept.
pub(crate) fn run(body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    // Whatever a panic left half-done belongs to a handle that says so itself from then on, or to
    // nobody.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let text = "a mistake in this library; please report it".to_owned();
        Err(Failed { code: UC_ERROR_INTERNAL, text })
    });
    let Err(Failed { code, text }) = result else { return UC_OK };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
    code
}

/// The text of the last error on this thread, for people; empty if there was none. It stays until
/// the next error on the same thread.
#[unsafe(no_mangle)]
pub extern "C" fn uc_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// A text of the caller's.
///
/// # Safety
/// `text` is null or ends with a zero byte, and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(Failed::argument(format!("{what} is NULL")));
    }
    // SAFETY: not null, and as this function demands.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failed::argument(format!("{what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use undercroft_nbd::Failure;

    use super::*;

    /// A number that NBD does not know counts as EINVAL, and after a failed write something may
    /// have happened.
    #[test]
    fn an_error_of_the_server_is_no_mistake_of_the_caller() {
        for failure in [Failure::Invalid, Failure::Io] {
            let text = "told by the server".to_owned();
            let failed = Failed::from(ClientError::Server { failure, text });
            assert_eq!(failed.code, UC_ERROR_SERVER, "{}", failed.text);
        }
        let wrong = ClientError::Argument("8 bytes at 9 pass the end of 9 bytes".to_owned());
        assert_eq!(Failed::from(wrong).code, UC_ERROR_ARGUMENT);
    }
}
