//! Multicast groups (IBTA Vol 1, chapter 10): which UD queue pairs get a copy of what is sent to a
//! group's GID. Joining the group on the network is the host's job.

use std::collections::BTreeMap;

use hirail_wire::{Gid, Qpn};

use crate::error::{Object, VerbError};

/// Limits of a [`GroupTable`], as a device reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// Groups (`max_mcast_grp`).
    pub groups: u32,
    /// Queue pairs in one group (`max_mcast_qp_attach`).
    pub attached: u32,
    /// Attachments in all groups (`max_total_mcast_qp_attach`).
    pub total: u32,
}

/// The device's multicast groups. A group exists while a queue pair is attached to it.
#[derive(Debug)]
pub struct GroupTable {
    limits: GroupLimits,
    /// Members in the order in which they were attached; never an empty list.
    groups: BTreeMap<Gid, Vec<Qpn>>,
    /// Attachments of each queue pair that has any.
    attachments: BTreeMap<Qpn, u32>,
    total: u32,
}

/// What an attachment changed for the network.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupChange {
    /// The group has other members too.
    None,
    /// The first member was attached: join the group.
    Opened,
    /// The last member left: leave the group.
    Closed,
}

impl GroupTable {
    /// No groups.
    pub const fn new(limits: GroupLimits) -> Self {
        Self {
            limits,
            groups: BTreeMap::new(),
            attachments: BTreeMap::new(),
            total: 0,
        }
    }

    /// Attaches a queue pair to a group. Attaching it again changes nothing.
    pub fn attach(&mut self, group: Gid, qpn: Qpn) -> Result<GroupChange, VerbError> {
        if !group.is_multicast() {
            return Err(VerbError::NotMulticast { got: group });
        }
        let members = self.members(group);
        if members.contains(&qpn) {
            return Ok(GroupChange::None);
        }
        let GroupLimits {
            groups,
            attached,
            total,
        } = self.limits;
        let opens = members.is_empty();
        if opens && self.groups.len() == groups as usize {
            return Err(VerbError::Exhausted {
                object: Object::Group,
                limit: groups,
            });
        }
        if members.len() == attached as usize {
            return Err(VerbError::Exhausted {
                object: Object::Attachment,
                limit: attached,
            });
        }
        if self.total == total {
            return Err(VerbError::Exhausted {
                object: Object::Attachment,
                limit: total,
            });
        }
        self.groups.entry(group).or_default().push(qpn);
        *self.attachments.entry(qpn).or_default() += 1;
        self.total += 1;
        Ok(if opens {
            GroupChange::Opened
        } else {
            GroupChange::None
        })
    }

    /// Detaches a queue pair from a group.
    pub fn detach(&mut self, group: Gid, qpn: Qpn) -> Result<GroupChange, VerbError> {
        let absent = VerbError::NotAttached { group, qpn };
        let members = self.groups.get_mut(&group).ok_or(absent)?;
        let at = members
            .iter()
            .position(|&member| member == qpn)
            .ok_or(absent)?;
        members.remove(at);
        let closes = members.is_empty();
        if closes {
            self.groups.remove(&group);
        }
        self.total -= 1;
        if let Some(count) = self.attachments.get_mut(&qpn) {
            *count -= 1;
            if *count == 0 {
                self.attachments.remove(&qpn);
            }
        }
        Ok(if closes {
            GroupChange::Closed
        } else {
            GroupChange::None
        })
    }

    /// The queue pairs that get a copy of what is sent to `group`.
    pub fn members(&self, group: Gid) -> &[Qpn] {
        self.groups.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Whether a queue pair may be destroyed: fails while it is attached to any group.
    pub fn check_detached(&self, qpn: Qpn) -> Result<(), VerbError> {
        match self.attachments.get(&qpn) {
            None => Ok(()),
            Some(&users) => Err(VerbError::Busy {
                object: Object::Qp,
                id: qpn.value(),
                users,
            }),
        }
    }

    /// The groups that have members, in the order of their GIDs.
    pub fn groups(&self) -> impl Iterator<Item = Gid> {
        self.groups.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: GroupLimits = GroupLimits {
        groups: 2,
        attached: 3,
        total: 4,
    };

    fn group(n: u8) -> Gid {
        Ipv4Addr::new(239, 1, 1, n).into()
    }

    fn qpn(n: u32) -> Qpn {
        Qpn::new(n)
    }

    #[test]
    fn the_network_is_joined_with_the_first_member_and_left_with_the_last() {
        let mut table = GroupTable::new(LIMITS);
        assert_eq!(table.attach(group(1), qpn(7)), Ok(GroupChange::Opened));
        assert_eq!(table.attach(group(1), qpn(5)), Ok(GroupChange::None));
        assert_eq!(
            table.attach(group(1), qpn(7)),
            Ok(GroupChange::None),
            "again"
        );
        assert_eq!(table.members(group(1)), [qpn(7), qpn(5)]);
        assert_eq!(table.members(group(2)), []);
        assert_eq!(table.detach(group(1), qpn(7)), Ok(GroupChange::None));
        let absent = VerbError::NotAttached {
            group: group(1),
            qpn: qpn(7),
        };
        assert_eq!(table.detach(group(1), qpn(7)), Err(absent));
        assert_eq!(table.detach(group(1), qpn(5)), Ok(GroupChange::Closed));
        assert_eq!(table.groups().count(), 0);
    }

    #[test]
    fn only_multicast_gids_are_groups() {
        let mut table = GroupTable::new(LIMITS);
        let got = Ipv4Addr::LOCALHOST.into();
        assert_eq!(
            table.attach(got, qpn(7)),
            Err(VerbError::NotMulticast { got })
        );
        let got = core::net::Ipv6Addr::LOCALHOST.into();
        assert_eq!(
            table.attach(got, qpn(7)),
            Err(VerbError::NotMulticast { got })
        );
        let v6 = core::net::Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1).into();
        assert_eq!(table.attach(v6, qpn(7)), Ok(GroupChange::Opened));
    }

    #[test]
    fn every_limit_holds() {
        let exhausted = |object, limit| Err(VerbError::Exhausted { object, limit });
        let mut table = GroupTable::new(LIMITS);
        for n in 0..3 {
            assert!(table.attach(group(1), qpn(n)).is_ok());
        }
        assert_eq!(
            table.attach(group(1), qpn(3)),
            exhausted(Object::Attachment, 3)
        );
        assert!(table.attach(group(2), qpn(3)).is_ok());
        assert_eq!(
            table.attach(group(2), qpn(4)),
            exhausted(Object::Attachment, 4)
        );
        assert_eq!(table.attach(group(3), qpn(4)), exhausted(Object::Group, 2));
    }

    /// Detach before destroy.
    #[test]
    fn an_attached_queue_pair_is_busy() {
        let mut table = GroupTable::new(LIMITS);
        for n in 1..3 {
            assert!(table.attach(group(n), qpn(7)).is_ok());
        }
        let busy = |users| {
            Err(VerbError::Busy {
                object: Object::Qp,
                id: 7,
                users,
            })
        };
        assert_eq!(table.check_detached(qpn(7)), busy(2));
        assert!(table.detach(group(1), qpn(7)).is_ok());
        assert_eq!(table.check_detached(qpn(7)), busy(1));
        assert!(table.detach(group(2), qpn(7)).is_ok());
        assert_eq!(table.check_detached(qpn(7)), Ok(()));
    }

    proptest! {
        /// The table is a bounded set of pairs.
        #[test]
        fn table_agrees_with_a_set(
            ops in prop::collection::vec((any::<bool>(), 0..4u8, 0..4u32), 1..60),
        ) {
            let limits = GroupLimits { groups: 3, attached: 3, total: 6 };
            let mut table = GroupTable::new(limits);
            let mut pairs = BTreeSet::new();
            let members = |pairs: &BTreeSet<_>, g| pairs.iter().filter(|&&(of, _)| of == g).count();
            for (attaches, g, n) in ops {
                let before = members(&pairs, g);
                let groups = (0..4).filter(|&g| members(&pairs, g) > 0).count();
                let is_member = pairs.contains(&(g, n));
                if attaches {
                    let room = before < 3 && pairs.len() < 6 && (before > 0 || groups < 3);
                    let expected = (is_member || room).then_some(match before {
                        0 => GroupChange::Opened,
                        _ => GroupChange::None,
                    });
                    prop_assert_eq!(table.attach(group(g), qpn(n)).ok(), expected);
                    if expected.is_some() {
                        pairs.insert((g, n));
                    }
                } else {
                    let expected = is_member.then_some(match before {
                        1 => GroupChange::Closed,
                        _ => GroupChange::None,
                    });
                    prop_assert_eq!(table.detach(group(g), qpn(n)).ok(), expected);
                    pairs.remove(&(g, n));
                }
                for g in 0..4 {
                    let of: BTreeSet<_> = table.members(group(g)).iter().copied().collect();
                    let expected: BTreeSet<_> =
                        pairs.iter().filter(|&&(of, _)| of == g).map(|&(_, n)| qpn(n)).collect();
                    prop_assert_eq!(of, expected);
                }
                for n in 0..4 {
                    let detached = pairs.iter().all(|&(_, member)| member != n);
                    prop_assert_eq!(table.check_detached(qpn(n)).is_ok(), detached);
                }
            }
        }
    }
}
