//! What exists, made where; what is left at the end.

use core::fmt;
use std::collections::BTreeMap;

use hirail_vocab::FindingCode;

use crate::finding::{Findings, Trace};
use crate::site::Site;

/// A kind of object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// An open device.
    Device,
    /// A protection domain.
    Pd,
    /// A memory region.
    Mr,
    /// A memory window.
    Mw,
    /// A completion channel.
    Channel,
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// An address handle.
    Ah,
    /// An XRC domain.
    Xrcd,
}

impl Kind {
    /// One, or several.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Device => ("open device", "open devices"),
            Self::Pd => ("PD", "PDs"),
            Self::Mr => ("MR", "MRs"),
            Self::Mw => ("MW", "MWs"),
            Self::Channel => ("completion channel", "completion channels"),
            Self::Cq => ("CQ", "CQs"),
            Self::Qp => ("QP", "QPs"),
            Self::Srq => ("SRQ", "SRQs"),
            Self::Ah => ("AH", "AHs"),
            Self::Xrcd => ("XRC domain", "XRC domains"),
        }
    }

    /// What is said of the place where it was made.
    const fn made(self) -> &'static str {
        match self {
            Self::Device => "device opened",
            Self::Pd => "PD made",
            Self::Mr => "MR registered",
            Self::Mw => "MW made",
            Self::Channel => "completion channel made",
            Self::Cq => "CQ made",
            Self::Qp => "QP made",
            Self::Srq => "SRQ made",
            Self::Ah => "AH made",
            Self::Xrcd => "XRC domain opened",
        }
    }

    /// What destroys it.
    const fn destroyer(self) -> &'static str {
        match self {
            Self::Device => "ibv_close_device",
            Self::Pd => "ibv_dealloc_pd",
            Self::Mr => "ibv_dereg_mr",
            Self::Mw => "ibv_dealloc_mw",
            Self::Channel => "ibv_destroy_comp_channel",
            Self::Cq => "ibv_destroy_cq",
            Self::Qp => "ibv_destroy_qp",
            Self::Srq => "ibv_destroy_srq",
            Self::Ah => "ibv_destroy_ah",
            Self::Xrcd => "ibv_close_xrcd",
        }
    }

    /// Whether programs destroy it only when they are done with something. Regions and address
    /// handles come and go.
    const fn tells_of_an_end(self) -> bool {
        !matches!(self, Self::Mr | Self::Mw | Self::Ah)
    }
}

/// So many of a kind, in words.
fn counted(kind: Kind, count: usize) -> String {
    let (one, many) = kind.names();
    format!("{count} {}", if count == 1 { one } else { many })
}

/// An object.
struct Object {
    device: u64,
    name: String,
    site: Site,
    /// A library made it for itself, and keeps it.
    is_internal: bool,
    /// Events that were taken and not acknowledged.
    owed: i64,
    taken: Option<Site>,
}

/// What exists.
#[derive(Default)]
pub(crate) struct Objects {
    all: BTreeMap<(Kind, u64), Object>,
    /// The program has taken something down.
    tears_down: bool,
}

impl Objects {
    pub(crate) fn add(
        &mut self,
        device: u64,
        kind: Kind,
        object: u64,
        name: String,
        is_internal: bool,
        site: Site,
    ) {
        let object_of = Object {
            device,
            name,
            site,
            is_internal,
            owed: 0,
            taken: None,
        };
        self.all.insert((kind, object), object_of);
    }

    pub(crate) fn remove(&mut self, kind: Kind, object: u64) {
        let known = self.all.remove(&(kind, object));
        self.tears_down |= kind.tells_of_an_end() && known.is_some_and(|known| !known.is_internal);
    }

    /// Where it was made.
    pub(crate) fn site(&self, kind: Kind, object: u64) -> Option<Site> {
        Some(self.all.get(&(kind, object))?.site)
    }

    /// What it is called.
    pub(crate) fn name(&self, kind: Kind, object: u64) -> String {
        let known = self.all.get(&(kind, object));
        known.map_or_else(|| kind.names().0.to_owned(), |known| known.name.clone())
    }

    /// Events of it were taken, or acknowledged where `by` is negative.
    pub(crate) fn events(&mut self, kind: Kind, object: u64, by: i64, site: Option<Site>) {
        if let Some(known) = self.all.get_mut(&(kind, object)) {
            known.owed += by;
            known.taken = site.or(known.taken);
        }
    }

    /// Where the last event of it was taken.
    pub(crate) fn taken_at(&self, kind: Kind, object: u64) -> Option<Site> {
        self.all.get(&(kind, object))?.taken
    }

    /// A device is closed: what is still there cannot be destroyed any more.
    pub(crate) fn close(&mut self, device: u64, closed: Site, findings: &mut Findings) {
        self.remove(Kind::Device, device);
        for ((kind, site), count) in self.left(|object| object.device == device) {
            let traces = vec![
                Trace {
                    role: kind.made(),
                    site,
                },
                Trace {
                    role: "device closed",
                    site: closed,
                },
            ];
            let verb = if count == 1 { "was" } else { "were" };
            let message = format!(
                "{} {verb} still there when the device was closed; {} was not called",
                counted(kind, count),
                kind.destroyer()
            );
            findings.add_many(
                FindingCode::LeakedObjects,
                counted(kind, count),
                message,
                traces,
                count as u64,
            );
        }
        self.all.retain(|_, object| object.device != device);
    }

    /// The program ends.
    pub(crate) fn exit(&mut self, findings: &mut Findings) {
        for object in self.all.values() {
            if object.owed > 0 {
                let message = format!(
                    "{}: {} {} taken and not acknowledged",
                    object.name,
                    object.owed,
                    if object.owed == 1 {
                        "event was"
                    } else {
                        "events were"
                    },
                );
                let mut traces = Vec::new();
                traces.extend(object.taken.map(|site| Trace {
                    role: "event taken",
                    site,
                }));
                traces.push(Trace {
                    role: "made",
                    site: object.site,
                });
                findings.add(
                    FindingCode::UnackedAtExit,
                    object.name.clone(),
                    message,
                    traces,
                );
            }
        }
        let left = self.left(|_| true);
        if !self.tears_down {
            return self.left_open(&left, findings);
        }
        for ((kind, site), count) in left {
            let verb = if count == 1 { "was" } else { "were" };
            let message = format!(
                "{} {verb} still there when the program exited; {} was not called",
                counted(kind, count),
                kind.destroyer()
            );
            let traces = vec![Trace {
                role: kind.made(),
                site,
            }];
            findings.add_many(
                FindingCode::LeakedObjects,
                counted(kind, count),
                message,
                traces,
                count as u64,
            );
        }
    }

    /// One note for a program that just ends.
    fn left_open(&self, left: &BTreeMap<(Kind, Site), usize>, findings: &mut Findings) {
        let mut kinds = BTreeMap::<Kind, usize>::new();
        for (&(kind, _), &count) in left {
            *kinds.entry(kind).or_default() += count;
        }
        let Some((&(kind, site), _)) = left.first_key_value() else {
            return;
        };
        let all: Vec<_> = kinds
            .iter()
            .map(|(&kind, &count)| counted(kind, count))
            .collect();
        findings.add(
            FindingCode::LeftOpen,
            all.join(", "),
            "the program exited and left all that it had made to the system".to_owned(),
            vec![Trace {
                role: kind.made(),
                site,
            }],
        );
    }

    /// How many there are of each kind, by where they were made.
    fn left(&self, is_meant: impl Fn(&Object) -> bool) -> BTreeMap<(Kind, Site), usize> {
        let mut left = BTreeMap::new();
        for ((kind, _), object) in &self.all {
            if is_meant(object) && !object.is_internal {
                *left.entry((*kind, object.site)).or_default() += 1;
            }
        }
        left
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.names().0)
    }
}
