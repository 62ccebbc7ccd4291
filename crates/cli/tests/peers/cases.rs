//! What is run, and with which words each program is told where its peer is.

use super::peers::Side;

/// What GIDs are made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// How a program finds its peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By TCP, with a device and a GID; it compares what it receives.
    PingPong,
    /// By TCP, with a device and a GID.
    Perftest,
    /// By rdma_cm, which perftest can use too.
    PerftestCm,
    /// By rdma_cm, with both ends told the server's address.
    Rping,
    /// By rdma_cm, with an address to bind to and one to ask.
    Cmatose,
    /// The same, over rsockets.
    Rstream,
    /// By rdma_cm, with an address to ask.
    RdmaClient,
}

pub(crate) struct Case {
    pub(crate) program: &'static str,
    pub(crate) options: &'static str,
    pub(crate) kind: Kind,
    pub(crate) family: Family,
    /// It runs with the ordinary tests.
    pub(crate) is_short: bool,
}

impl Case {
    pub(crate) const fn new(kind: Kind, program: &'static str, options: &'static str) -> Self {
        Self {
            program,
            options,
            kind,
            family: Family::V4,
            is_short: false,
        }
    }

    const fn short(self) -> Self {
        Self {
            is_short: true,
            ..self
        }
    }

    const fn v6(self) -> Self {
        Self {
            family: Family::V6,
            ..self
        }
    }

    /// Where the server listens: a port, and whether it is one of rdma_cm.
    pub(crate) fn port(&self) -> (u16, bool) {
        match self.kind {
            Kind::PingPong | Kind::Perftest => (18515, false),
            Kind::PerftestCm => (18515, true),
            Kind::Rping => (7174, true),
            Kind::Cmatose if self.program == "udaddy" => (7174, true),
            Kind::Cmatose | Kind::Rstream | Kind::RdmaClient => (7471, true),
        }
    }

    /// The server's command line on `side`, or that of the client there.
    pub(crate) fn words(&self, side: Side, is_server: bool) -> Vec<String> {
        let server = if is_server { side } else { side.other() };
        let (device, gid) = (side.device(), side.gid(self.family));
        // The ping-pongs and perftest exchange over IPv4 what they need.
        let over_tcp = if is_server {
            String::new()
        } else {
            server.address(Family::V4).to_owned()
        };
        let asked = server.address(self.family);
        let options = self.options;
        let line = match (self.kind, is_server) {
            (Kind::PingPong, _) => format!("-d {device} -g {gid} -e -c {options} {over_tcp}"),
            (Kind::Perftest, _) => format!("-d {device} -x {gid} -F {options} {over_tcp}"),
            (Kind::PerftestCm, _) => format!("-d {device} -x {gid} -F -R {options} {over_tcp}"),
            (Kind::Rping, true) => format!("-s -a {asked} -v -V {options}"),
            (Kind::Rping, false) => format!("-c -a {asked} -v -V {options}"),
            (Kind::Cmatose | Kind::Rstream, true) => format!("-b {asked} {options}"),
            (Kind::Cmatose | Kind::Rstream, false) => format!("-s {asked} {options}"),
            (Kind::RdmaClient, true) => options.to_owned(),
            (Kind::RdmaClient, false) => format!("-s {asked} {options}"),
        };
        let program = match (self.kind, is_server) {
            (Kind::RdmaClient, true) => "rdma_server",
            _ => self.program,
        };
        let words = [program].into_iter().chain(line.split_whitespace());
        words.map(str::to_owned).collect()
    }

    /// What the client says at the end.
    pub(crate) const fn says(&self) -> &'static str {
        match self.kind {
            Kind::PingPong => " iters in ",
            Kind::Perftest | Kind::PerftestCm => "#iterations",
            Kind::Rping => "rdma-ping-",
            Kind::Cmatose => "return status 0",
            Kind::Rstream => "Gb/sec",
            Kind::RdmaClient => "rdma_client: end 0",
        }
    }
}

const fn ping_pong(program: &'static str, options: &'static str) -> Case {
    Case::new(Kind::PingPong, program, options)
}

const fn perftest(program: &'static str, options: &'static str) -> Case {
    Case::new(Kind::Perftest, program, options)
}

/// perftest asks of its own device as many outstanding READs as the peer's has, unless told: rxe has
/// 128, hirail 16.
pub(crate) const CASES: &[Case] = &[
    ping_pong("ibv_rc_pingpong", "-n 20 -s 1 -m 1024"),
    ping_pong("ibv_rc_pingpong", "-n 20 -s 1023 -m 1024"),
    ping_pong("ibv_rc_pingpong", "-n 20 -s 1025 -m 1024").short(),
    ping_pong("ibv_rc_pingpong", "-n 20 -s 65536 -m 4096")
        .v6()
        .short(),
    ping_pong("ibv_rc_pingpong", "-n 20 -s 4095 -m 4096"),
    ping_pong("ibv_rc_pingpong", "-n 20 -s 4097 -m 4096").v6(),
    ping_pong("ibv_rc_pingpong", "-n 20 -s 3000 -m 256"),
    ping_pong("ibv_srq_pingpong", "-n 40 -s 3000 -q 4"),
    ping_pong("ibv_uc_pingpong", "-n 20 -s 65536 -m 4096").short(),
    ping_pong("ibv_uc_pingpong", "-n 20 -s 3000 -m 1024").v6(),
    ping_pong("ibv_ud_pingpong", "-n 20 -s 1024").short(),
    ping_pong("ibv_ud_pingpong", "-n 20 -s 4096").v6(),
    perftest("ib_send_bw", "-n 30 -m 1024"),
    perftest("ib_send_bw", "-n 30 -m 4096 -e").v6(),
    perftest("ib_send_bw", "-n 30 -b"),
    perftest("ib_send_bw", "-n 30 -c UC"),
    perftest("ib_send_bw", "-n 30 -c UD"),
    perftest("ib_send_lat", "-n 20 -e").short(),
    perftest("ib_send_lat", "-n 20 -e -c UC"),
    perftest("ib_send_lat", "-n 20 -e -c UD").v6(),
    perftest("ib_write_bw", "-n 30 -m 1024").short(),
    perftest("ib_write_bw", "-n 30 -m 4096").v6(),
    perftest("ib_write_bw", "-n 30 -q 4"),
    perftest("ib_write_bw", "-n 30 -c UC"),
    perftest("ib_write_lat", "-n 20"),
    perftest("ib_read_bw", "-n 30 -o 16 -m 1024"),
    perftest("ib_read_bw", "-n 30 -o 16 -m 4096").v6().short(),
    perftest("ib_read_lat", "-n 20 -o 16"),
    perftest("ib_atomic_bw", "-n 30 -o 16").short(),
    perftest("ib_atomic_bw", "-n 30 -o 16 -A CMP_AND_SWAP").v6(),
    perftest("ib_atomic_lat", "-n 20 -o 16"),
    Case::new(Kind::PerftestCm, "ib_write_bw", "-n 30"),
    Case::new(Kind::PerftestCm, "ib_send_bw", "-n 30 -c UD"),
    Case::new(Kind::Rping, "rping", "-C 10").short(),
    Case::new(Kind::Rping, "rping", "-C 10 -S 60000")
        .v6()
        .short(),
    Case::new(Kind::Cmatose, "ucmatose", "-c 4 -C 10 -S 1000").short(),
    Case::new(Kind::Cmatose, "ucmatose", "-c 4 -C 10 -S 1000").v6(),
    Case::new(Kind::Cmatose, "udaddy", "-c 2 -C 10").short(),
    Case::new(Kind::Cmatose, "udaddy", "-c 2 -C 10").v6(),
    Case::new(Kind::RdmaClient, "rdma_client", "").short(),
    Case::new(Kind::Rstream, "rstream", "-S 65536 -I 5 -C 5"),
    Case::new(Kind::Rstream, "riostream", "-S 4096 -I 5 -C 5").v6(),
];

/// With packets lost on the way, in both directions. Enough of them that some are requests, some
/// responses and some acknowledgements.
pub(crate) const LOSSY: &[Case] = &[
    ping_pong("ibv_rc_pingpong", "-n 100 -s 65536 -m 4096").short(),
    ping_pong("ibv_rc_pingpong", "-n 60 -s 65536 -m 1024").v6(),
    perftest("ib_write_bw", "-n 100 -m 1024").short(),
    perftest("ib_read_bw", "-n 100 -o 16 -m 1024").short(),
    perftest("ib_send_bw", "-n 100 -m 4096"),
    perftest("ib_atomic_bw", "-n 300 -o 16"),
    Case::new(Kind::Rping, "rping", "-C 40 -S 20000").short(),
    Case::new(Kind::Cmatose, "ucmatose", "-c 8 -C 20 -S 4000"),
];
