//! What a device and its port are like.

use core::ffi::{c_int, c_void};
use std::ptr;

use hirail::PathMtu;
use hirail::sysfs::{LinkRate, VENDOR_ID, VENDOR_PART_ID};

use crate::abi;
use crate::context::ContextObject;
use crate::device::{mtu, text};
use crate::dm::MAX_DM_SIZE;
use crate::entry::{number, status};
use crate::errno::Errno;

/// `IBV_DEVICE_…`: CURR_QP_STATE_MOD, PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, SRQ_RESIZE,
/// MEM_WINDOW, XRC, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B.
const CAPABILITIES: u32 =
    1 << 7 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 24;

/// `IBV_ATOMIC_HCA`, as cards say. Atomics of this device are atomic to processors as well, but where
/// more is promised UCX uses none.
const ATOMIC_CAP: c_int = 1;

/// `IBV_ODP_SUPPORT` and `_IMPLICIT`: the engine reaches what the process has mapped when it is
/// needed, so all memory is on demand.
const ODP: u64 = 3;

/// `IBV_ODP_SUPPORT_…`: SEND, RECV, WRITE, READ, ATOMIC, SRQ_RECV, FLUSH, ATOMIC_WRITE; whatever a
/// transport can do.
const RC_ODP: u32 = 0xff;
const UC_ODP: u32 = 1 | 1 << 1 | 1 << 2 | 1 << 5;
const UD_ODP: u32 = 1 | 1 << 1 | 1 << 5;

/// Timestamps are nanoseconds of `CLOCK_MONOTONIC`: kHz of that clock.
const CLOCK_KHZ: u64 = 1_000_000;

/// `enum ibv_port_state`.
const DOWN: c_int = 1;
const ACTIVE: c_int = 4;

/// Physical states: disabled, link up.
const DISABLED: u8 = 3;
const LINK_UP: u8 = 5;

/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;

/// `IBV_PORT_…`: GIDs of IP addresses, and a device that is managed.
const PORT_CAPABILITIES: u32 = 1 << 16 | 1 << 26;

/// The default partition, the only one there is on Ethernet.
const PKEY: u16 = 0xffff;

fn int(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn device_attr(context: &ContextObject) -> abi::DeviceAttr {
    let limits = context.hirail().limits();
    let guid = context.device().guid();
    abi::DeviceAttr {
        fw_ver: text(env!("CARGO_PKG_VERSION")),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits.max_mr_size,
        // Every size from 4 KiB on: nothing is translated.
        page_size_cap: !0xfff,
        vendor_id: VENDOR_ID,
        vendor_part_id: VENDOR_PART_ID,
        hw_ver: 0,
        max_qp: int(limits.max_qp),
        max_qp_wr: int(limits.max_qp_wr),
        device_cap_flags: CAPABILITIES,
        max_sge: int(limits.max_sge),
        max_sge_rd: int(limits.max_sge_rd),
        max_cq: int(limits.max_cq),
        max_cqe: int(limits.max_cqe),
        max_mr: int(limits.max_mr),
        max_pd: int(limits.max_pd),
        max_qp_rd_atom: limits.max_qp_rd_atom.into(),
        max_ee_rd_atom: 0,
        max_res_rd_atom: int(limits.max_qp.saturating_mul(limits.max_qp_rd_atom.into())),
        max_qp_init_rd_atom: limits.max_qp_init_rd_atom.into(),
        max_ee_init_rd_atom: 0,
        atomic_cap: ATOMIC_CAP,
        max_ee: 0,
        max_rdd: 0,
        max_mw: int(limits.max_mr),
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: int(limits.max_mcast_grp),
        max_mcast_qp_attach: int(limits.max_mcast_qp_attach),
        max_total_mcast_qp_attach: int(limits.max_mcast_grp * limits.max_mcast_qp_attach),
        max_ah: c_int::MAX,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: int(limits.max_srq),
        max_srq_wr: int(limits.max_srq_wr),
        max_srq_sge: int(limits.max_srq_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
    }
}

/// `ibv_query_device`.
pub(crate) unsafe extern "C" fn query_device(
    context: *mut abi::Context,
    attr: *mut abi::DeviceAttr,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        // SAFETY: the caller's.
        unsafe { attr.write(device_attr(context)) };
        Ok(())
    })
}

/// Writes as much of `value` as the caller has room for, and zeros beyond it.
///
/// # Safety
/// There are `room` bytes.
pub(crate) unsafe fn write_sized<T>(to: *mut T, room: usize, value: &T) {
    let known = size_of::<T>().min(room);
    // SAFETY: as required of the caller; `known` is no more than both have.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, room - known);
    }
}

/// `query_device_ex` of the extended table.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut abi::Context,
    input: *const c_void,
    attr: *mut abi::DeviceAttrEx,
    size: usize,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        // SAFETY: one number, if there is any.
        if !input.is_null() && unsafe { input.cast::<u32>().read() } != 0 {
            return Err(Errno::INVALID);
        }
        if size < size_of::<abi::DeviceAttr>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: a structure of numbers.
        let mut all: abi::DeviceAttrEx = unsafe { core::mem::zeroed() };
        all.orig = device_attr(context);
        all.odp_caps = abi::OdpCaps {
            general_caps: ODP,
            rc_odp_caps: RC_ODP,
            uc_odp_caps: UC_ODP,
            ud_odp_caps: UD_ODP,
        };
        all.xrc_odp_caps = RC_ODP;
        all.completion_timestamp_mask = u64::MAX;
        all.hca_core_clock = CLOCK_KHZ;
        all.device_cap_flags_ex = CAPABILITIES.into();
        all.max_cq_count = u16::MAX;
        all.max_cq_period = u16::MAX;
        all.max_dm_size = MAX_DM_SIZE;
        all.phys_port_cnt_ex = 1;
        // SAFETY: the caller's, of this size.
        unsafe { write_sized(attr, size, &all) };
        Ok(())
    })
}

fn port_attr(context: &ContextObject, port: u8) -> Result<abi::PortAttr, Errno> {
    if port != 1 {
        return Err(Errno::INVALID);
    }
    let interface = context.device().interface();
    let rate = LinkRate::of(&interface);
    Ok(abi::PortAttr {
        state: if interface.is_up { ACTIVE } else { DOWN },
        max_mtu: mtu(PathMtu::Mtu4096),
        active_mtu: mtu(context.hirail().port_mtu()),
        gid_tbl_len: context.hirail().gids().len().max(1) as c_int,
        port_cap_flags: PORT_CAPABILITIES,
        max_msg_sz: 1 << 31,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: rate.width,
        active_speed: rate.speed,
        phys_state: if interface.is_up { LINK_UP } else { DISABLED },
        link_layer: ETHERNET,
        ..abi::PortAttr::default()
    })
}

/// `query_port` of the extended table.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut abi::Context,
    port: u8,
    attr: *mut abi::PortAttr,
    size: usize,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        let all = port_attr(context, port)?;
        // SAFETY: the caller's, of this size.
        unsafe { write_sized(attr, size, &all) };
        Ok(())
    })
}

/// `ibv_query_port` as a symbol: callers' structures may end early.
pub(crate) unsafe extern "C" fn query_port_old(
    context: *mut abi::Context,
    port: u8,
    attr: *mut abi::PortAttr,
) -> c_int {
    // SAFETY: as said of both.
    unsafe { query_port(context, port, attr, abi::PortAttr::OLD) }
}

/// `ibv_query_port_speed`: in units of 100 Mb/s.
pub(crate) unsafe extern "C" fn query_port_speed(
    context: *mut abi::Context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        if port != 1 {
            return Err(Errno::INVALID);
        }
        let mbps = context.device().interface().speed_mbps.unwrap_or(100_000);
        // SAFETY: the caller's.
        unsafe { speed.write(u64::from(mbps) / 100) };
        Ok(())
    })
}

/// The clock that `query_rt_values` can tell: `IBV_VALUES_MASK_RAW_CLOCK`.
const RAW_CLOCK: u32 = 1;

/// `query_rt_values` of the extended table.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut abi::Context,
    values: *mut abi::ValuesEx,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        // SAFETY: the caller's.
        let values = unsafe { &mut *values };
        if values.comp_mask & RAW_CLOCK != 0 {
            // SAFETY: one structure.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut values.raw_clock) };
        }
        values.comp_mask &= RAW_CLOCK;
        Ok(())
    })
}

/// The GID at an index; zeros where there is none now.
fn gid(context: &ContextObject, port: u32, index: i64) -> Result<abi::Gid, Errno> {
    let gids = context.hirail().gids();
    let place = usize::try_from(index).map_err(|_| Errno::INVALID)?;
    if port != 1 || place >= gids.len().max(1) {
        return Err(Errno::INVALID);
    }
    Ok(gids
        .get(place)
        .map_or(abi::Gid::default(), |entry| abi::Gid(entry.gid.0)))
}

/// `ibv_query_gid`.
pub(crate) unsafe extern "C" fn query_gid(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    to: *mut abi::Gid,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    number(context, || {
        let gid = gid(context, port.into(), index.into())?;
        // SAFETY: the caller's.
        unsafe { to.write(gid) };
        Ok(0)
    })
}

/// `ibv_query_gid_type`, which only the private node has: 0 is InfiniBand and RoCE v1, 1 is RoCE v2.
pub(crate) unsafe extern "C" fn query_gid_type(
    context: *mut abi::Context,
    port: u8,
    index: u32,
    to: *mut c_int,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    number(context, || {
        gid(context, port.into(), index.into())?;
        // SAFETY: the caller's.
        unsafe { to.write(1) };
        Ok(0)
    })
}

/// `IBV_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;

fn entry(context: &ContextObject, index: u32, gid: abi::Gid) -> abi::GidEntry {
    abi::GidEntry {
        gid,
        gid_index: index,
        port_num: 1,
        gid_type: ROCE_V2,
        ndev_ifindex: context.device().interface().index,
    }
}

/// `ibv_query_gid_ex`.
pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut abi::Context,
    port: u32,
    index: u32,
    to: *mut abi::GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    status(context, || {
        if flags != 0 || size < size_of::<abi::GidEntry>() {
            return Err(Errno::UNSUPPORTED);
        }
        let gid = gid(context, port, index.into())?;
        if gid == abi::Gid::default() {
            return Err(Errno(libc::ENODATA));
        }
        // SAFETY: the caller's, of this size.
        unsafe { write_sized(to, size, &entry(context, index, gid)) };
        Ok(())
    })
}

/// `ibv_query_gid_table`: how many there are, or a negative number of `errno.h`.
pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut abi::Context,
    to: *mut abi::GidEntry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    let count = crate::entry::count(context, || {
        if flags != 0 || size < size_of::<abi::GidEntry>() {
            return Err(Errno::UNSUPPORTED);
        }
        let mut count = 0;
        for (index, known) in context.hirail().gids().iter().enumerate() {
            let gid = abi::Gid(known.gid.0);
            if gid == abi::Gid::default() {
                continue;
            }
            if count == room {
                return Err(Errno::INVALID);
            }
            let entry = entry(context, index as u32, gid);
            // SAFETY: the caller's has `room` entries of this size.
            unsafe { write_sized(to.byte_add(count * size), size, &entry) };
            count += 1;
        }
        Ok(count as c_int)
    });
    count as isize
}

/// `ibv_query_pkey`.
pub(crate) unsafe extern "C" fn query_pkey(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    to: *mut u16,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    number(context, || {
        if port != 1 || index != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the caller's.
        unsafe { to.write(PKEY) };
        Ok(0)
    })
}

/// `ibv_get_pkey_index`: the key is in network order.
pub(crate) unsafe extern "C" fn get_pkey_index(
    context: *mut abi::Context,
    port: u8,
    pkey: u16,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    number(context, || {
        if port == 1 && pkey == PKEY.to_be() {
            Ok(0)
        } else {
            Err(Errno::NO_ENTRY)
        }
    })
}

/// `ibv_query_qp_data_in_order`: bytes of a message become visible in order, the last one last, only
/// within one packet; so nothing is promised.
pub(crate) unsafe extern "C" fn query_qp_data_in_order(_: *mut abi::Qp, _: c_int, _: u32) -> c_int {
    0
}
