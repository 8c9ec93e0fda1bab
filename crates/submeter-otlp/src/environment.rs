//! The variables of OpenTelemetry's specification.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use submeter_address::Address;

use crate::builder::{Builder, Endpoint, Protocol, Temporality};
use crate::error::SettingError;

/// The variables of all signals, and those of metrics alone, which come first.
const ALL: &str = "OTEL_EXPORTER_OTLP_";
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_";

impl Builder {
    /// Takes settings from the variables of OpenTelemetry, where they are set:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_PROTOCOL`,
    /// `_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY`, and the same after
    /// `OTEL_EXPORTER_OTLP_METRICS`, which come first;
    /// `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` and
    /// `…_DEFAULT_HISTOGRAM_AGGREGATION`; `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_METRICS_EXPORTER`,
    /// `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SDK_DISABLED`.
    ///
    /// # Errors
    /// A value that cannot be used, by the name of its variable.
    pub fn environment(self) -> Result<Builder, SettingError> {
        self.variables(|name| std::env::var(name).ok())
    }

    pub(crate) fn variables(
        mut self,
        read: impl Fn(&str) -> Option<String>,
    ) -> Result<Builder, SettingError> {
        // An empty variable counts as unset.
        let read = |name: &str| read(name).filter(|value| !value.trim().is_empty());
        self.transport(&read)?;
        if let Some(value) = read(&format!("{METRICS}TEMPORALITY_PREFERENCE")) {
            let known = [
                ("cumulative", Temporality::Cumulative),
                ("delta", Temporality::Delta),
                // Delta for what counts up while the program runs, which all of ours does.
                ("lowmemory", Temporality::Delta),
            ];
            self.temporality = choose(&format!("{METRICS}TEMPORALITY_PREFERENCE"), &value, &known)?;
        }
        if let Some(value) = read(&format!("{METRICS}DEFAULT_HISTOGRAM_AGGREGATION")) {
            let known = [
                ("explicit_bucket_histogram", false),
                ("base2_exponential_bucket_histogram", true),
            ];
            let name = format!("{METRICS}DEFAULT_HISTOGRAM_AGGREGATION");
            self.exponential = choose(&name, &value, &known)?;
        }
        if let Some(value) = read("OTEL_METRIC_EXPORT_INTERVAL") {
            self.interval = milliseconds("OTEL_METRIC_EXPORT_INTERVAL", &value)?;
        }
        if let Some(value) = read("OTEL_RESOURCE_ATTRIBUTES") {
            for (key, value) in pairs("OTEL_RESOURCE_ATTRIBUTES", &value)? {
                self = self.resource(&key, &value);
            }
        }
        if let Some(name) = read("OTEL_SERVICE_NAME") {
            self = self.service(&name);
        }
        if let Some(value) = read("OTEL_METRICS_EXPORTER") {
            let known = [("otlp", false), ("none", true)];
            self.disabled = choose("OTEL_METRICS_EXPORTER", &value, &known)?;
        }
        let disabled = read("OTEL_SDK_DISABLED").is_some_and(|value| value.trim() == "true");
        self.disabled |= disabled;
        Ok(self)
    }

    /// Takes where to send to, and how.
    fn transport(&mut self, read: &impl Fn(&str) -> Option<String>) -> Result<(), SettingError> {
        let either = |name: &str| {
            [METRICS, ALL].iter().find_map(|start| {
                let name = format!("{start}{name}");
                read(&name).map(|value| (name, value))
            })
        };
        if let Some(url) = read(&format!("{METRICS}ENDPOINT")) {
            self.endpoint = Endpoint::Exact(Address::new(&url));
        } else if let Some(url) = read(&format!("{ALL}ENDPOINT")) {
            self.endpoint = Endpoint::Receiver(Address::new(&url));
        }
        if let Some((name, value)) = either("HEADERS") {
            self.headers.0.extend(pairs(&name, &value)?);
        }
        if let Some((name, value)) = either("TIMEOUT") {
            self.timeout = milliseconds(&name, &value)?;
        }
        if let Some((name, value)) = either("COMPRESSION") {
            self.gzip = choose(&name, &value, &[("gzip", true), ("none", false)])?;
        }
        if let Some((name, value)) = either("PROTOCOL") {
            let known = [("http/protobuf", Protocol::Http), ("grpc", Protocol::Grpc)];
            self.protocol = choose(&name, &value, &known)?;
        }
        for (name, file) in [
            ("CERTIFICATE", &mut self.certificate),
            ("CLIENT_CERTIFICATE", &mut self.client_certificate),
            ("CLIENT_KEY", &mut self.client_key),
        ] {
            if let Some((_, path)) = either(name) {
                *file = Some(path.into());
            }
        }
        Ok(())
    }
}

fn choose<T: Copy>(name: &str, value: &str, known: &[(&str, T)]) -> Result<T, SettingError> {
    let value = value.trim();
    let found = known.iter().find(|(text, _)| text.eq_ignore_ascii_case(value));
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let all: Vec<&str> = known.iter().map(|(text, _)| *text).collect();
        SettingError::new(format!("{name}={value:?}: unset it, or set {}", all.join(" or ")))
    })
}

fn milliseconds(name: &str, value: &str) -> Result<Duration, SettingError> {
    match value.trim().parse() {
        Ok(ms) if ms > 0 => Ok(Duration::from_millis(ms)),
        _ => {
            let text = format!("{name}={value:?}: set a number of milliseconds above 0");
            Err(SettingError::new(text))
        }
    }
}

/// Reads `key=value,key=value`, with percent signs for what would end a value.
fn pairs(name: &str, text: &str) -> Result<Vec<(String, String)>, SettingError> {
    let mut pairs = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // The value is not shown: it may be a password.
        let wrong = |what: &str| {
            let key = pair.split('=').next().unwrap_or_default();
            SettingError::new(format!("{name}: {key:?} {what}: write key=value,key=value"))
        };
        let (key, value) = pair.split_once('=').ok_or_else(|| wrong("has no value"))?;
        let value = percent_decode_str(value.trim()).decode_utf8();
        let value = value.map_err(|_| wrong("has a value that is not UTF-8"))?;
        pairs.push((key.trim().to_owned(), value.into_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use submeter::{Schema, Tree};

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Builder, SettingError> {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Builder::new(&tree).variables(value)
    }

    fn url(settings: &Builder) -> String {
        settings.url().expect("a URL").target()
    }

    #[test]
    fn each_variable_is_heeded_and_those_of_metrics_come_first() {
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x=1=2"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "7"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "9"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "all.pem"),
            ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "ours.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "c.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "c.key"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
            (
                "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
                "base2_exponential_bucket_histogram",
            ),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,host=h%20i"),
            ("OTEL_SERVICE_NAME", "shop"),
        ];
        let mut is = read(&all).expect("valid");
        let grpc = read(&all).expect("valid");
        assert_eq!(grpc.protocol, Protocol::Grpc);
        let files = [grpc.certificate, grpc.client_certificate, grpc.client_key];
        let files = files.map(|file| file.expect("set above"));
        assert_eq!(files, ["ours.pem", "c.pem", "c.key"].map(PathBuf::from));
        assert_eq!(url(&is), "http://a:1/");
        is = is.protocol(Protocol::Http);
        assert_eq!(url(&is), "http://a:1/v1/metrics");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(is.headers.0, [pair("api-key", "a,b"), pair("x", "1=2")]);
        assert_eq!((is.timeout.as_millis(), is.interval.as_millis()), (9, 5));
        assert!(is.gzip && is.exponential && !is.disabled);
        assert_eq!(is.temporality, Temporality::Delta);
        assert_eq!(is.resource, [pair("host", "h i"), pair("service.name", "shop")]);
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:2/x");
        assert_eq!(url(&read(&[all[0], own]).expect("valid")), "http://b:2/x");
        for (protocol, url) in [
            ("grpc", "http://localhost:4317"),
            ("http/protobuf", "http://localhost:4318/v1/metrics"),
        ] {
            let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
            assert_eq!(self::url(&read(&[protocol]).expect("valid")), url);
        }
        for (name, value) in [("OTEL_SDK_DISABLED", "true"), ("OTEL_METRICS_EXPORTER", "none")] {
            assert!(read(&[(name, value)]).expect("valid").disabled, "{name}");
        }
        let empty = all.map(|(name, _)| (name, " "));
        assert_eq!(read(&empty).expect("as if unset").timeout, Duration::from_secs(10));
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_its_variable_and_no_secret() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "both"),
            ("OTEL_RESOURCE_ATTRIBUTES", "host"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "key=secret%ff"),
        ] {
            let error = read(&[(name, value)]).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
