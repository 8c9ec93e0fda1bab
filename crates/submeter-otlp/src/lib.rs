//! Sends a tree's metrics to an OpenTelemetry receiver by OTLP: protobuf over HTTP, or gRPC.
//!
//! New to submeter? Its [guide](submeter::guide) has short programs, and says [which exporter to
//! choose](submeter::guide::exporting).
//!
#![doc = concat!("```no_run\n", include_str!("../examples/send.rs"), "```")]
//!
//! # What is sent
//! Every metric of every group that has counted anything, with the attribute `group`, its path.
//! Values are what the group counted *itself*, so that a sum over groups is right. Whatever a group
//! counts between the last export and its end becomes its parent's. A group that is created again
//! under its name begins a new series, with a new start time.
//!
//! Values restored from a checkpoint are not sent: the process that counted them has sent them,
//! except for those that a crash kept it from sending, at most one interval's worth. To a receiver,
//! a restart therefore looks like that of any program: values start from 0.
//!
//! - A counter is a monotonic sum.
//! - A gauge is a sum that is not monotonic, and always cumulative.
//! - A histogram has a bucket per power of two, by explicit bounds or as an
//!   [exponential](Builder::exponential) one.
//! - A quota `memory` is a sum that is not monotonic. Events at the group's own limit are monotonic
//!   sums, one for each [`QuotaPart`](submeter::export::QuotaPart) that counts: `memory.refused`,
//!   `memory.overdrafts`, `memory.paused`, `memory.reclaimed`, `memory.reclaimed_low`. So are the
//!   stalls `memory.pressure_some` and `memory.pressure_full`, but a group's stalls include those
//!   of its descendants, so they must not be added up over groups. The gauge `memory.peak` is that
//!   of the group with its descendants. For groups with a limit, so are the gauges `memory.subtree`
//!   and `memory.limit`. None of these three is a sum.
//!
//! A series is cumulative since its start time, which is new in a new process. Of two values of one
//! series, the one with the later time includes the other, whatever clocks are set to.
//! `service.instance.id` identifies the process, and `submeter.epoch` the tree.
//!
//! Units are the schema's: `By`, `ns` and, for counts, none. All values except the sums of
//! histograms are therefore integers.
//!
//! # Receivers that are down, slow or strange
//! One export is kept, unchanged, until the receiver answers; one that is too large for receivers
//! is sent as [several requests](Builder::request_max). Whatever is counted meanwhile stays in the
//! tree and is in the next export: memory does not grow, and nothing is lost. The wait between
//! retries doubles each time, up to a minute, or is as long as the receiver asks for, up to five
//! minutes: by `Retry-After`, in seconds or as a date, or by gRPC's `RetryInfo`.
//! [`Builder::report`] gets a text when exports begin to fail, with the endpoint and a remedy.
//!
//! A request that the receiver refuses is not repeated; what was new in it is in the next export,
//! for the root if its group has ended meanwhile. The same holds for an answer that no receiver
//! gives, such as a page of HTML. All of these are counted: [`Exporter::stats`]. If the connection
//! breaks after the request was read, the receiver gets it twice; with
//! [cumulative](Temporality::Cumulative) values that changes nothing.
//!
//! # When not to use it
//! Where Prometheus scrapes the process, [`submeter::export`] needs no thread and no receiver.
//!
//! # Features
//! - `tls`: endpoints with `https`, by rustls, with the authorities of the system or of [a
//!   file](Builder::certificate), and [client certificates](Builder::client_certificate).
//! - `grpc`: [`Protocol::Grpc`], by tonic, on a runtime that lives for one request. It uses no
//!   proxy; HTTP uses that of `HTTPS_PROXY` and its kin.
//!
//! Without them an endpoint or a protocol that needs them is an error of [`start`](Builder::start);
//! a collector beside the process supports both.
//!
//! # Cost
//! A thread, and a [snapshot](submeter::Tree::snapshot) at each interval. Between exports, some 100
//! bytes are kept for each group. For a group that has counted anything, all of its values are also
//! kept twice, and those that changed in an unanswered request a third time. [`Builder::depth`]
//! bounds how much is sent.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod builder;
mod client;
mod encode;
mod environment;
mod error;
mod exporter;
mod series;
mod stats;
mod worker;

pub use builder::{Builder, Protocol, Temporality};
pub use error::{ExportError, SettingError};
pub use exporter::Exporter;
pub use stats::Stats;

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
