//! Multicast groups (`transport.md` 3.19): which UD queue pairs get a copy of what is sent to a
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
