//! The ring over RDMA: a queue pair to each neighbour.
//!
//! A part goes to the next rank in pieces, each an RDMA WRITE with immediate data: what is to be
//! added into that rank's scratch memory, what replaces a part right into its vector. The immediate
//! data's completion says that the piece is there.
//!
//! No rank can be a whole reduction ahead of another: a sum that goes round has been through all of
//! them. So scratch memory as large as the vector, each part in its own place, is never overwritten
//! too early. A rank goes on to the next step only when its own pieces have arrived, because what
//! it sent from may change then.

use std::ops::Range;

use hirail::{
    Access, ConnectOptions, Context, Cq, Mr, Qp, QpEndpoint, RemoteMemory, Send, SendOp, Wc,
    WcStatus,
};
use hirail_wire::Rkey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome::Error;
use crate::perf::allreduce::rank::{Combine, Ring};
use crate::perf::endpoint::{Place, parse_address};
use crate::perf::patience::Patience;

const FLOAT: usize = size_of::<f32>();
/// Least bytes of a piece but the last of a part.
const PIECE: usize = 256 << 10;
/// Most pieces of a part.
const PIECES: usize = 8;
/// Bytes that are added at once: they stay in the nearest cache.
const BLOCK: usize = 16 << 10;
/// Receives posted: more than a predecessor can be ahead.
const RECEIVES: usize = 1024;

/// One rank's queue pairs and memory.
pub(crate) struct RdmaRing {
    context: Context,
    gid_index: u8,
    cq: Cq,
    from_previous: Qp,
    to_next: Qp,
    /// The vector, and behind it the scratch memory.
    mr: Mr,
    elements: usize,
    next: Option<RemoteMemory>,
    /// Pieces that have come and were not looked at yet.
    arrived: u64,
    /// Pieces sent that have not arrived.
    flying: usize,
}

#[derive(Serialize, Deserialize)]
struct Address {
    for_previous: String,
    for_next: String,
    memory: u64,
    length: u64,
    rkey: u32,
}

impl RdmaRing {
    /// Makes queue pairs and registers memory.
    pub(crate) fn open(elements: usize, place: &Place) -> Result<Self, Error> {
        let device = place.devices.at(place.local)?;
        let context = device.context.clone();
        let cq = context.create_cq(2 * RECEIVES as u32)?;
        let pd = context.alloc_pd()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = pd.register(2 * elements * FLOAT, access)?;
        let from_previous = pd.qp(&cq, &cq).max_recv_wr(RECEIVES as u32).build()?;
        let to_next = pd.qp(&cq, &cq).max_send_wr(2 * PIECES as u32).build()?;
        Ok(Self {
            gid_index: device.gid_index,
            context,
            cq,
            from_previous,
            to_next,
            mr,
            elements,
            next: None,
            arrived: 0,
            flying: 0,
        })
    }

    /// Takes completions, if there are any.
    fn take(&mut self) -> Result<bool, Error> {
        let mut failed = None;
        let mut came = 0;
        let flying = &mut self.flying;
        let count = self.cq.poll(64, |wc: Wc| match wc {
            wc if wc.status != WcStatus::Success => failed = failed.or(Some(wc.status)),
            wc if wc.qpn == self.to_next.qpn() => *flying -= 1,
            _ => came += 1,
        })?;
        if let Some(status) = failed {
            let status = status.name();
            return Err(Error::new(format!(
                "a piece of an all-reduce ended with {status}; 'hirail explain {status}' says \
                 what it is"
            )));
        }
        self.arrived += came;
        for _ in 0..came {
            self.from_previous.post_recv(0, &[])?;
        }
        Ok(count > 0)
    }

    /// Adds what came into scratch memory to the vector.
    fn add(&self, bytes: Range<usize>) {
        let scratch = self.elements * FLOAT;
        let (mut ours, mut theirs) = ([0f32; BLOCK / FLOAT], [0f32; BLOCK / FLOAT]);
        for start in bytes.clone().step_by(BLOCK) {
            let length = BLOCK.min(bytes.end - start);
            let (ours, theirs) = (&mut ours[..length / FLOAT], &mut theirs[..length / FLOAT]);
            self.mr.read(start, bytemuck::cast_slice_mut(ours));
            self.mr
                .read(scratch + start, bytemuck::cast_slice_mut(theirs));
            ours.iter_mut()
                .zip(theirs)
                .for_each(|(ours, theirs)| *ours += *theirs);
            self.mr.write(start, bytemuck::cast_slice(ours));
        }
    }
}

/// The pieces of a part, in bytes. Both ends cut alike.
fn pieces(part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let bytes = part.start * FLOAT..part.end * FLOAT;
    let piece = PIECE.max(bytes.len().div_ceil(PIECES).next_multiple_of(FLOAT));
    bytes
        .clone()
        .step_by(piece)
        .map(move |start| start..bytes.end.min(start + piece))
}

impl Ring for RdmaRing {
    fn address(&self) -> Value {
        let endpoint = |qp: &Qp| {
            qp.endpoint(self.gid_index)
                .map(|e| e.to_string())
                .unwrap_or_default()
        };
        let memory = self.mr.remote();
        json!(Address {
            for_previous: endpoint(&self.from_previous),
            for_next: endpoint(&self.to_next),
            memory: memory.addr,
            length: memory.len,
            rkey: memory.rkey.value(),
        })
    }

    fn connect(&mut self, previous: &Value, next: &Value) -> Result<(), Error> {
        let (previous, next): (Address, Address) = (parse_address(previous)?, parse_address(next)?);
        if next.length != self.mr.remote().len {
            return Err(Error::new("the next rank has a vector of another length"));
        }
        let options = ConnectOptions::new(&self.context, self.gid_index);
        let endpoint: QpEndpoint = previous.for_next.parse()?;
        self.from_previous.connect(&endpoint, &options)?;
        let endpoint: QpEndpoint = next.for_previous.parse()?;
        self.to_next.connect(&endpoint, &options)?;
        self.next = Some(RemoteMemory {
            addr: next.memory,
            len: next.length,
            rkey: Rkey::new(next.rkey),
        });
        for _ in 0..RECEIVES {
            self.from_previous.post_recv(0, &[])?;
        }
        Ok(())
    }

    fn store(&mut self, values: &[f32]) {
        self.mr.write(0, bytemuck::cast_slice(values));
    }

    fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.elements];
        self.mr.read(0, bytemuck::cast_slice_mut(&mut values));
        values
    }

    fn step(
        &mut self,
        send: Range<usize>,
        receive: Range<usize>,
        combine: Combine,
    ) -> Result<(), Error> {
        let next = self
            .next
            .ok_or_else(|| Error::new("the ring is not connected"))?;
        let scratch = if combine == Combine::Add {
            self.elements * FLOAT
        } else {
            0
        };
        for piece in pieces(send) {
            let RemoteMemory { addr, rkey, .. } = next;
            let va = addr + (scratch + piece.start) as u64;
            let op = SendOp::WriteImm {
                va,
                rkey,
                imm: [0; 4],
            };
            self.to_next
                .post(&Send::new(0, op, &[self.mr.slice(piece)]))?;
            self.flying += 1;
        }
        let mut patience = Patience::default();
        for piece in pieces(receive) {
            while self.arrived == 0 {
                if self.take()? {
                    patience.rewarded();
                } else {
                    patience.missed()?;
                }
            }
            self.arrived -= 1;
            if combine == Combine::Add {
                self.add(piece);
            }
        }
        while self.flying > 0 {
            if self.take()? {
                patience.rewarded();
            } else {
                patience.missed()?;
            }
        }
        Ok(())
    }
}
