//! Which calls take the lock that all queue pairs share.

use std::any::type_name;
use std::cell::{Cell, RefCell, RefMut};

use hirail_rnic::host::{Host, Lock};
use hirail_rnic::qp::QpInit;
use hirail_rnic::qp::attr::{AttrMask, QpAttr};
use hirail_rnic::{Device, DeviceConfig, Instant};
use hirail_vocab::{QpState, QpType};
use testkit::SingleHost;

thread_local! {
    /// How often the schedule's lock was taken.
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

struct Counted<T>(RefCell<T>);

impl<T> Lock<T> for Counted<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    fn lock(&self) -> RefMut<'_, T> {
        if type_name::<T>().starts_with("hirail_rnic::schedule::Schedule<") {
            TAKEN.set(TAKEN.get() + 1);
        }
        self.0.borrow_mut()
    }
}

enum OneThread {}

impl Host for OneThread {
    type Region = <SingleHost as Host>::Region;
    type Lock<T: 'static> = Counted<T>;
    type ReadMostly<T: 'static> = RefCell<T>;
}

/// How often `call` takes it.
fn taken(call: impl FnOnce()) -> u32 {
    let before = TAKEN.get();
    call();
    TAKEN.get() - before
}

#[test]
fn posting_receives_and_asking_for_events_does_not_take_the_schedule() {
    let device = Device::<OneThread>::new(DeviceConfig::default());
    let pd = device.alloc_pd().expect("PD");
    let cq = device.create_cq(16).expect("CQ");
    let qp = device
        .create_qp(&QpInit {
            qp_type: QpType::Rc,
            pd,
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: None,
            xrcd: None,
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            sq_sig_all: false,
        })
        .expect("QP");
    let now = Instant::EPOCH;
    let to = |qp_state, mask| {
        let attr = QpAttr {
            qp_state,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | mask;
        device.modify_qp(now, &qp, &attr, mask).expect("changed");
    };
    to(
        QpState::Init,
        AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
    );
    let post = || {
        device.post_recv(now, &qp, 1, &[]).expect("room");
        assert!(device.poll_event().is_none());
    };
    assert_eq!(taken(post), 0);
    // Events are there once: the queue was looked at, and is not any more.
    device.raise(hirail_rnic::event::AsyncEvent::PortActive);
    assert!(taken(|| assert!(device.poll_event().is_some())) > 0);
    assert!(device.poll_event().is_none());
    assert_eq!(taken(post), 0);
}
