//! The attributes of a struct and of its fields.

use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitStr, Meta, Token};

/// The contents of a struct's `#[metrics(…)]`.
pub(crate) struct Struct {
    prefix: String,
    pub(crate) section: Option<LitStr>,
}

/// How a field is declared.
pub(crate) enum Field {
    /// A set of metrics.
    All,
    /// A counter to which threads in groups are charged, declared by this method of the builder.
    Time {
        method: Ident,
        name: String,
        help: String,
    },
    Histogram {
        name: String,
        help: String,
        buckets: Expr,
    },
    /// Declared by its type alone.
    Plain {
        name: String,
        help: String,
    },
}

impl Struct {
    pub(crate) fn new(attributes: &[Attribute]) -> Result<Struct, Error> {
        let mut whole = Struct { prefix: String::new(), section: None };
        for option in options(attributes, "metrics")? {
            match (name_of(&option)?.as_str(), &option) {
                ("prefix", Meta::NameValue(pair)) => whole.prefix = text(&pair.value)?.value(),
                ("section", Meta::NameValue(pair)) => whole.section = Some(text(&pair.value)?),
                _ => {
                    let known = "known are `prefix = \"http_\"` and `section = \"io\"`";
                    return Err(Error::new_spanned(option, known));
                }
            }
        }
        Ok(whole)
    }
}

impl Field {
    pub(crate) fn new(field: &syn::Field, whole: &Struct) -> Result<Field, Error> {
        let named = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        // `r#type` is named `type`, and `_cpu`, whose key is not used, `cpu`.
        let mut name = named.trim_start_matches("r#").trim_start_matches('_').to_owned();
        let (mut all, mut time, mut buckets) = (false, None, None);
        for option in options(&field.attrs, "metric")? {
            match (name_of(&option)?.as_str(), &option) {
                ("all", Meta::Path(_)) => all = true,
                ("cpu_time" | "off_cpu" | "cpu_error" | "cpu_budget", Meta::Path(path)) => {
                    time = path.get_ident().cloned();
                }
                ("buckets", Meta::NameValue(pair)) => buckets = Some(pair.value.clone()),
                ("name", Meta::NameValue(pair)) => name = text(&pair.value)?.value(),
                _ => {
                    let known = "known are `all`, `cpu_time`, `off_cpu`, `cpu_error`, `cpu_budget`, \
                                 `name = \"…\"` and `buckets = …`";
                    return Err(Error::new_spanned(option, known));
                }
            }
        }
        let (name, help) = (format!("{}{name}", whole.prefix), help(&field.attrs)?);
        match (all, time, buckets) {
            (true, None, None) => Ok(Field::All),
            (false, Some(method), None) => Ok(Field::Time { method, name, help }),
            (false, None, Some(buckets)) => Ok(Field::Histogram { name, help, buckets }),
            (false, None, None) => Ok(Field::Plain { name, help }),
            _ => {
                let one = "a metric is one of `all`, `cpu_time`, `off_cpu`, `cpu_error`, `cpu_budget` and a \
                           histogram with `buckets`";
                Err(Error::new_spanned(field, one))
            }
        }
    }
}

/// Returns the options of all attributes with this name.
fn options(attributes: &[Attribute], name: &str) -> Result<Vec<Meta>, Error> {
    let mut all = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(name)) {
        let options = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        all.extend(options);
    }
    Ok(all)
}

fn name_of(option: &Meta) -> Result<String, Error> {
    option.path().require_ident().map(Ident::to_string)
}

fn text(value: &Expr) -> Result<LitStr, Error> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
        other => Err(Error::new_spanned(other, "a text in quotes is wanted here")),
    }
}

/// Returns the first paragraph of the documentation, without the full stop: a help text is a title.
fn help(attributes: &[Attribute]) -> Result<String, Error> {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        // Other forms, such as `doc(hidden)`, have no text.
        let Meta::NameValue(pair) = &attribute.meta else { continue };
        let line = text(&pair.value)?.value();
        if line.trim().is_empty() && !lines.is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let help = lines.join(" ");
    Ok(help.trim().trim_end_matches('.').to_owned())
}
