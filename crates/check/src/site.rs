//! Places in the program: backtraces, each kept once.

use std::collections::HashMap;

/// A place in the program, by its backtrace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Site(u32);

/// All backtraces seen. Programs post from few places, so few are kept.
#[derive(Default)]
pub(crate) struct Sites {
    known: HashMap<Box<[usize]>, Site>,
    frames: Vec<Box<[usize]>>,
}

impl Sites {
    /// The place of a backtrace, its innermost frame first.
    pub(crate) fn intern(&mut self, frames: &[usize]) -> Site {
        if let Some(&site) = self.known.get(frames) {
            return site;
        }
        let site = Site(self.frames.len() as u32);
        self.frames.push(frames.into());
        self.known.insert(frames.into(), site);
        site
    }

    /// The backtrace of a place.
    pub(crate) fn frames(&self, site: Site) -> &[usize] {
        self.frames.get(site.0 as usize).map_or(&[], |it| it)
    }
}
