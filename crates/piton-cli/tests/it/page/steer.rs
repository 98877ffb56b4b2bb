//! Steering on the page: answers, stop, resume, retry, fork, compare, put back, cancel, and effects that nobody knows of.

use super::site::Site;
use super::{SLOW, troubled};
use crate::world::{World, wait_until};

on_each_store! {
    page_answers_a_question_and_says_at_the_field_what_is_wrong,
    page_stops_and_resumes_a_run,
    page_retries_forks_and_compares,
    page_puts_the_state_back_and_goes_on_from_there,
    page_cancels_for_good_after_it_was_shown,
    page_decides_an_effect_of_which_nobody_knows_the_end,
}

over_a_killed_server! {
    page_answers_a_question_and_says_at_the_field_what_is_wrong,
    page_stops_and_resumes_a_run,
    page_retries_forks_and_compares,
    page_puts_the_state_back_and_goes_on_from_there,
    page_cancels_for_good_after_it_was_shown,
    page_decides_an_effect_of_which_nobody_knows_the_end,
}

/// A question is answered by its form; what is wrong is said at the field that it is of, and what was typed stays.
fn page_answers_a_question_and_says_at_the_field_what_is_wrong(world: &World) {
    troubled(world);
    let site = Site::of(world);
    let browser = site.browser("#/runs/asks");
    browser.sees("Refund Eve?");
    browser.fill("[name=amount]", "a lot");
    browser.click_on("Answer");
    browser.wait("both messages", "return document.querySelectorAll('.question [aria-invalid=true]').length === 2");
    let said = "return [...document.querySelectorAll('.question .field-wrong')].map((one) => one.innerText).join('|')";
    assert_eq!(browser.run(said), "\"approved\" is required|\"amount\": \"a lot\" is not a number");
    browser.choose("[name=approved]", "Yes");
    browser.fill("[name=amount]", "a lot");
    browser.click_on("Answer");
    browser.wait("the message", "return document.querySelector('[name=amount][aria-invalid=true]') !== null");
    let wrong = browser.run("return document.getElementById(document.querySelector('[name=amount]').getAttribute('aria-describedby')).innerText");
    assert!(wrong.as_str().unwrap().contains("number"), "{wrong}");
    assert_eq!(browser.run("return document.activeElement.name"), "amount");
    assert_eq!(browser.run("return document.querySelector('[name=amount]').value"), "a lot");
    browser.fill("[name=amount]", "12.5");
    browser.click_on("Answer");
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Completed')");
    assert_eq!(browser.count(".question"), 0);
    assert_eq!(world.lines("paid"), ["paid 12.5"]);
    browser.is_clean();
}

/// A run is stopped in peace, and goes on after what changed since was shown.
fn page_stops_and_resumes_a_run(world: &World) {
    world.write("slow.yml", SLOW);
    assert_eq!(world.piton(["submit", "slow.yml", "--id", "s", "--json"]).code, Some(0));
    let site = Site::of(world);
    let browser = site.browser("#/runs/s");
    browser.click_on("Resume");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    wait_until(|| world.lines("begun") == ["x"]);
    browser.click_on("Stop");
    browser.fill("#stop-grace", "soon");
    browser.click_on("Stop it");
    browser.sees("A whole number of seconds, 0 or more.");
    browser.fill("#stop-grace", "0");
    browser.fill("#stop-reason", "lunch");
    browser.click_on("Stop it");
    browser.wait("it is paused", "return document.querySelector('h1 + .chip').innerText.includes('Paused')");
    assert_eq!(world.piton(["show", "s", "--json"]).json()["status"], "paused");
    world.write("go", "");
    browser.click_on("Resume");
    browser.sees("Nothing that matters changed since this run was begun.");
    browser.click("dialog .actions .primary");
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Completed')");
    assert_eq!(world.lines("more"), ["x"]);
    browser.is_clean();
}

/// A failed run is tried again from a step; forked with another input; the two are compared.
fn page_retries_forks_and_compares(world: &World) {
    troubled(world);
    let site = Site::of(world);
    let browser = site.browser("#/runs/bad");
    browser.sees("node check failed");
    browser.click_on("Retry");
    browser.wait("the plan", "return document.querySelector('dialog .plan-line') !== null");
    browser.choose("#retry-from", "fetch");
    browser.wait("the other plan", "return document.querySelector('dialog .plan-line')?.innerText.includes('fetch') || document.querySelector('dialog .entails')?.innerText.includes('fetch')");
    browser.click("dialog .actions .primary");
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Completed')");
    assert_eq!(world.lines("calls"), ["Ada", "Bob", "Ada"]);

    site.show(&browser, "#/runs/good");
    browser.click_on("Fork");
    browser.wait("its variables", "return document.querySelector('.edits textarea') !== null");
    let field = "#fork-value-0";
    assert_eq!(browser.run("return document.querySelector('label[for=fork-value-0]').innerText"), "name");
    browser.fill(field, "{");
    browser.click_on("Fork");
    browser.sees("This is no JSON.");
    browser.fill(field, "\"changed\"");
    browser.fill("#fork-id", "branch");
    browser.click("dialog .actions .primary");
    browser.wait("the new run", "return location.hash === '#/runs/branch'");
    browser.sees("forked from");
    wait_until(|| world.piton(["show", "branch", "--json"]).json()["status"] == "completed");

    browser.click_on("Compare");
    browser.fill("#compare-text", "good");
    browser.wait("one", "return document.querySelectorAll('.choose-list .choice').length === 1");
    browser.click(".choose-list .choice");
    browser.sees("Two runs side by side");
    browser.wait("both", "return document.querySelectorAll('.sides .card').length === 2 && document.querySelector('.table.compare') !== null");
    assert_eq!(browser.run("return location.hash.includes('from=branch') && location.hash.includes('to=good')"), true);
    browser.is_clean();
}

/// A run is put back to a checkpoint and goes on from there; one that is over isn't offered that.
fn page_puts_the_state_back_and_goes_on_from_there(world: &World) {
    troubled(world);
    let site = Site::of(world);
    let browser = site.browser("#/runs/bad?tab=checkpoints");
    browser.click_on("Put back");
    browser.wait("the plan", "return document.querySelector('dialog .plan-line') !== null");
    browser.click("dialog .actions .danger");
    browser.sees("The run stands at bad@");
    browser.wait("it is paused", "return document.querySelector('h1 + .chip').innerText.includes('Paused')");
    browser.click_on("Resume");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Completed')");
    assert_eq!(world.lines("calls"), ["Ada", "Bob"], "what is before the checkpoint isn't done again");
    site.show(&browser, "#/runs/good?tab=checkpoints");
    browser.wait("its checkpoints", "return document.querySelector('.entry') !== null");
    assert_eq!(browser.run("return document.querySelector('.entries').innerText.includes('Put back')"), false);
    browser.is_clean();
}

/// Cancelling shows what it means first, and can be left.
fn page_cancels_for_good_after_it_was_shown(world: &World) {
    troubled(world);
    let site = Site::of(world);
    let browser = site.browser("#/runs/asks");
    browser.click_on("Cancel");
    browser.wait("the plan", "return document.querySelector('dialog .plan-line') !== null");
    browser.click_on("Back");
    assert_eq!(world.piton(["show", "asks", "--json"]).json()["status"], "waiting");
    browser.click_on("Cancel");
    browser.click_on("Cancel it for good");
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Cancelled')");
    assert_eq!(world.piton(["show", "asks", "--json"]).json()["status"], "cancelled");
    browser.is_clean();
}

/// Decision 5: what was in flight when the process died is put before a person, and done as he says.
fn page_decides_an_effect_of_which_nobody_knows_the_end(world: &World) {
    world.write("slow.yml", &SLOW.replace("title: Wait for it,", "title: Wait for it, on_uncertain: ask,"));
    let mut dead = world.command(["run", "slow.yml", "--id", "u"]).spawn().unwrap();
    wait_until(|| world.lines("begun") == ["x"]);
    dead.kill().unwrap();
    dead.wait().unwrap();
    world.write("go", "");
    let site = Site::of(world);
    let browser = site.browser("#/runs/u");
    browser.sees("no process drives it");
    browser.click_on("Resume");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    browser.sees("Did this happen? Only you can tell.");
    browser.choose("[name=outcome]", "It was not done");
    browser.click_on("Decide");
    browser.wait("the end", "return document.querySelector('h1 + .chip').innerText.includes('Completed')");
    assert_eq!(world.lines("begun"), ["x", "x"], "it was done again because a person said so");
    browser.is_clean();
}
