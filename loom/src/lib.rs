//! No work is left behind by those who pass the baton on.

#![cfg(test)]

#[cfg(not(loom))]
compile_error!("run the tests in this folder, whose configuration sets cfg(loom)");

#[path = "../../crates/hirail/src/runtime/baton.rs"]
mod baton;

use baton::Baton;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// What a thread does with the baton.
#[derive(Clone, Copy)]
enum Role {
    /// Makes work ready, and rings.
    Post,
    /// Looks whether there is work, if nobody else does.
    Poll,
    /// Waits for the baton and does something else with it.
    Settle,
}

/// Lets threads meet in every way; the work of all of them must have been seen at the end.
fn all_work_is_done(roles: &'static [Role]) {
    let mut model = Builder::new();
    // More than enough for what needs two changes of turn, and it keeps the number of ways small.
    model.preemption_bound = Some(3);
    model.check(move || {
        // The baton is the amount of work that was seen.
        let baton = Arc::new(Baton::new(0));
        let ready = Arc::new(AtomicU32::new(0));
        let act = |role| {
            let (baton, ready) = (Arc::clone(&baton), Arc::clone(&ready));
            move || {
                let look = || baton.try_with(|seen| *seen = ready.load(Ordering::Relaxed));
                match role {
                    Role::Post => {
                        ready.fetch_add(1, Ordering::Relaxed);
                        baton.ring();
                        look();
                    }
                    Role::Poll => {
                        look();
                    }
                    Role::Settle => {
                        let ((), rung) = baton.wait_with(|_| ());
                        if rung {
                            baton.ring();
                            look();
                        }
                    }
                }
            }
        };
        let threads: Vec<_> = roles.iter().map(|role| thread::spawn(act(*role))).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        let posted = roles.iter().filter(|it| matches!(it, Role::Post)).count();
        let (seen, _) = baton.wait_with(|seen| *seen);
        assert_eq!(seen as usize, posted, "a bell was lost");
    });
}

#[test]
fn who_polls_answers_who_posts() {
    all_work_is_done(&[Role::Post, Role::Poll]);
}

#[test]
fn who_settles_answers_who_posts() {
    all_work_is_done(&[Role::Post, Role::Settle]);
}

#[test]
fn who_posts_answers_who_posts() {
    all_work_is_done(&[Role::Post, Role::Post]);
}

#[test]
fn the_promise_is_handed_on() {
    all_work_is_done(&[Role::Post, Role::Post, Role::Poll]);
}
