//! Listeners: which requests are heard.

use core::net::IpAddr;
use std::collections::BTreeMap;

use hirail_wire::cm::ServiceId;

use crate::error::CmError;
use crate::planted::{self, Bug};

/// A listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// What to listen for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The service.
    pub service: ServiceId,
    /// Requests to this address only; to any of this port's without.
    pub address: Option<IpAddr>,
    /// Requests that may wait for an answer, or for [`Cm::seen`](crate::Cm::seen).
    pub backlog: u32,
}

struct Listener {
    listen: Listen,
    waiting: u32,
}

/// The listeners.
#[derive(Default)]
pub(crate) struct Listeners {
    next: u32,
    all: BTreeMap<ListenerId, Listener>,
    by_service: BTreeMap<(ServiceId, Option<IpAddr>), ListenerId>,
}

impl Listeners {
    pub(crate) fn add(&mut self, listen: Listen, limit: usize) -> Result<ListenerId, CmError> {
        let Listen {
            service, address, ..
        } = listen;
        if self.by_service.contains_key(&(service, address)) {
            return Err(CmError::AddressInUse);
        }
        if self.all.len() >= limit {
            let what = "listeners";
            return Err(CmError::Full { what, limit });
        }
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.all.contains_key(&ListenerId(self.next)) {
                break;
            }
        }
        let id = ListenerId(self.next);
        self.by_service.insert((service, address), id);
        self.all.insert(id, Listener { listen, waiting: 0 });
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Result<Listen, CmError> {
        let listener = self.all.remove(&id).ok_or(CmError::NoSuchListener(id))?;
        let Listen {
            service, address, ..
        } = listener.listen;
        self.by_service.remove(&(service, address));
        Ok(listener.listen)
    }

    /// Who hears a request for a service at an address: who listens at that address, before who
    /// listens at all of them.
    pub(crate) fn find(&self, service: ServiceId, address: IpAddr) -> Option<ListenerId> {
        let exact = (service, Some(address));
        let any = (service, None);
        let order = if planted::has(Bug::WildcardFirst) {
            [any, exact]
        } else {
            [exact, any]
        };
        order
            .iter()
            .find_map(|key| self.by_service.get(key))
            .copied()
    }

    /// Makes one more request wait. False where as many wait as may.
    pub(crate) fn enqueue(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.all.get_mut(&id) else {
            return false;
        };
        let has_room = listener.waiting < listener.listen.backlog;
        listener.waiting += u32::from(has_room);
        has_room
    }

    /// One request waits no more.
    pub(crate) fn dequeue(&mut self, id: ListenerId) {
        if planted::has(Bug::BacklogLeak) {
            return;
        }
        if let Some(listener) = self.all.get_mut(&id) {
            listener.waiting -= 1;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_listener_hears() {
        let mut listeners = Listeners::default();
        let (here, there) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let listen = |address| Listen {
            service: ServiceId(5),
            address,
            backlog: 1,
        };
        let near = listeners.add(listen(Some(here)), 3).unwrap();
        let all = listeners.add(listen(None), 3).unwrap();
        let again = listeners.add(listen(Some(here)), 3);
        assert_eq!(again, Err(CmError::AddressInUse));
        assert_eq!(listeners.find(ServiceId(5), here), Some(near));
        assert_eq!(listeners.find(ServiceId(5), there), Some(all));
        assert_eq!(listeners.find(ServiceId(6), here), None);
        assert!(listeners.enqueue(near));
        assert!(!listeners.enqueue(near), "one may wait");
        listeners.dequeue(near);
        assert!(listeners.enqueue(near));
        assert_eq!(listeners.remove(near), Ok(listen(Some(here))));
        assert_eq!(listeners.find(ServiceId(5), here), Some(all));
        assert_eq!(listeners.remove(near), Err(CmError::NoSuchListener(near)));
        listeners.add(listen(Some(here)), 2).unwrap();
        let full = listeners.add(listen(Some(there)), 2);
        let what = "listeners";
        assert_eq!(full, Err(CmError::Full { what, limit: 2 }));
    }
}
