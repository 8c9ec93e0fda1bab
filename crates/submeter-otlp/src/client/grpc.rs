//! A request by gRPC.

use std::error::Error;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use prost::Message;
use tokio::runtime;
use tokio::time::timeout;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;
use ureq::http::HeaderMap;

use super::{ANSWER_MAX, Client, Outcome, Target, USER_AGENT, accepted, plain, remedy};
use crate::builder::Builder;
use crate::error::SettingError;

pub(super) struct Grpc {
    endpoint: Endpoint,
    target: Target,
    metadata: MetadataMap,
    gzip: bool,
    timeout: Duration,
}

impl Grpc {
    pub(super) fn new(
        target: Target,
        headers: HeaderMap,
        settings: &Builder,
    ) -> Result<Grpc, SettingError> {
        let wrong = |error: tonic::transport::Error| {
            SettingError::new(remedy::explain(&target.place, &error, "use another"))
        };
        let endpoint = Endpoint::from(target.uri.clone()).user_agent(USER_AGENT).map_err(wrong)?;
        #[cfg(feature = "tls")]
        let endpoint = match target.uri.scheme_str() {
            Some("https") => {
                let tls = super::tls::Files::read(settings)?.grpc()?;
                endpoint.tls_config(tls).map_err(wrong)?
            }
            _ => endpoint,
        };
        Ok(Grpc {
            endpoint,
            metadata: MetadataMap::from_headers(headers),
            gzip: settings.gzip,
            timeout: settings.timeout,
            target,
        })
    }
}

impl Client for Grpc {
    fn body(&self, request: &ExportMetricsServiceRequest) -> Vec<u8> {
        request.encode_to_vec()
    }

    fn send(&self, body: &[u8]) -> Outcome {
        // A runtime and a connection for each request, as over HTTP: between exports nothing would
        // answer the receiver on an idle connection, or notice that it has closed it.
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return self.again(&error),
        };
        let outcome = runtime.block_on(async { timeout(self.timeout, self.export(body)).await });
        // A name look-up may still be in progress, on a thread that cannot be interrupted.
        runtime.shutdown_background();
        outcome.unwrap_or_else(|_| Outcome::Again {
            why: remedy::late(&self.target.place),
            after: None,
        })
    }
}

impl Grpc {
    async fn export(&self, body: &[u8]) -> Outcome {
        // The message is several times as large as its bytes, so the bytes are what is kept.
        let message = match ExportMetricsServiceRequest::decode(body) {
            Ok(message) => message,
            Err(error) => unreachable!("encoded above: {error}"),
        };
        let channel = match self.endpoint.connect().await {
            Ok(channel) => channel,
            Err(error) => return self.again(&error),
        };
        let mut client = MetricsServiceClient::new(channel)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(ANSWER_MAX);
        if self.gzip {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request.set_timeout(self.timeout);
        match client.export(request).await {
            Ok(answer) => accepted(answer.into_inner()),
            Err(status) => self.failed(&status),
        }
    }

    fn again(&self, error: &(dyn Error + 'static)) -> Outcome {
        Outcome::Again {
            why: remedy::explain(&self.target.place, error, self.target.guess),
            after: None,
        }
    }

    fn failed(&self, status: &Status) -> Outcome {
        // The connection broke; the receiver did not answer.
        if let Some(error) = status.source() {
            return self.again(error);
        }
        let after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let says = plain(status.message()).map(|text| format!(": {text}")).unwrap_or_default();
        let (place, guess) = (&self.target.place, self.target.guess);
        let why = format!("{place} answered {:?}{says}", status.code());
        match status.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => Outcome::Again { why, after },
            Code::ResourceExhausted if after.is_some() => Outcome::Again { why, after },
            // tonic's own text for an HTTP/2 answer that is not gRPC; with `Unimplemented` a
            // service is missing.
            Code::Internal if status.message().starts_with("protocol error: ") => {
                Outcome::Refused(format!("{why}: {guess}"))
            }
            Code::Unimplemented => Outcome::Refused(format!("{why}: {guess}")),
            _ => Outcome::Refused(why),
        }
    }
}
