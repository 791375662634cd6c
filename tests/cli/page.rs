//! The page that `diagnose --html` writes, in a browser.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::support::{Scratch, run_line};

/// What the browser itself asks for, whatever the page.
const OWN_HOSTS: [&str; 4] = ["google.com", "googleapis.com", "gvt1.com", "gstatic.com"];

/// Hosts asked for through a proxy that answers nothing, so that nothing leaves this machine.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    /// The proxy's address.
    fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let _ = BufReader::new(&stream).read_line(&mut line);
                // GET http://host/path, or CONNECT host:443.
                let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
                let host = target.split("://").last().unwrap_or_default();
                let host = host.split(['/', ':']).next().unwrap_or_default();
                if !OWN_HOSTS.iter().any(|own| host.ends_with(own)) {
                    asked.0.lock().unwrap().push(target);
                }
                let _ = (&stream).write_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n");
            }
        });
        address
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Opens a page; answers what it said on the console and asked for. None without a browser.
fn open(scratch: &Scratch, page: &str, picture: &str) -> Option<(Vec<String>, Vec<String>)> {
    let asked = Asked::default();
    let log = scratch.path("browser.log");
    let mut browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--proxy-server=http://{}", asked.listen()))
        .arg("--proxy-bypass-list=<-loopback>")
        .arg(format!("--user-data-dir={}", scratch.path("browser")))
        .args(["--enable-logging=stderr", "--window-size=1000,3000"])
        .arg(format!("--screenshot={picture}"))
        .arg(format!("file://{page}"))
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .ok()?;
    let started = Instant::now();
    while browser.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(120) {
            let _ = browser.kill();
            panic!("the browser does not end: {}", scratch.read("browser.log"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = std::fs::read_to_string(log).unwrap();
    let said = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some((said, asked.take()))
}

#[test]
fn the_page_says_nothing_on_the_console_and_asks_nobody() {
    let scratch = Scratch::new();
    let picture = scratch.path("page.png");
    // What is to be seen is seen, where it is.
    let bad = "<script>console.error('broken')</script><img src=\"http://other.invalid/x.png\">";
    let bad = scratch.file("bad.html", bad);
    let Some((said, asked)) = open(&scratch, &bad, &picture) else {
        eprintln!("skipped: chromium is not installed (Debian: chromium)");
        return;
    };
    assert!(said.iter().any(|line| line.contains("broken")), "{said:?}");
    assert_eq!(asked, ["http://other.invalid/x.png"]);

    let mut text = "ts,user\n".to_owned();
    for row in 0..30_000_u64 {
        let user =
            if row % 3 == 0 || row / 600 == 31 { "guest".into() } else { (row % 997).to_string() };
        text += &format!("{},{user}\n", row * 100);
    }
    let file = scratch.file("rows.csv", text);
    let page = scratch.path("page.html");
    let line = format!("diagnose {file} --key user --time ts --window tumbling:1m --parallelism 8");
    run_line(&format!("{line} --html {page}")).fine();
    let (said, asked) = open(&scratch, &page, &picture).unwrap();
    assert!(said.is_empty() && asked.is_empty(), "{said:?} {asked:?}");
    // A picture of the size asked for, with more on it than an empty page.
    let picture = std::fs::read(picture).unwrap();
    let size = [16, 20].map(|at| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap()));
    assert_eq!(&picture[1..4], b"PNG");
    assert_eq!(size[0], 1_000);
    assert!(picture.len() > 100_000, "{} bytes", picture.len());
}
