//! Functions and lines of a program, from its debugging information or its symbols.

use std::collections::BTreeMap;

use addr2line::Loader;
use hirail_check::record::Frame;
use serde::Serialize;

/// A frame that a person can read. Calls that were inlined are frames of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Named {
    /// The function, where it is known.
    pub(super) function: Option<String>,
    /// Its source file, where the program was built with `-g`.
    pub(super) file: Option<String>,
    /// The line in it.
    pub(super) line: Option<u32>,
    /// The program or library.
    pub(super) module: String,
    /// Where in that.
    pub(super) offset: u64,
}

/// The files that were asked for.
#[derive(Default)]
pub(super) struct Symbols {
    loaders: BTreeMap<String, Option<Loader>>,
}

impl Symbols {
    /// The frames of a place, the innermost first.
    pub(super) fn name(&mut self, frames: &[Frame]) -> Vec<Named> {
        frames.iter().flat_map(|frame| self.one(frame)).collect()
    }

    fn one(&mut self, frame: &Frame) -> Vec<Named> {
        let open = || Loader::new(&frame.file).ok();
        let loader = self.loaders.entry(frame.file.clone()).or_insert_with(open);
        let unknown = Named {
            function: None,
            file: None,
            line: None,
            module: frame.file.clone(),
            offset: frame.offset,
        };
        let Some(loader) = loader else {
            return vec![unknown];
        };
        // It is where the call returns to: the call lies before it.
        let call = frame.offset.saturating_sub(1);
        let mut named = Vec::new();
        if let Ok(mut frames) = loader.find_frames(call) {
            while let Ok(Some(found)) = frames.next() {
                let function = found.function.as_ref();
                let function = function.and_then(|it| it.demangle().ok().map(|it| it.into_owned()));
                let location = found.location.as_ref();
                named.push(Named {
                    function,
                    file: location.and_then(|it| it.file).map(str::to_owned),
                    line: location.and_then(|it| it.line),
                    ..unknown.clone()
                });
            }
        }
        let is_named = named.iter().any(|it| it.function.is_some());
        if is_named {
            return named;
        }
        vec![Named {
            function: loader.find_symbol(call).map(str::to_owned),
            ..unknown
        }]
    }
}
