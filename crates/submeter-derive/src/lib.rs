//! The derive behind submeter's feature `derive`. See `submeter::Metrics` for its documentation.

#![forbid(unsafe_code)]

mod attributes;

use attributes::{Field, Struct};
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, parse_macro_input};

/// Implements `submeter::Metrics`: declares each field of a struct as a metric of the same name,
/// with the field's documentation as help. See `submeter::Metrics`.
#[proc_macro_derive(Metrics, attributes(metric, metrics))]
pub fn metrics(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implementation(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn implementation(input: &DeriveInput) -> Result<Tokens, Error> {
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            _ => return Err(named_fields(input)),
        },
        _ => return Err(named_fields(input)),
    };
    let whole = Struct::new(&input.attrs)?;
    let declared = fields.iter().map(|field| {
        let (name, kind) = (&field.ident, &field.ty);
        let value = declaration(&Field::new(field, &whole)?, kind);
        Ok(quote!(#name: #value))
    });
    let declared = declared.collect::<Result<Vec<_>, Error>>()?;
    let body = match &whole.section {
        Some(section) => quote! {
            schema.section(#section, |schema| Self { #(#declared),* })
        },
        None => quote!(Self { #(#declared),* }),
    };
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::submeter::Metrics for #name #arguments #bounds {
            fn declare(schema: &mut ::submeter::SchemaBuilder) -> Self {
                #body
            }
        }
    })
}

/// Returns the expression that declares one field.
fn declaration(field: &Field, kind: &syn::Type) -> Tokens {
    match field {
        Field::All => quote!(<#kind as ::submeter::Metrics>::declare(schema)),
        Field::Time { method, name, help } => quote!(schema.#method(#name, #help)),
        Field::Histogram { name, help, buckets } => {
            quote!(schema.histogram(#name, #help, #buckets))
        }
        Field::Plain { name, help } => {
            quote!(<#kind as ::submeter::MetricKey>::declare(schema, #name, #help))
        }
    }
}

fn named_fields(input: &DeriveInput) -> Error {
    Error::new_spanned(&input.ident, "metrics need names: derive them for a struct with fields")
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn refused(input: &DeriveInput) -> String {
        implementation(input).expect_err("wrong").to_string()
    }

    #[test]
    fn wrong_uses_say_what_is_right() {
        let unknown: DeriveInput = parse_quote!(
            struct A {
                #[metric(bucket = 1)]
                a: B,
            }
        );
        assert_eq!(
            refused(&unknown),
            "known are `all`, `cpu_time`, `off_cpu`, `cpu_error`, `cpu_budget`, `name = \"…\"` and \
             `buckets = …`"
        );
        let unknown: DeriveInput = parse_quote!(
            #[metrics(suffix = "x")]
            struct A {
                a: B,
            }
        );
        assert_eq!(refused(&unknown), "known are `prefix = \"http_\"` and `section = \"io\"`");
        let two: DeriveInput = parse_quote!(
            struct A {
                #[metric(cpu_time, buckets = X)]
                a: B,
            }
        );
        assert!(refused(&two).starts_with("a metric is one of"));
        let number: DeriveInput = parse_quote!(
            struct A {
                #[metric(name = 7)]
                a: B,
            }
        );
        assert_eq!(refused(&number), "a text in quotes is wanted here");
        for nameless in [
            parse_quote!(
                struct A(B);
            ),
            parse_quote!(
                enum A {
                    B,
                }
            ),
            parse_quote!(
                struct A;
            ),
        ] {
            assert!(refused(&nameless).starts_with("metrics need names"));
        }
    }
}
