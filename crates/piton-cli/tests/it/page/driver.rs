//! A real browser: headless Chromium, driven by its own driver over the WebDriver protocol. One driver for all tests, a
//! session with a profile of its own for each. Nothing is waited for by time alone: a test waits for what it wants to see.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value as Json, json};

/// How long a thing may take to show on a busy machine.
const PATIENCE: Duration = Duration::from_secs(45);
/// Sessions at once: each is some processes, and there are two cores.
const AT_ONCE: usize = 2;
/// What the driver calls an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const DOWN: &str = "\u{e015}";
pub(crate) const RIGHT: &str = "\u{e014}";

struct Driver {
    port: u16,
    /// The shell that ends the driver when the tests have ended, however they do: then its input ends.
    _guard: Child,
    open: Mutex<usize>,
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let script = "chromedriver --port=0 & read -r end; kill $!";
        let mut guard = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(guard.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let number = line.rsplit_once("successfully on port ")?.1;
            number.trim_end_matches('.').parse().ok()
        });
        Driver {
            port: port.expect("the package chromium-driver is there, and starts"),
            _guard: guard,
            open: Mutex::new(0),
        }
    })
}

/// A window of the browser.
pub(crate) struct Browser {
    id: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// A window of this size, which prefers these colours: `light` or `dark`.
    pub(crate) fn open(width: u32, height: u32, colours: &str) -> Self {
        let driver = driver();
        loop {
            let mut open = driver.open.lock().unwrap_or_else(PoisonError::into_inner);
            if *open < AT_ONCE {
                *open += 1;
                break;
            }
            drop(open);
            std::thread::sleep(Duration::from_millis(50));
        }
        let profile = tempfile::tempdir().unwrap();
        let arguments = [
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            format!("--user-data-dir={}", profile.path().display()),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let session = call("POST", "/session", &wanted);
        let browser = Self { id: session["sessionId"].as_str().unwrap().to_owned(), _profile: profile };
        browser.size(width, height);
        browser.colours(colours);
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &Json) -> Json {
        call(method, &format!("/session/{}{path}", self.id), body)
    }

    fn devtools(&self, command: &str, parameters: Json) {
        self.ask("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
    }

    /// As wide and high as a device.
    pub(crate) fn size(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", size);
    }

    /// What its user prefers. Nothing moves by itself, so that pictures are the same.
    pub(crate) fn colours(&self, colours: &str) {
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": colours},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.devtools("Emulation.setEmulatedMedia", features);
    }

    pub(crate) fn go(&self, url: &str) {
        self.ask("POST", "/url", &json!({"url": url}));
    }

    /// What a script gives.
    pub(crate) fn run(&self, script: &str) -> Json {
        self.ask("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// What a script gives to its last argument.
    pub(crate) fn run_later(&self, script: &str) -> Json {
        self.ask("POST", "/execute/async", &json!({"script": script, "args": []}))
    }

    /// What a script gives once it is something.
    pub(crate) fn wait(&self, what: &str, script: &str) -> Json {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.run(script);
            if !matches!(found, Json::Null | Json::Bool(false)) {
                return found;
            }
            if Instant::now() > end {
                let seen = self.run("return document.body.innerText");
                panic!("{what} never came. The page says:\n{}\n{:?}", seen.as_str().unwrap_or_default(), self.logs());
            }
            std::thread::sleep(Duration::from_millis(60));
        }
    }

    /// Waits until the page says something.
    pub(crate) fn sees(&self, text: &str) {
        let quoted = Json::from(text);
        self.wait(text, &format!("return document.body.innerText.includes({quoted})"));
    }

    /// Waits until the page says it no more.
    pub(crate) fn sees_no(&self, text: &str) {
        let quoted = Json::from(text);
        self.wait(&format!("the end of {text}"), &format!("return !document.body.innerText.includes({quoted})"));
    }

    /// The text of the first element that fits, once there is one.
    pub(crate) fn text(&self, css: &str) -> String {
        let quoted = Json::from(css);
        let script =
            format!("const found = document.querySelector({quoted}); return found && (found.innerText || ' ')");
        self.wait(css, &script).as_str().unwrap().trim().to_owned()
    }

    pub(crate) fn count(&self, css: &str) -> u64 {
        self.run(&format!("return document.querySelectorAll({}).length", Json::from(css))).as_u64().unwrap()
    }

    fn find(&self, using: &str, value: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.ask("POST", "/elements", &json!({"using": using, "value": value}));
            if let Some(id) = found.get(0).and_then(|one| one[ELEMENT].as_str()) {
                return id.to_owned();
            }
            let seen = self.run("return document.body.innerText");
            assert!(Instant::now() < end, "{value} never came. The page says:\n{}", seen.as_str().unwrap_or_default());
            std::thread::sleep(Duration::from_millis(60));
        }
    }

    /// Clicks as a user does: on what is in sight and not behind something. What moves away meanwhile is tried again.
    fn press(&self, using: &str, value: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let id = self.find(using, value);
            let path = format!("/session/{}/element/{id}/click", self.id);
            match exchange("POST", &path, &json!({})) {
                Ok(_) => return,
                Err(why) if Instant::now() > end => panic!("{value} can't be clicked: {why}"),
                Err(_) => std::thread::sleep(Duration::from_millis(60)),
            }
        }
    }

    pub(crate) fn click(&self, css: &str) {
        self.press("css selector", css);
    }

    /// Clicks the button, link or tab that says this.
    pub(crate) fn click_on(&self, text: &str) {
        let open = "ancestor::dialog or not(//dialog[@open])";
        let value =
            format!("//*[(self::button or self::a or self::summary) and normalize-space()='{text}' and ({open})]");
        self.press("xpath", &value);
    }

    /// Types into a field, in the place of what it holds.
    pub(crate) fn fill(&self, css: &str, text: &str) {
        let id = self.find("css selector", css);
        let quoted = Json::from(css);
        self.run(&format!("const field = document.querySelector({quoted}); field.focus(); field.select?.()"));
        let typed = if text.is_empty() { "\u{e017}" } else { text };
        self.ask("POST", &format!("/element/{id}/value"), &json!({"text": typed}));
        self.run(&format!("document.querySelector({quoted}).dispatchEvent(new Event('change', {{bubbles: true}}))"));
    }

    /// Chooses the option that says this.
    pub(crate) fn choose(&self, css: &str, option: &str) {
        self.find("css selector", css);
        let (css, option) = (Json::from(css), Json::from(option));
        let script = format!(
            "const field = document.querySelector({css}); \
             const one = [...field.options].find((option) => option.textContent.includes({option})); \
             if (!one) return [...field.options].map((option) => option.textContent).join('|'); \
             field.value = one.value; field.dispatchEvent(new Event('change', {{bubbles: true}})); return null"
        );
        let missing = self.run(&script);
        assert_eq!(missing, Json::Null, "no such option {option}");
    }

    /// Presses a key, wherever the focus is.
    pub(crate) fn key(&self, key: &str) {
        let actions = json!({"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": "keyDown", "value": key}, {"type": "keyUp", "value": key},
        ]}]});
        self.ask("POST", "/actions", &actions);
    }

    /// The picture of what is shown, as PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let picture = self.ask("GET", "/screenshot", &Json::Null);
        base64::engine::general_purpose::STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }

    /// What the browser complained of since it was asked last.
    pub(crate) fn logs(&self) -> Vec<String> {
        let logs = self.ask("POST", "/se/log", &json!({"type": "browser"}));
        let lines = logs.as_array().unwrap().iter();
        lines.map(|line| format!("{} {}", line["level"].as_str().unwrap(), line["message"].as_str().unwrap())).collect()
    }

    /// That no script failed and nothing was asked for that the page's own policy forbids.
    pub(crate) fn is_clean(&self) {
        let bad = |line: &String| {
            line.contains("Uncaught") || line.contains("Content Security Policy") || line.contains("Refused")
        };
        let bad: Vec<String> = self.logs().into_iter().filter(bad).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A driver that can't end the session any more ends with the tests.
        let _ = exchange("DELETE", &format!("/session/{}", self.id), &Json::Null);
        *driver().open.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

fn call(method: &str, path: &str, body: &Json) -> Json {
    exchange(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// One request to the driver. What it says of a failure is the error.
fn exchange(method: &str, path: &str, body: &Json) -> Result<Json, String> {
    let port = driver().port;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    let body = if *body == Json::Null { String::new() } else { body.to_string() };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: \
         {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).map_err(|error| error.to_string())?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).map_err(|error| error.to_string())?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text).map_err(|error| error.to_string())?;
    let mut answer: Json = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let value = answer["value"].take();
    match value.get("error") {
        Some(error) if value.get("stacktrace").is_some() => Err(format!("{error}: {}", value["message"])),
        _ => Ok(value),
    }
}
