//! DCQCN's parameters as operators set them, and the same checked and in the engine's units.

use hirail_vocab::{CcOutOfRange, CcParam};

use crate::time::Span;

const MBPS: u64 = 1_000_000;

/// Where the publication and the cards differ in more than values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// As ConnectX cards do: alpha is updated every `dce_tcp_rtt` with whether a CNP came since the
    /// last update, and the rate is cut where one came since the last look, with a look every
    /// `rate_reduce_monitor_period`; both periods count from the flow's first CNP. The increase
    /// events count from 0, and every hyper increase is one `rpg_hai_rate`.
    #[default]
    ConnectX,
    /// As published (SIGCOMM 2015): each CNP cuts at once, raises alpha and restarts alpha's period
    /// `dce_tcp_rtt`. The increase events count from 1, and the n-th hyper increase is n times
    /// `rpg_hai_rate`. `rate_reduce_monitor_period` has no effect.
    Paper,
}

/// Types that parameters have.
trait Value: Copy {
    fn to_u64(self) -> u64;
    /// The value, which fits.
    fn from_u64(value: u64) -> Option<Self>;
}

impl Value for bool {
    fn to_u64(self) -> u64 {
        self.into()
    }

    fn from_u64(value: u64) -> Option<Self> {
        Some(value != 0)
    }
}

macro_rules! value {
    ($($type:ty)+) => { $(
        impl Value for $type {
            fn to_u64(self) -> u64 {
                self.into()
            }

            fn from_u64(value: u64) -> Option<Self> {
                value.try_into().ok()
            }
        }
    )+ };
}

value!(u8 u16 u32);

macro_rules! params {
    ($( $(#[doc = $doc:literal])+ $param:ident => $field:ident: $type:ty, )+) => {
        /// DCQCN's parameters under their public names and in their public units; [`CcParam`] has
        /// ranges and texts. [`Default`] is what cards come with.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct DcqcnParams {
            /// Whose procedure the values are for.
            pub form: Form,
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl Default for DcqcnParams {
            fn default() -> Self {
                Self {
                    form: Form::ConnectX,
                    $( $field: Value::from_u64(CcParam::$param.default_value())
                        .expect("a default that fits its type"), )+
                }
            }
        }

        impl DcqcnParams {
            /// The value of `param`, in its unit.
            pub fn get(&self, param: CcParam) -> u64 {
                match param {
                    $( CcParam::$param => self.$field.to_u64(), )+
                }
            }

            /// Sets `param` to `value`, in its unit.
            ///
            /// # Errors
            ///
            /// The range, where the value is outside of what any link allows; [`Self::check`]
            /// looks again with the link's rate.
            pub fn set(&mut self, param: CcParam, value: u64) -> Result<(), CcOutOfRange> {
                param.check(value, u32::MAX.into())?;
                match param {
                    $( CcParam::$param => {
                        self.$field = Value::from_u64(value).expect("within the range it fits");
                    } )+
                }
                Ok(())
            }
        }
    };
}

params! {
    /// Every cut pulls the target rate down.
    ClampTgtRate => clamp_tgt_rate: bool,
    /// Without `clamp_tgt_rate`: only cuts after an increase by the timer do.
    ClampTgtRateAfterTimeInc => clamp_tgt_rate_after_time_inc: bool,
    /// Period of increases by time, µs.
    RpgTimeReset => rpg_time_reset: u32,
    /// Period of increases by amount, `rpg_byte_reset_unit` octets each; 0 is never.
    RpgByteReset => rpg_byte_reset: u16,
    /// Octets.
    RpgByteResetUnit => rpg_byte_reset_unit: u32,
    /// Increase events before the target rate is raised.
    RpgThreshold => rpg_threshold: u8,
    /// Upper bound of the rate, Mbit/s; 0 is the line rate.
    RpgMaxRate => rpg_max_rate: u32,
    /// Step of additive increase, Mbit/s.
    RpgAiRate => rpg_ai_rate: u32,
    /// Step of hyper increase, Mbit/s.
    RpgHaiRate => rpg_hai_rate: u32,
    /// A cut takes alpha (in 1/1024) / 2^`rpg_gd` of the rate.
    RpgGd => rpg_gd: u8,
    /// A cut leaves this percentage of the rate at least.
    RpgMinDecFac => rpg_min_dec_fac: u8,
    /// Lower bound of the rate, Mbit/s.
    RpgMinRate => rpg_min_rate: u32,
    /// Rate at the first CNP, Mbit/s; 0 is the upper bound.
    RateToSetOnFirstCnp => rate_to_set_on_first_cnp: u32,
    /// Memory of alpha, 1/1024.
    DceTcpG => dce_tcp_g: u16,
    /// Period of alpha's updates, µs.
    DceTcpRtt => dce_tcp_rtt: u32,
    /// Least time between two cuts, µs.
    RateReduceMonitorPeriod => rate_reduce_monitor_period: u32,
    /// Alpha at the first CNP, 1/1024.
    InitialAlphaValue => initial_alpha_value: u16,
    /// Octets that may be sent at once to make good for being late.
    CcBurstSize => cc_burst_size: u32,
    /// Least time between two CNPs to one flow, µs.
    MinTimeBetweenCnps => min_time_between_cnps: u16,
    /// DSCP of CNPs.
    CnpDscp => cnp_dscp: u8,
    /// 802.1p priority of CNPs.
    Cnp802pPrio => cnp_802p_prio: u8,
}

impl DcqcnParams {
    /// The values of the publication: g = 1/256, alpha and timer 55 µs, 10 MB, F = 5, 40 Mbit/s.
    /// It gives no hyper step; 200 Mbit/s is from the middle of what simulators take.
    pub fn paper() -> Self {
        Self {
            form: Form::Paper,
            clamp_tgt_rate: true,
            rpg_time_reset: 55,
            rpg_byte_reset: 10_000,
            rpg_byte_reset_unit: 1000,
            rpg_threshold: 5,
            rpg_ai_rate: 40,
            rpg_hai_rate: 200,
            dce_tcp_g: 1020,
            dce_tcp_rtt: 55,
            min_time_between_cnps: 50,
            ..Self::default()
        }
    }

    /// The checked form, for a link of `line_rate_bps`.
    ///
    /// # Errors
    ///
    /// The first parameter out of its range.
    pub fn check(&self, line_rate_bps: u64) -> Result<Dcqcn, CcOutOfRange> {
        let line_rate_mbps = line_rate_bps / MBPS;
        for &param in CcParam::ALL {
            let value = self.get(param);
            // The steps that nobody chose are too large for some links, and are cut to fit below.
            if value != param.default_value() {
                param.check(value, line_rate_mbps)?;
            }
        }
        let max_rate = match self.rpg_max_rate {
            0 => line_rate_bps,
            mbps => u64::from(mbps) * MBPS,
        };
        let min_rate = u64::from(self.rpg_min_rate) * MBPS;
        if min_rate > max_rate {
            return Err(CcOutOfRange {
                param: CcParam::RpgMinRate,
                got: self.rpg_min_rate.into(),
                max: max_rate / MBPS,
            });
        }
        Ok(Dcqcn {
            form: self.form,
            clamp: match (self.clamp_tgt_rate, self.clamp_tgt_rate_after_time_inc) {
                (true, _) => Clamp::Always,
                (false, true) => Clamp::AfterTimeIncrease,
                (false, false) => Clamp::AfterIncrease,
            },
            time_reset: Span::from_us(self.rpg_time_reset.into()).as_ps(),
            byte_reset: u64::from(self.rpg_byte_reset) * u64::from(self.rpg_byte_reset_unit),
            threshold: self.rpg_threshold.into(),
            max_rate,
            min_rate,
            first_rate: match self.rate_to_set_on_first_cnp {
                0 => max_rate,
                mbps => (u64::from(mbps) * MBPS).clamp(min_rate, max_rate),
            },
            ai_rate: (u64::from(self.rpg_ai_rate) * MBPS).min(line_rate_bps),
            hai_rate: (u64::from(self.rpg_hai_rate) * MBPS).min(line_rate_bps),
            gd_shift: u32::from(self.rpg_gd) - 10,
            min_dec_fac: self.rpg_min_dec_fac.into(),
            gamma: Fraction::of_1024(self.dce_tcp_g),
            alpha_period: Span::from_us(self.dce_tcp_rtt.into()).as_ps(),
            look_period: Span::from_us(self.rate_reduce_monitor_period.into()).as_ps(),
            // The paper starts at 1; the card's 10 bits end just below.
            initial_alpha: match self.initial_alpha_value {
                1023 if self.form == Form::Paper => Fraction::ONE,
                alpha => Fraction::of_1024(alpha),
            },
            burst: self.cc_burst_size.into(),
            min_time_between_cnps: Span::from_us(self.min_time_between_cnps.into()),
            cnp_dscp: self.cnp_dscp,
            cnp_priority: self.cnp_802p_prio,
        })
    }
}

/// When a cut pulls the target rate down to the current rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clamp {
    /// Every cut.
    Always,
    /// A cut after any increase.
    AfterIncrease,
    /// A cut after an increase by the timer.
    AfterTimeIncrease,
}

/// [`DcqcnParams`], checked, for one link. Shared by all its queue pairs.
///
/// Times are in picoseconds, rates in bit/s, amounts in octets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dcqcn {
    pub(super) form: Form,
    pub(super) clamp: Clamp,
    pub(super) time_reset: u64,
    /// 0: no increase by amount.
    pub(super) byte_reset: u64,
    pub(super) threshold: u64,
    pub(super) max_rate: u64,
    pub(super) min_rate: u64,
    pub(super) first_rate: u64,
    pub(super) ai_rate: u64,
    pub(super) hai_rate: u64,
    /// A cut takes alpha / 2^this of the rate.
    pub(super) gd_shift: u32,
    /// Percent.
    pub(super) min_dec_fac: u64,
    /// What alpha keeps at each update.
    pub(super) gamma: Fraction,
    pub(super) alpha_period: u64,
    pub(super) look_period: u64,
    pub(super) initial_alpha: Fraction,
    pub(super) burst: u64,
    min_time_between_cnps: Span,
    cnp_dscp: u8,
    cnp_priority: u8,
}

impl Dcqcn {
    /// The highest rate that a reaction point lets through, bit/s.
    pub const fn max_rate_bps(&self) -> u64 {
        self.max_rate
    }

    /// Least time between two CNPs to one flow.
    pub const fn min_time_between_cnps(&self) -> Span {
        self.min_time_between_cnps
    }

    /// DSCP of CNPs.
    pub const fn cnp_dscp(&self) -> u8 {
        self.cnp_dscp
    }

    /// 802.1p priority of CNPs.
    pub const fn cnp_priority(&self) -> u8 {
        self.cnp_priority
    }
}

/// A number from 0 to 1 in 62 binary places. An integer, so that every machine computes the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fraction(u64);

impl Fraction {
    const PLACES: u32 = 62;
    pub(super) const ONE: Self = Self(1 << Self::PLACES);

    /// `n`/1024, at most 1.
    pub(super) fn of_1024(n: u16) -> Self {
        Self(u64::from(n.min(1024)) << (Self::PLACES - 10))
    }

    /// 1 − self.
    pub(super) fn complement(self) -> Self {
        Self(Self::ONE.0 - self.0)
    }

    /// The sum, at most 1.
    pub(super) fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).min(Self::ONE.0))
    }

    /// The product.
    pub(super) fn times(self, other: Self) -> Self {
        Self(other.of(self.0))
    }

    /// self^n, in as many multiplications as `n` has binary digits, twice.
    pub(super) fn pow(self, mut n: u32) -> Self {
        let (mut power, mut result) = (self, Self::ONE);
        while n > 0 {
            if n & 1 == 1 {
                result = result.times(power);
            }
            power = power.times(power);
            n >>= 1;
        }
        result
    }

    /// This fraction of `whole`, rounded down.
    #[expect(clippy::cast_possible_truncation, reason = "not more than `whole`")]
    pub(super) fn of(self, whole: u64) -> u64 {
        ((u128::from(whole) * u128::from(self.0)) >> Self::PLACES) as u64
    }

    /// For people.
    #[expect(clippy::cast_precision_loss, reason = "shown, never computed with")]
    pub(super) fn to_f64(self) -> f64 {
        self.0 as f64 / Self::ONE.0 as f64
    }
}
