//! A parsed Rust file: its tokens, its comments line by line, its functions, and its test code.

use std::ops::Range;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// The parts of a Rust file that the rules need.
///
/// The tokens come from proc-macro2, which drops ordinary comments; everything that no token covers
/// is therefore a comment or white space. Regular expressions over lines would find the word
/// `unsafe` in strings and comments too.
pub(crate) struct Rust {
    /// The tokens outside comments, in order; delimiters are tokens of their own.
    pub(crate) tokens: Vec<Token>,
    /// The comments of each line, including doc comments; empty for a line without one.
    pub(crate) comments: Vec<String>,
    /// The functions with a body: name, first line, number of lines.
    pub(crate) functions: Vec<(String, usize, usize)>,
    /// Names of modules declared as `#[cfg(test)] mod name;`.
    pub(crate) test_modules: Vec<String>,
    /// Line ranges under `#[cfg(test)]` or `#[test]`, 1-based.
    test_lines: Vec<Range<usize>>,
}

/// One token.
pub(crate) struct Token {
    /// 1-based.
    pub(crate) line: usize,
    /// The token's text.
    pub(crate) text: String,
}

impl Rust {
    /// Parses a file.
    ///
    /// # Errors
    /// The text is not Rust; the message says where.
    pub(crate) fn parse(text: &str) -> Result<Rust, String> {
        let stream = TokenStream::from_str(text).map_err(|error| error.to_string())?;
        let mut leaves = Leaves { text, tokens: Vec::new(), code: vec![false; text.len()] };
        leaves.walk(stream.clone());
        let file = syn::parse2::<syn::File>(stream).map_err(|error| {
            let start = error.span().start();
            format!("line {}: {error}", start.line)
        })?;
        let mut items = Items::default();
        items.visit_file(&file);
        Ok(Rust {
            comments: comments(text, &leaves.code),
            tokens: leaves.tokens,
            functions: items.functions,
            test_modules: items.test_modules,
            test_lines: items.test_lines,
        })
    }

    /// Returns whether a line (1-based) is test code.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the attributes, each as the tokens between its brackets.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &[Token]> {
        let text = |i: usize| self.tokens.get(i).map_or("", |token| token.text.as_str());
        (0..self.tokens.len()).filter_map(move |i| {
            let open = match (text(i), text(i + 1), text(i + 2)) {
                ("#", "[", _) => i + 1,
                ("#", "!", "[") => i + 2,
                _ => return None,
            };
            let mut depth = 0;
            let close = (open..self.tokens.len()).find(|&j| {
                depth += i32::from(text(j) == "[") - i32::from(text(j) == "]");
                depth == 0
            })?;
            Some(&self.tokens[open + 1..close])
        })
    }
}

/// Flattens token trees and marks the bytes that they cover.
struct Leaves<'t> {
    text: &'t str,
    tokens: Vec<Token>,
    code: Vec<bool>,
}

impl Leaves<'_> {
    fn walk(&mut self, stream: TokenStream) {
        for tree in stream {
            let TokenTree::Group(group) = tree else {
                self.leaf(tree.span());
                continue;
            };
            // A doc comment becomes `#[doc = "…"]`, all of it with the comment's own span.
            if !self.is_comment(group.span()) {
                self.leaf(group.span_open());
                self.walk(group.stream());
                self.leaf(group.span_close());
            }
        }
    }

    fn leaf(&mut self, span: proc_macro2::Span) {
        let range = span.byte_range();
        if range.is_empty() || self.is_comment(span) {
            return;
        }
        self.code[range.clone()].fill(true);
        let text = self.text[range].to_owned();
        self.tokens.push(Token { line: span.start().line, text });
    }

    fn is_comment(&self, span: proc_macro2::Span) -> bool {
        let text = &self.text[span.byte_range()];
        text.starts_with("//") || text.starts_with("/*")
    }
}

/// Returns the text that no token covers, line by line.
fn comments(text: &str, code: &[bool]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let rest = line.char_indices().filter(|(at, _)| !code[start + at]).map(|(_, c)| c);
        lines.push(rest.collect::<String>().trim().to_owned());
        start += line.len();
    }
    lines
}

/// Collects functions and test code.
#[derive(Default)]
struct Items {
    functions: Vec<(String, usize, usize)>,
    test_modules: Vec<String>,
    test_lines: Vec<Range<usize>>,
}

impl Items {
    fn function(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let first = sig.span().start().line;
        let last = block.span().end().line;
        self.functions.push((sig.ident.to_string(), first, last + 1 - first));
    }

    fn test(&mut self, attrs: &[syn::Attribute], item: &impl Spanned) -> bool {
        let test = attrs.iter().any(is_test);
        if test {
            let span = item.span();
            self.test_lines.push(span.start().line..span.end().line + 1);
        }
        test
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if self.test(&item.attrs, item) && item.content.is_none() {
            self.test_modules.push(item.ident.to_string());
        }
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.test(&item.attrs, item);
        self.function(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.test(&item.attrs, item);
        syn::visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.test(&item.attrs, item);
        self.function(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }
}

/// Returns whether an attribute is `#[test]`, `#[tokio::test]`, or a `cfg` that requires `test`
/// (not its absence) or `loom`, which contains only models.
fn is_test(attribute: &syn::Attribute) -> bool {
    let path = attribute.path();
    if path.segments.last().is_some_and(|segment| segment.ident == "test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let words = list.tokens.to_string();
    let has = |word| words.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
    path.is_ident("cfg") && (has("test") || has("loom")) && !has("not")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(rust: &Rust) -> Vec<&str> {
        rust.tokens.iter().map(|token| token.text.as_str()).collect()
    }

    /// Comments and code are told apart in every form.
    #[test]
    fn comments_and_code_are_told_apart() {
        let rust = Rust::parse(
            "//! unsafe in a doc\nfn f() { // why\n    let s = \"// no comment: ö\";\n    /* a /* nested */ one */\n}\n/// doc\nstruct S;\n",
        )
        .expect("parses");
        assert_eq!(
            rust.comments,
            ["//! unsafe in a doc", "// why", "", "/* a /* nested */ one */", "", "/// doc", ""]
        );
        assert!(!words(&rust).contains(&"unsafe"));
        assert!(words(&rust).contains(&"\"// no comment: ö\""));
    }

    #[test]
    fn lines_of_functions_and_tests_are_known() {
        let rust = Rust::parse(
            "fn a() {\n}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn b() {\n        a();\n    }\n}\n#[cfg(not(test))]\nfn c() {}\n",
        )
        .expect("parses");
        assert_eq!(
            rust.functions,
            [("a".to_owned(), 1, 2), ("b".to_owned(), 6, 3), ("c".to_owned(), 11, 1)]
        );
        assert!(!rust.is_test_line(1) && rust.is_test_line(6) && !rust.is_test_line(11));
    }

    #[test]
    fn attributes_are_found_with_nested_brackets() {
        let rust = Rust::parse("#![a(b[c])]\n#[d]\nfn f() { let x = [1]; }\n").expect("parses");
        let first: Vec<_> = rust.attributes().map(|a| (a[0].text.clone(), a.len())).collect();
        assert_eq!(first, [("a".to_owned(), 7), ("d".to_owned(), 1)]);
    }

    #[test]
    fn text_that_is_no_rust_is_an_error_with_a_line() {
        let error = Rust::parse("fn f() {}\nfn {\n}\n").err().expect("refused");
        assert!(error.starts_with("line 2"), "{error}");
    }
}
