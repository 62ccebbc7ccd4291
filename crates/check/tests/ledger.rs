//! What the ledger finds, and what it does not.

use std::cell::{Cell, RefCell};

use hirail_check::{
    Completion, Deny, Kind, Ledger, Memory, Op, Peer, QpInit, Region, Remote, Rights, Send, Sge,
    Site, Transport,
};
use hirail_vocab::{FindingCode, WcStatus};

const DEVICE: u64 = 1;
const PD: u64 = 2;
const CQ: u64 = 3;
const QP: u64 = 4;
const MR: u64 = 5;
const SRQ: u64 = 6;
const QPN: u32 = 0x11;
const LKEY: u32 = 0x100;
const RKEY: u32 = 0x200;
const ADDR: u64 = 0x1_0000;
const LENGTH: u64 = 4096;
const ALL: Rights = Rights(0xf);

/// Memory that is one array, and peers that write when they are told to.
struct Fake {
    bytes: RefCell<Vec<u8>>,
    peer_writes: Cell<u64>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            bytes: RefCell::new(vec![0; LENGTH as usize]),
            peer_writes: Cell::new(0),
        }
    }
}

impl Fake {
    fn set(&self, addr: u64, value: u8) {
        self.bytes.borrow_mut()[(addr - ADDR) as usize] = value;
    }
}

impl Memory for Fake {
    fn digest(&self, addr: u64, length: u64) -> Option<u32> {
        let start = usize::try_from(addr.checked_sub(ADDR)?).ok()?;
        let bytes = self.bytes.borrow();
        let bytes = bytes.get(start..start + length as usize)?;
        let add = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
        Some(bytes.iter().fold(7, add))
    }

    fn peer_writes(&self, _: u64) -> u64 {
        self.peer_writes.get()
    }
}

/// A program with a queue pair and a region.
struct Program {
    ledger: Ledger,
    memory: Fake,
    site: Site,
}

impl Program {
    fn new(rights: Rights) -> Self {
        Self::with(rights, Transport::Reliable, None)
    }

    fn with(rights: Rights, transport: Transport, srq: Option<u64>) -> Self {
        let mut ledger = Ledger::default();
        let site = ledger.site(&[0x40]);
        ledger.device_opened(DEVICE, "hirail_lo", 1024, false, site);
        ledger.cq_made(DEVICE, CQ, "CQ 0x3", 8, site);
        if let Some(srq) = srq {
            ledger.srq_made(DEVICE, srq, "SRQ 0x6", (PD, None), site);
        }
        let init = QpInit {
            device: DEVICE,
            qpn: QPN,
            transport,
            pd: PD,
            send_cq: CQ,
            recv_cq: CQ,
            srq,
            max_send_wr: 4,
        };
        ledger.qp_made(QP, init, site);
        let region = Region {
            device: DEVICE,
            pd: PD,
            addr: ADDR,
            iova: ADDR,
            length: LENGTH,
            rights,
            lkey: LKEY,
            rkey: RKEY,
        };
        ledger.registered(MR, region, site);
        Self {
            ledger,
            memory: Fake::default(),
            site,
        }
    }

    fn post(&mut self, wr_id: u64, signaled: bool, sge: Sge) {
        let send = Send {
            wr_id,
            op: Op::Send,
            signaled,
            sges: &[sge],
            inline: None,
            remote: None,
        };
        self.ledger.send_posting(QP, &send, self.site, &self.memory);
    }

    fn receive(&mut self, wr_id: u64, sge: Sge) {
        self.ledger
            .receive_posting(Kind::Qp, QP, wr_id, &[sge], self.site);
    }

    fn complete(&mut self, wr_id: u64, status: WcStatus, is_receive: bool) {
        let completion = Completion {
            wr_id,
            qpn: QPN,
            status,
            is_receive,
        };
        let here = || vec![0x80];
        self.ledger
            .polled(DEVICE, CQ, &[completion], &self.memory, &here);
    }

    fn peer(&mut self, op: Op, why: Deny, addr: u64, rkey: u32) {
        self.ledger.denied(&Peer {
            device: DEVICE,
            qpn: QPN,
            op,
            why,
            target: Some((Remote { addr, rkey }, 64)),
        });
    }

    fn codes(&mut self) -> Vec<FindingCode> {
        let found = self.ledger.take();
        found.into_iter().map(|it| it.code).collect()
    }
}

fn sge(offset: u64, length: u32) -> Sge {
    Sge {
        addr: ADDR + offset,
        length,
        lkey: LKEY,
    }
}

#[test]
fn bytes_that_change_while_they_are_sent() {
    let mut program = Program::new(ALL);
    program.post(1, true, sge(0, 1024));
    program.memory.set(ADDR + 700, 1);
    program.complete(1, WcStatus::Success, false);
    let found = program.ledger.take();
    assert_eq!(found[0].code, FindingCode::PayloadChanged);
    assert!(
        found[0].message.contains("bytes 512 to 767"),
        "{}",
        found[0].message
    );
    // After the completion they are the program's.
    program.memory.set(ADDR, 1);
    program.post(2, true, sge(0, 1024));
    program.complete(2, WcStatus::Success, false);
    assert_eq!(program.codes(), []);
}

#[test]
fn an_unsignalled_request_is_covered_by_the_next_completion() {
    let mut program = Program::new(ALL);
    program.post(1, false, sge(0, 64));
    program.memory.set(ADDR, 1);
    program.post(2, true, sge(1024, 64));
    program.complete(2, WcStatus::Success, false);
    assert_eq!(program.codes(), [FindingCode::PayloadChanged]);
}

#[test]
fn what_the_device_may_have_written_is_no_mistake() {
    // A receive into the same bytes, outstanding or completed meanwhile.
    for is_completed in [false, true] {
        let mut program = Program::new(ALL);
        program.receive(7, sge(0, 64));
        program.post(1, true, sge(0, 64));
        program.memory.set(ADDR, 1);
        if is_completed {
            program.complete(7, WcStatus::Success, true);
        }
        program.complete(1, WcStatus::Success, false);
        assert_eq!(program.codes(), []);
    }
    // A peer's WRITE.
    let mut program = Program::new(ALL);
    program.post(1, true, sge(0, 64));
    program.memory.set(ADDR, 1);
    program.memory.peer_writes.set(1);
    program.complete(1, WcStatus::Success, false);
    assert_eq!(program.codes(), []);
    // Not where peers may not write.
    let mut program = Program::new(Rights::LOCAL_WRITE);
    program.post(1, true, sge(0, 64));
    program.memory.set(ADDR, 1);
    program.memory.peer_writes.set(1);
    program.complete(1, WcStatus::Success, false);
    assert_eq!(program.codes(), [FindingCode::PayloadChanged]);
}

#[test]
fn a_receive_that_completed_before_excuses_nothing() {
    let mut program = Program::new(ALL);
    program.receive(7, sge(0, 64));
    program.complete(7, WcStatus::Success, true);
    program.post(1, true, sge(0, 64));
    program.memory.set(ADDR, 1);
    program.complete(1, WcStatus::Success, false);
    assert_eq!(program.codes(), [FindingCode::PayloadChanged]);
}

#[test]
fn keys_are_judged_when_they_are_posted() {
    let wrong = |sge: Sge| {
        let mut program = Program::new(ALL);
        program.post(1, true, sge);
        // The failure is not told again.
        program.complete(1, WcStatus::LocProtErr, false);
        program.codes()
    };
    let good = sge(0, 64);
    assert_eq!(wrong(good), []);
    assert_eq!(wrong(sge(LENGTH - 64, 64)), []);
    assert_eq!(
        wrong(Sge {
            length: 0,
            ..sge(LENGTH, 0)
        }),
        []
    );
    assert_eq!(wrong(sge(LENGTH - 63, 64)), [FindingCode::OutOfRange]);
    assert_eq!(
        wrong(Sge {
            addr: ADDR - 1,
            ..good
        }),
        [FindingCode::OutOfRange]
    );
    assert_eq!(
        wrong(Sge {
            addr: u64::MAX - 3,
            ..good
        }),
        [FindingCode::OutOfRange]
    );
    assert_eq!(wrong(Sge { lkey: 9, ..good }), [FindingCode::UnknownKey]);
    assert_eq!(wrong(Sge { lkey: RKEY, ..good }), [FindingCode::UnknownKey]);
    let mut program = Program::new(Rights(0));
    program.post(1, true, good);
    assert_eq!(program.codes(), []);
    program.receive(2, good);
    assert_eq!(program.codes(), [FindingCode::MissingAccess]);
}

#[test]
fn memory_that_goes_while_it_is_in_use() {
    let mut program = Program::new(ALL);
    program.receive(7, sge(0, 64));
    program.ledger.deregistering(MR, program.site, |_| false);
    assert_eq!(program.codes(), [], "of a queue pair in ERR it is not");
    program.ledger.deregistering(MR, program.site, |_| true);
    assert_eq!(program.codes(), [FindingCode::DeregisteredInUse]);
    program.ledger.deregistered(MR, program.site);
    program.post(1, true, sge(0, 64));
    assert_eq!(program.codes(), [FindingCode::UseAfterDeregister]);
    program.peer(Op::Write, Deny::Access, ADDR, RKEY);
    assert_eq!(program.codes(), [FindingCode::UseAfterDeregister]);
}

#[test]
fn memory_may_go_when_all_is_polled_or_the_queue_pair_gone() {
    let mut program = Program::new(ALL);
    program.post(1, true, sge(0, 64));
    program.complete(1, WcStatus::Success, false);
    program.receive(7, sge(0, 64));
    program.ledger.qp_reset(QP);
    program.receive(8, sge(0, 64));
    program.ledger.qp_gone(QP);
    program.ledger.deregistering(MR, program.site, |_| true);
    assert_eq!(program.codes(), []);
}

#[test]
fn a_send_queue_that_nobody_asked_to_tell() {
    let mut program = Program::new(ALL);
    for wr_id in 0..4 {
        program.post(wr_id, false, sge(0, 8));
    }
    assert_eq!(program.codes(), [], "full, and nobody wants more");
    program.post(4, true, sge(0, 8));
    assert_eq!(program.codes(), [FindingCode::SendQueueStuck]);
    program
        .ledger
        .send_refused(QP, "it is full", true, program.site);
    assert_eq!(program.codes(), []);
}

#[test]
fn a_send_queue_that_is_only_full() {
    let mut program = Program::new(ALL);
    for wr_id in 0..5 {
        program.post(wr_id, wr_id == 1, sge(0, 8));
    }
    program
        .ledger
        .send_refused(QP, "it is full", true, program.site);
    assert_eq!(program.codes(), []);
    program.post(5, true, sge(0, 8));
    program
        .ledger
        .send_refused(QP, "num_sge is at most 1, got 2", false, program.site);
    assert_eq!(program.codes(), [FindingCode::PostRefused]);
}

#[test]
fn more_completions_than_there_is_room() {
    let mut program = Program::new(ALL);
    for wr_id in 0..8 {
        program.receive(wr_id, sge(0, 8));
    }
    assert_eq!(program.codes(), []);
    program.complete(0, WcStatus::Success, true);
    program.post(1, false, sge(0, 8));
    program.post(2, true, sge(0, 8));
    assert_eq!(program.codes(), []);
    program.receive(9, sge(0, 8));
    program.receive(10, sge(0, 8));
    assert_eq!(program.codes(), [FindingCode::CqOverrunRisk]);
}

#[test]
fn receives_of_a_shared_queue_count_where_they_complete() {
    let mut program = Program::with(ALL, Transport::Reliable, Some(SRQ));
    for wr_id in 0..9 {
        let site = program.site;
        program
            .ledger
            .receive_posting(Kind::Srq, SRQ, wr_id, &[sge(0, 8)], site);
    }
    assert_eq!(program.codes(), [FindingCode::CqOverrunRisk]);
    for wr_id in 0..9 {
        program.complete(wr_id, WcStatus::Success, true);
    }
    program.ledger.deregistering(MR, program.site, |_| true);
    assert_eq!(program.codes(), [], "nothing is outstanding");
}

#[test]
fn a_mistake_in_a_loop_is_one_finding() {
    let mut program = Program::new(ALL);
    for _ in 0..100 {
        program.peer(Op::Send, Deny::NotReady, 0, 0);
    }
    let found = program.ledger.take();
    assert_eq!((found.len(), found[0].count), (1, 100));
    assert_eq!(found[0].code, FindingCode::ReceiveQueueStarved);
    program.peer(Op::Send, Deny::NotReady, 0, 0);
    assert!(!program.ledger.has_news());
    program.ledger.exit();
    let found = program.ledger.take();
    let again = found
        .iter()
        .find(|it| it.code == FindingCode::ReceiveQueueStarved);
    assert_eq!(again.map(|it| (it.count, it.is_known)), Some((101, true)));
}

#[test]
fn what_peers_are_denied() {
    let mut program = Program::new(Rights::LOCAL_WRITE);
    program.peer(Op::Write, Deny::Access, ADDR, RKEY);
    assert_eq!(program.codes(), [FindingCode::MissingAccess]);
    program.peer(Op::Read, Deny::Access, ADDR, 0x999);
    assert_eq!(program.codes(), [FindingCode::UnknownKey]);
    program.ledger.qp_rights(QP, Rights::REMOTE_READ);
    program.peer(Op::Read, Deny::Request, ADDR, RKEY);
    assert_eq!(program.codes(), [], "it was something else");
    program.peer(Op::Write, Deny::Request, ADDR, RKEY);
    assert_eq!(program.codes(), [FindingCode::MissingAccess]);
    let mut program = Program::with(ALL, Transport::Datagram, None);
    program.receive(1, sge(0, 64));
    program.peer(Op::Send, Deny::TooLong, 0, 0);
    assert_eq!(program.codes(), [FindingCode::ReceiveTooSmall]);
    program.post(1, true, sge(0, 1025));
    assert_eq!(program.codes(), [FindingCode::UdTooLong]);
}

#[test]
fn what_is_left_at_the_end() {
    let mut program = Program::new(ALL);
    program.ledger.exit();
    let found = program.ledger.take();
    assert_eq!(found[0].code, FindingCode::LeftOpen);
    assert_eq!(found[0].object, "1 open device, 1 MR, 1 CQ, 1 QP");
    // Who begins to take down is to finish.
    let mut program = Program::new(ALL);
    program.ledger.qp_gone(QP);
    program.ledger.exit();
    assert_eq!(program.codes(), [FindingCode::LeakedObjects; 3]);
    // What a library keeps for itself is not the program's.
    let mut ledger = Ledger::default();
    ledger.device_opened(DEVICE, "hirail_lo", 1024, true, Site::default());
    ledger.made_internally(DEVICE, Kind::Pd, PD, "PD");
    ledger.exit();
    assert_eq!(ledger.take(), []);
}

#[test]
fn events_are_acknowledged() {
    let mut program = Program::new(ALL);
    let site = program.site;
    program.ledger.event_taken(Kind::Cq, CQ, site);
    program.ledger.event_taken(Kind::Cq, CQ, site);
    program.ledger.events_acknowledged(Kind::Cq, CQ, 1);
    program
        .ledger
        .waits_for_acknowledgement(Kind::Cq, CQ, 1, site);
    program.ledger.exit();
    let codes = program.codes();
    assert!(codes.contains(&FindingCode::UnackedEvents));
    assert!(codes.contains(&FindingCode::UnackedAtExit));
}
