//! What was measured: samples of one transport, and the figures made of them. Figures are medians
//! over samples, so that one disturbed sample changes nothing.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::perf::endpoint::Counters;
use crate::perf::job::{Job, Shape, Transport};

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Messages that came, of all queue pairs and both directions.
    pub(crate) messages: u64,
    /// Messages that were sent.
    pub(crate) sent: u64,
    /// From the first operation until the last was known to be done, at the slower end.
    pub(crate) elapsed: Duration,
    /// Processor time of the client's process.
    pub(crate) client_cpu: Duration,
    /// Processor time of the server's process.
    pub(crate) server_cpu: Duration,
}

/// All runs of one transport.
#[derive(Default)]
pub(crate) struct Series {
    /// In the order in which they ran.
    pub(crate) samples: Vec<Sample>,
    /// Nanoseconds of all round trips, where round trips were measured.
    pub(crate) round_trips: Option<Histogram<u64>>,
    /// What the devices of both ends counted in all of them.
    pub(crate) counters: Counters,
}

/// What the figures of a test are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// 10^9 bits of messages per second, both directions together.
    Gbps,
    /// Millions of messages per second, all queue pairs and directions together.
    MessageRate,
    /// Microseconds; the median.
    Microseconds,
}

impl Unit {
    /// What people look at first in a test of this shape.
    pub(crate) fn of(shape: Shape) -> Self {
        match shape {
            Shape::Stream => Self::Gbps,
            Shape::PingPong | Shape::RoundTrip => Self::Microseconds,
        }
    }

    /// Its name in tables and JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gbps => "Gb/s",
            Self::MessageRate => "Mmsg/s",
            Self::Microseconds => "us",
        }
    }
}

/// What one transport did in one job.
#[derive(Serialize)]
pub(crate) struct Figures {
    /// The transport.
    pub(crate) transport: Transport,
    /// The figure in the unit of the row.
    pub(crate) value: f64,
    /// Gb/s of messages, both directions together; streams only.
    pub(crate) gbps: Option<f64>,
    /// Millions of messages per second; streams only.
    pub(crate) mmsg_per_second: Option<f64>,
    /// Half or whole round trips, as the test measures them.
    pub(crate) latency_us: Option<Percentiles>,
    /// Processor seconds of the client's process per 10^9 bytes; streams only.
    pub(crate) client_cpu_seconds_per_gb: Option<f64>,
    /// The same for the server's process.
    pub(crate) server_cpu_seconds_per_gb: Option<f64>,
    /// Share of the messages sent that did not come; streams only.
    pub(crate) lost: Option<f64>,
    /// What the devices of both ends counted, by name; RDMA only.
    #[serde(skip_serializing_if = "Counters::is_empty")]
    pub(crate) counters: Counters,
    /// Samples that the medians are of.
    pub(crate) samples: usize,
}

/// A distribution in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Series {
    /// Makes the figures of `job`.
    pub(crate) fn figures(&self, transport: Transport, job: &Job, unit: Unit) -> Figures {
        let stream = job.test.shape() == Shape::Stream;
        let message_rate = self.median(|s| s.messages as f64 / s.elapsed.as_secs_f64().max(1e-9));
        let gbps = message_rate * job.bytes as f64 * 8.0 / 1e9;
        // Of nothing that came there is no cost per byte.
        let per_gb =
            |cpu: fn(&Sample) -> Duration| {
                Some(self.median(|s| {
                    cpu(s).as_secs_f64() / (s.messages as f64 * job.bytes as f64 / 1e9)
                }))
                .filter(|cost| cost.is_finite())
            };
        let sum = |of: fn(&Sample) -> u64| self.samples.iter().map(of).sum::<u64>();
        let lost = 1.0 - sum(|s| s.messages) as f64 / sum(|s| s.sent).max(1) as f64;
        let part = if job.test.shape() == Shape::PingPong {
            2.0
        } else {
            1.0
        };
        let latency_us = self.round_trips.as_ref().map(|histogram| {
            let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0 / part;
            Percentiles {
                min: us(histogram.min()),
                p50: us(histogram.value_at_quantile(0.5)),
                p90: us(histogram.value_at_quantile(0.9)),
                p99: us(histogram.value_at_quantile(0.99)),
                p999: us(histogram.value_at_quantile(0.999)),
                max: us(histogram.max()),
            }
        });
        Figures {
            transport,
            value: match unit {
                Unit::Gbps => gbps,
                Unit::MessageRate => message_rate / 1e6,
                Unit::Microseconds => latency_us.map_or(0.0, |latency| latency.p50),
            },
            gbps: stream.then_some(gbps),
            mmsg_per_second: stream.then_some(message_rate / 1e6),
            latency_us,
            client_cpu_seconds_per_gb: per_gb(|s| s.client_cpu).filter(|_| stream),
            server_cpu_seconds_per_gb: per_gb(|s| s.server_cpu).filter(|_| stream),
            lost: stream.then_some(lost),
            counters: self.counters.clone(),
            samples: self.samples.len(),
        }
    }

    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of).collect())
    }
}

/// The middle value; the mean of both middle ones; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::job::{QpType, Test};

    fn job(test: Test) -> Job {
        Job {
            test,
            qp_type: QpType::Rc,
            bytes: 1000,
            qps: 2,
            bidirectional: true,
            depth: 1,
            mtu: 4096,
        }
    }

    #[test]
    fn a_disturbed_sample_changes_nothing() {
        let sample = |ms| Sample {
            messages: 4000,
            sent: 4000,
            elapsed: Duration::from_millis(ms),
            client_cpu: Duration::from_millis(1),
            server_cpu: Duration::from_millis(2),
        };
        let series = Series {
            samples: [1, 900, 1].map(sample).to_vec(),
            ..Series::default()
        };
        let figures = series.figures(Transport::Tcp, &job(Test::WriteBw), Unit::Gbps);
        // Two queue pairs, two directions, 1000 messages of 1000 bytes each in a millisecond.
        assert_eq!(figures.gbps, Some(32.0));
        assert_eq!(figures.value, 32.0);
        assert_eq!(figures.mmsg_per_second, Some(4.0));
        assert_eq!(figures.client_cpu_seconds_per_gb, Some(0.25));
        assert_eq!(figures.server_cpu_seconds_per_gb, Some(0.5));
    }

    #[test]
    fn a_ping_pong_is_half_a_round_trip() {
        let mut round_trips = Histogram::new(3).expect("valid");
        round_trips.record(2000).expect("in range");
        let series = Series {
            round_trips: Some(round_trips),
            ..Series::default()
        };
        let value = |test| {
            series
                .figures(Transport::Udp, &job(test), Unit::Microseconds)
                .value
        };
        assert_eq!(value(Test::WriteLat), 1.0);
        assert_eq!(value(Test::ReadLat), 2.0);
    }
}
