//! The fuzz targets' checks on seeded input: vectors with a few bytes changed, cut or lengthened,
//! and plain noise. The same input every time, in a second or two.

use frames::frames;

mod checks;
mod frames;

/// xorshift64*: enough to wander through bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from((self.next() >> 32) % limit as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// `seed`, damaged.
    fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1));
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => {
                    let more = self.below(12);
                    bytes.extend(self.bytes(more));
                }
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.insert(at, self.byte()),
                4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                5 if at < bytes.len() => bytes[at] = self.byte(),
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
        bytes
    }

    /// Damages `frame` but repairs what would hide the damage: the IPv4 header checksum.
    fn mutate_frame(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = self.mutate(frame);
        let at = if bytes.get(12..14) == Some(&[0x81, 0x00]) {
            18
        } else {
            14
        };
        if let Some(header) = bytes.get_mut(at..at + 20)
            && header[0] == 0x45
        {
            header[10..12].fill(0);
            let words = header
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            let [.., high, low] = (!sum).to_be_bytes();
            header[10..12].copy_from_slice(&[high, low]);
        }
        bytes
    }
}

/// Bytes from BTH to pad of the frames that have them.
fn ib_parts(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let view = |frame| hirail_wire::FrameView::parse(frame).unwrap();
    frames
        .iter()
        .filter_map(|frame| Some(view(frame).roce()?.ib().to_vec()))
        .collect()
}

#[test]
fn frames_damaged() {
    let (frames, mut random) = (frames(), Random(1));
    for round in 0..60_000 {
        let frame = random.mutate_frame(&frames[round % frames.len()]);
        checks::frame(&frame);
    }
}

#[test]
fn frames_of_noise() {
    let mut random = Random(2);
    for _ in 0..60_000 {
        let len = random.below(120);
        let mut frame = random.bytes(len);
        if let Some(ether_type) = frame.get_mut(12..14) {
            let known = [
                [0x08, 0x00],
                [0x86, 0xdd],
                [0x89, 0x15],
                [0x88, 0x08],
                [0x88, 0xcc],
            ];
            ether_type.copy_from_slice(&known[random.below(known.len())]);
        }
        checks::frame(&frame);
    }
}

#[test]
fn headers_damaged() {
    let (parts, mut random) = (ib_parts(&frames()), Random(3));
    for round in 0..60_000 {
        let ib = random.mutate(&parts[round % parts.len()]);
        checks::headers(&ib);
    }
}

/// Every opcode with every length, legal or not.
#[test]
fn headers_of_noise() {
    let mut random = Random(4);
    for opcode in 0..=u8::MAX {
        for len in 0..72 {
            for flags in [0, 0x10, 0x20, 0x30, random.byte()] {
                let mut ib = random.bytes(len);
                if let Some(start) = ib.get_mut(..2) {
                    start.copy_from_slice(&[opcode, flags]);
                }
                checks::headers(&ib);
            }
        }
    }
}

#[test]
fn mads_and_control_frames_damaged() {
    let (frames, mut random) = (frames(), Random(5));
    let mads: Vec<Vec<u8>> = ib_parts(&frames)
        .into_iter()
        .filter(|ib| ib.len() == 20 + 256)
        .map(|ib| ib[20..].to_vec())
        .collect();
    assert!(mads.len() >= 10);
    let control: Vec<&[u8]> = frames
        .iter()
        .filter(|frame| frame[..2] == [0x01, 0x80])
        .map(|frame| &frame[14..])
        .collect();
    assert_eq!(control.len(), 6);
    for round in 0..30_000 {
        checks::mad(&random.mutate(&mads[round % mads.len()]));
        let content = random.mutate(control[round % control.len()]);
        checks::mac_control(&content);
        checks::lldp(&content);
        let content = random.mutate(control[control.len() - 1]);
        checks::lldp(&content);
    }
}
