//! Who drives: whoever stops calling in leaves nothing undone.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hirail::{AckTimeout, ConnectOptions, Context, Gid, Qp, QpType, SendWr};

use crate::side::{KEY, PATIENCE};
use crate::udp::sides;

/// Connects without a timeout: what is not answered in the first place never is.
fn connect_for_good(a: (&Context, &Qp), b: (&Context, &Qp)) {
    for (from, to) in [(a, b), (b, a)] {
        let options = ConnectOptions {
            timeout: AckTimeout::new(0),
            ..ConnectOptions::new(from.0, 0)
        };
        from.1
            .connect(&to.1.endpoint(0).unwrap(), &options)
            .unwrap();
    }
}

/// The application polls while the progress thread sleeps, gets its message and never calls again:
/// the message is acknowledged all the same.
#[test]
fn who_takes_a_message_and_leaves() {
    let (a, b) = sides(QpType::Rc);
    connect_for_good((&a.context, &a.qp), (&b.context, &b.qp));
    for round in 0..200 {
        b.qp.post_recv(round, &[]).unwrap();
        // The progress threads go to sleep.
        thread::sleep(Duration::from_millis(2));
        thread::scope(|scope| {
            let receiver = scope.spawn(|| b.done().wr_id);
            thread::sleep(Duration::from_micros(50 + round * 10));
            a.qp.post(&SendWr::send(round, &[])).unwrap();
            assert_eq!(receiver.join().unwrap(), round);
        });
        assert_eq!(a.done().wr_id, round);
    }
}

/// One thread posts and sleeps while another joins and leaves a group, with the driver in hand: what
/// was posted meanwhile is sent.
#[test]
fn who_posts_while_another_has_the_driver() {
    let (a, b) = sides(QpType::Rc);
    let cq = a
        .context
        .create_cq_on(16, &a.context.create_channel().unwrap());
    let cq = cq.unwrap();
    let (own, other) = (a.pd.qp(&cq, &cq).build().unwrap(), &b.qp);
    connect_for_good((&a.context, &own), (&b.context, other));
    let member = a.pd.qp(&a.cq, &a.cq).qp_type(QpType::Ud).build().unwrap();
    member.activate_datagram(KEY).unwrap();
    let group = Gid::from(Ipv4Addr::new(224, 0, 2, 60));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                member.attach_multicast(group).unwrap();
                member.detach_multicast(group).unwrap();
            }
        });
        scope.spawn(|| {
            for round in 0..2000 {
                let to = b.mr.remote();
                own.post(&SendWr::write(round, &[a.mr.slice(..8)], to))
                    .unwrap();
                let found = cq.wait(PATIENCE);
                if found.is_err() || round == 1999 {
                    done.store(true, Ordering::Relaxed);
                }
                assert_eq!(found.unwrap().ok().unwrap().wr_id, round);
            }
        });
    });
}
