//! Traces of each rule about regions, keys and windows, and the table against a naive model.

use core::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::error::{Object, VerbError};
use crate::host::{Fault, Region};
use hirail_wire::Qpn;

/// A host of one thread, whose regions log every call.
#[derive(Debug)]
struct OneThread;

impl Host for OneThread {
    type Region = Logged;
    type Lock<T: 'static> = RefCell<T>;
    type ReadMostly<T: 'static> = RefCell<T>;
}

/// A region that remembers what it was asked for; its number tells it from others.
#[derive(Clone, Default, Debug)]
struct Logged {
    number: u32,
    calls: Rc<RefCell<Vec<String>>>,
}

impl Logged {
    fn numbered(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    fn log(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }
}

impl Region for Logged {
    type Payload<'a> = &'a [u8];
    type Held = Vec<u8>;

    fn hold(payload: &[u8], held: &mut Vec<u8>) {
        held.clear();
        held.extend_from_slice(payload);
    }

    fn held(held: &Vec<u8>) -> &[u8] {
        held
    }

    fn write(&self, offset: u64, payload: &[u8]) -> Result<(), Fault> {
        self.log(format!("write {offset}+{}", payload.len()));
        Ok(())
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.log(format!("write_bytes {offset}+{}", bytes.len()));
        Ok(())
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.log(format!("read_bytes {offset}+{}", bytes.len()));
        Ok(())
    }

    fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, Fault> {
        self.log(format!("fetch_add {offset} {add}"));
        Ok(1)
    }

    fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.log(format!("compare_swap {offset} {compare} {swap}"));
        Ok(2)
    }

    fn store_word(&self, offset: u64, word: &[u8]) -> Result<(), Fault> {
        self.log(format!("store_word {offset} {word:?}"));
        Ok(())
    }

    fn flush(&self, offset: u64, len: u64, persistent: bool) -> Result<(), Fault> {
        self.log(format!("flush {offset}+{len} {persistent}"));
        Err(Fault)
    }
}

type Table = KeyTable<OneThread>;

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const QPN: Qpn = Qpn::new(0x11);
const OTHER_QPN: Qpn = Qpn::new(0x12);
const RW: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);
const BINDABLE: Access = RW.union(Access::MW_BIND);

fn table() -> Table {
    KeyTable::new(0x5ec2e7, 1 << 20)
}

/// 4096 bytes at 0x10000.
fn register(table: &mut Table, access: Access) -> Arc<Mr<OneThread>> {
    table
        .register(PD, 0x10000, 0x1000, access, Logged::default())
        .unwrap()
}

fn remote(table: &Table, rkey: Rkey, va: u64, len: u32, need: Access) -> Result<u64, Refusal> {
    remote_from(table, PD, QPN, rkey, va, len, need)
}

fn remote_from(
    table: &Table,
    pd: PdId,
    qpn: Qpn,
    rkey: Rkey,
    va: u64,
    len: u32,
    need: Access,
) -> Result<u64, Refusal> {
    table
        .check_remote(rkey, pd, qpn, va, len, need)
        .map(|slice| slice.offset())
        .map_err(|e| e.0)
}

fn local(table: &Table, lkey: Lkey, addr: u64, len: u32, need: Access) -> Result<u64, Refusal> {
    table
        .check_local(lkey, PD, addr, len, need)
        .map(|slice| slice.offset())
        .map_err(|e| e.0)
}

#[test]
fn access_must_lie_inside_the_region() {
    let mut table = table();
    let mr = register(&mut table, RW);
    for (va, len, expected) in [
        (0x10000, 0x1000, Ok(0)),
        (0x10000, 1, Ok(0)),
        (0x10fff, 1, Ok(0xfff)),
        (0x11000, 0, Ok(0x1000)),
        (0xffff, 1, Err(Refusal::OutOfRange)),
        (0xffff, 2, Err(Refusal::OutOfRange)),
        (0x10000, 0x1001, Err(Refusal::OutOfRange)),
        (0x10fff, 2, Err(Refusal::OutOfRange)),
        (0x11000, 1, Err(Refusal::OutOfRange)),
        (0x11001, 0, Err(Refusal::OutOfRange)),
        (0, u32::MAX, Err(Refusal::OutOfRange)),
        (u64::MAX, 1, Err(Refusal::OutOfRange)),
        (u64::MAX, u32::MAX, Err(Refusal::OutOfRange)),
    ] {
        assert_eq!(
            remote(&table, mr.rkey(), va, len, Access::REMOTE_READ),
            expected,
            "{va:#x}"
        );
        assert_eq!(
            local(&table, mr.lkey(), va, len, Access::LOCAL_WRITE),
            expected,
            "{va:#x}"
        );
    }
}

#[test]
fn access_needs_the_right_and_the_domain() {
    let mut table = table();
    let readable = register(&mut table, Access::REMOTE_READ).rkey();
    let bare = register(&mut table, Access::NONE);

    assert_eq!(
        remote(&table, readable, 0x10000, 8, Access::REMOTE_READ),
        Ok(0)
    );
    let write = remote(&table, readable, 0x10000, 8, Access::REMOTE_WRITE);
    assert_eq!(write, Err(Refusal::MissingRight));
    let read_and_write = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let both = remote(&table, readable, 0x10000, 8, read_and_write);
    assert_eq!(
        both,
        Err(Refusal::MissingRight),
        "all wanted rights are needed"
    );
    let foreign = remote_from(
        &table,
        OTHER_PD,
        QPN,
        readable,
        0x10000,
        8,
        Access::REMOTE_READ,
    );
    assert_eq!(foreign, Err(Refusal::ForeignPd));

    assert_eq!(
        local(&table, bare.lkey(), 0x10000, 8, Access::NONE),
        Ok(0),
        "reading is free"
    );
    let scatter = local(&table, bare.lkey(), 0x10000, 8, Access::LOCAL_WRITE);
    assert_eq!(scatter, Err(Refusal::MissingRight));
    let foreign = table.check_local(bare.lkey(), OTHER_PD, 0x10000, 8, Access::NONE);
    assert_eq!(foreign.unwrap_err(), LocalProtection(Refusal::ForeignPd));
}

#[test]
fn a_key_is_its_index_and_its_variant() {
    let mut table = table();
    let rkey = register(&mut table, RW).rkey();
    for bit in 0..32 {
        let other = Rkey::new(rkey.value() ^ 1 << bit);
        assert_eq!(
            remote(&table, other, 0x10000, 1, Access::REMOTE_READ),
            Err(Refusal::UnknownKey),
            "bit {bit}"
        );
    }
}

#[test]
fn impossible_registrations_are_refused() {
    let mut table = table();
    let mut refused = |iova, length, access| {
        table
            .register(PD, iova, length, access, Logged::default())
            .err()
    };
    for right in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert_eq!(
            refused(0, 1, right),
            Some(VerbError::NeedsLocalWrite { got: right })
        );
        assert_eq!(refused(0, 1, right | Access::LOCAL_WRITE), None);
    }
    let empty = VerbError::TooSmall {
        what: "length",
        min: 1,
        got: 0,
    };
    assert_eq!(refused(0x1000, 0, RW), Some(empty));
    assert_eq!(refused(0x1000, 0, RW | Access::ZERO_BASED), None);
    let (iova, length) = (u64::MAX - 0xfff, 0x1000);
    assert_eq!(
        refused(iova, length, RW),
        Some(VerbError::AddressWraps { iova, length })
    );
    assert_eq!(refused(iova, length - 1, RW), None);
    assert_eq!(
        refused(iova, length, RW | Access::ZERO_BASED),
        None,
        "the iova does not count"
    );
    assert_eq!(refused(0, u64::MAX, RW), None, "all of the address space");
}

#[test]
fn zero_based_regions_start_at_zero() {
    let mut table = table();
    let mr = register(&mut table, RW | Access::ZERO_BASED);
    assert_eq!((mr.iova(), mr.length()), (0, 0x1000));
    assert_eq!(
        remote(&table, mr.rkey(), 0, 0x1000, Access::REMOTE_READ),
        Ok(0)
    );
    assert_eq!(
        remote(&table, mr.rkey(), 0x10000, 1, Access::REMOTE_READ),
        Err(Refusal::OutOfRange)
    );
}

#[test]
fn a_deregistered_key_opens_nothing() {
    let mut table = table();
    let mr = register(&mut table, RW);
    let (lkey, rkey) = (mr.lkey(), mr.rkey());
    assert_eq!(table.deregister(lkey).unwrap().lkey(), lkey);
    assert_eq!(
        local(&table, lkey, 0x10000, 1, Access::NONE),
        Err(Refusal::UnknownKey)
    );
    assert_eq!(
        remote(&table, rkey, 0x10000, 1, Access::REMOTE_READ),
        Err(Refusal::UnknownKey)
    );
    let absent = VerbError::NotFound {
        object: Object::Mr,
        id: lkey.value(),
    };
    assert_eq!(table.deregister(lkey).unwrap_err(), absent);
    assert!(table.is_empty());
}

#[test]
fn the_memory_comes_back_after_its_last_user() {
    let mut table = table();
    let lkey = table
        .register(PD, 0, 8, RW, Logged::numbered(7))
        .unwrap()
        .lkey();
    let slice = table.check_local(lkey, PD, 0, 8, Access::NONE).unwrap();
    let part = slice.sub(4, 4);
    let mr = table.deregister(lkey).unwrap();
    let mr = mr.try_into_region().unwrap_err();
    drop(slice);
    let mr = mr.try_into_region().unwrap_err();
    drop(part);
    assert_eq!(mr.try_into_region().unwrap().number, 7);
}

#[test]
fn reregistering_rights_and_domain_keeps_the_key() {
    let mut table = table();
    let mr = register(&mut table, RW);
    let change = |pd, access| Reregister {
        pd,
        access,
        translation: None,
    };

    let same = table
        .reregister(mr.lkey(), change(None, Some(Access::REMOTE_READ)))
        .unwrap();
    assert!(Arc::ptr_eq(&same.mr, &mr) && same.replaced.is_none());
    assert_eq!(
        remote(&table, mr.rkey(), 0x10000, 1, Access::REMOTE_WRITE),
        Err(Refusal::MissingRight)
    );
    assert_eq!(
        remote(&table, mr.rkey(), 0x10000, 1, Access::REMOTE_READ),
        Ok(0)
    );

    let _ = table
        .reregister(mr.lkey(), change(Some(OTHER_PD), None))
        .unwrap();
    assert_eq!(
        remote(&table, mr.rkey(), 0x10000, 1, Access::REMOTE_READ),
        Err(Refusal::ForeignPd)
    );
    assert_eq!((table.users_of(PD), table.users_of(OTHER_PD)), (0, 1));

    let bad = table.reregister(mr.lkey(), change(Some(PD), Some(Access::REMOTE_WRITE)));
    assert_eq!(
        bad.unwrap_err(),
        VerbError::NeedsLocalWrite {
            got: Access::REMOTE_WRITE
        }
    );
    assert_eq!(mr.pd(), OTHER_PD, "a refused change changes nothing");

    let rebase = table.reregister(mr.lkey(), change(None, Some(Access::ZERO_BASED)));
    assert_eq!(rebase.unwrap_err(), VerbError::RebaseNeedsTranslation);
}

#[test]
fn reregistering_other_memory_changes_the_key() {
    let mut table = table();
    let old = table
        .register(PD, 0x10000, 0x1000, RW, Logged::numbered(1))
        .unwrap();
    let under_way = table
        .check_local(old.lkey(), PD, 0x10000, 8, Access::LOCAL_WRITE)
        .unwrap();
    let translation = |length| Reregister {
        pd: None,
        access: None,
        translation: Some((0x20000, length, Logged::numbered(2))),
    };

    let empty = table.reregister(old.lkey(), translation(0)).unwrap_err();
    assert_eq!(
        empty,
        VerbError::TooSmall {
            what: "length",
            min: 1,
            got: 0
        }
    );
    assert_eq!(
        remote(&table, old.rkey(), 0x10000, 1, Access::REMOTE_READ),
        Ok(0)
    );

    let Reregistered { mr, replaced } = table.reregister(old.lkey(), translation(16)).unwrap();
    assert_eq!(
        remote(&table, old.rkey(), 0x10000, 1, Access::REMOTE_READ),
        Err(Refusal::UnknownKey)
    );
    assert_eq!(
        remote(&table, mr.rkey(), 0x20000, 16, Access::REMOTE_READ),
        Ok(0)
    );
    assert_eq!((mr.pd(), mr.access(), mr.region().number), (PD, RW, 2));

    let replaced = replaced.unwrap();
    drop(old);
    let replaced = replaced.try_into_region().unwrap_err();
    assert_eq!(
        under_way.region().number,
        1,
        "it finishes in the old memory"
    );
    drop(under_way);
    assert_eq!(replaced.try_into_region().unwrap().number, 1);
}

#[test]
fn a_full_table_is_exhausted_until_something_goes() {
    let mut table = Table::new(1, 2);
    let first = register(&mut table, RW);
    let window = table.alloc_mw(PD, MwType::Type1).unwrap();
    let full = |object| VerbError::Exhausted { object, limit: 2 };
    let refused = table.register(PD, 0, 1, RW, Logged::default()).unwrap_err();
    assert_eq!(refused, full(Object::Mr));
    assert_eq!(table.alloc_mw(PD, MwType::Type2), Err(full(Object::Mw)));
    table.deregister(first.lkey()).unwrap();
    let second = table.alloc_mw(PD, MwType::Type2).unwrap();
    table.dealloc_mw(window).unwrap();
    table.dealloc_mw(second).unwrap();
    assert_eq!((table.len(), table.windows.len()), (0, 0));
}

/// Whoever registers and deregisters in a loop never sees a key again, and the table stays small.
#[test]
fn churn_uses_fresh_keys_and_few_slots() {
    for capacity in [1, 2, 1 << 22] {
        let mut table = Table::new(3, capacity);
        let mut seen = BTreeSet::new();
        for turn in 0..50_000 {
            let key = if turn % 16 == 0 {
                let window = table.alloc_mw(PD, MwType::Type2).unwrap();
                table.dealloc_mw(window).unwrap();
                window.value()
            } else {
                let lkey = register(&mut table, RW).lkey();
                table.deregister(lkey).unwrap();
                lkey.value()
            };
            assert!(
                seen.insert(key),
                "key {key:#x} came back in turn {turn} of {capacity}"
            );
        }
        assert!(table.slots.len() <= 5000);
    }
}

/// The bytes of a slice are found in its region, with every method.
#[test]
fn a_slice_maps_to_its_region() {
    let mut table = table();
    let region = Logged::default();
    let lkey = table
        .register(PD, 0x1000, 256, RW, region.clone())
        .unwrap()
        .lkey();
    let slice = table
        .check_local(lkey, PD, 0x1040, 64, Access::LOCAL_WRITE)
        .unwrap();
    slice.write(1, &[0; 3]).unwrap();
    slice.write_bytes(0, &[0; 40]).unwrap();
    slice.read_bytes(62, &mut [0; 2]).unwrap();
    assert_eq!(slice.fetch_add(56, 5), Ok(1));
    assert_eq!(slice.compare_swap(8, 6, 7), Ok(2));
    slice.store_word(0, &[1; 8]).unwrap();
    assert_eq!(slice.sub(16, 16).flush(true), Err(Fault));
    assert_eq!(slice.flush_region(false), Err(Fault));
    let expected = [
        "write 65+3",
        "write_bytes 64+40",
        "read_bytes 126+2",
        "fetch_add 120 5",
        "compare_swap 72 6 7",
        "store_word 64 [1, 1, 1, 1, 1, 1, 1, 1]",
        "flush 80+16 true",
        "flush 0+256 false",
    ];
    assert_eq!(*region.calls.borrow(), expected);
}

#[test]
fn a_slice_does_not_reach_beyond_itself() {
    let mut table = table();
    let mr = table.register(PD, 0, 256, RW, Logged::default()).unwrap();
    let slice = table
        .check_local(mr.lkey(), PD, 64, 64, Access::LOCAL_WRITE)
        .unwrap();
    let beyond: [&dyn Fn(); 7] = [
        &|| _ = slice.write(60, &[0; 5]),
        &|| _ = slice.write_bytes(64, &[0]),
        &|| _ = slice.read_bytes(u32::MAX, &mut [0; 8]),
        &|| _ = slice.fetch_add(57, 1),
        &|| _ = slice.compare_swap(64, 0, 0),
        &|| _ = slice.store_word(57, &[0; 8]),
        &|| _ = slice.sub(1, 64),
    ];
    for access in beyond {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(access));
        assert!(caught.is_err());
    }
    assert!(mr.region().calls.borrow().is_empty());
    assert!(slice.sub(64, 0).is_empty());
}

/// Binds `window` to all of `region` with `access`.
fn whole(window: Rkey, variant: u8, region: &Mr<OneThread>, access: Access) -> BindMw {
    BindMw {
        window,
        new_key: Rkey::new(variant.into()),
        region: region.lkey(),
        addr: region.iova(),
        length: region.length(),
        access,
    }
}

#[test]
fn a_type_1_window_serves_its_whole_domain() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let window = table.alloc_mw(PD, MwType::Type1).unwrap();
    assert_eq!(
        remote(&table, window, 0x10000, 1, Access::REMOTE_READ),
        Err(Refusal::UnknownKey),
        "not bound yet"
    );
    let bind = BindMw {
        addr: 0x10100,
        length: 0x100,
        ..whole(
            window,
            window.variant().wrapping_add(1),
            &mr,
            Access::REMOTE_READ,
        )
    };
    let rkey = table.bind_mw(&bind, PD, QPN).unwrap();
    assert_eq!(rkey.index(), window.index());
    assert_eq!(table.mw_rkey(window), Some(rkey));

    for qpn in [QPN, OTHER_QPN] {
        let read = remote_from(&table, PD, qpn, rkey, 0x10110, 8, Access::REMOTE_READ);
        assert_eq!(read, Ok(0x110), "the offset counts in the region");
    }
    let foreign = remote_from(&table, OTHER_PD, QPN, rkey, 0x10110, 8, Access::REMOTE_READ);
    assert_eq!(foreign, Err(Refusal::ForeignPd));
    let write = remote(&table, rkey, 0x10110, 8, Access::REMOTE_WRITE);
    assert_eq!(
        write,
        Err(Refusal::MissingRight),
        "the region's rights are not the window's"
    );
    for va in [0x100f9, 0x101f9] {
        let outside = remote(&table, rkey, va, 8, Access::REMOTE_READ);
        assert_eq!(outside, Err(Refusal::OutOfRange));
    }
    assert_eq!(
        remote(&table, window, 0x10110, 8, Access::REMOTE_READ),
        Err(Refusal::UnknownKey)
    );
    assert_eq!(
        local(&table, Lkey::new(rkey.value()), 0x10110, 8, Access::NONE),
        Err(Refusal::UnknownKey),
        "windows are for peers"
    );
}

#[test]
fn a_type_1_window_is_rebound_and_unbound_at_will() {
    let mut table = table();
    let (one, two) = (
        register(&mut table, BINDABLE),
        register(&mut table, BINDABLE),
    );
    let window = table.alloc_mw(PD, MwType::Type1).unwrap();
    let first = table
        .bind_mw(&whole(window, 1, &one, Access::REMOTE_READ), PD, QPN)
        .unwrap();
    let second = table
        .bind_mw(&whole(window, 2, &two, Access::REMOTE_READ), PD, OTHER_QPN)
        .unwrap();
    let read = |table: &Table, rkey| remote(table, rkey, 0x10000, 1, Access::REMOTE_READ);
    assert_eq!(
        read(&table, first),
        Err(Refusal::UnknownKey),
        "the old key dies"
    );
    assert_eq!(read(&table, second), Ok(0));
    table.deregister(one.lkey()).unwrap();

    let none = BindMw {
        length: 0,
        ..whole(window, 3, &one, Access::NONE)
    };
    let third = table.bind_mw(&none, PD, QPN).unwrap();
    assert_eq!(read(&table, second), Err(Refusal::UnknownKey));
    assert_eq!(read(&table, third), Err(Refusal::UnknownKey));
    table.deregister(two.lkey()).unwrap();
}

#[test]
fn a_type_2_window_belongs_to_the_queue_pair_that_bound_it() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let window = table.alloc_mw(PD, MwType::Type2).unwrap();
    let rkey = table
        .bind_mw(&whole(window, 0xab, &mr, Access::REMOTE_READ), PD, QPN)
        .unwrap();
    assert_eq!((rkey.index(), rkey.variant()), (window.index(), 0xab));
    let read =
        |table: &Table, pd, qpn| remote_from(table, pd, qpn, rkey, 0x10000, 1, Access::REMOTE_READ);
    assert_eq!(read(&table, PD, QPN), Ok(0));
    assert_eq!(read(&table, PD, OTHER_QPN), Err(Refusal::ForeignQp));
    assert_eq!(read(&table, OTHER_PD, QPN), Err(Refusal::ForeignPd));

    let rebind = whole(window, 0xac, &mr, Access::REMOTE_READ);
    assert_eq!(
        table.bind_mw(&rebind, PD, QPN),
        Err(BindRefused::StillBound)
    );
    assert_eq!(
        read(&table, PD, QPN),
        Ok(0),
        "a refused bind changes nothing"
    );

    let foreign = table.invalidate_local(rkey, PD, OTHER_QPN);
    assert_eq!(foreign, Err(InvalidateRefused::ForeignQp));
    let foreign = table.invalidate_local(rkey, OTHER_PD, QPN);
    assert_eq!(foreign, Err(InvalidateRefused::ForeignPd));
    let stale = table.invalidate_local(Rkey::new(rkey.value() ^ 1), PD, QPN);
    assert_eq!(stale, Err(InvalidateRefused::UnknownKey));

    assert_eq!(table.invalidate_local(rkey, PD, QPN), Ok(()));
    assert_eq!(read(&table, PD, QPN), Err(Refusal::UnknownKey));
    assert_eq!(
        table.invalidate_local(rkey, PD, QPN),
        Ok(()),
        "again changes nothing"
    );
    assert_eq!(table.bind_mw(&rebind, PD, OTHER_QPN), Ok(rebind.rkey()));
}

#[test]
fn peers_invalidate_only_what_is_bound_to_their_queue_pair() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let one = table.alloc_mw(PD, MwType::Type1).unwrap();
    let two = table.alloc_mw(PD, MwType::Type2).unwrap();
    let one = table
        .bind_mw(&whole(one, 1, &mr, Access::REMOTE_READ), PD, QPN)
        .unwrap();

    let mut invalidate = |key, pd, qpn| table.invalidate_remote(key, pd, qpn);
    assert_eq!(
        invalidate(mr.rkey(), PD, QPN),
        Err(InvalidateRefused::NotType2)
    );
    assert_eq!(invalidate(one, PD, QPN), Err(InvalidateRefused::NotType2));
    assert_eq!(invalidate(two, PD, QPN), Err(InvalidateRefused::NotBound));

    let two = table
        .bind_mw(&whole(two, 1, &mr, Access::REMOTE_READ), PD, QPN)
        .unwrap();
    let mut invalidate = |key, pd, qpn| table.invalidate_remote(key, pd, qpn);
    assert_eq!(
        invalidate(two, OTHER_PD, QPN),
        Err(InvalidateRefused::ForeignPd)
    );
    assert_eq!(
        invalidate(two, PD, OTHER_QPN),
        Err(InvalidateRefused::ForeignQp)
    );
    assert_eq!(invalidate(two, PD, QPN), Ok(()));
    assert_eq!(invalidate(two, PD, QPN), Err(InvalidateRefused::NotBound));
}

#[test]
fn binds_are_checked() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let read_only = register(&mut table, Access::MW_BIND);
    let unbindable = register(&mut table, RW);
    let zero_based = register(&mut table, BINDABLE | Access::ZERO_BASED);
    let foreign = table
        .register(OTHER_PD, 0, 8, BINDABLE, Logged::default())
        .unwrap();
    let read = Access::REMOTE_READ;
    for kind in [MwType::Type1, MwType::Type2] {
        let window = table.alloc_mw(PD, kind).unwrap();
        let mut refusal = |bind: BindMw| table.bind_mw(&bind, PD, QPN).err();
        let good = whole(window, 9, &mr, read);

        let absent = BindMw {
            window: Rkey::from_parts(window.index() ^ 1, 0),
            ..good
        };
        assert_eq!(refusal(absent), Some(BindRefused::UnknownWindow));
        let region = BindMw {
            window: mr.rkey(),
            ..good
        };
        assert_eq!(refusal(region), Some(BindRefused::UnknownWindow));
        let absent = BindMw {
            region: Lkey::new(mr.lkey().value() ^ 1),
            ..good
        };
        assert_eq!(refusal(absent), Some(BindRefused::UnknownRegion));
        let itself = BindMw {
            region: Lkey::new(window.value()),
            ..good
        };
        assert_eq!(refusal(itself), Some(BindRefused::UnknownRegion));
        assert_eq!(
            refusal(whole(window, 9, &foreign, read)),
            Some(BindRefused::ForeignPd)
        );

        assert_eq!(
            refusal(whole(window, 9, &unbindable, read)),
            Some(BindRefused::MissingRight)
        );
        for right in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            let bind = whole(window, 9, &read_only, right);
            assert_eq!(
                refusal(bind),
                Some(BindRefused::MissingRight),
                "needs local write"
            );
        }
        let flush = whole(window, 9, &mr, Access::FLUSH_GLOBAL);
        assert_eq!(refusal(flush), Some(BindRefused::MissingRight));
        let nested = whole(window, 9, &mr, Access::MW_BIND);
        assert_eq!(refusal(nested), Some(BindRefused::ImpossibleRight));

        let front = BindMw {
            addr: mr.iova() - 1,
            ..good
        };
        assert_eq!(refusal(front), Some(BindRefused::OutOfRange));
        let rear = BindMw {
            addr: mr.iova() + 1,
            ..good
        };
        assert_eq!(refusal(rear), Some(BindRefused::OutOfRange));
        let wrap = BindMw {
            addr: u64::MAX,
            length: u64::MAX,
            ..good
        };
        assert_eq!(refusal(wrap), Some(BindRefused::OutOfRange));
        assert_eq!(
            refusal(whole(window, 9, &zero_based, read)),
            Some(BindRefused::ZeroBased)
        );

        assert_eq!(
            table.bind_mw(&good, OTHER_PD, QPN),
            Err(BindRefused::ForeignPd)
        );
        assert_eq!(table.bind_mw(&good, PD, QPN), Ok(good.rkey()));
        assert_eq!(
            table.invalidate_local(good.rkey(), PD, QPN).is_ok(),
            kind == MwType::Type2
        );
    }
}

/// A window may grant what the region does not grant to peers.
#[test]
fn a_window_grants_more_than_its_region() {
    let mut table = table();
    let mr = register(&mut table, Access::LOCAL_WRITE | Access::MW_BIND);
    let window = table.alloc_mw(PD, MwType::Type2).unwrap();
    let grant = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::LOCAL_WRITE;
    let rkey = table
        .bind_mw(&whole(window, 0, &mr, grant), PD, QPN)
        .unwrap();
    for need in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert_eq!(remote(&table, rkey, 0x10000, 8, need), Ok(0));
        assert_eq!(
            remote(&table, mr.rkey(), 0x10000, 8, need),
            Err(Refusal::MissingRight)
        );
    }
}

#[test]
fn only_type_2_windows_can_be_zero_based_and_none_can_be_bound_empty() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let zero_based = Access::REMOTE_READ | Access::ZERO_BASED;
    let one = table.alloc_mw(PD, MwType::Type1).unwrap();
    let refused = table.bind_mw(&whole(one, 1, &mr, zero_based), PD, QPN);
    assert_eq!(refused, Err(BindRefused::ZeroBased));

    let two = table.alloc_mw(PD, MwType::Type2).unwrap();
    let bind = BindMw {
        addr: 0x10100,
        length: 16,
        ..whole(two, 1, &mr, zero_based)
    };
    let empty = BindMw { length: 0, ..bind };
    assert_eq!(table.bind_mw(&empty, PD, QPN), Err(BindRefused::Empty));
    let rkey = table.bind_mw(&bind, PD, QPN).unwrap();
    assert_eq!(remote(&table, rkey, 15, 1, Access::REMOTE_READ), Ok(0x10f));
    assert_eq!(
        remote(&table, rkey, 16, 1, Access::REMOTE_READ),
        Err(Refusal::OutOfRange)
    );
    assert_eq!(
        remote(&table, rkey, 0x10100, 1, Access::REMOTE_READ),
        Err(Refusal::OutOfRange)
    );
}

#[test]
fn a_region_with_windows_stays() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let windows = [MwType::Type1, MwType::Type2].map(|kind| table.alloc_mw(PD, kind).unwrap());
    for window in windows {
        table
            .bind_mw(&whole(window, 1, &mr, Access::REMOTE_READ), PD, QPN)
            .unwrap();
    }
    let busy = |users| VerbError::Busy {
        object: Object::Mr,
        id: mr.lkey().value(),
        users,
    };
    assert_eq!(table.deregister(mr.lkey()).unwrap_err(), busy(2));
    let change = Reregister {
        pd: Some(OTHER_PD),
        access: None,
        translation: None,
    };
    assert_eq!(table.reregister(mr.lkey(), change).unwrap_err(), busy(2));
    assert_eq!(
        remote(&table, mr.rkey(), 0x10000, 1, Access::REMOTE_READ),
        Ok(0)
    );

    table.dealloc_mw(windows[0]).unwrap();
    assert_eq!(table.deregister(mr.lkey()).unwrap_err(), busy(1));
    table.dealloc_mw(windows[1]).unwrap();
    table.deregister(mr.lkey()).unwrap();
    let absent = VerbError::NotFound {
        object: Object::Mw,
        id: windows[1].value(),
    };
    assert_eq!(table.dealloc_mw(windows[1]), Err(absent));
}

#[test]
fn a_revoked_region_takes_its_windows_bindings_along() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let other = register(&mut table, BINDABLE);
    let mut bound = |kind, region: &Mr<OneThread>| {
        let window = table.alloc_mw(PD, kind).unwrap();
        table
            .bind_mw(&whole(window, 1, region, Access::REMOTE_READ), PD, QPN)
            .unwrap()
    };
    let revoked = [bound(MwType::Type1, &mr), bound(MwType::Type2, &mr)];
    let kept = bound(MwType::Type2, &other);
    table.revoke(mr.lkey()).unwrap();
    let read = |table: &_, key| remote(table, key, 0x10000, 1, Access::REMOTE_READ);
    for key in revoked {
        assert_eq!(read(&table, key), Err(Refusal::UnknownKey));
    }
    assert_eq!(read(&table, kept), Ok(0));
    assert_eq!(Arc::strong_count(&mr), 1);
    // The windows are whole: they can be bound again.
    for window in revoked {
        table
            .bind_mw(&whole(window, 2, &other, Access::REMOTE_READ), PD, QPN)
            .unwrap();
    }
    let absent = VerbError::NotFound {
        object: Object::Mr,
        id: mr.lkey().value(),
    };
    assert_eq!(table.revoke(mr.lkey()).unwrap_err(), absent);
}

#[test]
fn a_destroyed_queue_pair_takes_its_type_2_bindings_along() {
    let mut table = table();
    let mr = register(&mut table, BINDABLE);
    let mut bound = |kind, qpn| {
        let window = table.alloc_mw(PD, kind).unwrap();
        table
            .bind_mw(&whole(window, 1, &mr, Access::REMOTE_READ), PD, qpn)
            .unwrap()
    };
    let mine = [bound(MwType::Type2, QPN), bound(MwType::Type2, QPN)];
    let others = bound(MwType::Type2, OTHER_QPN);
    let shared = bound(MwType::Type1, QPN);
    table.release_qp_windows(QPN);
    let read = |key, qpn| remote_from(&table, PD, qpn, key, 0x10000, 1, Access::REMOTE_READ);
    for key in mine {
        assert_eq!(read(key, QPN), Err(Refusal::UnknownKey));
    }
    assert_eq!(read(others, OTHER_QPN), Ok(0));
    assert_eq!(read(shared, OTHER_QPN), Ok(0));
    table.release_qp_windows(OTHER_QPN);
    assert_eq!(table.bound_type2, 0);
    let busy = VerbError::Busy {
        object: Object::Mr,
        id: mr.lkey().value(),
        users: 1,
    };
    assert_eq!(table.deregister(mr.lkey()).unwrap_err(), busy);
}

// The model: a list of what exists, searched from the front, with wide arithmetic.

#[derive(Clone, Debug)]
enum Op {
    Register {
        pd: u32,
        iova: u64,
        length: u64,
        access: Access,
    },
    Reregister {
        at: Index,
        pd: Option<u32>,
        access: Option<Access>,
        to: Option<(u64, u64)>,
    },
    Deregister {
        at: Index,
    },
    AllocMw {
        pd: u32,
        kind: MwType,
    },
    DeallocMw {
        at: Index,
    },
    Bind {
        window: Index,
        region: Index,
        variant: u8,
        addr: u64,
        length: u64,
        access: Access,
        pd: u32,
        qpn: u32,
    },
    InvalidateLocal {
        key: Index,
        pd: u32,
        qpn: u32,
    },
    InvalidateRemote {
        key: Index,
        pd: u32,
        qpn: u32,
    },
    DestroyQp {
        qpn: u32,
    },
    Access {
        key: Index,
        flip: u32,
        pd: u32,
        qpn: u32,
        va: u64,
        len: u32,
        need: Access,
    },
}

fn addresses() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..64u64,
        2 => (0..64u64).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
    ]
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..32u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn rights() -> impl Strategy<Value = Access> {
    prop_oneof![
        3 => Just(BINDABLE),
        1 => Just(BINDABLE | Access::ZERO_BASED),
        2 => (0..1024u32).prop_map(Access::from_bits_truncate),
    ]
}

fn grants() -> impl Strategy<Value = Access> {
    prop_oneof![
        3 => Just(Access::REMOTE_READ),
        1 => Just(Access::REMOTE_WRITE | Access::ZERO_BASED),
        1 => rights(),
    ]
}

fn needs() -> impl Strategy<Value = Access> {
    prop::sample::select(vec![
        Access::NONE,
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::FLUSH_GLOBAL,
    ])
}

fn ops() -> impl Strategy<Value = Op> {
    let at = any::<Index>;
    let pd = || 0..2u32;
    let qpn = || 0..2u32;
    let flip = prop_oneof![6 => Just(0), 1 => (0..32u32).prop_map(|bit| 1 << bit)];
    prop_oneof![
        4 => (pd(), addresses(), lengths(), rights())
            .prop_map(|(pd, iova, length, access)| Op::Register { pd, iova, length, access }),
        1 => (
            at(),
            prop::option::of(pd()),
            prop::option::of(rights()),
            prop::option::of((addresses(), lengths())),
        )
            .prop_map(|(at, pd, access, to)| Op::Reregister { at, pd, access, to }),
        2 => at().prop_map(|at| Op::Deregister { at }),
        2 => (pd(), prop_oneof![Just(MwType::Type1), Just(MwType::Type2)])
            .prop_map(|(pd, kind)| Op::AllocMw { pd, kind }),
        1 => at().prop_map(|at| Op::DeallocMw { at }),
        6 => (at(), at(), any::<u8>(), addresses(), lengths(), grants(), pd(), qpn()).prop_map(
            |(window, region, variant, addr, length, access, pd, qpn)| Op::Bind {
                window, region, variant, addr, length, access, pd, qpn
            }
        ),
        1 => (at(), pd(), qpn()).prop_map(|(key, pd, qpn)| Op::InvalidateLocal { key, pd, qpn }),
        1 => (at(), pd(), qpn()).prop_map(|(key, pd, qpn)| Op::InvalidateRemote { key, pd, qpn }),
        1 => qpn().prop_map(|qpn| Op::DestroyQp { qpn }),
        12 => (at(), flip, pd(), qpn(), addresses(), 0..32u32, needs()).prop_map(
            |(key, flip, pd, qpn, va, len, need)| Op::Access { key, flip, pd, qpn, va, len, need }
        ),
    ]
}

#[derive(Clone, Copy, Debug)]
struct ModelRegion {
    key: u32,
    pd: u32,
    base: u64,
    length: u64,
    access: Access,
    number: u32,
}

#[derive(Clone, Copy, Debug)]
struct ModelWindow {
    key: u32,
    pd: u32,
    kind: MwType,
    bound: Option<ModelBound>,
}

#[derive(Clone, Copy, Debug)]
struct ModelBound {
    region: ModelRegion,
    qpn: u32,
    access: Access,
    base: u64,
    length: u64,
    offset: u64,
}

#[derive(Default)]
struct Model {
    regions: Vec<ModelRegion>,
    windows: Vec<ModelWindow>,
    /// Every key that ever opened something.
    keys: Vec<u32>,
    next_number: u32,
}

fn inside(base: u64, length: u64, va: u64, len: u64) -> bool {
    let (base, length, va, len) = (base as u128, length as u128, va as u128, len as u128);
    base <= va && va + len <= base + length
}

impl Model {
    /// Whether such a region is possible, and where it starts.
    fn base(iova: u64, length: u64, access: Access) -> Option<u64> {
        let base = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            iova
        };
        let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let possible = (length > 0 || access.contains(Access::ZERO_BASED))
            && (!writes || access.contains(Access::LOCAL_WRITE))
            && base as u128 + length as u128 <= u64::MAX as u128;
        possible.then_some(base)
    }

    fn windows_of(&self, key: u32) -> usize {
        let on = |mw: &&ModelWindow| mw.bound.is_some_and(|bound| bound.region.key == key);
        self.windows.iter().filter(on).count()
    }

    /// Number of the region that an access reaches, and the offset in it.
    fn access(
        &self,
        key: u32,
        pd: u32,
        qpn: Option<u32>,
        va: u64,
        len: u64,
        need: Access,
    ) -> Option<(u32, u64)> {
        if let Some(mr) = self.regions.iter().find(|mr| mr.key == key) {
            let good =
                mr.pd == pd && mr.access.contains(need) && inside(mr.base, mr.length, va, len);
            return good.then(|| (mr.number, va - mr.base));
        }
        let (qpn, mw) = (qpn?, self.windows.iter().find(|mw| mw.key == key)?);
        let bound = mw.bound?;
        let good = mw.pd == pd
            && (mw.kind == MwType::Type1 || bound.qpn == qpn)
            && bound.access.contains(need)
            && inside(bound.base, bound.length, va, len);
        good.then(|| (bound.region.number, bound.offset + (va - bound.base)))
    }

    fn invalidate(&mut self, key: u32, pd: u32, qpn: u32, is_local: bool) -> bool {
        let Some(mw) = self.windows.iter_mut().find(|mw| mw.key == key) else {
            return false;
        };
        if mw.kind != MwType::Type2 || mw.pd != pd {
            return false;
        }
        match mw.bound {
            None => is_local,
            Some(bound) if bound.qpn == qpn => {
                mw.bound = None;
                true
            }
            Some(_) => false,
        }
    }
}

/// One of `list`, if there is any.
fn pick<T: Copy>(list: &[T], at: &Index) -> Option<T> {
    (!list.is_empty()).then(|| list[at.index(list.len())])
}

fn step(table: &mut Table, model: &mut Model, op: Op) {
    match op {
        Op::Register {
            pd,
            iova,
            length,
            access,
        } => {
            let number = model.next_number;
            model.next_number += 1;
            let is_full = table.len() == table.capacity();
            let mr = table.register(PdId(pd), iova, length, access, Logged::numbered(number));
            let base = Model::base(iova, length, access).filter(|_| !is_full);
            assert_eq!(mr.is_ok(), base.is_some(), "{mr:?}");
            let (Ok(mr), Some(base)) = (mr, base) else {
                return;
            };
            let key = mr.lkey().value();
            assert!(!model.keys.contains(&key), "key {key:#x} came back");
            model.keys.push(key);
            model.regions.push(ModelRegion {
                key,
                pd,
                base,
                length,
                access,
                number,
            });
        }
        Op::Reregister { at, pd, access, to } => {
            let Some(old) = pick(&model.regions, &at) else {
                return;
            };
            let number = model.next_number;
            model.next_number += 1;
            let change = Reregister {
                pd: pd.map(PdId),
                access,
                translation: to.map(|(iova, length)| (iova, length, Logged::numbered(number))),
            };
            let done = table.reregister(Lkey::new(old.key), change);
            let mut new = ModelRegion {
                pd: pd.unwrap_or(old.pd),
                access: access.unwrap_or(old.access),
                ..old
            };
            let base = match to {
                Some((iova, length)) => {
                    (new.length, new.number) = (length, number);
                    Model::base(iova, length, new.access)
                }
                None => Model::base(old.base, old.length, new.access).filter(|_| {
                    let changed = new.access ^ old.access;
                    !changed.contains(Access::ZERO_BASED)
                }),
            };
            let expected = base.filter(|_| model.windows_of(old.key) == 0);
            assert_eq!(done.is_ok(), expected.is_some(), "{done:?}");
            let (Ok(done), Some(base)) = (done, expected) else {
                return;
            };
            assert_eq!(done.replaced.is_some(), to.is_some());
            (new.key, new.base) = (done.mr.lkey().value(), base);
            assert_eq!(new.key != old.key, to.is_some());
            if new.key != old.key {
                assert!(
                    !model.keys.contains(&new.key),
                    "key {:#x} came back",
                    new.key
                );
                model.keys.push(new.key);
            }
            let place = model
                .regions
                .iter_mut()
                .find(|mr| mr.key == old.key)
                .unwrap();
            *place = new;
        }
        Op::Deregister { at } => {
            let Some(key) = pick(&model.keys, &at) else {
                return;
            };
            let place = model.regions.iter().position(|mr| mr.key == key);
            let free = place.filter(|_| model.windows_of(key) == 0);
            assert_eq!(table.deregister(Lkey::new(key)).is_ok(), free.is_some());
            free.map(|place| model.regions.remove(place));
        }
        Op::AllocMw { pd, kind } => {
            let is_full = table.len() == table.capacity();
            let key = table.alloc_mw(PdId(pd), kind);
            assert_eq!(key.is_err(), is_full);
            let Ok(key) = key else { return };
            let index = |key| Rkey::new(key).index();
            assert!(!model.keys.iter().any(|&old| index(old) == key.index()));
            let key = key.value();
            model.keys.push(key);
            model.windows.push(ModelWindow {
                key,
                pd,
                kind,
                bound: None,
            });
        }
        Op::DeallocMw { at } => {
            let Some(key) = pick(&model.keys, &at).map(Rkey::new) else {
                return;
            };
            let named = |mw: &ModelWindow| Rkey::new(mw.key).index() == key.index();
            let place = model.windows.iter().position(named);
            assert_eq!(table.dealloc_mw(key).is_ok(), place.is_some());
            place.map(|place| model.windows.remove(place));
        }
        Op::Bind {
            window,
            region,
            variant,
            addr,
            length,
            access,
            pd,
            qpn,
        } => {
            let Some(window) = pick(&model.windows, &window) else {
                return;
            };
            let Some(region) = pick(&model.regions, &region) else {
                return;
            };
            // Most binds lie inside the region, or they would all fail.
            let (addr, length) = if addr % 4 > 0 {
                let skip = addr % 3;
                (
                    region.base.wrapping_add(skip),
                    region.length.saturating_sub(skip + length % 2),
                )
            } else {
                (addr, length)
            };
            let bind = BindMw {
                window: Rkey::new(window.key),
                new_key: Rkey::from_parts(0, variant),
                region: Lkey::new(region.key),
                addr,
                length,
                access,
            };
            let unbinds = window.kind == MwType::Type1 && length == 0;
            let zero_based = access.contains(Access::ZERO_BASED);
            let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
            let flushes = access & (Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT);
            let impossible = Access::MW_BIND | Access::ON_DEMAND | Access::HUGETLB;
            let good = window.pd == pd
                && (unbinds
                    || length > 0
                        && region.pd == pd
                        && inside(region.base, region.length, addr, length)
                        && region.access.contains(Access::MW_BIND | flushes)
                        && !region.access.contains(Access::ZERO_BASED)
                        && (!writes || region.access.contains(Access::LOCAL_WRITE))
                        && !access.intersects(impossible)
                        && (window.kind == MwType::Type2 && window.bound.is_none()
                            || window.kind == MwType::Type1 && !zero_based));
            let done = table.bind_mw(&bind, PdId(pd), Qpn::new(qpn));
            assert_eq!(
                done.is_ok(),
                good,
                "{done:?} {bind:?} {window:?} {region:?}"
            );
            let Ok(key) = done else { return };
            model.keys.push(key.value());
            let mw = model
                .windows
                .iter_mut()
                .find(|mw| mw.key == window.key)
                .unwrap();
            mw.key = key.value();
            let base = if zero_based { 0 } else { addr };
            let offset = addr.wrapping_sub(region.base);
            let bound = ModelBound {
                region,
                qpn,
                access,
                base,
                length,
                offset,
            };
            mw.bound = (!unbinds).then_some(bound);
        }
        Op::InvalidateLocal { key, pd, qpn } => {
            let Some(key) = pick(&model.keys, &key) else {
                return;
            };
            let done = table.invalidate_local(Rkey::new(key), PdId(pd), Qpn::new(qpn));
            assert_eq!(
                done.is_ok(),
                model.invalidate(key, pd, qpn, true),
                "{done:?}"
            );
        }
        Op::InvalidateRemote { key, pd, qpn } => {
            let Some(key) = pick(&model.keys, &key) else {
                return;
            };
            let done = table.invalidate_remote(Rkey::new(key), PdId(pd), Qpn::new(qpn));
            assert_eq!(
                done.is_ok(),
                model.invalidate(key, pd, qpn, false),
                "{done:?}"
            );
        }
        Op::DestroyQp { qpn } => {
            table.release_qp_windows(Qpn::new(qpn));
            for mw in &mut model.windows {
                if mw.kind == MwType::Type2 && mw.bound.is_some_and(|bound| bound.qpn == qpn) {
                    mw.bound = None;
                }
            }
        }
        Op::Access {
            key,
            flip,
            pd,
            qpn,
            va,
            len,
            need,
        } => {
            let Some(key) = pick(&model.keys, &key).map(|key| key ^ flip) else {
                return;
            };
            check_access(table, model, key, pd, qpn, va, len, need);
        }
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "everything that an access consists of"
)]
fn check_access(
    table: &Table,
    model: &Model,
    key: u32,
    pd: u32,
    qpn: u32,
    va: u64,
    len: u32,
    need: Access,
) {
    let place = |slice: Slice<OneThread>| {
        assert_eq!(slice.len(), len);
        (slice.region().number, slice.offset())
    };
    let remote = table.check_remote(Rkey::new(key), PdId(pd), Qpn::new(qpn), va, len, need);
    assert_eq!(
        remote.ok().map(place),
        model.access(key, pd, Some(qpn), va, len.into(), need)
    );
    let local = table.check_local(Lkey::new(key), PdId(pd), va, len, need);
    assert_eq!(
        local.ok().map(place),
        model.access(key, pd, None, va, len.into(), need)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// After any sequence of verbs the table and the model agree on every access with every key
    /// that ever existed, so no stale key passes; and no registration gets a key that was used.
    #[test]
    fn table_agrees_with_a_list(
        secret: u128,
        capacity in 1..12u32,
        ops in prop::collection::vec(ops(), 1..80),
    ) {
        let (mut table, mut model) = (Table::new(secret, capacity), Model::default());
        for op in ops {
            step(&mut table, &mut model, op);
            assert_eq!(table.len() as usize, model.regions.len() + model.windows.len());
        }
        for pd in 0..2 {
            let users = model.regions.iter().filter(|mr| mr.pd == pd).count()
                + model.windows.iter().filter(|mw| mw.pd == pd).count();
            assert_eq!(table.users_of(PdId(pd)) as usize, users);
        }
        for &key in &model.keys {
            // An access that suits the region which the key may name.
            let live = model.regions.iter().find(|mr| mr.key == key);
            let va = live.map_or(0, |mr| mr.base);
            for (pd, qpn) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                check_access(&table, &model, key, pd, qpn, va, 1, Access::NONE);
                check_access(&table, &model, key, pd, qpn, va, 1, Access::REMOTE_READ);
            }
        }
    }
}
