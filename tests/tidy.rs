//! The house rules that a compiler does not check: modules build on earlier ones only, `unsafe` stays in
//! its rooms, files stay short and plain, documents and fuzz targets are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files that may contain `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "src/sys.rs",
    "src/state/readable.rs",
    "src/state/rows.rs",
    "src/state/arena.rs",
    "src/runtime/ring.rs",
    "src/runtime/grace.rs",
    // Cells that loom watches.
    "loom/src/grace_tests.rs",
    "src/kernel/x86_64.rs",
    "tests/alloc.rs",
];

/// Files and the later modules that they may use all the same.
const EXCUSED: &[(&str, &str)] = &[
    // A pane ties a table to accumulators, and accumulators work on the rows of a table.
    ("src/state/pane.rs", "aggregate"),
    ("src/state/pane/sessions.rs", "aggregate"),
    ("src/state/pane/corrections.rs", "aggregate"),
    ("src/state/pane/image.rs", "aggregate"),
    ("src/state/pane/split.rs", "aggregate"),
];

const FILE_LINES_MAX: usize = 700;
/// Of code, rustfmt sees to 100; prose may go a little further.
const LINE_CHARS_MAX: usize = 120;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Path below the root, with `/`.
fn name(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap();
    path.components().map(|part| part.as_os_str().to_str().unwrap()).collect::<Vec<_>>().join("/")
}

/// All files below `folder` that end in `extension`.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                if !entry.ends_with("target") {
                    folders.push(entry);
                }
            } else if entry.extension().is_some_and(|found| found == extension) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

fn rust_files() -> Vec<PathBuf> {
    let folders = ["src", "tests", "benches", "examples", "fuzz", "loom"];
    folders.iter().flat_map(|folder| files(folder, "rs")).collect()
}

/// Modules in the order in which a file declares them; test modules left out.
fn modules(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut previous = "";
    for line in text.lines().map(str::trim) {
        let declared = ["pub mod ", "pub(crate) mod ", "pub(super) mod ", "mod "]
            .iter()
            .find_map(|start| line.strip_prefix(start)?.strip_suffix(';'));
        if let Some(module) = declared
            && !previous.starts_with("#[cfg(test)]")
            && !previous.starts_with("#[cfg(all(test")
        {
            found.push(module.to_owned());
        }
        previous = line;
    }
    found
}

/// The code of a file without comments and without its test module.
fn code(text: &str) -> String {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test"))
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n")
}

fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs")
        || name.contains("/tests/")
        || ["src/runtime/simulation.rs", "src/runtime/equality.rs"].contains(&name)
}

/// Names after `start` (`crate::`, `use super::`) in a file's code.
fn uses(text: &str, start: &str) -> BTreeSet<String> {
    let code = code(text);
    let rests = code.match_indices(start).map(|(at, _)| &code[at + start.len()..]);
    rests
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether the use is excused; the excuses that served are noted.
fn excused(name: &str, used: &str, served: &mut Vec<(&str, &str)>) -> bool {
    let found = EXCUSED.iter().find(|excuse| **excuse == (name, used));
    served.extend(found);
    found.is_some()
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn modules_build_on_earlier_ones() {
    let order = modules(&read(&root().join("src/lib.rs")));
    let place = |module: &str| order.iter().position(|known| known == module);
    let (mut wrong, mut served) = (Vec::new(), Vec::new());
    for path in files("src", "rs") {
        let name = name(&path);
        let own = name["src/".len()..].split(['/', '.']).next().unwrap();
        let Some(own_place) = place(own).filter(|_| !is_test(&name)) else { continue };
        for used in uses(&read(&path), "crate::") {
            if place(&used).is_some_and(|used| used > own_place)
                && !excused(&name, &used, &mut served)
            {
                wrong.push(format!("{name}: {own} uses {used}, which stands after it in lib.rs"));
            }
        }
    }
    let idle = EXCUSED.iter().filter(|excuse| !served.contains(excuse));
    wrong.extend(idle.map(|excuse| format!("{excuse:?} needs no excuse any more")));
    assert_none(&wrong);
}

#[test]
fn files_of_a_folder_build_on_earlier_ones() {
    let mut wrong = Vec::new();
    for folder in files("src", "rs").iter().filter(|path| path.ends_with("mod.rs")) {
        let order = modules(&read(folder));
        for (own_place, own) in order.iter().enumerate() {
            let path = folder.with_file_name(format!("{own}.rs"));
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for used in uses(&text, "use super::") {
                if order.iter().position(|known| *known == used).is_some_and(|it| it > own_place) {
                    let name = name(&path);
                    wrong.push(format!("{name}: uses {used}, which stands after it in mod.rs"));
                }
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let (name, text) = (name(&path), read(&path));
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = ["unsafe ".to_owned() + "{", "unsafe ".to_owned() + "impl"];
        let has = code.into_iter().any(|line| {
            words.iter().any(|word| line.contains(word))
                || line.contains("unsafe ".to_owned().as_str()) && line.contains("fn ")
                || line.contains("(unsafe_".to_owned().as_str()) && line.contains("code")
        });
        if has && !UNSAFE_FILES.contains(&name.as_str()) && name != "tests/tidy.rs" {
            wrong.push(format!("{name} contains unsafe code; only these may: {UNSAFE_FILES:?}"));
        }
    }
    for file in UNSAFE_FILES {
        if !root().join(file).exists() {
            wrong.push(format!("{file} may contain unsafe code but does not exist"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn files_are_short_and_plain() {
    let mut wrong = Vec::new();
    for path in rust_files() {
        let (name, text) = (name(&path), read(&path));
        if text.lines().count() > FILE_LINES_MAX {
            let lines = text.lines().count();
            wrong.push(format!("{name}: {lines} lines, more than {FILE_LINES_MAX}; find the seam"));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.contains('\t') {
                wrong.push(format!("{name}:{number}: a tab"));
            }
            if !line.is_ascii() {
                wrong.push(format!("{name}:{number}: not ASCII; write \\u{{...}}"));
            }
            let long = line.chars().count() > LINE_CHARS_MAX;
            if long && !line.contains("://") && !line.contains('"') {
                let chars = line.chars().count();
                wrong.push(format!("{name}:{number}: {chars} characters"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn the_architecture_names_every_module() {
    let text = read(&root().join("ARCHITECTURE.md"));
    let lib = modules(&read(&root().join("src/lib.rs")));
    let missing = lib
        .iter()
        .filter(|module| !text.contains(&format!("| `{module}` |")))
        .map(|module| format!("ARCHITECTURE.md does not name {module}"));
    assert_none(&missing.collect::<Vec<_>>());
}

#[test]
fn every_fuzz_target_is_listed_and_has_seeds() {
    let manifest = read(&root().join("fuzz/Cargo.toml"));
    let mut wrong = Vec::new();
    for path in files("fuzz/fuzz_targets", "rs") {
        let target = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")) {
            wrong.push(format!("fuzz/Cargo.toml does not list {target}"));
        }
        let seeds = root().join("fuzz/seeds").join(&target);
        if fs::read_dir(seeds).map_or(0, Iterator::count) == 0 {
            wrong.push(format!("fuzz/seeds/{target} holds no seed"));
        }
    }
    assert_none(&wrong);
}
