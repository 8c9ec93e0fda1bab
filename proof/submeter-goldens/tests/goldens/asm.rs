//! Reads compiler output into comparable lines.

use std::collections::HashMap;

/// The instruction sets that have sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// x86-64, in AT&T syntax.
    X86_64,
    /// AArch64.
    Aarch64,
}

/// One instruction, label or datum.
pub(crate) struct Line {
    /// Whether it comes from the sequence's own `asm!`.
    pub(crate) own: bool,
    /// Whether it is an instruction in the function itself, not in another section.
    pub(crate) hot: bool,
    text: String,
}

impl Line {
    pub(crate) fn render(&self) -> String {
        let mark = if self.own { "|" } else { " " };
        let indent = if self.text.ends_with(':') { "" } else { "    " };
        format!("{mark} {indent}{}", self.text)
    }
}

/// Returns each function whose name starts with `prefix`, without the prefix, in order of name.
pub(crate) fn functions(isa: Isa, text: &str, prefix: &str) -> Vec<(String, Vec<Line>)> {
    let mut found: Vec<(String, Vec<Line>)> = Vec::new();
    let mut current: Option<(String, Vec<Line>)> = None;
    let (mut own, mut cold) = (false, false);
    for raw in text.lines() {
        let line = raw.trim();
        if let Some(name) = line.strip_suffix(':').and_then(|name| name.strip_prefix(prefix)) {
            (own, cold) = (false, false);
            current = Some((name.to_owned(), Vec::new()));
            continue;
        }
        if line.starts_with(".Lfunc_end") {
            found.extend(current.take());
        }
        let Some((name, lines)) = &mut current else { continue };
        match line.trim_start_matches(['#', '/']) {
            "APP" => own = true,
            "NO_APP" => own = false,
            _ => {}
        }
        if let Some(section) = line.strip_prefix(".section") {
            let section = section.trim().split(',').next().unwrap_or_default();
            cold = !section.ends_with(name.as_str());
            let text = format!(".section {}", if cold { section } else { ".text" });
            lines.push(Line { own, hot: false, text });
        } else if let Some(text) = code_or_data(line) {
            let hot = !cold && !text.ends_with(':') && !text.starts_with('.');
            lines.push(Line { own, hot, text });
        }
    }
    for (_, lines) in &mut found {
        number_labels(lines);
        number_registers(isa, lines);
        lines.retain(|line| !line.text.is_empty());
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Returns `line` with single spaces, or `None` if it is neither code nor data.
fn code_or_data(line: &str) -> Option<String> {
    const DATA: [&str; 6] = [".long", ".quad", ".byte", ".word", ".xword", ".inst"];
    let word = line.split_whitespace().next()?;
    let directive = word.starts_with('.') && !word.ends_with(':');
    if line.starts_with(['#', '/']) || (directive && !DATA.contains(&word)) {
        return None;
    }
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Renames labels to L1, L2, … in order of appearance, and drops unused ones.
fn number_labels(lines: &mut [Line]) {
    let mut names: HashMap<String, String> = HashMap::new();
    let defined = |text: &str| text.strip_suffix(':').map(str::to_owned);
    let mut used = Vec::new();
    for line in lines.iter().filter(|line| defined(&line.text).is_none()) {
        replace(&line.text, is_label_character, |word| {
            if word.starts_with(".L") {
                used.push(word.to_owned());
            }
            None
        });
    }
    for line in lines {
        if let Some(label) = defined(&line.text)
            && !used.contains(&label)
        {
            line.text.clear();
        }
        line.text = replace(&line.text, is_label_character, |word| {
            let next = format!("L{}", names.len() + 1);
            word.starts_with(".L").then(|| names.entry(word.to_owned()).or_insert(next).clone())
        });
    }
}

/// Renames registers to numbers: first those of the sequence, then the others.
fn number_registers(isa: Isa, lines: &mut [Line]) {
    let mut names: HashMap<String, usize> = HashMap::new();
    for own in [true, false] {
        for line in lines.iter_mut().filter(|line| line.own == own) {
            line.text = replace(&line.text, is_register_character, |word| {
                let (family, width) = register(isa, word)?;
                let next = names.len() + 1;
                let number = *names.entry(family).or_insert(next);
                Some(match isa {
                    Isa::X86_64 => format!("%r{number}{width}"),
                    Isa::Aarch64 => format!("{width}r{number}"),
                })
            });
        }
    }
}

/// Returns a general register's family and width, `None` for any other word. Stack, instruction and
/// thread pointer and the zero register keep their names.
fn register(isa: Isa, word: &str) -> Option<(String, String)> {
    match isa {
        Isa::X86_64 => {
            let name = word.strip_prefix('%')?;
            if name.len() > 1
                && let Some(number) = name.strip_prefix('r')
                && number.starts_with(|c: char| c.is_ascii_digit())
            {
                let digits = number.trim_end_matches(['b', 'w', 'd']);
                return Some((digits.to_owned(), number[digits.len()..].to_owned()));
            }
            let legacy = ["ax", "bx", "cx", "dx", "si", "di", "bp"];
            for family in legacy {
                let width = match name {
                    _ if name == family => "w",
                    _ if name.strip_prefix('r') == Some(family) => "",
                    _ if name.strip_prefix('e') == Some(family) => "d",
                    _ if name.len() == 2
                        && name.ends_with('l')
                        && family.starts_with(&name[..1]) =>
                    {
                        "b"
                    }
                    _ if name.strip_suffix('l') == Some(family) => "b",
                    _ => continue,
                };
                return Some((family.to_owned(), width.to_owned()));
            }
            None
        }
        Isa::Aarch64 => {
            let number = word.strip_prefix(['x', 'w'])?;
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| (number.to_owned(), word[..1].to_owned()))
        }
    }
}

fn is_label_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '.' || c == '_'
}

fn is_register_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '%'
}

/// Replaces each longest run of `part` characters for which `with` returns a text.
fn replace(
    text: &str,
    part: fn(char) -> bool,
    mut with: impl FnMut(&str) -> Option<String>,
) -> String {
    let (mut out, mut word) = (String::new(), String::new());
    for c in text.chars().chain(['\0']) {
        if part(c) {
            word.push(c);
            continue;
        }
        out.push_str(&with(&word).unwrap_or_else(|| word.clone()));
        word.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    out
}

/// Numbering keeps operand shapes and identities but not register names.
#[test]
fn numbering_drops_register_names() {
    let text = "p_a:\n#APP\n\tmovq\t%rdi, (%r8)\n.Ltmp9:\n\tjae\t.LBB0_2\n\t#NO_APP\n\tmovb $1, %al\n.LBB0_2:\n\tretq\n.Lfunc_end0:\n";
    let render = |text: &str| {
        let found = functions(Isa::X86_64, text, "p_");
        found[0].1.iter().map(|line| line.render() + "\n").collect::<String>()
    };
    let expected = "|     movq %r1, (%r2)\n|     jae L1\n      movb $1, %r3b\n  L1:\n      retq\n";
    assert_eq!(render(text), expected);
    assert_eq!(render(&text.replace("%rdi", "%rsi").replace("LBB0_2", "LBB7_9")), expected);
    assert_ne!(render(&text.replace("(%r8)", "(%rdi)")), expected, "a different data flow");
    assert_ne!(render(&text.replace("(%r8)", "8(%r8)")), expected, "a different operand shape");
}
