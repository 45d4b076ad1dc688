//! `trtop serve`: the counters of every segment of this host, for Prometheus.
//!
//! Each scrape copies the segments anew; nothing but [`rests`] is kept between scrapes, and the programs do not
//! notice.

pub mod addresses;
mod labels;
pub mod metrics;
pub mod rests;
pub mod web;

use crate::cli::{Per, ServeArgs};
use crate::error::{Failure, Outcome};
use crate::export;
use crate::inspect;
use crate::ranks::{self, Map};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::{Exposition, Scrape};
use rests::Rests;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use telereduce::shm::reader::ReadError;
use telereduce::shm::snapshot;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use web::{Loaded, Web};

/// A client says what it wants, and has it, within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Clients at a time.
const MOST_CLIENTS: usize = 64;
/// What a dead process left is served for so long after its last sign of life.
const DEAD_SHOWN_NS: u64 = 600_000_000_000;

const INDEX: &str = "<html><head><title>telereduce</title></head><body><h1>telereduce</h1>\
<p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

/// Serves until the process is ended.
///
/// # Errors
/// The web configuration is wrong, or the address cannot be listened at.
pub fn run(o: &ServeArgs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(format!("cannot serve: {e}")))?;
    LocalSet::new().block_on(&runtime, serve(o))
}

async fn serve(o: &ServeArgs) -> Outcome {
    let failed = |e: std::io::Error| Failure::new(format!("cannot listen at {}: {e}", o.listen));
    let web = Web::new(o.web_config.as_deref()).map_err(|e| Failure::new(format!("--web-config: {e}")))?;
    let listener = TcpListener::bind(o.listen).await.map_err(failed)?;
    let scheme = if web.now().tls.is_some() { "https" } else { "http" };
    crate::error::print(&format!("trtop: serving {scheme}://{}/metrics\n", listener.local_addr().map_err(failed)?))?;
    if !o.listen.ip().is_loopback() && !web.now().asks() {
        eprintln!("trtop: {} is not a loopback address: whoever can connect can read the metrics", o.listen.ip());
    }
    let (dir, sys) = (inspect::directory(), o.sysfs.clone());
    let host = Rc::new(Host { dir, sys, per: o.per, web, said: RefCell::default(), rests: RefCell::default() });
    let clients = Rc::new(());
    loop {
        match listener.accept().await {
            Ok(_) if Rc::strong_count(&clients) > MOST_CLIENTS => {}
            Ok((socket, _)) => drop(tokio::task::spawn_local(converse(socket, host.clone(), clients.clone()))),
            // No descriptors, most likely: some will be free again.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// What is served.
struct Host {
    dir: PathBuf,
    sys: PathBuf,
    per: Per,
    web: Web,
    /// Segments that cannot be read, of which that was said.
    said: RefCell<HashSet<PathBuf>>,
    rests: RefCell<Rests>,
}

async fn converse(socket: TcpStream, host: Rc<Host>, _client: Rc<()>) {
    let now = host.web.now();
    let conversation = async {
        match &now.tls {
            None => talk(socket, &host, &now).await,
            Some(tls) => {
                if let Ok(socket) = tls.accept(socket).await {
                    talk(socket, &host, &now).await;
                }
            }
        }
    };
    // A client that goes away, talks nonsense or does not listen is nobody else's concern.
    let _ = tokio::time::timeout(PATIENCE, conversation).await;
}

async fn talk(socket: impl AsyncRead + AsyncWrite + Unpin, host: &Host, now: &Loaded) {
    let respond = async |request: Request<Incoming>| {
        if !host.web.admits(now, request.headers().get(AUTHORIZATION)).await {
            return Ok::<_, Infallible>(refused());
        }
        let accept = request.headers().get(ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
        let exposition = Exposition::accepted(accept);
        Ok(answer(request.method(), request.uri().path(), || host.scrape(exposition), exposition))
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
    let _ = http.serve_connection(TokioIo::new(socket), service_fn(respond)).await;
}

fn refused() -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::UNAUTHORIZED, "text/plain", "user and password, please\n".into());
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"telereduce\""));
    response
}

impl Host {
    /// As [`scrape`]; what cannot be read is named on stderr, once.
    fn scrape(&self, exposition: Exposition) -> Result<String, String> {
        scrape_after(&mut self.rests.borrow_mut(), &self.dir, &self.sys, self.per, exposition, |path, why| {
            if self.said.borrow_mut().insert(path.into()) {
                eprintln!("trtop: {}: {why}", path.display());
            }
        })
    }
}

fn answer(
    method: &Method,
    path: &str,
    scrape: impl FnOnce() -> Result<String, String>,
    exposition: Exposition,
) -> Response<Full<Bytes>> {
    match path {
        _ if method != Method::GET && method != Method::HEAD => {
            text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n".into())
        }
        "/metrics" => match scrape() {
            Ok(metrics) => text(StatusCode::OK, exposition.content_type(), metrics),
            Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{e}\n")),
        },
        "/" => text(StatusCode::OK, "text/html", INDEX.into()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "metrics are at /metrics\n".into()),
    }
}

fn text(code: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// One scrape of the segments in `dir` and the ports below `sys`, as text; `say` is told of each segment that cannot be read.
///
/// # Errors
/// The directory of segments cannot be read, or there are no descriptors left.
pub fn scrape(
    dir: &Path,
    sys: &Path,
    per: Per,
    exposition: Exposition,
    say: impl Fn(&Path, &ReadError),
) -> Result<String, String> {
    scrape_after(&mut Rests::default(), dir, sys, per, exposition, say)
}

/// As [`scrape`], after others.
///
/// # Errors
/// As [`scrape`].
pub fn scrape_after(
    rests: &mut Rests,
    dir: &Path,
    sys: &Path,
    per: Per,
    exposition: Exposition,
    say: impl Fn(&Path, &ReadError),
) -> Result<String, String> {
    let start = Instant::now();
    let (mut segments, left) = export::copy(dir, &[], snapshot::counters).map_err(|e| e.message)?;
    for (path, why) in &left.broken {
        if let ReadError::Io(e) = why
            && matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE))
        {
            return Err(format!("cannot read segments: {e}"));
        }
        say(path, why);
    }
    let now = telereduce::clock::realtime_ns();
    segments.retain(|s| s.alive || now.saturating_sub(s.heartbeat_ns) < DEAD_SHOWN_NS);
    if per == Per::Peer {
        rests.hold(&mut segments);
    }
    ranks::fill(&mut segments, &[], &Map::default());
    let unreadable = (left.denied + left.broken.len()) as u64;
    Scrape { segments, addresses: addresses::addresses(sys), per, unreadable, start }
        .text(exposition)
        .map_err(|e| e.to_string())
}
