//! Who drives: whoever stops calling in leaves nothing undone.

use std::thread;
use std::time::Duration;

use hirail::{AckTimeout, ConnectOptions, QpType, SendWr};

use crate::side::Side;
use crate::udp::sides;

/// Connects without a timeout: what is not answered in the first place never is.
fn connect_for_good(a: &Side, b: &Side) {
    for (from, to) in [(a, b), (b, a)] {
        let options = ConnectOptions {
            timeout: AckTimeout::new(0),
            ..ConnectOptions::new(&from.context, 0)
        };
        let remote = to.qp.endpoint(0).unwrap();
        from.qp.connect(&remote, &options).unwrap();
    }
}

/// The application polls while the progress thread sleeps, gets its message and never calls again:
/// the message is acknowledged all the same.
#[test]
fn who_takes_a_message_and_leaves() {
    let (a, b) = sides(QpType::Rc);
    connect_for_good(&a, &b);
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
