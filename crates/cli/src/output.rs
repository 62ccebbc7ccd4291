//! Standard output, or what stands for it, as subcommands see it: buffered, coloured only where that is wanted, and with
//! the choice between text and JSON.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::outcome::Error;

/// Column headings and the like.
pub(crate) const HEADING: Style = Style::new().bold();
/// Something is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Something is not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Of less interest than its neighbours.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Where results go. `write!` and `writeln!` work on it and fail with [`Error::Output`] only.
pub(crate) struct Output {
    sink: BufWriter<Box<dyn Write>>,
    json: bool,
    colour: bool,
}

impl Output {
    /// Standard output; coloured on a terminal unless `NO_COLOR` is set.
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let colour = anstream::AutoStream::choice(&stdout) != anstream::ColorChoice::Never;
        Self {
            sink: BufWriter::with_capacity(64 << 10, Box::new(stdout.lock())),
            json,
            colour,
        }
    }

    /// Standard error, for what is told beside the output of another program.
    pub(crate) fn stderr(json: bool) -> Self {
        let stderr = io::stderr();
        let colour = anstream::AutoStream::choice(&stderr) != anstream::ColorChoice::Never;
        Self {
            sink: BufWriter::new(Box::new(stderr)),
            json,
            colour,
        }
    }

    /// A file, without colour.
    pub(crate) fn file(file: File, json: bool) -> Self {
        Self {
            sink: BufWriter::new(Box::new(file)),
            json,
            colour: false,
        }
    }

    /// Whether `--json` was given.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// `text` in `style`, or as it is where colour is unwanted.
    pub(crate) fn paint<T: fmt::Display>(&self, style: Style, text: T) -> Painted<T> {
        Painted {
            style: if self.colour { style } else { Style::new() },
            text,
        }
    }

    /// Prints `value` as indented JSON.
    pub(crate) fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        serde_json::to_writer_pretty(&mut self.sink, value)
            .map_err(|error| Error::Output(error.into()))?;
        writeln!(self)
    }

    /// Called by `write!` and `writeln!`.
    pub(crate) fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<(), Error> {
        self.sink.write_fmt(text).map_err(Error::Output)
    }

    /// Prints `bytes` as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.sink.write_all(bytes).map_err(Error::Output)
    }

    /// Hands everything to the reader now.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.sink.flush().map_err(Error::Output)
    }

    /// Hands everything to the reader for the last time.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.flush()
    }
}

/// A text with its style, for `write!`.
pub(crate) struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.style.render())?;
        self.text.fmt(f)?;
        write!(f, "{}", self.style.render_reset())
    }
}
