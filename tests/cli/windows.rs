//! Windows from the command line: every kind on a handful of rows, worked out by hand.

use std::io::Read as _;

use super::support::{Scratch, real_data, run_line, saltmill};

/// Runs a job over a file of these lines; the output.
#[track_caller]
fn run(lines: &[&str], options: &str) -> String {
    let scratch = Scratch::new();
    let path = scratch.path("rows.csv");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let line = format!("run {path} --key k --time t --ordered --progress never {options}");
    let ran = run_line(&line);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.text().replace("1970-01-01T00:00:", "")
}

const ROWS: &[&str] = &[
    "k,t,v",
    "a,2024-03-30T22:30:00Z,1",
    "a,2024-03-30T23:30:00Z,2",
    "b,2024-03-31T00:10:00Z,4",
    "a,2024-03-31T21:59:59Z,8",
    "a,2024-03-31T22:00:00Z,16",
];

/// The rows of the output, shortened to what differs.
fn short(output: &str) -> Vec<String> {
    let mut lines = output.lines();
    lines.next().expect("a header");
    lines.map(|line| line.replace("2024-", "").replace(":00Z", "")).collect()
}

#[test]
fn hopping_windows_overlap() {
    let rows = run(ROWS, "--window hopping:2h/1h --agg sum(v)");
    assert_eq!(
        short(&rows),
        [
            "03-30T21:00,03-30T23:00,a,1",
            "03-30T22:00,03-31T00:00,a,3",
            "03-30T23:00,03-31T01:00,a,2",
            "03-30T23:00,03-31T01:00,b,4",
            "03-31T00:00,03-31T02:00,b,4",
            "03-31T20:00,03-31T22:00,a,8",
            "03-31T21:00,03-31T23:00,a,24",
            "03-31T22:00,04-01T00:00,a,16",
        ]
    );
}

/// What has no fixed size is merged into several windows, and must still be there for the next.
#[test]
fn sets_and_sketches_are_shared_by_windows() {
    let lines = ["k,t,v", "a,1,5", "a,2,5", "a,11,5", "a,12,7", "a,13,7", "a,21,9", "a,31,5"];
    let options = "--schema t:int64 --time-unit s --window hopping:30s/10s --skew off \
                   --agg count(distinct~v),mode(v),median(v),top_n(v,2)";
    let scratch = Scratch::new();
    let path = scratch.path("rows.csv");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let line = format!("run {path} --key k --time t --ordered --progress never {options}");
    let words = line.split_whitespace().map(|word| word.replace('~', " "));
    let ran = saltmill(&words.collect::<Vec<_>>());
    let rows = ran.text().replace("1970-01-01T00:00:", "").replace("1970-01-01T00:01:", "1:");
    let rows = rows.lines().skip(1).map(|row| row.split_once("a,").unwrap().1.to_owned());
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "1,5,5.0,\"[5, 5]\"",
            "2,5,5.0,\"[7, 7]\"",
            "3,5,5.0,\"[9, 7]\"",
            "3,5,7.0,\"[9, 7]\"",
            "2,5,5.0,\"[9, 5]\"",
            "1,5,5.0,[5]",
        ],
        "{ran:?}"
    );
}

#[test]
fn cumulating_windows_share_a_start() {
    let rows = run(ROWS, "--window cumulate:12h/1d --agg sum(v)");
    assert_eq!(
        short(&rows),
        [
            "03-30T00:00,03-31T00:00,a,3",
            "03-31T00:00,03-31T12:00,b,4",
            "03-31T00:00,04-01T00:00,a,24",
            "03-31T00:00,04-01T00:00,b,4",
        ]
    );
}

#[test]
fn local_days_may_have_23_hours() {
    let rows = run(ROWS, "--window tumbling:1d@Europe/Berlin --agg sum(v)");
    assert_eq!(
        short(&rows),
        [
            "03-29T23:00,03-30T23:00,a,1",
            "03-30T23:00,03-31T22:00,a,10",
            "03-30T23:00,03-31T22:00,b,4",
            "03-31T22:00,04-01T22:00,a,16",
        ]
    );
    let rows = run(ROWS, "--window tumbling:1mo@Asia/Tokyo --agg sum(v)");
    assert_eq!(
        short(&rows),
        [
            "02-29T15:00,03-31T15:00,a,3",
            "02-29T15:00,03-31T15:00,b,4",
            "03-31T15:00,04-30T15:00,a,24",
        ]
    );
}

#[test]
fn sessions_end_after_a_gap_and_late_rows_join_them_within_the_out_of_orderness() {
    let rows = run(ROWS, "--window session:61m --agg sum(v),count");
    assert_eq!(
        short(&rows),
        [
            "03-30T22:30,03-31T00:31,a,3,2",
            "03-31T00:10,03-31T01:11,b,4,1",
            "03-31T21:59:59Z,03-31T23:01,a,24,2",
        ]
    );
    let lines = ["k,t", "a,0", "a,10", "a,20", "a,15", "a,5"];
    let options = "--schema t:int64 --time-unit s --window session:6s --agg count";
    let session = |rows: &str| rows.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let joined = session(&run(&lines, &format!("{options} --out-of-orderness 15s")));
    assert_eq!(joined, ["00,26,a,5"], "the rows at 15 and 5 bridge the gaps");
    let late = session(&run(&lines, &format!("{options} --out-of-orderness 5s")));
    assert_eq!(late, ["00,06,a,1", "10,26,a,3"], "the row at 5 is late, that at 15 is not");
}

#[test]
fn corrections_are_numbered_per_key() {
    let lines = ["k,t", "a,1", "b,12", "a,2", "b,3", "b,21", "a,4", "c,27", "a,5"];
    let options = "--schema t:int64 --time-unit s --window tumbling:10s --agg count";
    let scratch = Scratch::new();
    let stats = scratch.path("stats.json");
    let rows = run(&lines, &format!("{options} --allowed-lateness 15s --stats {stats}"));
    assert_eq!(
        rows.lines().collect::<Vec<_>>(),
        [
            "window_start,window_end,k,count,revision",
            "00,10,a,1,0",
            "00,10,a,2,1",
            "00,10,a,3,2",
            "00,10,b,1,1",
            "10,20,b,1,0",
            "20,30,b,1,0",
            "20,30,c,1,0",
        ]
    );
    let stats = std::fs::read_to_string(stats).unwrap();
    assert!(stats.contains("\"rows_late\": 1"), "{stats}");
    assert!(stats.contains("\"out_of_order\": 1"), "{stats}");
}

#[test]
fn rows_in_gaps_are_rejected_by_their_own_reason() {
    let scratch = Scratch::new();
    let (stats, rejected) = (scratch.path("stats.json"), scratch.path("rejected.csv"));
    let lines = ["k,t", "a,1", "a,7", "a,12", "a,19"];
    let options = "--schema t:int64 --time-unit s --window hopping:5s/10s --agg count";
    let rows = run(&lines, &format!("{options} --stats {stats} --rejected {rejected}"));
    assert_eq!(rows.lines().skip(1).collect::<Vec<_>>(), ["00,05,a,1", "10,15,a,1"]);
    let stats = std::fs::read_to_string(stats).unwrap();
    assert!(stats.contains("\"between_windows\": 2"), "{stats}");
    let rejected = std::fs::read_to_string(rejected).unwrap();
    assert_eq!(rejected.matches("between_windows").count(), 2, "{rejected}");
}

#[test]
fn too_many_open_windows_are_an_error_that_says_what_to_do() {
    let scratch = Scratch::new();
    let path = scratch.path("rows.csv");
    let rows = (0..200).map(|t| format!("a,{}\n", t * 10)).collect::<String>();
    std::fs::write(&path, format!("k,t\n{rows}")).unwrap();
    let line = format!(
        "run {path} --key k --time t --time-unit s --schema t:int64 --window tumbling:10s \
         --out-of-orderness 1d --skew off"
    );
    run_line(&format!("{line} --open-windows 100"))
        .refused(1, &["more than 100 windows are open", "--open-windows"]);
    assert_eq!(run_line(&line).code, Some(0));
}

/// Lines of a csv file without quotes, the header first.
fn unpacked(path: &str) -> Vec<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    assert!(!text.contains('"'), "fields are told apart by commas alone");
    text.lines().map(str::to_owned).collect()
}

/// What tells flights apart, in the lines of a csv file, sorted.
fn flights(lines: &[String]) -> Vec<String> {
    let names = ["month", "day", "sched_dep_time", "carrier", "flight", "origin", "dest"];
    let header = lines[0].split(',').collect::<Vec<_>>();
    let at = names.map(|name| header.iter().position(|column| *column == name).unwrap());
    let of = |line: &String| {
        let fields = line.split(',').collect::<Vec<_>>();
        at.map(|column| fields[column]).join(",")
    };
    let mut flights = lines[1..].iter().map(of).collect::<Vec<_>>();
    flights.sort_unstable();
    flights
}

/// Flights stand in the file by month as texts sort, and by day within: most are late, and the late file
/// holds exactly these, as a count apart from the engine finds them. In order of time none is late.
#[test]
fn real_flights_are_late_in_file_order_and_in_time_when_sorted() {
    let Some(path) = real_data("nycflights13/flights.csv.gz") else { return };
    let scratch = Scratch::new();
    let (late, stats) = (scratch.path("late.csv"), scratch.path("stats.json"));
    let job = |input: &str, more: &str| {
        format!(
            "run {input} --null NA --key carrier --time time_hour --window tumbling:1h --agg count \
             --progress never --output {} --late {late} --stats {stats} {more}",
            scratch.path("out.csv")
        )
    };
    let mut lines = unpacked(&path);
    let header = lines[0].split(',').collect::<Vec<_>>();
    let time = header.iter().position(|column| *column == "time_hour").unwrap();
    let time_of = |line: &String| line.split(',').nth(time).unwrap().to_owned();
    // Times are whole hours, written so that they sort as texts: a flight is late once any later hour came.
    let mut latest = String::new();
    let mut expected = vec![lines[0].clone()];
    for line in &lines[1..] {
        let time = time_of(line);
        assert!(time.ends_with(":00:00Z"), "{time}");
        if time < latest {
            expected.push(line.clone());
        } else {
            latest = time;
        }
    }

    assert_eq!(run_line(&job(&path, "--out-of-orderness 0s")).code, Some(0));
    let counts = scratch.stats("stats.json");
    let number = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(number("rows_in"), 336_776);
    assert_eq!(number("rows_aggregated") + number("rows_late"), 336_776);
    // As many as DuckDB counts, see `tests/data/duckdb_check.py`.
    assert_eq!((number("rows_late"), expected.len()), (298_563, 298_563 + 1));
    let kept = scratch.read("late.csv").lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(flights(&kept) == flights(&expected), "the late file holds other flights");

    lines[1..].sort_by_cached_key(time_of);
    let sorted = scratch.file("sorted.csv", lines.join("\n") + "\n");
    assert_eq!(run_line(&job(&sorted, "--out-of-orderness 24h")).code, Some(0));
    let counts = scratch.stats("stats.json");
    assert_eq!((&counts["rows_late"], &counts["rows_aggregated"]), (&0.into(), &336_776.into()));
}
