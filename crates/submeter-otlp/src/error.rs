//! Errors: of settings, and of exports that did not arrive.

use std::error::Error;
use std::fmt;
use std::io;

/// A setting that cannot be used. The text names it and the remedy.
#[derive(Debug)]
pub struct SettingError {
    text: String,
    source: Option<io::Error>,
}

/// Why the last export did not arrive. Its new counts are not lost: see the [crate](crate).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    text: String,
    refused: bool,
}

impl SettingError {
    pub(crate) fn new(text: String) -> SettingError {
        SettingError { text, source: None }
    }

    pub(crate) fn thread(source: io::Error) -> SettingError {
        let text = format!("cannot start a thread: {source}: raise the thread limit");
        SettingError::io(text, source)
    }

    pub(crate) fn io(text: String, source: io::Error) -> SettingError {
        SettingError { text, source: Some(source) }
    }
}

impl ExportError {
    pub(crate) fn refused(text: String) -> ExportError {
        ExportError { text, refused: true }
    }

    pub(crate) fn kept(text: String) -> ExportError {
        ExportError { text, refused: false }
    }

    /// Returns whether the receiver refused the request, rather than being out of reach: it will
    /// also refuse the next one until something is changed.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for SettingError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ExportError {}
