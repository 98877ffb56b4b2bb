//! Files on the page: the line of checkpoints by author, diffs, undo and redo with their plan, a restore with a conflict,
//! the history of a path.

use super::site::Site;
use crate::world::World;

on_each_store! {
    page_shows_what_an_agent_did_and_takes_it_back,
    page_shows_a_conflict_and_does_as_it_was_decided,
    page_saves_restores_and_tells_the_history_of_a_path,
}

over_a_killed_server! {
    page_shows_what_an_agent_did_and_takes_it_back,
    page_shows_a_conflict_and_does_as_it_was_decided,
    page_saves_restores_and_tells_the_history_of_a_path,
}

/// A folder in which an agent worked under guard, and its user before and after it.
fn worked(world: &World) {
    world.write("notes.txt", "one\ntwo\nthree\n");
    assert_eq!(world.piton(["save", "-m", "before the agent"]).code, Some(0));
    let said = world.piton(["guard", "--", "sh", "-c", "sed -i s/two/TWO/ notes.txt; echo made > made.txt"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
}

fn read(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.work().join(name)).unwrap_or_default()
}

/// What an agent did is a line by its author, with its lines; it is undone after the plan was shown, and redone.
fn page_shows_what_an_agent_did_and_takes_it_back(world: &World) {
    worked(world);
    let site = Site::of(world);
    let browser = site.browser("#/files");
    browser.wait("the line", "return document.querySelectorAll('.moment').length >= 3");
    browser.sees("before the agent");
    browser.wait("an agent's", "return document.querySelector('.moment .author.running') !== null");
    browser.click(".moment.running .moment-head");
    browser.wait("its lines", "return document.querySelector('.detail .diff .added .line-text')?.textContent.includes('TWO') || document.querySelectorAll('.detail .diff').length === 2");
    let changed = browser.run(
        "return [...document.querySelectorAll('.detail .diff .line-text')].map((one) => one.textContent).join('|')",
    );
    let changed = changed.as_str().unwrap();
    assert!(changed.contains("-two") && changed.contains("+TWO") && changed.contains("+made"), "{changed}");

    browser.click("[data-act=undo]");
    browser.wait("the plan", "return document.querySelectorAll('dialog .file-list li').length === 2");
    browser.run("[...document.querySelectorAll('dialog .file-head')].find((one) => one.innerText.includes('notes.txt')).click()");
    browser.wait("the lines of the plan", "return document.querySelector('dialog .diff')?.textContent.includes('TWO')");
    assert_eq!(read(world, "made.txt"), "made\n", "nothing is done before it is confirmed");
    browser.click_on("Undo it");
    browser.sees("2 paths changed");
    assert_eq!((read(world, "notes.txt"), read(world, "made.txt")), ("one\ntwo\nthree\n".into(), String::new()));
    browser.wait("the dialog is closed", "return document.querySelector('dialog') === null");
    browser.click("#redo");
    browser.click_on("Redo it");
    browser.wait("it is closed", "return document.querySelector('dialog') === null");
    assert_eq!((read(world, "notes.txt"), read(world, "made.txt")), ("one\nTWO\nthree\n".into(), "made\n".into()));
    browser.is_clean();
}

/// A conflict keeps a restore from being done until it is decided; the user's side can be kept.
fn page_shows_a_conflict_and_does_as_it_was_decided(world: &World) {
    worked(world);
    world.write("notes.txt", "one\nMINE\nthree\n");
    let site = Site::of(world);
    let browser = site.browser("#/files");
    browser.wait("the line", "return document.querySelector('.moment.running .moment-head') !== null");
    browser.click(".moment.running .moment-head");
    browser.click("[data-act=undo]");
    browser.sees("1 conflict: nothing is written until they are decided");
    assert_eq!(browser.count("dialog .actions .primary:not([hidden])"), 0);
    browser.click("[data-conflict=current]");
    browser.sees_no("nothing is written until");
    browser.click("dialog .actions .primary");
    browser.wait("it is closed", "return document.querySelector('dialog') === null");
    assert_eq!((read(world, "notes.txt"), read(world, "made.txt")), ("one\nMINE\nthree\n".into(), String::new()));
    browser.is_clean();
}

/// A checkpoint is saved by hand, the folder is brought back to it, and a path has its history.
fn page_saves_restores_and_tells_the_history_of_a_path(world: &World) {
    worked(world);
    let site = Site::of(world);
    let browser = site.browser("#/files");
    browser.click_on("Save a checkpoint");
    browser.fill("#save-message", "by hand");
    browser.click_on("Save");
    browser.wait(
        "it is in the line",
        "return [...document.querySelectorAll('.moment')].some((one) => one.innerText.includes('by hand'))",
    );
    world.write("notes.txt", "broken");
    browser
        .run("[...document.querySelectorAll('.moment-head')].find((one) => one.innerText.includes('by hand')).click()");
    browser.click("[data-act=restore]");
    browser.wait("the plan", "return document.querySelector('dialog .plan-line') !== null");
    browser.click("#restore-exact");
    browser.wait("a file in the plan", "return document.querySelectorAll('dialog .file-list li').length === 1");
    browser.click("dialog .actions .primary");
    browser.wait("it is closed", "return document.querySelector('dialog') === null");
    assert_eq!(read(world, "notes.txt"), "one\nTWO\nthree\n");

    site.show(&browser, "#/files?path=made.txt");
    browser.wait("its history", "return document.querySelectorAll('.moment').length >= 1 && document.querySelector('.moments').innerText.includes('made.txt')");
    assert_eq!(browser.run("return document.querySelector('.moments').innerText.includes('before the agent')"), false);
    browser.is_clean();
}
