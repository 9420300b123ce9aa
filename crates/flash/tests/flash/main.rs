//! The flash level against models that are written from its description.

mod devices;
mod level;
mod parts;
mod recorded;
mod restart;
mod slots;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// What a future is that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
