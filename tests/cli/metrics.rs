use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use super::support::{command, run_line};

#[test]
fn metrics_can_be_scraped_while_a_stream_is_read() {
    let args = "run - --key k --time t --window tumbling:1s --metrics 127.0.0.1:0";
    let mut child = command(&args.split(' ').collect::<Vec<_>>())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"t,k\n100,1\n200,2\n5000,1\n").unwrap();
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    let address = told.trim().strip_prefix("metrics: http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let mut answer = String::new();
    // What was written last is not read at once.
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        answer.clear();
        stream.read_to_string(&mut answer).unwrap();
        if answer.contains("saltmill_rows_total 3\n") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(answer.contains("saltmill_rows_total 3\n"), "{answer}");
    assert!(answer.contains("saltmill_input_rows_total{input=\"0\"} 3.0\n"), "{answer}");
    assert!(answer.contains("saltmill_input_watermark_seconds{input=\"0\"} 5.0\n"), "{answer}");
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 4);
}

#[test]
fn addresses_that_cannot_be_had_are_refused() {
    let file = "no-such-file.csv";
    for (address, code, words) in [
        ("9184", 2, &["address for metrics \"9184\"", "127.0.0.1:9184"][..]),
        ("127.0.0.1:99999", 2, &["address for metrics"]),
        ("192.0.2.1:80", 1, &["--metrics 192.0.2.1:80", "cannot be served"]),
    ] {
        run_line(&format!("run {file} --metrics {address}")).refused(code, words);
    }
}

#[test]
fn without_a_terminal_watching_is_plain_lines() {
    let mut child = command(&["run", "-", "--key", "k", "--watch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"k\n7\n7\n8\n").unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    assert!(first.contains(" rows, ") && first.contains("busiest shard"), "{first}");
    drop(stdin);
    let last = told.map(Result::unwrap).last().unwrap();
    assert!(last.contains(" s: 3 rows, "), "{last}");
    assert!(!last.contains('\u{1b}'), "no picture: {last:?}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut lines = std::str::from_utf8(&output.stdout).unwrap().lines().collect::<Vec<_>>();
    lines.sort_unstable();
    assert_eq!(lines, ["7,2", "8,1", "k,count"]);
}
