//! `--metrics`: a server for Prometheus beside the run.

use std::net::ToSocketAddrs as _;

use super::{Failure, tell};
use crate::error::ConfigError;
use crate::prometheus::MetricsServer;
use crate::runtime::engine::Engine;

/// Takes the address, before the run begins.
pub(super) fn bind(address: &str) -> Result<MetricsServer, Failure> {
    let syntax = |why: String| ConfigError::Syntax {
        what: "address for metrics",
        text: address.to_owned(),
        why,
    };
    let known = address.to_socket_addrs().map_err(|error| {
        syntax(format!("{error}; expected an address and a port, as in 127.0.0.1:9184"))
    })?;
    let known = known.collect::<Vec<_>>();
    MetricsServer::bind(&known[..])
        .map_err(|error| Failure::Run(format!("--metrics {address}: cannot be served: {error}")))
}

/// Serves the engine's metrics. Without, the run goes on: they are not what it is for.
pub(super) fn serve(server: &mut MetricsServer, engine: &Engine) {
    match server.serve(engine.metrics_reader()) {
        Ok(()) => tell(&format!("metrics: http://{}/metrics", server.address())),
        Err(error) => tell(&format!("warning: metrics cannot be served: {error}")),
    }
}
