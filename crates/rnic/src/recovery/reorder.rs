//! The receiving half of selective repeat: requests that arrived too early, kept until their turn.
//!
//! The responder stays as it is: it sees requests in order, some of them late. The pool has one
//! place per PSN of the window; buffers are made on first use and kept.

use hirail_wire::{Headers, Psn, Sack};

use super::REORDER_PACKETS;
use crate::host::{Host, Region};
use crate::planted::{self, Bug};

type Held<H> = <<H as Host>::Region as Region>::Held;

/// A request that waits.
struct Place<H: Host> {
    headers: Option<Headers>,
    payload: Held<H>,
}

/// Requests of one QP that arrived too early.
pub(crate) struct ReorderPool<H: Host> {
    /// By PSN modulo the window; empty until something is kept.
    places: Vec<Place<H>>,
    count: usize,
}

impl<H: Host> Default for ReorderPool<H> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            count: 0,
        }
    }
}

/// What became of a request that arrived too early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// It waits now.
    New,
    /// It was waiting already.
    Already,
    /// It is too far ahead.
    Beyond,
}

impl<H: Host> ReorderPool<H> {
    /// Keeps a request that is `ahead` of the expected one.
    pub(crate) fn keep(
        &mut self,
        ahead: u32,
        headers: &Headers,
        payload: <H::Region as Region>::Payload<'_>,
    ) -> Kept {
        if ahead >= u32::from(REORDER_PACKETS) {
            return Kept::Beyond;
        }
        if self.places.is_empty() {
            let empty = || Place {
                headers: None,
                payload: Held::<H>::default(),
            };
            self.places = (0..REORDER_PACKETS).map(|_| empty()).collect();
        }
        let place = &mut self.places[index(headers.bth().psn)];
        if place
            .headers
            .is_some_and(|kept| kept.bth().psn == headers.bth().psn)
        {
            return Kept::Already;
        }
        if place.headers.is_none() {
            self.count += 1;
        }
        place.headers = Some(*headers);
        if self.count == 1 || !planted::has(Bug::PoolLosesBytes) {
            H::Region::hold(payload, &mut place.payload);
        }
        Kept::New
    }

    /// Takes the request with this PSN out, if it waits; its buffer is to be given back.
    pub(crate) fn take(&mut self, psn: Psn) -> Option<(Headers, Held<H>)> {
        if self.count == 0 {
            return None;
        }
        let place = &mut self.places[index(psn)];
        let headers = place.headers.filter(|kept| kept.bth().psn == psn)?;
        place.headers = None;
        self.count -= 1;
        Some((headers, core::mem::take(&mut place.payload)))
    }

    /// Gives back the buffer of a request that was taken out.
    pub(crate) fn give_back(&mut self, psn: Psn, buffer: Held<H>) {
        if let Some(place) = self.places.get_mut(index(psn)) {
            place.payload = buffer;
        }
    }

    /// Adds what waits to a selective acknowledgement.
    pub(crate) fn report(&self, sack: &mut Sack) {
        if self.count == 0 {
            return;
        }
        for place in &self.places {
            if let Some(headers) = place.headers {
                sack.insert(headers.bth().psn);
            }
        }
    }
}

fn index(psn: Psn) -> usize {
    psn.value() as usize % usize::from(REORDER_PACKETS)
}
