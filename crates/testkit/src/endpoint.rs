//! A queue pair with everything that it needs around it, and how two of them are connected.

use std::rc::Rc;
use std::sync::Arc;

use hirail_rnic::cq::Cqe;
use hirail_rnic::mr::{Access, Mr, PdId};
use hirail_rnic::qp::attr::{AddressVector, AttrMask, QpAttr};
use hirail_rnic::wr::Sge;
use hirail_rnic::{
    CompletionQueue, QpInit, SendData, SendFlags, SendOp, SendWr, SharedReceiveQueue, SrqInit,
    UdDestination, VerbError, XrcHalf,
};
use hirail_vocab::{QpState, QpType};
use hirail_wire::{AckTimeout, PathMtu, Psn, QKey, Rkey, RnrTimer};

use crate::host::{TestDevice, TestQp};
use crate::net::gids;
use crate::{Memory, Net, NodeId, SingleHost};

/// How an endpoint is made. The defaults suit most tests.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Transport. For XRC take the sending half; the other endpoint gets the receiving half.
    pub qp_type: QpType,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Bytes of registered memory.
    pub memory: usize,
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receive requests outstanding.
    pub max_recv_wr: u32,
    /// Entries of a request.
    pub max_sge: u32,
    /// Inline bytes.
    pub max_inline: u32,
    /// Entries of each completion queue.
    pub cqe: u32,
    /// Every send request makes a completion.
    pub sq_sig_all: bool,
    /// Receive from a shared queue.
    pub with_srq: bool,
    /// First sequence number that the first endpoint sends.
    pub psn_a: Psn,
    /// First sequence number that the second endpoint sends.
    pub psn_b: Psn,
    /// Initiator depth.
    pub max_rd_atomic: u8,
    /// Responder resources.
    pub max_dest_rd_atomic: u8,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// Retries.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs.
    pub rnr_retry: u8,
    /// The wait that RNR NAKs ask for.
    pub min_rnr_timer: RnrTimer,
    /// What the peer may do with the queue pair.
    pub qp_access: Access,
    /// What the peer may do with the memory.
    pub mr_access: Access,
    /// Queue key of datagrams.
    pub qkey: QKey,
    /// Index of the GID: 0 IPv4, 1 IPv6, 2 RoCE v1.
    pub gid_index: u8,
    /// Service level; decides the priority.
    pub sl: u8,
}

/// Everything that peers can be allowed to do.
pub fn all_access() -> Access {
    Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT
}

impl Setup {
    /// A small timeout and few retries, so that traces end.
    pub fn short() -> Self {
        Self {
            timeout: AckTimeout::new(4),
            retry_cnt: 2,
            rnr_retry: 2,
            ..Self::default()
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            mtu: PathMtu::Mtu1024,
            memory: 64 << 10,
            max_send_wr: 64,
            max_recv_wr: 64,
            max_sge: 4,
            max_inline: 256,
            cqe: 256,
            sq_sig_all: true,
            with_srq: false,
            psn_a: Psn::new(0xff_fffe),
            psn_b: Psn::new(0x00_0100),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            timeout: AckTimeout::new(6),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(1),
            qp_access: all_access(),
            mr_access: all_access() | Access::MW_BIND,
            qkey: QKey(0x1111_1111),
            gid_index: 0,
            sl: 0,
        }
    }
}

impl Setup {
    /// The defaults with another transport.
    pub fn of(qp_type: QpType) -> Self {
        Self {
            qp_type,
            ..Self::default()
        }
    }
}

/// Address of the first byte of every endpoint's memory.
pub const BASE: u64 = 0x10_0000;

/// A queue pair with its protection domain, queues and memory.
pub struct Endpoint {
    /// The node that it lives on.
    pub node: NodeId,
    /// That node's device.
    pub device: Rc<TestDevice>,
    /// Protection domain of everything here.
    pub pd: PdId,
    /// Send completions.
    pub send_cq: Arc<CompletionQueue<SingleHost>>,
    /// Receive completions.
    pub recv_cq: Arc<CompletionQueue<SingleHost>>,
    /// Shared receive queue, if there is one (always at the receiving half of XRC).
    pub srq: Option<Arc<SharedReceiveQueue<SingleHost>>>,
    /// The queue pair.
    pub qp: Arc<TestQp>,
    /// Its memory.
    pub memory: Memory,
    /// The registration of the memory, from [`BASE`] on.
    pub mr: Arc<Mr<SingleHost>>,
}

impl Endpoint {
    /// An endpoint on `node`, its queue pair in RESET. `is_target` makes it the receiving half of
    /// XRC, where that is asked for.
    ///
    /// # Panics
    ///
    /// If the device refuses something.
    pub fn new(net: &Net, node: NodeId, setup: &Setup, is_target: bool) -> Self {
        Self::build(net, node, setup, is_target, None)
    }

    /// An endpoint on `node` that receives from a shared queue of another one.
    ///
    /// # Panics
    ///
    /// If the device refuses something.
    pub fn sharing(
        net: &Net,
        node: NodeId,
        setup: &Setup,
        srq: Arc<SharedReceiveQueue<SingleHost>>,
    ) -> Self {
        Self::build(net, node, setup, false, Some(srq))
    }

    fn build(
        net: &Net,
        node: NodeId,
        setup: &Setup,
        is_target: bool,
        shared: Option<Arc<SharedReceiveQueue<SingleHost>>>,
    ) -> Self {
        let device = Rc::clone(net.device(node));
        let pd = device.alloc_pd().expect("a PD is free");
        let memory = Memory::zeroed(setup.memory);
        let mr = device
            .reg_mr(
                pd,
                BASE,
                setup.memory as u64,
                setup.mr_access,
                memory.clone(),
            )
            .expect("a key is free");
        let send_cq = device.create_cq(setup.cqe).expect("a CQ is free");
        let recv_cq = device.create_cq(setup.cqe).expect("a CQ is free");
        let is_xrc = matches!(setup.qp_type, QpType::XrcSend | QpType::XrcRecv);
        let is_target = is_target && is_xrc;
        let xrcd = is_target.then(|| device.alloc_xrcd());
        let makes_srq = shared.is_none() && (setup.with_srq || is_target);
        let srq = shared.or_else(|| {
            if !makes_srq {
                return None;
            }
            let init = SrqInit {
                pd,
                max_wr: setup.max_recv_wr,
                max_sge: setup.max_sge,
                xrc: xrcd.map(|domain| XrcHalf {
                    domain,
                    cq: Arc::clone(&recv_cq),
                }),
            };
            Some(device.create_srq(init).expect("an SRQ is free"))
        });
        let qp = device
            .create_qp(&QpInit {
                qp_type: if is_target {
                    QpType::XrcRecv
                } else {
                    setup.qp_type
                },
                pd,
                send_cq: Arc::clone(&send_cq),
                recv_cq: Arc::clone(&recv_cq),
                srq: if is_target { None } else { srq.clone() },
                xrcd,
                max_send_wr: setup.max_send_wr,
                max_recv_wr: if is_target { 0 } else { setup.max_recv_wr },
                max_send_sge: setup.max_sge,
                max_recv_sge: setup.max_sge,
                max_inline_data: setup.max_inline,
                sq_sig_all: setup.sq_sig_all,
            })
            .expect("a QP is free");
        Self {
            node,
            device,
            pd,
            send_cq,
            recv_cq,
            srq,
            qp,
            memory,
            mr,
        }
    }

    /// To INIT, RTR and RTS, with `remote` as peer (datagram queue pairs have none).
    ///
    /// # Panics
    ///
    /// If the device refuses something.
    pub fn connect(&self, net: &Net, setup: &Setup, remote: &Self, rq_psn: Psn, sq_psn: Psn) {
        self.to_rtr(net, setup, remote, rq_psn);
        self.to_rts(net, setup, sq_psn);
    }

    /// To INIT and RTR.
    ///
    /// # Panics
    ///
    /// If the device refuses something.
    pub fn to_rtr(&self, net: &Net, setup: &Setup, remote: &Self, rq_psn: Psn) {
        use AttrMask as M;
        let qp_type = self.qp.qp_type;
        let mut init = M::STATE | M::PKEY_INDEX | M::PORT;
        init |= if qp_type.is_datagram() {
            M::QKEY
        } else {
            M::ACCESS_FLAGS
        };
        self.modify(net, init, |attr| {
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
        self.modify(net, rtr, |attr| {
            attr.qp_state = QpState::Rtr;
            attr.av = remote.address(setup);
            attr.path_mtu = setup.mtu;
            attr.dest_qpn = remote.qp.qpn;
            attr.rq_psn = rq_psn;
            attr.max_dest_rd_atomic = setup.max_dest_rd_atomic;
            attr.min_rnr_timer = setup.min_rnr_timer;
        });
    }

    /// From RTR to RTS.
    ///
    /// # Panics
    ///
    /// If the device refuses something.
    pub fn to_rts(&self, net: &Net, setup: &Setup, sq_psn: Psn) {
        use AttrMask as M;
        let qp_type = self.qp.qp_type;
        let mut rts = M::STATE | M::SQ_PSN;
        if qp_type.is_reliable() {
            rts |= M::TIMEOUT;
        }
        if matches!(qp_type, QpType::Rc | QpType::XrcSend) {
            rts |= M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        }
        self.modify(net, rts, |attr| {
            attr.qp_state = QpState::Rts;
            attr.sq_psn = sq_psn;
            attr.timeout = setup.timeout;
            attr.retry_cnt = setup.retry_cnt;
            attr.rnr_retry = setup.rnr_retry;
            attr.max_rd_atomic = setup.max_rd_atomic;
        });
    }

    /// `modify_qp` with the attributes that `set` fills in.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn modify(&self, net: &Net, mask: AttrMask, set: impl FnOnce(&mut QpAttr)) {
        self.try_modify(net, mask, set)
            .expect("the attributes are right");
    }

    /// The same, but for tests of what is refused.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn try_modify(
        &self,
        net: &Net,
        mask: AttrMask,
        set: impl FnOnce(&mut QpAttr),
    ) -> Result<(), VerbError> {
        let mut attr = QpAttr::default();
        set(&mut attr);
        self.device.modify_qp(net.now(), &self.qp, &attr, mask)
    }

    /// To another state, with no attribute but that.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn to_state(&self, net: &mut Net, state: QpState) {
        self.modify(net, AttrMask::STATE, |attr| attr.qp_state = state);
        net.settle(self.node);
    }

    /// The state of the queue pair.
    pub fn state(&self) -> QpState {
        self.device.query_qp(&self.qp).qp_state
    }

    /// The address vector that leads here.
    pub fn address(&self, setup: &Setup) -> AddressVector {
        AddressVector {
            sgid_index: setup.gid_index,
            sl: setup.sl,
            dmac: crate::net::mac(self.node).0,
            ..AddressVector::to(gids(self.node)[usize::from(setup.gid_index)])
        }
    }

    /// Where a datagram to this endpoint goes.
    pub fn as_destination(&self, setup: &Setup) -> UdDestination {
        UdDestination {
            av: self.address(setup),
            qpn: self.qp.qpn,
            qkey: setup.qkey,
        }
    }

    /// An entry for `length` bytes at `offset` of the memory.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: BASE + offset,
            length,
            lkey: self.mr.lkey(),
        }
    }

    /// The key for the peer.
    pub fn rkey(&self) -> Rkey {
        self.mr.rkey()
    }

    /// Posts a send request and lets its consequences leave.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn post_send(&self, net: &mut Net, wr: &SendWr<'_>) -> Result<(), VerbError> {
        let posted = self.device.post_send(net.now(), &self.qp, wr);
        net.settle(self.node);
        posted
    }

    /// Posts a signaled send request of one entry.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn post(&self, net: &mut Net, wr_id: u64, op: SendOp, offset: u64, length: u32) {
        let sges = [self.sge(offset, length)];
        self.post_send(net, &wr(wr_id, op, &sges))
            .expect("there is room");
    }

    /// Posts a receive request for `length` bytes at `offset`, to the shared queue where there is
    /// one.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn post_recv(&self, net: &mut Net, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.sge(offset, length)];
        self.try_post_recv(net, wr_id, &sges)
            .expect("there is room");
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn try_post_recv(&self, net: &mut Net, wr_id: u64, sges: &[Sge]) -> Result<(), VerbError> {
        let posted = match &self.srq {
            Some(srq) => srq.lock().post(wr_id, sges),
            None => self.device.post_recv(net.now(), &self.qp, wr_id, sges),
        };
        net.settle(self.node);
        posted
    }

    /// All send completions.
    pub fn poll_send(&self) -> Vec<Cqe> {
        let mut cqes = Vec::new();
        self.send_cq.lock().poll(usize::MAX, |cqe| cqes.push(cqe));
        cqes
    }

    /// All receive completions.
    pub fn poll_recv(&self) -> Vec<Cqe> {
        let mut cqes = Vec::new();
        self.recv_cq.lock().poll(usize::MAX, |cqe| cqes.push(cqe));
        cqes
    }
}

/// A signaled send request.
pub fn wr<'a>(wr_id: u64, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
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

/// Two connected endpoints on two nodes.
pub struct Pair {
    /// The network.
    pub net: Net,
    /// The first endpoint (of XRC the sending half).
    pub a: Endpoint,
    /// The second endpoint (of XRC the receiving half).
    pub b: Endpoint,
    /// How both were made.
    pub setup: Setup,
}

impl Pair {
    /// Two endpoints on default links, in RTS.
    pub fn new(setup: Setup) -> Self {
        Self::on(Net::new(1), crate::Link::default(), |_| (), setup)
    }

    /// Two endpoints on `link`s of `net`, their devices configured by `configure`.
    pub fn on(
        mut net: Net,
        link: crate::Link,
        configure: impl Fn(&mut hirail_rnic::DeviceConfig),
        setup: Setup,
    ) -> Self {
        for _ in 0..2 {
            let mut config = hirail_rnic::DeviceConfig::default();
            configure(&mut config);
            net.add(link, config);
        }
        let a = Endpoint::new(&net, 0, &setup, false);
        let b = Endpoint::new(&net, 1, &setup, true);
        a.connect(&net, &setup, &b, setup.psn_b, setup.psn_a);
        b.connect(&net, &setup, &a, setup.psn_a, setup.psn_b);
        Self { net, a, b, setup }
    }

    /// A send request of `a` to `b`, with destination and SRQ where the transport wants them.
    pub fn wr<'a>(&self, wr_id: u64, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
        SendWr {
            ud: self
                .setup
                .qp_type
                .is_datagram()
                .then(|| self.b.as_destination(&self.setup)),
            xrc_srqn: self.b.srq.as_ref().map_or(0, |srq| srq.id.0),
            ..wr(wr_id, op, sges)
        }
    }

    /// Posts a signaled request of `a`, one entry at `offset`.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn post(&mut self, wr_id: u64, op: SendOp, offset: u64, length: u32) {
        let sges = [self.a.sge(offset, length)];
        let wr = self.wr(wr_id, op, &sges);
        self.a.post_send(&mut self.net, &wr).expect("there is room");
    }

    /// Posts a receive request of `b`.
    ///
    /// # Panics
    ///
    /// If the device refuses it.
    pub fn post_recv(&mut self, wr_id: u64, offset: u64, length: u32) {
        self.b.post_recv(&mut self.net, wr_id, offset, length);
    }

    /// Runs until nothing is left to happen.
    pub fn run(&mut self) {
        self.net.run();
    }
}
