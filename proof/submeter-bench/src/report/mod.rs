//! Reports of a record: tables for a terminal; the same with explanations as Markdown, and as a
//! page with plots.

mod beside;
mod block;
mod brief;
mod claims;
mod content;
mod contest;
mod definition;
mod document;
mod format;
mod gaps;
mod growth;
mod histogram;
mod markdown;
mod page;
mod paired;
mod picture;
mod plot;
mod plots;
mod record;
mod regress;
mod removed;
mod rows;
mod text;

pub(crate) use beside::beside;
pub(crate) use brief::brief;
pub(crate) use claims::Claims;
#[cfg(test)]
pub(crate) use definition::definition;
pub(crate) use definition::definitions;
pub(crate) use gaps::gaps;
pub(crate) use markdown::markdown;
pub(crate) use page::html;
pub(crate) use picture::picture;
pub(crate) use record::Record;
pub(crate) use regress::regress;
pub(crate) use text::text;

#[cfg(test)]
mod tests;
