//! The first bytes of a program through a tunnel. The host that they name must be the host that the tunnel was asked
//! for.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::domain::egress::split;

/// How many bytes are looked at: more than any TLS greeting or request head has.
const MOST: usize = 64 * 1024;
/// How long a greeting that has begun may take.
const WITHIN: Duration = Duration::from_secs(15);
/// The TLS alert for a name that is not served. Programs turn it into a clear message.
pub(super) const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// What a request begins with.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"PATCH ", b"OPTIONS ", b"TRACE ", b"CONNECT "];

/// What came first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The end.
    Nothing,
    /// A greeting of TLS, and the host that it names.
    Tls(Option<String>),
    /// A request, and the hosts that it names.
    Http(Vec<String>),
    /// The beginning of one of these that does not go on as one.
    Broken,
    /// Something else.
    Other,
}

/// Reads the first bytes, as many as needed. The caller sends them on.
pub(super) async fn read_opening(
    from: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
) -> io::Result<Opening> {
    if from.read_buf(received).await? == 0 {
        return Ok(Opening::Nothing);
    }
    let reading = async {
        loop {
            if let Some(opening) = opening(received) {
                return opening;
            }
            match from.read_buf(received).await {
                Ok(1..) if received.len() <= MOST => {}
                _ => return Opening::Broken,
            }
        }
    };
    Ok(tokio::time::timeout(WITHIN, reading).await.unwrap_or(Opening::Broken))
}

/// `None` = more is needed to know.
fn opening(received: &[u8]) -> Option<Opening> {
    // A record of a handshake.
    if received.first() == Some(&22) {
        return greeting(received);
    }
    let could_be = |method: &[u8]| method.iter().zip(received).all(|(a, b)| a == b);
    if !METHODS.into_iter().any(could_be) {
        return Some(Opening::Other);
    }
    let end = received
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .or_else(|| received.windows(2).position(|end| end == b"\n\n"))?;
    Some(std::str::from_utf8(&received[..end]).map_or(Opening::Broken, request))
}

fn greeting(received: &[u8]) -> Option<Opening> {
    let mut acceptor = Acceptor::default();
    let mut rest = received;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return Some(Opening::Broken);
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                return Some(Opening::Tls(accepted.client_hello().server_name().map(str::to_owned)));
            }
            Err(_) => return Some(Opening::Broken),
        }
    }
    None
}

fn request(head: &str) -> Opening {
    let mut lines = head.lines();
    let target = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    // An address in the place of the path counts as well.
    let in_target =
        target.split_once("://").map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let hosts = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("host"));
    let hosts = hosts.map(|(_, value)| value.trim());
    Opening::Http(in_target.into_iter().chain(hosts).map(str::to_owned).collect())
}

/// Why a tunnel to a host must not be used for what came first.
pub(super) fn judge(host: &str, port: u16, opening: &Opening) -> Result<(), String> {
    match opening {
        Opening::Nothing => Ok(()),
        Opening::Tls(Some(name)) if names(name, host, port) => Ok(()),
        Opening::Tls(Some(name)) => Err(format!("its TLS greeting names another host, \"{}\"", plain(name))),
        // Addresses are not named in a greeting.
        Opening::Tls(None) if host.parse::<IpAddr>().is_ok() => Ok(()),
        Opening::Tls(None) => Err("its TLS greeting names no host".to_owned()),
        Opening::Http(_) | Opening::Other if port == 443 => {
            Err("what goes to port 443 has to be TLS".to_owned())
        }
        Opening::Http(hosts) => match hosts.iter().find(|name| !names(name, host, port)) {
            Some(name) => Err(format!("its request names another host, \"{}\"", plain(name))),
            None if hosts.is_empty() => Err("its request names no host".to_owned()),
            None => Ok(()),
        },
        Opening::Broken => Err("what it says first cannot be read to its end".to_owned()),
        Opening::Other => Ok(()),
    }
}

/// Whether an authority is a host, and a port of its own that port.
pub(super) fn names(authority: &str, host: &str, port: u16) -> bool {
    split(authority).is_some_and(|(name, own)| name == host && own.is_none_or(|own| own == port))
}

/// A program's words, for a message.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_graphic()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A greeting that names a host, or none.
    fn greets(name: Option<&str>) -> Vec<u8> {
        let named = name.map(|name| {
            let length = name.len() as u16;
            let mut entry = vec![0, 0];
            entry.extend((length + 5).to_be_bytes());
            entry.extend((length + 3).to_be_bytes());
            entry.push(0);
            entry.extend(length.to_be_bytes());
            entry.extend(name.as_bytes());
            entry
        });
        // supported_groups, signature_algorithms and empty key shares, which a reader expects.
        let mut extensions = named.unwrap_or_default();
        extensions.extend([0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3]);
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut record = vec![22, 3, 1];
        record.extend((body.len() as u16 + 4).to_be_bytes());
        record.extend([1, 0]);
        record.extend((body.len() as u16).to_be_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn a_greeting_is_read_whole_and_not_before() {
        let whole = greets(Some("example.org"));
        assert_eq!(opening(&whole), Some(Opening::Tls(Some("example.org".to_owned()))));
        assert_eq!(opening(&greets(None)), Some(Opening::Tls(None)));
        for length in 1..whole.len() {
            assert_eq!(opening(&whole[..length]), None, "{length}");
        }
        assert_eq!(opening(&[22, 3, 1, 0, 4, 99, 0, 0, 0]), Some(Opening::Broken));
        assert_eq!(opening(b"SSH-2.0-x\r\n"), Some(Opening::Other));
        assert_eq!(opening(b"GE"), None);
        let request = b"GET http://a.example/x HTTP/1.1\r\nHOST: b.example\r\n\r\n";
        assert_eq!(opening(request), Some(Opening::Http(vec!["a.example".into(), "b.example".into()])));
    }

    #[test]
    fn the_host_that_is_named_is_the_one_that_was_asked_for() {
        let tls = |name: &str| Opening::Tls(Some(name.to_owned()));
        let http = |names: &[&str]| Opening::Http(names.iter().map(|name| (*name).to_owned()).collect());
        for (host, port, good) in [
            ("example.org", 443, tls("Example.org")),
            ("example.org", 8443, tls("example.org")),
            ("192.0.2.1", 443, Opening::Tls(None)),
            ("example.org", 80, http(&["example.org"])),
            ("example.org", 8080, http(&["example.org:8080"])),
            ("example.org", 22, Opening::Other),
            ("example.org", 443, Opening::Nothing),
        ] {
            assert_eq!(judge(host, port, &good), Ok(()), "{host}:{port} {good:?}");
        }
        for (host, port, bad) in [
            ("example.org", 443, tls("evil.example")),
            ("example.org", 8443, tls("evil.example")),
            ("example.org", 443, tls("a.example.org")),
            ("example.org", 443, Opening::Tls(None)),
            ("192.0.2.1", 443, tls("evil.example")),
            ("example.org", 443, http(&["example.org"])),
            ("example.org", 443, Opening::Other),
            ("example.org", 80, http(&["evil.example"])),
            ("example.org", 80, http(&["evil.example", "example.org"])),
            ("example.org", 80, http(&["example.org", "evil.example"])),
            ("example.org", 80, http(&["example.org:81"])),
            ("example.org", 80, http(&[])),
            ("example.org", 80, Opening::Broken),
        ] {
            assert!(judge(host, port, &bad).is_err(), "{host}:{port} {bad:?}");
        }
    }
}
