use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::support::{Scratch, command, saltmill};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with all its streams in our hands.
struct Live {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Live {
    fn start(args: &[&str]) -> Self {
        let mut child = command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::Builder::new()
            .spawn(move || out.lines().try_for_each(|line| sender.send(line.unwrap())))
            .unwrap();
        let input = child.stdin.take().unwrap();
        Self { child, input, lines }
    }

    fn say(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line of output in time")
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let killed = std::process::Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(killed.success());
    }

    /// Exit code, remaining lines, messages. Keeps standard input open until the end.
    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, self.lines.iter().collect(), err)
    }
}

const STREAM: [&str; 10] =
    ["run", "-", "--format", "csv", "--key", "k", "--time", "ts", "--window", "tumbling:1s"];

#[test]
fn a_window_appears_before_the_input_ends() {
    for ordered in [false, true] {
        let mut args = STREAM.to_vec();
        args.extend(ordered.then_some("--ordered"));
        let mut live = Live::start(&args);
        live.say("ts,k\n2024-01-01T00:00:00.1,a\n2024-01-01T00:00:00.9,a\n");
        live.say("2024-01-01T00:00:01.5,b\n");
        assert_eq!(live.line(), "window_start,window_end,k,count");
        let first = live.line();
        assert!(first.starts_with("2024-01-01T00:00:00") && first.ends_with(",a,2"), "{first}");
        live.say("2024-01-01T00:00:02.5,c\n");
        assert!(live.line().ends_with(",b,1"));
        let Live { child, input, lines } = live;
        drop(input);
        assert!(lines.recv_timeout(PATIENCE).unwrap().ends_with(",c,1"));
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    }
}

#[test]
fn a_table_that_is_held_back_is_shown_when_it_is_quiet() {
    let mut args = STREAM.to_vec();
    args.extend(["--output-format", "table"]);
    let mut live = Live::start(&args);
    live.say("ts,k\n2024-01-01T00:00:00,a\n2024-01-01T00:00:01,b\n");
    assert!(live.line().starts_with("window_start"));
    assert!(live.line().starts_with("---"));
    assert!(live.line().ends_with('1'));
    live.signal("-KILL");
    live.end();
}

#[test]
fn ctrl_c_keeps_what_was_read() {
    let mut live = Live::start(&STREAM);
    live.say("ts,k\n2024-01-01T00:00:00,a\n2024-01-01T00:00:01,b\n2024-01-01T00:00:01,b\n");
    live.line();
    live.line();
    live.signal("-INT");
    let (code, lines, err) = live.end();
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].ends_with(",b,2"), "{lines:?}");
    assert!(err.contains("interrupted: results cover the 3 rows read so far"), "{err}");
    assert!(err.contains("partial"), "{err}");
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    // Nobody reads its output, so it hangs in a write and cannot end in good order.
    let interrupted = || {
        let args = ["gen", "--rows", "1G"];
        let mut child =
            command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 10]).unwrap();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(300));
            let pid = child.id().to_string();
            let _ = std::process::Command::new("kill").args(["-INT", &pid]).status();
        }
        child.wait().unwrap().code()
    };
    // On a machine so busy that its output is not full yet, the first one ends it.
    assert!((0..5).any(|_| interrupted() == Some(130)));
}

#[test]
fn ctrl_c_while_generating_says_what_is_missing() {
    let scratch = Scratch::new();
    let path = scratch.path("big.csv");
    let args = ["gen", "--rows", "1G", "--output", path.as_str()];
    let child = command(&args).stderr(Stdio::piped()).spawn().unwrap();
    // It must have begun: its file is there and not empty.
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::fs::metadata(&path).map_or(0, |m| m.len()) == 0 {
        assert!(std::time::Instant::now() < deadline, "nothing was written");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.starts_with("error: interrupted: only "), "{err}");
    // What was written is whole.
    assert!(std::fs::read(&path).unwrap().ends_with(b"\n"));
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let scratch = Scratch::new();
    let path = scratch.path("a.csv");
    saltmill(&["gen", "--rows", "300K", "--keys", "200K", "--output", &path]).fine();
    for args in [&["run", &path, "--key", "key"][..], &["gen", "--rows", "1G"], &["help", "run"]] {
        let mut child =
            command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}
