//! The engine's objects allocate when they are first used and never again: what a packet touches
//! is there before it comes.

use std::cell::RefCell;

use allocation_counter::measure;
use hirail_rnic::cq::{Arm, Cq, Cqe};
use hirail_rnic::error::Queue;
use hirail_rnic::host::{Fault, Host, Region};
use hirail_rnic::mr::{Access, BindMw, KeyTable, MwType, PdId};
use hirail_rnic::recv_queue::RecvRing;
use hirail_rnic::srq::{HeldRecv, Srq, Taken};
use hirail_rnic::time::Instant;
use hirail_rnic::wr::Sge;
use hirail_vocab::{WcOpcode, WcStatus};
use hirail_wire::{Lkey, Qpn, Rkey};

/// Memory that swallows everything.
struct Sink;

impl Region for Sink {
    type Payload<'a> = &'a [u8];
    type Held = Vec<u8>;

    fn hold(payload: &[u8], held: &mut Vec<u8>) {
        held.clear();
        held.extend_from_slice(payload);
    }

    fn held(held: &Vec<u8>) -> &[u8] {
        held
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn write_bytes(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn read_bytes(&self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn fetch_add(&self, _: u64, _: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn compare_swap(&self, _: u64, _: u64, _: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn store_word(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn flush(&self, _: u64, _: u64, _: bool) -> Result<(), Fault> {
        Ok(())
    }
}

struct OneThread;

impl Host for OneThread {
    type Region = Sink;
    type Lock<T: 'static> = RefCell<T>;
    type ReadMostly<T: 'static> = RefCell<T>;
}

const PD: PdId = PdId(1);
const QPN: Qpn = Qpn::new(5);

/// Runs `first`, then `again` a thousand times; the latter must not allocate.
fn allocates_once(first: impl FnOnce(), mut again: impl FnMut()) {
    assert!(measure(first).count_total > 0, "the counter counts");
    let info = measure(|| (0..1000).for_each(|_| again()));
    assert_eq!(info.count_total, 0);
}

#[test]
fn completion_queue() {
    let cqe = Cqe::new(Instant::EPOCH, 1, QPN, WcStatus::Success, WcOpcode::Recv);
    let cq = RefCell::new(Cq::new(8));
    let fill_and_drain = || {
        let mut cq = cq.borrow_mut();
        cq.arm(Arm::Any);
        while cq.len() < 8 {
            assert!(!cq.push(cqe, Instant::EPOCH).overrun);
        }
        cq.pop();
        assert_eq!(cq.poll(usize::MAX, |_| ()), 7);
    };
    allocates_once(fill_and_drain, fill_and_drain);
}

#[test]
fn receive_ring() {
    let ring = RefCell::new(RecvRing::new(Queue::Receive, 8, 3));
    let fill_and_drain = || {
        let mut ring = ring.borrow_mut();
        while ring.available() > 0 {
            ring.push(1, &[Sge::default(); 3]).unwrap();
        }
        while ring.front().is_some() {
            ring.pop();
        }
    };
    allocates_once(fill_and_drain, fill_and_drain);
}

#[test]
fn shared_receive_queue() {
    let (srq, held) = (
        RefCell::new(Srq::new(PD, 8, 3, None)),
        RefCell::new(HeldRecv::new()),
    );
    let fill_and_drain = || {
        let mut srq = srq.borrow_mut();
        for num_sge in [0, 1, 2, 3, 3, 2, 1, 0] {
            srq.post(1, &[Sge::default(); 3][..num_sge]).unwrap();
        }
        while let Taken::Wqe { .. } = srq.take(&mut held.borrow_mut()) {}
    };
    allocates_once(fill_and_drain, fill_and_drain);
}

#[test]
fn checks_binds_and_invalidations() {
    let table = RefCell::new(KeyTable::<OneThread>::new(7, 1 << 16));
    let mut key = Lkey::new(0);
    let mut window = Rkey::new(0);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let setup = || {
        let mut table = table.borrow_mut();
        key = table.register(PD, 0, 4096, access, Sink).unwrap().lkey();
        window = table.alloc_mw(PD, MwType::Type2).unwrap();
    };
    assert!(measure(setup).count_total > 0, "the counter counts");
    let bind = BindMw {
        window,
        new_key: Rkey::new(9),
        region: key,
        addr: 0,
        length: 4096,
        access: Access::REMOTE_WRITE,
    };
    let info = measure(|| {
        for _ in 0..1000 {
            let mut table = table.borrow_mut();
            let local = table
                .check_local(key, PD, 0, 8, Access::LOCAL_WRITE)
                .unwrap();
            local.sub(0, 4).write(0, &[1; 4]).unwrap();
            let rkey = table.bind_mw(&bind, PD, QPN).unwrap();
            let remote = table
                .check_remote(rkey, PD, QPN, 8, 8, Access::REMOTE_WRITE)
                .unwrap();
            remote.store_word(0, &[1; 8]).unwrap();
            table.invalidate_remote(rkey, PD, QPN).unwrap();
        }
    });
    assert_eq!(info.count_total, 0);
}
