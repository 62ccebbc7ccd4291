//! A pair of queue pairs that does what the commands say.

use std::sync::Arc;

use hirail_rnic::cq::{Cqe, WcPayload};
use hirail_rnic::event::AsyncEvent;
use hirail_rnic::mr::{Access, BindMw, Mr, MwType};
use hirail_rnic::qp::attr::AttrMask;
use hirail_rnic::time::Span;
use hirail_rnic::wr::Sge;
use hirail_rnic::{SendData, SendFlags, SendOp, SendWr};
use hirail_vocab::{QpState, QpType, WcStatus};
use hirail_wire::{AckTimeout, Feth, FlushRange, Lkey, PathMtu, Psn, Rkey, RnrTimer};
use testkit::{BASE, Endpoint, Pair, Setup, SingleHost};

use crate::reference::{
    BUFFER, Command, DEPTH, Done, Key, MEMORY, MTU, Op, Outcome, REMOTE, Seen, Side, Transport,
    data, sink, source,
};

/// Longer than all retries together.
const REST: Span = Span::from_ms(3);

/// Bytes that requests can carry themselves.
const MAX_INLINE: u32 = 300;

pub(crate) struct Rig {
    pair: Pair,
    keys: [Keys; 2],
    posted: [[usize; 2]; 2],
    wr_id: u64,
    /// How often the two were connected: each time with other PSNs.
    connected: u32,
}

/// What a side registered for its peer.
struct Keys {
    main: Arc<Mr<SingleHost>>,
    extra: Arc<Mr<SingleHost>>,
    /// As the last bind that was posted made it.
    window: Rkey,
}

impl Rig {
    pub(crate) fn new(transport: Transport) -> Self {
        let setup = Setup {
            qp_type: if transport == Transport::Uc {
                QpType::Uc
            } else {
                QpType::Rc
            },
            mtu: PathMtu::from_bytes(MTU).expect("it is a path MTU"),
            memory: MEMORY,
            max_send_wr: DEPTH as u32,
            max_recv_wr: DEPTH as u32,
            max_sge: 3,
            max_inline: MAX_INLINE,
            sq_sig_all: false,
            with_srq: transport == Transport::RcWithSrq,
            timeout: AckTimeout::new(4),
            // 160 µs.
            min_rnr_timer: RnrTimer::new(8),
            ..Setup::default()
        };
        let pair = Pair::new(setup);
        let keys = [&pair.a, &pair.b].map(|end| {
            let register = |access| {
                let length = u64::from(REMOTE);
                end.device
                    .reg_mr(end.pd, BASE, length, access, end.memory.clone())
                    .expect("a key is free")
            };
            let window = end.device.alloc_mw(end.pd, MwType::Type2);
            Keys {
                main: register(testkit::endpoint::all_access() | Access::MW_BIND),
                extra: register(Access::REMOTE_READ),
                window: window.expect("a key is free"),
            }
        });
        Self {
            pair,
            keys,
            posted: [[0; 2]; 2],
            wr_id: 0,
            connected: 0,
        }
    }

    /// Shows the memory of a side.
    pub(crate) fn memory<T>(&self, side: Side, look: impl FnOnce(&[u8]) -> T) -> T {
        self.end(side).memory.with(look)
    }

    fn end(&self, side: Side) -> &Endpoint {
        match side {
            Side::A => &self.pair.a,
            Side::B => &self.pair.b,
        }
    }

    pub(crate) fn apply(&mut self, command: &Command) -> Outcome {
        let accepted = self.command(command);
        for node in 0..2 {
            self.pair.net.settle(node);
        }
        self.pair.net.run_for(REST);
        let of = Side::BOTH.map(|side| self.look(side));
        Outcome { accepted, of }
    }

    fn look(&mut self, side: Side) -> Seen {
        let mut events = Vec::new();
        while let Some(event) = self.pair.net.next_event(side.index()) {
            events.push(name(event));
        }
        events.sort_unstable();
        let end = self.end(side);
        Seen {
            state: end.state().code(),
            sent: end.poll_send().iter().map(done).collect(),
            received: end.poll_recv().iter().map(done).collect(),
            events,
        }
    }

    fn command(&mut self, command: &Command) -> bool {
        match *command {
            Command::Send {
                side,
                op,
                signaled,
                solicited,
                bad_entry,
            } => {
                let flags = SendFlags {
                    signaled,
                    solicited,
                    // Or an earlier READ might find what this leaves.
                    fence: op.writes(),
                };
                self.post_send(side, op, flags, bad_entry)
            }
            Command::Receive {
                side,
                len,
                bad_entry,
            } => self.post_receive(side, len, bad_entry),
            Command::ToError { side } => self.to_state(side, QpState::Err),
            Command::ToReset { side } => self.to_state(side, QpState::Reset),
            Command::Stop { side } => {
                let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
                let stopped = self.end(side).try_modify(&self.pair.net, mask, |attr| {
                    attr.qp_state = QpState::Sqd;
                    attr.en_sqd_async_notify = true;
                });
                stopped.is_ok()
            }
            Command::Resume { side } => match self.end(side).state() {
                QpState::Rtr => {
                    let psn = self.psn(side);
                    self.end(side).to_rts(&self.pair.net, &self.pair.setup, psn);
                    true
                }
                // Going on is not among what RTS can do.
                QpState::Rts => false,
                _ => self.to_state(side, QpState::Rts),
            },
            Command::Reconnect { half } => {
                self.connected += 1;
                for side in Side::BOTH {
                    self.to_state(side, QpState::Reset);
                }
                let Pair { net, a, b, setup } = &self.pair;
                a.connect(net, setup, b, self.psn(Side::B), self.psn(Side::A));
                b.to_rtr(net, setup, a, self.psn(Side::A));
                if !half {
                    b.to_rts(net, setup, self.psn(Side::B));
                }
                true
            }
            Command::DeregisterExtra { side } => {
                let lkey = self.keys[side.index()].extra.lkey();
                self.end(side).device.dereg_mr(lkey).is_ok()
            }
        }
    }

    /// The first PSN that a side sends in this connection.
    fn psn(&self, side: Side) -> Psn {
        let base = [self.pair.setup.psn_a, self.pair.setup.psn_b][side.index()];
        base.add(self.connected * 0x12_3456)
    }

    fn to_state(&self, side: Side, state: QpState) -> bool {
        let changed = self
            .end(side)
            .try_modify(&self.pair.net, AttrMask::STATE, |attr| {
                attr.qp_state = state;
            });
        changed.is_ok()
    }

    /// One to three entries that cover a piece of a side's memory, under a key that never was if they
    /// shall be bad. How many there are makes no difference.
    fn entries(&self, side: Side, at: usize, length: u32, bad: bool) -> Vec<Sge> {
        let end = self.end(side);
        let count = 1 + (self.wr_id % 3) as u32;
        let mut entries = Vec::new();
        for n in 0..count {
            let (from, to) = (length * n / count, length * (n + 1) / count);
            let sge = end.sge(at as u64 + u64::from(from), to - from);
            let lkey = if bad {
                Lkey::new(!sge.lkey.value())
            } else {
                sge.lkey
            };
            entries.push(Sge { lkey, ..sge });
        }
        entries
    }

    fn post_send(&mut self, side: Side, op: Op, flags: SendFlags, bad_entry: bool) -> bool {
        self.wr_id += 1;
        let at = source(self.posted[side.index()][0]);
        self.end(side).memory.fill(at, &data(self.wr_id, BUFFER));
        let bytes = data(self.wr_id, op.len());
        let entries = if matches!(op, Op::Flush { .. } | Op::Bind { .. } | Op::LocalInv) {
            Vec::new()
        } else {
            self.entries(side, at, op.len(), bad_entry)
        };
        let may_inline = op.sends_data() && op.len() <= MAX_INLINE && !bad_entry;
        let data = if may_inline && self.wr_id.is_multiple_of(4) {
            SendData::Inline(&[&bytes])
        } else {
            SendData::Sges(&entries)
        };
        let op = self.operation(side, op);
        let wr = SendWr {
            wr_id: self.wr_id,
            op,
            flags,
            data,
            ud: None,
            xrc_srqn: 0,
        };
        let Pair { net, a, b, .. } = &mut self.pair;
        let end = if side == Side::A { a } else { b };
        let posted = end.post_send(net, &wr).is_ok();
        if posted {
            self.posted[side.index()][0] += 1;
            if let SendOp::BindMw(bind) = op {
                self.keys[side.index()].window = bind.rkey();
            }
        }
        posted
    }

    fn post_receive(&mut self, side: Side, len: u32, bad_entry: bool) -> bool {
        self.wr_id += 1;
        let at = sink(self.posted[side.index()][1]);
        let sges = self.entries(side, at, len, bad_entry);
        let Pair { net, a, b, .. } = &mut self.pair;
        let end = if side == Side::A { a } else { b };
        let posted = end.try_post_recv(net, self.wr_id, &sges).is_ok();
        self.posted[side.index()][1] += usize::from(posted);
        posted
    }

    fn operation(&self, side: Side, op: Op) -> SendOp {
        let own = &self.keys[side.index()];
        let peers = &self.keys[side.other().index()];
        let rkey = |key| match key {
            Key::Main => peers.main.rkey(),
            Key::Window => peers.window,
            Key::Extra => peers.extra.rkey(),
            Key::Unknown => Rkey::new(!peers.main.rkey().value()),
        };
        let va = |at: u32| BASE + u64::from(at);
        match op {
            Op::Send { imm: None, .. } => SendOp::Send,
            Op::Send { imm: Some(imm), .. } => SendOp::SendImm(imm),
            Op::SendInv { .. } => SendOp::SendInv(peers.window),
            Op::Write {
                key, at, imm: None, ..
            } => SendOp::Write {
                va: va(at),
                rkey: rkey(key),
            },
            Op::Write {
                key,
                at,
                imm: Some(imm),
                ..
            } => SendOp::WriteImm {
                va: va(at),
                rkey: rkey(key),
                imm,
            },
            Op::Read { key, at, .. } => SendOp::Read {
                va: va(at),
                rkey: rkey(key),
            },
            Op::FetchAdd { key, at, add } => SendOp::FetchAdd {
                va: va(at),
                rkey: rkey(key),
                add,
            },
            Op::CompareSwap {
                key,
                at,
                compare,
                swap,
            } => SendOp::CompareSwap {
                va: va(at),
                rkey: rkey(key),
                compare,
                swap,
            },
            Op::AtomicWrite { key, at } => SendOp::AtomicWrite {
                va: va(at),
                rkey: rkey(key),
            },
            Op::Flush { len, key, at } => SendOp::Flush {
                va: va(at),
                rkey: rkey(key),
                length: len,
                what: Feth {
                    range: FlushRange::Range,
                    global: true,
                    persistent: false,
                },
            },
            Op::Bind { at, len, writable } => {
                let writing = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
                let variant = own.window.variant().wrapping_add(1);
                SendOp::BindMw(BindMw {
                    window: own.window,
                    new_key: Rkey::from_parts(own.window.index(), variant),
                    region: own.main.lkey(),
                    addr: va(at),
                    length: u64::from(len),
                    access: if writable {
                        Access::REMOTE_READ | writing
                    } else {
                        Access::REMOTE_READ
                    },
                })
            }
            Op::LocalInv => SendOp::LocalInv(own.window),
        }
    }
}

fn done(cqe: &Cqe) -> Done {
    let imm = match cqe.payload {
        WcPayload::Imm(imm) => Some(imm),
        _ => None,
    };
    let invalidated = matches!(cqe.payload, WcPayload::Invalidated(_));
    Done {
        wr_id: cqe.wr_id,
        status: cqe.status,
        detail: (cqe.status == WcStatus::Success).then_some((
            cqe.opcode,
            cqe.byte_len,
            imm,
            invalidated,
            cqe.solicited,
        )),
    }
}

fn name(event: AsyncEvent) -> &'static str {
    let name = event.kind().name();
    name.strip_prefix("IBV_EVENT_").unwrap_or(name)
}
