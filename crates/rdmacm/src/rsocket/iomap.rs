//! Buffers that the peer may write to directly: `riomap`, `riounmap`, `riowrite`.
//!
//! Whoever maps a buffer writes its place into a table at the peer, before the next data that it
//! sends. Whoever writes finds the place by the offset, and nobody is told of the write: data sent
//! afterwards comes after it.

use core::ffi::{c_int, c_void};

use hirail_abi::{Mr, Pd};
use libc::off_t;

use super::memory::{Cursor, access, single};
use super::protocol::{Mapping, Sge};
use super::sender::Violation;
use super::stream::{self, FIRST_PIECE, MOST_PIECE, State, Stream};
use super::table::{self, Socket};
use crate::bridge::bridge;
use crate::entry;
use crate::errno::Errno;

/// The buffers that both sides have mapped.
pub(super) struct Mappings {
    /// The peer's, as it has written them.
    theirs: Vec<Mapping>,
    /// Those of the program that the peer is told of, by their entries at the peer.
    ours: Vec<Option<Mapped>>,
    /// Those that only this side uses.
    local: Vec<Mapped>,
}

/// A buffer of the program's.
struct Mapped {
    registered: Registered,
    offset: u64,
    is_told: bool,
}

/// Memory of the program's that the device may use.
struct Registered(*mut Mr);

// SAFETY: a registration may be used from any thread.
unsafe impl Send for Registered {}

impl Registered {
    fn new(pd: *mut Pd, at: *mut c_void, length: usize, access: c_int) -> Result<Self, Errno> {
        // SAFETY: the device's own domain, which stays; the memory is the program's to answer for.
        let mr = unsafe { (bridge()?.reg_mr)(pd, at, length, access) };
        Ok(Self(Errno::check_pointer(mr)?))
    }

    fn is(&self, at: *mut c_void, length: usize) -> bool {
        // SAFETY: it is registered.
        unsafe { (*self.0).addr == at && (*self.0).length == length }
    }

    fn sge(&self) -> Sge {
        // SAFETY: it is registered.
        unsafe {
            Sge {
                addr: (*self.0).addr.addr() as u64,
                key: (*self.0).rkey,
                length: (*self.0).length as u32,
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Ok(bridge) = bridge() {
            // SAFETY: it is given up, once.
            unsafe { (bridge.dereg_mr)(self.0) };
        }
    }
}

impl Mappings {
    /// The peer may map `theirs` buffers here, and this side `ours` there.
    pub(super) fn new(theirs: u16, ours: u16) -> Self {
        Self {
            theirs: vec![Mapping::default(); theirs.into()],
            ours: (0..ours).map(|_| None).collect(),
            local: Vec::new(),
        }
    }

    /// The peer has written an entry of the table.
    pub(super) fn written(
        &mut self,
        entry: u16,
        read: impl FnOnce() -> Mapping,
    ) -> Result<(), Violation> {
        let place = self.theirs.get_mut(usize::from(entry)).ok_or(Violation)?;
        *place = read();
        Ok(())
    }

    /// Where the peer has mapped `offset`: the address, the key, and how many bytes from there on.
    fn find(&self, offset: u64) -> Option<(u64, u32, usize)> {
        self.theirs.iter().find_map(|mapping| {
            let skip = offset.checked_sub(mapping.offset)?;
            let left = u64::from(mapping.sge.length).checked_sub(skip)?;
            let addr = mapping.sge.addr.wrapping_add(skip);
            (left > 0).then_some((addr, mapping.sge.key, left as usize))
        })
    }

    /// A buffer that the peer does not know of yet. It will be told.
    pub(super) fn untold(&mut self) -> Option<(u16, Mapping)> {
        let mut entries = self.ours.iter_mut().zip(0..);
        let (mapped, entry) = entries.find_map(|(mapped, entry)| {
            let mapped = mapped.as_mut()?;
            (!mapped.is_told).then_some((mapped, entry))
        })?;
        mapped.is_told = true;
        let mapping = Mapping {
            offset: mapped.offset,
            sge: mapped.registered.sge(),
        };
        Some((entry, mapping))
    }

    /// Whether there is one.
    pub(super) fn has_untold(&self) -> bool {
        let mut ours = self.ours.iter().flatten();
        ours.any(|mapped| !mapped.is_told)
    }

    fn unmap(&mut self, at: *mut c_void, length: usize) -> Result<(), Errno> {
        let is_meant = |mapped: &Mapped| mapped.registered.is(at, length);
        if let Some(place) = self.local.iter().position(is_meant) {
            self.local.swap_remove(place);
            return Ok(());
        }
        let mut ours = self.ours.iter_mut();
        let place = ours.find(|place| place.as_ref().is_some_and(is_meant));
        *place.ok_or(Errno::INVALID)? = None;
        Ok(())
    }
}

/// `riomap`.
pub(crate) unsafe extern "C" fn riomap(
    fd: c_int,
    at: *mut c_void,
    length: usize,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    entry::value(|| {
        table::with_stream(fd, |_, stream| {
            let mut state = stream.lock();
            map(&mut state, at, length, protection, offset)
        })
    })
}

fn map(
    state: &mut State,
    at: *mut c_void,
    length: usize,
    protection: c_int,
    offset: off_t,
) -> Result<off_t, Errno> {
    let link = state.link.as_mut().ok_or(Errno::INVALID)?;
    if protection & !libc::PROT_WRITE != 0 || u32::try_from(length).is_err() {
        return Err(Errno::INVALID);
    }
    let is_remote = protection & libc::PROT_WRITE != 0;
    let rights = match is_remote {
        true => access::LOCAL_WRITE | access::REMOTE_WRITE,
        false => access::LOCAL_WRITE,
    };
    let (_, pd) = link.endpoint().handle().device()?;
    let offset = match offset {
        -1 => at.addr() as off_t,
        offset => offset,
    };
    let mappings = &mut link.mappings;
    let register = || {
        Ok::<_, Errno>(Mapped {
            registered: Registered::new(pd, at, length, rights)?,
            offset: offset.cast_unsigned(),
            is_told: false,
        })
    };
    if is_remote {
        let mut places = mappings.ours.iter_mut();
        let place = places.find(|place| place.is_none());
        *place.ok_or(Errno(libc::ENOMEM))? = Some(register()?);
    } else {
        mappings.local.push(register()?);
    }
    Ok(offset)
}

/// `riounmap`. The peer is not told.
pub(crate) unsafe extern "C" fn riounmap(fd: c_int, at: *mut c_void, length: usize) -> c_int {
    entry::number(|| {
        table::with_stream(fd, |_, stream| {
            let mut state = stream.lock();
            let link = state.link.as_mut().ok_or(Errno::INVALID)?;
            link.mappings.unmap(at, length)
        })
    })
}

/// `riowrite`.
pub(crate) unsafe extern "C" fn riowrite(
    fd: c_int,
    from: *const c_void,
    length: usize,
    offset: off_t,
    flags: c_int,
) -> isize {
    entry::value(|| {
        table::with_stream(fd, |socket, stream| {
            let pieces = single(from, length);
            // SAFETY: memory of the caller's.
            let mut cursor = unsafe { Cursor::new(&pieces)? };
            let outcome = write(socket, stream, &mut cursor, offset.cast_unsigned(), flags);
            stream::partly(length - cursor.left(), outcome)
        })
    })
}

fn write(
    socket: &Socket,
    stream: &Stream,
    from: &mut Cursor<'_>,
    offset: u64,
    flags: c_int,
) -> Result<(), Errno> {
    let total = from.left();
    let mut piece = FIRST_PIECE;
    let state = stream::opened(socket, stream, flags)?;
    let patience = state.send_patience(socket, flags);
    let mut state = stream::tell_mappings(socket, stream, state, patience)?;
    while from.left() > 0 {
        state = stream::wait(socket, stream, state, patience, |state| {
            !state.can_write || state.room_beside() > 0
        })?;
        state.check_writable()?;
        let at = offset.wrapping_add((total - from.left()) as u64);
        let room = state.room_beside();
        let link = state.link.as_mut().ok_or(Errno(libc::ENOTCONN))?;
        let Some((addr, key, mapped)) = link.mappings.find(at) else {
            return Ok(());
        };
        let length = from.left().min(piece).min(room).min(mapped);
        piece = (piece * 2).min(MOST_PIECE);
        link.send_direct(length, from, addr, key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn an_offset_is_found_in_what_the_peer_has_mapped() {
        let mut mappings = Mappings::new(2, 0);
        assert_eq!(mappings.find(0), None);
        let mapping = Mapping {
            offset: 100,
            sge: Sge {
                addr: 0x5000,
                key: 9,
                length: 50,
            },
        };
        mappings.written(1, || mapping).unwrap();
        assert_eq!(mappings.written(2, || mapping), Err(Violation));
        assert_eq!(mappings.find(99), None);
        assert_eq!(mappings.find(100), Some((0x5000, 9, 50)));
        assert_eq!(mappings.find(149), Some((0x5031, 9, 1)));
        assert_eq!(mappings.find(150), None);
        assert_eq!(mappings.find(u64::MAX), None);
    }

    #[test]
    fn what_is_not_mapped_cannot_be_unmapped() {
        let mut mappings = Mappings::new(0, 1);
        assert!(!mappings.has_untold());
        let refused = mappings.unmap(ptr::null_mut(), 1);
        assert_eq!(refused, Err(Errno::INVALID));
    }
}
