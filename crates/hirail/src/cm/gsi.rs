//! QP1, by which connection managers talk: datagrams of 256 bytes to QP1 of the other side.

use std::os::fd::BorrowedFd;

use hirail_cm::{Meta, Transmit};
use hirail_rnic::cq::Arm;
use hirail_rnic::mr::Access;
use hirail_vocab::{QpType, WcStatus};
use hirail_wire::ip::{Ipv4Header, Ipv6Header};
use hirail_wire::mad::Mad;
use hirail_wire::{Gid, QKey, Qpn};

use crate::error::Error;
use crate::verbs::context::Context;
use crate::verbs::cq::{CompletionChannel, Cq};
use crate::verbs::mr::Mr;
use crate::verbs::qp::Qp;
use crate::verbs::work::{Destination, Path, SendWr};

/// Datagrams that may arrive before somebody looks.
const RECEIVES: usize = 256;
/// Datagrams on their way out; more are lost, and repeated by timers.
const SENDS: u32 = 256;
/// Bytes in front of a datagram: the network header.
const GRH: usize = 40;
/// Bytes of a receive buffer.
const SLOT: usize = 512;

/// QP1 of a device.
pub(super) struct Gsi {
    // The first to go: nothing of it is under way any more then.
    qp: Qp,
    sends: Cq,
    receives: Cq,
    channel: CompletionChannel,
    buffers: Mr,
}

impl Gsi {
    /// QP1 of `context`, which must not have one yet.
    pub(super) fn new(context: &Context) -> Result<Self, Error> {
        let channel = context.create_channel()?;
        let sends = context.create_cq(SENDS)?;
        let receives = context.create_cq_on(RECEIVES as u32, &channel)?;
        let pd = context.alloc_pd()?;
        let buffers = pd.register(RECEIVES * SLOT, Access::LOCAL_WRITE)?;
        let qp = pd
            .qp(&sends, &receives)
            .qp_type(QpType::Gsi)
            .max_send_wr(SENDS)
            .max_recv_wr(RECEIVES as u32)
            .max_inline_data(Mad::LEN as u32)
            .build()?;
        qp.activate_datagram(QKey::GSI)?;
        let gsi = Self {
            qp,
            sends,
            receives,
            channel,
            buffers,
        };
        for slot in 0..RECEIVES {
            gsi.post(slot)?;
        }
        gsi.receives.arm(Arm::Any)?;
        Ok(gsi)
    }

    fn post(&self, slot: usize) -> Result<(), Error> {
        let start = slot * SLOT;
        let slice = self.buffers.slice(start..start + SLOT);
        self.qp.post_recv(slot as u64, &[slice])
    }

    /// Readable when datagrams have come.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Sends a message. One that cannot be sent is lost.
    pub(super) fn send(&self, transmit: &Transmit) {
        while let Ok(Some(_)) = self.sends.pop() {}
        let path = &transmit.path;
        let request = SendWr::send(0, &[])
            .with_inline(&transmit.mad)
            .to(Destination {
                gid: path.remote,
                qpn: Qpn::GSI,
                qkey: QKey::GSI,
            })
            .via(Path {
                gid_index: path.sgid_index,
                traffic_class: path.traffic_class,
                service_level: path.sl,
                hop_limit: path.hop_limit,
                flow_label: 0,
            });
        // Timers repeat what was not sent.
        let _ = self.qp.post(&request);
    }

    /// Hands out what has come, and asks to be woken by what comes next.
    pub(super) fn receive(&self, context: &Context, mut f: impl FnMut(&Meta, &[u8])) {
        while let Ok(Some(_)) = self.channel.try_event() {}
        loop {
            while let Ok(Some(wc)) = self.receives.pop() {
                let slot = wc.wr_id as usize;
                if wc.status == WcStatus::Success && wc.src_qp == Qpn::GSI {
                    let bytes = self.buffers.to_vec(slot * SLOT, wc.byte_len as usize);
                    if let Some((grh, mad)) = bytes.split_first_chunk::<GRH>() {
                        f(&meta(context, grh), mad);
                    }
                }
                // It fails when the device has, and nothing comes any more then.
                let _ = self.post(slot);
            }
            // True where something has come meanwhile.
            if !self.receives.arm(Arm::Any).unwrap_or(false) {
                return;
            }
        }
    }
}

/// What the network header in front of a datagram says.
fn meta(context: &Context, grh: &[u8; GRH]) -> Meta {
    const IPV6: u8 = 6;
    let (source, destination, traffic_class) = if grh[0] >> 4 == IPV6 {
        let header = Ipv6Header::read(grh);
        (
            Gid::from(header.source),
            Gid::from(header.dest),
            header.traffic_class,
        )
    } else {
        let (_, v4) = grh.split_last_chunk().expect("20 of 40 bytes");
        let header = Ipv4Header::read(v4);
        (
            Gid::from(header.source),
            Gid::from(header.dest),
            header.traffic_class,
        )
    };
    let index = context.gids().iter().position(|it| it.gid == destination);
    Meta {
        source,
        destination,
        sgid_index: index.map_or(0, |index| index as u8),
        traffic_class,
    }
}
