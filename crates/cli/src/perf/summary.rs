//! The important figures: what `hirail perf` shows when it is asked for nothing in particular.

use crate::perf::job::{Job, QpType, Shape, Test};
use crate::perf::series::Unit;
use crate::perf::units;

/// Queue pairs of the figure that wants several.
const MANY: usize = 8;

/// The jobs, each with the unit of its figure and what it is called.
pub(crate) fn figures(depth: usize, mtu: usize) -> Vec<(Job, Unit, String)> {
    let job = |test, bytes| Job {
        test,
        qp_type: QpType::Rc,
        bytes,
        qps: 1,
        bidirectional: false,
        depth,
        mtu,
    };
    let large = job(Test::WriteBw, 64 << 10);
    [
        (large, Unit::Gbps),
        (
            Job {
                qps: MANY,
                bidirectional: true,
                ..large
            },
            Unit::Gbps,
        ),
        (job(Test::ReadBw, 64 << 10), Unit::Gbps),
        (job(Test::WriteBw, 8), Unit::MessageRate),
        (job(Test::SendLat, 8), Unit::Microseconds),
        (job(Test::WriteLat, 8), Unit::Microseconds),
        (job(Test::AtomicLat, 8), Unit::Microseconds),
    ]
    .into_iter()
    .map(|(job, unit)| (job, unit, title(&job)))
    .collect()
}

/// What a job is called in tables.
pub(crate) fn title(job: &Job) -> String {
    let qp_type = job.qp_type.name().to_uppercase();
    let mut title = format!(
        "{qp_type} {} {}",
        job.test.operation(),
        units::bytes(job.bytes)
    );
    match job.test.shape() {
        Shape::PingPong => title += ", half round trip",
        Shape::RoundTrip => title += ", round trip",
        Shape::Stream if job.qps == 1 => title += ", 1 QP",
        Shape::Stream => title += &format!(", {} QPs", job.qps),
    }
    if job.bidirectional {
        title += ", both ways";
    }
    title
}
