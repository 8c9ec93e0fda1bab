//! The service as its clients and its operator see it.

mod client;
mod heap;
mod lines;
mod load;
mod service;
mod shares;
