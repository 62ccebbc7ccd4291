//! Two devices on a network in memory, and one QP on each that talks to the other.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use hirail::{
    Access, ConnectOptions, Context, Cq, Error, Faults, MemoryNetwork, Mr, Pd, QKey, Qp, QpBuilder,
    QpType, RecoveryKind, SendWr, Wc,
};

/// Every right that goes with addresses that are not zero-based.
pub(crate) const ALL: Access = Access::all().difference(Access::ZERO_BASED);

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Queue key of the datagram tests.
pub(crate) const KEY: QKey = QKey(0x1234);

/// A device with one of everything.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) qp: Qp,
    pub(crate) mr: Mr,
}

/// The address of host `number`.
pub(crate) fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
}

impl Side {
    pub(crate) fn new(
        network: &MemoryNetwork,
        number: u8,
        describe: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>,
    ) -> Self {
        let context = network.open(address(number)).unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let builder = pd.qp(&cq, &cq).max_inline_data(64).max_sge(4, 4);
        let qp = describe(builder).build().unwrap();
        let mr = pd.register(1 << 16, ALL).unwrap();
        Self {
            context,
            pd,
            cq,
            qp,
            mr,
        }
    }

    /// The next completion, whatever it says.
    #[track_caller]
    pub(crate) fn completion(&self) -> Wc {
        self.cq.wait_polling(PATIENCE).unwrap()
    }

    /// The next completion, which must be a success.
    #[track_caller]
    pub(crate) fn done(&self) -> Wc {
        self.completion().ok().unwrap()
    }

    /// Posts a request that must succeed.
    #[track_caller]
    pub(crate) fn carry_out(&self, wr: &SendWr<'_>) -> Wc {
        self.qp.post(wr).unwrap();
        self.done()
    }
}

/// Connects two QPs as most programs would.
pub(crate) fn connect(a: &Side, b: &Side) {
    connect_qps((&a.context, &a.qp), (&b.context, &b.qp)).unwrap();
}

pub(crate) fn connect_qps(a: (&Context, &Qp), b: (&Context, &Qp)) -> Result<(), Error> {
    a.1.connect(&b.1.endpoint(0)?, &ConnectOptions::new(a.0, 0))?;
    b.1.connect(&a.1.endpoint(0)?, &ConnectOptions::new(b.0, 0))
}

/// Two connected sides on a network with these faults.
pub(crate) fn pair_with(faults: Faults, qp_type: QpType) -> (Side, Side) {
    pair_recovering(faults, RecoveryKind::GoBackN, qp_type)
}

/// The same, whose devices recover from losses in this way.
pub(crate) fn pair_recovering(
    faults: Faults,
    recovery: RecoveryKind,
    qp_type: QpType,
) -> (Side, Side) {
    let network = MemoryNetwork::with_recovery(faults, recovery);
    let [a, b] = [1, 2].map(|number| Side::new(&network, number, |qp| qp.qp_type(qp_type)));
    if qp_type == QpType::Ud {
        a.qp.activate_datagram(KEY).unwrap();
        b.qp.activate_datagram(KEY).unwrap();
    } else {
        connect(&a, &b);
    }
    (a, b)
}

/// Two connected sides on a perfect network.
pub(crate) fn pair(qp_type: QpType) -> (Side, Side) {
    pair_with(Faults::default(), qp_type)
}

/// Bytes that no two places have in common for long.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}
