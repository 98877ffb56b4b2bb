//! A folder with its store, a real `piton serve` over it, and a browser that is signed in.

use std::time::Duration;

use piton_testing::process::Running;
use serde_json::Value as Json;

use super::driver::Browser;
use crate::world::World;

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of a world.
pub(crate) struct Site {
    /// As in `http://127.0.0.1:1234`.
    pub(crate) url: String,
    /// The link that signs a browser in, once.
    link: String,
    process: Running,
}

impl Site {
    /// Serves the folder of a world on a port that is free.
    pub(crate) fn of(world: &World) -> Self {
        Self::with(world, &["--listen", "127.0.0.1:0"])
    }

    /// Serves it as these options say.
    pub(crate) fn with(world: &World, options: &[&str]) -> Self {
        let mut process = Running::spawn(&mut world.command([&["serve", "--json"], options].concat()));
        let line = process.line(PATIENCE);
        let Some(line) = line else { panic!("the server didn't start: {}", process.wait(PATIENCE).stderr) };
        let said: Json = serde_json::from_str(&line).unwrap();
        let text = |name: &str| said[name].as_str().unwrap_or_else(|| panic!("{name} of {said}")).to_owned();
        Self { url: text("url").trim_end_matches('/').to_owned(), link: text("sign_in"), process }
    }

    /// A browser that is signed in and shows a place of the page.
    pub(crate) fn browser(&self, place: &str) -> Browser {
        let browser = Browser::open(1280, 900, "light");
        browser.go(&self.link);
        browser.sees("Sign out");
        self.show(&browser, place);
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
        self.process.kill();
        drop(self.process);
    }
}
