use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect};
use hirail_vocab::{CcParam, CcSide};
use proptest::prelude::*;

use super::*;
use crate::time::Span;

const GBPS: u64 = 1_000_000_000;

fn at_us(us: u64) -> Instant {
    Instant::EPOCH + Span::from_us(us)
}

fn point(params: &DcqcnParams, line_rate_bps: u64) -> ReactionPoint {
    ReactionPoint::new(Arc::new(params.check(line_rate_bps).unwrap()))
}

mod parameters {
    use super::*;

    #[test]
    fn every_parameter_can_be_set_by_name() {
        for &param in CcParam::ALL {
            let mut params = DcqcnParams::default();
            assert_eq!(params.get(param), param.default_value(), "{param}");
            let value = param.highest().unwrap_or(25_000);
            params.set(param, value).unwrap();
            assert_eq!(params.get(param), value, "{param}");
            assert!(params.set(param, u64::MAX).is_err(), "{param}");
            assert_eq!(
                params.get(param),
                value,
                "{param} is unchanged by a refusal"
            );
        }
    }

    /// What the parameters of the reaction point mean, in the engine's units.
    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let check = |change: fn(&mut DcqcnParams), expected: &str| {
            let mut params = DcqcnParams::default();
            change(&mut params);
            assert_eq!(params.check(25 * GBPS).unwrap_err().to_string(), expected);
        };
        check(
            |p| p.rpg_threshold = 0,
            "rpg_threshold is 1 to 31 events, got 0",
        );
        check(|p| p.rpg_gd = 12, "rpg_gd is 10 to 11 log2, got 12");
        check(
            |p| p.dce_tcp_rtt = 0,
            "dce_tcp_rtt is 1 to 131071 us, got 0",
        );
        check(
            |p| p.rpg_hai_rate = 25_001,
            "rpg_hai_rate is 1 to 25000 Mb/s, got 25001",
        );
        check(
            |p| {
                p.rpg_max_rate = 1000;
                p.rpg_min_rate = 1001;
            },
            "rpg_min_rate is 1 to 1000 Mb/s, got 1001",
        );
    }

    /// Some interfaces tell 10 Mb/s: what nobody has set does not stand in the way of using them.
    #[test]
    fn steps_that_nobody_chose_fit_a_slow_link() {
        let dcqcn = DcqcnParams::default().check(10_000_000).unwrap();
        assert_eq!((dcqcn.ai_rate, dcqcn.hai_rate), (5_000_000, 10_000_000));
        assert_eq!(dcqcn.max_rate_bps(), 10_000_000);
        let chosen = DcqcnParams {
            rpg_hai_rate: 51,
            ..DcqcnParams::default()
        };
        assert_eq!(
            chosen.check(10_000_000).unwrap_err().to_string(),
            "rpg_hai_rate is 1 to 10 Mb/s, got 51"
        );
    }

    #[test]
    fn published_values_are_valid() {
        let dcqcn = DcqcnParams::paper().check(40 * GBPS).unwrap();
        assert_eq!(dcqcn.max_rate_bps(), 40 * GBPS);
        assert_eq!(dcqcn.min_time_between_cnps(), Span::from_us(50));
        assert_eq!((dcqcn.cnp_dscp(), dcqcn.cnp_priority()), (48, 6));
        for &param in CcParam::ALL {
            let named = DcqcnParams::paper().get(param);
            assert_eq!(
                param.check(named, 40_000),
                Ok(()),
                "{param} {:?}",
                param.side()
            );
        }
        assert!(CcParam::ALL.iter().any(|param| param.side() == CcSide::Np));
    }
}

mod rates {
    use super::*;

    /// Rate, target (Mbit/s) and alpha at the times given (µs), with CNPs at others.
    fn trace(params: &DcqcnParams, gbps: u64, cnps: &[u64], looks: &[u64], expected: Expect) {
        let mut point = point(params, gbps * GBPS);
        let mut text = String::new();
        let mut cnps = cnps.iter().copied().peekable();
        for &us in looks {
            while let Some(cnp) = cnps.next_if(|&cnp| cnp <= us) {
                point.on_cnp(at_us(cnp));
            }
            let now = at_us(us);
            writeln!(
                text,
                "{us:<6} us  rate {:>9.3}  target {:>9.3}  alpha {:.4}",
                point.rate_bps(now) as f64 / 1e6,
                point.target_bps(now) as f64 / 1e6,
                point.alpha(now),
            )
            .unwrap();
        }
        expected.assert_eq(&text);
    }

    /// The first CNP halves the rate at once; alpha decays by 5/1024 per µs; the rate recovers in
    /// halves every 300 µs. Later CNPs wait for the next look, 10 + 4·n µs, and cut little, because
    /// alpha was small. They pull the target down: the timer had increased the rate.
    #[test]
    fn connectx_cut_and_recovery() {
        let params = DcqcnParams {
            rpg_byte_reset: 0,
            ..DcqcnParams::default()
        };
        trace(
            &params,
            100,
            &[10, 4_001, 4_002],
            &[
                9, 10, 11, 309, 310, 609, 610, 910, 1_210, 4_000, 4_002, 4_005, 4_006, 4_306,
                60_000,
            ],
            expect![[r#"
                9      us  rate 100000.000  target 100000.000  alpha 0.9990
                10     us  rate 50048.828  target 100000.000  alpha 0.9990
                11     us  rate 50048.828  target 100000.000  alpha 0.9941
                309    us  rate 50048.828  target 100000.000  alpha 0.2312
                310    us  rate 75024.414  target 100000.000  alpha 0.2301
                609    us  rate 75024.414  target 100000.000  alpha 0.0532
                610    us  rate 87512.207  target 100000.000  alpha 0.0530
                910    us  rate 93756.104  target 100000.000  alpha 0.0122
                1210   us  rate 96878.052  target 100000.000  alpha 0.0028
                4000   us  rate 99993.902  target 100000.000  alpha 0.0000
                4002   us  rate 99749.777  target 99993.902  alpha 0.0049
                4005   us  rate 99749.777  target 99993.902  alpha 0.0096
                4006   us  rate 99270.989  target 99993.902  alpha 0.0096
                4306   us  rate 99632.446  target 99993.902  alpha 0.0022
                60000  us  rate 100000.000  target 100000.000  alpha 0.0000
            "#]],
        );
    }

    /// Without clamping the target stays where it was, unless the timer has raised it since the
    /// last cut; with clamping every cut pulls it down.
    #[test]
    fn target_rate_is_clamped_as_configured() {
        let base = DcqcnParams {
            rpg_byte_reset_unit: 1,
            ..DcqcnParams::default()
        };
        for (always, after_time_only, bytes, wait, expected) in [
            (false, true, 0, 100, 100_000),
            (false, true, 32_767, 100, 100_000),
            (false, true, 0, 400, 75_024),
            (false, false, 0, 100, 100_000),
            (false, false, 32_767, 100, 75_024),
            (true, true, 0, 100, 50_048),
        ] {
            let params = DcqcnParams {
                clamp_tgt_rate: always,
                clamp_tgt_rate_after_time_inc: after_time_only,
                ..base
            };
            let mut point = point(&params, 100 * GBPS);
            point.on_cnp(at_us(0));
            point.on_bytes_sent(at_us(50), bytes);
            point.on_cnp(at_us(wait));
            let target = point.target_bps(at_us(wait + 4)) / 1_000_000;
            assert_eq!(
                target, expected,
                "{always} {after_time_only} {bytes} {wait}"
            );
        }
    }

    /// Each CNP cuts at once. Four rounds of fast recovery, then additive increase.
    #[test]
    fn paper_cut_and_recovery() {
        trace(
            &DcqcnParams::paper(),
            40,
            &[100, 150],
            &[99, 100, 150, 204, 205, 260, 315, 370, 425, 480, 535, 60_000],
            expect![[r#"
                99     us  rate 40000.000  target 40000.000  alpha 1.0000
                100    us  rate 20000.000  target 40000.000  alpha 1.0000
                150    us  rate 10000.000  target 20000.000  alpha 1.0000
                204    us  rate 10000.000  target 20000.000  alpha 1.0000
                205    us  rate 15000.000  target 20000.000  alpha 0.9961
                260    us  rate 17500.000  target 20000.000  alpha 0.9922
                315    us  rate 18750.000  target 20000.000  alpha 0.9883
                370    us  rate 19375.000  target 20000.000  alpha 0.9845
                425    us  rate 19707.500  target 20040.000  alpha 0.9806
                480    us  rate 19893.750  target 20080.000  alpha 0.9768
                535    us  rate 20006.875  target 20120.000  alpha 0.9730
                60000  us  rate 40000.000  target 40000.000  alpha 0.0141
            "#]],
        );
    }

    #[test]
    fn first_cnp_can_set_a_rate() {
        let params = DcqcnParams {
            rate_to_set_on_first_cnp: 10_000,
            ..DcqcnParams::default()
        };
        let mut point = point(&params, 100 * GBPS);
        assert_eq!(point.rate_bps(at_us(5)), 100 * GBPS);
        point.on_cnp(at_us(5));
        assert_eq!(point.target_bps(at_us(5)), 10 * GBPS);
        assert_eq!(point.rate_bps(at_us(5)) / 1_000_000, 5_004);
    }

    /// CNPs without end: the rate stays at its floor, one cut never takes more than allowed.
    #[test]
    fn rate_has_a_floor() {
        let params = DcqcnParams {
            rpg_min_dec_fac: 80,
            rpg_min_rate: 100,
            ..DcqcnParams::default()
        };
        let mut point = point(&params, 10 * GBPS);
        let mut last = 10 * GBPS;
        for us in 0..1000 {
            point.on_cnp(at_us(us));
            let rate = point.rate_bps(at_us(us));
            assert!(
                rate >= last * 80 / 100 && rate >= 100_000_000,
                "{us} us: {last} to {rate}"
            );
            last = rate;
        }
        assert_eq!(last, 100_000_000);
    }

    /// After a long silence everything is as before the first CNP, in an instant.
    #[test]
    fn a_long_silence_costs_nothing() {
        for params in [DcqcnParams::default(), DcqcnParams::paper()] {
            let params = DcqcnParams {
                rpg_byte_reset: 0,
                ..params
            };
            let mut point = point(&params, 800 * GBPS);
            point.on_cnp(at_us(0));
            let much_later = Instant::from_ps(u128::MAX / 2);
            assert_eq!(point.rate_bps(much_later), 800 * GBPS);
            assert_eq!(point.alpha(much_later), 0.0);
            assert!(!point.is_limiting());
        }
    }
}

mod gaps {
    use super::*;

    fn halved(gbps: u64) -> ReactionPoint {
        // Alpha 1 in the paper's form: exactly half.
        let mut point = point(&DcqcnParams::paper(), gbps * GBPS);
        point.on_cnp(at_us(0));
        assert_eq!(point.rate_bps(at_us(0)), gbps * GBPS / 2);
        point
    }

    #[test]
    fn nothing_is_spaced_at_line_rate() {
        let mut point = point(&DcqcnParams::default(), 100 * GBPS);
        point.on_bytes_sent(at_us(7), 1 << 20);
        assert_eq!(point.next_send_at(), Instant::EPOCH);
        assert!(!point.is_limiting());
    }

    /// 64 bytes at 300 Gbit/s last 1706.6 ps. The third of a picosecond that each gap lacks is not
    /// lost.
    #[test]
    fn fractions_of_picoseconds_add_up() {
        let mut point = halved(600);
        let mut start = at_us(1);
        point.on_bytes_sent(start, 0);
        let burst = at_us(1).since(point.next_send_at());
        start = point.next_send_at();
        for packets in 1..=3000u64 {
            point.on_bytes_sent(at_us(1), 64);
            let ps = point.next_send_at().since(start).as_ps();
            assert_eq!(ps, packets * 64 * 8 * 10 / 3, "{packets}");
        }
        assert_eq!(burst.as_ps(), 16384 * 8 * 1000 / 300);
    }

    /// A flow that was idle or late makes good for one burst and no more.
    #[test]
    fn idle_time_is_not_saved_up() {
        let mut point = halved(80);
        point.on_bytes_sent(at_us(0), 4096);
        assert_eq!(
            point.next_send_at(),
            Instant::from_ns(819) + Span::from_ps(200)
        );
        // Ten µs late at 40 Gbit/s are 50000 bytes, 16384 of them may follow at once.
        for _ in 0..4 {
            assert!(point.next_send_at() <= at_us(10));
            point.on_bytes_sent(at_us(10), 4096);
        }
        assert_eq!(point.next_send_at(), at_us(10));
        point.on_bytes_sent(at_us(10), 4096);
        assert!(point.next_send_at() > at_us(10));
    }

    #[test]
    fn strategies_differ() {
        let mut none = Pacing::None;
        assert!(!none.on_cnp(at_us(0)));
        none.on_bytes_sent(at_us(0), 1 << 20);
        assert_eq!(none.next_send_at(), Instant::EPOCH);
        assert_eq!(none.rate_bps(at_us(0)), None);

        let mut paced = Pacing::Dcqcn(Box::new(point(&DcqcnParams::default(), 10 * GBPS)));
        assert_eq!(paced.rate_bps(at_us(0)), None);
        assert!(paced.on_cnp(at_us(0)));
        paced.on_bytes_sent(at_us(0), 1250);
        assert_eq!(paced.rate_bps(at_us(0)), Some(5_004_882_813));
        assert_eq!(paced.next_send_at().as_ns(), 1998);
    }

    /// What a queue pair pays.
    #[test]
    fn state_is_small() {
        assert_eq!(size_of::<Pacing>(), 8);
        assert!(size_of::<ReactionPoint>() <= 128);
        assert_eq!(size_of::<NotificationPoint>(), 16);
    }
}

#[test]
fn one_cnp_per_interval() {
    let dcqcn = DcqcnParams {
        min_time_between_cnps: 50,
        ..DcqcnParams::default()
    };
    let dcqcn = dcqcn.check(GBPS).unwrap();
    let mut flow = NotificationPoint::default();
    let sent: Vec<_> = (0..200)
        .filter(|&us| flow.on_marked(at_us(us), &dcqcn))
        .collect();
    assert_eq!(sent, [0, 50, 100, 150]);

    let unlimited = DcqcnParams {
        min_time_between_cnps: 0,
        ..DcqcnParams::default()
    };
    let unlimited = unlimited.check(GBPS).unwrap();
    let mut flow = NotificationPoint::default();
    assert!((0..5).all(|_| flow.on_marked(at_us(1), &unlimited)));
}

/// The algorithm as it is written down: with timers, each served when it is due, one event after the
/// other. Rates as in the engine, alpha as a floating-point number.
struct Polled {
    params: DcqcnParams,
    line: u64,
    rate: u64,
    target: u64,
    alpha: f64,
    time_count: u64,
    byte_count: u64,
    bytes: u64,
    /// When alpha is updated, the rate looked at, the rate increased; ps.
    timers: Option<[u128; 3]>,
    cnp_for_alpha: bool,
    cnp_for_cut: bool,
}

impl Polled {
    fn new(params: DcqcnParams, line: u64) -> Self {
        Self {
            params,
            line,
            rate: line,
            target: line,
            alpha: 0.0,
            time_count: 0,
            byte_count: 0,
            bytes: 0,
            timers: None,
            cnp_for_alpha: false,
            cnp_for_cut: false,
        }
    }

    fn paper(&self) -> bool {
        self.params.form == Form::Paper
    }

    fn periods(&self) -> [u128; 3] {
        let us = |us: u32| u128::from(us) * 1_000_000;
        let p = &self.params;
        [
            us(p.dce_tcp_rtt),
            us(p.rate_reduce_monitor_period),
            us(p.rpg_time_reset),
        ]
    }

    fn gamma(&self) -> f64 {
        f64::from(self.params.dce_tcp_g) / 1024.0
    }

    fn run_until(&mut self, now: u128) {
        while let Some(timers) = self.timers {
            // Equal times in the order update, increase, look.
            let which = [0, 2, 1].into_iter().min_by_key(|&i| timers[i]).unwrap();
            if timers[which] > now {
                return;
            }
            self.timers.as_mut().unwrap()[which] += self.periods()[which];
            match which {
                0 => {
                    let seen = if self.cnp_for_alpha {
                        1.0 - self.gamma()
                    } else {
                        0.0
                    };
                    self.alpha = self.alpha * self.gamma() + seen;
                    self.cnp_for_alpha = false;
                }
                1 => {
                    if self.cnp_for_cut {
                        self.cut(timers[which]);
                    }
                }
                _ => self.increase(true),
            }
        }
    }

    fn cut(&mut self, now: u128) {
        let p = &self.params;
        let raised =
            self.time_count > 0 || (!p.clamp_tgt_rate_after_time_inc && self.byte_count > 0);
        if p.clamp_tgt_rate || raised {
            self.target = self.rate;
        }
        let cut = (self.rate as f64 * self.alpha / f64::from(1 << (p.rpg_gd - 10))) as u64;
        let least = self.rate * u64::from(p.rpg_min_dec_fac) / 100;
        self.rate = (self.rate - cut)
            .max(least)
            .max(u64::from(p.rpg_min_rate) * 1_000_000);
        (self.time_count, self.byte_count, self.bytes) = (0, 0, 0);
        self.cnp_for_cut = false;
        self.timers.as_mut().unwrap()[2] = now + self.periods()[2];
    }

    fn increase(&mut self, by_time: bool) {
        let count = if by_time {
            &mut self.time_count
        } else {
            &mut self.byte_count
        };
        let before = *count;
        *count += 1;
        let this = if self.paper() { before + 1 } else { before };
        let other = match (self.params.rpg_byte_reset, by_time) {
            (0, _) => this,
            (_, true) => self.byte_count,
            (_, false) => self.time_count,
        };
        let threshold = u64::from(self.params.rpg_threshold);
        let step = if this.max(other) < threshold {
            0
        } else if this.min(other) > threshold {
            let nth = if self.paper() {
                this.min(other) - threshold
            } else {
                1
            };
            nth * u64::from(self.params.rpg_hai_rate)
        } else {
            u64::from(self.params.rpg_ai_rate)
        };
        self.target = (self.target + step * 1_000_000).min(self.line);
        self.rate = (self.target + self.rate).div_ceil(2);
    }

    fn on_cnp(&mut self, now: u128) {
        self.run_until(now);
        let periods = self.periods();
        if self.timers.is_none() {
            self.timers = Some(periods.map(|period| now + period));
            if self.params.rate_to_set_on_first_cnp != 0 {
                let set = u64::from(self.params.rate_to_set_on_first_cnp);
                self.rate = set.max(self.params.rpg_min_rate.into()) * 1_000_000;
                self.target = self.rate;
            }
            self.alpha = match self.paper() {
                true if self.params.initial_alpha_value == 1023 => 1.0,
                _ => f64::from(self.params.initial_alpha_value) / 1024.0,
            };
            self.cut(now);
        } else if self.paper() {
            self.cut(now);
        } else {
            self.cnp_for_alpha = true;
            self.cnp_for_cut = true;
            return;
        }
        if self.paper() {
            self.alpha = self.alpha * self.gamma() + 1.0 - self.gamma();
            self.timers.as_mut().unwrap()[0] = now + periods[0];
        }
    }

    fn on_bytes_sent(&mut self, now: u128, bytes: u64) {
        self.run_until(now);
        let reset =
            u64::from(self.params.rpg_byte_reset) * u64::from(self.params.rpg_byte_reset_unit);
        if self.timers.is_none() || reset == 0 {
            return;
        }
        self.bytes += bytes;
        while self.bytes >= reset {
            self.bytes -= reset;
            self.increase(false);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Cnp,
    Sent(u64),
    Look,
}

fn inputs() -> impl Strategy<Value = Vec<(u64, Input)>> {
    // Gaps in ps: within a period, on its edge, over many periods.
    let gap = prop_oneof![
        3 => 0..5_000_000u64,
        2 => (0..200u64).prop_map(|us| us * 1_000_000),
        1 => 0..50_000_000_000u64,
    ];
    let input = prop_oneof![
        2 => Just(Input::Cnp),
        2 => (0..3_000_000u64).prop_map(Input::Sent),
        1 => Just(Input::Look),
    ];
    prop::collection::vec((gap, input), 1..60)
}

prop_compose! {
    fn params()(
        paper in any::<bool>(),
        clamps in any::<(bool, bool)>(),
        rpg_time_reset in prop_oneof![1..20u32, 20..2000u32],
        rpg_byte_reset in prop_oneof![Just(0u16), 1..=32767u16],
        rpg_byte_reset_unit in prop_oneof![Just(1u32), Just(64), Just(1000)],
        rpg_threshold in 1..=8u8,
        steps in (1..=1000u32, 1..=1000u32),
        rpg_gd in 10..=11u8,
        rpg_min_dec_fac in 0..=100u8,
        rpg_min_rate in prop_oneof![Just(1u32), 1..=5000u32],
        rate_to_set_on_first_cnp in prop_oneof![Just(0u32), 1..=25_000u32],
        dce_tcp_g in 0..=1023u16,
        dce_tcp_rtt in 1..=100u32,
        rate_reduce_monitor_period in 1..=100u32,
        initial_alpha_value in 1..=1023u16,
    ) -> DcqcnParams {
        DcqcnParams {
            form: if paper { Form::Paper } else { Form::ConnectX },
            clamp_tgt_rate: clamps.0,
            clamp_tgt_rate_after_time_inc: clamps.1,
            rpg_time_reset, rpg_byte_reset, rpg_byte_reset_unit, rpg_threshold,
            rpg_ai_rate: steps.0,
            rpg_hai_rate: steps.1,
            rpg_gd, rpg_min_dec_fac, rpg_min_rate, rate_to_set_on_first_cnp,
            dce_tcp_g, dce_tcp_rtt, rate_reduce_monitor_period, initial_alpha_value,
            ..DcqcnParams::default()
        }
    }
}

fn apply(point: &mut ReactionPoint, now: Instant, input: Input) {
    match input {
        Input::Cnp => point.on_cnp(now),
        Input::Sent(bytes) => point.on_bytes_sent(now, bytes),
        Input::Look => {
            point.rate_bps(now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// What is made up for at once is what timers would have done one by one. Up to a few bit/s:
    /// the model's alpha has 53 binary places, the engine's 62.
    #[test]
    fn closed_form_equals_timers(params in params(), inputs in inputs()) {
        let line = 25 * GBPS;
        let mut point = point(&params, line);
        let mut polled = Polled::new(params, line);
        let mut now = Instant::EPOCH;
        for (step, (gap, input)) in inputs.into_iter().enumerate() {
            now += Span::from_ps(gap);
            apply(&mut point, now, input);
            match input {
                Input::Cnp => polled.on_cnp(now.as_ps()),
                Input::Sent(bytes) => polled.on_bytes_sent(now.as_ps(), bytes),
                Input::Look => polled.run_until(now.as_ps()),
            }
            let (rate, target) = (point.rate_bps(now), point.target_bps(now));
            prop_assert!(rate.abs_diff(polled.rate) <= 16, "step {step}: {rate} {}", polled.rate);
            prop_assert!(target.abs_diff(polled.target) <= 16, "step {step}: {target} {}", polled.target);
            if polled.timers.is_some() {
                prop_assert!((point.alpha(now) - polled.alpha).abs() < 1e-9, "step {step}");
            }
        }
    }

    /// Looking more often changes nothing, to the last bit.
    #[test]
    fn looking_changes_nothing(
        params in params(),
        inputs in inputs(),
        looks in prop::collection::vec(0.0..1.0f64, 1..8),
    ) {
        let mut seldom = point(&params, 25 * GBPS);
        let mut often = seldom.clone();
        let mut now = Instant::EPOCH;
        for (gap, input) in inputs {
            let mut between: Vec<_> = looks.iter().map(|part| (gap as f64 * part) as u64).collect();
            between.sort_unstable();
            for ps in between {
                often.rate_bps(now + Span::from_ps(ps));
            }
            now += Span::from_ps(gap);
            apply(&mut seldom, now, input);
            apply(&mut often, now, input);
            prop_assert_eq!(&seldom, &often);
        }
    }

    /// min ≤ RC ≤ RT ≤ max, and no packet goes out before its turn.
    #[test]
    fn rates_stay_within_bounds(params in params(), inputs in inputs()) {
        let mut point = point(&params, 25 * GBPS);
        let mut now = Instant::EPOCH;
        let mut last = Instant::EPOCH;
        for (gap, input) in inputs {
            now += Span::from_ps(gap);
            apply(&mut point, now, input);
            let (rate, target) = (point.rate_bps(now), point.target_bps(now));
            prop_assert!(rate >= u64::from(params.rpg_min_rate) * 1_000_000);
            prop_assert!(rate <= target && target <= 25 * GBPS);
            prop_assert!(point.next_send_at() >= last);
            last = point.next_send_at();
        }
    }
}

/// Two flows through one queue, each with its receiver; `marks` is the probability of a mark by
/// octets queued. One flow has been cut three times when the other starts at line rate. After
/// `settle_ms` they share the link evenly and keep it busy.
fn two_flows_converge(params: &DcqcnParams, gbps: u64, marks: impl Fn(f64) -> f64, settle_ms: u64) {
    const PACKET: u64 = 1000;
    let line = gbps * GBPS;
    let dcqcn = Arc::new(params.check(line).unwrap());
    let mut reactions = [0, 1].map(|_| ReactionPoint::new(Arc::clone(&dcqcn)));
    let mut notifications = [NotificationPoint::default(); 2];
    for us in [0, 50, 100] {
        reactions[0].on_cnp(at_us(us));
    }
    let (mut queued, mut random) = (0.0, 1u64);
    let mut owed = [0.0; 2];
    let mut sent = [0u64; 2];
    let (settled, end) = (settle_ms * 1000, settle_ms * 2000);
    for us in 200..end {
        let now = at_us(us);
        // In turns: who comes second finds the queue longer.
        for flow in [us as usize % 2, (us as usize + 1) % 2] {
            let reaction = &mut reactions[flow];
            owed[flow] += reaction.rate_bps(now) as f64 / 8e6 / PACKET as f64;
            while owed[flow] >= 1.0 {
                owed[flow] -= 1.0;
                queued += PACKET as f64;
                reaction.on_bytes_sent(now, PACKET);
                sent[flow] += if us >= settled { PACKET } else { 0 };
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let marked = (random >> 32) as f64 / 2f64.powi(32) < marks(queued);
                if marked && notifications[flow].on_marked(now, &dcqcn) {
                    reaction.on_cnp(now);
                }
            }
        }
        queued = (queued - line as f64 / 8e6).max(0.0);
    }
    let total = (sent[0] + sent[1]) as f64;
    let share = sent[0] as f64 / total;
    let used = total * 8e6 / (line as f64 * (end - settled) as f64);
    assert!(
        (0.4..0.6).contains(&share),
        "share of the first flow {share:.3}, used {used:.3}"
    );
    assert!(
        (0.9..1.01).contains(&used),
        "share of the first flow {share:.3}, used {used:.3}"
    );
}

/// Marking that rises from 0 at `from` octets to `most` at `to`, and is certain beyond.
fn red(from: f64, to: f64, most: f64) -> impl Fn(f64) -> f64 {
    move |queued| match queued {
        q if q <= from => 0.0,
        q if q > to => 1.0,
        q => most * (q - from) / (to - from),
    }
}

#[test]
fn two_flows_converge_as_published() {
    two_flows_converge(&DcqcnParams::paper(), 40, red(5e3, 200e3, 0.01), 100);
}

#[test]
fn two_flows_converge_as_on_cards() {
    two_flows_converge(&DcqcnParams::default(), 25, red(100e3, 400e3, 0.2), 200);
}
