//! Requests the tree from the server.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;

use ureq::config::ConfigBuilder;
use ureq::http::{HeaderValue, StatusCode};
use ureq::typestate::AgentScope;
use ureq::{Agent, RequestBuilder};

use crate::cli::{AccessArgs, NO_TLS, PageArgs};
use crate::secrets;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use submeter_address::{Address, Url};
use submeter_http::wire::totals::{self, TotalsDoc};
use submeter_http::wire::{DetailDoc, FORMAT, LimitDoc, TreeDoc};
use submeter_terminal::{self as show, Failure};

/// Time limit for an answer: that of a large tree on a busy machine takes a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Size limit for an answer: at about a kilobyte per tenant, a tree of a quarter million.
const ANSWER_MAX: u64 = 256 << 20;

/// What to say of an answer that no submeter server gives.
const ANOTHER: &str = "is it a submeter server? Use its --http address";

/// Size limit for a refusal.
const SENTENCE_MAX: u64 = 64 << 10;

/// How much of a refusal is shown, in characters.
const WHY_MAX: usize = 200;

/// A client of one server. Cloning copies a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    agent: Agent,
    page: Page,
}

/// The address of a page, and the credentials to show there.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Without a slash at the end, and without user and password, so that it may be printed.
    pub(crate) url: String,
    /// What is sent as `Authorization`; never printed.
    authorization: Option<HeaderValue>,
}

impl Client {
    /// Takes `http://host:port`, or just `host:port`.
    pub(crate) fn new(page: &PageArgs) -> Result<Client, Failure> {
        let (page, config) = Page::of(page)?;
        Ok(Client { agent: config.timeout_global(Some(TIMEOUT)).build().into(), page })
    }

    /// Makes a client for each of several servers, or says what is wrong with an address.
    pub(crate) fn each(access: &AccessArgs, urls: &[Address]) -> Result<Vec<Client>, Failure> {
        urls.iter().map(|url| Client::new(&access.page(url))).collect()
    }

    /// The same as [`Client::each`], with a single client for a server that is named twice, so that
    /// none of its figures are added twice.
    pub(super) fn distinct(access: &AccessArgs, urls: &[Address]) -> Result<Vec<Client>, Failure> {
        let mut seen = HashSet::new();
        let mut clients = Client::each(access, urls)?;
        clients.retain(|client| seen.insert(client.page.url.clone()));
        Ok(clients)
    }

    /// Returns the server's address.
    pub(crate) fn url(&self) -> &str {
        &self.page.url
    }

    /// Requests the tree.
    pub(super) fn tree(&self) -> Result<TreeDoc, Failure> {
        self.tree_and_text().map(|(tree, _)| tree)
    }

    /// Requests the tree, and keeps its JSON as the server wrote it.
    pub(super) fn tree_and_text(&self) -> Result<(TreeDoc, String), Failure> {
        let text = self.text("/api/tree")?;
        let tree = read("tree", FORMAT, &text);
        let tree = tree.map_err(|why| Failure::new(format_args!("{}: {why}", self.url())))?;
        Ok((tree, text))
    }

    /// Requests the totals to bill.
    pub(crate) fn totals(&self) -> Result<TotalsDoc, Failure> {
        let totals = read("bill", totals::FORMAT, &self.text("/api/totals")?);
        totals.map_err(|why| Failure::new(format_args!("{}: {why}", self.url())))
    }

    fn text(&self, what: &str) -> Result<String, Failure> {
        let (status, text) = self.fetch(what, &[]).map_err(|error| self.unreachable(&error))?;
        match status {
            StatusCode::OK => Ok(text),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let url = self.url();
                let line = text.trim().lines().next().unwrap_or_default();
                let line: String = line.chars().take(WHY_MAX).collect();
                Err(Failure::new(format_args!("{url}: {line}{}", hint(status))))
            }
            status => Err(self.unreachable(&ureq::Error::StatusCode(status.as_u16()))),
        }
    }

    /// Requests a group with its past. `None` if the group is gone or the server does not answer;
    /// the request for the tree reports that.
    pub(super) fn group(&self, path: &str) -> Option<DetailDoc> {
        let (status, text) = self.fetch("/api/group", &[("path", path)]).ok()?;
        (status == StatusCode::OK).then(|| serde_json::from_str(&text).ok())?
    }

    /// Returns whether there is a group.
    pub(crate) fn has_group(&self, path: &str) -> Result<bool, Failure> {
        let answer = self.fetch("/api/group", &[("path", path)]);
        let (status, _) = answer.map_err(|error| self.unreachable(&error))?;
        Ok(status != StatusCode::NOT_FOUND)
    }

    /// Sets limits of a group, written as the program writes them.
    pub(crate) fn set_limits(&self, path: &str, limits: &str) -> Result<LimitDoc, Failure> {
        let url = format!("{}/api/limit", self.url());
        let request = self.agent.post(url).query("path", path).header("X-Submeter", "1");
        let answer = self.page.authorize(request).send(limits);
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let refused = |why: &str| Failure::new(format_args!("{}: {why}", self.url()));
        match answer.status() {
            StatusCode::OK => {
                let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
                let text = text.map_err(|error| self.unreachable(&error))?;
                parse("answer", &text).map_err(|why| refused(&why))
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Err(refused(
                "it does not allow setting limits: start submeter serve with --limits-api",
            )),
            status if status.is_redirection() => {
                Err(self.unreachable(&ureq::Error::StatusCode(status.as_u16())))
            }
            _ => Err(refused(&sentence(&mut answer))),
        }
    }

    fn fetch(
        &self,
        what: &str,
        query: &[(&str, &str)],
    ) -> Result<(StatusCode, String), ureq::Error> {
        let url = format!("{}{what}", self.url());
        let request = self.agent.get(url).query_pairs(query.iter().copied());
        let mut answer = self.page.authorize(request).call()?;
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string()?;
        Ok((answer.status(), text))
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        unreachable(self.url(), error)
    }
}

/// Returns an answer's message for people, on one line; or what to do if the answer is another
/// server's.
pub(crate) fn sentence(answer: &mut ureq::http::Response<ureq::Body>) -> String {
    let is_ours = answer.body().mime_type().is_some_and(|kind| kind.starts_with("text/plain"));
    let read = || answer.body_mut().with_config().limit(SENTENCE_MAX).read_to_string().ok();
    match is_ours.then(read).flatten() {
        Some(text) => {
            let line = show::plain(text.trim().lines().next().unwrap_or_default());
            line.chars().take(WHY_MAX).collect::<String>() + hint(answer.status())
        }
        None => ANOTHER.to_owned(),
    }
}

/// Returns what to do about a missing token, if the variable of `serve` names one. It is not sent
/// without being asked for: the address may be anyone's.
fn hint(status: StatusCode) -> &'static str {
    let is_named = std::env::var_os("SUBMETER_TOKEN_FILE").is_some();
    match (status, is_named) {
        (StatusCode::UNAUTHORIZED, true) => {
            " (SUBMETER_TOKEN_FILE is read by submeter serve alone: use --token-file)"
        }
        _ => "",
    }
}

/// Reads a document, or says why it cannot.
fn read<T: DeserializeOwned>(name: &str, known: u32, text: &str) -> Result<T, String> {
    /// The fields that documents of all formats have.
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    if let Ok(Head { format }) = serde_json::from_str(text)
        && format != known
    {
        return Err(format!(
            "the {name} has format {format}, but submeter {} reads format {known}: use the \
             server's version of submeter",
            env!("CARGO_PKG_VERSION")
        ));
    }
    parse(name, text)
}

/// Reads JSON, or says why it cannot.
fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    // What the server writes is an object, whatever its version.
    if !text.trim_start().starts_with('{') {
        return Err(ANOTHER.to_owned());
    }
    serde_json::from_str(text).map_err(|error| {
        format!("not the same version of submeter: its {name} cannot be read ({error})")
    })
}

impl Page {
    /// Reads the arguments: the address is `http://host:port`, or just `host:port`, preceded by a
    /// user and a password if the server asks for them. Also returns the configuration of requests.
    pub(crate) fn of(page: &PageArgs) -> Result<(Page, ConfigBuilder<AgentScope>), Failure> {
        let url = url(&page.url)?;
        let config = config(&page.access, &url)?;
        let token = page.access.token_file.as_deref().map(secrets::token).transpose()?;
        let authorization = match token {
            Some(token) => Some(token.header()),
            None => url.authorization(),
        };
        let authorization = authorization.map(|text| {
            let mut value = HeaderValue::try_from(text).expect("base64, or a token");
            value.set_sensitive(true);
            value
        });
        Ok((Page { url: url.target(), authorization }, config))
    }

    /// Adds the credentials to a request.
    pub(crate) fn authorize<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        }
    }
}

fn config(access: &AccessArgs, url: &Url) -> Result<ConfigBuilder<AgentScope>, Failure> {
    let config = Agent::config_builder()
        // The server is usually local; a proxy for the web does not apply to it.
        .proxy(None)
        // The server's explanation is wanted, whatever the status code.
        .http_status_as_error(false)
        // What is elsewhere is not the server that was named, and is not sent limits or a token.
        .max_redirects(0)
        .max_redirects_will_error(false);
    #[cfg(feature = "tls")]
    if let Some(authorities) = &access.ca_file {
        return Ok(config.tls_config(crate::tls::client(authorities)?));
    }
    if url.scheme() == "https" || access.ca_file.is_some() {
        let why = match cfg!(feature = "tls") {
            true => "it requires --ca-file FILE with the authorities to trust",
            false => NO_TLS,
        };
        return Err(Failure::new(format_args!("cannot reach {url}: {why}, or use http://")));
    }
    Ok(config)
}

/// Returns the URL of a page without a slash at the end.
fn url(address: &Address) -> Result<Url, Failure> {
    // Quoted: it may contain any character.
    let wrong = |why: &str| {
        let shown = address.to_string();
        let remedy = "give the page's address, as in http://127.0.0.1:9411";
        Failure::new(format_args!("cannot reach {shown:?}: {why}{remedy}"))
    };
    let text = address.secret();
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Address::new(&full).url().map_err(|error| wrong(&format!("{error}; ")))?;
    if !["http", "https"].contains(&url.scheme()) {
        let scheme = url.scheme();
        return Err(Failure::new(format_args!(
            "cannot reach {url}: {scheme} is not supported, use http:// or https://"
        )));
    }
    if url.hosts().is_none_or(|hosts| hosts.len() > 1) || url.query().is_some() {
        return Err(wrong(""));
    }
    Ok(url.join(""))
}

const CHECK: &str = "check whether a submeter server is there";

/// Returns the error for a server that does not answer properly, with the remedy of its cause.
pub(crate) fn unreachable(url: &str, error: &ureq::Error) -> Failure {
    const START: &str = "start `submeter serve` or use its --http address";
    let other = error.to_string();
    let (why, remedy) = match error {
        ureq::Error::StatusCode(404) => {
            return Failure::new(format_args!("{url} answers but has no tree: {ANOTHER}"));
        }
        ureq::Error::StatusCode(300..=399) => {
            ("it redirects to another address", "use that address, which `curl -I` shows")
        }
        ureq::Error::StatusCode(503) => {
            ("all its connections are taken", "close pages that watch it, or try again")
        }
        ureq::Error::StatusCode(_) => (&*other, CHECK),
        ureq::Error::HostNotFound => ("no such host", "check the name, or use the IP address"),
        ureq::Error::BodyExceedsLimit(_) => ("its answer is too large to be a tree", CHECK),
        ureq::Error::Timeout(_) => ("no answer in time", START),
        ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            ("nothing listens there", START)
        }
        _ => (&*other, remedy(&other).unwrap_or(START)),
    };
    Failure::new(format_args!("cannot reach {url}: {why}; {remedy}"))
}

/// Returns the remedy for an error that is known only by its text: a build without TLS does not
/// have the error types of certificates.
fn remedy(why: &str) -> Option<&'static str> {
    let remedies = [
        (
            "CaUsedAsEndEntity",
            "its certificate is a CA certificate, the default of `openssl req -x509`: make one \
             with basicConstraints=CA:FALSE (SECURITY.md has the command)",
        ),
        (
            "UnknownIssuer",
            "--ca-file does not contain the authority of its certificate: use that authority",
        ),
        (
            "BadSignature",
            "--ca-file contains a different authority of the same name: use the server's",
        ),
        ("not valid for name", "use the name in its certificate, or make one for this name"),
        ("expired", "renew its certificate (--tls-cert)"),
        ("not valid yet", "correct the clocks, or renew its certificate (--tls-cert)"),
        ("invalid peer certificate", "use the authority of its --tls-cert for --ca-file"),
        ("InvalidContentType", "it does not speak TLS there: use http://"),
        ("invalid HTTP version", "it speaks TLS there, or another protocol: use https://"),
        ("lookup address", "check the name, or use the IP address"),
        ("http parse fail", CHECK),
        ("valid UTF-8", CHECK),
    ];
    remedies.iter().find(|(part, _)| why.contains(part)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    fn client(url: &str) -> Result<Client, Failure> {
        Client::new(&AccessArgs::default().page(&Address::new(url)))
    }

    #[test]
    fn scheme_and_trailing_slash_are_optional() {
        for url in ["127.0.0.1:9411", "http://127.0.0.1:9411", "HTTP://127.0.0.1:9411/#/acme"] {
            assert_eq!(client(url).expect("an address").url(), "http://127.0.0.1:9411");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_by_name() {
        for (url, named) in [
            ("ftp://localhost:1", "ftp://localhost:1: ftp is"),
            ("", "\"\": give"),
            ("http://", "\"http://\": give"),
            ("a b", "\"a b\": it contains white space"),
            ("a:b", "\"a:b\": give"),
            ("a:1,b:1", "\"a:1,b:1\": give"),
            ("http://localhost:1/?x=y", "\"http://localhost:1/\": give"),
            ("http://x:100%@localhost:1", "\"http://localhost:1\": invalid percent escape"),
        ] {
            let failure = client(url).expect_err("refused");
            assert!(failure.line().contains(named), "{failure:?} names {url:?}");
        }
    }

    #[test]
    fn user_and_password_are_decoded_and_not_printed() {
        for url in ["http://x:p%40ss@h:1/tenants/", "x:p%40ss@h:1/tenants"] {
            let client = client(url).expect("an address");
            assert_eq!(client.url(), "http://h:1/tenants");
            let sent = client.page.authorization.as_ref().expect("a password");
            assert_eq!(sent, "Basic eDpwQHNz");
            assert!(!format!("{client:?}").contains("eDpwQHNz"), "{client:?}");
        }
        assert_eq!(client("h:1").expect("an address").page.authorization, None);
    }

    /// A tree of another format is refused, and the error names both formats.
    #[test]
    fn a_tree_of_another_format_is_refused() {
        let why = read::<TreeDoc>("tree", FORMAT, r#"{"format":7,"groups":"elsewhere"}"#)
            .expect_err("another format");
        assert!(why.contains("format 7") && why.contains(&format!("format {FORMAT}")), "{why}");
        for (text, part) in [
            ("{}", "not the same version of submeter"),
            (r#"{"format":1}"#, "not the same version of submeter"),
            (r#"{"format":1"#, "EOF while parsing"),
            ("[]", "is it a submeter server?"),
            ("", "is it a submeter server?"),
            ("<!doctype html>", "is it a submeter server?"),
        ] {
            let why = read::<TreeDoc>("tree", FORMAT, text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    /// No request goes to another server than the one that was named.
    #[test]
    fn a_redirect_is_told_of_and_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = listener.local_addr().expect("bound").to_string();
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).expect("a head");
                }
                let head = "HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:1/\r\n";
                let rest = "content-length: 0\r\nconnection: close\r\n\r\n";
                write!(stream, "{head}{rest}").expect("sent");
            }
        });
        let client = client(&url).expect("an address");
        for failure in [
            client.tree().map(drop).expect_err("no tree"),
            client.set_limits("/acme", "").map(drop).expect_err("not set"),
        ] {
            let told = format!("cannot reach http://{url}: it redirects to another address; use");
            assert!(failure.line().starts_with(&told), "{failure:?}");
        }
        server.join().expect("no panic");
    }

    #[test]
    fn each_cause_has_its_remedy() {
        let told = |error: ureq::Error| format!("{:?}", unreachable("https://x", &error));
        let io = |why: &str| ureq::Error::Io(std::io::Error::other(why.to_owned()));
        let certificate = |why: &str| io(&format!("invalid peer certificate: {why}"));
        for (error, part) in [
            (certificate("Other(OtherError(CaUsedAsEndEntity))"), "CA:FALSE"),
            (certificate("UnknownIssuer"), "--ca-file"),
            (certificate("certificate expired: verification time …"), "renew"),
            (certificate("certificate not valid for name \"a\""), "the name in its certificate"),
            (certificate("BadEncoding"), "--ca-file"),
            (io("received corrupt message of type InvalidContentType"), "http://"),
            (ureq::Error::HostNotFound, "name"),
            (ureq::Error::StatusCode(503), "connections"),
            (ureq::Error::BodyExceedsLimit(1), "too large"),
            (io("stream did not contain valid UTF-8"), "is there"),
            (io("http parse fail: invalid response status"), "is there"),
        ] {
            let told = told(error);
            assert!(told.contains(part) && !told.contains("start `submeter"), "{told}");
        }
        let refused = ureq::Error::Io(ErrorKind::ConnectionRefused.into());
        assert!(told(refused).contains("start `submeter serve`"));
    }
}
