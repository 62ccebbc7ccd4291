//! What members of the port's group tell each other, over Unix datagram sockets named after their
//! blocks. Same host, same user, same version: fields are in host order.
//!
//! The sockets of the group travel as descriptors with a [`Message::Share`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::socket::Family;
use super::steering::QpnBlock;
use super::sys;

/// Begins every message; the last byte is the version.
const MARK: [u8; 4] = *b"hrC\x01";
const HEADER: usize = 32;
const ENTRY: usize = 32;
/// Messages of other users and other versions that are dropped at one look.
const MOST_IGNORED: usize = 64;
/// Bytes of the longest message.
pub(super) const MAX: usize = HEADER + sys::MAX_PASSED * ENTRY;

/// A socket of the group: what everybody knows about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) family: Family,
    /// The block it serves; [`QpnBlock::COMMON`] for a socket that all members read.
    pub(super) block: QpnBlock,
    /// Where the kernel has it in the group's list.
    pub(super) position: u16,
    /// When that was found out ([`sys::now_ns`]); the later knowledge wins.
    pub(super) stamp: u64,
    /// Identifies the socket among processes.
    pub(super) inode: u64,
}

/// A message.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// "Which sockets do you hold?" The answer goes to the named socket.
    Ask { reply_to: String },
    /// Sockets, with their descriptors. `last` where no more follow.
    Share { entries: Vec<Entry>, last: bool },
    /// Sockets that have moved. Whoever holds them adapts.
    Moved { entries: Vec<Entry> },
    /// "The probe with this nonce came to me, by this socket."
    Found { nonce: u64, entry: Entry },
}

const ASK: u8 = 1;
const SHARE: u8 = 2;
const MOVED: u8 = 3;
const FOUND: u8 = 4;

impl Message {
    /// Sends the message, with the descriptors that its entries stand for.
    pub(super) fn send(
        &self,
        from: BorrowedFd<'_>,
        name: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = self.encode();
        sys::send_with(
            from,
            &sys::Address::named(name),
            &[io::IoSlice::new(&bytes)],
            descriptors,
        )
    }

    /// Receives a message of this user's. `None` when there is none.
    pub(super) fn receive(
        socket: BorrowedFd<'_>,
        buffer: &mut [u8; MAX],
    ) -> Option<(Self, Vec<OwnedFd>)> {
        // Others may write here too: not for ever at a time.
        for _ in 0..MOST_IGNORED {
            let received = sys::receive_with(socket.as_fd(), buffer).ok()?;
            if received.uid != Some(sys::user()) {
                continue;
            }
            if let Some(message) = Self::decode(&buffer[..received.len]) {
                return Some((message, received.passed));
            }
        }
        None
    }

    fn encode(&self) -> Vec<u8> {
        let (kind, last, nonce) = match self {
            Self::Ask { .. } => (ASK, true, 0),
            Self::Share { last, .. } => (SHARE, *last, 0),
            Self::Moved { .. } => (MOVED, true, 0),
            Self::Found { nonce, .. } => (FOUND, true, *nonce),
        };
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = kind;
        bytes[5] = u8::from(last);
        bytes[8..16].copy_from_slice(&nonce.to_ne_bytes());
        match self {
            Self::Ask { reply_to } => bytes.extend(reply_to.bytes()),
            Self::Share { entries, .. } | Self::Moved { entries } => {
                bytes.extend(entries.iter().flat_map(encode_entry));
            }
            Self::Found { entry, .. } => bytes.extend(encode_entry(entry)),
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, body) = bytes.split_first_chunk::<HEADER>()?;
        if header[..4] != MARK {
            return None;
        }
        let entries = || {
            body.as_chunks::<ENTRY>()
                .0
                .iter()
                .map(decode_entry)
                .collect()
        };
        Some(match header[4] {
            ASK => Self::Ask {
                reply_to: str::from_utf8(body).ok()?.to_owned(),
            },
            SHARE => Self::Share {
                entries: entries(),
                last: header[5] == 1,
            },
            MOVED => Self::Moved { entries: entries() },
            FOUND => Self::Found {
                nonce: u64::from_ne_bytes(*header[8..].first_chunk()?),
                entry: decode_entry(body.first_chunk()?),
            },
            _ => return None,
        })
    }
}

fn encode_entry(entry: &Entry) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[0] = entry.family.index() as u8;
    bytes[2..4].copy_from_slice(&entry.block.number().to_ne_bytes());
    bytes[4..6].copy_from_slice(&entry.position.to_ne_bytes());
    bytes[8..16].copy_from_slice(&entry.stamp.to_ne_bytes());
    bytes[16..24].copy_from_slice(&entry.inode.to_ne_bytes());
    bytes
}

fn decode_entry(bytes: &[u8; ENTRY]) -> Entry {
    let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let long = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    Entry {
        family: if bytes[0] == 0 {
            Family::V4
        } else {
            Family::V6
        },
        block: QpnBlock::new(short(2)),
        position: short(4),
        stamp: long(8),
        inode: long(16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let entry = Entry {
            family: Family::V6,
            block: QpnBlock::new(0x1ab),
            position: 0x0102,
            stamp: u64::MAX - 3,
            inode: 1 << 40,
        };
        let other = Entry {
            family: Family::V4,
            ..entry
        };
        for message in [
            Message::Ask {
                reply_to: "00a1f".to_owned(),
            },
            Message::Share {
                entries: vec![entry, other],
                last: false,
            },
            Message::Share {
                entries: vec![],
                last: true,
            },
            Message::Moved {
                entries: vec![other; sys::MAX_PASSED],
            },
            Message::Found {
                nonce: 0x0123_4567_89ab_cdef,
                entry,
            },
        ] {
            let bytes = message.encode();
            assert!(bytes.len() <= MAX);
            assert_eq!(Message::decode(&bytes), Some(message));
        }
        assert_eq!(Message::decode(&[0; HEADER]), None);
        assert_eq!(Message::decode(&[]), None);
    }
}
