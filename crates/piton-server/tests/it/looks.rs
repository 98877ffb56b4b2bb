//! What is shown.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;

use crate::world::{ANSWER, GREETS, LOOK, OPERATE, World, said};

/// Runs come in pages, and filters are the store's.
#[tokio::test(flavor = "multi_thread")]
async fn runs_come_in_pages_by_filters() {
    let world = World::new().await;
    for (id, name) in [("a-1", "Ada"), ("a-2", "Bob"), ("b-1", "Cy")] {
        assert_eq!(world.run(GREETS, json!({ "name": name }), id).await["status"], "completed");
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = world.get(&format!("/api/runs?limit=2{cursor}")).await;
        assert_eq!(status, 200, "{page}");
        seen.extend(page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["b-1", "a-2", "a-1"]);
    let ids = async |query: &str| {
        let (status, page) = world.get(&format!("/api/runs?{query}")).await;
        assert_eq!(status, 200, "{page}");
        page["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("text=a-").await, ["a-2", "a-1"]);
    assert_eq!(ids("status=failed,waiting").await, Vec::<String>::new());
    assert_eq!(ids("status=completed&kind=workflow&since=1h").await.len(), 3);
    assert_eq!(ids("which=failed").await.len(), 0);
    let folder = world.work();
    assert_eq!(ids(&format!("folder={}", folder.display())).await.len(), 3);
    assert_eq!(ids("folder=/elsewhere").await.len(), 0);
    for (query, field) in
        [("limit=0", "limit"), ("which=x", "which"), ("status=x", "status"), ("since=soon", "since"), ("no=1", "no")]
    {
        let (status, problem) = world.get(&format!("/api/runs?{query}")).await;
        assert_eq!((status, problem["field"].as_str()), (400, Some(field)), "{problem}");
    }
    assert_eq!(world.get("/api/runs?cursor=x").await.0, 400);
}

/// A run, its steps in pages, its entries, its checkpoints, a step by its reference.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_shown_with_its_steps() {
    let world = World::new().await;
    let large = "x".repeat(10_000);
    let run = world.run(GREETS, json!({ "name": large }), "r").await;
    assert_eq!(
        (&run["status"], &run["stalled"], &run["driven_here"]),
        (&json!("completed"), &json!(false), &json!(false))
    );
    let (_, page) = world.get("/api/runs/r/steps?limit=2").await;
    let names = |page: &serde_json::Value| {
        page["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["step"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&page), ["out", "greet"]);
    let greet = &page["steps"][1];
    assert_eq!((&greet["output"], greet["output_bytes"].as_u64() > Some(10_000)), (&json!(null), true), "{greet}");
    let (_, rest) = world.get(&format!("/api/runs/r/steps?before={}", page["next"].as_str().unwrap())).await;
    assert_eq!((names(&rest), &rest["next"]), (vec!["in".to_owned()], &json!(null)));
    let (_, whole) = world.get("/api/runs/r/steps?values=true").await;
    assert!(whole["steps"][1]["output"].to_string().len() > 10_000);
    let (status, step) = world.get("/api/show?ref=r/greet").await;
    assert_eq!((status, step["status"].as_str()), (200, Some("completed")));
    assert!(step["output"].to_string().contains(&large), "what was left out is there when it is opened");
    let (_, log) = world.get("/api/runs/r/log?limit=3").await;
    assert_eq!(log["entries"].as_array().unwrap().len(), 3);
    let (_, events) = world.get("/api/runs/r/events?limit=2").await;
    assert_eq!((events["events"][0]["seq"].as_u64(), &events["next"]), (Some(0), &json!(1)));
    let (_, events) = world.get("/api/runs/r/events?after=1&limit=1").await;
    assert_eq!(events["events"][0]["seq"], 2);
    let (status, graph) = world.get("/api/runs/r/graph").await;
    let boxes = graph["nodes"].as_array().unwrap();
    assert_eq!((status, boxes.len(), graph["edges"].as_array().unwrap().len()), (200, 3, 2), "{graph}");
    assert!(
        boxes.iter().all(|node| node["state"] == "completed" && node["runs"] == 1 && node["x"].is_number()),
        "{graph}"
    );
    let (status, problem) = world.get("/api/runs/none").await;
    assert_eq!((status, problem["kind"].as_str()), (404, Some("not_found")), "{problem}");
    assert_eq!(problem["type"], "about:blank");
    let (status, problem) = world.get("/api/show?ref=..%2Fx").await;
    assert_eq!((status, problem["field"].as_str()), (400, Some("ref")), "{problem}");
}

/// Two runs are compared, and what a summary counts is what there is.
#[tokio::test(flavor = "multi_thread")]
async fn two_runs_are_compared_and_all_are_counted() {
    let world = World::new().await;
    world.run(GREETS, json!({ "name": "Ada" }), "a").await;
    world.run(GREETS, json!({ "name": "Bob" }), "b").await;
    let (status, diff) = world.get("/api/diff/runs?from=a&to=b").await;
    assert_eq!(status, 200, "{diff}");
    assert!(diff["changes"].to_string().contains("Ada"), "{diff}");
    let (_, summary) = world.get("/api/summary").await;
    assert_eq!((&summary["counts"]["completed"], &summary["today"]["runs"]), (&json!(2), &json!(2)), "{summary}");
    let (_, store) = world.get("/api/store").await;
    assert_eq!(store["runs"], 2);
    assert!(store["bytes"].as_u64() > Some(0), "{store}");
    let (status, metrics) = world.get("/metrics").await;
    let metrics = metrics.as_str().unwrap().to_owned();
    assert_eq!(status, 200);
    for line in ["piton_runs{state=\"completed\"} 2", "piton_steps_total{result=\"completed\"} 6"] {
        assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    }
    assert!(metrics.contains("piton_store_call_seconds{call=\"commit\",quantile=\"0.99\"}"), "{metrics}");
}

/// The description is made from the routes: each that it names is there, takes what it says, and asks for
/// the role that it says.
#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_what_the_server_does() {
    let world = World::new().await;
    let (status, api) = world.get("/api/openapi.json").await;
    assert_eq!((status, api["openapi"].as_str()), (200, Some("3.1.0")));
    let schemas = api["components"]["schemas"].as_object().unwrap();
    // Each reference leads somewhere.
    let text = api.to_string();
    let named: BTreeSet<&str> =
        text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(named.len() > 10 && named.iter().all(|name| schemas.contains_key(*name)), "{named:?}");
    let mut asked = 0;
    for (path, operations) in api["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let filled = path.replace("{run}", "none").replace("{id}", "none");
            let Some(role) = operation["x-role"].as_str() else {
                assert_eq!(operation["security"], json!([]), "{path}");
                continue;
            };
            let roles = ["look", "answer", "operate"];
            let needed = roles.iter().position(|known| *known == role).unwrap();
            for (is, name) in [LOOK, ANSWER, OPERATE].into_iter().zip(roles) {
                // An unknown parameter is refused before anything is done, but after the role was looked at.
                let request = world.by(is, method.clone(), &format!("{filled}?no_such=1"));
                let (status, problem) = said(request).await;
                let expected = if is < needed { 403 } else { 400 };
                assert_eq!(status, expected, "{method} {path} by {name}: {problem}");
                asked += 1;
            }
            let bare = world.bare(method.clone(), &filled).send().await.unwrap();
            assert_eq!(bare.status(), 401, "{method} {path}");
            assert_eq!(bare.headers()["content-type"], "application/problem+json");
            let takes_body = operation.get("requestBody").is_some();
            if takes_body {
                let request = world.by(needed, method.clone(), &filled).header("content-type", "text/plain").body("{}");
                assert_eq!(said(request).await.0, 415, "{path}");
            }
        }
    }
    assert!(asked > 90, "{asked}");
}
