use super::support::{Scratch, real_data, run_line, saltmill};

const WORKERS: [&str; 4] = ["1", "2", "3", "8"];
const BATCH_ROWS: [&str; 4] = ["1", "7", "1023", "65536"];

/// The same bytes for any number of workers and any batch size; gives them.
#[track_caller]
fn same_bytes(job: &[&str], batch_rows: &[&str]) -> Vec<u8> {
    let mut expected: Option<Vec<u8>> = None;
    for workers in WORKERS {
        for batch_rows in batch_rows {
            let how = ["--ordered", "--workers", workers, "--batch-rows", batch_rows];
            let ran = saltmill(&[job, &how].concat());
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let expected = expected.get_or_insert_with(|| ran.out.clone());
            assert!(*expected == ran.out, "{job:?} differs with {how:?}");
        }
    }
    expected.unwrap()
}

/// Rows stand in the order of their first `columns` columns, as text.
#[track_caller]
fn sorted_as_text(out: &[u8], columns: usize) {
    let text = std::str::from_utf8(out).unwrap();
    let keys = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').take(columns).map(str::to_owned).collect::<Vec<_>>());
    let keys = keys.collect::<Vec<_>>();
    assert!(keys.len() > 100, "{} rows are too few to tell", keys.len());
    assert!(keys.is_sorted());
}

#[test]
fn generated_streams() {
    let scratch = Scratch::new();
    for (name, options) in [
        ("a.parquet", "--keys 1K --dist zipf:1.2 --key-type text --out-of-orderness 5ms"),
        ("b.csv", "--keys 20K --out-of-orderness 20ms"),
        ("c.arrow", "--keys 300 --dist hot:0.9 --key-type text"),
    ] {
        let path = scratch.path(name);
        run_line(&format!("gen --rows 20K --output {path} {options}")).fine();
    }
    let path = |name| scratch.path(name);
    let agg = ["--agg", "count,sum(value),min(value),max(amount),sum(amount),avg(amount)"];
    let windowed = ["--time", "ts", "--window", "tumbling:4ms"];
    // With less patience than disorder, so that rows are late: also which ones must not differ.
    for patience in ["0s", "2ms", "5ms"] {
        let job = ["run", &path("a.parquet"), "--key", "key,city", "--out-of-orderness", patience];
        let out = same_bytes(&[&job[..], &windowed, &agg].concat(), &BATCH_ROWS);
        sorted_as_text(&out, 4);
    }
    let job = ["run", &path("b.csv"), "--key", "key"];
    same_bytes(&[&job[..], &windowed, &agg].concat(), &["1", "1023"]);
    let job = ["run", &path("c.arrow"), "--key", "key"];
    let out = same_bytes(&[&job[..], &agg].concat(), &["1", "65536"]);
    sorted_as_text(&out, 1);
}

#[test]
fn nulls_come_first_and_numbers_by_value() {
    let scratch = Scratch::new();
    let input = scratch.file("a.csv", "a,b\n10,x\n9,\n,x\n-1,x\n9,y\n,\n");
    let out = same_bytes(&["run", &input, "--key", "a,b"], &["1", "65536"]);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text, "a,b,count\n,,1\n,x,1\n-1,x,1\n9,,1\n9,y,1\n10,x,1\n");
}

#[test]
fn files_of_all_formats_are_the_same_bytes() {
    let scratch = Scratch::new();
    let input = scratch.path("in.parquet");
    run_line(&format!("gen --rows 40K --keys 30K --output {input}")).fine();
    for name in ["r.parquet", "r.arrow", "r.ndjson", "r.txt"] {
        let mut expected: Option<Vec<u8>> = None;
        for (workers, batch_rows) in [("1", "65536"), ("3", "100"), ("8", "1")] {
            let out = scratch.path(name);
            run_line(&format!(
                "run {input} --key key --time ts --window tumbling:20ms --agg sum(amount) --ordered \
                 --workers {workers} --batch-rows {batch_rows} --output {out}"
            ))
            .fine();
            let bytes = std::fs::read(out).unwrap();
            let expected = expected.get_or_insert_with(|| bytes.clone());
            assert!(*expected == bytes, "{name} differs with {workers} workers");
        }
    }
}

/// Batches of a few rows for two workers only, where that takes seconds and not minutes.
#[track_caller]
fn same_bytes_of_much(job: &[&str]) -> Vec<u8> {
    let out = same_bytes(job, &["250", "65536"]);
    let single = saltmill(&[job, &["--ordered", "--workers", "2", "--batch-rows", "7"]].concat());
    assert_eq!(single.code, Some(0), "{}", single.err);
    assert!(single.out == out, "{job:?} differs with batches of seven rows");
    out
}

#[test]
fn real_retail_data() {
    let Some(input) = real_data("online_retail/online_retail.csv.gz") else { return };
    let job = "--key CustomerID --time InvoiceDate --window tumbling:1d --agg \
               count,sum(Quantity),avg(UnitPrice),min(UnitPrice),max(UnitPrice)";
    let job = ["run", &input].into_iter().chain(job.split_whitespace()).collect::<Vec<_>>();
    let out = same_bytes_of_much(&job);
    let text = std::str::from_utf8(&out).unwrap();
    let nulls = text.lines().filter(|line| line.split(',').nth(2) == Some("")).count();
    assert!(nulls > 100, "the null customer is a key on most days: {nulls}");
}

#[test]
fn real_flights() {
    let Some(input) = real_data("nycflights13/flights.csv.gz") else { return };
    let job = "--key origin,dest --agg count,sum(dep_delay),avg(arr_delay) --time time_hour \
               --window tumbling:1h --null NA --out-of-orderness 400d";
    let job = ["run", &input].into_iter().chain(job.split_whitespace()).collect::<Vec<_>>();
    let text = String::from_utf8(same_bytes_of_much(&job)).unwrap();
    let rows = text.lines().skip(1).map(|line| line.split(',').nth(4).unwrap());
    let rows = rows.map(|count| count.parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(rows, 336_776);
}
