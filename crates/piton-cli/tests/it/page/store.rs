//! The store on the page: its size, what retention would remove, a check with its progress, workers, queue, reservations.

use super::site::Site;
use super::troubled;
use crate::world::{World, wait_until};

on_each_store! {
    page_shows_and_keeps_the_store,
}

over_a_killed_server! {
    page_shows_and_keeps_the_store,
}

fn page_shows_and_keeps_the_store(world: &World) {
    troubled(world);
    world.write("notes.txt", "one\n");
    assert_eq!(world.piton(["submit", "slow.yml", "--id", "queued", "--label", "nowhere", "--json"]).code, Some(0));
    assert_eq!(world.piton(["lease", "take", "notes.txt", "--owner", "ada"]).code, Some(0));
    let mut worker = world.command(["worker", "run", "--name", "build-1"]).spawn().unwrap();
    wait_until(|| world.piton(["worker", "ls", "--json"]).stdout.contains("build-1"));
    let site = Site::of(world);
    let browser = site.browser("#/store");
    browser.wait("the size", "return /[0-9] (kB|MB)/.test(document.querySelector('.big')?.innerText ?? '')");
    browser.wait("the worker", "return document.querySelector('[aria-label=Workers] table')?.innerText.includes('build-1') ?? document.body.innerText.includes('build-1')");
    browser
        .wait("the queue", "return document.querySelector('section[aria-label=Queue]').innerText.includes('slow.yml')");
    browser.wait(
        "the reservation",
        "return document.querySelector('section[aria-label=\"Reserved files\"]').innerText.includes('notes.txt')",
    );

    browser.click("#check");
    browser.sees("All of it is whole");
    browser.click("#gc");
    browser.wait("the plan", "return document.querySelector('dialog .plan-line') !== null");
    browser.click("dialog .actions .danger");
    browser.sees("given back");

    browser.click_on("Drain");
    browser.click_on("Drain it");
    browser.sees("takes no more runs");
    assert!(worker.wait().unwrap().success(), "it drained");
    browser.wait("who did it", "return document.querySelector('section[aria-label=\"Who did what\"]') !== null");
    site.show(&browser, "#/store");
    browser.wait("who did it", "return document.querySelector('section[aria-label=\"Who did what\"] table') !== null");
    browser.is_clean();
}
