//! Whose an event of the other library is. Held while a connection begins, so that its first event
//! finds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use hirail_abi::Cm;

use crate::entry::lock;
use crate::id::Id;

/// A number that a connection manager has given, and the manager.
type Name = (usize, u32);

/// The ids that take part in something.
#[derive(Default)]
pub(crate) struct Registry {
    connections: BTreeMap<Name, Arc<Id>>,
    listeners: BTreeMap<Name, Arc<Id>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    connections: BTreeMap::new(),
    listeners: BTreeMap::new(),
});

/// The registry.
pub(crate) fn registry() -> MutexGuard<'static, Registry> {
    lock(&REGISTRY)
}

impl Registry {
    pub(crate) fn add(&mut self, cm: *mut Cm, comm: u32, id: &Arc<Id>) {
        self.connections.insert((cm.addr(), comm), Arc::clone(id));
    }

    pub(crate) fn remove(&mut self, cm: *mut Cm, comm: u32) {
        self.connections.remove(&(cm.addr(), comm));
    }

    pub(crate) fn connection(&self, cm: *mut Cm, comm: u32) -> Option<Arc<Id>> {
        self.connections.get(&(cm.addr(), comm)).cloned()
    }

    pub(crate) fn add_listener(&mut self, cm: *mut Cm, listener: u32, id: &Arc<Id>) {
        self.listeners.insert((cm.addr(), listener), Arc::clone(id));
    }

    /// Nothing is told to `id` as a listener any more.
    pub(crate) fn remove_listeners(&mut self, id: &Arc<Id>) {
        self.listeners.retain(|_, owner| !Arc::ptr_eq(owner, id));
    }

    pub(crate) fn listener(&self, cm: *mut Cm, listener: u32) -> Option<Arc<Id>> {
        self.listeners.get(&(cm.addr(), listener)).cloned()
    }
}
