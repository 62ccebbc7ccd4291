//! Progress of long runs, on standard error and only where that is a terminal.

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressStyle};

/// Steps of one job on the bar.
const STEPS: u64 = 1000;

/// A bar over several jobs. It is gone at the end.
pub(crate) struct Progress {
    bar: ProgressBar,
    job: Cell<u64>,
}

impl Progress {
    /// A bar of so many jobs.
    pub(crate) fn new(jobs: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        let style = style.expect("the template is a constant");
        Self {
            bar: ProgressBar::new(jobs as u64 * STEPS).with_style(style),
            job: Cell::new(0),
        }
    }

    /// Says what is measured first or next.
    pub(crate) fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// So much of the current job is done, from 0 to 1.
    pub(crate) fn at(&self, done: f64) {
        let steps = (done.clamp(0.0, 1.0) * STEPS as f64) as u64;
        self.bar.set_position(self.job.get() * STEPS + steps);
    }

    /// The current job is done; the next one begins.
    pub(crate) fn next(&self) {
        self.at(1.0);
        self.job.set(self.job.get() + 1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
