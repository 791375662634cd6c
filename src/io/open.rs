//! Opens inputs: finds formats, samples text, agrees on one schema, makes the sources.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};

use crate::error::{ConfigError, SourceError};
use crate::io::columnar::Projection;
use crate::io::feed::error;
use crate::io::format::{Compression, Format, InputSpec, sniff};
use crate::io::ipc::{self, IpcInput, IpcStream};
use crate::io::parquet::ParquetInput;
use crate::io::progress::Progress;
use crate::io::reject::{RejectCounts, RejectLog};
use crate::io::text::csv::{CsvLayout, UNWANTED};
use crate::io::text::ndjson::JsonLayout;
use crate::io::text::sample::{self, Dialect, Opening, TextInput};
use crate::io::text::source::{Layout, TextPlan, TextSource};
use crate::io::unify::{self, Agreement};
use crate::runtime::source::Source;

/// Bytes of text kept for samples, over all inputs.
const SAMPLE_BYTES_ALL: usize = 64 << 20;
/// Chunks read ahead, over all inputs.
const AHEAD_ALL: usize = 32;

/// A column that the job needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// What for, for messages: `key`, `time`, or the aggregate's text.
    pub role: String,
}

/// The event-time column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeColumn {
    /// Its name.
    pub name: String,
    /// The unit, if it holds integers (default milliseconds).
    pub unit: Option<TimeUnit>,
    /// A strftime-like format, if it holds text that is not ISO 8601.
    pub format: Option<String>,
}

/// How to read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// Types that are not to be inferred.
    pub types: Vec<(String, DataType)>,
    /// Text that means null in csv, besides the empty field (quoted or not).
    pub null_text: Option<String>,
    /// The event-time column. It is always read, and never null in rows of text inputs.
    pub time: Option<TimeColumn>,
    /// The columns needed; `None` reads all.
    pub columns: Option<Vec<Wanted>>,
    /// Most rows of a batch.
    pub batch_rows: usize,
    /// Size of the pieces in which text is read.
    pub chunk_bytes: usize,
    /// Where rows that cannot be used go.
    pub rejects: Arc<RejectLog>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            types: Vec::new(),
            null_text: None,
            time: None,
            columns: None,
            batch_rows: 8192,
            chunk_bytes: 1 << 20,
            rejects: Arc::new(RejectLog::new()),
        }
    }
}

/// Opened inputs.
#[derive(Debug)]
pub struct Inputs {
    /// The columns of every batch, in the order of the first input.
    pub schema: SchemaRef,
    /// One source an input, in their order.
    pub sources: Vec<Arc<dyn Source>>,
    /// How far reading has come.
    pub progress: Arc<Progress>,
}

/// Why inputs could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The job as described cannot run: a column or a format is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An input cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// An input that has begun.
#[derive(Debug)]
pub(crate) enum Opened {
    Text(Box<TextInput>),
    Parquet(ParquetInput),
    Ipc(IpcInput),
    Stream(IpcStream),
}

/// Opens all inputs and agrees on their common schema. Waits for the first row of a pipe.
pub fn open(inputs: &[InputSpec], options: &ReadOptions) -> Result<Inputs, IoError> {
    if inputs.is_empty() {
        return Err(
            ConfigError::Inconsistent("no input; name a file, or - for stdin".into()).into()
        );
    }
    if inputs.iter().filter(|i| i.is_stdin()).count() > 1 {
        let text = "standard input (-) is named more than once; it can be read only once";
        return Err(ConfigError::Inconsistent(text.to_owned()).into());
    }
    if options.batch_rows == 0 || options.chunk_bytes == 0 {
        let text = "batch_rows and chunk_bytes must be at least 1";
        return Err(ConfigError::Inconsistent(text.to_owned()).into());
    }
    for input in inputs.iter().filter(|i| !i.is_stdin()) {
        input.detect()?;
    }
    let progress = Arc::new(Progress::default());
    let how = Opener { options, count: inputs.len(), progress: &progress };
    let opened: Vec<Opened> =
        inputs.iter().map(|input| how.open(input)).collect::<Result<_, _>>()?;
    let agreement = unify::agree(&opened, options)?;
    let schema = Arc::clone(&agreement.schema);
    let sources = opened
        .into_iter()
        .enumerate()
        .map(|(index, input)| source(index, input, &agreement, options, &progress))
        .collect::<Result<_, _>>()?;
    Ok(Inputs { schema, sources, progress })
}

struct Opener<'a> {
    options: &'a ReadOptions,
    count: usize,
    progress: &'a Arc<Progress>,
}

impl Opener<'_> {
    fn open(&self, input: &InputSpec) -> Result<Opened, IoError> {
        if input.is_stdin() {
            return self.open_stdin(input);
        }
        let (format, compression) = input.detect()?;
        let name = input.name();
        let (file, metadata) = open_file(&input.path, &name)?;
        let is_regular = metadata.is_file();
        let known_len = is_regular.then_some(metadata.len());
        let opened = match format {
            Format::Parquet => Opened::Parquet(ParquetInput::open(&name, file)?),
            Format::Arrow if is_regular && begins_with_magic(&file) => {
                Opened::Ipc(IpcInput::open(&name, &file)?)
            }
            Format::Arrow => {
                if metadata.len() == 0 && is_regular {
                    let message = "is empty; an Arrow file has at least a schema".to_owned();
                    return Err(error(&name, message).into());
                }
                self.progress.expect(known_len);
                let reader = Box::new(self.counted(file));
                Opened::Stream(IpcStream::open(&name, reader, (!is_regular, is_regular))?)
            }
            text => {
                self.progress.expect(known_len);
                let anywhere = match (known_len, compression) {
                    (Some(len), Compression::None) => file.try_clone().ok().map(|f| (f, len)),
                    _ => None,
                };
                let (head, reader) =
                    peek(self.counted(file)).map_err(|e| error(&name, e.to_string()))?;
                let compression = match compression {
                    Compression::None => Compression::of_content(&head),
                    given => given,
                };
                let anywhere = anywhere.filter(|_| compression == Compression::None);
                let reader = decompressed(&name, Box::new(reader), compression)?;
                self.text(&name, reader, text, (!is_regular, is_regular), anywhere)?
            }
        };
        Ok(opened)
    }

    fn open_stdin(&self, input: &InputSpec) -> Result<Opened, IoError> {
        let name = input.name();
        self.progress.expect(None);
        let stdin = self.counted(io::stdin());
        let (head, reader) = peek(stdin).map_err(|e| error(&name, e.to_string()))?;
        let compression = Compression::of_content(&head);
        let format = input.format.unwrap_or_else(|| sniff(&head));
        match format {
            Format::Parquet => {
                Ok(Opened::Parquet(ParquetInput::open(&name, spooled(&name, reader)?)?))
            }
            Format::Arrow if head.starts_with(ipc::MAGIC) => {
                Ok(Opened::Ipc(IpcInput::open(&name, &spooled(&name, reader)?)?))
            }
            Format::Arrow => Ok(Opened::Stream(IpcStream::open(
                &name,
                Box::new(reader),
                (true, stdin_is_file()),
            )?)),
            text => {
                let reader = decompressed(&name, Box::new(reader), compression)?;
                let is_file = stdin_is_file();
                self.text(&name, reader, text, (true, is_file), None)
            }
        }
    }

    fn text(
        &self,
        name: &str,
        reader: Box<dyn Read + Send>,
        format: Format,
        (live, is_file): (bool, bool),
        anywhere: Option<(File, u64)>,
    ) -> Result<Opened, IoError> {
        let dialect = match format {
            Format::Ndjson => Dialect::Ndjson,
            Format::Tsv => Dialect::Csv(b'\t'),
            _ => Dialect::Csv(b','),
        };
        let options = self.options;
        let wanted = options.columns.as_ref().map(|columns| {
            let time = options.time.iter().map(|t| t.name.clone());
            columns.iter().map(|c| c.name.clone()).chain(time).collect::<Vec<_>>()
        });
        let formatted = options.time.as_ref().filter(|t| t.format.is_some());
        let opening = Opening {
            name,
            dialect,
            live,
            is_file,
            chunk_bytes: options.chunk_bytes,
            ahead: (AHEAD_ALL / self.count).clamp(1, 8),
            sample_bytes: (SAMPLE_BYTES_ALL / self.count).clamp(256 << 10, 4 << 20),
            null_text: options.null_text.as_deref(),
            wanted: wanted.as_deref(),
            formatted: formatted.map(|t| t.name.as_str()),
            anywhere,
        };
        Ok(Opened::Text(Box::new(sample::open(reader, &opening)?)))
    }

    fn counted<R>(&self, reader: R) -> Counted<R> {
        Counted { reader, progress: Arc::clone(self.progress) }
    }
}

/// Makes the source of an opened input.
fn source(
    index: usize,
    input: Opened,
    agreement: &Agreement,
    options: &ReadOptions,
    progress: &Arc<Progress>,
) -> Result<Arc<dyn Source>, IoError> {
    let positions = &agreement.positions[index];
    let projection = || {
        let columns: Vec<usize> = positions.iter().copied().flatten().collect();
        Projection::new(&columns, Arc::clone(&agreement.schema), agreement.time)
    };
    let (rows, progress) = (options.batch_rows, Arc::clone(progress));
    Ok(match input {
        Opened::Text(input) => {
            let plan = text_plan(&input, positions, agreement, options);
            Arc::new(TextSource::new(*input, plan))
        }
        Opened::Parquet(input) => Arc::new(input.into_source(projection(), rows, &progress)),
        Opened::Ipc(input) => Arc::new(input.into_source(projection(), rows, progress)?),
        Opened::Stream(input) => Arc::new(input.into_source(projection(), rows)?),
    })
}

fn text_plan(
    input: &TextInput,
    positions: &[Option<usize>],
    agreement: &Agreement,
    options: &ReadOptions,
) -> TextPlan {
    let width = agreement.columns.len();
    let slot = |index: usize| u16::try_from(index).unwrap_or(UNWANTED);
    let layout = match input.dialect {
        Dialect::Csv(delimiter) => {
            let mut slots = vec![UNWANTED; input.names.len()];
            for (index, position) in positions.iter().enumerate() {
                if let Some(position) = position {
                    slots[*position] = slot(index);
                }
            }
            let null_text = options.null_text.as_ref().map(|t| t.as_bytes().to_vec());
            Layout::Csv(CsvLayout { delimiter, slots, width, null_text })
        }
        Dialect::Ndjson => {
            let names = agreement.columns.iter().enumerate();
            let slots = names.map(|(i, c)| (c.name.as_bytes().to_vec(), slot(i))).collect();
            Layout::Json(JsonLayout { slots, width })
        }
    };
    TextPlan {
        input: input.name.clone(),
        layout,
        columns: agreement.columns.clone(),
        schema: Arc::clone(&agreement.schema),
        time: agreement.time,
        batch_rows: options.batch_rows,
        rejects: Arc::clone(&options.rejects),
        counts: RejectCounts::default(),
    }
}

/// Counts what is read from the outside, before decompression.
struct Counted<R> {
    reader: R,
    progress: Arc<Progress>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}

fn open_file(path: &Path, name: &str) -> Result<(File, Metadata), SourceError> {
    let explain = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => error(name, "there is no such file".to_owned()),
        io::ErrorKind::PermissionDenied => {
            error(name, "cannot be read: permission denied; check its owner and mode".to_owned())
        }
        _ => error(name, format!("cannot be opened: {e}")),
    };
    let metadata = std::fs::metadata(path).map_err(explain)?;
    if metadata.is_dir() {
        let message = "is a directory; name the files in it instead".to_owned();
        return Err(error(name, message));
    }
    Ok((File::open(path).map_err(explain)?, metadata))
}

/// Whether standard input is a file, which begins anew when the program is started anew.
fn stdin_is_file() -> bool {
    use std::os::fd::AsFd;
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_file())
}

fn begins_with_magic(file: &File) -> bool {
    use std::os::unix::fs::FileExt;
    let mut head = [0; 6];
    file.read_exact_at(&mut head, 0).is_ok() && head == *ipc::MAGIC
}

type Peeked<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

/// The first few bytes, and a reader that still has them.
fn peek<R: Read>(mut reader: R) -> io::Result<(Vec<u8>, Peeked<R>)> {
    let mut head = [0; 8];
    let mut have = 0;
    while have < head.len() {
        match reader.read(&mut head[have..]) {
            Ok(0) => break,
            Ok(read) => have += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let head = head[..have].to_vec();
    Ok((head.clone(), io::Cursor::new(head).chain(reader)))
}

fn decompressed(
    name: &str,
    reader: Box<dyn Read + Send>,
    compression: Compression,
) -> Result<Box<dyn Read + Send>, SourceError> {
    Ok(match compression {
        Compression::None => reader,
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(
            io::BufReader::with_capacity(256 << 10, reader),
        )),
        Compression::Zstd => Box::new(
            zstd::Decoder::new(reader).map_err(|e| error(name, format!("cannot be read: {e}")))?,
        ),
    })
}

/// Copies a stream into a file without a name, for formats that are read from their end.
fn spooled(name: &str, mut reader: impl Read) -> Result<File, SourceError> {
    let path = std::env::temp_dir().join(format!("saltmill-stdin-{}", std::process::id()));
    let explain = |e: io::Error| {
        let message = format!(
            "cannot be copied to {}: {e}; free space there, or name a file",
            path.display()
        );
        error(name, message)
    };
    let mut options = File::options();
    let mut file = options.read(true).write(true).create_new(true).open(&path).map_err(explain)?;
    // From here on nobody else sees it, and it goes away with its last user.
    std::fs::remove_file(&path).map_err(explain)?;
    io::copy(&mut reader, &mut file).map_err(explain)?;
    Ok(file)
}
