use ::parquet::arrow::ArrowWriter;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use arrow::array::{
    ArrayRef, AsArray, Decimal128Array, DictionaryArray, Float64Array, Int32Array, Int64Array,
    StringViewArray, TimestampNanosecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

use super::*;

fn sample(rows: i64) -> RecordBatch {
    let numbers = || (0..rows).map(|i| (i % 7 != 3).then_some(i * 1_000));
    let keys: DictionaryArray<Int32Type> =
        (0..rows).map(|i| (i % 5 > 0).then_some(if i % 2 == 0 { "even" } else { "odd" })).collect();
    let views = (0..rows).map(|i| format!("a text that is long enough {i}"));
    let decimals = Decimal128Array::from_iter_values((0..rows).map(i128::from));
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let floats = Float64Array::from_iter_values((0..rows).map(|i| i as f64 / 3.0));
    let columns: [(&str, ArrayRef); 6] = [
        ("t", Arc::new(numbers().collect::<TimestampNanosecondArray>().with_timezone("UTC"))),
        ("i", Arc::new(numbers().collect::<Int64Array>())),
        ("k", Arc::new(keys)),
        ("v", Arc::new(StringViewArray::from_iter_values(views))),
        ("d", Arc::new(decimals.with_precision_and_scale(30, 3).unwrap())),
        ("f", Arc::new(floats)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
}

fn write(path: &Path, format: OutputFormat, batch: &RecordBatch) {
    let mut writer = open_writer(Some(path), format, &batch.schema()).unwrap();
    let half = batch.num_rows() / 2;
    writer.write(&batch.slice(0, half)).unwrap();
    writer.write(&batch.slice(half, batch.num_rows() - half)).unwrap();
    writer.finish().unwrap();
}

#[test]
fn every_format_gives_back_what_it_took() {
    let folder = Folder::new("round");
    let batch = sample(100);
    for (name, format) in [("a.parquet", OutputFormat::Parquet), ("a.arrow", OutputFormat::Arrow)] {
        let path = folder.0.join(name);
        write(&path, format, &batch);
        let options = ReadOptions { batch_rows: 17, time: time("t"), ..ReadOptions::default() };
        let (back, inputs) = read(&[&path], &options).unwrap();
        assert_eq!(back.schema().fields(), batch.schema().fields(), "{name}");
        assert_eq!(shown(&back), shown(&batch), "{name}");
        assert_eq!(Some(inputs.progress.done()), inputs.progress.total(), "{name}");
    }
    for (name, format) in [
        ("a.csv", OutputFormat::Csv),
        ("a.tsv", OutputFormat::Tsv),
        ("a.ndjson", OutputFormat::Ndjson),
    ] {
        let path = folder.0.join(name);
        write(&path, format, &batch);
        let types = parse_types("t:timestamp(ns,UTC),i:int64,d:decimal(30,3),v:utf8_view").unwrap();
        let (back, _) = read(&[&path], &ReadOptions { types, ..ReadOptions::default() }).unwrap();
        assert_eq!(shown(&back), shown(&batch), "{name}");
    }
}

#[test]
fn columns_are_projected_and_integers_become_times() {
    let folder = Folder::new("project");
    for (name, format) in [("a.parquet", OutputFormat::Parquet), ("a.arrow", OutputFormat::Arrow)] {
        let path = folder.0.join(name);
        write(&path, format, &sample(50));
        let integer_time =
            TimeColumn { name: "i".into(), unit: Some(TimeUnit::Second), format: None };
        let options = ReadOptions {
            columns: wanted(&["v", "k"]),
            time: Some(integer_time),
            ..ReadOptions::default()
        };
        let (batch, _) = read(&[&path], &options).unwrap();
        let names: Vec<_> = batch.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, ["i", "k", "v"]);
        assert_eq!(batch.column(0).data_type(), &DataType::Timestamp(TimeUnit::Second, None));
        assert_eq!(
            shown(&batch)[1],
            ["1970-01-01T00:16:40", "odd", "a text that is long enough 1"]
        );
        let none = ReadOptions { columns: wanted(&[]), ..ReadOptions::default() };
        let inputs = open(&[InputSpec::new(&path)], &none).unwrap();
        let batches = drain(inputs.sources[0].as_ref(), None).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 50);
    }
}

#[test]
fn the_largest_time_of_a_row_group_with_and_without_statistics() {
    let folder = Folder::new("statistics");
    let batch = sample(1_000);
    for statistics in [EnabledStatistics::None, EnabledStatistics::Chunk, EnabledStatistics::Page] {
        let path = folder.0.join("a.parquet");
        let properties = WriterProperties::builder()
            .set_statistics_enabled(statistics)
            .set_max_row_group_row_count(Some(300))
            .build();
        let file = fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        for name in ["t", "i"] {
            let options =
                ReadOptions { time: time(name), columns: wanted(&[]), ..ReadOptions::default() };
            // `drain` compares the announced times with those found.
            let (back, _) = read(&[&path], &options).unwrap();
            assert_eq!(back.num_rows(), 1_000);
        }
    }
}

#[test]
fn arrow_streams_and_compressed_arrow_files() {
    let folder = Folder::new("ipc");
    let batch = sample(64);
    let stream = folder.0.join("a.arrows");
    let mut writer =
        StreamWriter::try_new(fs::File::create(&stream).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut paths = vec![stream];
    for (name, kind) in
        [("l.feather", CompressionType::LZ4_FRAME), ("z.feather", CompressionType::ZSTD)]
    {
        let path = folder.0.join(name);
        let options = IpcWriteOptions::default().try_with_compression(Some(kind)).unwrap();
        let file = fs::File::create(&path).unwrap();
        let mut writer = FileWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        paths.push(path);
    }
    for path in &paths {
        let options = ReadOptions { batch_rows: 10, time: time("t"), ..ReadOptions::default() };
        let (back, _) = read(&[path], &options).unwrap();
        assert_eq!(shown(&back), shown(&batch), "{}", path.display());
    }
    let content = fs::read(&paths[0]).unwrap();
    let cut = folder.write("cut.arrows", &content[..content.len() / 2]);
    let error = read(&[&cut], &ReadOptions::default()).unwrap_err();
    assert!(error.contains("damaged or truncated"), "{error}");
}

#[test]
fn inputs_of_different_types_are_refused() {
    let folder = Folder::new("mismatch");
    let write_column = |name: &str, column: ArrayRef| {
        let path = folder.0.join(name);
        let schema = Schema::new(vec![Field::new("k", column.data_type().clone(), false)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
        write(&path, OutputFormat::Parquet, &batch);
        path
    };
    let a = write_column("a.parquet", Arc::new(Int64Array::from(vec![1, 2])));
    let b = write_column("b.parquet", Arc::new(Int32Array::from(vec![1, 2])));
    let error = read(&[&a, &b], &ReadOptions::default()).unwrap_err();
    assert!(error.contains("column \"k\" as Int64, but") && error.contains("as Int32"), "{error}");
    let types = parse_types("k:utf8").unwrap();
    let error = read(&[&a], &ReadOptions { types, ..ReadOptions::default() }).unwrap_err();
    assert!(error.contains("types can be given for text inputs only"), "{error}");
    // A text input beside it takes the type of the file.
    let text = folder.write("c.csv", "k\n7\nx\n");
    let (batch, inputs) = read(&[&b, &text], &ReadOptions::default()).unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int32Type>().values(), &[1, 2, 7]);
    assert_eq!(rejected(&inputs), [("bad_value".to_owned(), 1)]);
}
