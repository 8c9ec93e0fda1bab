//! The page in Chromium: what its tests and the measurement of its frames share.
//!
//! Chromium is driven through chromedriver, which Debian packages with it, and the program whose
//! groups the page shows runs in the process of the test.

#![forbid(unsafe_code)]
#![cfg(feature = "driver")]

mod browser;
mod program;

pub use browser::Browser;
pub use fantoccini::key::Key;
pub use program::Program;
