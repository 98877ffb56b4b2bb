//! A folder with its store, a real `piton serve` over it, and a browser that is signed in.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use piton_testing::process::Running;
use serde_json::Value as Json;

use super::driver::Browser;
use crate::world::World;

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// Whether servers of this test are killed and started again under the page that was opened.
    static KILLED: Cell<bool> = const { Cell::new(false) };
}

/// From now on servers of this test are killed and started again under the page that was opened.
pub(crate) fn kill_under_the_page() {
    KILLED.set(true);
}

/// A server of a world.
pub(crate) struct Site<'a> {
    world: &'a World,
    options: Vec<String>,
    /// As in `http://127.0.0.1:1234`.
    pub(crate) url: String,
    /// The link that signs a browser in, once.
    link: String,
    process: RefCell<Option<Running>>,
}

impl<'a> Site<'a> {
    /// Serves the folder of a world on a port that is free.
    pub(crate) fn of(world: &'a World) -> Self {
        Self::with(world, &["--listen", "127.0.0.1:0"])
    }

    /// Serves it as these options say.
    pub(crate) fn with(world: &'a World, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let (url, link, process) = serve(world, &options);
        Self { world, options, url, link, process: RefCell::new(Some(process)) }
    }

    /// A browser that is signed in and shows a place of the page.
    pub(crate) fn browser(&self, place: &str) -> Browser {
        let browser = Browser::open(1280, 900, "light");
        browser.go(&self.link);
        browser.sees("Sign out");
        self.show(&browser, place);
        if KILLED.get() {
            self.end();
            let address = self.url.trim_start_matches("http://").to_owned();
            let at = self.options.iter().position(|option| option == "--listen").map_or(0, |place| place + 1);
            let mut options = self.options.clone();
            options[at] = address;
            self.process.replace(Some(serve(self.world, &options).2));
            // What the page shows next it has from the other server.
            browser.sees_no("The server does not answer.");
        }
        browser
    }

    /// Goes to a place of the page, from nothing, as after typing its address.
    pub(crate) fn show(&self, browser: &Browser, place: &str) {
        browser.go("about:blank");
        browser.go(&format!("{}/{place}", self.url));
        browser.sees("Sign out");
        browser.wait("the place", "return document.querySelector('main h1') !== null");
    }

    /// `SIGKILL`.
    pub(crate) fn kill(self) {
        self.end();
    }

    fn end(&self) {
        let process = self.process.take();
        process.iter().for_each(Running::kill);
    }
}

/// Starts a server: its address, the link that signs in, its process.
fn serve(world: &World, options: &[String]) -> (String, String, Running) {
    let all = ["serve", "--json"].into_iter().chain(options.iter().map(String::as_str));
    let mut process = Running::spawn(&mut world.command(all));
    let line = process.line(PATIENCE);
    let Some(line) = line else { panic!("the server didn't start: {}", process.wait(PATIENCE).stderr) };
    let said: Json = serde_json::from_str(&line).unwrap();
    let text = |name: &str| said[name].as_str().unwrap_or_else(|| panic!("{name} of {said}")).to_owned();
    (text("url").trim_end_matches('/').to_owned(), text("sign_in"), process)
}
