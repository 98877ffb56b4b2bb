//! What is done, by whom, and that it is written down.

use reqwest::Method;
use serde_json::json;

use crate::world::{ANSWER, ASKS, GREETS, LOOK, OPERATE, World, said, sending};

/// A program that waits for a file to go away.
fn holds(world: &World) -> String {
    let hold = world.work().join("hold");
    std::fs::write(&hold, "").unwrap();
    format!(
        "nodes:\n  - {{id: in, data: {{type: start}}}}\n  - {{id: work, data: {{type: command, command: [sh, -c, 'while test -e {}; do sleep 0.05; done; echo done']}}}}\n  - {{id: out, data: {{type: end, outputs: [{{variable: said, value_selector: [work, stdout]}}]}}}}\nedges: [{{source: in, target: work}}, {{source: work, target: out}}]\n",
        hold.display()
    )
}

/// A document and an input that are wrong are refused with their place, and nothing is run.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_start_is_said_at_its_field() {
    let world = World::new().await;
    let start = async |body| world.post("/api/runs", body).await;
    let (status, problem) = start(json!({ "document": "nodes: [{id: a, data: {type: nothing}}]" })).await;
    assert_eq!((status, problem["field"].as_str()), (422, Some("document")), "{problem}");
    assert!(problem["problems"][0]["message"].as_str().is_some(), "{problem}");
    let (status, problem) = start(json!({ "document": GREETS, "inputs": {} })).await;
    assert_eq!((status, problem["field"].as_str()), (422, Some("inputs.name")), "{problem}");
    for (body, field) in [
        (json!({}), "document"),
        (json!({ "document": GREETS, "x": 1 }), "x"),
        (json!({ "document": GREETS, "id": "../x" }), "id"),
        (json!({ "document": GREETS, "name": "../../x.yml" }), "name"),
        (json!({ "document": GREETS, "name": ".yml" }), "name"),
        (json!({ "document": GREETS, "submit": { "limit": "x" } }), "submit.limit"),
    ] {
        let (status, problem) = start(body.clone()).await;
        assert_eq!((status, problem["field"].as_str()), (400, Some(field)), "{body}: {problem}");
    }
    let (status, problem) = start(json!({ "document": "nodes:\n  - !include /etc/passwd", "name": "a.yml" })).await;
    assert!(status == 422 && !problem.to_string().contains("root:"), "{problem}");
    assert_eq!(world.get("/api/runs").await.1["runs"], json!([]), "nothing was run");
    let (status, checked) = world.post("/api/documents/check", json!({ "document": GREETS })).await;
    assert_eq!((status, &checked["valid"], &checked["file"]), (200, &json!(true), &json!("flow.yml")));
}

/// A question is waited for, answered by its form by one who may, and the run goes on in the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_by_its_form() {
    let world = World::new().await;
    assert_eq!(world.run(ASKS, json!({}), "asks").await["status"], "waiting");
    let (_, asked) = world.get("/api/runs/asks/questions?wait=10").await;
    assert_eq!(asked["questions"][0]["fields"][0]["name"], "amount", "{asked}");
    let reply = async |role, answer| {
        said(sending(world.by(role, Method::POST, "/api/runs/asks/answer"), &json!({ "answer": answer }))).await
    };
    assert_eq!(reply(LOOK, json!({ "amount": 3 })).await.0, 403);
    let (status, problem) = reply(ANSWER, json!({ "amount": "many" })).await;
    assert_eq!((status, problem["field"].as_str()), (422, Some("answer.amount")), "{problem}");
    let (status, problem) = reply(ANSWER, json!({})).await;
    assert_eq!((status, problem["field"].as_str()), (422, Some("answer.amount")), "{problem}");
    let (status, answered) = reply(ANSWER, json!({ "amount": 3 })).await;
    assert_eq!((status, &answered["resumed"], &answered["open"]), (200, &json!(true), &json!(0)), "{answered}");
    assert!(answered["by"].as_str().unwrap().starts_with("answer at 127.0.0.1"), "{answered}");
    let run = world.settled("asks").await;
    assert_eq!((&run["status"], &run["outputs"]["amount"]), (&json!("completed"), &json!(3)), "{run}");
    let (status, problem) = reply(ANSWER, json!({ "amount": 4 })).await;
    assert!((400..500).contains(&status), "{problem}");
}

/// A run that the server drives is stopped and goes on; one that is over is refused with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stopped_and_goes_on() {
    let world = World::new().await;
    let document = holds(&world);
    let (status, started) = world.post("/api/runs", json!({ "document": document, "id": "long" })).await;
    assert_eq!((status, started["run"].as_str()), (202, Some("long")), "{started}");
    let (status, problem) = world.post("/api/runs/long/resume", json!({})).await;
    assert_eq!((status, problem["kind"].as_str()), (409, Some("refused")), "{problem}");
    assert_eq!(world.get("/api/summary").await.1["here"], json!(["long"]));
    let (status, stopped) = world.post("/api/runs/long/stop", json!({ "reason": "lunch", "grace_s": 0 })).await;
    assert_eq!((status, stopped["run"].as_str()), (200, Some("long")), "{stopped}");
    assert_eq!(world.settled("long").await["status"], "paused");
    std::fs::remove_file(world.work().join("hold")).unwrap();
    let (status, said) = world.get("/api/runs/long/resume").await;
    assert_eq!((status, &said["refused"]), (200, &json!(false)), "{said}");
    let (status, resumed) = world.post("/api/runs/long/resume", json!({})).await;
    assert_eq!(status, 202, "{resumed}");
    let run = world.settled("long").await;
    assert_eq!((&run["status"], &run["outputs"]["said"]), (&json!("completed"), &json!("done\n")), "{run}");
    let (status, problem) = world.post("/api/runs/long/stop", json!({})).await;
    assert!(status == 200 || status == 409, "{problem}");
}

/// What should be seen first goes by a plan, which is done once, by its id.
#[tokio::test(flavor = "multi_thread")]
async fn plans_are_shown_then_done_once() {
    let world = World::new().await;
    world.run(ASKS, json!({}), "asks").await;
    let (status, plan) = world.post("/api/plans", json!({ "act": "cancel", "run": "asks", "reason": "enough" })).await;
    assert_eq!((status, plan["act"].as_str()), (201, Some("cancel")), "{plan}");
    assert!(plan["plan"].as_str().unwrap().contains("cancel run asks"), "{plan}");
    assert_eq!(world.get("/api/runs/asks").await.1["status"], "waiting", "a plan does nothing");
    let path = format!("/api/plans/{}/execute", plan["id"].as_str().unwrap());
    assert_eq!(said(sending(world.by(ANSWER, Method::POST, &path), &json!({}))).await.0, 403);
    let (status, done) = world.post(&path, json!({})).await;
    assert_eq!((status, done["status"].as_str()), (200, Some("cancelled")), "{done}");
    let (status, problem) = world.post(&path, json!({})).await;
    assert_eq!((status, problem["kind"].as_str()), (410, Some("gone")), "{problem}");
    let (status, plan) = world.post("/api/plans", json!({ "act": "gc" })).await;
    assert_eq!(status, 201, "{plan}");
    let forget = format!("/api/plans/{}", plan["id"].as_str().unwrap());
    assert_eq!(said(world.by(OPERATE, Method::DELETE, &forget)).await.0, 204);
    assert_eq!(world.post(&format!("{forget}/execute"), json!({})).await.0, 410);
    assert_eq!(world.post("/api/plans", json!({ "act": "explode" })).await.0, 400);
}

/// A failed run is tried again from a step; a fork with other inputs is a new run.
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_tried_again_and_branch_off() {
    let world = World::new().await;
    world.run(GREETS, json!({ "name": "Ada" }), "first").await;
    let fork = json!({ "set": { "name": "Bob" }, "id": "second", "start": true, "at": "first@0" });
    let (status, forked) = world.post("/api/runs/first/fork", fork).await;
    assert_eq!((status, &forked["started"]), (201, &json!(true)), "{forked}");
    let run = world.settled("second").await;
    assert_eq!(run["outputs"]["greeting"], "Hello Bob!", "{run}");
    let fails = "nodes:\n  - {id: in, data: {type: start}}\n  - {id: work, data: {type: command, command: [sh, -c, 'test -e good']}}\n  - {id: out, data: {type: end, outputs: []}}\nedges: [{source: in, target: work}, {source: work, target: out}]\n";
    assert_eq!(world.run(fails, json!({}), "fails").await["status"], "failed");
    let (_, page) = world.get("/api/runs?which=failed").await;
    assert!(page["runs"][0]["error"].as_str().is_some(), "{page}");
    std::fs::write(world.work().join("good"), "").unwrap();
    let (status, plan) = world.post("/api/plans", json!({ "act": "retry", "run": "fails" })).await;
    assert_eq!(status, 201, "{plan}");
    let (status, done) = world.post(&format!("/api/plans/{}/execute", plan["id"].as_str().unwrap()), json!({})).await;
    assert_eq!((status, &done["started"]), (200, &json!(true)), "{done}");
    assert_eq!(world.settled("fails").await["status"], "completed");
}

/// Files: a change is shown as a plan with its lines, undone by the plan's id, and redone; a plan that the folder has
/// left behind is refused.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_restored_by_the_plan_that_was_shown() {
    let world = World::new().await;
    let file = world.work().join("a.txt");
    std::fs::write(&file, "one\n").unwrap();
    let (status, saved) = world.post("/api/save", json!({ "message": "first" })).await;
    assert_eq!(status, 200, "{saved}");
    let first = saved["id"].as_str().unwrap().to_owned();
    std::fs::write(&file, "two\n").unwrap();
    let (_, now) = world.get("/api/files/status").await;
    assert_eq!((&now["changes"][0]["path"], &now["made_by"]), (&json!("a.txt"), &json!("user")), "{now}");
    let (_, diff) = world.get("/api/diff/files?lines=true").await;
    assert!(diff["changes"][0]["diff"].as_str().unwrap().contains("+two"), "{diff}");

    let restore = json!({ "act": "restore", "to": first, "exact": true });
    let (status, plan) = world.post("/api/plans", restore.clone()).await;
    assert_eq!((status, &plan["files"]["changes"][0]["path"]), (201, &json!("a.txt")), "{plan}");
    let id = plan["id"].as_str().unwrap();
    let (_, diff) = world.get(&format!("/api/plans/{id}/diff?path=a.txt")).await;
    assert!(diff["diff"].as_str().unwrap().contains("+one"), "{diff}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "two\n", "a plan does nothing");
    std::fs::write(&file, "three\n").unwrap();
    let (status, problem) = world.post(&format!("/api/plans/{id}/execute"), json!({})).await;
    assert_eq!(status, 409, "{problem}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "three\n", "the folder moved since: nothing is written");
    let act = async |wanted| {
        let (status, plan) = world.post("/api/plans", wanted).await;
        assert_eq!(status, 201, "{plan}");
        let (status, done) =
            world.post(&format!("/api/plans/{}/execute", plan["id"].as_str().unwrap()), json!({})).await;
        assert_eq!(status, 200, "{done}");
        std::fs::read_to_string(&file).unwrap()
    };
    assert_eq!(act(restore).await, "one\n");
    assert_eq!(act(json!({ "act": "undo" })).await, "three\n");
    assert_eq!(act(json!({ "act": "redo" })).await, "one\n");
    let (_, line) = world.get("/api/files/timeline").await;
    let roles: Vec<_> =
        line["moments"].as_array().unwrap().iter().map(|moment| moment["role"].as_str().unwrap()).collect();
    assert_eq!((roles.first(), roles.last()), (Some(&"restored"), Some(&"saved")), "{line}");
    let (_, page) = world.get("/api/files/timeline?limit=1").await;
    assert_eq!(page["moments"].as_array().unwrap().len(), 1);
    let (status, rest) = world.get(&format!("/api/files/timeline?before={}", page["next"].as_str().unwrap())).await;
    assert_eq!((status, rest["moments"].as_array().unwrap().len()), (200, roles.len() - 1), "{rest}");
    let (_, taken) = world.post("/api/files/leases", json!({ "paths": ["a.txt"], "owner": "me" })).await;
    assert_eq!(taken["leases"][0]["path"], "a.txt", "{taken}");
    let (status, problem) = world.post("/api/files/leases", json!({ "paths": ["a.txt"], "owner": "you" })).await;
    assert_eq!(status, 409, "{problem}");
    let (status, problem) = world.post("/api/files/leases", json!({ "paths": ["../x"], "owner": "me" })).await;
    assert_eq!(status, 400, "{problem}");
}

/// Each act is written down with who did it, before it is done, and what is sent isn't; looks aren't.
#[tokio::test(flavor = "multi_thread")]
async fn acts_are_in_the_audit_log() {
    let world = World::new().await;
    world.run(GREETS, json!({ "name": "secret-of-Ada" }), "r").await;
    world.get("/api/runs").await;
    assert_eq!(world.post("/api/runs/none/stop", json!({})).await.0, 404);
    let (_, audit) = world.get("/api/audit").await;
    let acts: Vec<_> = audit["acts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|act| {
            [&act["act"], &act["subject"], &act["by"], &act["from"], &act["status"]].map(ToString::to_string).join(" ")
        })
        .collect();
    assert_eq!(acts, [r#""stop" "none" "operate" "127.0.0.1" 404"#, r#""start" "" "operate" "127.0.0.1" 202"#,]);
    assert!(!audit.to_string().contains("secret-of-Ada"));
}

/// A run is put into the queue, and what waits is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_submitted() {
    let world = World::new().await;
    let submit = json!({ "priority": 5, "dedupe": "k" });
    let body = json!({ "document": GREETS, "inputs": { "name": "Ada" }, "submit": submit });
    let (status, first) = world.post("/api/runs", body.clone()).await;
    assert_eq!((status, &first["is_new"]), (202, &json!(true)), "{first}");
    assert_eq!(world.post("/api/runs", body).await.1["is_new"], false);
    let (status, queue) = world.get("/api/queue").await;
    assert_eq!(
        (status, &queue["depth"]["due"], &queue["queue"][0]["queue"]["priority"]),
        (200, &json!(1), &json!(5)),
        "{queue}"
    );
    assert_eq!(world.get("/api/workers").await.1["workers"], json!([]));
}
