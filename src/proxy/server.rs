//! A running proxy: its socket, its connections, and the log of requests.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;

use super::ProxyError;
use super::forward::{Body, CONNECT_TIMEOUT, Guarded, address, answer_text, send};
use super::hello;
use super::kept_keys::KeptKeys;
use super::meter::{Meter, asks_a_model, is_uncounted};
use super::rules::{Rules, resolve};
use crate::domain::egress::split;
use crate::domain::reply_limit::NotPaid;
use crate::sys::descriptors;
use crate::sys::egress_log::EgressLog;
use crate::sys::paths::AbsPath;
use crate::sys::sandbox::PROXY_PORT;
use crate::sys::socket;
use crate::sys::tls;

/// The most connections of one sandbox at a time, whatever the limit on open files is.
const MOST_CONNECTIONS: usize = 512;
/// The most of all sandboxes.
const MOST_OF_ALL: usize = 8192;
/// How long a connection may be idle between requests, and how long the headers of one may take.
const HEADERS_WITHIN: Duration = Duration::from_secs(60);
/// What is held of a request's line and headers, in bytes.
const LARGEST_HEAD: usize = 128 * 1024;
/// The longest request to a model that is passed on, in bytes: it is held until it is whole.
const LONGEST_QUESTION: usize = 64 << 20;
/// What an endpoint is asked by.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Slots for the connections of all sandboxes. Each connection has a second one behind it; together they are a quarter
/// of the files that may be open.
static ROOM: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(descriptors::share(8, MOST_OF_ALL))));

/// An open proxy; dropped, it and every connection through it end.
#[derive(Debug)]
pub struct Proxy {
    socket: AbsPath,
    asked: Arc<EgressLog>,
    meter: Meter,
    ended: CancellationToken,
}

struct Shared {
    rules: Arc<Rules>,
    asked: Arc<EgressLog>,
    meter: Meter,
    ended: CancellationToken,
    /// For hosts of the list: names lead where they may.
    guarded: Sender,
    /// For endpoints: where the operator says.
    trusted: Sender,
}

/// A client that is made when it is first needed. Reading the system's certificates takes time, and most runs only use
/// tunnels.
struct Sender {
    made: OnceCell<reqwest::Client>,
    make: Arc<dyn Fn() -> reqwest::ClientBuilder + Send + Sync>,
}

impl Sender {
    fn new(make: impl Fn() -> reqwest::ClientBuilder + Send + Sync + 'static) -> Self {
        Self { made: OnceCell::new(), make: Arc::new(make) }
    }

    /// Sends a request on. The error is a cause, in words.
    async fn send<B>(
        &self,
        url: reqwest::Url,
        request: Request<B>,
        added: Option<&HeaderMap>,
    ) -> Result<Response<Body>, String>
    where
        B: BodyExt<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let made = self.made.get_or_try_init(|| async {
            let make = Arc::clone(&self.make);
            let built = tokio::task::spawn_blocking(move || make().build()).await;
            built.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        });
        send(made.await?, url, request, added).await.map_err(|error| cause(&error))
    }
}

impl Proxy {
    /// Listens on a socket of that name in a folder that only this user can enter. Needs a tokio runtime.
    pub fn open(folder: &AbsPath, name: &str, rules: Rules) -> Result<Self, ProxyError> {
        let place = folder.join(name);
        let failed = |why: String| ProxyError { path: place.clone(), why };
        let listener = socket::listen(folder.as_path(), name).and_then(UnixListener::from_std);
        let listener = listener.map_err(|error| failed(error.to_string()))?;
        let rules = Arc::new(rules);
        let client = || {
            let plain = tls::http_client().redirect(reqwest::redirect::Policy::none());
            plain.connect_timeout(CONNECT_TIMEOUT)
        };
        let listed = Arc::clone(&rules);
        let shared = Arc::new(Shared {
            asked: Arc::default(),
            meter: Meter::default(),
            ended: CancellationToken::new(),
            guarded: Sender::new(move || {
                client().no_proxy().dns_resolver(Arc::new(Guarded(Arc::clone(&listed))))
            }),
            trusted: Sender::new(client),
            rules,
        });
        tokio::spawn(Arc::clone(&shared).serve(listener));
        let (asked, meter) = (Arc::clone(&shared.asked), shared.meter.clone());
        Ok(Self { socket: place, asked, meter, ended: shared.ended.clone() })
    }

    /// What goes to models through it.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Its socket.
    pub fn socket(&self) -> &AbsPath {
        &self.socket
    }

    /// What was asked.
    pub fn asked(&self) -> &Arc<EgressLog> {
        &self.asked
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Whether an address is the proxy's own, as programs know it.
fn is_own(host: &str, port: Option<u16>) -> bool {
    port == Some(PROXY_PORT) && matches!(host, "127.0.0.1" | "localhost")
}

impl Shared {
    async fn serve(self: Arc<Self>, listener: UnixListener) {
        // One sandbox does not use up what others need.
        let room = Arc::new(Semaphore::new(descriptors::share(32, MOST_CONNECTIONS)));
        loop {
            let entered = async {
                let own = Arc::clone(&room).acquire_owned().await.ok()?;
                let accepted = listener.accept().await;
                Some((accepted, own, Arc::clone(&ROOM).acquire_owned().await.ok()?))
            };
            let entered = tokio::select! {
                () = self.ended.cancelled() => return,
                entered = entered => entered,
            };
            let Some((accepted, own, of_all)) = entered else { return };
            let Ok((stream, _)) = accepted else {
                // No more files, for example: a moment later there may be some.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                let _places = (own, of_all);
                let inner = Arc::clone(&shared);
                let service = hyper::service::service_fn(move |request| {
                    let shared = Arc::clone(&inner);
                    async move { Ok::<_, Infallible>(shared.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .preserve_header_case(true)
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADERS_WITHIN)
                    .max_buf_size(LARGEST_HEAD)
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                tokio::select! {
                    () = shared.ended.cancelled() => {}
                    ended = connection => if let Err(error) = ended {
                        tracing::debug!(%error, "a connection through the proxy ended");
                    }
                }
            });
        }
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return self.tunnel(request).await;
        }
        match request.uri().authority().map(|authority| split(authority.as_str())) {
            None => self.endpoint(request).await,
            Some(Some((host, port))) if is_own(&host, port) => self.endpoint(request).await,
            Some(Some(_)) if request.uri().scheme_str() == Some("http") => self.pass(request).await,
            Some(_) => answer_text(
                StatusCode::BAD_REQUEST,
                "agentd: the address cannot be read; https needs CONNECT\n",
            ),
        }
    }

    fn refuse(&self, host: &str, port: u16) -> Response<Body> {
        self.asked.note(host, port, None, Some(self.rules.why_refused(host, port)));
        answer_text(StatusCode::FORBIDDEN, self.rules.refusal(host, port))
    }

    fn unreached(&self, host: &str, port: u16, endpoint: Option<&str>, why: &str) -> Response<Body> {
        self.asked.note(host, port, endpoint, Some(why));
        answer_text(StatusCode::BAD_GATEWAY, format!("agentd: {host}:{port} was not reached: {why}\n"))
    }

    /// A tunnel to a listed host. It must begin with the name of that host. What passes through it afterwards is not
    /// looked at.
    async fn tunnel(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let asked = request.uri().authority().and_then(|authority| split(authority.as_str()));
        let Some((host, Some(port))) = asked else {
            return answer_text(StatusCode::BAD_REQUEST, "agentd: CONNECT needs host:port\n");
        };
        if is_own(&host, Some(port)) {
            return self.tunnel_here(request);
        }
        if self.rules.rule(&host, port).is_none() {
            return self.refuse(&host, port);
        }
        let outer = match self.connect(&host, port).await {
            Ok(outer) => outer,
            Err(why) => return self.unreached(&host, port, None, &why),
        };
        self.asked.note(&host, port, None, None);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(inner) = hyper::upgrade::on(request).await else { return };
            tokio::select! {
                () = shared.ended.cancelled() => {}
                () = shared.carry(TokioIo::new(inner), outer, &host, port) => {}
            }
        });
        answer_text(StatusCode::OK, "")
    }

    /// A tunnel to the proxy itself. Some programs use one for every address, also for an endpoint.
    fn tunnel_here(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(inner) = hyper::upgrade::on(request).await else { return };
            let within = Arc::clone(&shared);
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let shared = Arc::clone(&within);
                async move {
                    let tunnels = request.method() == Method::CONNECT;
                    Ok::<_, Infallible>(match tunnels {
                        true => answer_text(StatusCode::BAD_REQUEST, "agentd: a tunnel within a tunnel\n"),
                        false => shared.endpoint(request).await,
                    })
                }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .max_buf_size(LARGEST_HEAD)
                .serve_connection(inner, service);
            tokio::select! {
                () = shared.ended.cancelled() => {}
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a tunnel to an endpoint ended");
                }
            }
        });
        answer_text(StatusCode::OK, "")
    }

    /// Copies in both directions. The host's bytes go to the program at once, because in some protocols the host sends
    /// first.
    async fn carry(&self, mut inner: TokioIo<Upgraded>, mut outer: TcpStream, host: &str, port: u16) {
        let (mut received, mut early) = (Vec::with_capacity(4096), [0]);
        let opening = tokio::select! {
            opening = hello::read_opening(&mut inner, &mut received) => opening,
            // The host has spoken first, which neither TLS nor HTTP does.
            spoken = outer.peek(&mut early), if port != 443 => spoken.map(|_| hello::Opening::Other),
        };
        let Ok(opening) = opening else { return };
        if let Err(why) = hello::judge(host, port, &opening) {
            self.asked.note(host, port, None, Some(&why));
            if matches!(opening, hello::Opening::Tls(_)) {
                drop(inner.write_all(&hello::UNRECOGNIZED_NAME).await);
            }
            drop(inner.shutdown().await);
            return;
        }
        if outer.write_all(&received).await.is_ok() {
            drop(tokio::io::copy_bidirectional(&mut inner, &mut outer).await);
        }
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let mut last = "its name leads nowhere".to_owned();
        for address in resolve(&self.rules, host, port).await? {
            match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "it does not answer".to_owned(),
            }
        }
        Err(last)
    }

    /// A plain request to a host of the list.
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        // Judged as it will be read: addresses have many spellings.
        let url = reqwest::Url::parse(&request.uri().to_string()).ok();
        let place = url.as_ref().and_then(|url| {
            let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
            Some((host, url.port_or_known_default()?))
        });
        let (Some(url), Some((host, port))) = (url, place) else {
            return answer_text(StatusCode::BAD_REQUEST, "agentd: the address cannot be read\n");
        };
        if self.rules.rule(&host, port).is_none() {
            return self.refuse(&host, port);
        }
        let mut named = request.headers().get_all(http::header::HOST).iter();
        let same = named.all(|name| name.to_str().is_ok_and(|name| hello::names(name, &host, port)));
        if !same {
            self.asked.note(&host, port, None, Some("its Host header names another host"));
            return answer_text(
                StatusCode::BAD_REQUEST,
                "agentd: the Host header names another host than the address\n",
            );
        }
        match self.guarded.send(url, request, None).await {
            Ok(response) => {
                self.asked.note(&host, port, None, None);
                response
            }
            Err(why) => self.unreached(&host, port, None, &why),
        }
    }

    /// A request by an endpoint's name, credentials added.
    async fn endpoint(&self, request: Request<Incoming>) -> Response<Body> {
        let whole = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let (name, rest) = match whole[1..].find(['/', '?']) {
            Some(end) => (&whole[1..=end], &whole[1 + end..]),
            None => (&whole[1..], ""),
        };
        let Some(endpoint) = self.rules.endpoints.iter().find(|endpoint| endpoint.name == name) else {
            let known: Vec<&str> = self.rules.endpoints.iter().map(|known| known.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let text = format!(
                "agentd: there is no endpoint \"{name}\" here.\nEndpoints: {known}.\n\
                 A person names them in runner.agentd.program.endpoints of the agent.\n"
            );
            return answer_text(StatusCode::NOT_FOUND, text);
        };
        // What others do, such as TRACE, tells a program what the request had, and it has the key.
        if !METHODS.contains(request.method()) {
            let text = "agentd: endpoints take GET, HEAD, OPTIONS, POST, PUT, PATCH and DELETE\n";
            return answer_text(StatusCode::METHOD_NOT_ALLOWED, text);
        }
        let host = endpoint.url.host_str().unwrap_or_default();
        let port = endpoint.url.port_or_known_default().unwrap_or_default();
        let Some(url) = address(endpoint, rest) else {
            return answer_text(StatusCode::BAD_REQUEST, "agentd: the address leaves the endpoint\n");
        };
        let path = rest.split('?').next().unwrap_or_default();
        if endpoint.is_provider && is_uncounted(request.method(), path) {
            let text = format!(
                "agentd: the endpoint {name} passes requests for a model's words, counts of tokens and what only reads; {} {path} is \
                 none of these, and no budget would count what it costs\n",
                request.method()
            );
            self.asked.note(host, port, Some(name), Some("no budget would count it"));
            return answer_text(StatusCode::FORBIDDEN, text);
        }
        let keys = KeptKeys::of(&endpoint.headers);
        if !asks_a_model(request.method(), path) {
            return match self.trusted.send(url, request, Some(&endpoint.headers)).await {
                Ok(response) => {
                    self.asked.note(host, port, Some(name), None);
                    keys.keep(response)
                }
                Err(why) => self.unreached(host, port, Some(&endpoint.name), &why),
            };
        }
        let (mut parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, LONGEST_QUESTION).collect().await else {
            let text = "agentd: this request to a model did not come whole, or is longer than any that is passed on\n";
            return answer_text(StatusCode::PAYLOAD_TOO_LARGE, text);
        };
        let is_packed = parts.headers.contains_key(http::header::CONTENT_ENCODING);
        let (body, set_aside) = match self.meter.pay(body.to_bytes(), is_packed).await {
            Ok(paid) => paid,
            Err(why) => return not_paid(why),
        };
        if !self.meter.admit(self.rules.max_requests) {
            let text =
                "agentd: this visit has made all the requests to models that program.maxRequests lets it\n";
            return answer_text(StatusCode::FORBIDDEN, text);
        }
        // From here on it counts, also where the program does not wait for what comes.
        let sent = self.meter.sent(path, &body, set_aside);
        // Its limit may have been lowered.
        parts.headers.insert(http::header::CONTENT_LENGTH, body.len().into());
        let request = Request::from_parts(parts, Full::new(body));
        match self.trusted.send(url, request, Some(&endpoint.headers)).await {
            Ok(response) => {
                self.asked.note(host, port, Some(name), None);
                sent.answered(keys.keep(response))
            }
            Err(why) => self.unreached(host, port, Some(&endpoint.name), &why),
        }
    }
}

/// The answer to a request to a model whose money is not there.
fn not_paid(why: NotPaid) -> Response<Body> {
    let NotPaid::SetAside = why else {
        let text = "agentd: the budget does not cover another request to a model\n";
        return answer_text(StatusCode::FORBIDDEN, text);
    };
    let text = "agentd: what other requests to models may cost leaves too little of the budgets for this one; ask again when they \
                are answered\n";
    let mut response = answer_text(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("10"));
    response
}

/// The last cause of an error, which says most, without the address: that is said before.
fn cause(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(deeper) = last.source() {
        last = deeper;
    }
    last.to_string()
}
