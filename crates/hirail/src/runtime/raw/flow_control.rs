//! Link-level flow control: what the peer has stopped here, and what this port tells the peer to stop
//! (PAUSE of IEEE 802.3x, PFC of IEEE 802.1Qbb). No I/O; frames come in and go out as values.

use hirail_rnic::transmit::{Class, OpenClasses};
use hirail_rnic::{Instant, Span};
use hirail_vocab::Counter;
use hirail_wire::mac_control::{MacControl, Pfc, QUANTUM_BITS};

/// Flow control of a link. PAUSE and PFC exclude each other, as on real ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowControl {
    /// Frames of either kind are counted and not obeyed, and none are sent.
    #[default]
    None,
    /// 802.3x PAUSE stops everything.
    Pause,
    /// Priority flow control.
    Pfc {
        /// Bit n: priority n is lossless. The others are neither stopped nor told to stop.
        enabled: u8,
    },
}

impl FlowControl {
    /// The priorities that frames of ours stop and frames of the peer may stop.
    const fn lossless(self) -> u8 {
        match self {
            Self::None | Self::Pause => 0,
            Self::Pfc { enabled } => enabled,
        }
    }
}

/// Tells a counter by how much it grew.
pub(super) trait Count: FnMut(Counter, u64) {}
impl<F: FnMut(Counter, u64)> Count for F {}

/// The time of one quantum at a link speed.
pub(super) fn quantum(speed_mbps: u32) -> Span {
    // At 1 Mb/s a bit takes a microsecond.
    let bits = u64::from(QUANTUM_BITS) * 1_000_000;
    Span::from_ps(bits / u64::from(speed_mbps.max(1)))
}

/// Something that can be stopped: a priority, or everything.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// Stopped until then, if later than now.
    until: Option<Instant>,
    /// Its stopped time has been counted up to here.
    counted: Instant,
    /// Stopped time below a microsecond, not counted yet.
    rest: Span,
}

impl Lane {
    const RUNNING: Self = Self {
        until: None,
        counted: Instant::EPOCH,
        rest: Span::ZERO,
    };

    /// A new order replaces what is left of the one before. Whether it went from running to stopped.
    fn order(&mut self, now: Instant, time: Span) -> bool {
        let was_stopped = self.until.is_some();
        if time == Span::ZERO {
            self.until = None;
        } else {
            self.until = Some(now + time);
            if !was_stopped {
                self.counted = now;
            }
        }
        !was_stopped && self.until.is_some()
    }

    /// Takes note of the time: stopped microseconds since the last call. It runs again once the time
    /// is over.
    fn settle(&mut self, now: Instant) -> u64 {
        let Some(until) = self.until else { return 0 };
        let end = now.min(until);
        let stopped = end.since(self.counted).as_ps() + self.rest.as_ps();
        self.counted = end;
        self.rest = Span::from_ps(stopped % PS_PER_US);
        if until <= now {
            self.until = None;
        }
        stopped / PS_PER_US
    }
}

const PS_PER_US: u64 = 1_000_000;

/// What frames of the peer have stopped.
#[derive(Debug)]
pub(super) struct Stopped {
    mode: FlowControl,
    quantum: Span,
    ack_priority: u8,
    cnp_priority: u8,
    priorities: [Lane; 8],
    everything: Lane,
}

impl Stopped {
    /// Nothing is stopped. Acknowledgements and CNPs stop with their priorities.
    pub(super) fn new(
        mode: FlowControl,
        quantum: Span,
        ack_priority: u8,
        cnp_priority: u8,
    ) -> Self {
        Self {
            mode,
            quantum,
            ack_priority,
            cnp_priority,
            priorities: [Lane::RUNNING; 8],
            everything: Lane::RUNNING,
        }
    }

    /// A frame has come.
    pub(super) fn handle(&mut self, now: Instant, frame: &MacControl, count: &mut impl Count) {
        self.settle(now, count);
        count(Counter::RxPauseCtrlPhy, 1);
        match frame {
            MacControl::Pause { quanta } => {
                count(Counter::RxGlobalPause, 1);
                let time = self.quantum.times((*quanta).into());
                if self.mode == FlowControl::Pause && self.everything.order(now, time) {
                    count(Counter::RxGlobalPauseTransition, 1);
                }
            }
            MacControl::Pfc(pfc) => {
                for (priority, quanta) in pfc.iter() {
                    count(Counter::rx_prio_pause(priority), 1);
                    let is_lossless = self.mode.lossless() >> priority & 1 != 0;
                    let lane = &mut self.priorities[usize::from(priority)];
                    if is_lossless && lane.order(now, self.quantum.times(quanta.into())) {
                        count(Counter::rx_prio_pause_transition(priority), 1);
                    }
                }
            }
        }
    }

    /// Counts the time that has passed.
    pub(super) fn settle(&mut self, now: Instant, count: &mut impl Count) {
        let lanes = self.priorities.iter_mut();
        let lanes = lanes.zip((0..8).map(Counter::rx_prio_pause_duration));
        let everything = (&mut self.everything, Counter::RxGlobalPauseDuration);
        for (lane, counter) in lanes.chain([everything]) {
            let stopped_us = lane.settle(now);
            if stopped_us > 0 {
                count(counter, stopped_us);
            }
        }
    }

    /// The classes that may be sent now.
    pub(super) fn open(&self, now: Instant) -> OpenClasses {
        let is_stopped = |lane: &Lane| lane.until.is_some_and(|until| now < until);
        let everything = is_stopped(&self.everything);
        let mut open = OpenClasses::ALL;
        for (priority, lane) in (0..).zip(&self.priorities) {
            if everything || is_stopped(lane) {
                open = open.without(Class::data(priority));
                if priority == self.ack_priority {
                    open = open.without(Class::ACK);
                }
                if priority == self.cnp_priority {
                    open = open.without(Class::CNP);
                }
            }
        }
        open
    }

    /// When something runs again by itself.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let lanes = self.priorities.iter().chain([&self.everything]);
        lanes.filter_map(|lane| lane.until).min()
    }
}

/// Levels of the receive queue at which the peer is told to stop and to go on, in bytes of kernel
/// memory: a packet of 4 KiB takes some 9 KiB of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// From here on the peer shall stop. What it sends until it does must fit above.
    pub xoff: usize,
    /// From here down it may go on.
    pub xon: usize,
}

impl Watermarks {
    /// A quarter and an eighth of the queue. The rest is headroom: between software ends it is not
    /// cables that take time, but a peer that is not scheduled.
    pub(super) const fn of(room: usize) -> Self {
        Self {
            xoff: room / 4,
            xon: room / 8,
        }
    }
}

/// Time that the peer is told to stop, in quanta: the longest there is. It is taken back as soon as
/// the queue is empty enough.
const STOP: u16 = u16::MAX;

/// What this port tells the peer to stop.
#[derive(Debug)]
pub(super) struct Backpressure {
    mode: FlowControl,
    watermarks: Watermarks,
    quantum: Span,
    lane: Lane,
}

impl Backpressure {
    pub(super) fn new(mode: FlowControl, watermarks: Watermarks, quantum: Span) -> Self {
        Self {
            mode,
            watermarks,
            quantum,
            lane: Lane::RUNNING,
        }
    }

    /// Whether there is anybody to be told.
    pub(super) fn is_on(&self) -> bool {
        self.mode != FlowControl::None
    }

    /// The frame to be sent now that so many bytes are queued.
    pub(super) fn look(&self, now: Instant, queued: usize) -> Option<MacControl> {
        match self.lane.until {
            None if queued >= self.watermarks.xoff => self.frame(STOP),
            Some(_) if queued <= self.watermarks.xon => self.frame(0),
            // Before half of the time is over the peer needs no reminder.
            Some(until) if until.since(now).times(2) <= self.time(STOP) => self.frame(STOP),
            _ => None,
        }
    }

    /// The frame that lets the peer go on, where it was told to stop.
    pub(super) fn release(&self) -> Option<MacControl> {
        self.lane.until.and_then(|_| self.frame(0))
    }

    /// The frame that [`look`](Self::look) returned has been sent.
    pub(super) fn sent(&mut self, now: Instant, frame: &MacControl, count: &mut impl Count) {
        self.settle(now, count);
        count(Counter::TxPauseCtrlPhy, 1);
        let quanta = match frame {
            MacControl::Pause { quanta } => {
                count(Counter::TxGlobalPause, 1);
                *quanta
            }
            MacControl::Pfc(pfc) => {
                for (priority, _) in pfc.iter() {
                    count(Counter::tx_prio_pause(priority), 1);
                }
                pfc.quanta.into_iter().max().unwrap_or(0)
            }
        };
        self.lane.order(now, self.time(quanta));
    }

    /// Counts the time that has passed. A peer whose time is over runs, whatever is queued.
    pub(super) fn settle(&mut self, now: Instant, count: &mut impl Count) {
        let stopped_us = self.lane.settle(now);
        if stopped_us == 0 {
            return;
        }
        match self.mode {
            FlowControl::None => {}
            FlowControl::Pause => count(Counter::TxGlobalPauseDuration, stopped_us),
            FlowControl::Pfc { enabled } => {
                for priority in (0..8).filter(|priority| enabled >> priority & 1 != 0) {
                    count(Counter::tx_prio_pause_duration(priority), stopped_us);
                }
            }
        }
    }

    fn time(&self, quanta: u16) -> Span {
        self.quantum.times(quanta.into())
    }

    fn frame(&self, quanta: u16) -> Option<MacControl> {
        match self.mode {
            FlowControl::None => None,
            FlowControl::Pause => Some(MacControl::Pause { quanta }),
            // One queue serves all priorities: all that may be stopped are.
            FlowControl::Pfc { enabled } => {
                let pfc = (0..8)
                    .filter(|priority| enabled >> priority & 1 != 0)
                    .fold(Pfc::new(), |pfc, priority| pfc.with(priority, quanta));
                (enabled != 0).then_some(MacControl::Pfc(pfc))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A quantum, 512 bit times, is 51.2 ns at 10 Gb/s.
    const SPEED_MBPS: u32 = 10_000;

    fn at_us(us: u64) -> Instant {
        Instant::EPOCH + Span::from_us(us)
    }

    fn pfc(frames: &[(u8, u16)]) -> MacControl {
        MacControl::Pfc(frames.iter().fold(Pfc::new(), |pfc, (priority, quanta)| {
            pfc.with(*priority, *quanta)
        }))
    }

    /// Counters that are not zero, by name.
    #[derive(Default)]
    struct Seen(BTreeMap<&'static str, u64>);

    impl Seen {
        fn by(&mut self) -> impl FnMut(Counter, u64) {
            |counter, amount| *self.0.entry(counter.name()).or_default() += amount
        }

        #[track_caller]
        fn expect(&self, expected: &[(&'static str, u64)]) {
            assert_eq!(self.0, expected.iter().copied().collect::<BTreeMap<_, _>>());
        }
    }

    #[test]
    fn quanta_of_the_speeds() {
        for (mbps, ps) in [
            (1000, 512_000),
            (10_000, 51_200),
            (25_000, 20_480),
            (40_000, 12_800),
            (100_000, 5120),
            (400_000, 1280),
            (800_000, 640),
        ] {
            assert_eq!(quantum(mbps), Span::from_ps(ps));
        }
    }

    fn stopped(mode: FlowControl) -> Stopped {
        Stopped::new(mode, quantum(SPEED_MBPS), 5, 6)
    }

    fn closed(stopped: &Stopped, now: Instant) -> Vec<usize> {
        let open = stopped.open(now);
        let classes = (0..8).map(Class::data).chain([Class::ACK, Class::CNP]);
        classes
            .filter(|class| !open.contains(*class))
            .map(Class::index)
            .collect()
    }

    #[test]
    fn a_priority_stops_for_its_time_and_no_other() {
        let mut seen = Seen::default();
        let mut port = stopped(FlowControl::Pfc { enabled: 0b1000 });
        // 1000 quanta are 51.2 us. Priority 4 is not lossless.
        port.handle(at_us(10), &pfc(&[(3, 1000), (4, 1000)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(10)), [3]);
        assert_eq!(port.next_end(), Some(at_us(61) + Span::from_ns(200)));
        assert_eq!(closed(&port, at_us(61)), [3]);
        assert_eq!(closed(&port, at_us(62)), [0; 0]);
        port.settle(at_us(62), &mut seen.by());
        assert_eq!(port.next_end(), None);
        seen.expect(&[
            ("rx_pause_ctrl_phy", 1),
            ("rx_prio3_pause", 1),
            ("rx_prio4_pause", 1),
            ("rx_prio3_pause_transition", 1),
            ("rx_prio3_pause_duration", 51),
        ]);
        // The 0.2 us left over are not forgotten.
        for round in 1..=4 {
            let start = at_us(1000 * round);
            port.handle(start, &pfc(&[(3, 1000)]), &mut seen.by());
            port.settle(start + Span::from_us(100), &mut seen.by());
        }
        assert_eq!(seen.0["rx_prio3_pause_duration"], 256);
    }

    #[test]
    fn a_new_order_replaces_the_old_one() {
        let mut seen = Seen::default();
        let mut port = stopped(FlowControl::Pfc { enabled: 0xff });
        port.handle(at_us(0), &pfc(&[(3, 1000)]), &mut seen.by());
        port.handle(at_us(40), &pfc(&[(3, 1000)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(91)), [3]);
        // Shorter than what is left.
        port.handle(at_us(41), &pfc(&[(3, 100)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(47)), [0; 0]);
        port.handle(at_us(50), &pfc(&[(0, 1000), (3, 1000)]), &mut seen.by());
        port.handle(at_us(60), &pfc(&[(3, 0)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(60)), [0]);
        assert_eq!(seen.0["rx_prio3_pause"], 5);
        assert_eq!(seen.0["rx_prio3_pause_transition"], 2);
        // 46.12 and 10 us.
        assert_eq!(seen.0["rx_prio3_pause_duration"], 56);
    }

    #[test]
    fn acknowledgements_and_cnps_have_their_priorities() {
        let mut seen = Seen::default();
        let mut port = stopped(FlowControl::Pfc { enabled: 0xff });
        port.handle(at_us(0), &pfc(&[(5, 1000)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(1)), [5, Class::ACK.index()]);
        port.handle(at_us(2), &pfc(&[(5, 0), (6, 1000)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(2)), [6, Class::CNP.index()]);
    }

    #[test]
    fn pause_stops_everything() {
        let mut seen = Seen::default();
        let mut port = stopped(FlowControl::Pause);
        port.handle(at_us(0), &pfc(&[(3, 1000)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(0)), [0; 0], "not configured");
        port.handle(
            at_us(5),
            &MacControl::Pause { quanta: 1000 },
            &mut seen.by(),
        );
        assert_eq!(closed(&port, at_us(6)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        port.handle(at_us(25), &MacControl::Pause { quanta: 0 }, &mut seen.by());
        assert_eq!(closed(&port, at_us(25)), [0; 0]);
        seen.expect(&[
            ("rx_pause_ctrl_phy", 3),
            ("rx_prio3_pause", 1),
            ("rx_global_pause", 2),
            ("rx_global_pause_transition", 1),
            ("rx_global_pause_duration", 20),
        ]);
    }

    #[test]
    fn without_flow_control_frames_are_only_counted() {
        let mut seen = Seen::default();
        let mut port = stopped(FlowControl::None);
        port.handle(at_us(5), &MacControl::Pause { quanta: 9 }, &mut seen.by());
        port.handle(at_us(5), &pfc(&[(3, 1000)]), &mut seen.by());
        assert_eq!(closed(&port, at_us(5)), [0; 0]);
        seen.expect(&[
            ("rx_pause_ctrl_phy", 2),
            ("rx_prio3_pause", 1),
            ("rx_global_pause", 1),
        ]);
    }

    #[test]
    fn a_full_queue_stops_the_peer_until_it_is_empty_enough() {
        let mut seen = Seen::default();
        let mode = FlowControl::Pfc { enabled: 0b1001 };
        let watermarks = Watermarks { xoff: 100, xon: 50 };
        let mut port = Backpressure::new(mode, watermarks, quantum(SPEED_MBPS));
        let mut tell = |port: &mut Backpressure, now, queued| {
            let frame = port.look(now, queued);
            if let Some(frame) = &frame {
                port.sent(now, frame, &mut seen.by());
            }
            frame
        };
        let (xoff, xon) = (pfc(&[(0, 0xffff), (3, 0xffff)]), pfc(&[(0, 0), (3, 0)]));
        assert_eq!(tell(&mut port, at_us(0), 99), None);
        assert_eq!(tell(&mut port, at_us(1), 100), Some(xoff));
        assert_eq!(tell(&mut port, at_us(2), 200), None);
        // 65535 quanta are 3355 us: again after half of that.
        assert_eq!(tell(&mut port, at_us(1600), 90), None);
        assert_eq!(tell(&mut port, at_us(1700), 90), Some(xoff));
        assert_eq!(tell(&mut port, at_us(1701), 51), None);
        assert_eq!(tell(&mut port, at_us(1801), 50), Some(xon));
        assert_eq!(tell(&mut port, at_us(1802), 99), None);
        assert_eq!(port.release(), None);
        // Nobody looked for so long that the peer went on by itself.
        assert_eq!(tell(&mut port, at_us(10_000), 100), Some(xoff));
        assert_eq!(port.release(), Some(xon));
        port.settle(at_us(20_000), &mut seen.by());
        seen.expect(&[
            ("tx_pause_ctrl_phy", 4),
            ("tx_prio0_pause", 4),
            ("tx_prio3_pause", 4),
            ("tx_prio0_pause_duration", 1800 + 3355),
            ("tx_prio3_pause_duration", 1800 + 3355),
        ]);
    }

    #[test]
    fn pause_frames_go_out_where_configured() {
        let watermarks = Watermarks::of(800);
        assert_eq!(
            watermarks,
            Watermarks {
                xoff: 200,
                xon: 100
            }
        );
        let port = Backpressure::new(FlowControl::Pause, watermarks, quantum(SPEED_MBPS));
        let frame = port.look(at_us(0), 200);
        assert_eq!(frame, Some(MacControl::Pause { quanta: 0xffff }));
        for mode in [FlowControl::None, FlowControl::Pfc { enabled: 0 }] {
            let port = Backpressure::new(mode, watermarks, quantum(SPEED_MBPS));
            assert_eq!(port.look(at_us(0), 800), None);
        }
    }
}
