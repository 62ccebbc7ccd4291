//! Registered memory, what was registered once, and what is wrong with a key.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hirail_vocab::FindingCode;

use crate::finding::Trace;
use crate::site::Site;

/// Rights, with the bits of `enum ibv_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights(pub u32);

impl Rights {
    /// The device may write for this program.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);

    const NAMES: [(Self, &'static str); 4] = [
        (Self::LOCAL_WRITE, "LOCAL_WRITE"),
        (Self::REMOTE_WRITE, "REMOTE_WRITE"),
        (Self::REMOTE_READ, "REMOTE_READ"),
        (Self::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
    ];

    /// Whether all of `needed` are there.
    pub const fn contain(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Whether peers may change the memory.
    pub const fn let_peers_write(self) -> bool {
        self.0 & (Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0) != 0
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        for (right, name) in Self::NAMES {
            if self.contain(right) {
                let bar = if is_first { "" } else { " | " };
                write!(f, "{bar}IBV_ACCESS_{name}")?;
                is_first = false;
            }
        }
        if is_first {
            f.write_str("0 (local reads only)")?;
        }
        Ok(())
    }
}

/// A scatter/gather entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Address, as the key counts.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key.
    pub lkey: u32,
}

/// A memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its device.
    pub device: u64,
    /// Its protection domain.
    pub pd: u64,
    /// Where it lies in the process.
    pub addr: u64,
    /// What its first byte is called in requests.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// Who may do what.
    pub rights: Rights,
    /// Its local key.
    pub lkey: u32,
    /// Its remote key.
    pub rkey: u32,
}

impl Region {
    fn contains(&self, addr: u64, length: u64) -> bool {
        let offset = addr.wrapping_sub(self.iova);
        offset <= self.length && length <= self.length - offset
    }

    /// Where a byte that requests call `addr` lies in the process.
    pub(crate) const fn host(&self, addr: u64) -> u64 {
        self.addr.wrapping_add(addr.wrapping_sub(self.iova))
    }
}

/// Its bytes, as requests call them.
impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iova, length, .. } = self;
        let end = iova.wrapping_add(*length);
        write!(f, "the MR of {length} bytes at {iova:#x} to {end:#x}")
    }
}

/// A region that is there.
pub(crate) struct Live {
    pub(crate) region: Region,
    pub(crate) site: Site,
    /// Entries of posted requests that name it.
    pub(crate) uses: u64,
}

/// A region that was there once.
#[derive(Clone, Copy)]
struct Dead {
    region: Region,
    made: Site,
    gone: Site,
}

/// What is wrong with a key, a range or a right.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) code: FindingCode,
    /// As the end of a sentence that names the key.
    pub(crate) text: String,
    /// Places that belong to it.
    pub(crate) traces: Vec<Trace>,
}

/// Dead keys that are remembered.
const REMEMBERED: usize = 1 << 16;

/// All keys of all devices.
#[derive(Default)]
pub(crate) struct Keys {
    regions: BTreeMap<u64, Live>,
    lkeys: BTreeMap<(u64, u32), u64>,
    rkeys: BTreeMap<(u64, u32), u64>,
    dead: BTreeMap<(u64, u32), Dead>,
    /// Oldest first.
    died: VecDeque<(u64, u32)>,
    /// What keys of windows have in common: all but the last byte.
    windows: BTreeSet<(u64, u32)>,
}

impl Keys {
    pub(crate) fn add(&mut self, mr: u64, region: Region, site: Site) {
        let Region {
            device, lkey, rkey, ..
        } = region;
        self.lkeys.insert((device, lkey), mr);
        self.rkeys.insert((device, rkey), mr);
        self.dead.remove(&(device, lkey));
        self.dead.remove(&(device, rkey));
        let live = Live {
            region,
            site,
            uses: 0,
        };
        self.regions.insert(mr, live);
    }

    pub(crate) fn remove(&mut self, mr: u64, gone: Site) {
        let Some(live) = self.regions.remove(&mr) else {
            return;
        };
        let region = live.region;
        let made = live.site;
        for key in [region.lkey, region.rkey] {
            let key = (region.device, key);
            self.lkeys.remove(&key);
            self.rkeys.remove(&key);
            let dead = Dead { region, made, gone };
            if self.dead.insert(key, dead).is_none() {
                self.died.push_back(key);
            }
        }
        while self.died.len() > REMEMBERED {
            if let Some(key) = self.died.pop_front() {
                self.dead.remove(&key);
            }
        }
    }

    pub(crate) fn add_window(&mut self, device: u64, rkey: u32) {
        self.windows.insert((device, rkey >> 8));
    }

    /// The region behind its object.
    pub(crate) fn region(&self, mr: u64) -> Option<&Live> {
        self.regions.get(&mr)
    }

    /// The object of a local key.
    pub(crate) fn mr_of(&self, device: u64, lkey: u32) -> Option<u64> {
        self.lkeys.get(&(device, lkey)).copied()
    }

    /// The region of a local key.
    pub(crate) fn local(&self, device: u64, lkey: u32) -> Option<&Region> {
        Some(&self.regions.get(&self.mr_of(device, lkey)?)?.region)
    }

    /// A posted request names the key, or does no longer (`by` is negative).
    pub(crate) fn count(&mut self, device: u64, lkey: u32, by: i64) {
        let mr = self.mr_of(device, lkey);
        if let Some(live) = mr.and_then(|mr| self.regions.get_mut(&mr)) {
            live.uses = live.uses.saturating_add_signed(by);
        }
    }

    fn buried(&self, device: u64, key: u32) -> Option<Wrong> {
        let dead = self.dead.get(&(device, key))?;
        Some(Wrong {
            code: FindingCode::UseAfterDeregister,
            text: format!("belonged to {}, which has been deregistered", dead.region),
            traces: vec![
                Trace {
                    role: "deregistered",
                    site: dead.gone,
                },
                Trace {
                    role: "registered",
                    site: dead.made,
                },
            ],
        })
    }

    /// What is wrong with an entry of a work request of a queue in domain `pd`.
    pub(crate) fn judge_local(&self, device: u64, pd: u64, sge: Sge, write: bool) -> Option<Wrong> {
        if sge.length == 0 {
            return None;
        }
        let need = if write {
            Rights::LOCAL_WRITE
        } else {
            Rights(0)
        };
        let Some(live) = self
            .mr_of(device, sge.lkey)
            .and_then(|mr| self.regions.get(&mr))
        else {
            if let Some(wrong) = self.buried(device, sge.lkey) {
                return Some(wrong);
            }
            let other = self.rkeys.get(&(device, sge.lkey));
            let other = other.and_then(|mr| self.regions.get(mr));
            return Some(self.unknown(other, "rkey", "lkey"));
        };
        judge(live, pd, sge.addr, sge.length.into(), need, "queue pair")
    }

    /// What is wrong with what a peer asks of a queue pair in domain `pd`.
    pub(crate) fn judge_remote(
        &self,
        device: u64,
        pd: u64,
        key: u32,
        range: (u64, u64),
        need: Rights,
    ) -> Option<Wrong> {
        let Some(live) = self
            .rkeys
            .get(&(device, key))
            .and_then(|mr| self.regions.get(mr))
        else {
            if let Some(wrong) = self.buried(device, key) {
                return Some(wrong);
            }
            if self.windows.contains(&(device, key >> 8)) {
                return Some(Wrong {
                    code: FindingCode::UnknownKey,
                    text: "belongs to a memory window that does not grant this now: it is bound \
                           to other memory, with other rights, for another queue pair, or under \
                           another key"
                        .to_owned(),
                    traces: Vec::new(),
                });
            }
            let other = self.mr_of(device, key);
            let other = other.and_then(|mr| self.regions.get(&mr));
            return Some(self.unknown(other, "lkey", "rkey"));
        };
        judge(live, pd, range.0, range.1, need, "queue pair")
    }

    fn unknown(&self, other: Option<&Live>, is: &str, should: &str) -> Wrong {
        let Some(other) = other else {
            return Wrong {
                code: FindingCode::UnknownKey,
                text: format!(
                    "belongs to no region of this process ({} registered)",
                    match self.regions.len() {
                        1 => "1 is".to_owned(),
                        count => format!("{count} are"),
                    }
                ),
                traces: Vec::new(),
            };
        };
        Wrong {
            code: FindingCode::UnknownKey,
            text: format!("is the {is} of {}, not its {should}", other.region),
            traces: vec![Trace {
                role: "registered",
                site: other.site,
            }],
        }
    }
}

/// What is wrong with bytes and rights under a key that exists.
fn judge(live: &Live, pd: u64, addr: u64, length: u64, need: Rights, whose: &str) -> Option<Wrong> {
    let region = &live.region;
    let (code, text) = if region.pd != pd {
        let text = format!("belongs to {region} of another PD than the {whose}'s");
        (FindingCode::PdMismatch, text)
    } else if !region.rights.contain(need) {
        let text = format!(
            "belongs to {region}, registered with {}, which lacks {need}",
            region.rights
        );
        (FindingCode::MissingAccess, text)
    } else if !region.contains(addr, length) {
        let end = addr.wrapping_add(length);
        let region_end = region.iova.wrapping_add(region.length);
        let beyond = if addr < region.iova {
            format!("it begins {} bytes before it", region.iova - addr)
        } else {
            format!("it ends {} bytes behind it", end.wrapping_sub(region_end))
        };
        (
            FindingCode::OutOfRange,
            format!("belongs to {region}: {beyond}"),
        )
    } else {
        return None;
    };
    Some(Wrong {
        code,
        text,
        traces: vec![Trace {
            role: "registered",
            site: live.site,
        }],
    })
}
