//! Running the program, and scratch folders.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    /// Output lines, sorted: without `--ordered` their order is free.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines = self.text().lines().collect::<Vec<_>>();
        lines.sort_unstable();
        lines
    }

    /// It did what was asked and had nothing to remark.
    #[track_caller]
    pub(crate) fn fine(self) -> Self {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self
    }

    /// It failed with this code, and one line on standard error that has all these words.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let errors = self.err.lines().filter(|line| !line.starts_with("Usage: "));
        let errors = errors.collect::<Vec<_>>();
        assert_eq!(errors.len(), 1, "one line says what is wrong: {self:?}");
        assert!(errors[0].starts_with("error: "), "{self:?}");
        assert!(!self.err.contains("panic"), "{self:?}");
        for word in words {
            assert!(errors[0].contains(word), "no {word:?} in {errors:?}");
        }
    }
}

pub(crate) fn command<S: AsRef<str>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_saltmill"));
    command.args(args.iter().map(AsRef::as_ref)).env("COLUMNS", "100").stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub(crate) fn saltmill<S: AsRef<str>>(args: &[S]) -> Ran {
    let output = command(args).output().expect("the program can be started");
    Ran {
        code: output.status.code(),
        out: output.stdout,
        err: String::from_utf8(output.stderr).expect("messages are text"),
    }
}

/// Runs a line of words; no quoting.
pub(crate) fn run_line(line: &str) -> Ran {
    saltmill(&line.split_whitespace().collect::<Vec<_>>())
}

/// A folder that is removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("saltmill-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.0.join(name)).unwrap()).unwrap()
    }

    /// A statistics file, after a check that no row is lost.
    #[track_caller]
    pub(crate) fn stats(&self, name: &str) -> serde_json::Value {
        let stats: serde_json::Value = serde_json::from_str(&self.read(name)).unwrap();
        let number = |name: &str| stats[name].as_u64().unwrap();
        let rejected = stats["rows_rejected"].as_object().unwrap().values();
        let rejected = rejected.map(|rows| rows.as_u64().unwrap()).sum::<u64>();
        let accounted = number("rows_aggregated") + number("rows_late") + rejected;
        assert_eq!(number("rows_in"), accounted, "{stats}");
        let shards = stats["shards"].as_array().unwrap().iter();
        let shards = shards.map(|shard| shard["rows_in"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(number("rows_aggregated"), shards, "{stats}");
        stats
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder of real data beside the package; says so if it is not there.
pub(crate) fn real_data(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data").join(name);
    if path.is_file() {
        return Some(path.display().to_string());
    }
    eprintln!("skipped: {} is not there", path.display());
    None
}
