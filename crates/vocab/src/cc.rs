//! Parameters of DCQCN congestion control, under the names of the vendor's sysfs
//! (`/sys/class/net/<if>/ecn/roce_{rp,np}/`) and of the upstream driver's debugfs (`cc_params/`).
//! Defaults and ranges are those that cards list in their configuration. The algorithm is that of
//! Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015).

use core::fmt;

/// Which end of a flow a parameter belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CcSide {
    /// Reaction point: the sender, which slows down.
    Rp,
    /// Notification point: the receiver, which answers marked packets with CNPs.
    Np,
}

/// A value outside the range of its parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CcOutOfRange {
    /// The parameter.
    pub param: CcParam,
    /// The value given, in the parameter's unit.
    pub got: u64,
    /// The largest value possible, with the line rate put in where it is the bound.
    pub max: u64,
}

impl fmt::Display for CcOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { param, got, max } = self;
        write!(
            f,
            "{param} is {} to {max} {}, got {got}",
            param.lowest(),
            param.unit()
        )
    }
}

impl core::error::Error for CcOutOfRange {}

macro_rules! cc_params {
    ( $( $(#[doc = $doc:literal])+
         $variant:ident = $name:literal, $debugfs:expr, $side:ident,
         $default:literal, $min:literal ..= $max:tt, $unit:literal; )+ ) => {
        /// A parameter of DCQCN.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum CcParam {
            $(
                #[doc = concat!("`", $name, "`:")]
                $(#[doc = $doc])+
                $variant,
            )+
        }

        impl CcParam {
            /// Every parameter, those of the reaction point first.
            pub const ALL: &[Self] = &[$( Self::$variant ),+];

            /// Its name in the vendor's sysfs.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// Its name in the upstream driver's debugfs; `None` if it is not there.
            pub const fn debugfs_name(self) -> Option<&'static str> {
                match self { $( Self::$variant => $debugfs, )+ }
            }

            /// The parameter called `name` in either place.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|param| param.name() == name || param.debugfs_name() == Some(name))
            }

            /// Which end it belongs to.
            pub const fn side(self) -> CcSide {
                match self { $( Self::$variant => CcSide::$side, )+ }
            }

            /// Its default, in its unit.
            pub const fn default_value(self) -> u64 {
                match self { $( Self::$variant => $default, )+ }
            }

            /// The smallest value, in its unit.
            pub const fn lowest(self) -> u64 {
                match self { $( Self::$variant => $min, )+ }
            }

            /// The largest value, in its unit; `None` where that is the line rate.
            pub const fn highest(self) -> Option<u64> {
                match self { $( Self::$variant => cc_params!(@max $max), )+ }
            }

            /// Its unit.
            pub const fn unit(self) -> &'static str {
                match self { $( Self::$variant => $unit, )+ }
            }

            /// What it does, in a sentence or two.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$variant => concat!($($doc),+).trim_ascii_start(), )+ }
            }
        }
    };
    (@max line) => { None };
    (@max $max:literal) => { Some($max) };
}

cc_params! {
    /// 1: every cut first pulls the target rate down to the current rate. 0: only a cut that
    /// follows an increase does.
    ClampTgtRate = "clamp_tgt_rate", Some("rp_clamp_tgt_rate"), Rp, 0, 0..=1, "flag";
    /// With clamp_tgt_rate 0: 1 pulls the target rate down only after an increase by the timer,
    /// 0 also after one by the byte counter.
    ClampTgtRateAfterTimeInc = "clamp_tgt_rate_after_time_inc", Some("rp_clamp_tgt_rate_ati"), Rp,
        1, 0..=1, "flag";
    /// Time without a cut after which the rate is increased, and again after each further one.
    RpgTimeReset = "rpg_time_reset", Some("rp_time_reset"), Rp, 300, 1..=131071, "us";
    /// Amount sent after which the rate is increased, in units of rpg_byte_reset_unit; 0 turns the
    /// byte counter off.
    RpgByteReset = "rpg_byte_reset", Some("rp_byte_reset"), Rp, 32767, 0..=32767, "units";
    /// Octets in one unit of rpg_byte_reset. hirail's own name: the vendor's text says octets,
    /// cards count larger units.
    RpgByteResetUnit = "rpg_byte_reset_unit", None, Rp, 64, 1..=65536, "octets";
    /// Increase events in fast recovery (towards the target rate) before the target rate itself is
    /// raised.
    RpgThreshold = "rpg_threshold", Some("rp_threshold"), Rp, 1, 1..=31, "events";
    /// The rate is never above this; 0 is the port's speed.
    RpgMaxRate = "rpg_max_rate", Some("rp_max_rate"), Rp, 0, 0..=line, "Mb/s";
    /// Step of the target rate in additive increase.
    RpgAiRate = "rpg_ai_rate", Some("rp_ai_rate"), Rp, 5, 1..=line, "Mb/s";
    /// Step of the target rate in hyper increase.
    RpgHaiRate = "rpg_hai_rate", Some("rp_hai_rate"), Rp, 50, 1..=line, "Mb/s";
    /// How strongly a cut follows alpha: the rate loses alpha (in 1/1024) / 2^rpg_gd of itself; 11
    /// is half of alpha.
    RpgGd = "rpg_gd", Some("rp_gd"), Rp, 11, 10..=11, "log2";
    /// What one cut leaves of the rate at least.
    RpgMinDecFac = "rpg_min_dec_fac", Some("rp_min_dec_fac"), Rp, 50, 0..=100, "%";
    /// The rate is never below this.
    RpgMinRate = "rpg_min_rate", Some("rp_min_rate"), Rp, 1, 1..=line, "Mb/s";
    /// Rate that a flow's first CNP sets before its cut; 0 leaves it at the port's speed.
    RateToSetOnFirstCnp = "rate_to_set_on_first_cnp", Some("rp_rate_to_set_on_first_cnp"), Rp,
        0, 0..=line, "Mb/s";
    /// Memory of alpha: the part that stays at each update; the rest is whether a CNP came.
    DceTcpG = "dce_tcp_g", Some("rp_dce_tcp_g"), Rp, 1019, 0..=1023, "1/1024";
    /// Time between two updates of alpha.
    DceTcpRtt = "dce_tcp_rtt", Some("rp_dce_tcp_rtt"), Rp, 1, 1..=131071, "us";
    /// Time between two looks at whether a CNP came and the rate must be cut: the least time between
    /// two cuts.
    RateReduceMonitorPeriod = "rate_reduce_monitor_period", Some("rp_rate_reduce_monitor_period"),
        Rp, 4, 1..=4294967295, "us";
    /// Alpha after a flow's first CNP.
    InitialAlphaValue = "initial_alpha_value", Some("rp_initial_alpha_value"), Rp,
        1023, 1..=1023, "1/1024";
    /// How much a flow may send at once to make good for being late. The name is that of the
    /// vendor's access register.
    CcBurstSize = "cc_burst_size", None, Rp, 16384, 0..=1048576, "octets";
    /// Least time between two CNPs to one flow.
    MinTimeBetweenCnps = "min_time_between_cnps", Some("np_min_time_between_cnps"), Np,
        4, 0..=4095, "us";
    /// DSCP of CNPs.
    CnpDscp = "cnp_dscp", Some("np_cnp_dscp"), Np, 48, 0..=63, "code point";
    /// 802.1p priority of CNPs, where frames are tagged.
    Cnp802pPrio = "cnp_802p_prio", Some("np_cnp_prio"), Np, 6, 0..=7, "priority";
}

impl CcParam {
    /// Whether `value` (in the parameter's unit) is possible on a link of `line_rate_mbps`.
    ///
    /// # Errors
    ///
    /// The range, if it is not.
    pub const fn check(self, value: u64, line_rate_mbps: u64) -> Result<(), CcOutOfRange> {
        let max = match self.highest() {
            Some(max) => max,
            None => line_rate_mbps,
        };
        if value < self.lowest() || value > max {
            return Err(CcOutOfRange {
                param: self,
                got: value,
                max,
            });
        }
        Ok(())
    }
}

impl fmt::Display for CcParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        for &param in CcParam::ALL {
            assert_eq!(param.check(param.default_value(), 1000), Ok(()), "{param}");
        }
    }

    #[test]
    fn names_lead_back() {
        for &param in CcParam::ALL {
            assert_eq!(CcParam::from_name(param.name()), Some(param));
            if let Some(name) = param.debugfs_name() {
                assert_eq!(CcParam::from_name(name), Some(param));
            }
        }
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let error = CcParam::RpgAiRate.check(0, 25_000).unwrap_err();
        assert_eq!(error.to_string(), "rpg_ai_rate is 1 to 25000 Mb/s, got 0");
        let error = CcParam::CnpDscp.check(64, 25_000).unwrap_err();
        assert_eq!(error.to_string(), "cnp_dscp is 0 to 63 code point, got 64");
    }
}
