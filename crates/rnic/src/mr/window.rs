//! Memory windows: keys for a part of a region with rights of their own, given and taken back
//! without a system call (`ibv_bind_mw(3)`).
//!
//! The index of a window's key stays the same while the window lives; every bind chooses the
//! variant anew. Type 2 follows its variety 2B: bound to a queue pair and a domain.

use std::sync::Arc;

use hirail_wire::{Lkey, Qpn, Rkey};

use super::index::KeySpace;
use super::slice::Slice;
use super::table::{Entry, KeyTable, Refusal};
use super::{Access, Extent, Mr, PdId};
use crate::error::{Object, VerbError};
use crate::host::Host;

/// The two kinds of memory windows, with the verbs' numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MwType {
    /// Open to every queue pair of its domain; rebound at will, unbound by binding no bytes.
    Type1 = 1,
    /// Open to the queue pair that bound it; unbound by invalidation only.
    Type2 = 2,
}

/// What a window is to be bound to: the content of a bind request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindMw {
    /// The window, by any key that it ever had: only the index counts.
    pub window: Rkey,
    /// The key that it gets. Only the variant counts: the caller's choice for type 2; for type 1
    /// the verb takes the one after the window's current variant.
    pub new_key: Rkey,
    /// The region. Not looked at when a type 1 window is unbound.
    pub region: Lkey,
    /// First address, in the terms of the region.
    pub addr: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// What peers may do through the window, [`Access::ZERO_BASED`] if its addresses count from 0.
    pub access: Access,
}

impl BindMw {
    /// The key that the window will have: its index with the new variant.
    pub const fn rkey(&self) -> Rkey {
        Rkey::from_parts(self.window.index(), self.new_key.variant())
    }
}

/// Why a window was not bound: `MW_BIND_ERR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindRefused {
    /// There is no such window.
    UnknownWindow,
    /// There is no such region.
    UnknownRegion,
    /// Window, region and queue pair do not share one domain.
    ForeignPd,
    /// A type 2 window must be invalidated before it is bound again.
    StillBound,
    /// A type 2 window cannot be bound to no bytes.
    Empty,
    /// The region does not allow binding, or not with these rights.
    MissingRight,
    /// Rights that windows do not have.
    ImpossibleRight,
    /// Not all bytes lie inside the region.
    OutOfRange,
    /// The region is zero-based, or a type 1 window should be.
    ZeroBased,
}

/// Why a key was not invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidateRefused {
    /// No region or window has this key now.
    UnknownKey,
    /// Only windows of type 2 can be invalidated.
    NotType2,
    /// The window belongs to another protection domain.
    ForeignPd,
    /// The window is bound to another queue pair.
    ForeignQp,
    /// A peer may not invalidate what is not bound.
    NotBound,
}

/// A memory window.
pub(super) struct Mw<H: Host> {
    kind: MwType,
    pd: PdId,
    /// Where the table's list of windows names this one.
    position: usize,
    bound: Option<Bound<H>>,
}

struct Bound<H: Host> {
    mr: Arc<Mr<H>>,
    /// The queue pair that bound it; matters for type 2.
    qpn: Qpn,
    access: Access,
    /// The addresses under which peers see it.
    extent: Extent,
    /// Offset of its first byte in the region.
    offset: u64,
}

impl<H: Host> Mw<H> {
    pub(super) fn pd(&self) -> PdId {
        self.pd
    }

    /// Checks an access of a peer. Its key was found to be this window's.
    pub(super) fn check(
        &self,
        pd: PdId,
        qpn: Qpn,
        va: u64,
        len: u32,
        need: Access,
    ) -> Result<Slice<H>, Refusal> {
        let bound = self.bound.as_ref().ok_or(Refusal::UnknownKey)?;
        if self.pd != pd {
            return Err(Refusal::ForeignPd);
        }
        if self.kind == MwType::Type2 && bound.qpn != qpn {
            return Err(Refusal::ForeignQp);
        }
        if !bound.access.contains(need) {
            return Err(Refusal::MissingRight);
        }
        let within = bound
            .extent
            .offset_of(va, len.into())
            .ok_or(Refusal::OutOfRange)?;
        Ok(Slice::new(
            Arc::clone(&bound.mr),
            bound.offset + within,
            len,
        ))
    }
}

/// Rights that a window can grant. LOCAL_WRITE is accepted and means nothing.
const GRANTABLE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT)
    .union(Access::ZERO_BASED);

impl<H: Host> KeyTable<H> {
    /// Makes a window, unbound, and returns its first key.
    pub fn alloc_mw(&mut self, pd: PdId, kind: MwType) -> Result<Rkey, VerbError> {
        let number = self.allocate(Object::Mw)?;
        // Bind requests choose the variant, so the index must not be one that others knew.
        let slot = &mut self.slots[number as usize];
        slot.generation = KeySpace::last_of_index(slot.generation);
        let key = self.new_key(number);
        let position = self.windows.len();
        self.windows.push(number);
        self.slots[number as usize].entry = Entry::Window(Box::new(Mw {
            kind,
            pd,
            position,
            bound: None,
        }));
        Ok(Rkey::new(key))
    }

    /// Destroys a window, bound or not. Any key that it ever had names it.
    pub fn dealloc_mw(&mut self, mw: Rkey) -> Result<(), VerbError> {
        let Some(&Mw { position, .. }) = self.window(mw) else {
            return Err(VerbError::NotFound {
                object: Object::Mw,
                id: mw.value(),
            });
        };
        let number = self.keys.slot(mw.value());
        self.unbind(number);
        self.release(number);
        let slot = &mut self.slots[number as usize];
        slot.generation = KeySpace::last_of_index(slot.generation);
        self.windows.swap_remove(position);
        if let Some(&moved) = self.windows.get(position)
            && let Entry::Window(moved) = &mut self.slots[moved as usize].entry
        {
            moved.position = position;
        }
        Ok(())
    }

    /// Carries out a bind request of queue pair `qpn` in domain `pd`. A window that cannot be bound
    /// stays as it was.
    pub fn bind_mw(&mut self, bind: &BindMw, pd: PdId, qpn: Qpn) -> Result<Rkey, BindRefused> {
        let window = self.window(bind.window).ok_or(BindRefused::UnknownWindow)?;
        if window.pd != pd {
            return Err(BindRefused::ForeignPd);
        }
        let bound = match window.kind {
            MwType::Type1 if bind.length == 0 => None,
            MwType::Type1 if bind.access.contains(Access::ZERO_BASED) => {
                return Err(BindRefused::ZeroBased);
            }
            MwType::Type2 if window.bound.is_some() => return Err(BindRefused::StillBound),
            MwType::Type2 if bind.length == 0 => return Err(BindRefused::Empty),
            MwType::Type1 | MwType::Type2 => Some(self.bound(bind, pd, qpn)?),
        };
        let number = self.keys.slot(bind.window.value());
        self.unbind(number);
        self.slots[number as usize].key = bind.rkey().value();
        if let Some(bound) = bound {
            self.set_bound(number, bound);
        }
        Ok(bind.rkey())
    }

    /// Carries out a local invalidate of queue pair `qpn` in domain `pd`. Invalidating a window
    /// that is not bound changes nothing.
    pub fn invalidate_local(
        &mut self,
        key: Rkey,
        pd: PdId,
        qpn: Qpn,
    ) -> Result<(), InvalidateRefused> {
        match self.invalidate(key, pd, qpn) {
            Err(InvalidateRefused::NotBound) => Ok(()),
            done => done,
        }
    }

    /// Carries out the invalidation that came with a SEND to queue pair `qpn` in domain `pd`.
    pub fn invalidate_remote(
        &mut self,
        key: Rkey,
        pd: PdId,
        qpn: Qpn,
    ) -> Result<(), InvalidateRefused> {
        self.invalidate(key, pd, qpn)
    }

    /// Unbinds the type 2 windows that a queue pair has bound, because it is destroyed.
    pub fn release_qp_windows(&mut self, qpn: Qpn) {
        if self.bound_type2 == 0 {
            return;
        }
        for position in 0..self.windows.len() {
            let number = self.windows[position];
            if let Entry::Window(mw) = &self.slots[number as usize].entry
                && mw.kind == MwType::Type2
                && mw.bound.as_ref().is_some_and(|bound| bound.qpn == qpn)
            {
                self.unbind(number);
            }
        }
    }

    /// Removes a region as [`deregister`](Self::deregister) does, with the windows that are bound to
    /// it: they are unbound, whoever bound them.
    pub fn revoke(&mut self, lkey: Lkey) -> Result<Arc<Mr<H>>, VerbError> {
        if let Some(mr) = self.region(lkey).map(Arc::clone) {
            for position in 0..self.windows.len() {
                let number = self.windows[position];
                if let Entry::Window(mw) = &self.slots[number as usize].entry
                    && mw
                        .bound
                        .as_ref()
                        .is_some_and(|bound| Arc::ptr_eq(&bound.mr, &mr))
                {
                    self.unbind(number);
                }
            }
        }
        self.deregister(lkey)
    }

    /// The current key of the window that once had key `mw`.
    pub fn mw_rkey(&self, mw: Rkey) -> Option<Rkey> {
        self.window(mw)?;
        Some(Rkey::new(
            self.slots[self.keys.slot(mw.value()) as usize].key,
        ))
    }

    /// The window whose index is that of `key`, whatever its variant.
    fn window(&self, key: Rkey) -> Option<&Mw<H>> {
        let slot = self.slots.get(self.keys.slot(key.value()) as usize)?;
        match &slot.entry {
            Entry::Window(mw) if slot.key >> 8 == key.index() => Some(mw),
            _ => None,
        }
    }

    /// Checks a bind request against the region.
    fn bound(&self, bind: &BindMw, pd: PdId, qpn: Qpn) -> Result<Bound<H>, BindRefused> {
        let mr = self.region(bind.region).ok_or(BindRefused::UnknownRegion)?;
        if mr.pd() != pd {
            return Err(BindRefused::ForeignPd);
        }
        if !GRANTABLE.contains(bind.access) {
            return Err(BindRefused::ImpossibleRight);
        }
        let writes = bind
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let flush = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
        if !mr.access().contains(Access::MW_BIND)
            || writes && !mr.access().contains(Access::LOCAL_WRITE)
            || !mr.access().contains(bind.access & flush)
        {
            return Err(BindRefused::MissingRight);
        }
        if mr.access().contains(Access::ZERO_BASED) {
            return Err(BindRefused::ZeroBased);
        }
        let offset = mr
            .extent
            .offset_of(bind.addr, bind.length)
            .ok_or(BindRefused::OutOfRange)?;
        let base = if bind.access.contains(Access::ZERO_BASED) {
            0
        } else {
            bind.addr
        };
        Ok(Bound {
            mr: Arc::clone(mr),
            qpn,
            access: bind.access,
            extent: Extent {
                base,
                length: bind.length,
            },
            offset,
        })
    }

    fn invalidate(&mut self, key: Rkey, pd: PdId, qpn: Qpn) -> Result<(), InvalidateRefused> {
        let number = self.keys.slot(key.value());
        let slot = self
            .slots
            .get(number as usize)
            .filter(|slot| slot.key == key.value());
        match slot.map(|slot| &slot.entry) {
            None | Some(Entry::Free) => Err(InvalidateRefused::UnknownKey),
            Some(Entry::Region { .. }) => Err(InvalidateRefused::NotType2),
            Some(Entry::Window(mw)) if mw.kind == MwType::Type1 => Err(InvalidateRefused::NotType2),
            Some(Entry::Window(mw)) if mw.pd != pd => Err(InvalidateRefused::ForeignPd),
            Some(Entry::Window(mw)) => match &mw.bound {
                None => Err(InvalidateRefused::NotBound),
                Some(bound) if bound.qpn != qpn => Err(InvalidateRefused::ForeignQp),
                Some(_) => {
                    self.unbind(number);
                    Ok(())
                }
            },
        }
    }

    /// Binds the window in slot `number`, which is not bound.
    fn set_bound(&mut self, number: u32, bound: Bound<H>) {
        self.count_window(&bound.mr, 1);
        if let Entry::Window(mw) = &mut self.slots[number as usize].entry {
            self.bound_type2 += u32::from(mw.kind == MwType::Type2);
            mw.bound = Some(bound);
        }
    }

    /// Unbinds the window in slot `number`, if it is bound.
    fn unbind(&mut self, number: u32) {
        if let Entry::Window(mw) = &mut self.slots[number as usize].entry
            && let Some(bound) = mw.bound.take()
        {
            self.bound_type2 -= u32::from(mw.kind == MwType::Type2);
            self.count_window(&bound.mr, -1);
        }
    }

    /// Changes the count of windows of a region, which is registered because it has some or is
    /// about to.
    fn count_window(&mut self, mr: &Mr<H>, change: i32) {
        let number = self.keys.slot(mr.key);
        if let Entry::Region { windows, .. } = &mut self.slots[number as usize].entry {
            *windows = windows.strict_add_signed(change);
        }
    }
}
