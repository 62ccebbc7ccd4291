//! Memory windows: bound, used, rebound and taken back.

use hirail::{Access, Mw, MwType, Qp, QpType, RemoteMemory, SendWr, WcOpcode, WcStatus};

use crate::side::{Side, connect_qps, pair};

/// Binds a part of the side's memory and waits for it.
fn bind(side: &Side, window: &Mw, access: Access) -> RemoteMemory {
    let remote = side.qp.bind(1, window, &side.mr, 128..256, access).unwrap();
    assert_eq!(side.done().opcode, WcOpcode::BindMw);
    remote
}

/// How a WRITE of one byte through a connection of its own ends.
fn write(a: &Side, b: &Side, to: RemoteMemory) -> WcStatus {
    let [own, other] = [a, b].map(connection);
    connect_qps((&a.context, &own), (&b.context, &other)).unwrap();
    own.post(&SendWr::write(1, &[], to).with_inline(b"x"))
        .unwrap();
    a.completion().status
}

fn connection(side: &Side) -> Qp {
    let builder = side.pd.qp(&side.cq, &side.cq).max_inline_data(64);
    builder.build().unwrap()
}

#[test]
fn a_window_of_type_1_serves_all_and_is_rebound_at_will() {
    let (a, b) = pair(QpType::Rc);
    let window = b.pd.alloc_mw(MwType::Type1).unwrap();
    let first = bind(&b, &window, Access::REMOTE_WRITE);
    assert_eq!((first.addr, first.len), (b.mr.remote().addr + 128, 128));
    assert_eq!(window.rkey(), first.rkey);
    assert_eq!(write(&a, &b, first.offset(127)), WcStatus::Success);
    assert_eq!(b.mr.load_u8(255), b'x');
    // It ends where it ends, whatever the region allows.
    assert_eq!(write(&a, &b, first.offset(128)), WcStatus::RemAccessErr);

    let second = bind(&b, &window, Access::REMOTE_READ);
    assert_eq!(first.rkey.index(), second.rkey.index());
    assert_eq!(write(&a, &b, first), WcStatus::RemAccessErr);
    assert_eq!(write(&a, &b, second), WcStatus::RemAccessErr);
    a.carry_out(&SendWr::read(1, &[a.mr.slice(..1)], second.offset(127)));
    assert_eq!(a.mr.load_u8(0), b'x');

    b.qp.unbind(2, &window).unwrap();
    b.done();
    let wr = SendWr::read(3, &[], second);
    a.carry_out(&wr);
    a.qp.post(&SendWr::read(4, &[a.mr.slice(..1)], second))
        .unwrap();
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
}

#[test]
fn a_window_of_type_2_belongs_to_one_connection() {
    let (a, b) = pair(QpType::Rc);
    let window = b.pd.alloc_mw(MwType::Type2).unwrap();
    let remote = bind(&b, &window, Access::REMOTE_WRITE | Access::ZERO_BASED);
    assert_eq!((remote.addr, remote.len), (0, 128));
    a.carry_out(&SendWr::write(1, &[], remote).with_inline(b"mine"));
    assert_eq!(b.mr.to_vec(128, 4), b"mine");
    assert_eq!(write(&a, &b, remote), WcStatus::RemAccessErr);

    b.qp.unbind(2, &window).unwrap();
    assert_eq!(b.done().opcode, WcOpcode::LocalInv);
    // Only then may it be bound again, under another key.
    let again = bind(&b, &window, Access::REMOTE_WRITE);
    assert_ne!(again.rkey, remote.rkey);
    a.carry_out(&SendWr::write(3, &[], again).with_inline(b"anew"));
    assert_eq!(b.mr.to_vec(128, 4), b"anew");
    b.qp.bind(4, &window, &b.mr, .., Access::REMOTE_WRITE)
        .unwrap();
    assert_eq!(b.completion().status, WcStatus::MwBindErr);
}

#[test]
fn a_region_that_goes_takes_bindings_along() {
    let (a, b) = pair(QpType::Rc);
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let mut bytes = [0; 256];
    let windows = [MwType::Type1, MwType::Type2].map(|kind| b.pd.alloc_mw(kind).unwrap());
    let lent = b.pd.lend_mut(&mut bytes, access, |mr| {
        windows.each_ref().map(|window| {
            let remote = b.qp.bind(1, window, mr, .., Access::REMOTE_WRITE).unwrap();
            b.done();
            a.carry_out(&SendWr::write(1, &[], remote).with_inline(b"x"));
            remote
        })
    });
    // The borrow is over although windows were bound, and they lead nowhere.
    assert_eq!(bytes[0], b'x');
    let remotes = lent.unwrap();
    assert_eq!(write(&a, &b, remotes[0]), WcStatus::RemAccessErr);
    a.qp.post(&SendWr::write(2, &[], remotes[1]).with_inline(b"y"))
        .unwrap();
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(bytes[0], b'x');
    // A region with bindings is not changed under them.
    let mut mr = b.pd.register(64, access).unwrap();
    let qp = connection(&b);
    connect_qps((&a.context, &connection(&a)), (&b.context, &qp)).unwrap();
    qp.bind(3, &windows[0], &mr, .., Access::REMOTE_WRITE)
        .unwrap();
    while b.completion().wr_id != 3 {}
    let busy = mr.set_access(Access::NONE).unwrap_err().to_string();
    assert!(busy.ends_with("is in use by 1 other object(s)"), "{busy}");
}

#[test]
fn a_window_that_goes_is_unbound() {
    let (a, b) = pair(QpType::Rc);
    let window = b.pd.alloc_mw(MwType::Type1).unwrap();
    let remote = bind(&b, &window, Access::REMOTE_WRITE);
    assert_eq!(write(&a, &b, remote), WcStatus::Success);
    drop(window);
    assert_eq!(write(&a, &b, remote), WcStatus::RemAccessErr);
}
