//! The report: one HTML file that says what submeter costs and what is gained by it; and its tables
//! as Markdown.
//!
//! Everything is in the page, so that it can be mailed, kept beside its record and printed: no
//! script, no font, no image from elsewhere. maud escapes whatever comes from a record or a
//! definition.

mod definition;
mod figures;
mod format;
mod histogram;
mod markdown;
mod page;
mod paired;
mod plot;
mod plots;
mod record;
mod rows;
mod section;
mod text;

#[cfg(test)]
pub(crate) use definition::definition;
pub(crate) use definition::definitions;
pub(crate) use markdown::markdown;
pub(crate) use page::html;
pub(crate) use record::Record;
pub(crate) use text::text;

/// Returns the name by which links find the section of a table.
fn anchor(table: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("table-{}", table.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests;
