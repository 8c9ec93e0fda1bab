//! Which requests are answered: not those that another site's page made a browser send.
//!
//! Any page that a browser on this machine has open can send requests here, even to addresses that
//! only this machine reaches. Such a page must learn nothing and change nothing, so every request
//! requires
//!
//! * a `Host` that is a loopback address, `localhost`, the address that is listened on or a name
//!   that was given: a page that pointed its own name here (DNS rebinding) sends that name, and
//!   would otherwise read every answer;
//! * no `Origin` but this server's own;
//! * no `Sec-Fetch-Site` of another site's page, unless a person follows a link to here: browsers
//!   send no `Origin` with a plain GET, and withhold its answer from the page, but the server would
//!   do the work.
//!
//! Requests with an effect (deleting a group, setting limits, counting events) also require the
//! header `X-Submeter: 1`. A browser asks first (a preflight) whether another site's page may send
//! it, and nothing here ever says yes.
//!
//! That is no login: anybody who reaches the port with a client of their own is answered, unless a
//! token is required. Then everything but `/healthz` requires it, as `Authorization: Bearer`, or as
//! the password that a browser asks its user for and sends with each request of the page.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::connections::{HEALTH, Seat};
use super::token::Token;

const DELIBERATE: HeaderName = HeaderName::from_static("x-submeter");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The names by which the page is reached. Cloning is a pointer copy.
#[derive(Clone, Debug)]
pub(super) struct Guard(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// `http`, or `https` with TLS, and the address that the page is listened for at; unknown if
    /// another server listens.
    page: Option<(&'static str, SocketAddr)>,
    /// Further names of the server.
    hosts: Vec<String>,
    token: Option<Token>,
}

const CHALLENGE: &str = "Bearer realm=\"submeter\", Basic realm=\"submeter\", charset=\"UTF-8\"";

/// Refuses requests that another site's page may have made a browser send, and those without the
/// token.
pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if let Some(why) = guard.refuses(&request) {
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    if !guard.admits(&request) {
        let why = "this server requires its token: curl -H 'Authorization: Bearer TOKEN' …, \
                   submeter top --token-file FILE, or as the password in a browser\n";
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, CHALLENGE)], why).into_response();
    }
    // A health check is admitted without a token, and needs no place.
    if let Some(seat) = request.extensions().get::<Seat>().filter(|_| !asks_for_health(&request)) {
        seat.keep();
    }
    next.run(request).await
}

/// Refuses a request with an effect that lacks the header by which it shows intent.
pub(super) fn is_meant(headers: &HeaderMap, what: &str) -> Result<(), (StatusCode, String)> {
    if headers.get(DELIBERATE).is_some_and(|value| value == "1") {
        return Ok(());
    }
    let why = format!(
        "{what} requires the header X-Submeter: 1, which pages of other sites cannot send: curl -H \
         'X-Submeter: 1' …\n"
    );
    Err((StatusCode::FORBIDDEN, why))
}

impl Guard {
    /// Makes a guard for a page that is listened for at `page` and also called `hosts`.
    pub(super) fn new(
        page: Option<(&'static str, SocketAddr)>,
        hosts: Vec<String>,
        token: Option<Token>,
    ) -> Guard {
        Guard(Arc::new(Rules { page, hosts, token }))
    }

    /// Returns whether the request has the token, or needs none.
    fn admits(&self, request: &Request) -> bool {
        let Some(token) = &self.0.token else { return true };
        let mut shown = request.headers().get_all(AUTHORIZATION).iter();
        // A health check learns only that the server runs, which the open port says too.
        asks_for_health(request) || shown.any(|shown| token.is_in(text(shown)))
    }

    fn refuses(&self, request: &Request) -> Option<String> {
        let headers = request.headers();
        let hosts: Vec<&str> = headers.get_all(HOST).iter().map(text).collect();
        // The first line also has it in a proxy's form of address, and over HTTP/2 nothing else has
        // it.
        let target = request.uri().authority().map(Authority::as_str);
        let hosts = match target {
            Some(target) if hosts.is_empty() && request.version() >= Version::HTTP_2 => {
                vec![target]
            }
            _ => hosts,
        };
        let foreign = hosts.iter().copied().chain(target).find(|host| !self.is_own(host));
        if foreign.is_some() || hosts.len() != 1 {
            let none = if hosts.is_empty() { "none" } else { "several" };
            let named = foreign.map_or(none.to_owned(), |host| format!("{host:?}"));
            let instead = self.0.page.map(|(scheme, addr)| format!("{scheme}://{addr}/ or "));
            return Some(format!(
                "the Host must be an address of this server, not {named}: use {}localhost, or tell \
                 the server that name: start submeter serve with --http-host NAME; in another \
                 program, call submeter_http::Dashboard::host\n",
                instead.unwrap_or_default()
            ));
        }
        let own = |origin: &&str| {
            let Some((scheme, host)) = origin.split_once("://") else { return false };
            // Behind another server either may be spoken: what matters is whose page it is.
            let is_spoken = match self.0.page {
                Some((spoken, _)) => scheme.eq_ignore_ascii_case(spoken),
                None => ["http", "https"].iter().any(|spoken| scheme.eq_ignore_ascii_case(spoken)),
            };
            is_spoken && hosts.iter().any(|own| host.eq_ignore_ascii_case(own))
        };
        if let Some(origin) = headers.get_all(ORIGIN).iter().map(text).find(|o| !own(o)) {
            return Some(format!("requests from pages of {origin:?} are refused\n"));
        }
        let site = headers.get(SEC_FETCH_SITE).map(text);
        let mode = headers.get(SEC_FETCH_MODE).map(text);
        let follows = mode == Some("navigate") && request.method() == Method::GET;
        match site {
            None | Some("same-origin" | "none") => None,
            Some(_) if follows => None,
            Some(_) => Some("requests from pages of other sites are refused\n".to_owned()),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        // A user is not part of a host, and no request of a page has one. What follows the host
        // must be a port, which the parser does not check.
        if host.contains('@') || (host != authority.host() && authority.port_u16().is_none()) {
            return false;
        }
        let page = self.0.page.map(|(_, addr)| addr.ip());
        let name = authority.host().trim_matches(['[', ']']);
        match name.parse::<IpAddr>() {
            // A literal address cannot be pointed elsewhere. If all addresses are listened on, or
            // the address is unknown, any will do.
            Ok(ip) => ip.is_loopback() || page.is_none_or(|p| p == ip || p.is_unspecified()),
            Err(_) => {
                let mut known = ["localhost"].into_iter().chain(self.0.hosts.iter().map(|h| &**h));
                known.any(|known| name.eq_ignore_ascii_case(known))
            }
        }
    }
}

fn asks_for_health(request: &Request) -> bool {
    request.uri().path() == HEALTH
}

/// Anything that is not text is no address of this server.
fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("?")
}
