use arrow::array::{ArrayRef, Int64Array, StringArray};

use super::*;

fn failure(path: &Path) -> String {
    let error = read(&[path], &ReadOptions::default()).map(|(batch, _)| shown(&batch)).unwrap_err();
    assert!(!error.contains('\n') && error.starts_with(&path.display().to_string()), "{error}");
    error[path.display().to_string().len()..].to_owned()
}

#[test]
fn text_that_is_no_table() {
    let folder = Folder::new("no-table");
    for (name, content, expected) in [
        ("empty.csv", &b""[..], ": is empty: no header; "),
        ("blank.csv", b"\n\r\n\n", ": is empty: no header; "),
        ("bom.csv", b"\xef\xbb\xbf", ": is empty: no header; "),
        ("header.csv", b"a,\xff\n1,2\n", ", line 1: the header is not UTF-8"),
        (
            "open.csv",
            b"a,b\n1,2\n3,\"x\n4,5\n",
            ", line 3: a quote is opened here and never closed",
        ),
        ("not.csv.gz", b"a,b\n1,2\n3,4\n5,6\n7,8\n", ": is damaged: "),
    ] {
        let error = failure(&folder.write(name, content));
        assert!(error.starts_with(expected), "{name}: {error}");
    }
    for name in ["missing.csv", "missing.parquet"] {
        assert_eq!(failure(&folder.0.join(name)), ": there is no such file");
    }
    let sub = folder.0.join("folder.csv");
    fs::create_dir(&sub).unwrap();
    assert_eq!(failure(&sub), ": is a directory; name the files in it instead");
}

#[test]
fn a_header_alone_is_a_table_without_rows() {
    let folder = Folder::new("header-only");
    for content in ["a,b", "a,b\n", "\u{feff}a,b\r\n\r\n"] {
        let (batch, _) = read(&[&folder.write("a.csv", content)], &ReadOptions::default()).unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (0, 2));
        assert_eq!(batch.schema().field(0).name(), "a");
        let options = ReadOptions { time: time("a"), ..ReadOptions::default() };
        assert_eq!(read(&[&folder.write("a.csv", content)], &options).unwrap().0.num_rows(), 0);
    }
}

#[test]
fn names_that_are_not_there_or_there_twice() {
    let folder = Folder::new("names");
    let path = folder.write("a.csv", "user_id,x,x\n1,2,3\n");
    let with = |columns: &[&str]| {
        let options = ReadOptions { columns: wanted(columns), ..ReadOptions::default() };
        read(&[&path], &options).map(|(batch, _)| shown(&batch))
    };
    assert_eq!(
        with(&["user_ids"]).unwrap_err(),
        "key column \"user_ids\" is not in the input; did you mean \"user_id\"?; it has user_id, x, x"
    );
    assert!(with(&["x"]).unwrap_err().contains("more than one column called \"x\""));
    assert_eq!(with(&["user_id"]).unwrap(), [["1"]]);
    let all = read(&[&path, &path], &ReadOptions::default()).unwrap().0;
    assert_eq!(shown(&all), [["1", "2", "3"], ["1", "2", "3"]]);
    let options = ReadOptions { time: time("ts"), ..ReadOptions::default() };
    assert!(read(&[&path], &options).unwrap_err().starts_with("time column \"ts\" is not in"));
    let types = parse_types("y:int64").unwrap();
    let error = read(&[&path], &ReadOptions { types, ..ReadOptions::default() }).unwrap_err();
    assert!(error.starts_with("--schema column \"y\""), "{error}");
}

#[test]
fn jobs_without_sense_are_refused_before_anything_is_read() {
    let open = |specs: &[InputSpec]| open(specs, &ReadOptions::default()).unwrap_err();
    assert!(matches!(open(&[]), IoError::Config(_)));
    let stdin = || InputSpec::with_format("-", Format::Csv);
    assert!(matches!(open(&[stdin(), stdin()]), IoError::Config(_)));
    let error = open(&[InputSpec::new("missing.csv"), InputSpec::new("a.xlsx")]);
    assert!(matches!(error, IoError::Config(_)), "{error}");
    assert!(error.to_string().contains("--format"));
}

#[test]
fn truncated_files_are_errors_at_every_length() {
    let folder = Folder::new("truncated");
    let text: String = (0..2_000).map(|i| format!("{i},text number {i}\n")).collect();
    let text = format!("a,b\n{text}");
    let whole = read(&[&folder.write("a.csv", &text)], &ReadOptions::default()).unwrap().0;
    let mut contents = vec![
        ("csv.gz", gzip(text.as_bytes())),
        ("csv.zst", zstd::encode_all(text.as_bytes(), 1).unwrap()),
    ];
    for (extension, format) in [("parquet", OutputFormat::Parquet), ("arrow", OutputFormat::Arrow)]
    {
        let path = folder.0.join(format!("whole.{extension}"));
        let mut writer = open_writer(Some(&path), format, &whole.schema()).unwrap();
        writer.write(&whole).unwrap();
        writer.finish().unwrap();
        contents.push((extension, fs::read(&path).unwrap()));
    }
    for (extension, content) in contents {
        let name = format!("cut.{extension}");
        let (batch, _) = read(&[&folder.write(&name, &content)], &ReadOptions::default()).unwrap();
        assert_eq!(batch, whole, "{extension}");
        let cuts = [0, 1, 5, 9, content.len() / 2, content.len() - 9, content.len() - 1];
        for cut in cuts {
            let error = failure(&folder.write(&name, &content[..cut]));
            let says = ["truncated", "is empty", "damaged"].iter().any(|w| error.contains(w));
            assert!(says, "{extension} {cut}: {error}");
        }
    }
}

/// Damage must never lead to a panic or to silence about lost rows.
#[test]
fn damaged_files_are_errors_or_other_values() {
    let folder = Folder::new("damaged");
    let columns: [(&str, ArrayRef); 2] = [
        ("a", Arc::new(Int64Array::from_iter_values(0..500))),
        ("b", Arc::new(StringArray::from_iter_values((0..500).map(|i| format!("text {i}"))))),
    ];
    let whole = RecordBatch::try_from_iter(columns).unwrap();
    for (extension, format) in [("parquet", OutputFormat::Parquet), ("arrow", OutputFormat::Arrow)]
    {
        let path = folder.0.join(format!("a.{extension}"));
        let mut writer = open_writer(Some(&path), format, &whole.schema()).unwrap();
        writer.write(&whole).unwrap();
        writer.finish().unwrap();
        let content = fs::read(&path).unwrap();
        for at in (0..content.len()).step_by(content.len() / 150) {
            let mut damaged = content.clone();
            damaged[at] ^= 0x55;
            let path = folder.write(&format!("b.{extension}"), &damaged);
            if let Ok((batch, _)) = read(&[&path], &ReadOptions::default()) {
                assert!(batch.num_columns() <= 2, "{extension} {at}");
            }
        }
    }
}

#[test]
fn a_field_of_a_million_characters_and_bytes_that_are_no_text() {
    let folder = Folder::new("long");
    let long = "y".repeat(1_000_000);
    let text = format!("k,v\n{long},1\n\"{long}\n\",2\n");
    let options = ReadOptions { chunk_bytes: 1 << 10, ..ReadOptions::default() };
    let (batch, _) = read(&[&folder.write("a.csv", text)], &options).unwrap();
    let rows = shown(&batch);
    assert_eq!((rows[0][0].len(), rows[1][0].len()), (1_000_000, 1_000_001));
    let path = folder.write("b.csv", b"k,v\na\xff,1\nb,2\n");
    let (batch, inputs) = read(&[&path], &ReadOptions::default()).unwrap();
    assert_eq!(shown(&batch), [["b", "2"]]);
    assert_eq!(rejected(&inputs), [("bad_utf8".to_owned(), 1)]);
    let types = parse_types("k:binary").unwrap();
    let (batch, _) = read(&[&path], &ReadOptions { types, ..ReadOptions::default() }).unwrap();
    assert_eq!(shown(&batch)[0][0], "61ff");
}

#[test]
fn empty_ndjson_has_no_columns_unless_they_are_given() {
    let folder = Folder::new("empty-ndjson");
    let path = folder.write("a.ndjson", "");
    let options = ReadOptions { columns: wanted(&["k"]), ..ReadOptions::default() };
    let error = read(&[&path], &options).unwrap_err();
    assert!(error.ends_with("the input has no columns"), "{error}");
    let types = parse_types("k:int64").unwrap();
    let (batch, _) = read(&[&path], &ReadOptions { types, ..options }).unwrap();
    assert_eq!((batch.num_rows(), types_of(&batch)), (0, vec!["Int64".to_owned()]));
}

fn types_of(batch: &RecordBatch) -> Vec<String> {
    types(batch)
}
