//! A file of `serve`'s flags: `memory = "4g"` is `--memory 4g`.
//!
//! Its entries become words of a command line, which clap reads with the others. Each flag, its
//! values and its conflicts are thus defined once. A struct for serde would be a second definition.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, Id};
use submeter::limits::GroupLimits;
use submeter_terminal::{one_line, read_file, short};
use toml::de::{DeTable, DeValue};

/// The content of the file of `--config`.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    settings: Vec<Setting>,
    limits: Vec<(usize, GroupLimits)>,
}

/// A line of the file, as words of a command line.
pub(super) struct Line {
    /// The flag, and where it is.
    pub(super) place: String,
    pub(super) words: Vec<OsString>,
}

/// The content of a file of `--config`: settings, and limits with their lines.
type Said = (Vec<Setting>, Vec<(usize, GroupLimits)>);

/// A key that names a flag.
#[derive(Clone, Debug)]
struct Setting {
    id: Id,
    key: String,
    line: usize,
    words: Vec<String>,
}

impl ConfigFile {
    /// Reads a file of flags of `serve`. The error is one line that names file, line and remedy.
    pub(super) fn read(path: &Path, serve: &Command) -> Result<ConfigFile, String> {
        let name = path.display().to_string();
        let name = short(&name);
        let text = read_file(path).map_err(|e| {
            format!(
                "cannot read {name}: {e}; use a file of flags for --config, as in memory = \"4g\""
            )
        })?;
        let (settings, limits) =
            parse(&text, serve).map_err(|(line, why)| format!("{name} line {line}: {why}"))?;
        Ok(ConfigFile { path: path.to_owned(), settings, limits })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the limits of tenants, each with its line.
    pub(crate) fn limits(&self) -> &[(usize, GroupLimits)] {
        &self.limits
    }

    /// Returns the lines that neither a flag nor a variable overrides.
    pub(super) fn lines(&self, said: &ArgMatches) -> Vec<Line> {
        let is_left = |setting: &&Setting| {
            !matches!(
                said.value_source(setting.id.as_str()),
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            )
        };
        let name = self.path.display();
        let line = |setting: &Setting| Line {
            place: format!("{}: {name} line {}", setting.key, setting.line),
            words: setting.words.iter().map(OsString::from).collect(),
        };
        self.settings.iter().filter(is_left).map(line).collect()
    }

    /// Returns the keys that are not in both files with the same value.
    pub(crate) fn changed<'a>(&'a self, other: &'a ConfigFile) -> Vec<&'a str> {
        let said = |file: &ConfigFile, setting: &Setting| {
            file.settings.iter().any(|s| s.key == setting.key && s.words == setting.words)
        };
        let mine = self.settings.iter().filter(|setting| !said(other, setting));
        let others = other.settings.iter().filter(|setting| !said(self, setting));
        let mut keys: Vec<&str> = mine.chain(others).map(|setting| setting.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Parses the file. The error is a line's number and what is wrong there.
fn parse(text: &str, serve: &Command) -> Result<Said, (usize, String)> {
    let line = |at: usize| 1 + text[..at].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        (line(at), format!("not TOML: {}", error.message().replace('\n', "; ")))
    })?;
    let (mut settings, mut limits) = (Vec::new(), Vec::new());
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    // The first wrong line is named, as in the file of --limits.
    entries.sort_unstable_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let at = line(key.span().start);
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("limits", DeValue::Table(table)) => {
                for (path, value) in table {
                    let at = line(path.span().start);
                    let limit = limit(path.get_ref(), value.get_ref());
                    limits.push((at, limit.map_err(|why| (at, why))?));
                }
            }
            (key, value) => {
                let (id, words) = setting(key, value, serve).map_err(|why| (at, why))?;
                settings.push(Setting { id, key: key.to_owned(), line: at, words });
            }
        }
    }
    Ok((settings, limits))
}

fn limit(path: &str, value: &DeValue<'_>) -> Result<GroupLimits, String> {
    let text = value.as_str().ok_or_else(|| {
        let path = short(path);
        format!("the limits of {path:?} are not a string: use {path:?} = \"64m,rate=20000/s\"")
    })?;
    GroupLimits::new(path, text).map_err(|error| error.to_string())
}

/// Returns the flag that a key names, and the words that set it.
fn setting(key: &str, value: &DeValue<'_>, serve: &Command) -> Result<(Id, Vec<String>), String> {
    let flag = format!("--{key}");
    let known = serve.get_arguments().find(|arg| arg.get_long() == Some(key));
    // If a file could name another one, it would be unclear which of the two is right.
    let Some(arg) = known.filter(|_| key != "config") else { return Err(unknown(&flag, serve)) };
    if key == "tenant-limit" {
        return Err("limits of tenants belong in [limits], as \"/acme\" = \"64m\"".to_owned());
    }
    let word = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(format!("{flag}={text}")),
        DeValue::Integer(number) => Ok(format!("{flag}={number}")),
        DeValue::Float(number) => Ok(format!("{flag}={number}")),
        DeValue::Boolean(answer) => Ok(format!("{flag}={answer}")),
        other => {
            Err(format!("use a string or a number for {:?}, not {}", short(key), other.type_str()))
        }
    };
    let words: Vec<String> = match value {
        DeValue::Boolean(false) if !arg.get_action().takes_values() => Vec::new(),
        DeValue::Boolean(true) if !arg.get_action().takes_values() => vec![flag],
        DeValue::Array(values) if matches!(arg.get_action(), ArgAction::Append) => {
            values.iter().map(|value| word(value.get_ref())).collect::<Result<_, _>>()?
        }
        value => vec![word(value)?],
    };
    match read(serve, &words).err() {
        // What else the flag needs, or conflicts with, may be given elsewhere.
        Some(error)
            if !matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict
            ) =>
        {
            Err(one_line(&error))
        }
        _ => Ok((arg.get_id().clone(), words)),
    }
}

fn read(serve: &Command, words: &[String]) -> Result<ArgMatches, clap::Error> {
    let name = serve.get_name().to_owned();
    serve.clone().try_get_matches_from(std::iter::once(name).chain(words.iter().cloned()))
}

/// Returns the flag of `serve` that an unknown one may have been meant to be, without its marks.
pub(super) fn similar(flag: &str, serve: &Command) -> Option<String> {
    // A long flag is similar to none, and finding that out would take clap minutes.
    if flag.len() >= 100 {
        return None;
    }
    match read(serve, &[flag.to_owned()]).err()?.get(ContextKind::SuggestedArg)? {
        ContextValue::String(similar) => Some(bare(similar).to_owned()),
        _ => None,
    }
}

fn unknown(flag: &str, serve: &Command) -> String {
    let similar = similar(flag, serve).map(|similar| format!("did you mean {similar:?}"));
    let remedy = similar.unwrap_or_else(|| "see the flags of `submeter serve --help`".to_owned());
    format!("{:?} is not a flag of serve: {remedy}", short(bare(flag)))
}

fn bare(flag: &str) -> &str {
    flag.trim_start_matches("--")
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;
    use crate::cli::ServeArgs;

    fn serve() -> Command {
        ServeArgs::augment_args(Command::new("serve"))
    }

    fn words(text: &str) -> Vec<String> {
        let (settings, _) = parse(text, &serve()).expect("well-formed");
        settings.into_iter().flat_map(|setting| setting.words).collect()
    }

    #[test]
    fn keys_are_flags() {
        let text = "memory = \"4g\"\nconnections = 9\nseconds = 1.5\nno-evictions = true\n\
                    no-metering = false\nhttp-host = [\"a.lan\", \"b.lan\"]\n";
        let expected = [
            "--memory=4g",
            "--connections=9",
            "--seconds=1.5",
            "--no-evictions",
            "--http-host=a.lan",
            "--http-host=b.lan",
        ];
        assert_eq!(words(text), expected);
        assert_eq!(words("tls-key = \"k\"\nload = 6\nauth-file = \"f\"").len(), 3, "one by one");
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn limits_are_those_of_a_file_of_lines() {
        let text = "[limits]\n\"/a,b=c d\" = \"64m\"\n\"/b\" = \"rate=5/s,burst=2\"\n";
        let (settings, limits) = parse(text, &serve()).expect("well-formed");
        assert!(settings.is_empty());
        let expected = [(2, "/a,b=c d", "64m"), (3, "/b", "rate=5/s,burst=2")];
        let limit = |path, text| GroupLimits::new(path, text).expect("limits");
        let expected = expected.map(|(line, path, text)| (line, limit(path, text)));
        assert_eq!(limits, expected);
    }

    #[test]
    fn an_error_names_line_key_and_remedy() {
        for (text, line, parts) in [
            ("\nmemroy = \"4g\"", 2, &["\"memroy\"", "did you mean \"memory\""][..]),
            ("zzz = 1", 1, &["\"zzz\"", "--help"]),
            ("config = \"x\"", 1, &["\"config\" is not a flag"]),
            ("[load]\ntenants = 6", 1, &["\"load\"", "not table"]),
            ("[server]\nmemory = 6", 1, &["\"server\""]),
            ("zzz = 1\nconnections = 0", 1, &["\"zzz\""]),
            ("memory = \"4g\"\n\nconnections = 0\nzzz = 1", 3, &["'0'", "--connections"]),
            ("memory = \"lots\"", 1, &["lots", "64k"]),
            ("memory = true", 1, &["true", "not a size"]),
            ("memory = [\"1g\", \"2g\"]", 1, &["for \"memory\", not array"]),
            ("memory = 2020-01-01", 1, &["a string or a number for \"memory\""]),
            ("no-evictions = \"yes\"", 1, &["yes", "--no-evictions"]),
            ("tenant-limit = \"/a=1m\"", 1, &["[limits]", "\"/acme\" = \"64m\""]),
            ("[limits]\n\"/a\" = 64", 2, &["\"/a\"", "not a string"]),
            ("[limits]\n\n\"a\" = \"1k\"", 3, &["\"a\"", "starts with '/'"]),
            ("[limits]\n\"/a\" = \"rate=5\"", 2, &["\"5\" is not a rate"]),
            ("memory = 1\nmemory = 2", 2, &["not TOML", "duplicate"]),
            ("memory", 1, &["not TOML"]),
        ] {
            let (at, why) = parse(text, &serve()).map(|_| ()).expect_err(text);
            assert_eq!(at, line, "{text:?}: {why}");
            assert!(!why.contains('\n'), "{text:?}: {why}");
            for part in parts {
                assert!(why.contains(part), "{text:?}: {why} names {part}");
            }
        }
    }
}
