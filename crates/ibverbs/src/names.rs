//! Words and rates: what programs print, and the codes of link speeds.

use core::ffi::{CStr, c_char, c_int, c_uint};

use hirail::WcStatus;

/// `ibv_node_type_str`.
pub(crate) unsafe extern "C" fn node_type_str(node_type: c_int) -> *const c_char {
    let name = match node_type {
        1 => c"InfiniBand channel adapter",
        2 => c"InfiniBand switch",
        3 => c"InfiniBand router",
        4 => c"iWARP NIC",
        5 => c"usNIC",
        6 => c"usNIC UDP",
        7 => c"unspecified",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `ibv_port_state_str`.
pub(crate) unsafe extern "C" fn port_state_str(state: c_int) -> *const c_char {
    let name = match state {
        0 => c"no state change (NOP)",
        1 => c"down",
        2 => c"init",
        3 => c"armed",
        4 => c"active",
        5 => c"active defer",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// `ibv_event_type_str`.
pub(crate) unsafe extern "C" fn event_type_str(event: c_int) -> *const c_char {
    let name = match event {
        0 => c"CQ error",
        1 => c"local work queue catastrophic error",
        2 => c"invalid request local work queue error",
        3 => c"local access violation work queue error",
        4 => c"communication established",
        5 => c"send queue drained",
        6 => c"path migrated",
        7 => c"path migration request error",
        8 => c"local catastrophic error",
        9 => c"port active",
        10 => c"port error",
        11 => c"LID change",
        12 => c"P_Key change",
        13 => c"SM change",
        14 => c"SRQ catastrophic error",
        15 => c"SRQ limit reached",
        16 => c"last WQE reached",
        17 => c"client reregistration",
        18 => c"GID table change",
        19 => c"WQ fatal",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// The words of [`WcStatus::description`], ended by a zero.
const STATUS: [&[u8]; WcStatus::ALL.len()] = {
    const LONGEST: usize = 40;
    const fn ended(text: &str) -> [u8; LONGEST] {
        let (bytes, mut to, mut at) = (text.as_bytes(), [0; LONGEST], 0);
        while at < bytes.len() {
            to[at] = bytes[at];
            at += 1;
        }
        assert!(at < LONGEST, "no room for the zero");
        to
    }
    const ALL: [[u8; LONGEST]; WcStatus::ALL.len()] = {
        let mut all = [[0; LONGEST]; WcStatus::ALL.len()];
        let mut at = 0;
        while at < all.len() {
            assert!(
                WcStatus::ALL[at].code() as usize == at,
                "codes are in order"
            );
            all[at] = ended(WcStatus::ALL[at].description());
            at += 1;
        }
        all
    };
    let mut words: [&[u8]; WcStatus::ALL.len()] = [&[]; WcStatus::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = &ALL[at];
        at += 1;
    }
    words
};

/// `ibv_wc_status_str`.
pub(crate) unsafe extern "C" fn wc_status_str(status: c_int) -> *const c_char {
    let words = usize::try_from(status)
        .ok()
        .and_then(|status| STATUS.get(status));
    let words = words.and_then(|words| CStr::from_bytes_until_nul(words).ok());
    words.unwrap_or(c"unknown").as_ptr()
}

/// `ibv_wr_opcode_str`, of the private node.
pub(crate) unsafe extern "C" fn wr_opcode_str(opcode: c_int) -> *const c_char {
    let name = match opcode {
        0 => c"IBV_WR_RDMA_WRITE",
        1 => c"IBV_WR_RDMA_WRITE_WITH_IMM",
        2 => c"IBV_WR_SEND",
        3 => c"IBV_WR_SEND_WITH_IMM",
        4 => c"IBV_WR_RDMA_READ",
        5 => c"IBV_WR_ATOMIC_CMP_AND_SWP",
        6 => c"IBV_WR_ATOMIC_FETCH_AND_ADD",
        7 => c"IBV_WR_LOCAL_INV",
        8 => c"IBV_WR_BIND_MW",
        9 => c"IBV_WR_SEND_WITH_INV",
        10 => c"IBV_WR_TSO",
        11 => c"IBV_WR_DRIVER1",
        14 => c"IBV_WR_FLUSH",
        15 => c"IBV_WR_ATOMIC_WRITE",
        _ => c"IBV_WR_UNKNOWN",
    };
    name.as_ptr()
}

/// A rate: its code in `enum ibv_rate`, multiples of 2.5 Gb/s (0 where there is no whole number of
/// them), and Mb/s.
struct Rate {
    code: c_uint,
    multiple: c_int,
    mbps: c_int,
}

const RATES: [Rate; 23] = {
    const fn rate(code: c_uint, multiple: c_int, mbps: c_int) -> Rate {
        Rate {
            code,
            multiple,
            mbps,
        }
    }
    [
        rate(2, 1, 2_500),
        rate(5, 2, 5_000),
        rate(3, 4, 10_000),
        rate(6, 8, 20_000),
        rate(4, 12, 30_000),
        rate(7, 16, 40_000),
        rate(8, 24, 60_000),
        rate(9, 32, 80_000),
        rate(10, 48, 120_000),
        rate(11, 0, 14_062),
        rate(12, 0, 56_250),
        rate(13, 0, 112_500),
        rate(14, 0, 168_750),
        rate(15, 10, 25_781),
        rate(16, 40, 103_125),
        rate(17, 80, 206_250),
        rate(18, 120, 309_375),
        rate(19, 11, 28_125),
        rate(20, 20, 53_125),
        rate(21, 160, 425_000),
        rate(22, 240, 637_500),
        rate(23, 320, 850_000),
        rate(24, 480, 1_275_000),
    ]
};

/// `ibv_rate_to_mult`: −1 where there is none.
pub(crate) unsafe extern "C" fn rate_to_mult(code: c_uint) -> c_int {
    let rate = RATES
        .iter()
        .find(|rate| rate.code == code && rate.multiple > 0);
    rate.map_or(-1, |rate| rate.multiple)
}

/// `mult_to_ibv_rate`: the fastest where there is none.
pub(crate) unsafe extern "C" fn mult_to_rate(multiple: c_int) -> c_uint {
    let rate = RATES
        .iter()
        .find(|rate| rate.multiple == multiple && multiple > 0);
    rate.map_or(0, |rate| rate.code)
}

/// `ibv_rate_to_mbps`: −1 where there is none.
pub(crate) unsafe extern "C" fn rate_to_mbps(code: c_uint) -> c_int {
    let rate = RATES.iter().find(|rate| rate.code == code);
    rate.map_or(-1, |rate| rate.mbps)
}

/// `mbps_to_ibv_rate`: the fastest where there is none.
pub(crate) unsafe extern "C" fn mbps_to_rate(mbps: c_int) -> c_uint {
    let rate = RATES.iter().find(|rate| rate.mbps == mbps);
    rate.map_or(0, |rate| rate.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_words() {
        for status in WcStatus::ALL {
            // SAFETY: text that ends with a zero.
            let words = unsafe { CStr::from_ptr(wc_status_str(status.code().into())) };
            assert_eq!(words.to_str(), Ok(status.description()));
        }
        // SAFETY: as before.
        unsafe {
            assert_eq!(CStr::from_ptr(wc_status_str(-1)), c"unknown");
            assert_eq!(CStr::from_ptr(wc_status_str(99)), c"unknown");
        }
    }

    #[test]
    fn rates_go_there_and_back() {
        for rate in &RATES {
            // SAFETY: numbers only.
            unsafe {
                assert_eq!(mbps_to_rate(rate_to_mbps(rate.code)), rate.code);
                if rate.multiple > 0 {
                    assert_eq!(mult_to_rate(rate_to_mult(rate.code)), rate.code);
                }
            }
        }
        // SAFETY: numbers only.
        unsafe {
            assert_eq!(
                (rate_to_mult(0), rate_to_mbps(1), mbps_to_rate(1)),
                (-1, -1, 0)
            );
        }
    }
}
