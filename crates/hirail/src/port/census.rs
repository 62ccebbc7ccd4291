//! Who holds the port, from the kernel's own lists.

use std::fs;

use super::socket::Family;
use super::sys;

/// A UDP socket bound to the port's wildcard address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Listed {
    /// Identifies the socket among processes.
    pub(super) inode: u64,
    /// The user who made it.
    pub(super) uid: u32,
}

/// The sockets bound to the port, in no particular order. Empty where `/proc` does not tell.
pub(super) fn sockets(family: Family, port: u16) -> Vec<Listed> {
    // The thread's own network namespace, which need not be that of the process.
    let file = match family {
        Family::V4 => "/proc/thread-self/net/udp",
        Family::V6 => "/proc/thread-self/net/udp6",
    };
    fs::read_to_string(file)
        .map(|text| parse(&text, port))
        .unwrap_or_default()
}

fn parse(text: &str, port: u16) -> Vec<Listed> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut columns = line.split_ascii_whitespace();
            let (address, local_port) = columns.nth(1)?.split_once(':')?;
            let is_ours = address.bytes().all(|digit| digit == b'0')
                && u16::from_str_radix(local_port, 16) == Ok(port);
            let uid = columns.nth(5)?.parse().ok()?;
            let inode = columns.nth(1)?.parse().ok()?;
            is_ours.then_some(Listed { inode, uid })
        })
        .collect()
}

/// The numbers that follow `prefix` in names of the abstract Unix namespace which are bound, in no
/// particular order. Nothing where `/proc` does not tell.
pub(super) fn numbered_names(prefix: &str) -> Option<Vec<u16>> {
    let text = fs::read("/proc/thread-self/net/unix").ok()?;
    Some(parse_names(&text, prefix))
}

fn parse_names(text: &[u8], prefix: &str) -> Vec<u16> {
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            // Names may hold anything; ours are text, the last column, and begin with a NUL, which is
            // shown as this.
            let (_, name) = str::from_utf8(line).ok()?.split_once(" @")?;
            name.strip_prefix(prefix)?.parse().ok()
        })
        .collect()
}

/// Who keeps us from the port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The kernel's software RoCE driver.
    Rxe,
    /// A process that is no hirail.
    Process {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// A process of another user, or one that cannot be seen from here.
    User(u32),
    /// Nothing is known.
    Unknown,
}

impl core::fmt::Display for Holder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Rxe => f.write_str(
                "the kernel's software RoCE driver (rxe); `rdma link delete` its devices",
            ),
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::User(uid) => write!(f, "a process of user {uid}"),
            Self::Unknown => f.write_str("another program"),
        }
    }
}

/// Finds out who holds the port.
pub(super) fn holder(family: Family, port: u16) -> Holder {
    let Some(listed) = sockets(family, port).first().copied() else {
        return Holder::Unknown;
    };
    if let Some((pid, name)) = process_with(listed.inode) {
        return Holder::Process { pid, name };
    }
    if listed.uid == 0 && fs::exists("/sys/module/rdma_rxe").unwrap_or(false) {
        return Holder::Rxe;
    }
    Holder::User(listed.uid)
}

/// The process that has the socket open, among those that may be looked into.
fn process_with(inode: u64) -> Option<(u32, String)> {
    let link = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let holds = |entry: fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == link.as_str())
        };
        if descriptors.flatten().any(holds) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim_end().to_owned()));
        }
    }
    None
}

/// Whether sockets of this user's are the only ones at the port.
pub(super) fn is_ours(listed: &[Listed]) -> bool {
    listed.iter().all(|socket| socket.uid == sys::user())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_list() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                    uid  timeout inode ref pointer drops\n\
            11840: 00000000:86B6 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20017 2 000000008f931790 0\n\
            14913: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 20016 2 00000000ee4b8056 0\n\
            14913: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20015 2 0000000000b2bdcf 0\n\
            14913: 00000000:12B7 00000000:0000 07 00000000:00000340 00:00000000 00000000     7        0 20013 2 00000000566f5985 3\n";
        let listed = [
            Listed {
                inode: 20016,
                uid: 1000,
            },
            Listed {
                inode: 20013,
                uid: 7,
            },
        ];
        assert_eq!(parse(text, 4791), listed);
        let text6 = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            14913: 00000000000000000000000000000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     5        0 31 2 00000000ee4b8056 0\n";
        assert_eq!(parse(text6, 4791), [Listed { inode: 31, uid: 5 }]);
    }

    #[test]
    fn reads_names() {
        let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000: 00000002 00000000 00000000 0002 01 20016 @hirail/4791/seat/12\n\
            00000000: 00000002 00000000 00000000 0002 01 20017 @hirail/4791/data/12\n\
            00000000: 00000002 00000000 00000000 0002 01 20018 @hirail/47913/seat/4\n\
            00000000: 00000003 00000000 00000000 0001 03    44\n\
            00000000: 00000002 00000000 00010000 0001 01 20020 /run/@hirail/4791/seat/9\n\
            00000000: 00000002 00000000 00010000 0001 01 20021 @\xff\xfe\n\
            00000000: 00000002 00000000 00000000 0002 01 20019 @hirail/4791/seat/515\n";
        assert_eq!(parse_names(text, "hirail/4791/seat/"), [12, 515]);
        let all = numbered_names("hirail/no such port/");
        assert_eq!(all, Some(Vec::new()), "/proc tells");
    }

    /// A socket of our own is found in the list, and traced to this process.
    #[test]
    fn finds_the_holder() {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("port");
        let port = socket.local_addr().expect("bound").port();
        let listed = sockets(Family::V4, port);
        assert_eq!(listed.len(), 1);
        assert!(is_ours(&listed));
        let Holder::Process { pid, .. } = holder(Family::V4, port) else {
            panic!("not found")
        };
        assert_eq!(pid, std::process::id());
        assert_eq!(holder(Family::V4, 1), Holder::Unknown);
    }
}
