//! The debugger on the page: stops, breakpoints, variables, going back, and a server that is killed under it.

use serde_json::json;

use super::driver::Browser;
use super::site::Site;
use super::{FLAKY, SLOW};
use crate::world::{World, wait_until};

on_each_store! {
    page_debugs_a_run_from_its_start,
    page_stops_at_an_error_and_goes_on,
    page_goes_on_debugging_after_the_server_was_killed,
}

over_a_killed_server! {
    page_debugs_a_run_from_its_start,
    page_stops_at_an_error_and_goes_on,
}

/// Whether the run stands where this is said.
pub(super) fn stands(browser: &Browser, words: &str) {
    let quoted = json!(words);
    browser.wait(
        words,
        &format!(
            "return document.querySelector('.debug-head .chip')?.innerText.includes('Stands') && document.querySelector('.debug-at').innerText.includes({quoted})"
        ),
    );
}

/// A run is started under the debugger, stops, shows and takes variables, goes to a node, back, and on to its end; what is
/// wrong in a form is said at its field.
fn page_debugs_a_run_from_its_start(world: &World) {
    world.write("ready", "");
    assert_eq!(world.piton(["init"]).code, Some(0));
    let site = Site::of(world);
    let browser = site.browser("#/start");
    let document = json!(FLAKY);
    browser.run(&format!("const field = document.querySelector('#document'); field.value = {document}; field.dispatchEvent(new Event('input'))"));
    browser.fill("#inputs", "{\"name\": \"Ada\"}");
    browser.fill("#id", "d");
    browser.click_on("Debug");
    stands(&browser, "Before Begin in (start), where it begins");

    browser.fill("#debug-node", "chek");
    browser.click("[data-debug=break]");
    browser.wait(
        "the message at the field",
        "return document.querySelector('#debug-node-wrong').innerText.includes('did you mean \"check\"')",
    );
    browser.fill("#debug-node", "check");
    browser.fill("#debug-if", "fetch.stdout nearly hello");
    browser.click("[data-debug=break]");
    browser.wait(
        "the message at the condition",
        "return document.querySelector('#debug-if').getAttribute('aria-invalid') === 'true'",
    );
    browser.fill("#debug-if", "fetch.stdout contains hello");
    browser.click("[data-debug=break]");
    browser.wait(
        "the breakpoint",
        "return document.querySelector('.stop')?.innerText.includes('before check if fetch.stdout contains hello')",
    );
    browser.wait("its sign", "return document.querySelector('[data-node=check] .graph-stop.before[data-on]') !== null");

    browser.click("[data-debug=continue]");
    stands(&browser, "Before Check check (command), at a breakpoint");
    browser.wait("where it stands", "return document.querySelector('[data-node=check]').dataset.stands === 'before'");
    assert_eq!(world.lines("calls"), ["Ada"]);

    // Back, another name, and on again: what was done in the world stays.
    browser.click("[data-node=fetch]");
    browser.wait("its step", "return document.querySelector('.detail h2')?.innerText === 'Fetch'");
    browser.click_on("Back to before it");
    stands(&browser, "Before Fetch fetch (command), where it was put back to");
    browser.sees("Back to before fetch.");
    browser.click("[data-variable='in.name']");
    browser.fill("[aria-label='in.name']", "Bob");
    browser.run("document.querySelector('.variable-editor:not([hidden]) .button').click()");
    browser.sees("This is no JSON. A text needs quotes");
    browser.fill("[aria-label='in.name']", "\"Bob\"");
    browser.run("document.querySelector('.variable-editor:not([hidden]) .button').click()");
    browser.wait(
        "the new value",
        "return document.querySelector(\"[data-variable='in.name']\").innerText.includes('Bob')",
    );
    browser.fill("#debug-set", "nowhere.x");
    browser.fill("#debug-value", "1");
    browser.click("[data-debug=set]");
    browser.wait(
        "the message at the variable",
        "return document.querySelector('#debug-set-wrong').innerText.includes('nowhere')",
    );
    browser.click("[data-debug=step]");
    stands(&browser, "After Fetch fetch (command), after a step");
    browser.sees("hello Bob");
    browser.click_on("Remove");
    browser.sees("None. It stops where it is told to, and at its end.");
    browser.fill("#debug-to", "out");
    browser.click("[data-debug=to]");
    stands(&browser, "Before Done out (end), as you said");
    browser.click("[data-debug=back]");
    stands(&browser, "Before Check");
    browser.click("[data-debug=next]");
    stands(&browser, "Before Done");
    browser.click("[data-debug=continue]");
    stands(&browser, "It is completed. Back goes back in a new run.");
    assert_eq!(world.piton(["show", "d", "--json"]).json()["outputs"]["greeting"], "hello Bob\n");
    assert_eq!(world.lines("calls"), ["Ada", "Bob"]);

    // To a checkpoint, from the end: another run goes on, and the page with it.
    browser.click_on("Checkpoints");
    browser.click_on("Back to here");
    browser.wait("the new run", "return location.hash !== '#/runs/d' && !location.hash.startsWith('#/runs/d?')");
    browser.wait("it stands", "return document.querySelector('.debug-head .chip')?.innerText.includes('Stands')");
    browser.click("[data-debug=quit]");
    browser.wait("it is left", "return document.querySelector('.debug').hidden && document.querySelector('h1 + .chip').innerText.includes('Paused')");
    browser.is_clean();
}

/// A failed run is debugged: it stops where the node fails, and goes on when what was wrong is mended.
fn page_stops_at_an_error_and_goes_on(world: &World) {
    world.write("flaky.yml", FLAKY);
    assert_eq!(world.piton(["run", "flaky.yml", "-i", "name=Ada", "--id", "bad"]).code, Some(1));
    let site = Site::of(world);
    let browser = site.browser("#/runs/bad");
    browser.click_on("Debug");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    stands(&browser, "Before Check");
    browser.click("#debug-error");
    browser.click("[data-debug=continue]");
    stands(&browser, "After Check check (command), because it failed");
    browser.sees("The node failed");
    world.write("ready", "");
    browser.click("[data-debug=continue]");
    stands(&browser, "It failed. Continue tries it again.");
    browser.click("[data-debug=continue]");
    stands(&browser, "It is completed.");
    assert_eq!(world.lines("calls"), ["Ada"], "what was done isn't done again");
    browser.is_clean();
}

/// The server is killed while a run stands: the page says so, the run is gone on with under a debugger of the next server,
/// with the breakpoints that this window had, and nothing is done twice.
fn page_goes_on_debugging_after_the_server_was_killed(world: &World) {
    world.write("go", "");
    world.write("slow.yml", SLOW);
    assert_eq!(world.piton(["submit", "slow.yml", "--id", "k", "--json"]).code, Some(0));
    let site = Site::of(world);
    let port = site.url.rsplit_once(':').unwrap().1.to_owned();
    let browser = site.browser("#/runs/k");
    browser.click_on("Debug");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    stands(&browser, "Before Begin");
    browser.fill("#debug-node", "more");
    browser.click("[data-debug=break]");
    browser.wait("the breakpoint", "return document.querySelector('.stop') !== null");
    browser.click("[data-debug=continue]");
    stands(&browser, "Before More");
    site.kill();
    browser.sees("The server does not answer.");
    let _again = Site::with(world, &["--listen", &format!("127.0.0.1:{port}")]);
    browser.wait("the session is over", "return document.querySelector('.debug').hidden");
    browser.click_on("Debug");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    stands(&browser, "Before More");
    browser.wait("the breakpoint again", "return document.querySelector('.stop')?.innerText.includes('more')");
    browser.click("[data-debug=continue]");
    stands(&browser, "It is completed.");
    assert_eq!((world.lines("begun").len(), world.lines("more").len()), (1, 1));
    wait_until(|| world.piton(["show", "k", "--json"]).json()["status"] == "completed");
}
