//! Values as people write them on a command line or in a file: sizes (`64KiB`), times (`5ms`),
//! lists of `key=value`, addresses of NBD exports; and numbers as people read them (`3.9 MiB`).
//! Every crate that reads or prints such text uses these.
//!
//! Not here: which keys and values there are, and what is said about a wrong one.
//!
//! ```
//! use undercroft_text::{Bytes, list, pair};
//!
//! assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
//! let pairs: Vec<_> = list("cap(a,b),size=1MiB", ',').into_iter().map(pair).collect();
//! assert_eq!(pairs, [("cap(a,b)", None), ("size", Some("1MiB"))]);
//! ```
#![forbid(unsafe_code)]

mod nbd_uri;
mod pairs;
mod shown;
mod units;

pub use nbd_uri::{Endpoint, Uri, UriError};
pub use pairs::{list, outside_quotes, pair, unquoted, words};
pub use shown::{bytes, count, percent, word};
pub use units::{Bytes, NotAValue, Time};
