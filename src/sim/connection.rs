//! Connections that can be cut at any moment, so that callers meet the failures real networks have.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A listener whose connections end when the simulator does.
pub struct Switchboard {
    listener: TcpListener,
    closing: CancellationToken,
}

impl Switchboard {
    /// Takes a bound listener; cancelling `closing` cuts every connection.
    pub fn new(listener: TcpListener, closing: CancellationToken) -> Self {
        Self { listener, closing }
    }
}

impl Listener for Switchboard {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Line, SocketAddr) {
        loop {
            // A failed accept (a peer that left, no free descriptor) concerns one caller, not the simulator.
            if let Ok((stream, peer)) = self.listener.accept().await {
                // Answers are small; waiting to fill packets would only make tests slow.
                let _ = stream.set_nodelay(true);
                let cut = self.closing.child_token();
                return (Line { stream, wait: Box::pin(cut.clone().cancelled_owned()), cut }, peer);
            }
            tokio::task::yield_now().await;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One connection.
pub struct Line {
    stream: TcpStream,
    cut: CancellationToken,
    wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// What a handler holds to cut the connection it is answering on.
#[derive(Debug, Clone)]
pub struct Cut(CancellationToken);

impl Cut {
    /// Ends the connection: nothing more is read or written.
    pub fn now(&self) {
        self.0.cancel();
    }

    /// Waits so long, or until the connection is cut.
    pub async fn pause(&self, time: Duration) {
        // A sleep of no time would last until the clock's next tick, a millisecond or two.
        if time.is_zero() {
            return;
        }
        let _ = self.0.run_until_cancelled(tokio::time::sleep(time)).await;
    }
}

impl Connected<IncomingStream<'_, Switchboard>> for Cut {
    fn connect_info(stream: IncomingStream<'_, Switchboard>) -> Self {
        Self(stream.io().cut.clone())
    }
}

fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionReset)
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.wait.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(gone()));
        }
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(gone()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
