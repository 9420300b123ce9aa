//! The oracle: whether what the clients were answered can have come from a disk that is what NBD
//! promises, sector by sector.
//!
//! A sector is a register. There must be an order of the operations on it that agrees with every
//! answer, and in which each takes effect at one moment between its call and its end. Freedoms:
//!
//! * A write that failed, or whose connection was lost, takes effect at one moment after its call,
//!   or never. One that was answered with a failure does not after a later write has.
//! * TRIM leaves zeroes, or changes nothing, or brings back what was there before and was not
//!   overwritten durably: NBD promises nothing of what is trimmed, and what was only in a cache is
//!   dropped. At a service that does late what it refused, this goes on until the next write: the
//!   cache has dropped what it would have written again.
//! * When what was not durable is lost, the sector holds what any operation left there, but
//!   nothing that was over before an operation began that was made durable: by FUA, or by a FLUSH
//!   that succeeded and was asked for after the operation's answer.
//!
//! All orders that are still possible are followed at once ([`Possible`]). An operation is given
//! its moment as late as can be: when its own end needs it, or a read that found its value. One
//! that nobody saw may have had its moment just before that of the value which is there now.

mod promises;
mod register;

pub use promises::check;
