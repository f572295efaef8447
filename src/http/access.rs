//! Access to the HTTP front: its own host names, the token, and the login of a browser.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use chrono::{DateTime, Utc};
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

use super::status_page;
use crate::sys::clock::Clock;

/// How long a browser stays logged in.
const LOGIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// What the front may be called, and the token that it wants.
#[derive(Debug)]
pub(super) struct Access {
    address: SocketAddr,
    /// Names beside its own, in lower case, with or without a port.
    hosts: Vec<String>,
    token: Option<SecretString>,
    clock: Clock,
}

impl Access {
    pub fn new(address: SocketAddr, hosts: &[String], token: Option<SecretString>) -> Self {
        let hosts = hosts.iter().map(|host| host.trim().to_ascii_lowercase()).collect();
        Self { address, hosts, token, clock: Clock::system() }
    }

    /// Whether a request uses one of the front's own names. A page whose own name leads here does not (DNS rebinding).
    pub fn is_own(&self, request: &Request) -> bool {
        let mut said = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (said.next(), said.next()) else { return false };
        let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        // Who writes an address in the place of the path is asked under that one.
        [host.as_ref()]
            .into_iter()
            .chain(request.uri().authority().map(Some))
            .all(|authority| authority.is_some_and(|authority| self.is_name(authority)))
    }

    fn is_name(&self, authority: &Authority) -> bool {
        let port = authority.port_u16();
        // Nothing stands around the name but a port that is one.
        if port.is_none() && authority.as_str() != authority.host() || authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host().to_ascii_lowercase();
        let listed =
            |name: &String| *name == host || port.is_some_and(|port| *name == format!("{host}:{port}"));
        if self.hosts.iter().any(listed) {
            return true;
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let own_port = port.is_none_or(|port| port == self.address.port());
        match bare.parse::<IpAddr>() {
            Err(_) => host == "localhost" && own_port,
            Ok(ip) if ip.is_loopback() => own_port,
            // An address can only mean itself. It is not known which addresses are the machine's own, or which ports of
            // a container's host lead here.
            Ok(_) if self.address.ip().is_unspecified() => true,
            Ok(ip) => ip == self.address.ip() && own_port,
        }
    }

    /// Whether a token is wanted.
    pub fn wants_token(&self) -> bool {
        self.token.is_some()
    }

    /// Whether a request may see what agentd does.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.split_once(' '));
        if let Some((_, given)) = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
            return is_same(token, given.trim());
        }
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(given, value)| given == name && self.is_login(token, value))
    }

    /// Cookies know no ports: each daemon of a machine has one of its own.
    fn cookie_name(&self) -> String {
        format!("agentd_{}", self.address.port())
    }

    fn cookie(&self, token: &SecretString, secure: bool) -> Option<String> {
        let until = (self.clock.now() + LOGIN).timestamp();
        let (name, seal) = (self.cookie_name(), hex::encode(seal(token, until)?.finalize().into_bytes()));
        let (age, secure) = (LOGIN.as_secs(), if secure { "; Secure" } else { "" });
        Some(format!("{name}={until}.{seal}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"))
    }

    fn is_login(&self, token: &SecretString, cookie: &str) -> bool {
        let Some((until, given)) = cookie.split_once('.') else { return false };
        let (Ok(until), Ok(given)) = (until.parse::<i64>(), hex::decode(given)) else { return false };
        let ends = DateTime::<Utc>::from_timestamp(until, 0);
        ends.is_some_and(|ends| ends > self.clock.now())
            && seal(token, until).is_some_and(|seal| seal.verify_slice(&given).is_ok())
    }

    /// What a token that was given in a browser comes to.
    pub fn log_in(&self, given: &str, headers: &HeaderMap) -> Response {
        let Some(token) = self.token.as_ref().filter(|token| is_same(token, given)) else {
            return status_page::login(StatusCode::UNAUTHORIZED, true);
        };
        let secure = text(headers, HeaderName::from_static("x-forwarded-proto")) == Some("https");
        // Not a redirect, because a browser that comes from another site would leave the new cookie out again.
        let mut response = status_page::logged_in();
        let cookie = self.cookie(token, secure).and_then(|cookie| HeaderValue::from_str(&cookie).ok());
        if let Some(cookie) = cookie {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// The value of a login until a certain time. It is made from the token, so it ends when the token changes.
fn seal(token: &SecretString, until: i64) -> Option<Hmac<Sha256>> {
    mac(token.expose_secret().as_bytes(), format!("agentd login until {until}").as_bytes())
}

/// Takes the same time for every token that is given.
fn is_same(token: &SecretString, given: &str) -> bool {
    let of = |key: &str| mac(key.as_bytes(), b"agentd token");
    let (Some(own), Some(given)) = (of(token.expose_secret()), of(given)) else { return false };
    given.verify(&own.finalize().into_bytes()).is_ok()
}

/// A key may have any length; `None` is never seen.
fn mac(key: &[u8], of: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(of);
    Some(mac)
}

/// A header as text.
pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn access(address: &str, hosts: &[&str], token: Option<&str>) -> Access {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Access::new(address.parse().unwrap(), &hosts, token.map(SecretString::from))
    }

    fn answers(access: &Access, host: &str) -> bool {
        access.is_own(&Request::builder().uri("/").header("host", host).body(Body::empty()).unwrap())
    }

    #[test]
    fn it_answers_under_its_own_names_and_those_it_was_given() {
        let own = access("127.0.0.1:7878", &["Agentd.example.org", "other.example:9000"], None);
        for host in [
            "127.0.0.1:7878",
            "127.0.0.1",
            "localhost:7878",
            "LOCALHOST",
            "[::1]:7878",
            "agentd.example.org",
            "AGENTD.example.org:443",
            "other.example:9000",
        ] {
            assert!(answers(&own, host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7878",
            "localhost:9",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example@localhost:7878",
            "localhost:",
            "",
            "192.0.2.1:7878",
            "other.example",
            "a b",
            "localhost:99999",
            "0x7f000001:7878",
            "agentd.example.org.evil.example",
        ] {
            assert!(!answers(&own, host), "{host}");
        }
        let public = access("0.0.0.0:7878", &[], None);
        assert!(answers(&public, "192.0.2.1:9999") && answers(&public, "[2001:db8::1]:7878"));
        assert!(!answers(&public, "evil.example:7878"));
        let one = access("192.0.2.1:7878", &[], None);
        assert!(answers(&one, "192.0.2.1:7878") && !answers(&one, "192.0.2.2:7878"));
    }

    #[test]
    fn an_address_in_the_paths_place_and_a_second_name_are_looked_at_too() {
        let own = access("127.0.0.1:7878", &[], None);
        let asked = |uri: &str, hosts: &[&str]| {
            let request =
                hosts.iter().fold(Request::builder().uri(uri), |request, host| request.header("host", *host));
            own.is_own(&request.body(Body::empty()).unwrap())
        };
        assert!(asked("http://localhost:7878/", &["localhost:7878"]));
        assert!(!asked("http://evil.example/", &["localhost:7878"]));
        assert!(!asked("/", &["localhost:7878", "evil.example"]));
        assert!(!asked("/", &[]));
    }

    #[test]
    fn a_login_holds_for_its_time_its_token_and_no_other() {
        let own = access("127.0.0.1:7878", &[], Some("a token of sixteen"));
        let token = SecretString::from("a token of sixteen");
        let cookie = own.cookie(&token, false).unwrap();
        let value = cookie.split(';').next().unwrap().to_owned();
        let with = |access: &Access, cookie: &str| {
            access.admits(&HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())]))
        };
        assert!(with(&own, &value) && with(&own, &format!("a=b; {value}")));
        assert!(!with(&access("127.0.0.1:7878", &[], Some("another of sixteen")), &value));
        let (until, sealed) = value.split_once('.').unwrap();
        assert!(!with(&own, &format!("{until}0.{sealed}")), "a later end");
        let past = hex::encode(seal(&token, 1).unwrap().finalize().into_bytes());
        assert!(!with(&own, &format!("agentd_7878=1.{past}")), "it has ended");
        assert!(!with(&own, "agentd_7878=a token of sixteen"));
        assert!(
            cookie.contains("HttpOnly; SameSite=Strict")
                && own.cookie(&token, true).unwrap().ends_with("; Secure")
        );
    }
}
