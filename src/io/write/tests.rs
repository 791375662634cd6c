use std::io::{self, Write};
use std::sync::Mutex;

use arrow::array::{
    Decimal128Array, DictionaryArray, Float64Array, Int64Array, StringViewArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::Int32Type;

use super::*;
use crate::io::target::Output;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Shared {}

struct ClosedPipe;

impl Output for ClosedPipe {}

impl Write for ClosedPipe {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn sample() -> RecordBatch {
    let dictionary: DictionaryArray<Int32Type> =
        vec![Some("x"), None, Some("y \"q\"")].into_iter().collect();
    let decimal = Decimal128Array::from(vec![Some(1230), Some(-5), None])
        .with_precision_and_scale(20, 2)
        .unwrap();
    let times = TimestampMillisecondArray::from(vec![0, 1500, -1]);
    let columns: [(&str, ArrayRef); 6] = [
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(300)]))),
        ("f", Arc::new(Float64Array::from(vec![0.1, f64::NAN, 1e300]))),
        ("d", Arc::new(decimal)),
        ("k", Arc::new(dictionary)),
        ("v", Arc::new(StringViewArray::from(vec!["a,b", "c\nd", ""]))),
        ("t", Arc::new(times.with_timezone("Europe/Paris"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
}

fn written(format: OutputFormat, batches: &[RecordBatch], schema: &SchemaRef) -> String {
    let out = Shared::default();
    let target = Target::new("x".into(), Box::new(out.clone()), false);
    let mut writer = writer_to(target, format, schema).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    let bytes = out.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn csv_of_all_kinds() {
    let batch = sample();
    assert_eq!(
        written(OutputFormat::Csv, std::slice::from_ref(&batch), &batch.schema()),
        "n,f,d,k,v,t\n\
         1,0.1,12.30,x,\"a,b\",1970-01-01T01:00:00+01:00\n\
         ,NaN,-0.05,,\"c\nd\",1970-01-01T01:00:01.500+01:00\n\
         300,1e300,,\"y \"\"q\"\"\",\"\",1970-01-01T00:59:59.999+01:00\n"
            .replace(",\"\",1970", ",,1970")
    );
    assert_eq!(written(OutputFormat::Tsv, &[], &batch.schema()), "n\tf\td\tk\tv\tt\n");
}

#[test]
fn ndjson_of_all_kinds() {
    let batch = sample();
    let text = written(OutputFormat::Ndjson, std::slice::from_ref(&batch), &batch.schema());
    let lines: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1]["n"].is_null() && lines[1]["f"].is_null());
    assert_eq!(lines[0]["k"], "x");
    assert_eq!(lines[1]["v"], "c\nd");
    assert_eq!(lines[1]["t"], "1970-01-01T01:00:01.500+01:00");
    assert!(text.contains("12.30"));
}

#[test]
fn tables_line_up() {
    let batch = sample();
    let projected = batch.project(&[0, 3, 4]).unwrap();
    let schema = projected.schema();
    let expected = "   n  k      v\n----  -----  ----\n   1  x      a,b\nnull  null   c\\nd\n";
    let text = written(OutputFormat::Table, &[projected.clone(), projected], &schema);
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(text.lines().count(), 2 + 6);
    assert!(written(OutputFormat::Table, &[], &schema).starts_with("n  k  v\n"));
}

#[test]
fn a_closed_pipe_and_a_full_disk_are_told_apart() {
    let batch = sample().project(&[0, 1, 2, 3, 4]).unwrap();
    for format in [
        OutputFormat::Table,
        OutputFormat::Csv,
        OutputFormat::Tsv,
        OutputFormat::Ndjson,
        OutputFormat::Parquet,
        OutputFormat::Arrow,
    ] {
        let run = |mut writer: Box<dyn BatchWriter>| {
            writer.write(&batch)?;
            writer.finish()
        };
        let pipe = Target::new("standard output".into(), Box::new(ClosedPipe), true);
        let closed = writer_to(pipe, format, &batch.schema()).and_then(run);
        assert!(matches!(closed, Err(SinkError::Closed)), "{format:?}: {closed:?}");
        let full = open_writer(Some(Path::new("/dev/full")), format, &batch.schema()).and_then(run);
        let text = full.unwrap_err().to_string();
        assert!(text.starts_with("/dev/full: cannot be written: "), "{format:?}: {text}");
    }
    assert!(
        open_writer(Some(Path::new("/nowhere/x.csv")), OutputFormat::Csv, &batch.schema()).is_err()
    );
}
