//! A bank for the processes of one host, over a UNIX socket.

mod client;
mod server;
mod wire;

pub use client::{SocketBank, SocketError};
pub use server::SocketServer;
