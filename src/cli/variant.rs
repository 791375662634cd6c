//! Another setting of a command, for `bench --against`: the same arguments, some of them replaced.

use clap::builder::{OsStr, Resettable};
use clap::{Args as _, Command, FromArgMatches as _};

use super::args::JobArgs;
use super::what_is_wrong;
use crate::error::ConfigError;

/// `base` with what `text` says instead: options as on the command line, and inputs.
pub(super) fn variant(base: &JobArgs, text: &str) -> Result<JobArgs, ConfigError> {
    let wrong = |why: String| ConfigError::Syntax {
        what: "--against",
        text: text.to_owned(),
        why: format!("{why}; expected options and inputs of bench, as in '--skew off'"),
    };
    let words = words(text).ok_or_else(|| wrong("a quote is not closed".to_owned()))?;
    if words.is_empty() {
        return Err(wrong("nothing is changed".to_owned()));
    }
    // Defaults would replace what the base says.
    let command = JobArgs::augment_args_for_update(Command::new("against").no_binary_name(true))
        .disable_help_flag(true)
        .mut_args(|arg| arg.required(false).default_value(Resettable::<OsStr>::Reset));
    let matches = command
        .try_get_matches_from(words)
        .map_err(|error| wrong(what_is_wrong(&error.render().to_string())))?;
    let mut args = base.clone();
    args.update_from_arg_matches(&matches).map_err(|error| wrong(error.to_string()))?;
    // A flag that is absent changes nothing, and the two ways to pin exclude each other.
    args.no_pin |= base.no_pin && !matches.contains_id("cores");
    if matches.get_flag("no_pin") {
        args.cores = None;
    }
    Ok(args)
}

/// Splits at spaces; quotes of either kind keep words together. `None` if one is not closed.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            Some(_) | None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Cli, Command};
    use super::*;

    fn base(line: &str) -> JobArgs {
        match Cli::parse_from(line.split(' ')).command {
            Command::Bench(args) => args.job,
            _ => unreachable!("a line of bench"),
        }
    }

    #[test]
    fn only_what_is_written_changes() {
        let base = base("saltmill bench a.csv b.csv --key k --batch-rows 99 --no-pin --isa avx2");
        let changed = variant(&base, " --skew off --agg 'count, sum(\"v w\")'").unwrap();
        assert_eq!((changed.skew.as_str(), changed.agg.as_str()), ("off", "count, sum(\"v w\")"));
        assert_eq!((changed.batch_rows, changed.isa.as_str()), (99, "avx2"));
        assert_eq!((changed.key.as_deref(), changed.no_pin), (Some("k"), true));
        assert_eq!(changed.input.inputs, base.input.inputs);
        let changed = variant(&base, "c.csv --workers=1").unwrap();
        assert_eq!(changed.input.inputs, [std::path::Path::new("c.csv")]);
        assert_eq!((changed.workers, changed.skew.as_str()), (Some(1), "adaptive"));
        let pinned = variant(&base, "--cores 0").unwrap();
        assert_eq!((pinned.cores.as_deref(), pinned.no_pin), (Some("0"), false));
        assert!(variant(&pinned, "--no-pin").unwrap().cores.is_none());
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        let base = base("saltmill bench a.csv");
        for (text, words) in [
            ("", "nothing is changed"),
            ("--skew 'off", "a quote is not closed"),
            ("--runs 3", "unexpected argument '--runs'"),
            ("--workers two", "invalid value 'two'"),
            ("--skew off --skew off", "cannot be used multiple times"),
            ("--help", "unexpected argument '--help'"),
        ] {
            let error = variant(&base, text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
