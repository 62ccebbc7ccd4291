//! The ping-pong of rdma-core's `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`, over
//! hirail: either side may be played by either program, so it shows at once whether hirail and a
//! card (or the kernel's soft-RoCE) understand each other.
//!
//! ```sh
//! ibv_rc_pingpong -d rxe0 -g 1                            # on one host
//! cargo run --example rc_pingpong -- 192.0.2.1            # on the other one
//! ```
//!
//! Without a host name it waits for a client. Both sides tell each other over TCP where their queue
//! pair is: 52 bytes, `LID:QPN:PSN:GID` in hexadecimal and a NUL. Then the client sends a message,
//! the server sends one back, and so on. The rdma-core programs send out of the buffer that they
//! receive into, so each of their messages must be the last one of ours; this program numbers its own.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hirail::{
    Access, ConnectOptions, Context, Destination, Gid, Path, PathMtu, Psn, QKey, QpEndpoint,
    QpType, Qpn, SendWr,
};

/// How to play; what rdma-core has without options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// RC, UC or UD.
    pub(crate) qp_type: QpType,
    /// TCP port of the server.
    pub(crate) tcp_port: u16,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Messages each way.
    pub(crate) iterations: u32,
    /// Path MTU, which rdma-core does not exchange.
    pub(crate) path_mtu: PathMtu,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            qp_type: QpType::Rc,
            tcp_port: 18515,
            size: 4096,
            iterations: 1000,
            path_mtu: PathMtu::Mtu1024,
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Longest silence of the peer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Length of the message in which a side tells where it is.
const MESSAGE: usize = 52;
/// The client's last word, after which both close.
const DONE: &[u8; 5] = b"done\0";
/// Queue key of the datagrams.
const QKEY: QKey = QKey(0x1111_1111);
/// What a buffer of rdma-core is filled with before anything arrives in it.
const FILL: u8 = 0x7b;
/// Bytes in front of a received datagram.
const GRH: usize = 40;
/// Receives posted at any time.
const RECEIVES: u64 = 16;
/// Number of the send request; receives have those from 0.
const SEND: u64 = RECEIVES;

/// Plays the client's side with the server at `host`. How long the messages took.
pub(crate) fn client(host: &str, options: &Options) -> Result<Duration> {
    let mut tcp = TcpStream::connect((host, options.tcp_port))?;
    let side = Side::new(&tcp, options)?;
    tcp.write_all(&message(&side.endpoint))?;
    let peer = receive(&mut tcp)?;
    side.connect(&peer)?;
    tcp.write_all(DONE)?;
    drop(tcp);
    side.play(&peer, true)
}

/// Plays the server's side with the next client that connects. How long the messages took.
pub(crate) fn server(listener: &TcpListener, options: &Options) -> Result<Duration> {
    let (mut tcp, _) = listener.accept()?;
    let side = Side::new(&tcp, options)?;
    let peer = receive(&mut tcp)?;
    side.connect(&peer)?;
    tcp.write_all(&message(&side.endpoint))?;
    let mut done = [0; DONE.len()];
    tcp.read_exact(&mut done)?;
    if done != *DONE {
        return Err(format!("expected {DONE:?} from the client, got {done:?}").into());
    }
    drop(tcp);
    side.play(&peer, false)
}

/// What rdma-core's programs exchange: LID (none here), QPN, PSN, GID.
fn message(endpoint: &QpEndpoint) -> [u8; MESSAGE] {
    let (qpn, psn) = (endpoint.qpn.value(), endpoint.psn.value());
    let gid = u128::from_be_bytes(endpoint.gid.0);
    let text = format!("0000:{qpn:06x}:{psn:06x}:{gid:032x}\0");
    text.into_bytes().try_into().expect("fixed widths")
}

fn receive(tcp: &mut TcpStream) -> Result<QpEndpoint> {
    let mut bytes = [0; MESSAGE];
    tcp.read_exact(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    parse(text.trim_end_matches('\0'))
        .ok_or_else(|| format!("expected LID:QPN:PSN:GID from the peer, got {text:?}").into())
}

fn parse(text: &str) -> Option<QpEndpoint> {
    let mut fields = text.split(':').skip(1);
    let mut number = || u128::from_str_radix(fields.next()?, 16).ok();
    Some(QpEndpoint {
        qpn: Qpn::new(u32::try_from(number()?).ok()?),
        psn: Psn::new(u32::try_from(number()?).ok()?),
        gid: Gid(number()?.to_be_bytes()),
    })
}

/// This side: a queue pair, its completion queue, and memory to send from and to receive into.
struct Side<'a> {
    options: &'a Options,
    context: Context,
    endpoint: QpEndpoint,
    gid_index: u8,
    cq: hirail::Cq,
    qp: hirail::Qp,
    outgoing: hirail::Mr,
    incoming: hirail::Mr,
}

impl<'a> Side<'a> {
    /// On the device that has the address by which the peer is reached.
    fn new(tcp: &TcpStream, options: &'a Options) -> Result<Self> {
        tcp.set_read_timeout(Some(PATIENCE))?;
        let address = tcp.local_addr()?.ip().to_canonical();
        let context = Context::open_address(address)?;
        let gid = Gid::from_ip(address);
        let gids = context.gids();
        let index = gids.iter().position(|entry| entry.gid == gid);
        let gid_index = u8::try_from(index.ok_or("no GID of this address")?)?;

        let pd = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq_on(RECEIVES as u32 + 1, &channel)?;
        let qp = pd.qp(&cq, &cq).qp_type(options.qp_type).build()?;
        Ok(Self {
            options,
            endpoint: qp.endpoint(gid_index)?,
            gid_index,
            cq,
            qp,
            outgoing: pd.register(options.size.max(1), Access::empty())?,
            incoming: pd.register(GRH + options.size, Access::LOCAL_WRITE)?,
            context,
        })
    }

    /// Makes the queue pair ready, with receives posted: the peer may send as soon as it knows
    /// about it.
    fn connect(&self, peer: &QpEndpoint) -> Result<()> {
        if self.options.qp_type == QpType::Ud {
            self.qp.activate_datagram(QKEY)?;
        } else {
            let connect = ConnectOptions {
                path_mtu: self.options.path_mtu,
                access: Access::empty(),
                ..ConnectOptions::new(&self.context, self.gid_index)
            };
            self.qp.connect(peer, &connect)?;
        }
        (0..RECEIVES).try_for_each(|wr_id| self.post_receive(wr_id))
    }

    /// Bytes of the network header in front of what is received.
    fn header(&self) -> usize {
        if self.options.qp_type == QpType::Ud {
            GRH
        } else {
            0
        }
    }

    fn post_receive(&self, wr_id: u64) -> Result<()> {
        let bytes = self.header() + self.options.size;
        Ok(self.qp.post_recv(wr_id, &[self.incoming.slice(..bytes)])?)
    }

    fn post_send(&self, peer: &QpEndpoint, content: &[u8]) -> Result<()> {
        self.outgoing.write(0, content);
        let slices = [self.outgoing.slice(..self.options.size)];
        let mut wr = SendWr::send(SEND, &slices);
        if self.options.qp_type == QpType::Ud {
            let path = Path {
                gid_index: self.gid_index,
                ..Path::default()
            };
            wr = wr.to(Destination::unicast(peer, QKEY)).via(path);
        }
        Ok(self.qp.post(&wr)?)
    }

    /// Sends and receives all messages, and compares what comes with what was sent.
    fn play(&self, peer: &QpEndpoint, sends_first: bool) -> Result<Duration> {
        let Options {
            size, iterations, ..
        } = *self.options;
        let start = Instant::now();
        let (mut sent, mut received) = (0, 0);
        let mut content = vec![FILL; size];
        let numbered = |number: u32| {
            let byte = move |i: usize| (i as u32).wrapping_mul(7).wrapping_add(number) as u8;
            (0..size).map(byte)
        };
        let send = |number: u32, content: &mut Vec<u8>| {
            content.clear();
            content.extend(numbered(number));
            self.post_send(peer, content)
        };
        if sends_first && iterations > 0 {
            send(0, &mut content)?;
        }
        while sent < iterations || received < iterations {
            let wc = self.cq.wait(PATIENCE)?.ok()?;
            if wc.wr_id == SEND {
                sent += 1;
            } else {
                if wc.byte_len as usize != self.header() + size {
                    return Err(format!("message {received}: {} bytes", wc.byte_len).into());
                }
                let message = self.incoming.to_vec(self.header(), size);
                let is_numbered = message.iter().copied().eq(numbered(received));
                if message != content && !is_numbered {
                    let text = format!("message {received} is neither ours nor so numbered");
                    return Err(text.into());
                }
                received += 1;
                self.post_receive(wc.wr_id)?;
            }
            // The next one, when both halves of this round are over.
            let may_send = if sends_first {
                sent == received
            } else {
                sent + 1 == received
            };
            if may_send && sent < iterations {
                send(sent, &mut content)?;
            }
        }
        Ok(start.elapsed())
    }
}

const USAGE: &str = "\
usage: rc_pingpong [-t rc|uc|ud] [-p TCP-PORT] [-s SIZE] [-n ITERATIONS] [-m PATH-MTU] [SERVER]";

/// Options and the server's name, if there is one.
fn arguments() -> Result<(Options, Option<String>)> {
    let (mut options, mut host, mut size) = (Options::default(), None, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            host = Some(word);
            continue;
        }
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "-t" => {
                options.qp_type = match value.as_str() {
                    "rc" => QpType::Rc,
                    "uc" => QpType::Uc,
                    "ud" => QpType::Ud,
                    _ => return Err(USAGE.into()),
                }
            }
            "-p" => options.tcp_port = value.parse()?,
            "-s" => size = Some(value.parse()?),
            "-n" => options.iterations = value.parse()?,
            "-m" => options.path_mtu = PathMtu::from_bytes(value.parse()?).ok_or(USAGE)?,
            _ => return Err(USAGE.into()),
        }
    }
    let usual = if options.qp_type == QpType::Ud {
        1024
    } else {
        4096
    };
    options.size = size.unwrap_or(usual);
    Ok((options, host))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rc_pingpong: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (options, host) = arguments()?;
    let took = match host {
        Some(host) => client(&host, &options)?,
        None => {
            // Both families where the system has both.
            let port = options.tcp_port;
            let listener = TcpListener::bind(("::", port))
                .or_else(|_| TcpListener::bind(("0.0.0.0", port)))?;
            server(&listener, &options)?
        }
    };
    let Options {
        size, iterations, ..
    } = options;
    println!(
        "{iterations} messages of {size} bytes each way in {took:.1?}, {:.1?} each way and back",
        took / iterations.max(1)
    );
    Ok(())
}
