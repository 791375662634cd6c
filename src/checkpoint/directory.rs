//! A directory of checkpoints: one user at a time, complete ones only, the newest found.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::manifest::{FORMAT, Manifest, RowTotals, Section};
use super::state_file::{self, OpenState, SectionImage};
use crate::error::CheckpointError;

const MANIFEST: &str = "manifest.json";
const LOCK: &str = "lock";
const PREFIX: &str = "checkpoint-";

/// A directory of checkpoints, held for this process.
#[derive(Debug)]
pub struct CheckpointDir {
    path: PathBuf,
    /// Holds the lock while it lives.
    _lock: File,
}

/// A complete checkpoint whose manifest was read.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    /// What it says of itself.
    pub manifest: Manifest,
}

/// The state of a checkpoint, proven and mapped.
#[derive(Debug)]
pub(crate) struct OpenCheckpoint {
    path: PathBuf,
    files: Vec<(String, Vec<Section>, OpenState)>,
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> CheckpointError {
    let what = what.into();
    move |source| CheckpointError::System { what, source }
}

fn flush_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl CheckpointDir {
    /// Takes a directory, which is made if it does not exist, for this process.
    ///
    /// # Errors
    /// If another process has it, or it cannot be made.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, CheckpointError> {
        let path = path.into();
        let shown = path.display().to_string();
        if path.exists() && !path.is_dir() {
            return Err(CheckpointError::NoDirectory { path: shown });
        }
        fs::create_dir_all(&path).map_err(failed(format!("{shown}: cannot be made")))?;
        let lock = File::options().create(true).append(true).open(path.join(LOCK));
        let lock = lock.map_err(failed(format!("{shown}: cannot be written")))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CheckpointError::InUse { path: shown }),
            Err(TryLockError::Error(e)) => {
                return Err(failed(format!("{shown}: cannot be locked"))(e));
            }
        }
        let dir = Self { path, _lock: lock };
        dir.remove_leftovers();
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest complete checkpoint; none if there is none.
    ///
    /// # Errors
    /// If its manifest is damaged or of another version.
    pub fn newest(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        numbers(&self.path)?.last().map(|id| Checkpoint::open(folder(&self.path, *id))).transpose()
    }

    /// The number for the next checkpoint.
    pub(crate) fn next_id(&self) -> Result<u64, CheckpointError> {
        Ok(numbers(&self.path)?.last().map_or(1, |id| id + 1))
    }

    /// The folder of a checkpoint of this directory.
    pub(crate) fn folder(&self, id: u64) -> PathBuf {
        folder(&self.path, id)
    }

    /// Writes a checkpoint, one file for each element of `shards`, and says how many bytes its files have. It
    /// replaces nothing, and is there, complete, when this returns.
    pub(crate) fn write(
        &self,
        mut manifest: Manifest,
        schema: &SchemaRef,
        shards: Vec<Vec<SectionImage>>,
    ) -> Result<Manifest, CheckpointError> {
        let id = manifest.id;
        let hidden = self.path.join(format!(".{PREFIX}{id:012}"));
        let explain = |e| failed(format!("{}: cannot be written", hidden.display()))(e);
        let written = (|| {
            fs::create_dir(&hidden)?;
            for (shard, sections) in shards.into_iter().enumerate() {
                let name = format!("shard-{shard}.arrow");
                manifest.files.push(state_file::write(&hidden, name, schema, sections)?);
            }
            let mut file = File::create_new(hidden.join(MANIFEST))?;
            file.write_all(manifest.to_text().as_bytes())?;
            file.sync_all()?;
            flush_folder(&hidden)?;
            fs::rename(&hidden, folder(&self.path, id))?;
            flush_folder(&self.path)
        })();
        if written.is_err() {
            // What is left of it is in the way, and of no use.
            let _ = fs::remove_dir_all(&hidden);
        }
        written.map_err(explain)?;
        Ok(manifest)
    }

    /// Notes that the run has ended and its outputs are complete, so that there is nothing to go on with: the last
    /// checkpoint is followed by one without state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&self, rows: RowTotals) -> Result<(), CheckpointError> {
        let id = self.next_id()?;
        let mut manifest = match self.newest()? {
            Some(newest) => newest.manifest,
            None => Manifest {
                format: FORMAT,
                saltmill: env!("CARGO_PKG_VERSION").to_owned(),
                ..Manifest::default()
            },
        };
        manifest.finished = true;
        manifest.id = id;
        manifest.rows = rows;
        manifest.hot_keys = Vec::new();
        manifest.files = Vec::new();
        let none = SchemaRef::new(arrow::datatypes::Schema::empty());
        self.write(manifest, &none, Vec::new())?;
        self.prune(1)
    }

    /// Removes all checkpoints but the newest `keep`.
    pub(crate) fn prune(&self, keep: usize) -> Result<(), CheckpointError> {
        let ids = numbers(&self.path)?;
        for id in &ids[..ids.len().saturating_sub(keep.max(1))] {
            let old = folder(&self.path, *id);
            let hidden = self.path.join(format!(".{PREFIX}{id:012}"));
            // Never half there under its own name.
            fs::rename(&old, &hidden)
                .and_then(|()| fs::remove_dir_all(&hidden))
                .map_err(failed(format!("{}: cannot be removed", old.display())))?;
        }
        Ok(())
    }

    /// What a process that was killed left behind.
    fn remove_leftovers(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(&format!(".{PREFIX}")) {
                // In nobody's way if it stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn folder(path: &Path, id: u64) -> PathBuf {
    path.join(format!("{PREFIX}{id:012}"))
}

/// Numbers of the complete checkpoints, ascending.
fn numbers(path: &Path) -> Result<Vec<u64>, CheckpointError> {
    let entries =
        fs::read_dir(path).map_err(failed(format!("{}: cannot be read", path.display())))?;
    let mut ids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok())
        .collect::<Vec<u64>>();
    ids.sort_unstable();
    Ok(ids)
}

impl Checkpoint {
    /// Reads the manifest of the checkpoint in the folder `path`.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of another version.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, CheckpointError> {
        let path = path.into();
        let name = path.join(MANIFEST);
        let bytes = fs::read(&name).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                CheckpointError::NoCheckpoint { path: path.display().to_string() }
            }
            _ => failed(format!("{}: cannot be read", name.display()))(e),
        })?;
        let manifest = Manifest::parse(&bytes)
            .map_err(|why| CheckpointError::Damaged { file: name.display().to_string(), why })?;
        Ok(Self { path, manifest })
    }

    /// The checkpoint in the folder `path`, or the newest one in the directory `path`.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn find(path: impl Into<PathBuf>) -> Result<Self, CheckpointError> {
        let path = path.into();
        if path.join(MANIFEST).exists() {
            return Self::open(path);
        }
        if !path.is_dir() {
            return Err(CheckpointError::NoCheckpoint { path: path.display().to_string() });
        }
        match numbers(&path)?.last() {
            Some(id) => Self::open(folder(&path, *id)),
            None => Err(CheckpointError::NoCheckpoint { path: path.display().to_string() }),
        }
    }

    /// All complete checkpoints in a directory, the oldest first, each with its folder; those that cannot be read
    /// with the reason.
    ///
    /// # Errors
    /// If the directory cannot be read.
    #[expect(clippy::type_complexity, reason = "a list of results")]
    pub fn list(
        path: impl AsRef<Path>,
    ) -> Result<Vec<(PathBuf, Result<Self, CheckpointError>)>, CheckpointError> {
        let path = path.as_ref();
        let ids = numbers(path)?;
        Ok(ids.into_iter().map(|id| (folder(path, id), Self::open(folder(path, id)))).collect())
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks every byte.
    ///
    /// # Errors
    /// Names the first file that is not what was written.
    pub fn verify(&self) -> Result<(), CheckpointError> {
        let open = self.open_state()?;
        for (_, index) in
            open.sections().map(|(section, index)| (section.rows, index)).collect::<Vec<_>>()
        {
            open.image(index)?;
        }
        Ok(())
    }

    /// Maps and checks the files of state.
    pub(crate) fn open_state(&self) -> Result<OpenCheckpoint, CheckpointError> {
        let mut files = Vec::with_capacity(self.manifest.files.len());
        for file in &self.manifest.files {
            let state =
                OpenState::open(&self.path, file).map_err(|why| CheckpointError::Damaged {
                    file: self.path.join(&file.name).display().to_string(),
                    why,
                })?;
            files.push((file.name.clone(), file.sections.clone(), state));
        }
        Ok(OpenCheckpoint { path: self.path.clone(), files })
    }
}

impl OpenCheckpoint {
    /// All sections, and where they are.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&Section, (usize, usize))> {
        self.files.iter().enumerate().flat_map(|(file, (_, sections, _))| {
            sections.iter().enumerate().map(move |(index, section)| (section, (file, index)))
        })
    }

    /// The columns of the state; none if there is no file.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.files.first().map(|(_, _, state)| state.schema())
    }

    /// The rows of a section.
    pub(crate) fn image(
        &self,
        (file, index): (usize, usize),
    ) -> Result<RecordBatch, CheckpointError> {
        let (_, sections, state) = &self.files[file];
        let image = state.section(index).map_err(|why| self.damaged(file, &why))?;
        if image.num_rows() as u64 != sections[index].rows {
            return Err(
                self.damaged(file, "a section has another number of keys than the manifest says")
            );
        }
        Ok(image)
    }

    /// The error that says that a file is not what it should be.
    pub(crate) fn damaged(&self, file: usize, why: &str) -> CheckpointError {
        let file = self.path.join(&self.files[file].0).display().to_string();
        CheckpointError::Damaged { file, why: why.to_owned() }
    }
}
