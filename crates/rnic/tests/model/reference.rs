//! The model: what a pair of queue pairs does in a perfect network, request by request, without
//! packets, sequence numbers or timers.

use std::collections::VecDeque;

use hirail_vocab::{QpState, WcOpcode, WcStatus};

/// The peer may use the memory up to here; behind it are the buffers of the side itself.
pub(crate) const REMOTE: u32 = 2048;
/// Bytes of the buffer of a request.
pub(crate) const BUFFER: u32 = 800;
/// Buffers of each kind; more than requests of a queue, so that none is used twice at a time.
const BUFFERS: usize = 8;
/// Bytes of each side's memory.
pub(crate) const MEMORY: usize = REMOTE as usize + 2 * BUFFERS * BUFFER as usize;
/// Path MTU.
pub(crate) const MTU: u32 = 256;
/// Requests of a queue.
pub(crate) const DEPTH: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Rc,
    RcWithSrq,
    Uc,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Which key of the peer a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    /// The region of everything, with every right.
    Main,
    /// The window, whatever it is bound to.
    Window,
    /// A region of the same memory for reading only, unless it was deregistered.
    Extra,
    /// One that never was.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Send {
        len: u32,
        imm: Option<[u8; 4]>,
    },
    /// Invalidates the peer's window.
    SendInv {
        len: u32,
    },
    Write {
        len: u32,
        imm: Option<[u8; 4]>,
        key: Key,
        at: u32,
    },
    Read {
        len: u32,
        key: Key,
        at: u32,
    },
    FetchAdd {
        key: Key,
        at: u32,
        add: u64,
    },
    CompareSwap {
        key: Key,
        at: u32,
        compare: u64,
        swap: u64,
    },
    AtomicWrite {
        key: Key,
        at: u32,
    },
    Flush {
        len: u32,
        key: Key,
        at: u32,
    },
    /// Binds the window to a part of the memory, for reading and maybe writing.
    Bind {
        at: u32,
        len: u32,
        writable: bool,
    },
    /// Invalidates the side's own window.
    LocalInv,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Send {
        side: Side,
        op: Op,
        signaled: bool,
        solicited: bool,
        bad_entry: bool,
    },
    Receive {
        side: Side,
        len: u32,
        bad_entry: bool,
    },
    ToError {
        side: Side,
    },
    ToReset {
        side: Side,
    },
    /// RTS to SQD.
    Stop {
        side: Side,
    },
    /// SQD, SQE or RTR to RTS.
    Resume {
        side: Side,
    },
    /// Both sides from anywhere over RESET to RTS; the second one only to RTR, if `half`.
    Reconnect {
        half: bool,
    },
    DeregisterExtra {
        side: Side,
    },
}

/// A completion, as far as it is defined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
    /// Of successes only.
    pub(crate) detail: Option<Detail>,
}

/// Opcode, length, immediate data, whether a key was invalidated, whether it was solicited.
pub(crate) type Detail = (WcOpcode, u32, Option<[u8; 4]>, bool, bool);

/// What is seen of a side after a command.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Seen {
    pub(crate) state: u8,
    pub(crate) sent: Vec<Done>,
    pub(crate) received: Vec<Done>,
    /// Names, sorted.
    pub(crate) events: Vec<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Outcome {
    /// Whether the verb was accepted.
    pub(crate) accepted: bool,
    pub(crate) of: [Seen; 2],
}

#[derive(Clone, Copy, Debug)]
struct Request {
    wr_id: u64,
    op: Op,
    signaled: bool,
    solicited: bool,
    bad_entry: bool,
    /// Offset of its data.
    at: usize,
    /// Which key of a window it means: how many binds had been posted.
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Receive {
    wr_id: u64,
    len: u32,
    at: usize,
    bad_entry: bool,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    at: u32,
    len: u32,
    writable: bool,
}

struct End {
    state: QpState,
    established: bool,
    sends: VecDeque<Request>,
    /// The oldest request was sent and found no receive request.
    waits: bool,
    /// Bytes of it that the peer has placed meanwhile.
    placed: u32,
    receives: VecDeque<Receive>,
    memory: Vec<u8>,
    window: Option<Bound>,
    /// The generation of the window's key.
    window_key: u32,
    /// Binds posted.
    binds: u32,
    has_extra: bool,
    /// Requests posted so far.
    posted: [usize; 2],
    seen: Seen,
}

pub(crate) struct Model {
    transport: Transport,
    ends: [End; 2],
    wr_id: u64,
}

/// What came of a request.
enum Answer {
    Done,
    /// No receive request: it stays where it is.
    NotReady,
    /// The requester's status.
    Refused(WcStatus),
}

/// The data of request `wr_id`.
pub(crate) fn data(wr_id: u64, len: u32) -> Vec<u8> {
    (0..u64::from(len))
        .map(|i| (wr_id * 37 + i * 11 + i / 200) as u8 | 1)
        .collect()
}

/// The offset of the buffer of a side's `n`th send request.
pub(crate) fn source(n: usize) -> usize {
    REMOTE as usize + n % BUFFERS * BUFFER as usize
}

/// The offset of the buffer of a side's `n`th receive request.
pub(crate) fn sink(n: usize) -> usize {
    source(0) + (BUFFERS + n % BUFFERS) * BUFFER as usize
}

impl Model {
    pub(crate) fn new(transport: Transport) -> Self {
        let end = || End {
            state: QpState::Rts,
            established: false,
            sends: VecDeque::new(),
            waits: false,
            placed: 0,
            receives: VecDeque::new(),
            memory: vec![0; MEMORY],
            window: None,
            window_key: 0,
            binds: 0,
            has_extra: true,
            posted: [0; 2],
            seen: Seen::default(),
        };
        Self {
            transport,
            ends: [end(), end()],
            wr_id: 0,
        }
    }

    pub(crate) fn memory(&self, side: Side) -> &[u8] {
        &self.ends[side.index()].memory
    }

    /// Whether the outcome of a command depends on what the model does not know: which requests of a
    /// queue have been started when something happens.
    pub(crate) fn is_vague(&self, command: &Command) -> bool {
        match *command {
            // Binds and checks of entries happen when a request is started, or when its response
            // comes and later ones have been started.
            Command::Send {
                side,
                op,
                bad_entry,
                ..
            } => {
                let sends = &self.ends[side.index()].sends;
                let is_at_start = bad_entry || matches!(op, Op::Bind { .. });
                is_at_start && !sends.is_empty() || sends.iter().any(|sent| sent.bad_entry)
            }
            Command::Stop { side } => {
                let end = &self.ends[side.index()];
                end.waits && end.sends.len() > 1
            }
            _ => false,
        }
    }

    pub(crate) fn apply(&mut self, command: &Command) -> Outcome {
        let accepted = self.command(command);
        // Each side goes on until it has to wait for the other.
        while Side::BOTH.into_iter().any(|side| self.advance(side)) {}
        let of = Side::BOTH.map(|side| {
            let end = self.end(side);
            let mut seen = core::mem::take(&mut end.seen);
            seen.state = end.state.code();
            seen.events.sort_unstable();
            seen
        });
        Outcome { accepted, of }
    }

    fn is_reliable(&self) -> bool {
        self.transport != Transport::Uc
    }

    fn is_shared(&self) -> bool {
        self.transport == Transport::RcWithSrq
    }

    fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side.index()]
    }

    fn command(&mut self, command: &Command) -> bool {
        match *command {
            Command::Send {
                side,
                op,
                signaled,
                solicited,
                bad_entry,
            } => self.post_send(side, op, signaled, solicited, bad_entry),
            Command::Receive {
                side,
                len,
                bad_entry,
            } => self.post_receive(side, len, bad_entry),
            Command::ToError { side } => {
                let may = self.end(side).state != QpState::Reset;
                if may {
                    self.fail(side);
                }
                may
            }
            Command::ToReset { side } => {
                self.reset(side);
                true
            }
            Command::Stop { side } => {
                let end = self.end(side);
                let may = end.state == QpState::Rts;
                if may {
                    end.state = QpState::Sqd;
                    if !end.waits {
                        end.seen.events.push("SQ_DRAINED");
                    }
                }
                may
            }
            Command::Resume { side } => {
                let end = self.end(side);
                let may = match end.state {
                    QpState::Sqd => !end.waits,
                    QpState::Sqe | QpState::Rtr => true,
                    _ => false,
                };
                if may {
                    end.state = QpState::Rts;
                }
                may
            }
            Command::Reconnect { half } => {
                for side in Side::BOTH {
                    self.reset(side);
                    self.end(side).state = QpState::Rts;
                }
                if half {
                    self.end(Side::B).state = QpState::Rtr;
                }
                true
            }
            Command::DeregisterExtra { side } => core::mem::take(&mut self.end(side).has_extra),
        }
    }

    fn post_send(
        &mut self,
        side: Side,
        op: Op,
        signaled: bool,
        solicited: bool,
        bad_entry: bool,
    ) -> bool {
        self.wr_id += 1;
        let wr_id = self.wr_id;
        let peers = self.end(side.other()).binds;
        let end = self.end(side);
        // The side fills the buffer before it posts.
        let at = source(end.posted[0]);
        end.memory[at..at + BUFFER as usize].copy_from_slice(&data(wr_id, BUFFER));
        let may = matches!(
            end.state,
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err
        );
        if !may || end.sends.len() == DEPTH {
            return false;
        }
        end.posted[0] += 1;
        end.binds += u32::from(matches!(op, Op::Bind { .. }));
        let generation = if matches!(op, Op::Bind { .. } | Op::LocalInv) {
            end.binds
        } else {
            peers
        };
        end.sends.push_back(Request {
            wr_id,
            op,
            signaled,
            solicited,
            bad_entry,
            at,
            generation,
        });
        if matches!(end.state, QpState::Sqe | QpState::Err) {
            end.flush_sends();
        }
        true
    }

    fn post_receive(&mut self, side: Side, len: u32, bad_entry: bool) -> bool {
        self.wr_id += 1;
        let wr_id = self.wr_id;
        let is_shared = self.is_shared();
        let end = self.end(side);
        if end.receives.len() == DEPTH || !is_shared && end.state == QpState::Reset {
            return false;
        }
        let at = sink(end.posted[1]);
        end.posted[1] += 1;
        end.receives.push_back(Receive {
            wr_id,
            len,
            at,
            bad_entry,
        });
        if !is_shared && end.state == QpState::Err {
            end.flush_receives();
        }
        true
    }

    fn reset(&mut self, side: Side) {
        let is_shared = self.is_shared();
        let end = self.end(side);
        end.state = QpState::Reset;
        end.established = false;
        end.take_sends();
        if !is_shared {
            end.receives.clear();
        }
    }

    /// To ERR: both queues are flushed.
    fn fail(&mut self, side: Side) {
        let is_shared = self.is_shared();
        let end = self.end(side);
        if end.state == QpState::Err {
            return;
        }
        end.state = QpState::Err;
        end.flush_sends();
        if is_shared {
            end.seen.events.push("QP_LAST_WQE_REACHED");
        } else {
            end.flush_receives();
        }
    }

    /// Executes the next request of a side; whether there was one that could be.
    fn advance(&mut self, side: Side) -> bool {
        let reliable = self.is_reliable();
        let end = self.end(side);
        // What has been started goes on in SQD.
        let may = end.state == QpState::Rts || end.state == QpState::Sqd && end.waits;
        let Some(&request) = end.sends.front().filter(|_| may) else {
            return false;
        };
        let answer = self.execute(side, &request);
        let end = self.end(side);
        if matches!(answer, Answer::NotReady) {
            end.waits = true;
            return false;
        }
        end.sends.pop_front();
        end.waits = false;
        end.placed = 0;
        match answer {
            Answer::Refused(status) => {
                end.seen.sent.push(Done::failed(request.wr_id, status));
                if reliable {
                    self.fail(side);
                } else {
                    end.state = QpState::Sqe;
                    end.flush_sends();
                }
            }
            _ => {
                if request.signaled {
                    let (opcode, len) = request.op.completion();
                    end.seen.sent.push(Done {
                        wr_id: request.wr_id,
                        status: WcStatus::Success,
                        detail: Some((opcode, len, None, false, false)),
                    });
                }
                if end.state == QpState::Sqd {
                    end.seen.events.push("SQ_DRAINED");
                }
            }
        }
        true
    }

    fn execute(&mut self, side: Side, request: &Request) -> Answer {
        let end = self.end(side);
        match request.op {
            Op::Bind { at, len, writable } => {
                if end.window.is_some() || at + len > REMOTE {
                    return Answer::Refused(WcStatus::MwBindErr);
                }
                end.window = Some(Bound { at, len, writable });
                end.window_key = request.generation;
                return Answer::Done;
            }
            Op::LocalInv => {
                if end.window_key != request.generation {
                    return Answer::Refused(WcStatus::LocQpOpErr);
                }
                end.window = None;
                return Answer::Done;
            }
            _ => {}
        }
        if request.bad_entry && request.op.sends_data() && request.op.len() > 0 {
            return Answer::Refused(WcStatus::LocProtErr);
        }
        let is_there = matches!(
            self.end(side.other()).state,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        );
        if !self.is_reliable() {
            if is_there {
                self.serve(side, request);
            }
            return Answer::Done;
        }
        if is_there {
            self.serve(side, request)
        } else {
            Answer::Refused(WcStatus::RetryExcErr)
        }
    }

    /// What the responder does with a request.
    fn serve(&mut self, side: Side, request: &Request) -> Answer {
        let peer = side.other();
        match request.op {
            Op::Send { len, imm } => self.serve_send(side, request, len, imm, false),
            Op::SendInv { len } => self.serve_send(side, request, len, None, true),
            Op::Write { len, imm, key, at } => self.serve_write(side, request, len, imm, key, at),
            Op::Read { len, key, at } => {
                if !self.grants(peer, request, key, at, len, false) {
                    return self.deny(peer);
                }
                self.establish(peer);
                self.return_data(side, request, at as usize, len)
            }
            Op::FetchAdd { key, at, .. }
            | Op::CompareSwap { key, at, .. }
            | Op::AtomicWrite { key, at } => {
                if !at.is_multiple_of(8) {
                    return self.reject(peer);
                }
                if !self.grants(peer, request, key, at, 8, true) {
                    return self.deny(peer);
                }
                self.establish(peer);
                let at = at as usize;
                let found = word(&self.end(peer).memory[at..]);
                let after = match request.op {
                    Op::FetchAdd { add, .. } => found.wrapping_add(add),
                    Op::CompareSwap { compare, swap, .. } if found == compare => swap,
                    Op::CompareSwap { .. } => found,
                    _ => word(&data(request.wr_id, 8)),
                };
                let answer = if matches!(request.op, Op::AtomicWrite { .. }) {
                    Answer::Done
                } else {
                    self.return_data(side, request, at, 8)
                };
                self.end(peer).memory[at..at + 8].copy_from_slice(&after.to_ne_bytes());
                answer
            }
            Op::Flush { len, key, at } => {
                // Only the main region grants it.
                let is_granted = len == 0 || key == Key::Main && at + len <= REMOTE;
                if !is_granted {
                    return self.deny(peer);
                }
                self.establish(peer);
                Answer::Done
            }
            Op::Bind { .. } | Op::LocalInv => unreachable!("they are local"),
        }
    }

    /// The response to a request: `len` bytes of the peer's memory from `at` on.
    fn return_data(&mut self, side: Side, request: &Request, at: usize, len: u32) -> Answer {
        if request.bad_entry && len > 0 {
            return Answer::Refused(WcStatus::LocProtErr);
        }
        let len = len as usize;
        let bytes = self.end(side.other()).memory[at..at + len].to_vec();
        self.end(side).memory[request.at..request.at + len].copy_from_slice(&bytes);
        Answer::Done
    }

    fn serve_send(
        &mut self,
        side: Side,
        request: &Request,
        len: u32,
        imm: Option<[u8; 4]>,
        invalidates: bool,
    ) -> Answer {
        let peer = side.other();
        let reliable = self.is_reliable();
        let end = self.end(peer);
        let Some(&receive) = end.receives.front() else {
            return Answer::NotReady;
        };
        let bytes = data(request.wr_id, len);
        if receive.bad_entry && len > 0 && receive.len >= len.min(MTU) {
            if reliable {
                end.finish_receive(WcStatus::LocProtErr);
                self.fail(peer);
            }
            return Answer::Refused(WcStatus::RemOpErr);
        }
        // Packets are placed one by one until one does not fit.
        let fits = if len <= receive.len {
            len
        } else {
            receive.len / MTU * MTU
        };
        let to = receive.at + fits as usize;
        end.memory[receive.at..to].copy_from_slice(&bytes[..fits as usize]);
        if fits.min(len.saturating_sub(1)) >= MTU {
            self.establish(peer);
        }
        let end = self.end(peer);
        if fits < len {
            if reliable {
                end.finish_receive(WcStatus::LocLenErr);
                self.fail(peer);
            }
            return Answer::Refused(WcStatus::RemInvReqErr);
        }
        if invalidates {
            let is_bound = end.window.is_some() && end.window_key == request.generation;
            if !is_bound {
                end.finish_receive(WcStatus::LocAccessErr);
                self.fail(peer);
                return Answer::Refused(WcStatus::RemAccessErr);
            }
            end.window = None;
        }
        let detail = (WcOpcode::Recv, len, imm, invalidates, request.solicited);
        end.receive(detail);
        self.establish(peer);
        Answer::Done
    }

    fn serve_write(
        &mut self,
        side: Side,
        request: &Request,
        len: u32,
        imm: Option<[u8; 4]>,
        key: Key,
        at: u32,
    ) -> Answer {
        let peer = side.other();
        let reliable = self.is_reliable();
        let bytes = data(request.wr_id, len);
        // All packets but the last, which asks for the receive request.
        let body = len.saturating_sub(1) / MTU * MTU;
        if body > 0 && self.end(side).placed == 0 {
            if !self.grants(peer, request, key, at, len, true) {
                return self.deny(peer);
            }
            let at = at as usize;
            self.end(peer).memory[at..at + body as usize].copy_from_slice(&bytes[..body as usize]);
            self.end(side).placed = body;
            self.establish(peer);
        }
        // It looks for the receive request before its key.
        if imm.is_some() && self.end(peer).receives.is_empty() {
            return Answer::NotReady;
        }
        let tail = len - body;
        if !self.grants(peer, request, key, at + body, tail, true) {
            if imm.is_none() {
                return self.deny(peer);
            }
            if reliable {
                self.end(peer).finish_receive(WcStatus::LocAccessErr);
                self.fail(peer);
            }
            return Answer::Refused(WcStatus::RemAccessErr);
        }
        let from = (at + body) as usize;
        let last = &bytes[body as usize..];
        self.end(peer).memory[from..from + tail as usize].copy_from_slice(last);
        self.establish(peer);
        if imm.is_some() {
            let detail = (
                WcOpcode::RecvRdmaWithImm,
                len,
                imm,
                false,
                request.solicited,
            );
            self.end(peer).receive(detail);
        }
        Answer::Done
    }

    /// Whether the key allows it. No bytes need no key.
    fn grants(
        &mut self,
        side: Side,
        request: &Request,
        key: Key,
        at: u32,
        len: u32,
        writes: bool,
    ) -> bool {
        let end = self.end(side);
        len == 0
            || match key {
                Key::Main => at + len <= REMOTE,
                Key::Extra => end.has_extra && !writes && at + len <= REMOTE,
                Key::Window => end.window.is_some_and(|window| {
                    let is_current = end.window_key == request.generation;
                    let is_within = at >= window.at && at + len <= window.at + window.len;
                    is_current && is_within && (window.writable || !writes)
                }),
                Key::Unknown => false,
            }
    }

    /// Remote access error.
    fn deny(&mut self, peer: Side) -> Answer {
        if self.is_reliable() {
            self.end(peer).seen.events.push("QP_ACCESS_ERR");
            self.fail(peer);
        }
        Answer::Refused(WcStatus::RemAccessErr)
    }

    /// Invalid request.
    fn reject(&mut self, peer: Side) -> Answer {
        self.end(peer).seen.events.push("QP_REQ_ERR");
        self.fail(peer);
        Answer::Refused(WcStatus::RemInvReqErr)
    }

    fn establish(&mut self, side: Side) {
        let end = self.end(side);
        if !core::mem::replace(&mut end.established, true) && end.state == QpState::Rtr {
            end.seen.events.push("COMM_EST");
        }
    }
}

impl End {
    fn take_sends(&mut self) -> VecDeque<Request> {
        self.waits = false;
        self.placed = 0;
        core::mem::take(&mut self.sends)
    }

    fn flush_sends(&mut self) {
        for request in self.take_sends() {
            let done = Done::failed(request.wr_id, WcStatus::WrFlushErr);
            self.seen.sent.push(done);
        }
    }

    fn flush_receives(&mut self) {
        for receive in core::mem::take(&mut self.receives) {
            let done = Done::failed(receive.wr_id, WcStatus::WrFlushErr);
            self.seen.received.push(done);
        }
    }

    fn finish_receive(&mut self, status: WcStatus) {
        let receive = self.receives.pop_front().expect("one was in use");
        self.seen.received.push(Done::failed(receive.wr_id, status));
    }

    fn receive(&mut self, detail: Detail) {
        let receive = self.receives.pop_front().expect("one was in use");
        self.seen.received.push(Done {
            wr_id: receive.wr_id,
            status: WcStatus::Success,
            detail: Some(detail),
        });
    }
}

impl Done {
    fn failed(wr_id: u64, status: WcStatus) -> Self {
        Self {
            wr_id,
            status,
            detail: None,
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(*bytes.first_chunk().expect("eight bytes"))
}

impl Op {
    pub(crate) fn len(&self) -> u32 {
        match *self {
            Self::Send { len, .. }
            | Self::SendInv { len }
            | Self::Write { len, .. }
            | Self::Read { len, .. } => len,
            Self::FetchAdd { .. } | Self::CompareSwap { .. } | Self::AtomicWrite { .. } => 8,
            Self::Flush { .. } | Self::Bind { .. } | Self::LocalInv => 0,
        }
    }

    /// Whether its data leaves this side.
    pub(crate) fn sends_data(&self) -> bool {
        matches!(
            self,
            Self::Send { .. }
                | Self::SendInv { .. }
                | Self::Write { .. }
                | Self::AtomicWrite { .. }
        )
    }

    /// Whether it changes the peer's memory.
    pub(crate) fn writes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::FetchAdd { .. }
                | Self::CompareSwap { .. }
                | Self::AtomicWrite { .. }
        )
    }

    fn completion(&self) -> (WcOpcode, u32) {
        let opcode = match self {
            Self::Send { .. } | Self::SendInv { .. } => WcOpcode::Send,
            Self::Write { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Self::Flush { .. } => WcOpcode::Flush,
            Self::Bind { .. } => WcOpcode::BindMw,
            Self::LocalInv => WcOpcode::LocalInv,
        };
        (opcode, self.len())
    }
}
