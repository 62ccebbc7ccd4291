//! The Ethernet addresses of destinations, remembered for a while. Who is not known yet is asked
//! for, and the answer looked up a little later; nobody waits.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hirail_rnic::{Instant, Span};
use hirail_wire::MacAddr;

use crate::port::raw::neighbour::{self, Neighbour};

/// How long an address is used that the kernel had confirmed.
const FRESH: Span = Span::from_ms(30_000);
/// How long one is used that the kernel was asked to confirm.
const STALE: Span = Span::from_ms(10_000);
/// First pause before an answer is looked up; it doubles each time.
const FIRST_LOOK: Span = Span::from_us(100);
/// Longest such pause.
const LAST_LOOK: Span = Span::from_ms(10);
/// After so long there will be no answer. The kernel gives up after three seconds.
const PATIENCE: Span = Span::from_ms(3500);
/// How long nobody asks again then.
const GIVEN_UP: Span = Span::from_ms(1000);
/// Destinations remembered; with more, all are looked up again.
const MOST: usize = 4096;

/// Where the answers come from.
pub(super) trait Kernel {
    /// The station on the link that packets to `destination` go to.
    fn next_hop(&self, destination: IpAddr) -> Option<IpAddr>;
    /// What is known about it.
    fn look_up(&self, station: IpAddr) -> Neighbour;
    /// Makes sure that more will be known.
    fn solicit(&self, station: IpAddr, source: IpAddr);
}

/// The kernel, about one interface.
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
}

impl Kernel for Interface {
    fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        neighbour::next_hop(destination, self.index)
    }

    fn look_up(&self, station: IpAddr) -> Neighbour {
        neighbour::look_up(station, self.index)
    }

    fn solicit(&self, station: IpAddr, source: IpAddr) {
        neighbour::solicit(station, source, &self.name, self.index);
    }
}

/// What is known about a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Frames to it have this destination.
    Known(MacAddr),
    /// Ask again a little later.
    Pending,
    /// No route, or nobody answers.
    Unreachable,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    answer: Answer,
    hop: Option<IpAddr>,
    /// When the kernel is asked next.
    look_at: Instant,
    /// When it was solicited, while the answer is pending.
    asked_at: Instant,
    pause: Span,
}

/// See the module's description.
pub(super) struct Neighbours<K> {
    kernel: K,
    table: BTreeMap<IpAddr, Entry>,
}

impl<K: Kernel> Neighbours<K> {
    pub(super) fn new(kernel: K) -> Self {
        Self {
            kernel,
            table: BTreeMap::new(),
        }
    }

    /// Where frames from `source` to `destination` go.
    pub(super) fn resolve(&mut self, now: Instant, source: IpAddr, destination: IpAddr) -> Answer {
        let known = self.table.get(&destination).copied();
        let mut entry = match known {
            Some(entry) if now < entry.look_at => return entry.answer,
            Some(entry) if entry.answer == Answer::Pending => entry,
            // Also once the time is over, since routes change.
            _ => Entry {
                answer: Answer::Unreachable,
                hop: self.kernel.next_hop(destination),
                look_at: now,
                asked_at: now,
                pause: FIRST_LOOK,
            },
        };
        self.look(now, source, &mut entry);
        if self.table.len() >= MOST {
            self.table.clear();
        }
        self.table.insert(destination, entry);
        entry.answer
    }

    fn look(&self, now: Instant, source: IpAddr, entry: &mut Entry) {
        let was_pending = entry.answer == Answer::Pending;
        let found = entry.hop.map(|hop| (hop, self.kernel.look_up(hop)));
        let (answer, next) = match found {
            None => (Answer::Unreachable, GIVEN_UP),
            Some((_, Neighbour::Fresh(mac))) => (Answer::Known(mac), FRESH),
            Some((hop, Neighbour::Stale(mac))) => {
                self.kernel.solicit(hop, source);
                (Answer::Known(mac), STALE)
            }
            Some((_, Neighbour::Silent)) if was_pending => (Answer::Unreachable, GIVEN_UP),
            Some((hop, Neighbour::Silent | Neighbour::Unknown)) if !was_pending => {
                self.kernel.solicit(hop, source);
                (Answer::Pending, entry.pause)
            }
            Some(_) if now.since(entry.asked_at) > PATIENCE => (Answer::Unreachable, GIVEN_UP),
            Some(_) => {
                entry.pause = entry.pause.times(2).min(LAST_LOOK);
                (Answer::Pending, entry.pause)
            }
        };
        entry.answer = answer;
        entry.look_at = now + next;
    }

    /// When a pending answer is looked up next.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let pending = self.table.values();
        let pending = pending.filter(|entry| entry.answer == Answer::Pending);
        pending.map(|entry| entry.look_at).min()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    /// A kernel that says what it is told to.
    struct Told {
        hop: Cell<Option<IpAddr>>,
        neighbour: Cell<Neighbour>,
        solicited: RefCell<Vec<IpAddr>>,
    }

    impl Kernel for Told {
        fn next_hop(&self, _: IpAddr) -> Option<IpAddr> {
            self.hop.get()
        }

        fn look_up(&self, _: IpAddr) -> Neighbour {
            self.neighbour.get()
        }

        fn solicit(&self, station: IpAddr, _: IpAddr) {
            self.solicited.borrow_mut().push(station);
        }
    }

    fn ip(host: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, host])
    }

    fn told(hop: Option<IpAddr>, neighbour: Neighbour) -> Neighbours<Told> {
        Neighbours::new(Told {
            hop: Cell::new(hop),
            neighbour: Cell::new(neighbour),
            solicited: RefCell::default(),
        })
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::EPOCH + Span::from_ms(ms)
    }

    fn at_us(us: u64) -> Instant {
        Instant::EPOCH + Span::from_us(us)
    }

    #[test]
    fn a_station_answers_after_it_was_asked_for() {
        let router = ip(254);
        let mut table = told(Some(router), Neighbour::Unknown);
        let resolve = |table: &mut Neighbours<Told>, now| table.resolve(now, ip(1), ip(2));
        assert_eq!(resolve(&mut table, at_us(0)), Answer::Pending);
        assert_eq!(table.next_look(), Some(at_us(100)));
        table.kernel.neighbour.set(Neighbour::Fresh(MAC));
        assert_eq!(resolve(&mut table, at_us(99)), Answer::Pending, "too early");
        assert_eq!(resolve(&mut table, at_us(100)), Answer::Known(MAC));
        assert_eq!(table.next_look(), None);
        assert_eq!(*table.kernel.solicited.borrow(), [router], "once");
        // It is believed for a while, then confirmed.
        table.kernel.neighbour.set(Neighbour::Stale(MAC));
        assert_eq!(resolve(&mut table, at_ms(29_000)), Answer::Known(MAC));
        assert_eq!(table.kernel.solicited.borrow().len(), 1);
        assert_eq!(resolve(&mut table, at_ms(31_000)), Answer::Known(MAC));
        assert_eq!(table.kernel.solicited.borrow().len(), 2);
        // Gone: asked for anew.
        table.kernel.neighbour.set(Neighbour::Silent);
        assert_eq!(resolve(&mut table, at_ms(42_000)), Answer::Pending);
        assert_eq!(table.kernel.solicited.borrow().len(), 3);
    }

    #[test]
    fn who_does_not_answer_is_given_up_for_a_while() {
        let mut table = told(Some(ip(2)), Neighbour::Unknown);
        let mut now = at_us(0);
        let mut looks = 0;
        while table.resolve(now, ip(1), ip(2)) == Answer::Pending {
            now = table.next_look().expect("pending");
            looks += 1;
        }
        assert!(now > at_ms(3500) && now < at_ms(3520), "{now:?}");
        assert!(looks < 400, "{looks}");
        assert_eq!(table.kernel.solicited.borrow().len(), 1);
        // The kernel may be the first to give up.
        let mut table = told(Some(ip(2)), Neighbour::Silent);
        assert_eq!(table.resolve(at_us(0), ip(1), ip(2)), Answer::Pending);
        let again = table.resolve(at_us(100), ip(1), ip(2));
        assert_eq!(again, Answer::Unreachable);
        assert_eq!(table.resolve(at_ms(1001), ip(1), ip(2)), Answer::Pending);
        assert_eq!(table.kernel.solicited.borrow().len(), 2);
    }

    #[test]
    fn without_a_route_nobody_is_asked() {
        let mut table = told(None, Neighbour::Fresh(MAC));
        assert_eq!(table.resolve(at_us(0), ip(1), ip(2)), Answer::Unreachable);
        table.kernel.hop.set(Some(ip(2)));
        assert_eq!(table.resolve(at_ms(500), ip(1), ip(2)), Answer::Unreachable);
        assert_eq!(table.resolve(at_ms(1000), ip(1), ip(2)), Answer::Known(MAC));
        assert!(table.kernel.solicited.borrow().is_empty());
    }
}
