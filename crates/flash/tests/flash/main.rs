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
    let mut future = pin!(future);
    loop {
        // Others may have a turn.
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}
