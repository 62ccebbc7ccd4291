//! One direction of a TCP connection, put back into order.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hirail_wire::iwarp::TcpHeader;

/// Source and destination, each with its port.
pub(super) type Key = [(IpAddr, u16); 2];

/// Bytes that are kept while earlier ones are missing.
const MOST_AHEAD: usize = 1 << 20;

/// Puts segments into order and hands their bytes out once.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The next sequence number, once the stream has begun.
    next: Option<u32>,
    /// Bytes in order that have not been taken.
    ready: Vec<u8>,
    /// Segments beyond a gap, by their position.
    ahead: BTreeMap<u64, Vec<u8>>,
    ahead_len: usize,
    /// Bytes handed over to `ready` so far: position of `next`.
    position: u64,
    /// A gap was given up.
    broken: bool,
}

/// What a segment did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// Nothing to put in order.
    Empty,
    InOrder,
    /// All of it was there before.
    Again,
    /// So many bytes before it are missing.
    AfterGap(u64),
    /// It filled a gap.
    Late,
    /// So much is missing that the stream is given up.
    Broken,
}

impl Stream {
    /// Takes a segment.
    pub(super) fn take(&mut self, header: &TcpHeader, payload: &[u8]) -> Arrival {
        if header.has(TcpHeader::SYN) {
            // Data may come with the SYN, which takes a sequence number itself.
            let first = header.sequence.wrapping_add(1);
            if self.next.is_none() {
                self.next = Some(first);
            }
            return self.data(first, payload);
        }
        self.data(header.sequence, payload)
    }

    fn data(&mut self, sequence: u32, payload: &[u8]) -> Arrival {
        if payload.is_empty() {
            return Arrival::Empty;
        }
        if self.broken {
            return Arrival::Broken;
        }
        let next = *self.next.get_or_insert(sequence);
        let distance = sequence.wrapping_sub(next).cast_signed();
        let Ok(gap) = u64::try_from(distance) else {
            let known = usize::try_from(distance.unsigned_abs()).unwrap_or(usize::MAX);
            return match payload.get(known..) {
                None | Some([]) => Arrival::Again,
                Some(new) => {
                    self.append(new);
                    Arrival::InOrder
                }
            };
        };
        if gap > 0 {
            return self.keep(gap, payload);
        }
        let fills = !self.ahead.is_empty();
        self.append(payload);
        if fills {
            Arrival::Late
        } else {
            Arrival::InOrder
        }
    }

    /// Keeps a segment that comes `gap` bytes too early.
    fn keep(&mut self, gap: u64, payload: &[u8]) -> Arrival {
        let place = self.position + gap;
        let old = self.ahead.get(&place).map_or(0, Vec::len);
        if old >= payload.len() {
            return Arrival::Again;
        }
        self.ahead_len += payload.len() - old;
        if self.ahead_len > MOST_AHEAD {
            self.broken = true;
            self.ahead.clear();
            return Arrival::Broken;
        }
        let first = self.ahead.is_empty();
        self.ahead.insert(place, payload.to_vec());
        if first {
            Arrival::AfterGap(gap)
        } else {
            Arrival::InOrder
        }
    }

    /// Adds bytes that are next, and what was waiting behind them.
    fn append(&mut self, payload: &[u8]) {
        self.advance(payload);
        while let Some(entry) = self.ahead.first_entry()
            && *entry.key() <= self.position
        {
            let (place, segment) = entry.remove_entry();
            self.ahead_len -= segment.len();
            let known = usize::try_from(self.position - place).unwrap_or(usize::MAX);
            if let Some(new) = segment.get(known..) {
                self.advance(new);
            }
        }
    }

    fn advance(&mut self, bytes: &[u8]) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "sequence numbers wrap at 2^32"
        )]
        let len = bytes.len() as u32;
        self.next = self.next.map(|next| next.wrapping_add(len));
        self.position += bytes.len() as u64;
        self.ready.extend_from_slice(bytes);
    }

    /// The bytes in order that have not been taken.
    pub(super) fn ready(&self) -> &[u8] {
        &self.ready
    }

    /// Drops the first `len` of them.
    pub(super) fn consume(&mut self, len: usize) {
        self.ready.drain(..len);
    }

    /// Nobody looks at the bytes any more: forget them.
    pub(super) fn discard(&mut self) {
        self.ready.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(stream: &mut Stream, sequence: u32, flags: u8, payload: &[u8]) -> Arrival {
        let header = TcpHeader {
            source_port: 1,
            dest_port: 2,
            sequence,
            acknowledgement: 0,
            flags,
            window: 0,
        };
        stream.take(&header, payload)
    }

    #[test]
    fn segments_are_put_in_order() {
        let mut stream = Stream::default();
        let mut take = |sequence: u32, flags, payload: &[u8]| {
            let arrival = segment(&mut stream, sequence, flags, payload);
            (arrival, stream.ready().to_vec())
        };
        let syn = u32::MAX - 2;
        let abc = u32::MAX - 1;
        assert_eq!(take(syn, TcpHeader::SYN, b""), (Arrival::Empty, vec![]));
        assert_eq!(take(abc, 0, b"abc"), (Arrival::InOrder, b"abc".to_vec()));
        assert_eq!(take(3, 0, b"fgh"), (Arrival::AfterGap(2), b"abc".to_vec()));
        assert_eq!(take(6, 0, b"ij"), (Arrival::InOrder, b"abc".to_vec()));
        assert_eq!(take(3, 0, b"fgh"), (Arrival::Again, b"abc".to_vec()));
        assert_eq!(take(1, 0, b"de"), (Arrival::Late, b"abcdefghij".to_vec()));
        assert_eq!(
            take(abc, 0, b"abc"),
            (Arrival::Again, b"abcdefghij".to_vec())
        );
        let with_one_new_byte = (Arrival::InOrder, b"abcdefghijk".to_vec());
        assert_eq!(take(6, 0, b"ijk"), with_one_new_byte);
        stream.consume(10);
        assert_eq!(stream.ready(), b"k");
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut stream = Stream::default();
        segment(&mut stream, 0, 0, b"x");
        let mut sequence = 2;
        let block = [0; 60_000];
        while segment(&mut stream, sequence, 0, &block) != Arrival::Broken {
            sequence += 60_000;
            assert!(sequence < 2_000_000);
        }
        assert_eq!(segment(&mut stream, 1, 0, b"y"), Arrival::Broken);
    }
}
