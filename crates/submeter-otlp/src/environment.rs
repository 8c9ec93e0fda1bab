//! The variables of OpenTelemetry's specification.

use std::str::FromStr;
use std::time::Duration;

use submeter_address::{Address, decode};

use crate::builder::{Builder, Endpoint, Protocol, Temporality};
use crate::error::SettingError;

/// The variables of all signals, and those of metrics alone, which take precedence.
const ALL: &str = "OTEL_EXPORTER_OTLP_";
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_";

/// The variable that names a file of settings.
const FILE: &str = "OTEL_CONFIG_FILE";

/// The stand-in for a timeout of 0, which means none: the longest of 31 bits, in milliseconds.
const NONE: Duration = Duration::from_millis(i32::MAX as u64);

impl Builder {
    /// Takes settings from those variables of OpenTelemetry that are set:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_PROTOCOL`,
    /// `_CERTIFICATE`, `_CLIENT_CERTIFICATE`, `_CLIENT_KEY`, and the same after
    /// `OTEL_EXPORTER_OTLP_METRICS`, which take precedence;
    /// `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` and `…_DEFAULT_HISTOGRAM_AGGREGATION`;
    /// `OTEL_METRIC_EXPORT_INTERVAL` and `…_TIMEOUT`, `OTEL_METRICS_EXPORTER`, `OTEL_SERVICE_NAME`,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SDK_DISABLED`.
    ///
    /// It overrides earlier settings, and later ones override it: call it last to let operators
    /// decide.
    ///
    /// A value that cannot be used is ignored, as the specification demands, with a warning in the
    /// [`log`] that names its variable.
    ///
    /// # Errors
    /// Malformed headers: without them a receiver would refuse every export.
    pub fn environment(self) -> Result<Builder, SettingError> {
        let read = |name: &str| std::env::var_os(name).map(|value| value.into_string().ok());
        self.variables(&Variables { read: &read, warn: &|text| log::warn!("{text}") })
    }

    fn variables(mut self, set: &Variables<'_>) -> Result<Builder, SettingError> {
        // It would replace all others, and its contents are beyond what an exporter can do.
        if let Some(file) = set.get(FILE) {
            set.ignored(FILE, &file, "use separate variables instead");
        }
        self.transport(set)?;
        let known = [
            ("cumulative", Temporality::Cumulative),
            ("delta", Temporality::Delta),
            // Delta for what counts up while the program runs, as all our counters do.
            ("lowmemory", Temporality::Delta),
        ];
        set.choice(&[&format!("{METRICS}TEMPORALITY_PREFERENCE")], &known, &mut self.temporality);
        let known =
            [("explicit_bucket_histogram", false), ("base2_exponential_bucket_histogram", true)];
        let name = format!("{METRICS}DEFAULT_HISTOGRAM_AGGREGATION");
        set.choice(&[&name], &known, &mut self.exponential);
        if let Some(interval) = set.time(&["OTEL_METRIC_EXPORT_INTERVAL"], None) {
            self.interval = interval;
        }
        // An export consists of requests, and each has its own timeout.
        if let Some(timeout) = set.time(&["OTEL_METRIC_EXPORT_TIMEOUT"], Some(NONE)) {
            self.timeout = self.timeout.min(timeout);
        }
        self.process(set);
        Ok(self)
    }

    /// Reads the attributes of the process, and whether it sends anything.
    fn process(&mut self, set: &Variables<'_>) {
        // All of them or none: with a part of them the process would be another one.
        let attributes = set.first(
            &["OTEL_RESOURCE_ATTRIBUTES"],
            "write key=value,key=value, with other characters escaped, as in %2C",
            |text| pairs(text).ok(),
        );
        for (key, value) in attributes.into_iter().flatten() {
            self.attribute(&key, &value);
        }
        if let Some(name) = set.get("OTEL_SERVICE_NAME") {
            self.attribute("service.name", &name);
        }
        self.disabled = set.is_true("OTEL_SDK_DISABLED") || self.is_switched_off(set);
    }

    /// Returns whether the list of exporters has `none`, and none that is known.
    fn is_switched_off(&self, set: &Variables<'_>) -> bool {
        const NAME: &str = "OTEL_METRICS_EXPORTER";
        let Some(list) = set.get(NAME) else { return self.disabled };
        let is = |item: &str, known: &str| item.eq_ignore_ascii_case(known);
        let (mut sends, mut sends_none) = (false, false);
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            sends |= is(item, "otlp");
            sends_none |= is(item, "none");
            if !is(item, "otlp") && !is(item, "none") {
                set.ignored(NAME, item, "use otlp or none");
            }
        }
        sends_none && !sends
    }

    /// Reads where to send, and how.
    fn transport(&mut self, set: &Variables<'_>) -> Result<(), SettingError> {
        if let Some(url) = set.get(&format!("{METRICS}ENDPOINT")) {
            self.endpoint = Endpoint::Exact(Address::new(&url));
        } else if let Some(url) = set.get(&format!("{ALL}ENDPOINT")) {
            self.endpoint = Endpoint::Receiver(Address::new(&url));
        }
        let names = |name: &str| [format!("{METRICS}{name}"), format!("{ALL}{name}")];
        let headers = names("HEADERS").into_iter().find_map(|name| Some((set.get(&name)?, name)));
        if let Some((text, name)) = headers {
            let headers =
                pairs(&text).map_err(|why| SettingError::new(format!("{name}: {why}")))?;
            self.headers.0.extend(headers);
        }
        let [ours, all] = &names("TIMEOUT");
        if let Some(timeout) = set.time(&[ours, all], Some(NONE)) {
            self.timeout = timeout;
        }
        let [ours, all] = &names("COMPRESSION");
        set.choice(&[ours, all], &[("gzip", true), ("none", false)], &mut self.gzip);
        let [ours, all] = &names("PROTOCOL");
        let known = [("http/protobuf", Protocol::Http), ("grpc", Protocol::Grpc)];
        set.choice(&[ours, all], &known, &mut self.protocol);
        for (name, file) in [
            ("CERTIFICATE", &mut self.certificate),
            ("CLIENT_CERTIFICATE", &mut self.client_certificate),
            ("CLIENT_KEY", &mut self.client_key),
        ] {
            if let Some(path) = names(name).iter().find_map(|name| set.get(name)) {
                *file = Some(path.into());
            }
        }
        Ok(())
    }
}

/// Variables, and the destination of warnings about useless ones.
struct Variables<'a> {
    /// Returns a variable if it is set, with `None` inside if it is not text.
    read: &'a dyn Fn(&str) -> Option<Option<String>>,
    warn: &'a dyn Fn(String),
}

impl Variables<'_> {
    /// Returns a variable's value, without white space around it; an empty one counts as unset.
    fn get(&self, name: &str) -> Option<String> {
        let value = (self.read)(name)?;
        if value.is_none() {
            (self.warn)(format!("{name} is ignored because it is not UTF-8"));
        }
        value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn ignored(&self, name: &str, value: &str, remedy: &str) {
        (self.warn)(format!("{name}={value:?} is ignored: {remedy}"));
    }

    /// Returns the value of the first variable that has a useful one.
    fn first<T>(
        &self,
        names: &[&str],
        remedy: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        names.iter().find_map(|name| {
            let value = self.get(name)?;
            let found = read(&value);
            if found.is_none() {
                self.ignored(name, &value, remedy);
            }
            found
        })
    }

    fn choice<T: Copy>(&self, names: &[&str], known: &[(&str, T)], chosen: &mut T) {
        let all: Vec<&str> = known.iter().map(|(text, _)| *text).collect();
        let remedy = format!("set {}", all.join(" or "));
        let found = self.first(names, &remedy, |value| {
            let found = known.iter().find(|(text, _)| text.eq_ignore_ascii_case(value));
            found.map(|(_, choice)| *choice)
        });
        *chosen = found.unwrap_or(*chosen);
    }

    /// Reads milliseconds; 0 means `zero`.
    fn time(&self, names: &[&str], zero: Option<Duration>) -> Option<Duration> {
        let least = if zero.is_none() { " above 0" } else { "" };
        self.first(names, &format!("set a number of milliseconds{least}"), |value| {
            // Rust's parser also accepts a sign.
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            match u64::from_str(value).ok().filter(|_| digits)? {
                0 => zero,
                ms => Some(Duration::from_millis(ms)),
            }
        })
    }

    fn is_true(&self, name: &str) -> bool {
        let mut is_true = false;
        self.choice(&[name], &[("true", true), ("false", false)], &mut is_true);
        is_true
    }
}

/// Reads `key=value,key=value`, with percent escapes for characters that would end either. The
/// error does not show the value, which may be a password.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |what: &str| format!("{key:?} {what}: write key=value,key=value");
        if !pair.contains('=') {
            return Err(wrong("has no value"));
        }
        let decoded = |text: &str| {
            decode(text.trim()).map_err(|error| wrong(&format!("or its value is invalid: {error}")))
        };
        let key = decoded(key)?;
        if key.is_empty() {
            return Err("a value has no key: write key=value,key=value".to_owned());
        }
        Ok((key, decoded(value)?))
    };
    pairs.map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use submeter::{Schema, Tree};

    use super::*;

    /// Returns the builder that the variables make, with the warnings.
    fn read(variables: &[(&str, &str)]) -> (Result<Builder, SettingError>, Vec<String>) {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            // A value with this ending stands for one that is not text.
            found.map(|(_, value)| (!value.ends_with('\0')).then(|| (*value).to_owned()))
        };
        let warnings = RefCell::new(Vec::new());
        let warn = |text| warnings.borrow_mut().push(text);
        let built = Builder::new(&tree).variables(&Variables { read: &value, warn: &warn });
        (built, warnings.into_inner())
    }

    /// Returns the builder if all variables are useful.
    fn heeded(variables: &[(&str, &str)]) -> Builder {
        let (built, warnings) = read(variables);
        assert_eq!(warnings, [""; 0]);
        built.expect("valid")
    }

    fn url(settings: &Builder) -> String {
        settings.url().expect("a URL").target()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn each_variable_is_heeded_metrics_ones_first() {
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x=1=2,%79 = , z=a+b;c"),
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
            ("OTEL_METRIC_EXPORT_TIMEOUT", "30000"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,h%6Fst=h%20i%3D,host=%C3%BC"),
            ("OTEL_SERVICE_NAME", "shop"),
        ];
        let grpc = heeded(&all);
        assert_eq!(grpc.protocol, Protocol::Grpc);
        assert_eq!(url(&grpc), "http://a:1/");
        let files = [&grpc.certificate, &grpc.client_certificate, &grpc.client_key];
        let files = files.map(|file| file.clone().expect("set above"));
        assert_eq!(files, ["ours.pem", "c.pem", "c.key"].map(PathBuf::from));
        let is = grpc.protocol(Protocol::Http);
        assert_eq!(url(&is), "http://a:1/v1/metrics");
        let headers = [pair("api-key", "a,b"), pair("x", "1=2"), pair("y", ""), pair("z", "a+b;c")];
        assert_eq!(is.headers.0, headers);
        assert_eq!((is.timeout.as_millis(), is.interval.as_millis()), (9, 5));
        assert!(is.gzip && is.exponential && !is.disabled);
        assert_eq!(is.temporality, Temporality::Delta);
        assert_eq!(is.resource[3..], [pair("host", "ü"), pair("service.name", "shop")]);
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:2/x");
        assert_eq!(url(&heeded(&[all[0], own])), "http://b:2/x");
        let headers = [all[1], ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=b")];
        assert_eq!(heeded(&headers).headers.0, [pair("a", "b")], "instead of all others");
        for (protocol, target) in [
            ("grpc", "http://localhost:4317"),
            ("http/protobuf", "http://localhost:4318/v1/metrics"),
        ] {
            assert_eq!(url(&heeded(&[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)])), target);
        }
        let empty = all.map(|(name, _)| (name, " "));
        assert_eq!(format!("{:?}", heeded(&empty)), format!("{:?}", heeded(&[])), "as if unset");
    }

    #[test]
    fn what_is_not_set_is_as_specified() {
        let is = heeded(&[]);
        assert_eq!((is.timeout.as_secs(), is.interval.as_secs()), (10, 60));
        assert_eq!((is.protocol, is.temporality), (Protocol::Http, Temporality::Cumulative));
        assert!(!is.gzip && !is.exponential && !is.disabled);
        let name = &is.resource[0].1;
        assert!(is.resource[0].0 == "service.name" && name.starts_with("unknown_service:"));
        let sdk = [
            pair("telemetry.sdk.language", "rust"),
            pair("telemetry.sdk.name", "submeter-otlp"),
            pair("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        assert_eq!(is.resource[1..], sdk);
    }

    #[test]
    fn unknown_exporters_of_a_list_are_passed_over() {
        for (list, is_off, unknown) in [
            ("otlp", false, &[][..]),
            ("none", true, &[]),
            (" None ", true, &[]),
            ("console", false, &["console"]),
            ("otlp,console", false, &["console"]),
            ("none, prometheus", true, &["prometheus"]),
            ("none,otlp", false, &[]),
            (",", false, &[]),
        ] {
            let (built, warnings) = read(&[("OTEL_METRICS_EXPORTER", list)]);
            assert_eq!(built.expect("valid").disabled, is_off, "{list}");
            assert_eq!(warnings.len(), unknown.len(), "{warnings:?}");
            for (unknown, warning) in unknown.iter().zip(warnings) {
                let named = format!("OTEL_METRICS_EXPORTER={unknown:?} is ignored");
                assert!(warning.starts_with(&named), "{warning}");
            }
        }
        for (value, is_off, warned) in [
            ("true", true, 0),
            ("TRUE", true, 0),
            ("false", false, 0),
            ("False", false, 0),
            ("1", false, 1),
            ("yes", false, 1),
        ] {
            let (built, warnings) = read(&[("OTEL_SDK_DISABLED", value)]);
            assert_eq!(built.expect("valid").disabled, is_off, "{value}");
            assert_eq!(warnings.len(), warned, "{warnings:?}");
        }
    }

    #[test]
    fn the_shorter_timeout_counts_and_0_is_none() {
        let timeout = |variables: &[(&str, &str)]| heeded(variables).timeout;
        assert_eq!(timeout(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]), NONE);
        assert_eq!(timeout(&[("OTEL_METRIC_EXPORT_TIMEOUT", "0")]), Duration::from_secs(10));
        assert_eq!(timeout(&[("OTEL_METRIC_EXPORT_TIMEOUT", "7")]), Duration::from_millis(7));
        let both = [("OTEL_EXPORTER_OTLP_TIMEOUT", "5"), ("OTEL_METRIC_EXPORT_TIMEOUT", "7")];
        assert_eq!(timeout(&both), Duration::from_millis(5));
    }

    /// A useless value is ignored, with a warning that contains the remedy.
    #[test]
    fn useless_values_are_ignored_with_a_warning() {
        for (name, value, remedy) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "set http/protobuf or grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "+1", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "milliseconds"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1s", "milliseconds above 0"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0", "milliseconds above 0"),
            ("OTEL_METRIC_EXPORT_TIMEOUT", "1.5", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "set gzip or none"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "both", "delta or lowmemory"),
            ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "x", "explicit_bucket"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,host", "key=value"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,c=100%", "key=value"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,c=%ff", "key=value"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b,=c", "key=value"),
            ("OTEL_SERVICE_NAME", "shop\0", "not UTF-8"),
            ("OTEL_CONFIG_FILE", "otel.yaml", "separate variables"),
        ] {
            let (built, warnings) = read(&[(name, value)]);
            let [warning] = &warnings[..] else { panic!("{name}={value}: {warnings:?}") };
            assert!(warning.starts_with(name) && warning.contains(remedy), "{warning}");
            let (built, unset) = (built.expect("ignored"), heeded(&[]));
            assert_eq!(format!("{built:?}"), format!("{unset:?}"), "{name}={value}");
        }
        // A value that is useless for metrics does not hide the one for all signals.
        let both =
            [("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "soon"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "7")];
        assert_eq!(read(&both).0.expect("valid").timeout, Duration::from_millis(7));
    }

    /// Malformed headers are an error that does not show their secrets.
    #[test]
    fn bad_headers_are_an_error_without_secrets() {
        for text in ["key=secret%ff", "key=secret%", "a=b,key", "=secret"] {
            for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"] {
                let error = read(&[(name, text)]).0.expect_err(text).to_string();
                assert!(error.starts_with(name) && !error.contains("secret"), "{error}");
            }
        }
    }
}
