//! Addresses that come and go while a device is open.

mod namespace;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use hirail::{
    AckTimeout, AsyncEvent, ConnectOptions, Context, Cq, Error, Gid, Qp, QpEndpoint, RawOptions,
    SendWr, WcStatus,
};
use namespace::{in_namespace, ip};

const PATIENCE: Duration = Duration::from_secs(60);

fn gid(address: &str) -> Gid {
    Gid::from_ip(address.parse::<IpAddr>().expect("address"))
}

/// Where the GID is in the table.
fn place(context: &Context, gid: Gid) -> Option<u8> {
    let gids = context.gids();
    let place = gids.iter().position(|entry| entry.gid == gid)?;
    Some(place as u8)
}

/// Waits for the event, asleep or polling.
fn hear_of_change(context: &Context, polls: bool) {
    let end = Instant::now() + PATIENCE;
    while polls && Instant::now() < end {
        context.poll().expect("driven");
        if let Some(event) = context.async_event().expect("asked") {
            assert_eq!(event, AsyncEvent::GidChange);
            return;
        }
    }
    let event = context.wait_async_event(PATIENCE).expect("an event");
    assert_eq!(event, AsyncEvent::GidChange);
}

fn qp(context: &Context) -> (Qp, Cq) {
    let pd = context.alloc_pd().expect("PD");
    let cq = context.create_cq(16).expect("CQ");
    let qp = pd.qp(&cq, &cq).max_inline_data(64).build().expect("QP");
    (qp, cq)
}

/// Indices stay, places are used again, and a connection whose address is gone ends in the error
/// that the standard has for a peer that does not answer.
#[test]
fn the_table_follows_the_interface() {
    if in_namespace("the_table_follows_the_interface") {
        return;
    }
    ip("link set lo up");
    ip("link add near0 type veth peer name far0");
    for end in ["near0", "far0"] {
        // No addresses but those that the test gives.
        ip(&format!("link set {end} addrgenmode none"));
        ip(&format!("link set {end} up"));
    }
    for host in [1, 2] {
        ip(&format!("address add 192.0.2.{host}/24 dev near0"));
    }
    let context = Context::open_address("192.0.2.1".parse().expect("address")).expect("device");
    let [first, second, third] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(gid);
    let mut raw = Context::open_raw("near0", RawOptions::default()).ok();
    if raw.is_none() {
        println!("the raw link is left out: not permitted here");
    }
    let at = |context: &Context| [first, second, third].map(|gid| place(context, gid));
    assert_eq!(at(&context), [Some(0), Some(1), None]);
    let before = raw.as_ref().map(|raw| (at(raw), raw.gids()));

    let ends = [qp(&context), qp(&context)];
    let endpoints = ends.each_ref().map(|(qp, _)| qp.endpoint(1).expect("GID"));
    let options = ConnectOptions {
        timeout: AckTimeout::new(8),
        retry_cnt: 3,
        ..ConnectOptions::new(&context, 1)
    };
    let connect = |end: &Qp, to: &QpEndpoint| end.connect(to, &options).expect("connected");
    connect(&ends[0].0, &endpoints[1]);
    connect(&ends[1].0, &endpoints[0]);
    let receive = || ends[1].0.post_recv(1, &[]).expect("posted");
    let send = || {
        ends[0].0.post(&SendWr::send(1, &[])).expect("posted");
        ends[0].1.wait_polling(PATIENCE).expect("completion").status
    };
    receive();
    assert_eq!(send(), WcStatus::Success);

    ip("address del 192.0.2.2/24 dev near0");
    hear_of_change(&context, false);
    assert_eq!(at(&context), [Some(0), None, None]);
    let error = context.gid(1).expect_err("gone");
    assert!(matches!(error, Error::EmptyGid { index: 1 }), "{error}");
    let (lost, _cq) = qp(&context);
    let refused = lost.connect(&endpoints[0], &options);
    assert!(matches!(refused, Err(Error::Verb(_))), "{refused:?}");
    assert_eq!(send(), WcStatus::RetryExcErr);

    ip("address add 192.0.2.3/24 dev near0");
    hear_of_change(&context, true);
    assert_eq!(at(&context), [Some(0), None, Some(1)]);
    ip("address add 2001:db8::1/64 dev near0 nodad");
    hear_of_change(&context, true);
    assert_eq!(place(&context, gid("2001:db8::1")), Some(2));
    assert_eq!(at(&context), [Some(0), None, Some(1)]);

    let Some(raw) = raw.take() else { return };
    hear_of_change(&raw, false);
    let end = Instant::now() + PATIENCE;
    while place(&raw, gid("2001:db8::1")).is_none() && Instant::now() < end {
        raw.poll().expect("driven");
    }
    let (places, gids) = before.expect("as opened");
    assert_eq!(place(&raw, first), places[0]);
    assert_eq!(
        place(&raw, third),
        places[1],
        "the place of the one that went"
    );
    let now = raw.gids();
    for (old, new) in gids.iter().zip(&now) {
        assert!(old == new || old.gid == second, "{old:?} became {new:?}");
    }
}
