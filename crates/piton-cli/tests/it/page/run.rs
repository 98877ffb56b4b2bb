//! The view of a run: its graph and timeline as it works, steps with what went in and out, text as it comes, thousands of
//! steps, and a server that is killed and started again under it.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use piton_testing::web::{Answer, Web};
use serde_json::json;

use super::site::Site;
use super::{SLOW, troubled};
use crate::world::{World, wait_until};

on_each_store! {
    page_shows_a_run_as_it_works,
    page_shows_the_text_of_a_model_as_it_comes,
    page_stays_smooth_with_thousands_of_steps,
    page_loads_large_values_when_they_are_opened,
    page_survives_a_server_that_is_killed_and_restarted,
}

/// Two iterations with a template inside.
const MANY: &str = r"
nodes:
  - {id: in, data: {type: start, variables: [{variable: items, type: array, required: true}]}}
  - {id: each, data: {type: iteration, iterator_selector: [in, items], output_selector: [work, output], start_node_id: begin}}
  - {id: begin, parentId: each, data: {type: iteration-start}}
  - {id: work, parentId: each, data: {type: template-transform, template: 'item {{ item }}', variables: [{variable: item, value_selector: [each, item]}]}}
  - {id: again, data: {type: iteration, iterator_selector: [in, items], output_selector: [more, output], start_node_id: start}}
  - {id: start, parentId: again, data: {type: iteration-start}}
  - {id: more, parentId: again, data: {type: template-transform, template: 'item {{ item }}', variables: [{variable: item, value_selector: [again, item]}]}}
  - {id: out, data: {type: end, outputs: [{variable: all, value_selector: [again, output]}]}}
edges: [{source: in, target: each}, {source: begin, target: work}, {source: each, target: again}, {source: start, target: more}, {source: again, target: out}]
";

/// A model, and a command behind it that waits.
const ASKING: &str = r"
nodes:
  - {id: in, data: {type: start, title: Begin}}
  - {id: ask, data: {type: llm, title: Ask, model: {provider: openai, name: m}, prompt_template: [{role: user, text: 'About bees'}]}}
  - {id: hold, data: {type: command, title: Hold, command: [sh, -c, 'while ! test -e go; do sleep 0.05; done']}}
  - {id: out, data: {type: end, title: Done, outputs: [{variable: text, value_selector: [ask, text]}]}}
edges: [{source: in, target: ask}, {source: ask, target: hold}, {source: hold, target: out}]
";

/// A run that works: its nodes change in the graph, its steps come in the timeline, and a paused view stands still.
fn page_shows_a_run_as_it_works(world: &World) {
    world.write("slow.yml", SLOW);
    assert_eq!(world.piton(["init"]).code, Some(0));
    let site = Site::of(world);
    let browser = site.browser("#/start");
    browser.fill("#document", "nodes: [");
    browser.sees("problem in the document");
    browser.click_on("Start");
    browser.wait(
        "a message at the field",
        "return document.querySelector('#document').getAttribute('aria-invalid') === 'true'",
    );
    let document = json!(SLOW);
    browser.run(&format!("const field = document.querySelector('#document'); field.value = {document}; field.dispatchEvent(new Event('input'))"));
    browser.sees("It can be run: 4 nodes.");
    browser.fill("#inputs", "[1]");
    browser.click_on("Start");
    browser.sees("Inputs have names");
    browser.fill("#inputs", "{}");
    browser.fill("#id", "live");
    browser.click_on("Start");
    browser.wait("the run", "return location.hash === '#/runs/live'");

    browser.wait("it runs", "return document.querySelector('[data-node=wait].is-running') !== null");
    browser.wait(
        "its step runs",
        "return [...document.querySelectorAll('.fall-row')].some((row) => row.innerText.includes('Running'))",
    );
    assert_eq!(browser.count("[data-node=in].is-completed"), 1);
    assert_eq!(browser.count("[data-node=out].is-pending"), 1);
    browser.click_on("Pause the view");
    browser.sees("Go on (0 changes behind)");
    world.write("go", "");
    wait_until(|| world.piton(["show", "live", "--json"]).json()["status"] == "completed");
    browser.wait("what is behind", "return /Go on \\([1-9]/.test(document.body.innerText)");
    assert_eq!(browser.count("[data-node=wait].is-running"), 1, "a paused view stands still");
    browser.run("[...document.querySelectorAll('button')].find((one) => one.innerText.startsWith('Go on')).click()");
    browser.wait("all nodes", "return document.querySelectorAll('.graph-node.is-completed').length === 4");
    browser.wait("all steps", "return document.querySelectorAll('.fall-row').length === 4");
    browser.sees("Outputs");

    // A node opens its step, with what went in and came out.
    browser.click("[data-node=more]");
    browser.wait("its step", "return document.querySelector('.detail h2')?.innerText === 'More'");
    browser.wait("its output", "return document.querySelector('.detail').innerText.includes('stdout')");
    assert_eq!(browser.run("return location.hash.includes('step=more')"), true);
    browser.is_clean();
}

/// The text of a model shows as it comes, before its step has ended; tokens and cost follow.
fn page_shows_the_text_of_a_model_as_it_comes(world: &World) {
    let (release, held) = mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let model = Web::start(move |asked| {
        // The first answer waits until the page looks.
        let _ = held.lock().unwrap().recv();
        Answer::chat(asked, &["Bees hum ", "in the ", "evening."])
    });
    world.write(
        "models.toml",
        &format!("[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"sk-x\"\n[providers.openai.prices.m]\ninput = 1000.0\noutput = 2000.0\n", model.address),
    );
    let site = Site::with(world, &["--listen", "127.0.0.1:0", "--config", "models.toml"]);
    let browser = site.browser("#/start");
    let document = json!(ASKING);
    browser.run(&format!("document.querySelector('#document').value = {document}"));
    browser.fill("#id", "said");
    browser.click_on("Start");
    browser.wait("it runs", "return document.querySelector('[data-node=ask].is-running') !== null");
    browser.click("[data-node=ask]");
    browser.wait("its step", "return document.querySelector('.detail .chip')?.innerText.includes('Running')");
    release.send(()).unwrap();
    browser
        .wait("its text", "return document.querySelector('.stream')?.textContent.includes('Bees hum in the evening.')");
    browser.wait("its tokens", "return document.querySelector('.detail').innerText.includes('5 in, 2 out')");
    world.write("go", "");
    browser.sees("Completed");
    browser.wait("its cost", "return document.querySelector('.facts.strip').innerText.includes('$0.0090')");
    browser.is_clean();
}

/// A loop of thousands of steps: only the rows in sight exist, and the last is reached.
fn page_stays_smooth_with_thousands_of_steps(world: &World) {
    let items: Vec<u32> = (0..1000).collect();
    world.write("many.yml", MANY);
    world.write("items.json", &json!({"items": items}).to_string());
    let said = world.piton(["run", "many.yml", "--inputs", "items.json", "--id", "many"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let site = Site::of(world);
    let browser = site.browser("#/runs/many");
    browser
        .wait("all steps", "return /^4,[0-9]+ steps$/.test(document.querySelector('.fall [role=status]').innerText)");
    assert!(browser.count(".fall-row") < 60, "{} rows", browser.count(".fall-row"));
    browser.run("const list = document.querySelector('.window'); list.scrollTop = 0");
    browser.wait("the first", "return document.querySelector('.fall-row[aria-posinset=\"1\"]') !== null");
    browser.run("const list = document.querySelector('.window'); list.scrollTop = list.scrollHeight");
    // As many as it says that there are.
    browser.wait(
        "the last",
        "const said = document.querySelector('.fall [role=status]').innerText.replace(/[^0-9]/g, ''); \
         const row = document.querySelector(`.fall-row[aria-posinset=\"${said}\"]`); \
         return Number(said) >= 4004 && row !== null && row.getAttribute('aria-setsize') === said",
    );
    browser.fill("[aria-label='Find a step']", "again/789/more");
    browser.wait("one", "return document.querySelectorAll('.fall-row').length === 1");
    browser.click(".fall-row");
    browser.wait("it opens", "return document.querySelector('.detail').innerText.includes('again/789/more')");
    browser.is_clean();
}

/// A large value is not sent with its step: it is loaded when it is opened.
fn page_loads_large_values_when_they_are_opened(world: &World) {
    world.write("flow.yml", crate::world::THREE_NODES);
    let name = "x".repeat(9000);
    world.write("in.json", &json!({"name": format!("{name}END")}).to_string());
    assert_eq!(world.piton(["run", "flow.yml", "--inputs", "in.json", "--id", "big"]).code, Some(0));
    let site = Site::of(world);
    let browser = site.browser("#/runs/big?step=greet");
    browser.wait(
        "the button",
        "return [...document.querySelectorAll('.detail button')].some((one) => one.innerText.startsWith('Load 9'))",
    );
    assert_eq!(browser.run("return document.querySelector('.detail').textContent.includes('xEND')"), false);
    browser.run("[...document.querySelectorAll('.detail button')].filter((one) => one.innerText.startsWith('Load')).at(-1).click()");
    browser.wait(
        "its beginning",
        "return [...document.querySelectorAll('.detail button')].some((one) => one.innerText.startsWith('Show all'))",
    );
    browser.run(
        "[...document.querySelectorAll('.detail button')].find((one) => one.innerText.startsWith('Show all')).click()",
    );
    browser.wait("all of it", "return document.querySelector('.detail').textContent.includes('xEND')");
    browser.is_clean();
}

/// The server is killed and started again under an open page: the page says so, goes on behind the last event, and stays
/// signed in. Nothing is shown twice.
fn page_survives_a_server_that_is_killed_and_restarted(world: &World) {
    troubled(world);
    let site = Site::of(world);
    let port = site.url.rsplit_once(':').unwrap().1.to_owned();
    let browser = site.browser("#/runs/asks");
    browser.wait("the question", "return document.querySelector('.question') !== null");
    browser.fill("[name=amount]", "12");
    site.kill();
    browser.sees("The server does not answer.");
    // Meanwhile another process moves the run that is shown.
    let said = world.piton(["answer", "asks", "--set", "approved=true", "--set", "amount=7", "--by", "Ada"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let _again = Site::with(world, &["--listen", &format!("127.0.0.1:{port}")]);
    browser.sees_no("The server does not answer.");
    browser.wait("the question is gone", "return document.querySelector('.question') === null");
    assert_eq!(world.piton(["resume", "asks"]).code, Some(0));
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Completed')");
    browser.wait("each step once", "return document.querySelectorAll('.fall-row').length >= 4 && document.querySelectorAll('.graph-node.is-completed').length === 4");
    let names = browser
        .run("return [...document.querySelectorAll('.fall-row')].map((row) => row.querySelector('.fall-title').title)");
    let mut names: Vec<_> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "{names:?}");
}
