//! Progress bars: on a terminal only, and only for work that takes a while.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, or none where standard error is no terminal.
fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = match length {
        Some(length) => ProgressBar::new(length),
        None => ProgressBar::new_spinner(),
    };
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Reading a trace whose length is not known.
pub(crate) struct Reading(ProgressBar);

impl Reading {
    pub(crate) fn start(path: &Path) -> Self {
        let bar = bar(None, "{spinner} reading {msg}  {human_pos} records  {per_sec}");
        bar.set_message(path.display().to_string());
        Self(bar)
    }

    pub(crate) fn at(&self, records: u64) {
        self.0.set_position(records);
    }

    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// Simulating block requests, of which there are so many.
pub(crate) struct Simulating(ProgressBar);

impl Simulating {
    pub(crate) fn start(requests: u64) -> Self {
        let template =
            "simulating {wide_bar} {human_pos} of {human_len} requests  {per_sec}  {eta} left";
        Self(bar(Some(requests), template))
    }

    pub(crate) fn at(&self, requests: u64) {
        self.0.set_position(requests);
    }

    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// Many runs side by side.
pub(crate) struct Sweeping(ProgressBar);

/// Ticks of the bar a run.
const TICKS: f64 = 1000.0;

impl Sweeping {
    pub(crate) fn start(runs: usize) -> Self {
        let template = "{msg} {wide_bar} {percent}% of all runs  {elapsed} passed  {eta} left";
        Self(bar(Some(runs as u64 * TICKS as u64), template))
    }

    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

impl undercroft_sim::Progress for Sweeping {
    fn reading(&self, path: &Path) {
        let name = path.file_name().unwrap_or(path.as_os_str());
        self.0.set_message(Path::new(name).display().to_string());
    }

    fn advanced(&self, share: f64) {
        self.0.inc((share * TICKS).round() as u64);
    }

    fn resumed(&self, runs: usize) {
        self.0.inc(runs as u64 * TICKS as u64);
        self.0.reset_eta();
    }
}
