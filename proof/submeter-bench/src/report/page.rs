//! The report as one HTML page: the content of the Markdown, with plots.
//!
//! It loads no script, font or image, so that it can be mailed, printed and kept beside its record.
//! maud escapes everything that comes from a record or a definition.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::block::{Block, Table};
use super::content;
use super::definition::Definition;
use super::plots;
use super::record::Record;

const STYLE: &str = include_str!("style.css");

/// Writes the report of `record`.
pub(crate) fn html(record: &Record, definitions: &[Definition]) -> String {
    let blocks = content::report(record, definitions);
    let sections = blocks.iter().filter_map(|block| match block {
        Block::Heading(definition) => Some(definition),
        _ => None,
    });
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "submeter-bench · " (record.machine.date) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "What submeter costs, beside the alternatives" }
                ul { @for of in sections { li { a href=(format!("#{}", of.table)) { (of.title) } } } }
                @for block in &blocks { (written(record, block)) }
            }
        }
    };
    page.into_string()
}

fn written(record: &Record, block: &Block<'_>) -> Markup {
    match block {
        Block::Heading(definition) => html! { h2 id=(definition.table) { (definition.title) } },
        Block::Paragraph(words) => html! { p { (words) } },
        Block::About(name, said) => html! { p { em { (name) "." } " " (said) } },
        Block::Caption(words) => html! { h3 { (words) } },
        Block::Table(table) => self::table(table),
        Block::Names(of) => html! {
            h3 { "Names" }
            dl {
                @for (name, about) in &of.variants {
                    dt { (name) @if about.peer { " (a peer)" } }
                    dd { (about.about) }
                }
                @for (name, about) in &of.params {
                    dt { (name.replace('_', " ")) }
                    dd { (about.about) }
                }
            }
        },
        Block::Plots(definition, rows) => html! {
            @for plot in plots::plots(record, definition, rows) {
                figure {
                    @match plot.svg {
                        Ok(svg) => (PreEscaped(svg)),
                        Err(error) => p { "This plot could not be drawn: " (error) }
                    }
                    figcaption { (plot.title) }
                }
            }
        },
    }
}

fn table(table: &Table) -> Markup {
    let classes = || table.columns.chars().map(|column| (column == 'n').then_some("n"));
    html! {
        div {
            table {
                thead { tr {
                    @for (cell, class) in table.heading.iter().zip(classes()) {
                        th class=[class] { (cell) }
                    }
                } }
                tbody { @for line in &table.lines { tr {
                    @for (cell, class) in line.iter().zip(classes()) { td class=[class] { (cell) } }
                } } }
            }
        }
    }
}
