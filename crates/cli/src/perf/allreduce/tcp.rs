//! The ring over TCP: one connection from each rank to the next, polled.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;

use serde_json::{Value, json};

use crate::outcome::Error;
use crate::perf::allreduce::rank::{Combine, Ring};
use crate::perf::endpoint::{Place, cannot, parse_address};
use crate::perf::patience::{Patience, STALL};
use crate::perf::tcp::accept;

const FLOAT: usize = size_of::<f32>();

/// One rank's connections and vector.
pub(crate) struct TcpRing {
    listener: TcpListener,
    /// From the previous rank and to the next.
    streams: Option<(TcpStream, TcpStream)>,
    vector: Vec<f32>,
    /// Bytes as they come; elements that are not complete yet stay at its start.
    arrived: Vec<u8>,
}

impl TcpRing {
    /// Listens for the previous rank.
    pub(crate) fn open(elements: usize, place: &Place) -> Result<Self, Error> {
        let listener = TcpListener::bind((place.local, 0))
            .map_err(cannot("listen for the previous rank over TCP"))?;
        Ok(Self {
            listener,
            streams: None,
            vector: vec![0.0; elements],
            arrived: vec![0; 256 << 10],
        })
    }
}

impl Ring for TcpRing {
    fn address(&self) -> Value {
        json!(self.listener.local_addr().ok())
    }

    fn connect(&mut self, _previous: &Value, next: &Value) -> Result<(), Error> {
        let address: SocketAddr = parse_address(next)?;
        let next = TcpStream::connect_timeout(&address, STALL)
            .map_err(cannot("connect to the next rank over TCP"))?;
        let previous = accept(&self.listener)?;
        for stream in [&previous, &next] {
            stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .map_err(cannot("set up a TCP connection"))?;
        }
        self.streams = Some((previous, next));
        Ok(())
    }

    fn store(&mut self, values: &[f32]) {
        self.vector.copy_from_slice(values);
    }

    fn values(&self) -> Vec<f32> {
        self.vector.clone()
    }

    fn step(
        &mut self,
        send: Range<usize>,
        receive: Range<usize>,
        combine: Combine,
    ) -> Result<(), Error> {
        let (previous, next) = self
            .streams
            .as_mut()
            .ok_or_else(|| Error::new("the ring is not connected"))?;
        let (mut sent, to_send) = (send.start * FLOAT, send.end * FLOAT);
        let mut element = receive.start;
        let mut held = 0;
        let mut patience = Patience::default();
        while sent < to_send || element < receive.end {
            let mut idle = true;
            if sent < to_send {
                match next.write(&bytemuck::cast_slice(&self.vector)[sent..to_send]) {
                    Ok(n) => {
                        sent += n;
                        idle &= n == 0;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(cannot("send to the next rank over TCP")(error)),
                }
            }
            let missing = (receive.end - element) * FLOAT - held;
            if missing > 0 {
                let most = self.arrived.len().min(held + missing);
                match previous.read(&mut self.arrived[held..most]) {
                    Ok(0) => return Err(Error::new("the previous rank has gone away")),
                    Ok(n) => {
                        let whole = (held + n) / FLOAT;
                        let bytes = whole * FLOAT;
                        let part = &mut self.vector[element..element + whole];
                        for (slot, bytes) in part.iter_mut().zip(self.arrived.chunks_exact(FLOAT)) {
                            let value = bytemuck::pod_read_unaligned::<f32>(bytes);
                            *slot = if combine == Combine::Add {
                                *slot + value
                            } else {
                                value
                            };
                        }
                        element += whole;
                        self.arrived.copy_within(bytes..held + n, 0);
                        held = held + n - bytes;
                        idle = false;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => {
                        return Err(cannot("receive from the previous rank over TCP")(error));
                    }
                }
            }
            if idle {
                patience.wait()?;
            } else {
                patience.rewarded();
            }
        }
        Ok(())
    }
}
