//! When something must happen although nothing arrives: one deadline per entry.

use std::collections::BTreeSet;

use hirail_rnic::Instant;

use crate::ids::CommId;

/// The deadlines, soonest first. Each entry keeps its own as well, by which it is found here.
#[derive(Default)]
pub(crate) struct Timers(BTreeSet<(Instant, CommId)>);

impl Timers {
    /// Replaces the deadline of an entry.
    pub(crate) fn set(&mut self, id: CommId, current: &mut Option<Instant>, next: Option<Instant>) {
        if let Some(at) = current.take() {
            self.0.remove(&(at, id));
        }
        if let Some(at) = next {
            self.0.insert((at, id));
        }
        *current = next;
    }

    /// The soonest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes one deadline that has come.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<CommId> {
        let (at, id) = *self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
