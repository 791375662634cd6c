use std::io::Read;
use std::sync::mpsc;

use arrow::datatypes::{DataType, TimeUnit};
use proptest::prelude::*;

use super::*;

#[test]
fn csv_types_are_found_and_nulls_kept() {
    let folder = Folder::new("types");
    let text = "i,f,s,b,d,t,code,big,none,na\n\
                1,1.5,x,true,2024-02-29,2024-01-01 10:00:00,007,9223372036854775808,,1\n\
                -2,NaN,\"a\"\"b\nc\",FALSE,,2024-01-01T11:00:00.5,010,1,,NA\n\
                ,-inf,,,2024-03-01,,,,\"\",3\n";
    let path = folder.write("a.csv", text);
    let options = ReadOptions { null_text: Some("NA".into()), ..ReadOptions::default() };
    let (batch, inputs) = read(&[&path], &options).unwrap();
    assert_eq!(
        types(&batch),
        [
            "Int64",
            "Float64",
            "Utf8",
            "Boolean",
            "Date32",
            "Timestamp(\u{b5}s)",
            "Utf8",
            "Decimal128(38, 0)",
            "Utf8",
            "Int64"
        ]
    );
    let rows = shown(&batch);
    assert_eq!(rows[0][..7], ["1", "1.5", "x", "true", "2024-02-29", "2024-01-01T10:00:00", "007"]);
    assert_eq!(rows[1][..4], ["-2", "NaN", "a\"b\nc", "false"]);
    assert_eq!(rows[1][9], "-");
    assert_eq!(rows[2], ["-", "-inf", "-", "-", "2024-03-01", "-", "-", "-", "-", "3"]);
    assert_eq!(inputs.progress.done(), text.len() as u64);
    assert_eq!(inputs.progress.total(), Some(text.len() as u64));
}

#[test]
fn compressed_text_reads_like_plain_text() {
    let folder = Folder::new("compressed");
    let text = "a\tb\n1\tx\n2\ty\n";
    let two_members = [gzip(b"a\tb\n1\t"), gzip(b"x\n2\ty\n")].concat();
    let zst = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let plain = read(&[&folder.write("a.tsv", text)], &ReadOptions::default()).unwrap().0;
    for (name, content) in
        [("b.tsv.gz", two_members.clone()), ("c.tsv.zst", zst), ("d.tsv", two_members)]
    {
        let path = folder.write(name, content);
        assert_eq!(read(&[&path], &ReadOptions::default()).unwrap().0, plain, "{name}");
    }
}

#[test]
fn only_wanted_columns_are_made() {
    let folder = Folder::new("wanted");
    let path = folder.write("a.csv", b"a,b,c\n1,\xff\xfe,3\n4,x,6\n");
    let options = ReadOptions { columns: wanted(&["c", "a"]), ..ReadOptions::default() };
    let (batch, inputs) = read(&[&path], &options).unwrap();
    // In the order of the file; bad bytes elsewhere do not matter.
    assert_eq!(shown(&batch), [["1", "3"], ["4", "6"]]);
    assert!(rejected(&inputs).is_empty());
    let none = ReadOptions { columns: wanted(&[]), ..ReadOptions::default() };
    let specs = [InputSpec::new(&path)];
    let inputs = open(&specs, &none).unwrap();
    let rows: usize =
        drain(inputs.sources[0].as_ref(), None).unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!((rows, inputs.schema.fields().len()), (2, 0));
}

#[test]
fn rows_that_cannot_be_used_are_counted_and_kept() {
    let folder = Folder::new("rejects");
    let path = folder.write(
        "a.csv",
        b"t,k,v\n\
          2024-01-01,a,1\n\
          2024-01-02,b,x\n\
          2024-01-03,c\n\
          ,d,4\n\
          soon,e,5\n\
          2024-01-06,\xff\xfe,6\n\
          9999-01-01,g,7\n\
          2024-01-08,\"h\nh\",8\n\
          2024-01-09,i,9\n",
    );
    for batch_rows in [1, 2, 100] {
        let file = folder.0.join("rejects.csv");
        let options = ReadOptions {
            types: parse_types("t:timestamp(ns),v:int64").unwrap(),
            time: time("t"),
            rejects: Arc::new(RejectLog::create(&file).unwrap()),
            batch_rows,
            ..ReadOptions::default()
        };
        let (batch, inputs) = read(&[&path], &options).unwrap();
        let keys: Vec<String> = shown(&batch).into_iter().map(|r| r[1].clone()).collect();
        assert_eq!(keys, ["a", "h\nh", "i"]);
        let reasons =
            ["ragged_row", "bad_value", "bad_utf8", "null_time", "bad_time", "time_out_of_range"];
        assert_eq!(rejected(&inputs), reasons.map(|r| (r.to_owned(), 1)));
        options.rejects.finish().unwrap();
        let mut kept = csv::Reader::from_path(&file).unwrap();
        let kept: Vec<csv::ByteRecord> = kept.byte_records().map(Result::unwrap).collect();
        let field =
            |i: usize| kept.iter().map(move |r| String::from_utf8_lossy(&r[i]).into_owned());
        assert_eq!(field(1).collect::<Vec<_>>(), ["3", "4", "5", "6", "7", "8"]);
        assert_eq!(field(2).collect::<Vec<_>>(), ["v", "", "t", "t", "k", "t"]);
        assert_eq!(&kept[4][5], b"2024-01-06,\xff\xfe,6");
        assert_eq!(&kept[0][4], b"\"x\" is no Int64; --schema \"v:utf8\" would take it");
        assert_eq!(options.rejects.examples().len(), 5);
    }
}

#[test]
fn a_type_that_changes_late_in_a_file_is_seen() {
    let folder = Folder::new("late-type");
    let mut text = "id,price\n".to_owned();
    for i in 0..700_000 {
        text.push_str(&format!("{i},7\n"));
    }
    text.push_str("700000,7.5\n");
    let path = folder.write("a.csv", &text);
    let (batch, inputs) = read(&[&path], &ReadOptions::default()).unwrap();
    assert_eq!(types(&batch), ["Int64", "Float64"]);
    assert_eq!((batch.num_rows(), rejected(&inputs).len()), (700_001, 0));
    // Through a pipe or compressed the end is not seen beforehand: a rejected row, with advice.
    let (batch, inputs) =
        read(&[&folder.write("b.csv.gz", gzip(text.as_bytes()))], &ReadOptions::default()).unwrap();
    assert_eq!((batch.num_rows(), rejected(&inputs)), (700_000, vec![("bad_value".into(), 1)]));
}

#[test]
fn inputs_agree_on_types_and_names() {
    let folder = Folder::new("unify");
    let a = folder.write("a.csv", "k,v,x\n1,2,3\n");
    let b = folder.write("b.csv", "v,k\n2.5,9\n");
    let c = folder.write("c.ndjson", "{\"k\":5}\n{\"v\":1e3,\"k\":6}\n");
    let options = ReadOptions { columns: wanted(&["k", "v"]), ..ReadOptions::default() };
    let (batch, _) = read(&[&a, &b, &c], &options).unwrap();
    assert_eq!(types(&batch), ["Int64", "Float64"]);
    let expected = [["1", "2.0"], ["9", "2.5"], ["5", "-"], ["6", "1000.0"]];
    assert_eq!(shown(&batch), expected);
    let error = read(&[&a, &b], &ReadOptions::default()).unwrap_err();
    assert!(error.contains("b.csv has no column \"x\", but"), "{error}");
}

#[test]
fn ndjson_kinds_of_values() {
    let folder = Folder::new("ndjson");
    let text = "\u{feff}{\"id\":\"5\",\"n\":1,\"t\":\"2024-01-01T00:00:00Z\",\"o\":{\"a\":[1, 2]},\"b\":true}\n\
                \n{\"n\":2.5,\"id\":\"x\\ty\",\"t\":null}\nnot json\n{\"n\":\"many\"}\n{\"n\":1e400}\n";
    let path = folder.write("a.jsonl", text);
    let options = ReadOptions {
        types: parse_types("n:float64,late:int64").unwrap(),
        ..ReadOptions::default()
    };
    let (batch, inputs) = read(&[&path], &options).unwrap();
    let zoned = "Timestamp(\u{b5}s, \"+00:00\")";
    assert_eq!(types(&batch), ["Utf8", "Float64", zoned, "Utf8", "Boolean", "Int64"]);
    let rows = shown(&batch);
    assert_eq!(rows[0], ["5", "1.0", "2024-01-01T00:00:00Z", "{\"a\":[1, 2]}", "true", "-"]);
    assert_eq!(rows[1], ["x\ty", "2.5", "-", "-", "-", "-"]);
    assert_eq!(rows[2][1], "inf");
    assert_eq!(rejected(&inputs), [("bad_value".to_owned(), 1), ("bad_json".to_owned(), 1)]);
}

#[test]
fn times_of_all_kinds() {
    let folder = Folder::new("times");
    let path = folder.write("a.csv", "s,d,f\n10,2024-01-01,01.02.2024 10:30\n-5,2024-01-02,x\n");
    let read_time = |column: TimeColumn| {
        let options = ReadOptions { time: Some(column), ..ReadOptions::default() };
        let (batch, _) = read(&[&path], &options).unwrap();
        (types(&batch), shown(&batch))
    };
    let column = |name: &str| time(name).unwrap();
    let (found, rows) = read_time(TimeColumn { unit: Some(TimeUnit::Second), ..column("s") });
    assert_eq!((found[0].as_str(), rows[1][0].as_str()), ("Timestamp(s)", "1969-12-31T23:59:55"));
    assert_eq!(read_time(column("s")).0[0], "Timestamp(ms)");
    assert_eq!(read_time(column("d")).0[1], "Date32");
    let format = Some("%d.%m.%Y %H:%M".to_owned());
    let (found, rows) = read_time(TimeColumn { format, ..column("f") });
    assert_eq!((found[2].as_str(), rows.len()), ("Timestamp(\u{b5}s)", 1));
    assert_eq!(rows[0][2], "2024-02-01T10:30:00");
    let options = ReadOptions { time: time("f"), ..ReadOptions::default() };
    let error = read(&[&path], &options).unwrap_err();
    assert!(error.starts_with("event time cannot use column \"f\" of type Utf8"), "{error}");
}

/// A pipe: gives what was sent, waits for more, ends when the sender is gone.
struct Pipe(mpsc::Receiver<&'static [u8]>);

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let Ok(bytes) = self.0.recv() else { return Ok(0) };
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

#[test]
fn rows_of_a_pipe_come_while_it_is_open() {
    use crate::io::text::sample::{self, Dialect, Opening};
    let (sender, receiver) = mpsc::channel();
    sender.send(&b"k,v\n"[..]).unwrap();
    sender.send(b"a,1\nb").unwrap();
    let opening = Opening {
        name: "standard input",
        dialect: Dialect::Csv(b','),
        live: true,
        is_file: false,
        chunk_bytes: 1 << 20,
        ahead: 4,
        sample_bytes: 1 << 20,
        null_text: None,
        wanted: None,
        formatted: None,
        anywhere: None,
    };
    let input = sample::open(Box::new(Pipe(receiver)), &opening).unwrap();
    assert_eq!((input.names.len(), input.guesses[1].data_type()), (2, DataType::Int64));
    assert_eq!(input.front.back().unwrap().bytes, b"a,1\n");
    sender.send(b",2\n").unwrap();
    let Ok(feed::Polled::Item(chunk)) = input.feed.wait(None) else { panic!("no chunk") };
    assert_eq!((chunk.bytes.as_slice(), chunk.first_line), (&b"b,2\n"[..], 3));
    drop(sender);
    assert!(matches!(input.feed.wait(None), Ok(feed::Polled::End)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the pieces in which a file is read, its rows are those of the csv crate.
    #[test]
    fn any_chunk_size_gives_the_same_rows(
        rows in prop::collection::vec(prop::collection::vec("[a,\"\n\r\u{e9} ]{0,6}", 3), 1..40),
        chunk_bytes in 1_usize..200,
        batch_rows in 1_usize..20,
        crlf in any::<bool>(),
    ) {
        let terminator = if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
        let mut writer = csv::WriterBuilder::new().terminator(terminator).from_writer(Vec::new());
        writer.write_record(["x", "y\n\"y\"", "z"]).unwrap();
        for row in &rows {
            writer.write_record(row).unwrap();
        }
        let folder = Folder::new(&format!("chunks-{chunk_bytes}-{batch_rows}-{}", rows.len()));
        let path = folder.write("a.csv", writer.into_inner().unwrap());
        let types = ["x", "y\n\"y\"", "z"].map(|n| (n.to_owned(), DataType::Utf8)).to_vec();
        let options = ReadOptions { types, chunk_bytes, batch_rows, ..ReadOptions::default() };
        let (batch, inputs) = read(&[&path], &options).unwrap();
        prop_assert!(rejected(&inputs).is_empty());
        let null = |t: &String| if t.is_empty() { "-".to_owned() } else { t.clone() };
        let expected: Vec<Vec<String>> =
            rows.iter().map(|r| r.iter().map(null).collect()).collect();
        prop_assert_eq!(shown(&batch), expected);
    }
}

#[test]
fn real_data_is_read_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    if !root.is_dir() {
        println!("skipped: {} is not there", root.display());
        return;
    }
    let retail = root.join("online_retail/online_retail.csv.gz");
    let options = ReadOptions { time: time("InvoiceDate"), ..ReadOptions::default() };
    let (batch, inputs) = read(&[&retail], &options).unwrap();
    assert_eq!((batch.num_rows(), rejected(&inputs)), (541_909, vec![]));
    assert_eq!(batch.column_by_name("CustomerID").unwrap().null_count(), 135_080);
    let flights = root.join("nycflights13/flights.csv.gz");
    let options = ReadOptions { null_text: Some("NA".into()), ..ReadOptions::default() };
    let (batch, inputs) = read(&[&flights], &options).unwrap();
    assert_eq!((batch.num_rows(), rejected(&inputs)), (336_776, vec![]));
    assert_eq!(batch.column_by_name("dep_time").unwrap().null_count(), 8_255);
    let options = ReadOptions {
        columns: wanted(&["origin", "delay"]),
        time: time("date"),
        ..ReadOptions::default()
    };
    let (batch, _) = read(&[&root.join("vega_flights/flights-3m.parquet")], &options).unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (3_000_000, 3));
}
