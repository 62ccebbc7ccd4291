//! CM messages to bytes. Fields that RoCE does not use are 0, or what Linux writes there: LIDs of
//! 0xFFFF where packets are routed, no alternate path.

use super::{Ids, LEN, Message, Rej, Rep, Req, SidrRep, SidrReq, Transport, private_data};
use crate::mad::CmAttribute;

/// LID of a path with a global route.
const PERMISSIVE_LID: u16 = 0xffff;

impl Message<'_> {
    /// The kind of message.
    pub const fn attribute(&self) -> CmAttribute {
        match self {
            Self::Req(_) => CmAttribute::Req,
            Self::Mra(_) => CmAttribute::Mra,
            Self::Rej(_) => CmAttribute::Rej,
            Self::Rep(_) => CmAttribute::Rep,
            Self::Rtu(_) => CmAttribute::Rtu,
            Self::Dreq { .. } => CmAttribute::Dreq,
            Self::Drep(_) => CmAttribute::Drep,
            Self::SidrReq(_) => CmAttribute::SidrReq,
            Self::SidrRep(_) => CmAttribute::SidrRep,
            Self::Lap(_) => CmAttribute::Lap,
            Self::Apr(_) => CmAttribute::Apr,
        }
    }

    /// The data bytes of the MAD. Private data that is shorter than its place is followed by zeros.
    ///
    /// # Panics
    ///
    /// When private data or additional information is longer than its place.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut m = Place(&mut bytes);
        match self {
            Self::Req(it) => req(&mut m, it),
            Self::Mra(it) => {
                m.ids(it.ids);
                m.u8(8, it.received << 6);
                m.u8(9, it.service_timeout << 3);
                m.private(private_data::MRA, it.private_data);
            }
            Self::Rej(it) => rej(&mut m, it),
            Self::Rep(it) => rep(&mut m, it),
            Self::Rtu(it) => {
                m.ids(it.ids);
                m.private(private_data::RTU, it.private_data);
            }
            Self::Dreq {
                ids,
                remote_qpn,
                private_data,
            } => {
                m.ids(*ids);
                m.u24(8, remote_qpn.value());
                m.private(private_data::DREQ, private_data);
            }
            Self::Drep(it) => {
                m.ids(it.ids);
                m.private(private_data::DREP, it.private_data);
            }
            Self::SidrReq(it) => sidr_req(&mut m, it),
            Self::SidrRep(it) => sidr_rep(&mut m, it),
            Self::Lap(ids) => m.ids(*ids),
            Self::Apr(it) => {
                m.ids(it.ids);
                m.u8(9, it.status);
            }
        }
        bytes
    }
}

fn req(m: &mut Place<'_>, it: &Req<'_>) {
    let (service, extended) = match it.transport {
        Transport::Rc => (0, 0),
        Transport::Uc => (1, 0),
        Transport::Xrc => (3, 1),
        Transport::Other(service, extended) => (service, extended),
    };
    m.put(0, it.local_id.to_be_bytes());
    m.u24(5, it.ece_vendor);
    m.put(8, it.service.0.to_be_bytes());
    m.put(16, it.ca_guid.to_be_bytes());
    m.put(28, it.qkey.0.to_be_bytes());
    m.u24(32, it.qpn.value());
    m.u8(35, it.responder_resources);
    m.u8(39, it.initiator_depth);
    let flow_control = u8::from(it.flow_control);
    m.u8(
        43,
        it.remote_response_timeout << 3 | (service & 3) << 1 | flow_control,
    );
    m.u24(44, it.starting_psn.value());
    m.u8(47, it.local_response_timeout << 3 | it.retry_count & 7);
    m.put(48, it.pkey.0.to_be_bytes());
    let mtu = it.mtu.map_or(0, |mtu| mtu.code());
    m.u8(50, mtu << 4 | it.rnr_retry_count & 7);
    let srq = u8::from(it.srq) << 3;
    m.u8(51, it.max_cm_retries << 4 | srq | extended & 7);
    let is_local = it.hop_limit <= 1;
    let lid = if is_local { 0 } else { PERMISSIVE_LID };
    m.put(52, lid.to_be_bytes());
    m.put(54, lid.to_be_bytes());
    m.put(56, it.local_gid.0);
    m.put(72, it.remote_gid.0);
    m.put(88, (it.flow_label << 12).to_be_bytes());
    m.u8(91, it.packet_rate & 0x3f);
    m.u8(92, it.traffic_class);
    m.u8(93, it.hop_limit);
    m.u8(94, it.sl << 4 | u8::from(is_local) << 3);
    m.u8(95, it.ack_timeout.code() << 3);
    m.private(private_data::REQ, it.private_data);
}

fn rep(m: &mut Place<'_>, it: &Rep<'_>) {
    let [_, high, middle, low] = it.ece_vendor.to_be_bytes();
    m.ids(it.ids);
    m.put(8, it.qkey.0.to_be_bytes());
    m.u24(12, it.qpn.value());
    m.u8(15, high);
    m.u24(16, it.eecn.value());
    m.u8(19, middle);
    m.u24(20, it.starting_psn.value());
    m.u8(23, low);
    m.u8(24, it.responder_resources);
    m.u8(25, it.initiator_depth);
    let flow_control = u8::from(it.flow_control);
    m.u8(
        26,
        it.target_ack_delay << 3 | (it.failover & 3) << 1 | flow_control,
    );
    m.u8(27, it.rnr_retry_count << 5 | u8::from(it.srq) << 4);
    m.put(28, it.ca_guid.to_be_bytes());
    m.private(private_data::REP, it.private_data);
}

fn rej(m: &mut Place<'_>, it: &Rej<'_>) {
    m.ids(it.ids);
    m.u8(8, it.rejected << 6);
    m.u8(9, (it.ari.len() as u8) << 1);
    m.put(10, it.reason.0.to_be_bytes());
    m.private(12..12 + Rej::MAX_ARI, it.ari);
    m.private(private_data::REJ, it.private_data);
}

fn sidr_req(m: &mut Place<'_>, it: &SidrReq<'_>) {
    m.put(0, it.request_id.to_be_bytes());
    m.put(4, it.pkey.0.to_be_bytes());
    m.put(8, it.service.0.to_be_bytes());
    m.private(private_data::SIDR_REQ, it.private_data);
}

fn sidr_rep(m: &mut Place<'_>, it: &SidrRep<'_>) {
    let [_, high, middle, low] = it.ece_vendor.to_be_bytes();
    m.put(0, it.request_id.to_be_bytes());
    m.u8(4, it.status);
    m.put(6, [high, middle]);
    m.u24(8, it.qpn.value());
    m.u8(11, low);
    m.put(12, it.service.0.to_be_bytes());
    m.put(20, it.qkey.0.to_be_bytes());
    m.private(private_data::SIDR_REP, it.private_data);
}

/// Fields at fixed offsets of a message.
struct Place<'a>(&'a mut [u8; LEN]);

impl Place<'_> {
    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.0[offset..offset + N].copy_from_slice(&bytes);
    }

    fn u8(&mut self, offset: usize, value: u8) {
        self.0[offset] = value;
    }

    fn u24(&mut self, offset: usize, value: u32) {
        let [_, a, b, c] = value.to_be_bytes();
        self.put(offset, [a, b, c]);
    }

    fn ids(&mut self, ids: Ids) {
        self.put(0, ids.local.to_be_bytes());
        self.put(4, ids.remote.to_be_bytes());
    }

    fn private(&mut self, place: core::ops::Range<usize>, bytes: &[u8]) {
        self.0[place][..bytes.len()].copy_from_slice(bytes);
    }
}
