//! Connections of the HTTP front: how many there may be, in all and from one address, and how long each may wait.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::sys::descriptors;

/// From the first byte that is waited for to the end of a request's headers; so long a connection may be idle, too.
const HEADERS_WITHIN: Duration = Duration::from_secs(15);
/// How long a client may take nothing of what is sent to it.
const STALLED: Duration = Duration::from_secs(30);
/// What is held of one connection's request line and headers, in bytes.
const LARGEST_HEAD: usize = 64 * 1024;
/// Most connections, whatever the limit on open files is.
const MOST: usize = 1024;
/// Most connections from an address that is not this machine's.
const MOST_OF_ONE: usize = 128;
/// The pause after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// What is sent to a client when there are too many connections.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 15\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Most connections at a time: a quarter of the files that may be open, so that work has the rest.
pub(super) fn most() -> usize {
    descriptors::share(4, MOST)
}

/// Answers until it is dropped.
pub(super) async fn serve(listener: Arc<TcpListener>, app: Router) {
    let room = Arc::new(Room::new(most()));
    let mut connections = JoinSet::new();
    let mut failing = false;
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // No more files, for example: a moment later there may be some.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "connections to the HTTP front cannot be taken; trying again");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if std::mem::take(&mut failing) {
            tracing::info!("connections to the HTTP front are taken again");
        }
        let Some(place) = Room::enter(&room, peer.ip()) else {
            drop(stream.try_write(FULL));
            continue;
        };
        let app = app.clone();
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = answer(stream, app).await {
                tracing::debug!(%error, "a connection to the HTTP front ended");
            }
        });
    }
}

async fn answer(stream: TcpStream, app: Router) -> Result<(), hyper::Error> {
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(Taken::new(stream)), TowerToHyperService::new(app))
        .await
}

/// The connections there are.
struct Room {
    most: usize,
    taken: Mutex<(usize, HashMap<IpAddr, usize>)>,
}

/// One connection's place; dropped, it is free again.
struct Place {
    room: Arc<Room>,
    from: IpAddr,
}

impl Room {
    fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// This machine may have most of them, because a proxy before agentd is one address for everybody.
    fn most_of(&self, from: IpAddr) -> usize {
        if from.is_loopback() { self.most - self.most / 4 } else { (self.most / 4).min(MOST_OF_ONE) }
    }

    fn enter(room: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let from = one_party(peer);
        let mut taken = room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_address) = &mut *taken;
        let own = by_address.get(&from).copied().unwrap_or_default();
        if *all >= room.most || own >= room.most_of(from) {
            return None;
        }
        *all += 1;
        by_address.insert(from, own + 1);
        Some(Place { room: Arc::clone(room), from })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, by_address) = &mut *taken;
        *all = all.saturating_sub(1);
        if let Some(own) = by_address.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                by_address.remove(&self.from);
            }
        }
    }
}

/// Addresses that one client can choose freely count as one: of IPv6 a network of 64 bits.
fn one_party(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

/// A stream that fails when the other side takes nothing for too long.
struct Taken {
    stream: TcpStream,
    until: Option<Pin<Box<Sleep>>>,
}

impl Taken {
    fn new(stream: TcpStream) -> Self {
        Self { stream, until: None }
    }

    /// What a write came to; the clock runs while it waits.
    fn judged<T>(&mut self, context: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            self.until = None;
            return came;
        }
        let until =
            self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + STALLED)));
        match until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Taken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Taken {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, came)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judged(context, came)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn entered(room: &Arc<Room>, from: impl Fn(usize) -> IpAddr) -> Vec<Place> {
        (0..1000).map_while(|at| Room::enter(room, from(at))).collect()
    }

    #[test]
    fn an_address_has_its_share_and_places_come_back() {
        let room = Arc::new(Room::new(100));
        let one = entered(&room, |_| ip("192.0.2.7"));
        assert_eq!(one.len(), 25);
        let mapped = Room::enter(&room, ip("::ffff:192.0.2.7"));
        assert!(mapped.is_none(), "the same in IPv6's words");
        let network = entered(&room, |at| ip(&format!("2001:db8::{at:x}")));
        assert_eq!(network.len(), 25, "one network of 64 bits is one party");
        let own = entered(&room, |_| ip("127.0.0.1"));
        assert_eq!(own.len(), 50, "of a hundred in all");
        drop(one);
        assert!(Room::enter(&room, ip("192.0.2.7")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_left() {
        use tokio::io::AsyncWriteExt as _;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut taken = Taken::new(stream);
        let much = vec![0; 64 << 20];
        let error = taken.write_all(&much).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
