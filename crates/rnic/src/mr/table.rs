//! The table of all keys: registration, and the two checks that every access passes.

use core::fmt;
use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use hirail_wire::{Lkey, Qpn, Rkey};

use super::index::KeySpace;
use super::slice::Slice;
use super::window::Mw;
use super::{Access, Extent, Mr, PdId};
use crate::error::{Object, VerbError};
use crate::host::Host;
use crate::planted::{self, Bug};

/// Why a key does not give access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No region, and no bound window, has this key now.
    UnknownKey,
    /// The key belongs to another protection domain.
    ForeignPd,
    /// The window is bound to another queue pair.
    ForeignQp,
    /// The key does not grant the right.
    MissingRight,
    /// Not all bytes lie inside the region or window.
    OutOfRange,
}

/// A scatter/gather entry may not be used: `LOC_PROT_ERR`, or a remote operational error where a
/// receive request is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalProtection(pub Refusal);

/// A request of the peer may not access memory: a remote access error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRefused(pub Refusal);

/// All memory regions and windows of a device, by key.
///
/// The slots are a plain array that grows up to its bound; a secret permutation makes keys of slot
/// numbers (see `index.rs`). A freed slot rests until 4096 others are free or the table is full, and
/// then gets a key that it never had: stale keys open nothing.
pub struct KeyTable<H: Host> {
    pub(super) keys: KeySpace,
    pub(super) slots: Vec<Slot<H>>,
    /// Free slots, longest free first.
    free: VecDeque<u32>,
    capacity: u32,
    /// Slots of all windows, in no order. Each window knows its position here.
    pub(super) windows: Vec<u32>,
    /// Windows of type 2 that are bound now.
    pub(super) bound_type2: u32,
}

/// Freed slots that rest before the first is used again. A slot has 2^(32 − log2 capacity) keys, so
/// with 2^20 slots 16 million registrations pass before a key comes back.
const RESERVE: usize = 4096;

pub(super) struct Slot<H: Host> {
    /// The only key that opens it. Meaningless while the slot is free.
    pub(super) key: u32,
    pub(super) generation: u32,
    pub(super) entry: Entry<H>,
}

pub(super) enum Entry<H: Host> {
    Free,
    Region {
        mr: Arc<Mr<H>>,
        /// Windows bound to it.
        windows: u32,
    },
    Window(Box<Mw<H>>),
}

/// What [`KeyTable::reregister`] changes; `None` leaves a thing as it is.
pub struct Reregister<H: Host> {
    /// Another protection domain.
    pub pd: Option<PdId>,
    /// Other access rights.
    pub access: Option<Access>,
    /// Other memory: address of its first byte, length, and the memory itself.
    pub translation: Option<(u64, u64, H::Region)>,
}

/// The outcome of [`KeyTable::reregister`].
#[derive(Debug)]
pub struct Reregistered<H: Host> {
    /// The region as it is now. With other memory it is a new object with a new key: who knew the
    /// old memory must not reach the new one.
    pub mr: Arc<Mr<H>>,
    /// The region that was replaced, if memory changed, to wait for its last user.
    pub replaced: Option<Arc<Mr<H>>>,
}

impl<H: Host> KeyTable<H> {
    /// An empty table for `capacity` regions and windows, at most 2^22. `secret` should be random:
    /// it makes the keys unpredictable.
    pub fn new(secret: u128, capacity: u32) -> Self {
        let capacity = capacity.min(KeySpace::MAX_SLOTS);
        Self {
            keys: KeySpace::new(secret, capacity),
            slots: Vec::new(),
            free: VecDeque::new(),
            capacity,
            windows: Vec::new(),
            bound_type2: 0,
        }
    }

    /// Registers `length` bytes of `region` under a new key. Their addresses count from `iova`, or
    /// from 0 with [`Access::ZERO_BASED`].
    pub fn register(
        &mut self,
        pd: PdId,
        iova: u64,
        length: u64,
        access: Access,
        region: H::Region,
    ) -> Result<Arc<Mr<H>>, VerbError> {
        check_rights(access)?;
        let extent = check_extent(iova, length, access)?;
        let slot = self.allocate(Object::Mr)?;
        Ok(self.insert(slot, pd, access, extent, region))
    }

    /// Changes a region. Refused while windows are bound to it. Accesses under way finish under
    /// what was in force when they were checked.
    pub fn reregister(
        &mut self,
        lkey: Lkey,
        change: Reregister<H>,
    ) -> Result<Reregistered<H>, VerbError> {
        let (slot, old) = self.unbound_region(lkey)?;
        let pd = change.pd.unwrap_or(old.pd());
        let access = change.access.unwrap_or(old.access());
        check_rights(access)?;
        let Some((iova, length, region)) = change.translation else {
            if (access ^ old.access()).contains(Access::ZERO_BASED) {
                return Err(VerbError::RebaseNeedsTranslation);
            }
            old.pd.store(pd.0, Ordering::Relaxed);
            old.access.store(access.bits(), Ordering::Relaxed);
            return Ok(Reregistered {
                mr: old,
                replaced: None,
            });
        };
        let extent = check_extent(iova, length, access)?;
        let mr = self.insert(slot, pd, access, extent, region);
        Ok(Reregistered {
            mr,
            replaced: Some(old),
        })
    }

    /// Removes a region: from now on its key opens nothing. Refused while windows are bound to it.
    /// Accesses under way hold references to what is returned; [`Mr::try_into_region`] tells when
    /// the last is gone.
    pub fn deregister(&mut self, lkey: Lkey) -> Result<Arc<Mr<H>>, VerbError> {
        let (slot, mr) = self.unbound_region(lkey)?;
        if !planted::has(Bug::StaleKeyAccepted) {
            self.release(slot);
        }
        Ok(mr)
    }

    /// Checks a scatter/gather entry of a work request: `len` bytes at `addr` for a queue pair (or
    /// SRQ) of domain `pd`. `need` is [`Access::LOCAL_WRITE`] to scatter, [`Access::NONE`] to
    /// gather.
    #[inline]
    pub fn check_local(
        &self,
        lkey: Lkey,
        pd: PdId,
        addr: u64,
        len: u32,
        need: Access,
    ) -> Result<Slice<H>, LocalProtection> {
        match self.entry(lkey.value()) {
            Some(Entry::Region { mr, .. }) => check_region(mr, pd, addr, len, need),
            _ => Err(Refusal::UnknownKey),
        }
        .map_err(LocalProtection)
    }

    /// Checks a request of the peer of queue pair `qpn` in domain `pd`: `len` bytes at `va` under
    /// `rkey`, which must grant `need`.
    ///
    /// Accesses of no bytes are legal with any key and are not to be checked at all. Whether
    /// atomics are aligned is for the caller to see.
    #[inline]
    pub fn check_remote(
        &self,
        rkey: Rkey,
        pd: PdId,
        qpn: Qpn,
        va: u64,
        len: u32,
        need: Access,
    ) -> Result<Slice<H>, RemoteRefused> {
        match self.entry(rkey.value()) {
            Some(Entry::Region { mr, .. }) => check_region(mr, pd, va, len, need),
            Some(Entry::Window(mw)) => mw.check(pd, qpn, va, len, need),
            _ => Err(Refusal::UnknownKey),
        }
        .map_err(RemoteRefused)
    }

    /// The region that has `lkey`.
    pub fn region(&self, lkey: Lkey) -> Option<&Arc<Mr<H>>> {
        match self.entry(lkey.value()) {
            Some(Entry::Region { mr, .. }) => Some(mr),
            _ => None,
        }
    }

    /// How many regions and windows belong to `pd`. Looks at all of them.
    pub fn users_of(&self, pd: PdId) -> u32 {
        let uses = |slot: &&Slot<H>| match &slot.entry {
            Entry::Free => false,
            Entry::Region { mr, .. } => mr.pd() == pd,
            Entry::Window(mw) => mw.pd() == pd,
        };
        self.slots.iter().filter(uses).count() as u32
    }

    /// Regions and windows in the table.
    pub fn len(&self) -> u32 {
        (self.slots.len() - self.free.len()) as u32
    }

    /// Whether the table has no region and no window.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Regions and windows that it can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// What `key` opens.
    #[inline]
    fn entry(&self, key: u32) -> Option<&Entry<H>> {
        let slot = self.slots.get(self.keys.slot(key) as usize)?;
        let is_open = slot.key == key || planted::has(Bug::KeyVariantIgnored);
        is_open.then_some(&slot.entry)
    }

    /// The region that has `lkey`, and its slot, if no window is bound to it.
    fn unbound_region(&self, lkey: Lkey) -> Result<(u32, Arc<Mr<H>>), VerbError> {
        let (object, id) = (Object::Mr, lkey.value());
        match self.entry(id) {
            Some(Entry::Region { mr, windows: 0 }) => Ok((self.keys.slot(id), Arc::clone(mr))),
            Some(&Entry::Region { windows: users, .. }) => {
                Err(VerbError::Busy { object, id, users })
            }
            _ => Err(VerbError::NotFound { object, id }),
        }
    }

    /// Puts a region into a slot, under a new key.
    fn insert(
        &mut self,
        slot: u32,
        pd: PdId,
        access: Access,
        extent: Extent,
        region: H::Region,
    ) -> Arc<Mr<H>> {
        let mr = Arc::new(Mr {
            key: self.new_key(slot),
            pd: pd.0.into(),
            access: access.bits().into(),
            extent,
            region,
        });
        self.slots[slot as usize].entry = Entry::Region {
            mr: Arc::clone(&mr),
            windows: 0,
        };
        mr
    }

    /// Takes a free slot.
    pub(super) fn allocate(&mut self, object: Object) -> Result<u32, VerbError> {
        let full = self.slots.len() == self.capacity as usize;
        if self.free.len() > RESERVE || full {
            let exhausted = VerbError::Exhausted {
                object,
                limit: self.capacity,
            };
            return self.free.pop_front().ok_or(exhausted);
        }
        self.slots.push(Slot {
            key: 0,
            generation: 0,
            entry: Entry::Free,
        });
        Ok(self.slots.len() as u32 - 1)
    }

    /// Frees a slot; its keys so far will not come back.
    pub(super) fn release(&mut self, slot: u32) {
        self.free.push_back(slot);
        self.slots[slot as usize].entry = Entry::Free;
    }

    /// Moves a slot on to a key that it never had and returns that.
    pub(super) fn new_key(&mut self, number: u32) -> u32 {
        let slot = &mut self.slots[number as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.key = self.keys.key(number, slot.generation);
        slot.key
    }
}

impl<H: Host> fmt::Debug for KeyTable<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the secret.
        f.debug_struct("KeyTable")
            .field("len", &self.len())
            .field("windows", &self.windows.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

fn check_region<H: Host>(
    mr: &Arc<Mr<H>>,
    pd: PdId,
    va: u64,
    len: u32,
    need: Access,
) -> Result<Slice<H>, Refusal> {
    if mr.pd() != pd {
        return Err(Refusal::ForeignPd);
    }
    if !mr.access().contains(need) {
        return Err(Refusal::MissingRight);
    }
    let offset = mr
        .extent
        .offset_of(va, len.into())
        .ok_or(Refusal::OutOfRange)?;
    Ok(Slice::new(Arc::clone(mr), offset, len))
}

/// Who lets peers write must be able to write itself (`ibv_reg_mr(3)`).
fn check_rights(access: Access) -> Result<(), VerbError> {
    let remote = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if remote && !access.contains(Access::LOCAL_WRITE) {
        return Err(VerbError::NeedsLocalWrite { got: access });
    }
    Ok(())
}

/// Nothing has no address; it can be registered only where addresses count from its first byte, as
/// memory of the device is (`ibv_reg_dm_mr(3)`).
fn check_extent(iova: u64, length: u64, access: Access) -> Result<Extent, VerbError> {
    if length == 0 && !access.contains(Access::ZERO_BASED) {
        return Err(VerbError::TooSmall {
            what: "length",
            min: 1,
            got: 0,
        });
    }
    let base = if access.contains(Access::ZERO_BASED) {
        0
    } else {
        iova
    };
    Extent::new(base, length).ok_or(VerbError::AddressWraps { iova, length })
}
