//! Memory of every kind: who owns it, what peers may do with it, and when that ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;

use hirail::{Access, Error, Mr, QpType, RemoteMemory, SendWr, WcStatus};

use crate::side::{ALL, Side, pair, pattern};

#[test]
fn atomics_of_the_application_are_shared_with_peers() {
    let (a, b) = pair(QpType::Rc);
    let words: Arc<[AtomicU64]> = (0..8).map(AtomicU64::new).collect();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let mr = b.pd.register_shared(Arc::clone(&words), access).unwrap();
    assert_eq!((mr.len(), mr.access()), (64, access));
    let before = [a.mr.slice(0..8)];
    a.carry_out(&SendWr::fetch_add(1, &before, mr.remote().offset(24), 100));
    assert_eq!(a.mr.load_u64(0), 3);
    assert_eq!(words[3].load(Ordering::Acquire), 103);
    words[3].store(9, Ordering::Release);
    assert_eq!(mr.load_u64(24), 9);
    // The region keeps them, and lets go of them.
    assert_eq!(Arc::strong_count(&words), 2);
    let remote = mr.remote();
    drop(mr);
    assert_eq!(Arc::strong_count(&words), 1);
    a.qp.post(&SendWr::fetch_add(2, &before, remote, 1))
        .unwrap();
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(words[0].load(Ordering::Acquire), 0);
}

#[test]
fn owners_of_all_kinds() {
    static WORDS: [AtomicU64; 4] = [const { AtomicU64::new(1) }; 4];
    let (_, b) = pair(QpType::Rc);
    let boxed: Box<[AtomicU8]> = (0..100).map(AtomicU8::new).collect();
    let regions: [Mr; 3] = [
        b.pd.register_shared(boxed, Access::REMOTE_READ).unwrap(),
        b.pd.register_shared(&WORDS, Access::REMOTE_READ).unwrap(),
        b.pd.register_shared(vec![const { AtomicU64::new(5) }].into_boxed_slice(), ALL)
            .unwrap(),
    ];
    assert_eq!(regions.each_ref().map(|mr| mr.len()), [100, 32, 8]);
    assert_eq!(regions.each_ref().map(|mr| mr.load_u8(0)), [0, 1, 5]);
}

#[test]
fn borrowed_memory_is_sent_from_and_received_into() {
    let (a, b) = pair(QpType::Rc);
    let message = pattern(10_000);
    let mut received = vec![0; 10_000];
    let lent = a.pd.lend(&message, Access::NONE, |from| {
        let lent = b.pd.lend_mut(&mut received, Access::LOCAL_WRITE, |into| {
            b.qp.post_recv(1, &[into.slice(..)]).unwrap();
            a.carry_out(&SendWr::send(1, &[from.slice(..)]));
            b.done();
            assert_eq!(into.load_u8(9999), message[9999]);
            into.slice(..)
        });
        // A name that outlives the loan is worth nothing.
        let stale = lent.unwrap();
        b.qp.post_recv(2, &[stale]).unwrap();
        a.qp.post(&SendWr::send(2, &[from.slice(..4)])).unwrap();
        assert_eq!(b.completion().status, WcStatus::LocProtErr);
        a.completion().status
    });
    assert_eq!(lent.unwrap(), WcStatus::RemOpErr);
    assert_eq!(received, message);
}

#[test]
fn memory_lent_without_mut_is_read_by_peers_only() {
    let (a, b) = pair(QpType::Rc);
    let words = *b"constant";
    let refused = b.pd.lend(&words, ALL, |_| unreachable!("it is not lent"));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "memory lent without mut can only be read, so it cannot have \
         Access(LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC)"
    );
    let lent = b.pd.lend(&words, Access::REMOTE_READ, |mr| {
        a.carry_out(&SendWr::read(1, &[a.mr.slice(..8)], mr.remote()));
        let wr = SendWr::write(2, &[], mr.remote()).with_inline(b"x");
        a.qp.post(&wr).unwrap();
        a.completion().status
    });
    assert_eq!(lent.unwrap(), WcStatus::RemAccessErr);
    assert_eq!(a.mr.to_vec(0, 8), words);
}

#[test]
fn a_loan_ends_with_a_panic_too() {
    let (a, b) = pair(QpType::Rc);
    let mut bytes = [0u8; 64];
    let mut remote = None;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _: Result<(), Error> = b.pd.lend_mut(&mut bytes, ALL, |mr| {
            remote = Some(mr.remote());
            panic!("on purpose");
        });
    }));
    assert!(caught.is_err());
    let wr = SendWr::write(1, &[], remote.unwrap()).with_inline(b"x");
    a.qp.post(&wr).unwrap();
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(bytes, [0; 64]);
}

fn may_write(a: &Side, to: RemoteMemory) -> bool {
    a.qp.post(&SendWr::write(1, &[], to).with_inline(b"x"))
        .unwrap();
    a.completion().status == WcStatus::Success
}

#[test]
fn rights_are_changed_under_the_same_keys() {
    let (a, b) = pair(QpType::Rc);
    let mut mr = b.pd.register(64, Access::REMOTE_READ).unwrap();
    let remote = mr.remote();
    mr.set_access(Access::LOCAL_WRITE | Access::REMOTE_WRITE)
        .unwrap();
    assert_eq!(mr.remote(), remote);
    assert!(may_write(&a, remote));
    let error = mr.set_access(Access::REMOTE_WRITE).unwrap_err();
    assert!(
        error.to_string().contains("also needs LOCAL_WRITE"),
        "{error}"
    );
    mr.set_access(Access::REMOTE_READ).unwrap();
    assert!(!may_write(&a, remote));
}

#[test]
fn a_region_moves_between_domains_of_its_device() {
    let (a, b) = pair(QpType::Rc);
    let other = b.context.alloc_pd().unwrap();
    let mut mr = other.register(64, ALL).unwrap();
    mr.set_pd(&b.pd).unwrap();
    assert!(may_write(&a, mr.remote()));
    // Nothing holds the first domain any more.
    drop(other);
    mr.set_pd(&b.context.alloc_pd().unwrap()).unwrap();
    assert!(!may_write(&a, mr.remote()));
    let error = mr.set_pd(&a.pd).unwrap_err().to_string();
    assert_eq!(
        error,
        "expected a PD of the device hirail_mem1, got one of hirail_mem0"
    );
}

#[test]
fn replaced_memory_has_other_keys() {
    let (a, b) = pair(QpType::Rc);
    let mut mr = b.pd.register(64, ALL).unwrap();
    let old = mr.remote();
    mr.replace(4096).unwrap();
    assert_ne!(mr.remote().rkey, old.rkey);
    assert_eq!(mr.len(), 4096);
    assert!(may_write(&a, mr.remote().offset(4095)));
    assert_eq!(mr.load_u8(4095), b'x');
    assert!(!may_write(&a, old));
}

#[test]
fn zero_based_regions_are_addressed_from_zero() {
    let (a, b) = pair(QpType::Rc);
    let mr = b.pd.register(64, ALL | Access::ZERO_BASED).unwrap();
    assert_eq!(mr.remote().addr, 0);
    assert!(may_write(&a, mr.remote().offset(10)));
    assert_eq!(mr.load_u8(10), b'x');
    // Local requests count from zero too.
    let to = a.mr.remote();
    b.carry_out(&SendWr::write(1, &[mr.slice(10..11)], to));
    assert_eq!(a.mr.load_u8(0), b'x');
}

#[test]
fn deregistering_waits_for_packets_and_no_longer() {
    // Peers write into regions that come and go; whatever is freed is overwritten by its new owner
    // at once, which would show a packet that came late.
    let (a, b) = pair(QpType::Rc);
    let region = b.pd.register(1 << 14, ALL).unwrap();
    let remote = region.remote();
    let writer = thread::spawn(move || {
        let mut written = 0;
        loop {
            let wrs = (0..8).map(|_| SendWr::write(1, &[], remote).with_inline(&[7; 64]));
            if a.qp.post_all(wrs).is_err() {
                return written;
            }
            for _ in 0..8 {
                match a.completion().status {
                    WcStatus::Success => written += 1,
                    WcStatus::RemAccessErr => return written,
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    while region.load_u8(63) != 7 {
        b.context.poll().unwrap();
    }
    drop(region);
    assert!(writer.join().unwrap() > 0);
}

#[test]
fn impossible_registrations_say_why() {
    let (_, b) = pair(QpType::Rc);
    let error = b.pd.register(0, ALL).unwrap_err();
    assert_eq!(error.to_string(), "length is at least 1, got 0");
    let error = b.pd.register(64, Access::REMOTE_ATOMIC).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Access(REMOTE_ATOMIC) also needs LOCAL_WRITE"
    );
    let error = b.pd.register(usize::MAX / 2, ALL).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

#[test]
fn raw_memory_is_reached_as_long_as_it_is_there() {
    let (a, b) = pair(QpType::Rc);
    let mut words = vec![0u64; 512];
    let addr = words.as_mut_ptr().cast::<u8>();
    // SAFETY: `words` is not touched while it is registered, and dropped after.
    let mr = unsafe { b.pd.register_raw(addr, 4096, ALL) }.unwrap();
    assert!(may_write(&a, mr.remote().offset(8)));
    assert_eq!(mr.load_u8(8), b'x');
    drop(mr);
    assert_eq!(words[1].to_ne_bytes()[0], b'x');
    // SAFETY: it is refused.
    let wrapped = unsafe { b.pd.register_raw(addr, usize::MAX, ALL) };
    let error = wrapped.unwrap_err().to_string();
    assert!(
        error.contains("pass the end of the address space"),
        "{error}"
    );
}
