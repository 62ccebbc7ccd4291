//! Scatter/gather lists: walking, seeking, and placing bytes under them.

use hirail_wire::Lkey;

use crate::host::{Host, Payload, ReadMostly, Region};
use crate::mr::{Access, PdId};
use crate::qp::Cx;
use crate::send_queue::Cursor;
use crate::wr::Sge;

/// A scatter entry cannot take the bytes: bad key, domain, range or right, or its memory is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadEntry(pub(crate) Lkey);

/// Total bytes of a list.
pub(crate) fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// Calls `each` for every piece of the next `len` bytes of a list: the entry, the address and the
/// length of the piece. The cursor's SGE position moves along.
pub(crate) fn walk<E>(
    sges: &[Sge],
    cursor: &mut Cursor,
    mut len: u32,
    mut each: impl FnMut(&Sge, u64, u32) -> Result<(), E>,
) -> Result<(), E> {
    while len > 0 {
        let Some(sge) = sges.get(usize::from(cursor.sge)) else {
            break;
        };
        let left = sge.length - cursor.sge_offset;
        if left == 0 {
            cursor.sge += 1;
            cursor.sge_offset = 0;
            continue;
        }
        let piece = left.min(len);
        each(
            sge,
            sge.addr.wrapping_add(u64::from(cursor.sge_offset)),
            piece,
        )?;
        cursor.sge_offset += piece;
        len -= piece;
    }
    Ok(())
}

/// The SGE position of byte `offset` of a message.
pub(crate) fn seek(sges: &[Sge], offset: u64) -> (u16, u32) {
    let mut left = offset;
    for (index, sge) in (0u16..).zip(sges) {
        if left < u64::from(sge.length) {
            return (index, left as u32);
        }
        left -= u64::from(sge.length);
    }
    (sges.len() as u16, 0)
}

/// Places a payload at the cursor and moves it.
pub(crate) fn scatter<H: Host>(
    cx: Cx<'_, H>,
    pd: PdId,
    sges: &[Sge],
    cursor: &mut Cursor,
    payload: <H::Region as Region>::Payload<'_>,
) -> Result<(), BadEntry> {
    let keys = cx.device.keys().read();
    let mut at = 0;
    walk(sges, cursor, payload.len() as u32, |sge, addr, piece| {
        let slice = keys
            .check_local(sge.lkey, pd, addr, piece, Access::LOCAL_WRITE)
            .map_err(|_| BadEntry(sge.lkey))?;
        slice
            .write(0, payload.slice(at, piece as usize))
            .map_err(|_| BadEntry(sge.lkey))?;
        at += piece as usize;
        Ok(())
    })
}

/// Places bytes that the engine made itself.
pub(crate) fn scatter_bytes<H: Host>(
    cx: Cx<'_, H>,
    pd: PdId,
    sges: &[Sge],
    cursor: &mut Cursor,
    bytes: &[u8],
) -> Result<(), BadEntry> {
    let keys = cx.device.keys().read();
    let mut at = 0;
    walk(sges, cursor, bytes.len() as u32, |sge, addr, piece| {
        let slice = keys
            .check_local(sge.lkey, pd, addr, piece, Access::LOCAL_WRITE)
            .map_err(|_| BadEntry(sge.lkey))?;
        let end = at + piece as usize;
        slice
            .write_bytes(0, &bytes[at..end])
            .map_err(|_| BadEntry(sge.lkey))?;
        at = end;
        Ok(())
    })
}
