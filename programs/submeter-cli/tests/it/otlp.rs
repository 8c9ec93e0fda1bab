//! `submeter serve --otlp`, and the error if it is not available.

use crate::support::{FREE, SUBMETER};

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_without_otlp_says_how_to_get_one() {
    let flags = [&FREE[..], &["--otlp", "http://127.0.0.1:1"]].concat();
    SUBMETER.refuses(&flags, &["http://127.0.0.1:1", "--features otlp"]);
}

#[cfg(feature = "otlp")]
mod with {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use submeter_program::text;

    use super::{FREE, SUBMETER};

    /// By the end, the receiver has everything that tenants did.
    #[test]
    fn what_tenants_did_has_arrived_by_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let receiver = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let at = head.len();
                assert!(reader.read_line(&mut head).expect("text") > 0, "{head}");
                let line = head[at..].to_ascii_lowercase();
                length = line
                    .strip_prefix("content-length: ")
                    .map_or(length, |n| n.trim().parse().expect("a length"));
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("all of it");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("read");
            (head, body)
        });
        let flags = ["--otlp", &url, "--load", "1", "--seconds", "1", "--member", "south-7"];
        // Useless variables are ignored, and the proxy has no route back to this machine.
        let variables = [
            ("OTEL_METRICS_EXPORTER", "otlp,console"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("HTTP_PROXY", "http://127.0.0.1:1"),
            ("http_proxy", "http://127.0.0.1:1"),
            ("ALL_PROXY", "http://127.0.0.1:1"),
        ];
        let output = SUBMETER.run_in(&[&FREE[..], &flags].concat(), &variables);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("OTEL_METRICS_EXPORTER=\"console\" is ignored"), "{said}");
        assert!(said.contains("OTEL_EXPORTER_OTLP_TIMEOUT=\"soon\" is ignored"), "{said}");
        assert!(!said.contains("last export failed"), "{said}");
        let (head, body) = receiver.join().expect("no panic");
        assert!(head.starts_with("POST /v1/metrics HTTP/1.1"), "{head}");
        for part in ["service.instance.id", "south-7", "submeter.cache.", "/load/tenant1"] {
            assert!(body.windows(part.len()).any(|window| window == part.as_bytes()), "{part}");
        }
    }

    #[test]
    fn a_receiver_down_warns_and_a_bad_url_fails() {
        let flags = ["--otlp", "http://127.0.0.1:1", "--load", "1", "--seconds", "1"];
        let output = SUBMETER.run(&[&FREE[..], &flags].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let warning = text(&output.stderr);
        assert!(warning.contains("the last export failed: http://127.0.0.1:1"), "{warning}");
        assert!(warning.contains("start a receiver there"), "{warning}");
        SUBMETER.refuses(
            &[&FREE[..], &["--otlp", "127.0.0.1:1"]].concat(),
            &["127.0.0.1:1", "http://"],
        );
        let variable = ("OTEL_EXPORTER_OTLP_HEADERS", "key");
        let output = SUBMETER.run_in(&[&FREE[..], &flags].concat(), &[variable]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("OTEL_EXPORTER_OTLP_HEADERS"));
        #[cfg(not(feature = "tls"))]
        SUBMETER.refuses(
            &[&FREE[..], &["--otlp", "https://127.0.0.1:1"]].concat(),
            &["https://127.0.0.1:1", "feature `tls`"],
        );
        let ways = ["--otlp", "http://127.0.0.1:1", "--otlp-protocol", "http/json"];
        SUBMETER.refuses(&[&FREE[..], &ways].concat(), &["http/json", "grpc"]);
    }

    #[test]
    fn a_mute_receiver_holds_up_the_last_export_only() {
        // The system takes connections, but nothing accepts them.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("bound"));
        let long = ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000");
        let mut server = SUBMETER.start_in(&[&FREE[..], &["--otlp", &url]].concat(), &[long]);
        server.line_with("  ends  ");
        server.signal("INT");
        // Before the export has ended, which takes a minute.
        server.line_with("sums    exact");
        // The reason for the wait is printed only after a while.
        thread::sleep(std::time::Duration::from_secs(2));
        server.signal("INT");
        let (code, out) = server.end();
        assert_eq!(code, Some(130), "{out}");
        let waits = out.lines().filter(|line| line.contains("the last export yet: waiting"));
        assert_eq!(waits.count(), 1, "{out}");
    }

    /// However long a receiver may take, the end waits for a few seconds, and says what is lost.
    #[test]
    fn a_mute_receiver_does_not_hold_up_the_end() {
        for protocol in ["http/protobuf", "grpc"] {
            let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}", silent.local_addr().expect("bound"));
            let hour = ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000");
            let flags = ["--otlp", &url, "--otlp-protocol", protocol];
            let mut server = SUBMETER.start_in(&[&FREE[..], &flags].concat(), &[hour]);
            server.line_with("  ends  ");
            let out = server.end_by("TERM");
            let lost = "the last export failed: the receiver has not accepted it within 5s: all \
                        that was counted may be lost to the receiver";
            assert_eq!(out.matches(lost).count(), 1, "{out}");
        }
    }

    #[test]
    fn the_protocol_is_the_flags_or_the_environments() {
        let grpc = ["--otlp-protocol", "grpc"];
        let http = ["--otlp-protocol", "http/protobuf"];
        let variable = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        for (flags, variables, preface) in [
            (&grpc[..], &[][..], "PRI * HTTP/2.0"),
            (&[], &variable, "PRI * HTTP/2.0"),
            (&http, &variable, "POST /v1/metrics HTTP/1.1"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}/", listener.local_addr().expect("bound"));
            let receiver = thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut first = vec![0; preface.len()];
                stream.read_exact(&mut first).expect("a preface");
                first
            });
            let run = ["--otlp", &url, "--load", "1", "--seconds", "1"];
            let flags = [&FREE[..], &run, flags].concat();
            let output = SUBMETER.run_in(&flags, variables);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(receiver.join().expect("no panic"), preface.as_bytes());
        }
    }

    /// A receiver that is down causes one warning while the server continues.
    #[test]
    fn a_receiver_that_is_down_is_warned_of_once() {
        let flags = ["--otlp", "http://127.0.0.1:1", "--load", "1", "--seconds", "2"];
        let often = ("OTEL_METRIC_EXPORT_INTERVAL", "50");
        let output = SUBMETER.run_in(&[&FREE[..], &flags].concat(), &[often]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let warnings = text(&output.stderr);
        let warned = warnings.matches("cannot send metrics, keeping them").count();
        assert_eq!(warned, 1, "{warnings}");
    }
}
