//! Multicast groups of datagram ids. On Ethernet nobody need be asked to join: the event follows at
//! once.

use core::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hirail_abi::{Gid, JoinMcAttrEx, RdmaCmId, UdParam};
use libc::sockaddr;

use crate::bridge::bridge;
use crate::entry::number;
use crate::errno::Errno;
use crate::event::Told;
use crate::id::{Id, Step, complete};
use crate::names::kind;
use crate::resolve;
use crate::translate;

/// A group that an id has joined.
pub(crate) struct Group {
    ip: IpAddr,
    gid: Gid,
    is_attached: bool,
}

/// Bits of `struct rdma_cm_join_mc_attr_ex`.
mod bits {
    pub(super) const HAS_ADDRESS: u32 = 1;
    pub(super) const HAS_FLAGS: u32 = 2;
}

/// `RDMA_MC_JOIN_FLAG_FULLMEMBER`: sends and receives.
const FULL_MEMBER: u32 = 0;

/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`.
const SENDER: u32 = 1;

/// The queue pair number of all receivers.
const EVERYBODY: u32 = 0xff_ffff;

/// `rdma_join_multicast`.
pub(crate) unsafe extern "C" fn join_multicast(
    id: *mut RdmaCmId,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: an id and an address of the caller's.
        let (id, group) = unsafe { (Id::of(id)?, resolve::read(addr)?) };
        join(&id, group, context, FULL_MEMBER)
    })
}

/// `rdma_join_multicast_ex`.
pub(crate) unsafe extern "C" fn join_multicast_ex(
    id: *mut RdmaCmId,
    attr: *mut JoinMcAttrEx,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: an id and attributes of the caller's.
        unsafe {
            let attr = attr.as_ref().ok_or(Errno::INVALID)?;
            let known = bits::HAS_ADDRESS | bits::HAS_FLAGS;
            if attr.comp_mask & !known != 0 || attr.comp_mask & bits::HAS_ADDRESS == 0 {
                return Err(Errno::INVALID);
            }
            let flags = match attr.comp_mask & bits::HAS_FLAGS {
                0 => FULL_MEMBER,
                _ => attr.join_flags,
            };
            join(&Id::of(id)?, resolve::read(attr.addr)?, context, flags)
        }
    })
}

fn join(id: &Arc<Id>, group: SocketAddr, context: *mut c_void, flags: u32) -> Result<(), Errno> {
    if flags > SENDER {
        return Err(Errno::INVALID);
    }
    if !id.is_datagram() || !group.ip().is_multicast() {
        return Err(Errno::INVALID);
    }
    let public = id.public();
    let told = {
        let mut state = id.state();
        let (Some(device), Some(local)) = (state.device, state.local) else {
            return Err(Errno::INVALID);
        };
        if matches!(state.step, Step::Idle | Step::Listening) {
            return Err(Errno::INVALID);
        }
        let mut path = resolve::path(device, local.ip(), group.ip())?;
        path.traffic_class = state.options.tos;
        let gid = Gid(path.remote);
        // SAFETY: the id exists while somebody calls, and its queue pair with it.
        let attached = unsafe {
            let qp = (*public).qp;
            if qp.is_null() || flags == SENDER {
                Ok(false)
            } else {
                Errno::check((bridge()?.attach_mcast)(qp, &raw const gid, 0)).map(|()| true)
            }
        };
        match attached {
            Ok(is_attached) => {
                state.groups.push(Group {
                    ip: group.ip(),
                    gid,
                    is_attached,
                });
                let ud = UdParam {
                    private_data: context,
                    private_data_len: 0,
                    ah_attr: translate::ah_attr(&path),
                    qp_num: EVERYBODY,
                    qkey: state.qkey,
                };
                Told::new(kind::MULTICAST_JOIN, 0).ud(ud, &[])
            }
            Err(errno) => Told::new(kind::MULTICAST_ERROR, -errno.0),
        }
    };
    id.tell(told);
    complete(id)
}

/// `rdma_leave_multicast`.
pub(crate) unsafe extern "C" fn leave_multicast(id: *mut RdmaCmId, addr: *mut sockaddr) -> c_int {
    number(|| {
        // SAFETY: an id and an address of the caller's; its queue pair exists with the id.
        unsafe {
            let (id, left) = (Id::of(id)?, resolve::read(addr)?);
            let group = {
                let mut state = id.state();
                let place = state.groups.iter().position(|group| group.ip == left.ip());
                state
                    .groups
                    .remove(place.ok_or(Errno(libc::EADDRNOTAVAIL))?)
            };
            let qp = (*id.public()).qp;
            if group.is_attached && !qp.is_null() {
                Errno::check((bridge()?.detach_mcast)(qp, &raw const group.gid, 0))?;
            }
        }
        Ok(())
    })
}
