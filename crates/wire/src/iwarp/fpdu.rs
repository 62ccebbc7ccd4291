//! FPDUs: how MPA cuts the TCP stream into DDP segments, with CRC and markers (RFC 5044).

use crc32c::crc32c_append;

use super::Error;

/// With markers, one stands at every multiple of this many bytes of the stream, counted from the
/// end of the startup frame.
pub const MARKER_INTERVAL: usize = 512;

const MARKER_LEN: usize = 4;
const CRC_LEN: usize = 4;

/// One framed DDP segment, a view of the stream.
///
/// ```text
/// [marker] length (2)  ULPDU  pad 0-3  CRC (4)       and markers anywhere at 4-byte boundaries
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fpdu<'a> {
    bytes: &'a [u8],
    /// Offset in `bytes` of the first marker, or of the place behind the end where it would be.
    first_marker: usize,
    ulpdu_len: u16,
}

impl<'a> Fpdu<'a> {
    /// The FPDU at the beginning of `stream`. Where the direction has markers, `position` is how
    /// many bytes of the stream lie between the startup frame and here.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] with the whole length while it is not complete.
    pub fn parse(stream: &'a [u8], position: Option<u64>) -> Result<Self, Error> {
        let first_marker = first_marker(position);
        let field = if first_marker == 0 { MARKER_LEN } else { 0 };
        let have = stream.len();
        let Some(&[high, low]) = stream.get(field..).and_then(|rest| rest.first_chunk()) else {
            return Err(Error::Truncated {
                needed: field + 2,
                have,
            });
        };
        let ulpdu_len = u16::from_be_bytes([high, low]);
        let needed = wire_len(ulpdu_len.into(), first_marker);
        match stream.get(..needed) {
            Some(bytes) => Ok(Self {
                bytes,
                first_marker,
                ulpdu_len,
            }),
            None => Err(Error::Truncated { needed, have }),
        }
    }

    /// All its bytes, markers included.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the DDP segment in it.
    pub const fn ulpdu_len(&self) -> u16 {
        self.ulpdu_len
    }

    /// Bytes of padding behind the segment, 0 to 3.
    pub const fn pad(&self) -> usize {
        pad(self.ulpdu_len as usize)
    }

    /// The DDP segment in the pieces that the markers leave of it.
    pub fn ulpdu(&self) -> impl Iterator<Item = &'a [u8]> {
        let (bytes, first_marker) = (self.bytes, self.first_marker);
        let mut rest = usize::from(self.ulpdu_len);
        // The length field comes first; no marker can split it.
        let mut at = if first_marker == 0 { MARKER_LEN + 2 } else { 2 };
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let mut to_marker = to_marker(at, first_marker);
            if to_marker == 0 {
                at += MARKER_LEN;
                to_marker = MARKER_INTERVAL - MARKER_LEN;
            }
            let piece = &bytes[at..at + rest.min(to_marker)];
            at += piece.len();
            rest -= piece.len();
            Some(piece)
        })
    }

    /// The markers: where each stands in [`bytes`](Self::bytes), and how many bytes before it the
    /// FPDU begins, as it says.
    pub fn markers(&self) -> impl Iterator<Item = (usize, u16)> {
        let bytes = self.bytes;
        (self.first_marker..bytes.len())
            .step_by(MARKER_INTERVAL)
            .map(|at| (at, u16::from_be_bytes([bytes[at + 2], bytes[at + 3]])))
    }

    /// Whether each marker points to the length field of this FPDU.
    pub fn markers_ok(&self) -> bool {
        let field = if self.first_marker == 0 {
            MARKER_LEN
        } else {
            0
        };
        self.markers()
            .all(|(at, back)| usize::from(back) == at.saturating_sub(field))
    }

    /// The CRC that it carries; 0 by convention where CRCs are off.
    pub fn crc(&self) -> u32 {
        let (_, crc) = self
            .bytes
            .split_last_chunk()
            .expect("an FPDU ends with a CRC");
        // The one little-endian field of iWARP.
        u32::from_le_bytes(*crc)
    }

    /// The CRC32c of its bytes, markers included.
    pub fn computed_crc(&self) -> u32 {
        crc32c_append(0, &self.bytes[..self.bytes.len() - CRC_LEN])
    }
}

/// Appends the FPDU of one DDP segment to `stream`. `position` is as in [`Fpdu::parse`]; without
/// `crc` the field is 0.
///
/// # Panics
///
/// If the segment is longer than 65 535 bytes.
pub fn emit_fpdu(ulpdu: &[u8], position: Option<u64>, crc: bool, stream: &mut Vec<u8>) {
    let len = u16::try_from(ulpdu.len()).expect("a segment of at most 65535 bytes");
    let start = stream.len();
    let first_marker = first_marker(position);
    let field = if first_marker == 0 { MARKER_LEN } else { 0 };
    let mut put = |byte: u8| {
        let at = stream.len() - start;
        if to_marker(at, first_marker) == 0 {
            let back = u16::try_from(at.saturating_sub(field)).unwrap_or(u16::MAX);
            stream.extend([0, 0]);
            stream.extend(back.to_be_bytes());
        }
        stream.push(byte);
    };
    len.to_be_bytes().into_iter().for_each(&mut put);
    ulpdu.iter().copied().for_each(&mut put);
    (0..pad(ulpdu.len())).for_each(|_| put(0));
    // A marker may stand between pad and CRC; the CRC covers it.
    let at = stream.len() - start;
    if to_marker(at, first_marker) == 0 {
        stream.extend([0, 0]);
        stream.extend(u16::try_from(at - field).unwrap_or(u16::MAX).to_be_bytes());
    }
    let crc = if crc {
        crc32c_append(0, &stream[start..])
    } else {
        0
    };
    stream.extend(crc.to_le_bytes());
}

/// Offset of the first marker from stream position `position`; far away where there are none.
fn first_marker(position: Option<u64>) -> usize {
    match position {
        Some(position) => {
            let past = (position % MARKER_INTERVAL as u64) as usize;
            (MARKER_INTERVAL - past) % MARKER_INTERVAL
        }
        // Farther than any FPDU reaches.
        None => 1 << 20,
    }
}

/// Bytes from offset `at` to the next marker, 0 where one stands there.
const fn to_marker(at: usize, first_marker: usize) -> usize {
    match first_marker.checked_sub(at) {
        Some(distance) => distance,
        None => (MARKER_INTERVAL - (at - first_marker) % MARKER_INTERVAL) % MARKER_INTERVAL,
    }
}

const fn pad(ulpdu_len: usize) -> usize {
    (2 + ulpdu_len).next_multiple_of(4) - (2 + ulpdu_len)
}

/// Bytes of a whole FPDU on the stream.
const fn wire_len(ulpdu_len: usize, first_marker: usize) -> usize {
    let mut len = 2 + ulpdu_len + pad(ulpdu_len) + CRC_LEN;
    let mut marker = first_marker;
    while marker < len {
        len += MARKER_LEN;
        marker += MARKER_INTERVAL;
    }
    len
}
