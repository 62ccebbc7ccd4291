//! A connection at work: its queue pair and buffers, and both halves of the stream.

use std::sync::Arc;

use hirail_abi::{Wc, wc_flags};

use super::endpoint::{Depths, Endpoint, Handle};
use super::iomap::Mappings;
use super::memory::{Cursor, Memory, access};
use super::option::Sizes;
use super::protocol::{Control, Hello, Mapping, Message, Order, Sge, TARGETS};
use super::receiver::Receiver;
use super::sender::{Sender, Violation, Write};
use crate::errno::Errno;
use crate::id::qp_type;

/// The name of receives. Sends are named by what they say.
pub(super) const RECEIVED: u64 = 1 << 63;

/// What a look at completions has brought.
#[derive(Default)]
pub(super) struct Heard {
    /// Something came or went.
    pub(super) is_news: bool,
    /// The peer sends nothing more.
    pub(super) is_shut: bool,
    /// Nothing more is sent or received: the peer has said so, or has heard it from us.
    pub(super) is_over: bool,
    /// The connection is lost.
    pub(super) failed: Option<Errno>,
}

/// What there is before the peer has said anything.
pub(super) struct Prepared {
    endpoint: Endpoint,
    /// What is sent lies here until the peer has it.
    out: Memory,
    /// The peer writes here: what it sends,
    into: Memory,
    /// and where its own buffers are.
    table: Memory,
    sizes: Sizes,
}

impl Prepared {
    pub(super) fn new(handle: &Arc<Handle>, sizes: Sizes) -> Result<Self, Errno> {
        let depths = Depths {
            send: sizes.send_queue.into(),
            recv: sizes.recv_queue.into(),
            recv_sges: 1,
            inline: sizes.inline.into(),
        };
        let (_, pd) = handle.device()?;
        let writable = access::LOCAL_WRITE | access::REMOTE_WRITE;
        let table = TARGETS as usize * Sge::SIZE + usize::from(sizes.mappings) * Mapping::SIZE;
        let endpoint = Endpoint::new(handle, qp_type::RC, depths)?;
        // SAFETY: the domain is the device's own, which stays.
        let this = unsafe {
            Self {
                endpoint,
                out: Memory::new(pd, sizes.send_buffer, access::LOCAL_WRITE)?,
                into: Memory::new(pd, sizes.recv_buffer, writable)?,
                table: Memory::new(pd, table, writable)?,
                sizes,
            }
        };
        this.endpoint.receive_nothing(sizes.recv_queue.into())?;
        Ok(this)
    }

    /// Readable when there is news that was asked for.
    pub(super) fn fd(&self) -> i32 {
        self.endpoint.fd()
    }

    /// What is said to the peer.
    pub(super) fn hello(&self) -> Hello {
        Hello {
            order: Order::OWN,
            credits: self.sizes.recv_queue,
            mappings: self.sizes.mappings,
            has_iomap: true,
            targets: Sge {
                addr: self.table.addr(0),
                key: self.table.rkey(),
                length: TARGETS,
            },
            buffer: Sge {
                addr: self.into.addr(0),
                key: self.into.rkey(),
                length: (self.sizes.recv_buffer / 2) as u32,
            },
        }
    }

    /// The peer has said this.
    pub(super) fn connect(self, peer: Hello) -> Link {
        let sizes = self.sizes;
        Link {
            sender: Sender::new(
                sizes.send_queue.into(),
                sizes.send_buffer,
                peer.credits,
                peer.buffer,
            ),
            receiver: Receiver::new(sizes.recv_buffer, sizes.recv_queue),
            next_entry: 1 % peer.targets.length.max(1),
            mappings: Mappings::new(sizes.mappings, peer.mappings),
            peer,
            endpoint: self.endpoint,
            out: self.out,
            into: self.into,
            table: self.table,
            inline: sizes.inline.into(),
        }
    }
}

/// See the [module](self).
pub(super) struct Link {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) mappings: Mappings,
    pub(super) peer: Hello,
    /// The entry of the peer's table that is written next.
    next_entry: u32,
    endpoint: Endpoint,
    out: Memory,
    into: Memory,
    table: Memory,
    inline: usize,
}

impl Link {
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Looks at what was completed, and tells the peer what it is owed.
    pub(super) fn process(&mut self) -> Heard {
        let mut heard = Heard::default();
        if let Err(errno) = self.settle().and_then(|()| self.poll(&mut heard)) {
            heard.failed.get_or_insert(errno);
        } else if let Err(errno) = self.settle() {
            heard.failed.get_or_insert(errno);
        }
        heard
    }

    fn poll(&mut self, heard: &mut Heard) -> Result<(), Errno> {
        let mut completions = [Wc::default(); 16];
        loop {
            let found = self.endpoint.poll(&mut completions)?;
            let mut received = 0;
            for completion in &completions[..found] {
                heard.is_news = true;
                if completion.wr_id != RECEIVED {
                    self.completed(completion, heard);
                } else if completion.status == 0 {
                    received += 1;
                    self.received(completion, heard)
                        .map_err(|Violation| Errno(libc::EPROTO))?;
                }
            }
            if heard.is_over || heard.failed.is_some() {
                return Ok(());
            }
            self.endpoint.receive_nothing(received)?;
            if found < completions.len() {
                return Ok(());
            }
        }
    }

    fn completed(&mut self, completion: &Wc, heard: &mut Heard) {
        let message = Message::decode(completion.wr_id as u32);
        self.sender.completed(message, Mapping::SIZE);
        if completion.status != 0 {
            heard.failed.get_or_insert(Errno(libc::ECONNRESET));
        }
        heard.is_over |= message == Message::Control(Control::Disconnect);
    }

    fn received(&mut self, completion: &Wc, heard: &mut Heard) -> Result<(), Violation> {
        if completion.wc_flags & wc_flags::WITH_IMM == 0 {
            return Err(Violation);
        }
        match Message::decode(u32::from_be(completion.imm_or_rkey)) {
            Message::Data(length) => self.receiver.arrived(length)?,
            Message::Credits(limit) => {
                self.sender.granted(limit);
                if completion.byte_len as usize >= Sge::SIZE {
                    let entry = self.sender.written_target() as usize;
                    let written = self.table.get(entry * Sge::SIZE);
                    self.sender.target(Sge::decode(&written, Order::OWN))?;
                }
            }
            Message::Mapped(entry) => {
                self.receiver.arrived_beside();
                let at = TARGETS as usize * Sge::SIZE + usize::from(entry) * Mapping::SIZE;
                let table = &self.table;
                self.mappings
                    .written(entry, || Mapping::decode(&table.get(at), Order::OWN))?;
            }
            Message::Control(Control::Disconnect) => heard.is_over = true,
            Message::Control(Control::Shutdown) => heard.is_shut = true,
            Message::Control(Control::KeepAlive) | Message::Direct(_) | Message::Unknown => {}
        }
        Ok(())
    }

    /// Tells the peer what it may send, if that is due and can be said.
    pub(super) fn settle(&mut self) -> Result<(), Errno> {
        while self.receiver.owes() && self.sender.can_control() {
            self.sender.control();
            let grant = self.receiver.grant();
            let message = Message::Credits(grant.limit).encode();
            let Some(half) = grant.half else {
                self.endpoint
                    .write(message.into(), Some(message), &mut [], false, 0, 0)?;
                continue;
            };
            let target = Sge {
                addr: self.into.addr(half),
                key: self.into.rkey(),
                length: self.receiver.half() as u32,
            };
            let bytes = target.encode(self.peer.order);
            let addr = self.peer.target_at(self.next_entry);
            self.next_entry = (self.next_entry + 1) % self.peer.targets.length.max(1);
            self.write_bytes(Message::Credits(grant.limit), &bytes, addr)?;
        }
        Ok(())
    }

    /// Writes a few bytes into the peer's table.
    fn write_bytes(&self, message: Message, bytes: &[u8], addr: u64) -> Result<(), Errno> {
        let place = hirail_abi::Sge {
            addr: bytes.as_ptr().addr() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        // The bytes are exposed to a call that copies them before it returns.
        let _ = bytes.as_ptr().expose_provenance();
        let bits = message.encode();
        let key = self.peer.targets.key;
        self.endpoint
            .write(bits.into(), Some(bits), &mut [place], true, addr, key)
    }

    /// Says something of the connection itself, where that is [possible](Sender::can_control).
    pub(super) fn say(&mut self, control: Control) -> Result<(), Errno> {
        self.sender.control();
        let bits = Message::Control(control).encode();
        let immediate = (control != Control::KeepAlive).then_some(bits);
        self.endpoint
            .write(bits.into(), immediate, &mut [], false, 0, 0)
    }

    /// Sends the program's next bytes, at most [`room`](Sender::room).
    pub(super) fn send(&mut self, length: usize, from: &mut Cursor<'_>) -> Result<(), Errno> {
        let write = self.sender.send(length);
        self.out.fill(write.pieces, from);
        self.post(write, true)
    }

    /// Writes the program's next bytes to a place that the peer has mapped.
    pub(super) fn send_direct(
        &mut self,
        length: usize,
        from: &mut Cursor<'_>,
        addr: u64,
        key: u32,
    ) -> Result<(), Errno> {
        let write = self.sender.send_direct(length, addr, key);
        self.out.fill(write.pieces, from);
        self.post(write, false)
    }

    /// Tells the peer of a buffer that it may write to.
    pub(super) fn send_mapping(&mut self, entry: u16, mapping: Mapping) -> Result<(), Errno> {
        let addr = self.peer.mapping_at(entry);
        let write = self
            .sender
            .send_mapping(Mapping::SIZE, entry, addr, self.peer.targets.key);
        let bytes = mapping.encode(self.peer.order);
        let mut done = 0;
        for piece in write.pieces.iter() {
            self.out.put(piece.at, &bytes[done..done + piece.length]);
            done += piece.length;
        }
        self.post(write, true)
    }

    fn post(&self, write: Write, is_told: bool) -> Result<(), Errno> {
        let mut places = [
            self.out.sge(write.pieces.first),
            self.out.sge(write.pieces.second),
        ];
        let pieces = write.pieces.iter().count();
        let length = write.pieces.first.length + write.pieces.second.length;
        let bits = write.message.encode();
        self.endpoint.write(
            bits.into(),
            is_told.then_some(bits),
            &mut places[..pieces],
            length <= self.inline,
            write.addr,
            write.key,
        )
    }

    /// Copies what has come, at most as much as there is room for, and takes it unless the program
    /// only looks; how many bytes.
    pub(super) fn receive(&mut self, to: &mut Cursor<'_>, is_look: bool) -> usize {
        let pieces = self.receiver.peek(0, to.left());
        self.into.drain(pieces, to);
        let length = pieces.first.length + pieces.second.length;
        if !is_look {
            self.receiver.read(length);
        }
        length
    }
}
