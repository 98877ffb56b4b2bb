//! The pictures of the page in the README and the book: a folder in which an agent worked, and runs of each kind.
//! `scripts/page-pictures` writes them; without it they are made all the same, and compared with nothing but emptiness.

use std::path::Path;

use piton_testing::web::{Answer, Web};
use serde_json::json;

use super::debug::stands;
use super::driver::Browser;
use super::site::Site;
use super::{ASKS, FLAKY};
use crate::hooks::{Claude, installed, silent};
use crate::world::{World, wait_until};

/// A report from several sources, by a model.
const REPORT: &str = r"
nodes:
  - {id: start, data: {type: start, title: Start, variables: [{variable: topic, type: string, required: true}]}}
  - {id: plan, data: {type: llm, title: Plan the search, model: {provider: openai, name: m}, prompt_template: [{role: user, text: 'Plan: {{#start.topic#}}'}]}}
  - {id: papers, data: {type: command, title: Find papers, command: [sh, -c, 'sleep 0.4; echo three papers']}}
  - {id: news, data: {type: command, title: Find news, retry_config: {retry_enabled: true, max_retries: 2, retry_interval: 200}, command: [sh, -c, 'sleep 0.2; test -e tried || { touch tried; echo the site is busy >&2; exit 1; }; echo two reports']}}
  - {id: write, data: {type: llm, title: Write the report, model: {provider: openai, name: m}, prompt_template: [{role: user, text: 'Write about {{#start.topic#}} with {{#papers.stdout#}} and {{#news.stdout#}}'}]}}
  - {id: hold, data: {type: command, title: Check the sources, command: [sh, -c, 'while ! test -e go; do sleep 0.05; done']}}
  - {id: end, data: {type: end, title: End, outputs: [{variable: report, value_selector: [write, text]}]}}
edges:
  - {source: start, target: plan}
  - {source: plan, target: papers}
  - {source: plan, target: news}
  - {source: papers, target: write}
  - {source: news, target: write}
  - {source: write, target: hold}
  - {source: hold, target: end}
";

const CART: &str = "impl Cart {\n    /// What it costs.\n    pub fn total(&self) -> Money {\n        let sum: Money = self.lines.iter().map(Line::price).sum();\n        sum * (1 + self.tax) - self.discount\n    }\n}\n";

/// An agent that was asked for something, and did it in two calls of tools.
fn agent(world: &World) {
    let claude = Claude::new(world);
    std::fs::create_dir_all(world.work().join("src")).unwrap();
    world.write("src/cart.rs", CART);
    assert_eq!(world.piton(["save", "-m", "before the session"]).code, Some(0));
    silent(&claude.tell("UserPromptSubmit", json!({"prompt": "Make the discount apply before tax, and test it."})));
    claude.tool("Edit", "toolu_01", json!({"file_path": "src/cart.rs"}), || {
        let before = "sum * (1 + self.tax) - self.discount";
        let after = "// The discount applies before tax.\n        (sum - self.discount) * (1 + self.tax)";
        world.write("src/cart.rs", &CART.replace(before, after));
    });
    claude.tool("Bash", "toolu_02", json!({"command": "cargo test -p cart > report.txt"}), || {
        world.write("report.txt", "test discount_before_tax ... ok\n");
    });
    silent(&claude.tell("Stop", json!({"stop_hook_active": false})));
}

#[test]
fn page_pictures() {
    let world = installed();
    let model = Web::start(|asked| {
        Answer::chat(
            asked,
            &[
                "Beekeepers lost about a third of their colonies last winter. ",
                "Three studies agree that mites matter more than cold.",
            ],
        )
    });
    let prices = "[providers.openai.prices.m]\ninput = 400.0\noutput = 900.0\n";
    world.write(
        "models.toml",
        &format!("[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"sk-x\"\n{prices}", model.address),
    );
    world.write("research.yml", REPORT);
    world.write("refund.yml", ASKS);
    world.write("nightly-import.yml", FLAKY);
    agent(&world);
    assert_eq!(world.piton(["run", "nightly-import.yml", "-i", "name=orders", "--id", "import-41"]).code, Some(1));
    world.write("ready", "");
    assert_eq!(world.piton(["run", "nightly-import.yml", "-i", "name=orders", "--id", "import-42"]).code, Some(0));
    assert_eq!(world.piton(["run", "refund.yml", "-i", "name=order A-2201", "--id", "refund-7"]).code, Some(3));
    let mut working = world
        .command(["run", "research.yml", "-i", "topic=bees", "--id", "research-3", "--config", "models.toml"])
        .spawn()
        .unwrap();
    let site = Site::of(&world);
    let browser = site.browser("");
    wait_until(|| world.piton(["show", "research-3", "--json"]).json()["finished_steps"] == 5);
    let blank = {
        browser.go("about:blank");
        browser.picture().len()
    };
    let take = |name: &str, width: u32, height: u32, colours: &str, place: &str, there: &str| {
        browser.size(width, height);
        browser.colours(colours);
        site.show(&browser, place);
        browser.wait(place, there);
        keep(&browser, name, blank);
    };
    let run =
        "return document.querySelector('[data-node=hold].is-running') && document.querySelector('.detail .value pre')";
    take("home", 1280, 800, "light", "", "return document.querySelectorAll('.run-row').length >= 5");
    take("run", 1280, 1000, "light", "#/runs/research-3?step=write", run);
    take("run-dark", 1280, 1000, "dark", "#/runs/research-3?step=write", run);
    take("answer", 400, 860, "light", "#/runs/refund-7", "return document.querySelector('.question')");
    site.show(&browser, "#/files");
    let by_agent = "return [...document.querySelectorAll('.moment.running .moment-head')].at(-1)?.dataset.id";
    let id = browser.wait("what the agent did", by_agent);
    let place = format!("#/files?at={}", id.as_str().unwrap().replace('@', "%40"));
    take("files", 1280, 900, "light", &place, "return document.querySelector('.detail .diff .added')");
    assert_eq!(
        world.piton(["submit", "nightly-import.yml", "-i", "name=orders", "--id", "import-43", "--json"]).code,
        Some(0)
    );
    browser.size(1280, 1000);
    site.show(&browser, "#/runs/import-43");
    browser.click_on("Debug");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    stands(&browser, "Before Begin");
    browser.fill("#debug-node", "check");
    browser.fill("#debug-if", "fetch.stdout contains hello");
    browser.click("[data-debug=break]");
    browser.wait("the breakpoint", "return document.querySelector('.stop') !== null");
    browser.click("[data-debug=continue]");
    let stands = "return document.querySelector('[data-node=check]')?.dataset.stands === 'before' && document.querySelector(\"[data-variable='fetch.stdout']\")";
    take("debug", 1280, 1000, "light", "#/runs/import-43?step=check", stands);
    world.write("go", "");
    assert!(working.wait().unwrap().success());
    browser.is_clean();
}

/// A picture that is not blank; written for the book if that was asked for.
fn keep(browser: &Browser, name: &str, blank: usize) {
    let picture = browser.picture();
    assert!(picture.len() > blank * 2, "{name} is blank: {} bytes", picture.len());
    if std::env::var_os("PITON_WRITE_PICTURES").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
}
