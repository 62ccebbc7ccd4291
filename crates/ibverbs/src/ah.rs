//! Address handles: where datagrams go.

use core::ffi::c_int;
use core::net::Ipv4Addr;

use hirail::{AddressVector, Gid, Pd};

use crate::abi;
use crate::check::{self, Kind};
use crate::context::ContextObject;
use crate::entry::{Object, device, number, pointer, status};
use crate::errno::Errno;
use crate::pd::PdObject;

/// An address handle.
#[repr(C)]
pub(crate) struct AhObject {
    public: abi::Ah,
    pub(crate) vector: AddressVector,
    /// Queue pairs of other domains cannot use it, and the domain cannot go while it is here.
    pub(crate) pd: Pd,
}

// SAFETY: it begins with its public part.
unsafe impl Object for AhObject {
    type Public = abi::Ah;
}

/// The vector that `attr` describes. On Ethernet there is no way without a GID.
pub(crate) fn vector(attr: &abi::AhAttr) -> Result<AddressVector, Errno> {
    if attr.is_global == 0 {
        return Err(Errno::INVALID);
    }
    Ok(AddressVector {
        dgid: Gid(attr.dgid.0),
        sgid_index: attr.sgid_index,
        hop_limit: attr.hop_limit,
        traffic_class: attr.traffic_class,
        flow_label: attr.flow_label & (AddressVector::FLOW_LABEL_LIMIT - 1),
        sl: attr.sl,
        static_rate: attr.static_rate,
        dmac: [0; 6],
        port: attr.port_num,
    })
}

/// The attributes of a vector.
pub(crate) fn attributes(vector: &AddressVector) -> abi::AhAttr {
    abi::AhAttr {
        dgid: abi::Gid(vector.dgid.0),
        flow_label: vector.flow_label,
        sgid_index: vector.sgid_index,
        hop_limit: vector.hop_limit,
        traffic_class: vector.traffic_class,
        dlid: 0,
        sl: vector.sl,
        src_path_bits: 0,
        static_rate: vector.static_rate,
        is_global: u8::from(vector.dgid != Gid::default()),
        port_num: vector.port,
    }
}

/// `ibv_create_ah`.
pub(crate) unsafe extern "C" fn create_ah(
    pd: *mut abi::Pd,
    attr: *mut abi::AhAttr,
) -> *mut abi::Ah {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let (domain, context) = unsafe { (PdObject::of(pd), device(&raw const (*pd).context)) };
    pointer(context, || {
        // SAFETY: the caller's.
        let vector = vector(unsafe { &*attr })?;
        if vector.port != 1 || vector.sl > 15 {
            return Err(Errno::INVALID);
        }
        context.hirail().gid(vector.sgid_index)?;
        let object = AhObject {
            public: abi::Ah {
                context: context.public(),
                pd,
                handle: 0,
            },
            vector,
            pd: domain.pd.clone(),
        };
        let object = object.into_public();
        Ok(check::made(context, Kind::Ah, object, "AH"))
    })
}

/// `ibv_destroy_ah`.
pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut abi::Ah) -> c_int {
    // SAFETY: a handle of the caller's, and the device that it belongs to.
    let context = unsafe { device(&raw const (*ah).context) };
    status(context, || {
        check::going(Kind::Ah, ah);
        // SAFETY: the caller gives it up, once.
        drop(unsafe { AhObject::take(ah) });
        Ok(())
    })
}

/// Bytes in front of a datagram.
const GRH: usize = 40;

/// What the 40 bytes in front of a datagram say: the way back.
struct Header {
    source: Gid,
    destination: Gid,
    flow_label: u32,
    traffic_class: u8,
}

impl Header {
    /// Over IPv4 the last 20 bytes are the IPv4 header, otherwise all of them are an IPv6 header or a
    /// GRH, which look alike.
    fn parse(bytes: &[u8; GRH]) -> Option<Self> {
        let gid = |at: usize| {
            let mut gid = [0; 16];
            gid.copy_from_slice(&bytes[at..at + 16]);
            Gid(gid)
        };
        let v4 = |at: usize| {
            let address = Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
            Gid::from_ip(address.into())
        };
        if bytes[0] >> 4 == 6 {
            let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            return Some(Self {
                source: gid(8),
                destination: gid(24),
                flow_label: first & 0xf_ffff,
                traffic_class: (first >> 20) as u8,
            });
        }
        (bytes[20] == 0x45).then(|| Self {
            source: v4(32),
            destination: v4(36),
            flow_label: 0,
            traffic_class: bytes[21],
        })
    }
}

/// The way back to who sent a datagram.
///
/// # Safety
/// The completion is the caller's; if it says so, the 40 bytes are there.
unsafe fn way_back(
    context: &ContextObject,
    port: u8,
    wc: *const abi::Wc,
    grh: *const u8,
) -> Result<abi::AhAttr, Errno> {
    // SAFETY: as required of the caller.
    let wc = unsafe { &*wc };
    if port != 1 || wc.wc_flags & abi::wc_flags::GRH == 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: as required of the caller; the bytes have been received, so nobody writes there.
    let header = Header::parse(unsafe { &*grh.cast() }).ok_or(Errno::INVALID)?;
    let gids = context.hirail().gids();
    let index = gids
        .iter()
        .position(|entry| entry.gid == header.destination);
    Ok(abi::AhAttr {
        dgid: abi::Gid(header.source.0),
        flow_label: header.flow_label,
        // A group's datagram came to any of them.
        sgid_index: index.unwrap_or(0) as u8,
        hop_limit: 0xff,
        traffic_class: header.traffic_class,
        dlid: wc.slid,
        // That of the completion says something else: `poll::service_level`.
        sl: header.traffic_class >> 5,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: port,
    })
}

/// `ibv_init_ah_from_wc`.
pub(crate) unsafe extern "C" fn init_ah_from_wc(
    context: *mut abi::Context,
    port: u8,
    wc: *mut abi::Wc,
    grh: *mut u8,
    attr: *mut abi::AhAttr,
) -> c_int {
    // SAFETY: an open device of the caller's.
    let context = unsafe { ContextObject::of(context) };
    number(context, || {
        // SAFETY: the caller's, all of them.
        unsafe { attr.write(way_back(context, port, wc, grh)?) };
        Ok(0)
    })
}

/// `ibv_create_ah_from_wc`.
pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut abi::Pd,
    wc: *mut abi::Wc,
    grh: *mut u8,
    port: u8,
) -> *mut abi::Ah {
    // SAFETY: a domain of the caller's, and the device that it belongs to.
    let context = unsafe { device(&raw const (*pd).context) };
    // SAFETY: the caller's, both.
    match unsafe { way_back(context, port, wc, grh) } {
        // SAFETY: the domain is the caller's.
        Ok(mut attr) => unsafe { create_ah(pd, &raw mut attr) },
        Err(errno) => {
            errno.set();
            core::ptr::null_mut()
        }
    }
}

/// `ibv_resolve_eth_l2_from_gid`: who sends fills in Ethernet addresses, so nobody needs to ask.
pub(crate) unsafe extern "C" fn resolve_eth_l2_from_gid(
    _: *mut abi::Context,
    _: *mut abi::AhAttr,
    _: *mut u8,
    _: *mut u16,
) -> c_int {
    libc::EOPNOTSUPP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_over_ipv4() {
        let mut bytes = [0; GRH];
        bytes[20] = 0x45;
        bytes[21] = 0x68;
        bytes[32..36].copy_from_slice(&[192, 0, 2, 1]);
        bytes[36..40].copy_from_slice(&[192, 0, 2, 2]);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(
            header.source,
            Gid::from_ip(Ipv4Addr::new(192, 0, 2, 1).into())
        );
        assert_eq!(
            header.destination,
            Gid::from_ip(Ipv4Addr::new(192, 0, 2, 2).into())
        );
        assert_eq!(header.traffic_class, 0x68);
    }

    #[test]
    fn the_way_back_over_ipv6() {
        let mut bytes = [0; GRH];
        bytes[..4].copy_from_slice(&0x6681_2345u32.to_be_bytes());
        bytes[8..24].fill(1);
        bytes[24..40].fill(2);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(
            (header.source, header.destination),
            (Gid([1; 16]), Gid([2; 16]))
        );
        assert_eq!((header.flow_label, header.traffic_class), (0x1_2345, 0x68));
        assert!(Header::parse(&[0; GRH]).is_none());
    }

    #[test]
    fn a_handle_without_gid_is_refused() {
        assert_eq!(vector(&abi::AhAttr::default()), Err(Errno::INVALID));
    }
}
