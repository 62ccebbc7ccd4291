//! Traces of one device: a scripted peer sends packets made by hand, and everything that the device
//! does about them is written down, line by line, to be compared with what the reviewer expects.
//!
//! ```text
//! 1.000     post  WRITE wr 1, 2000 bytes
//! 1.000     -> RDMA WRITE First psn 100 va+0 len 2000 : 1024
//! 1.000     -> RDMA WRITE Last psn 101 ack : 976
//! 5.000     <- ACK psn 101 msn 1
//! 5.000     send  wr 1 SUCCESS RDMA_WRITE 2000 bytes
//! ```
//!
//! Times are microseconds. `->` leaves the device, `<-` comes from the peer; what follows a colon is
//! the payload's length. Addresses are relative to the registered memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

use expect_test::Expect;
use hirail_rnic::cq::{Cqe, WcPayload};
use hirail_rnic::qp::attr::AttrMask;
use hirail_rnic::transmit::{Budget, OpenClasses, Run, Segment};
use hirail_rnic::wr::Sge;
use hirail_rnic::{
    DeviceConfig, Event, Instant, PacketMeta, SendData, SendFlags, SendOp, SendWr, Span, Timer,
};
use hirail_vocab::{QpState, QpType};
use hirail_wire::{
    Aeth, AtomicEth, Bth, Credits, Deth, Ext, Feth, FlushRange, Gid, Headers, Msn, NakCode, Opcode,
    Operation, Psn, Qpn, Reth, Rkey, RnrTimer, Service, Syndrome,
};

use crate::endpoint::{BASE, Endpoint, Setup};
use crate::net::gids;
use crate::{Link, Net, SingleHost};

/// What has happened since the trace was looked at last must be this.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn check(script: &mut Script, expected: &Expect) {
    expected.assert_eq(&script.trace());
}

/// The peer's queue pair.
pub const PEER: Qpn = Qpn::new(0x77);
/// Key of the peer's memory.
pub const PEER_KEY: Rkey = Rkey::new(0x99);
/// First PSN that the device sends.
pub const SQ_PSN: u32 = 100;
/// First PSN that the device expects.
pub const RQ_PSN: u32 = 500;

/// A device under test and its trace.
pub struct Script {
    /// The endpoint under test, in RTS unless the test made it otherwise.
    pub end: Endpoint,
    /// What the endpoint was made with.
    pub setup: Setup,
    now: Instant,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    run: Run<SingleHost>,
    /// How many packets of each run the link takes, and how many it takes in all.
    budget: Budget,
    takes: usize,
    open: OpenClasses,
    trace: String,
    shows_payload: bool,
}

impl Script {
    /// A reliable connection with the default setup (MTU 1024), in RTS.
    pub fn rc() -> Self {
        Self::new(Setup::default(), |_| ())
    }

    /// An endpoint of `setup` on a device that `configure` adjusts, in RTS.
    pub fn new(setup: Setup, configure: impl FnOnce(&mut DeviceConfig)) -> Self {
        let mut script = Self::in_reset(setup, configure);
        script.to_rtr();
        script.to_rts();
        script
    }

    /// The same, but still in RESET.
    pub fn in_reset(setup: Setup, configure: impl FnOnce(&mut DeviceConfig)) -> Self {
        let mut net = Net::new(0);
        let mut config = DeviceConfig::default();
        configure(&mut config);
        let node = net.add(Link::default(), config);
        let end = Endpoint::new(&net, node, &setup, setup.qp_type == QpType::XrcRecv);
        Self {
            end,
            setup,
            now: Instant::EPOCH,
            timers: BinaryHeap::new(),
            run: Run::new(),
            budget: Budget {
                packets: 16,
                bytes: 64 << 10,
            },
            takes: usize::MAX,
            open: OpenClasses::ALL,
            trace: String::new(),
            shows_payload: false,
        }
    }

    /// From RESET to RTR.
    pub fn to_rtr(&mut self) {
        use AttrMask as M;
        let qp_type = self.end.qp.qp_type;
        let setup = self.setup.clone();
        let mut init = M::STATE | M::PKEY_INDEX | M::PORT;
        init |= if qp_type.is_datagram() {
            M::QKEY
        } else {
            M::ACCESS_FLAGS
        };
        self.set(init, |attr| {
            attr.qp_state = QpState::Init;
            attr.access = setup.qp_access;
            attr.qkey = setup.qkey;
        });
        let mut rtr = M::STATE;
        if qp_type.is_connected() {
            rtr |= M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        }
        if matches!(qp_type, QpType::Rc | QpType::XrcRecv) {
            rtr |= M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        }
        self.set(rtr, |attr| {
            attr.qp_state = QpState::Rtr;
            attr.av.dgid = peer_gid();
            attr.av.hop_limit = 64;
            attr.path_mtu = setup.mtu;
            attr.dest_qpn = PEER;
            attr.rq_psn = Psn::new(RQ_PSN);
            attr.max_dest_rd_atomic = setup.max_dest_rd_atomic;
            attr.min_rnr_timer = setup.min_rnr_timer;
        });
    }

    /// From RTR to RTS.
    pub fn to_rts(&mut self) {
        use AttrMask as M;
        let qp_type = self.end.qp.qp_type;
        let setup = self.setup.clone();
        let mut rts = M::STATE | M::SQ_PSN;
        if qp_type.is_reliable() {
            rts |= M::TIMEOUT;
        }
        if matches!(qp_type, QpType::Rc | QpType::XrcSend) {
            rts |= M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        }
        self.set(rts, |attr| {
            attr.qp_state = QpState::Rts;
            attr.sq_psn = Psn::new(SQ_PSN);
            attr.timeout = setup.timeout;
            attr.retry_cnt = setup.retry_cnt;
            attr.rnr_retry = setup.rnr_retry;
            attr.max_rd_atomic = setup.max_rd_atomic;
        });
    }

    /// `modify_qp` without a line of its own.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn set(&mut self, mask: AttrMask, set: impl FnOnce(&mut hirail_rnic::qp::attr::QpAttr)) {
        let mut attr = hirail_rnic::qp::attr::QpAttr::default();
        set(&mut attr);
        self.end
            .device
            .modify_qp(self.now, &self.end.qp, &attr, mask)
            .expect("the attributes are right");
        self.drain();
    }

    /// To another state.
    pub fn modify(&mut self, state: QpState) {
        self.line(format_args!("modify to {}", short(state.name())));
        self.set(AttrMask::STATE, |attr| attr.qp_state = state);
    }

    /// Lets `us` microseconds pass; timers on the way fire when they are due.
    pub fn wait(&mut self, us: f64) -> &mut Self {
        let until = self.now + Span::from_ns((us * 1000.0).round() as u64);
        while let Some(&Reverse((at, timer))) = self.timers.peek() {
            if at > until {
                break;
            }
            self.timers.pop();
            self.now = self.now.max(at);
            self.end.device.handle_timeout(self.now, timer);
            self.drain();
        }
        self.now = until;
        self.drain();
        self
    }

    /// The link takes this many packets from now on, then none.
    pub fn link_takes(&mut self, packets: usize) -> &mut Self {
        self.takes = packets;
        self.drain();
        self
    }

    /// The link takes packets of these classes only from now on.
    pub fn link_open(&mut self, open: OpenClasses) -> &mut Self {
        self.open = open;
        self.drain();
        self
    }

    /// Most packets of one run from now on.
    pub fn run_of(&mut self, packets: usize) -> &mut Self {
        self.budget.packets = packets;
        self
    }

    /// Lines show payloads as text from now on.
    pub fn show_payload(&mut self) -> &mut Self {
        self.shows_payload = true;
        self
    }

    /// Posts a send request with one entry at the start of the memory.
    pub fn post(&mut self, wr_id: u64, op: SendOp, length: u32) -> &mut Self {
        let sges = [self.end.sge(0, length)];
        let sges = if length == 0 { &[] } else { &sges[..] };
        self.post_wr(&SendWr {
            ..signaled(wr_id, op, sges)
        })
    }

    /// Posts a send request.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn post_wr(&mut self, wr: &SendWr<'_>) -> &mut Self {
        let length: u64 = match wr.data {
            SendData::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            SendData::Inline(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        };
        let flags = if wr.flags.fence { " fence" } else { "" };
        self.line(format_args!(
            "post  {} wr {}, {length} bytes{flags}",
            op_name(&wr.op),
            wr.wr_id
        ));
        self.end
            .device
            .post_send(self.now, &self.end.qp, wr)
            .expect("there is room");
        self.drain();
        self
    }

    /// Posts a receive request with one entry at offset 4096 of the memory.
    pub fn post_recv(&mut self, wr_id: u64, length: u32) -> &mut Self {
        let sges = [self.end.sge(4096, length)];
        self.post_recv_sges(wr_id, &sges)
    }

    /// Posts a receive request.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn post_recv_sges(&mut self, wr_id: u64, sges: &[Sge]) -> &mut Self {
        self.line(format_args!("post  RECV wr {wr_id}, {} bytes", {
            sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>()
        }));
        match &self.end.srq {
            Some(srq) => srq.lock().post(wr_id, sges),
            None => self
                .end
                .device
                .post_recv(self.now, &self.end.qp, wr_id, sges),
        }
        .expect("there is room");
        self.drain();
        self
    }

    /// The peer's packet arrives.
    pub fn recv(&mut self, packet: impl Into<Packet>) -> &mut Self {
        self.recv_from(peer_gid(), packet)
    }

    /// A packet of somebody arrives.
    pub fn recv_from(&mut self, source: Gid, packet: impl Into<Packet>) -> &mut Self {
        let packet = packet.into();
        let headers = packet.headers(self.end.qp.qpn, self.end.rkey());
        let meta = PacketMeta {
            source,
            destination: gids(self.end.node)[usize::from(self.setup.gid_index)],
            traffic_class: packet.traffic_class,
            hop_limit: 64,
            priority: 0,
            is_roce_v1: false,
        };
        let text = self.describe(&headers, packet.payload.len(), &packet.payload);
        self.line(format_args!("<- {text}"));
        let result = self
            .end
            .device
            .handle_packet(self.now, &meta, &headers, &packet.payload);
        if let Err(reason) = result {
            self.line(format_args!("dropped: {reason}"));
        }
        self.drain();
        self
    }

    /// Writes a line of the test's own.
    pub fn note(&mut self, text: &str) -> &mut Self {
        self.line(format_args!("-- {text}"));
        self
    }

    /// The trace so far, which begins anew.
    pub fn trace(&mut self) -> String {
        core::mem::take(&mut self.trace)
    }

    /// The state of the queue pair, as a line.
    pub fn show_state(&mut self) -> &mut Self {
        let state = self.end.state();
        self.line(format_args!("state {}", short(state.name())));
        self
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Sees to what came of the last input.
    pub fn drain(&mut self) {
        self.collect();
        while self.takes > 0 {
            let device = &self.end.device;
            let mut run = core::mem::take(&mut self.run);
            let filled = device.poll_transmit(self.now, self.open, self.budget, &mut run);
            if filled {
                let offered = run.packets().len();
                let taken = offered.min(self.takes);
                for packet in &run.packets()[..taken] {
                    let payload = payload_of(&run, packet);
                    let text = self.describe(&packet.headers, payload.len(), &payload);
                    self.line(format_args!("-> {text}"));
                }
                if taken < offered {
                    self.line(format_args!("the link takes {taken} of {offered}"));
                }
                if self.takes != usize::MAX {
                    self.takes -= taken;
                }
                self.end.device.sent(self.now, &mut run, taken);
            }
            self.run = run;
            self.collect();
            if !filled {
                break;
            }
        }
    }

    fn collect(&mut self) {
        while let Some((timer, at)) = self.end.device.poll_timer() {
            self.timers.push(Reverse((at, timer)));
        }
        for cqe in self.end.poll_send() {
            self.completion("send ", &cqe);
        }
        for cqe in self.end.poll_recv() {
            self.completion("recv ", &cqe);
        }
        while let Some(event) = self.end.device.poll_event() {
            match event {
                Event::Async(event) => {
                    let name = event.kind().name();
                    self.line(format_args!("event {}", &name["IBV_EVENT_".len()..]));
                }
                Event::Completion(_) => self.line(format_args!("event for a CQ")),
                Event::Denied(denied) => self.line(format_args!("denied: {:?}", denied.why)),
            }
        }
    }

    fn completion(&mut self, queue: &str, cqe: &Cqe) {
        let mut text = format!(
            "{queue} wr {} {}",
            cqe.wr_id,
            &cqe.status.name()["IBV_WC_".len()..]
        );
        if cqe.status == hirail_vocab::WcStatus::Success {
            let _ = write!(text, " {}", &cqe.opcode.name()["IBV_WC_".len()..]);
            let _ = write!(text, " {} bytes", cqe.byte_len);
            match cqe.payload {
                WcPayload::None => {}
                WcPayload::Imm(imm) => {
                    let _ = write!(text, " imm {:08x}", u32::from_be_bytes(imm));
                }
                WcPayload::Invalidated(_) => text.push_str(" invalidated"),
            }
        } else if cqe.vendor_err != 0 {
            let _ = write!(text, " vendor_err {}", cqe.vendor_err);
        }
        if cqe.solicited {
            text.push_str(" solicited");
        }
        self.line(format_args!("{text}"));
    }

    fn line(&mut self, text: core::fmt::Arguments<'_>) {
        let us = self.now.as_ps() as f64 / 1e6;
        let _ = writeln!(self.trace, "{us:<9.3} {text}");
    }

    fn describe(&self, headers: &Headers, len: usize, payload: &[u8]) -> String {
        let bth = headers.bth();
        let name = bth.opcode.name();
        let name = name
            .split_once(' ')
            .map_or(name, |(_, operation)| operation);
        // What an acknowledgement is stands in its syndrome.
        let name = match headers.ext().aeth() {
            Some(aeth) if bth.opcode.operation() == Operation::Acknowledge => match aeth.syndrome {
                Syndrome::Ack(_) => "ACK",
                Syndrome::Rnr(_) => "RNR NAK",
                Syndrome::Nak(_) => "NAK",
                Syndrome::Reserved(_) => "reserved",
            },
            _ => name,
        };
        let mut text = format!("{name} psn {}", bth.psn.value());
        for (set, word) in [
            (bth.solicited, " solicited"),
            (bth.ack_req, " ack"),
            (bth.becn, " becn"),
        ] {
            if set {
                text.push_str(word);
            }
        }
        let good = self.end.rkey();
        let key = |rkey: Rkey| {
            if rkey == good || rkey == PEER_KEY {
                ""
            } else {
                " other key"
            }
        };
        let at = |va: u64| match va.checked_sub(BASE) {
            Some(offset) => format!("va+{offset}"),
            None => format!("va-{}", BASE - va),
        };
        if let Ext::Flush(
            Feth {
                range,
                global,
                persistent,
            },
            _,
        ) = *headers.ext()
        {
            let whole = if range == FlushRange::WholeRegion {
                " region"
            } else {
                ""
            };
            let level = if persistent { " persistent" } else { "" };
            let global = if global { " global" } else { "" };
            let _ = write!(text, "{whole}{global}{level}");
        }
        if let Some(reth) = headers.ext().reth() {
            let _ = write!(
                text,
                " {} len {}{}",
                at(reth.va),
                reth.length,
                key(reth.rkey)
            );
        }
        if let Some(aeth) = headers.ext().aeth() {
            match aeth.syndrome {
                Syndrome::Ack(credits) => {
                    if let Some(count) = credits.available() {
                        let _ = write!(text, " credits {count}");
                    }
                }
                Syndrome::Rnr(timer) => {
                    let _ = write!(text, " timer {}", timer.code());
                }
                Syndrome::Nak(code) => {
                    let _ = write!(text, " {code:?}");
                }
                Syndrome::Reserved(byte) => {
                    let _ = write!(text, " {byte:#x}");
                }
            }
            let _ = write!(text, " msn {}", aeth.msn.value());
        }
        if let Some(imm) = headers.ext().imm() {
            let _ = write!(text, " imm {:08x}", u32::from_be_bytes(imm));
        }
        match *headers.ext() {
            Ext::Atomic(AtomicEth {
                va,
                rkey,
                swap_or_add,
                compare,
            }) => {
                let _ = write!(text, " {} {swap_or_add} {compare}{}", at(va), key(rkey));
            }
            Ext::AtomicAck(_, original) => {
                let _ = write!(text, " original {original}");
            }
            Ext::Ieth(rkey) => {
                let _ = write!(text, " invalidate{}", key(rkey));
            }
            Ext::Deth(Deth { qkey, .. }) | Ext::DethImm(Deth { qkey, .. }, _) => {
                let _ = write!(text, " to {} qkey {:x}", bth.dest_qp, qkey.0);
            }
            _ => {}
        }
        if len > 0 {
            let _ = write!(text, " : {len}");
            if self.shows_payload {
                let _ = write!(text, " {}", String::from_utf8_lossy(payload));
            }
        }
        text
    }
}

fn payload_of(run: &Run<SingleHost>, packet: &hirail_rnic::transmit::TxPacket) -> Vec<u8> {
    let mut payload = Vec::new();
    for segment in run.segments(packet) {
        match segment {
            Segment::Memory(slice) => {
                let at = payload.len();
                payload.resize(at + slice.len() as usize, 0);
                slice
                    .read_bytes(0, &mut payload[at..])
                    .expect("it is mapped");
            }
            Segment::Inline { start, len } => {
                payload.extend_from_slice(&run.inline_bytes()[*start..start + len]);
            }
        }
    }
    assert_eq!(payload.len(), packet.payload_len as usize);
    payload
}

fn peer_gid() -> Gid {
    gids(1)[0]
}

fn short(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}

fn op_name(op: &SendOp) -> &'static str {
    match op {
        SendOp::Send => "SEND",
        SendOp::SendImm(_) => "SEND with immediate",
        SendOp::SendInv(_) => "SEND with invalidate",
        SendOp::Write { .. } => "WRITE",
        SendOp::WriteImm { .. } => "WRITE with immediate",
        SendOp::Read { .. } => "READ",
        SendOp::CompareSwap { .. } => "CMP_SWP",
        SendOp::FetchAdd { .. } => "FETCH_ADD",
        SendOp::AtomicWrite { .. } => "ATOMIC WRITE",
        SendOp::Flush { .. } => "FLUSH",
        SendOp::LocalInv(_) => "LOCAL_INV",
        SendOp::BindMw(_) => "BIND_MW",
    }
}

fn signaled<'a>(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
    SendWr {
        wr_id,
        op,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        data: SendData::Sges(sges),
        ud: None,
        xrc_srqn: 0,
    }
}

/// A packet made by hand.
#[derive(Clone, Debug)]
pub struct Packet {
    service: Service,
    operation: Operation,
    psn: Psn,
    ack_req: bool,
    solicited: bool,
    migrated: bool,
    ext: Ext,
    /// Offset and length of a RETH or address of an AtomicETH whose key is the endpoint's own.
    own_key: bool,
    xrc_srqn: Option<u32>,
    dest_qp: Option<Qpn>,
    payload: Vec<u8>,
    traffic_class: u8,
}

/// A packet of RC that carries nothing but its BTH.
pub fn rc(operation: Operation, psn: u32) -> Packet {
    packet(Service::Rc, operation, psn)
}

/// A packet of a service that carries nothing but its BTH.
pub fn packet(service: Service, operation: Operation, psn: u32) -> Packet {
    Packet {
        service,
        operation,
        psn: Psn::new(psn),
        ack_req: false,
        solicited: false,
        migrated: true,
        ext: Ext::None,
        own_key: true,
        xrc_srqn: None,
        dest_qp: None,
        payload: Vec::new(),
        traffic_class: 0,
    }
}

impl Packet {
    /// With a request for acknowledgement.
    #[must_use]
    pub fn ack(mut self) -> Self {
        self.ack_req = true;
        self
    }

    /// With the solicited bit.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.solicited = true;
        self
    }

    /// With MigReq as given; without, it is set.
    #[must_use]
    pub fn migrated(mut self, migrated: bool) -> Self {
        self.migrated = migrated;
        self
    }

    /// With a payload.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// With a payload of `len` equal bytes.
    #[must_use]
    pub fn bytes(self, len: usize) -> Self {
        self.payload(&vec![b'x'; len])
    }

    /// With these extension headers, their keys as they are.
    #[must_use]
    pub fn ext(mut self, ext: Ext) -> Self {
        self.ext = ext;
        self.own_key = false;
        self
    }

    /// With a RETH for `length` bytes at `offset` of the endpoint's memory.
    #[must_use]
    pub fn reth(mut self, offset: u64, length: u32) -> Self {
        let reth = Reth {
            va: BASE.wrapping_add(offset),
            rkey: Rkey::new(0),
            length,
        };
        self.ext = match self.operation {
            Operation::WriteOnlyImm => Ext::RethImm(reth, *b"imm!"),
            _ => Ext::Reth(reth),
        };
        self
    }

    /// With immediate data.
    #[must_use]
    pub fn imm(mut self, imm: [u8; 4]) -> Self {
        self.ext = Ext::Imm(imm);
        self
    }

    /// With an AtomicETH for the word at `offset` of the endpoint's memory.
    #[must_use]
    pub fn atomic(mut self, offset: u64, swap_or_add: u64, compare: u64) -> Self {
        self.ext = Ext::Atomic(AtomicEth {
            va: BASE.wrapping_add(offset),
            rkey: Rkey::new(0),
            swap_or_add,
            compare,
        });
        self
    }

    /// With another key in RETH or AtomicETH.
    #[must_use]
    pub fn key(mut self, key: Rkey) -> Self {
        match &mut self.ext {
            Ext::Reth(reth) | Ext::RethImm(reth, _) | Ext::Flush(_, reth) => reth.rkey = key,
            Ext::Atomic(atomic) => atomic.rkey = key,
            Ext::Ieth(rkey) => *rkey = key,
            other => panic!("{other:?} has no key"),
        }
        self.own_key = false;
        self
    }

    /// To another queue pair.
    #[must_use]
    pub fn to(mut self, dest_qp: Qpn) -> Self {
        self.dest_qp = Some(dest_qp);
        self
    }

    /// For an XRC shared receive queue.
    #[must_use]
    pub fn srq(mut self, number: u32) -> Self {
        self.xrc_srqn = Some(number);
        self
    }

    /// Marked with congestion experienced.
    #[must_use]
    pub fn marked(mut self) -> Self {
        self.traffic_class |= 3;
        self
    }

    /// The headers, to `qpn` and with `own` as key unless told otherwise.
    ///
    /// # Panics
    ///
    /// If the parts do not belong together.
    pub fn headers(&self, qpn: Qpn, own: Rkey) -> Headers {
        let opcode = Opcode::new(self.service, self.operation).expect("the service carries it");
        let mut bth = Bth::new(opcode, self.dest_qp.unwrap_or(qpn), self.psn);
        bth.ack_req = self.ack_req;
        bth.solicited = self.solicited;
        bth.migrated = self.migrated;
        let mut ext = self.ext;
        if self.own_key {
            match &mut ext {
                Ext::Reth(reth) | Ext::RethImm(reth, _) | Ext::Flush(_, reth) => reth.rkey = own,
                Ext::Atomic(atomic) => atomic.rkey = own,
                _ => {}
            }
        }
        Headers::new(bth, self.xrc_srqn, ext)
            .expect("the headers belong to the opcode")
            .with_payload_len(self.payload.len())
    }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth {
        syndrome,
        msn: Msn::new(msn),
    }
}

/// An ACK without credits.
pub fn ack(psn: u32, msn: u32) -> Packet {
    rc(Operation::Acknowledge, psn).ext(Ext::Aeth(aeth(Syndrome::Ack(Credits::NONE), msn)))
}

/// An ACK with credits.
pub fn ack_credits(psn: u32, msn: u32, available: u32) -> Packet {
    let credits = Credits::from_available(available);
    rc(Operation::Acknowledge, psn).ext(Ext::Aeth(aeth(Syndrome::Ack(credits), msn)))
}

/// A NAK.
pub fn nak(psn: u32, code: NakCode, msn: u32) -> Packet {
    rc(Operation::Acknowledge, psn).ext(Ext::Aeth(aeth(Syndrome::Nak(code), msn)))
}

/// An RNR NAK.
pub fn rnr(psn: u32, timer: u8, msn: u32) -> Packet {
    rc(Operation::Acknowledge, psn).ext(Ext::Aeth(aeth(Syndrome::Rnr(RnrTimer::new(timer)), msn)))
}

/// A READ response of `len` bytes: First, Middle, Last or Only.
pub fn response(operation: Operation, psn: u32, msn: u32, len: usize) -> Packet {
    let packet = rc(operation, psn).bytes(len);
    if operation == Operation::ReadResponseMiddle {
        packet
    } else {
        packet.ext(Ext::Aeth(aeth(Syndrome::Ack(Credits::NONE), msn)))
    }
}

/// An atomic acknowledge.
pub fn atomic_ack(psn: u32, msn: u32, original: u64) -> Packet {
    let aeth = aeth(Syndrome::Ack(Credits::NONE), msn);
    rc(Operation::AtomicAcknowledge, psn).ext(Ext::AtomicAck(aeth, original))
}

/// A READ, WRITE or other operation on the peer's memory at `offset` from [`BASE`].
pub fn write_to(offset: u64) -> SendOp {
    SendOp::Write {
        va: BASE + offset,
        rkey: PEER_KEY,
    }
}

/// A READ of the peer's memory at `offset` from [`BASE`].
pub fn read_from(offset: u64) -> SendOp {
    SendOp::Read {
        va: BASE + offset,
        rkey: PEER_KEY,
    }
}

/// A fetch-and-add of 1 to the peer's memory at `offset` from [`BASE`].
pub fn add_to(offset: u64) -> SendOp {
    SendOp::FetchAdd {
        va: BASE + offset,
        rkey: PEER_KEY,
        add: 1,
    }
}
