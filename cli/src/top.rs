//! The parts of `undercroft top`: what is asked of the server, in a thread of its own so that keys
//! work while it does not answer; the figures; their lines; the screen.

pub(crate) mod figures;
pub(crate) mod screen;
pub(crate) mod times;
pub(crate) mod view;

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::Error;
use crate::signals::EndSignals;
use crate::status::StatusOptions;

/// Looks at the counters for each look at the advice, which changes slowly.
const ADVICE_EVERY: u64 = 5;

/// What there is to be shown.
pub(crate) enum News {
    /// The counters, and when they were read.
    Stats(Value, Instant),
    /// The server's advice, if it gives any.
    Advice(Option<Value>),
    /// Why the server could not be asked.
    Lost(String),
    /// A signal asks this program to end.
    End,
}

/// Asks until nobody listens any more.
pub(crate) fn ask_again_and_again(server: &StatusOptions, every: Duration, to: &Sender<News>) {
    let signals = to.clone();
    std::thread::spawn(move || wait_for_signals(&signals));
    for look in 0_u64.. {
        if look % ADVICE_EVERY == 0 && to.send(News::Advice(server.advice())).is_err() {
            return;
        }
        std::thread::sleep(every);
        let news = match server.stats() {
            Ok(stats) => News::Stats(stats, Instant::now()),
            Err(error) => News::Lost(error.to_string()),
        };
        if to.send(news).is_err() {
            return;
        }
    }
}

/// Tells of the signals that end a program, so that the terminal is left as it was.
fn wait_for_signals(to: &Sender<News>) {
    let wait = || -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut end = EndSignals::new()?;
            let mut hang_up = signal(SignalKind::hangup())?;
            tokio::select! {
                () = end.next() => {}
                _ = hang_up.recv() => {}
            }
            Ok(())
        })
    };
    if wait().is_ok() {
        let _ = to.send(News::End);
    }
}
