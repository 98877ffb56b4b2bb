//! What the page shows: home with its filters, bulk acts, keys, screen readers, colours, widths, and what it never does.

use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use super::debug::stands;
use super::driver::{Browser, DOWN, ENTER, ESCAPE, RIGHT, TAB};
use super::site::Site;
use super::troubled;
use crate::world::{World, wait_until};

on_each_store! {
    page_home_counts_filters_and_acts_on_many,
    page_home_follows_what_others_do,
}

/// The tools of these tests, as `scripts/page-tools` installs them.
fn tool(path: &str) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tool = root.join("target/page-tools/node_modules").join(path);
    assert!(tool.exists(), "{} is not there: run scripts/page-tools", tool.display());
    tool
}

/// Home: what needs somebody is counted, a count filters, the filter is in the address and survives a reload.
fn page_home_counts_filters_and_acts_on_many(world: &World) {
    troubled(world);
    let site = Site::of(world);
    let browser = site.browser("");
    let figure = |state: &str| browser.text(&format!("[data-state={state}] .figure-value"));
    browser.wait("four runs", "return document.querySelectorAll('.run-row').length === 4");
    assert_eq!(["completed", "failed", "waiting", "stalled", "in_progress"].map(figure), ["1", "1", "1", "1", "0"]);
    assert!(browser.text(".today").contains("Spend today"));

    browser.click("[data-state=failed]");
    browser.wait("one run", "return document.querySelectorAll('.run-row').length === 1");
    assert!(browser.text(".run-why").contains("node check failed"), "{}", browser.text(".runs"));
    browser.wait("the filter in the address", "return location.hash.includes('state=failed')");
    let address = browser.run("return location.href");
    browser.go("about:blank");
    browser.go(address.as_str().unwrap());
    browser.wait("the same again", "return document.querySelectorAll('.run-row').length === 1");
    assert_eq!(browser.text("[data-state=failed][aria-pressed=true] .figure-name"), "Failed");
    browser.click("[data-state=failed]");
    browser.fill("#search", "goo");
    browser.wait(
        "what fits",
        "const rows = document.querySelectorAll('.run-row'); return rows.length === 1 && rows[0].innerText.includes('good')",
    );
    browser.fill("#search", "nothing of the kind");
    browser.sees("No run fits these filters.");
    browser.click_on("Show all runs");
    browser.wait("all", "return document.querySelectorAll('.run-row').length === 4");

    // Each act takes those that it fits; what came of each is said.
    browser.click("#pick-all");
    browser.click("[data-bulk=retry]");
    browser.sees("3 others among the chosen");
    browser.click_on("Retry 1 run");
    browser.wait("it is done", "return document.querySelector('.bulk-row').innerText.includes('Done')");
    browser.click_on("Close");
    wait_until(|| world.piton(["show", "bad", "--json"]).json()["status"] == "completed");
    browser.wait(
        "two completed",
        "return document.querySelector('[data-state=completed] .figure-value').innerText === '2'",
    );
    world.write("go", "");
    browser.click("[data-key=dead] .pick");
    browser.click("[data-bulk=resume]");
    browser.click_on("Resume 1 run");
    browser.sees("Done");
    browser.click_on("Close");
    browser.wait(
        "three completed",
        "return document.querySelector('[data-state=completed] .figure-value').innerText === '3'",
    );
    browser.click("[data-key=asks] .pick");
    browser.click("[data-bulk=cancel]");
    browser.click_on("Cancel 1 run");
    browser.sees("Done");
    assert_eq!(world.piton(["show", "asks", "--json"]).json()["status"], "cancelled");
    browser.is_clean();
}

/// A browser has six connections to a server. A page that was left, which a browser keeps for its back button, keeps none;
/// when it is gone back to, it follows again.
#[test]
fn page_leaves_no_connection_behind() {
    let world = World::with_run();
    let site = Site::of(&world);
    let browser = site.browser("");
    for _ in 0..10 {
        site.show(&browser, "");
        browser.wait("the list", "return document.querySelectorAll('.run-row').length === 1");
    }
    browser.go("about:blank");
    browser.run("history.back()");
    browser.wait("the list again", "return document.querySelectorAll('.run-row').length === 1");
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Bob", "--id", "second"]).code, Some(0));
    browser.wait("the new run", "return document.querySelectorAll('.run-row').length === 2");
    browser.is_clean();
}

/// What is new shows by itself.
fn page_home_follows_what_others_do(world: &World) {
    assert_eq!(world.piton(["init"]).code, Some(0));
    let site = Site::of(world);
    let browser = site.browser("");
    browser.sees("There are no runs yet.");
    world.write("flow.yml", crate::world::THREE_NODES);
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Ada", "--id", "first"]).code, Some(0));
    browser.wait(
        "the new run",
        "return document.querySelector('[data-key=first] .chip')?.innerText.includes('Completed')",
    );
    browser.is_clean();
}

/// Every place by keys alone: the focus reaches what there is to do, is seen, stays in a dialog and comes back.
#[test]
fn page_works_by_keys_alone() {
    let world = World::new();
    troubled(&world);
    let site = Site::of(&world);
    let browser = site.browser("");
    browser.wait("the list", "return document.querySelectorAll('.run-row').length === 4");
    let mut reached = Vec::new();
    for _ in 0..40 {
        browser.key(TAB);
        let seen = "const at = document.activeElement; const style = getComputedStyle(at); \
                    return [at.getAttribute('aria-label') ?? at.innerText, style.outlineStyle !== 'none' || at.type === 'checkbox']";
        let seen = browser.run(seen);
        let name = seen[0].as_str().unwrap_or_default().to_owned();
        assert_eq!(seen[1], true, "the focus is seen on {name:?}");
        reached.push(name);
        if reached.last().is_some_and(|name| name == "flaky.yml") {
            break;
        }
    }
    for wanted in ["Skip to the content", "Files", "Start a workflow", "Search by name or id", "Kind", "flaky.yml"] {
        assert!(reached.iter().any(|name| name.contains(wanted)), "{wanted} of {reached:?}");
    }
    browser.key(ENTER);
    browser.sees("Timeline");

    site.show(&browser, "#/runs/bad");
    browser.wait("the steps", "return document.querySelectorAll('.fall-row').length === 3");
    browser.run("document.querySelector('.window').focus()");
    browser.key(DOWN);
    browser.key(DOWN);
    browser.wait("the second step", "return document.querySelector('.detail h2').innerText === 'Fetch'");
    browser.run("document.querySelector('[role=tab]').focus()");
    browser.key(RIGHT);
    browser.wait("the next tab", "return location.hash.includes('tab=checkpoints')");
    browser.run("document.querySelector('[data-act=fork]').focus()");
    browser.key(ENTER);
    browser.wait("the dialog", "return document.querySelector('dialog[open]') !== null");
    for _ in 0..30 {
        browser.key(TAB);
        let inside =
            "return document.activeElement === document.body || document.activeElement.closest('dialog') !== null";
        assert_eq!(browser.run(inside), true, "the focus stays in the dialog");
    }
    browser.key(ESCAPE);
    browser.wait("it is closed", "return document.querySelector('dialog') === null");
    assert_eq!(browser.run("return document.activeElement.dataset.act"), "fork");
    browser.is_clean();
}

/// What axe finds serious in what is shown, and whether it is wider than the window.
fn faults(browser: &Browser, axe: &str) -> Json {
    browser.run(axe);
    let script = "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then((found) => { \
                  const bad = found.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => \
                  [one.id, one.nodes.slice(0, 3).map((node) => node.target.join(' ') + ': ' + (node.any[0]?.message ?? ''))]); \
                  const root = document.documentElement; \
                  if (root.scrollWidth > root.clientWidth) bad.push(['wider than the window', root.scrollWidth]); \
                  const elsewhere = performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin)); \
                  if (elsewhere.length > 0) bad.push(['asked elsewhere', elsewhere]); \
                  done(bad); })";
    browser.run_later(script)
}

/// In both colours, wide and narrow: a screen reader has what it needs, texts have their contrast, nothing is cut off, no
/// picture is blank, and nothing is asked of another host. What axe finds is what it is trusted for, so it must find
/// something in a page that is made bad. `PITON_LOOK=DIR` keeps the pictures for people to look at.
#[test]
fn page_is_fit_for_all_in_each_colour_and_width() {
    let axe = std::fs::read_to_string(tool("axe-core/axe.min.js")).unwrap();
    let world = World::new();
    troubled(&world);
    world.write("notes.txt", "one\n");
    assert_eq!(world.piton(["save", "-m", "before"]).code, Some(0));
    assert_eq!(world.piton(["guard", "--", "sh", "-c", "echo two >> notes.txt"]).code, Some(0));
    let site = Site::of(&world);
    let browser = site.browser("");
    let blank = {
        browser.go("about:blank");
        browser.picture().len()
    };
    assert_eq!(world.piton(["submit", "flaky.yml", "-i", "name=Zoe", "--id", "stands", "--json"]).code, Some(0));
    site.show(&browser, "#/runs/stands");
    browser.click_on("Debug");
    browser.wait("the dialog", "return document.querySelector('dialog .actions .primary') !== null");
    browser.click("dialog .actions .primary");
    stands(&browser, "Before Begin");
    browser.fill("#debug-node", "check");
    browser.click("[data-debug=break]");
    let places = [
        ("", "return document.querySelectorAll('.run-row').length === 6"),
        ("#/runs/stands", "return document.querySelector('[data-variable]') && document.querySelector('.stop')"),
        (
            "#/runs/bad?step=check",
            "return document.querySelector('.graph-node.failed') && document.querySelector('.detail h2')",
        ),
        ("#/runs/asks", "return document.querySelector('.question')"),
        ("#/runs/good?tab=checkpoints", "return document.querySelector('.entry')"),
        ("#/compare?from=bad&to=good", "return document.querySelector('.table.compare')"),
        ("#/files", "return document.querySelector('.moment')"),
        ("#/store", "return document.querySelector('.big')"),
        ("#/start", "return document.querySelector('#document')"),
    ];
    let kept = std::env::var_os("PITON_LOOK");
    for (width, colours) in [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")] {
        browser.size(width, 900);
        browser.colours(colours);
        for (place, there) in places {
            site.show(&browser, place);
            browser.wait(place, there);
            let found = faults(&browser, &axe);
            assert_eq!(found, json!([]), "{place} at {width} in {colours}");
            let picture = browser.picture();
            let bytes = picture.len();
            assert!(bytes > blank * 2, "{place} at {width} in {colours}: {bytes} bytes, {blank} of a blank page");
            if let Some(folder) = &kept {
                let name: String = place.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
                std::fs::write(Path::new(folder).join(format!("{width}-{colours}{name}.png")), picture).unwrap();
            }
        }
    }
    browser.is_clean();
    browser.run("document.querySelector('main').innerHTML = '<img src=/page/icon.svg><p style=\"color:#777\">x'");
    assert_ne!(faults(&browser, &axe), json!([]), "axe finds what is bad");
}

/// The colours follow the system until one is chosen; the choice stays.
#[test]
fn page_keeps_the_colours_that_were_chosen() {
    let world = World::with_run();
    let site = Site::of(&world);
    let browser = site.browser("");
    let ground = || browser.run("return getComputedStyle(document.body).backgroundColor").as_str().unwrap().to_owned();
    let light = ground();
    browser.colours("dark");
    assert_ne!(ground(), light);
    browser.click("#theme");
    assert_eq!(ground(), light, "light was chosen");
    site.show(&browser, "");
    assert_eq!(ground(), light, "it stays");
}

/// What a run says is text, whatever it looks like (promise 22): nothing of it becomes an element, a link or a script.
#[test]
fn page_takes_nothing_of_a_run_for_markup() {
    let world = World::new();
    let evil = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\"'>";
    world.write("<b>flow.yml", crate::world::THREE_NODES);
    let input = format!("name={evil}");
    assert_eq!(world.piton(["run", "<b>flow.yml", "-i", &input, "--id", "evil"]).code, Some(0));
    let site = Site::of(&world);
    let browser = site.browser("");
    browser.sees("<b>flow.yml");
    for place in
        ["#/runs/evil?step=greet", "#/runs/evil?tab=log", "#/runs/%3Cimg%20src=x%3E", "#/files?path=%3Cscript%3E"]
    {
        browser.go("about:blank");
        browser.go(&format!("{}/{place}", site.url));
        browser.wait("something", "return document.querySelector('main').innerText.length > 40");
        let made = "return document.querySelectorAll('main img, main script, main b b, iframe').length";
        assert_eq!(
            (browser.run(made), browser.run("return document.title.includes('owned')")),
            (json!(0), json!(false))
        );
    }
    site.show(&browser, "#/runs/evil?step=greet");
    browser.sees("<script>document.title='owned'</script>");
    browser.is_clean();
}

/// A browser without a session is asked for the token; a wrong one gets its message; a role sees only what it may do.
#[test]
fn page_signs_in_and_shows_what_a_role_may() {
    let world = World::new();
    troubled(&world);
    let site = Site::of(&world);
    let browser = Browser::open(1280, 900, "light");
    browser.go(&site.url);
    browser.fill("#token", "nonsense");
    browser.click_on("Sign in");
    browser.wait("the refusal", "return document.querySelector('.trouble') !== null");
    let folder = walk(&world.root()).into_iter().find(|path| path.ends_with("look.token"));
    let token = std::fs::read_to_string(folder.expect("the token of the role look")).unwrap();
    browser.fill("#token", token.trim());
    browser.click_on("Sign in");
    browser.sees("Role: look");
    browser.wait("the list", "return document.querySelectorAll('.run-row').length === 4");
    assert_eq!((browser.count(".pick"), browser.count("[data-bulk]")), (0, 0));
    site.show(&browser, "#/runs/asks");
    browser.sees("Your role may look, not answer.");
    assert_eq!(browser.count("[data-act=cancel]"), 0);
    browser.click_on("Sign out");
    browser.sees("Token");
    browser.is_clean();
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The types that the scripts of the page say they have hold.
#[test]
fn page_scripts_have_the_types_that_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-server");
    let check = |folder: &Path| {
        let config = folder.join("tests/page/tsconfig.json");
        Command::new("node").arg(tool("typescript/bin/tsc")).arg("-p").arg(config).output().unwrap()
    };
    let said = check(&root);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    // The check finds what it is there for.
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(root.join("page")).arg(root.join("tests")).arg(copy.path()).status();
    assert!(copied.unwrap().success());
    let words = copy.path().join("page/js/words.js");
    let text = std::fs::read_to_string(&words).unwrap();
    std::fs::write(&words, format!("{text}\nago(new Date());\n")).unwrap();
    assert!(!check(copy.path()).status.success(), "a wrong type is found");
}
