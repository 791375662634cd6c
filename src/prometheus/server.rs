//! A small server to scrape metrics from: one thread, one page.

use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiny_http::{Header, Method, Request, Response, Server};

use super::families::Exposition;
use crate::runtime::engine::MetricsReader;

/// How often the loads of the shards are looked at.
const TICK: Duration = Duration::from_millis(250);

/// However often metrics are asked for, the text is not made more often: what a busy scraper takes from the
/// engine is bounded.
const TEXT_AGE_MAX: Duration = Duration::from_millis(50);

/// Serves metrics over HTTP, under `/metrics`, until it is dropped.
pub struct MetricsServer {
    server: Arc<Server>,
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Takes the address; nothing is answered before [`MetricsServer::serve`].
    ///
    /// # Errors
    /// If the address cannot be had: another program has it, or it is not this machine's.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let server = Server::http(address).map_err(io::Error::other)?;
        let address = server
            .server_addr()
            .to_ip()
            .ok_or_else(|| io::Error::other("the server has no address of the internet"))?;
        let stopped = Arc::new(AtomicBool::new(false));
        Ok(Self { server: Arc::new(server), address, stopped, thread: None })
    }

    /// Where it listens; of use if port 0 was asked for, which is any free one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests with the metrics of an engine, from a thread of its own.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(&mut self, reader: MetricsReader) -> io::Result<()> {
        let (server, stopped) = (Arc::clone(&self.server), Arc::clone(&self.stopped));
        let body = move || {
            let mut page = Page { exposition: Exposition::new(reader), made: None };
            while !stopped.load(Ordering::Relaxed) {
                match server.recv_timeout(TICK) {
                    Ok(Some(request)) => answer(request, &mut page),
                    Ok(None) => page.exposition.tick(),
                    // One connection failed; the next may not.
                    Err(_) => {}
                }
            }
        };
        let name = "saltmill-metrics".to_owned();
        self.thread = Some(std::thread::Builder::new().name(name).spawn(body)?);
        Ok(())
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The metrics, as they were made last.
struct Page {
    exposition: Exposition,
    made: Option<(Instant, String)>,
}

impl Page {
    fn text(&mut self) -> String {
        match &self.made {
            Some((when, text)) if when.elapsed() < TEXT_AGE_MAX => text.clone(),
            _ => {
                let text = self.exposition.text();
                self.made = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

fn answer(request: Request, page: &mut Page) {
    let path = request.url().split('?').next().unwrap_or_default();
    let (code, kind, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => (200, Exposition::CONTENT_TYPE, page.text()),
        (Method::Get | Method::Head, "/") => {
            (200, "text/plain; charset=utf-8", "Saltmill. Metrics are at /metrics.\n".to_owned())
        }
        (Method::Get | Method::Head, _) => {
            (404, "text/plain; charset=utf-8", "Not found; metrics are at /metrics.\n".to_owned())
        }
        _ => (405, "text/plain; charset=utf-8", "Only GET is answered.\n".to_owned()),
    };
    let header = Header::from_bytes("Content-Type", kind).expect("a header of plain characters");
    let response = Response::from_string(text).with_status_code(code).with_header(header);
    // Whoever asked may have gone away.
    let _ = respond(request, response);
}

/// Responds in one piece: of two, the second would wait until the first is acknowledged, which some put off for
/// 40 ms.
fn respond<R: io::Read>(request: Request, response: Response<R>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let (version, no_body) = (request.http_version().clone(), *request.method() == Method::Head);
    response.raw_print(&mut bytes, version, request.headers(), no_body, None)?;
    let mut writer = request.into_writer();
    writer.write_all(&bytes)?;
    writer.flush()
}
