//! The report: one HTML file that shows what submeter costs and what it gains, and the same tables
//! as Markdown.
//!
//! The page is self-contained, so that it can be mailed, kept beside its record and printed: it
//! loads no script, font or image. maud escapes everything that comes from a record or a
//! definition.

mod beside;
mod contest;
mod definition;
mod figures;
mod format;
mod growth;
mod histogram;
mod markdown;
mod page;
mod paired;
mod picture;
mod plot;
mod plots;
mod record;
mod rows;
mod section;
mod text;

pub(crate) use beside::beside;
#[cfg(test)]
pub(crate) use definition::definition;
pub(crate) use definition::definitions;
pub(crate) use markdown::markdown;
pub(crate) use page::html;
pub(crate) use picture::picture;
pub(crate) use record::Record;
pub(crate) use text::text;

/// Returns the anchor of a table's section.
fn anchor(table: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("table-{}", table.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests;
