//! Which paths are led where, and back.

use core::ffi::CStr;

/// The places that are led away, and all below them.
const PLACES: &[&str] = &[
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc/rdma_cm",
    "/sys/devices/pciffff:00",
    "/dev/infiniband",
];

/// Longest path, with its zero (limits.h).
pub(crate) const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Another path for a call, in memory of the caller's.
pub(crate) struct Redirected {
    bytes: [u8; PATH_MAX],
}

impl Redirected {
    pub(crate) fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// Where `path` leads below `root`; nothing where it stays as it is.
    pub(crate) fn of(path: &CStr, root: &CStr) -> Option<Self> {
        let path = path.to_bytes();
        // Almost all calls end here.
        if !matches!(path, [b'/', b's' | b'd' | b'/' | b'.', ..]) {
            return None;
        }
        let root = root.to_bytes();
        let mut bytes = [0; PATH_MAX];
        bytes.get_mut(..root.len())?.copy_from_slice(root);
        let mut end = root.len();
        // Names that are the same place: `/sys//class/./infiniband`.
        for name in path.split(|byte| *byte == b'/') {
            if matches!(name, b"" | b".") {
                continue;
            }
            let place = bytes.get_mut(end..end + 1 + name.len())?;
            place[0] = b'/';
            place[1..].copy_from_slice(name);
            end += place.len();
        }
        // One byte is left for the zero.
        let is_known = end < PATH_MAX && is_known(&bytes[root.len()..end]);
        is_known.then_some(Self { bytes })
    }
}

fn is_known(path: &[u8]) -> bool {
    PLACES.iter().any(|place| {
        let rest = path.strip_prefix(place.as_bytes());
        matches!(rest, Some([] | [b'/', ..]))
    })
}

/// How many bytes in front of a path that came back say where the root is.
pub(crate) fn excess(path: &CStr, root: &CStr) -> usize {
    let rest = path.to_bytes().strip_prefix(root.to_bytes());
    match rest {
        Some([b'/', ..]) if !root.is_empty() => root.count_bytes(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn redirected(path: &str) -> Option<String> {
        let path = CString::new(path).unwrap();
        let redirected = Redirected::of(&path, c"/run/user/1/view")?;
        Some(redirected.path().to_str().unwrap().to_owned())
    }

    #[test]
    fn places_of_devices_are_led_below_the_root() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/hirail_lo/node_type",
            "/sys/class/infiniband_verbs/uverbs0",
            "/sys/class/misc/rdma_cm/abi_version",
            "/dev/infiniband/uverbs0",
            "/sys/devices/pciffff:00/ffff:00:00.0",
        ] {
            assert_eq!(redirected(path), Some(format!("/run/user/1/view{path}")));
        }
        let same = Some("/run/user/1/view/sys/class/infiniband/x".to_owned());
        assert_eq!(redirected("/sys//class/./infiniband/x/"), same);
        assert_eq!(redirected("//sys/class/infiniband/x"), same);
    }

    #[test]
    fn other_places_stay() {
        for path in [
            "",
            "/",
            "/sys",
            "/sys/class",
            "/sys/class/infinibands",
            "/sys/class/misc",
            "/dev/null",
            "/dev/infiniband2",
            "sys/class/infiniband",
            "/home/sys/class/infiniband",
            "/sys/devices/pciffff:001",
        ] {
            assert_eq!(redirected(path), None, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_too_long_stays() {
        let room = PATH_MAX - "/run/user/1/view/sys/class/infiniband/".len() - 1;
        let path = |length| format!("/sys/class/infiniband/{}", "x".repeat(length));
        assert!(redirected(&path(room)).is_some());
        assert_eq!(redirected(&path(room + 1)), None);
        assert_eq!(redirected(&path(2 * PATH_MAX)), None);
    }

    #[test]
    fn what_comes_back_loses_the_root() {
        let root = c"/run/user/1/view";
        assert_eq!(excess(c"/run/user/1/view/sys/x", root), 16);
        for other in [
            c"/run/user/1/viewer/x",
            c"/run/user/1/view",
            c"/dev/null",
            c"",
        ] {
            assert_eq!(excess(other, root), 0);
        }
        assert_eq!(excess(c"/sys", c""), 0);
    }
}
