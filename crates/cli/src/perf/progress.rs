//! Progress of long runs, on standard error and only where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that is drawn after each step and gone at the end.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of so many steps.
    pub(crate) fn new(steps: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
        Self(ProgressBar::new(steps).with_style(style.expect("the template is a constant")))
    }

    /// Says what is being measured.
    pub(crate) fn say(&self, what: String) {
        self.0.set_message(what);
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
