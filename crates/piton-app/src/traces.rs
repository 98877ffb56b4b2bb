//! OpenTelemetry: a run that is driven is a span, and each of its steps is one in it. Spans that ended are sent to the
//! collector that the user's environment names, by OTLP over HTTP as JSON. Values, prompts and answers aren't in them.
//!
//! All that drive a run have one trace, also after a crash and on other machines: its id is made of the run. The run
//! waits for the collector only when it is over, and not for long; what can't be sent is lost, and told of once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use piton_model::net::{Client, NetPolicy, Request};
use piton_runtime::Listener;
use piton_store::Store;
use piton_types::{Event, RunId, StepPath, TokenUsage};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::failure::Failure;

/// Spans that may wait to be sent; more are lost.
const WAITING: usize = 4096;
/// Spans in one request.
const BATCH: usize = 512;
/// How long spans are gathered before they are sent.
const GATHERED: Duration = Duration::from_millis(500);
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where spans are sent.
struct Collector {
    client: Client,
    url: String,
    headers: HeaderMap,
    service: String,
}

impl Collector {
    /// The one that the environment names, as OpenTelemetry defines it.
    fn of(app: &App) -> Result<Option<Self>, Failure> {
        if app.variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let below = |base: String| format!("{}/v1/traces", base.trim_end_matches('/'));
        let own = app.variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let Some(url) = own.or_else(|| app.variable("OTEL_EXPORTER_OTLP_ENDPOINT").map(below)) else {
            return Ok(None);
        };
        let wrong = |what: &str| {
            Failure::fixable(format!("traces can't be sent: {what}"))
                .hint("mend the variables OTEL_EXPORTER_OTLP_…, or set OTEL_SDK_DISABLED=true.")
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(wrong("the collector's address begins with neither http:// nor https://"));
        }
        let mut headers = HeaderMap::new();
        let said = app.variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS");
        let said = said.or_else(|| app.variable("OTEL_EXPORTER_OTLP_HEADERS")).unwrap_or_default();
        for pair in said.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let header = pair.split_once('=').and_then(|(name, value)| {
                let mut value: HeaderValue = unescaped(value.trim())?.parse().ok()?;
                value.set_sensitive(true);
                Some((name.trim().parse::<HeaderName>().ok()?, value))
            });
            let (name, value) = header.ok_or_else(|| wrong("its headers should be NAME=VALUE, with commas between"))?;
            headers.insert(name, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // The user of this machine named it, so it may be anywhere.
        let client = Client::new(NetPolicy::open()).map_err(|error| wrong(&error.to_string()))?;
        let service = app.variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "piton".to_owned());
        Ok(Some(Self { client, url, headers, service }))
    }

    /// Sends spans. The error is why they are lost.
    async fn send(&self, spans: Vec<Json>) -> Result<(), String> {
        let version = env!("CARGO_PKG_VERSION");
        let resource = [text("service.name", &self.service), text("service.version", version)];
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "piton", "version": version }, "spans": spans }],
        }] });
        let request = Request {
            headers: self.headers.clone(),
            body: body.to_string().into(),
            timeout: Some(PATIENCE),
            ..Request::new(Method::POST, &self.url)
        };
        let answer = self.client.send(request).await.map_err(|error| error.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("the collector answered {}", answer.status())) }
    }
}

/// What percent signs stand for.
fn unescaped(value: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    loop {
        rest = match rest {
            [] => break,
            [b'%', high, low, more @ ..] => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
                more
            }
            [byte, more @ ..] => {
                bytes.push(*byte);
                more
            }
        };
    }
    String::from_utf8(bytes).ok()
}

/// A span, which is open until it has an end.
struct Span {
    run: RunId,
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    /// None is the run itself.
    step: Option<StepPath>,
    begun: Duration,
    ended: Duration,
    attributes: Vec<Json>,
    events: Vec<Json>,
    error: Option<String>,
}

struct Open {
    /// Where spans go that ended; none once the run is over.
    sender: Option<mpsc::Sender<Span>>,
    run: Option<Span>,
    steps: HashMap<StepPath, Span>,
    /// Spans so far.
    number: u64,
    lost: usize,
}

/// The spans of a run that is driven.
pub(crate) struct Tracing {
    open: Arc<Mutex<Open>>,
    sending: JoinHandle<Result<(), String>>,
}

impl Tracing {
    /// Begins, if the environment names a collector.
    pub(crate) fn start(app: &App, store: Arc<dyn Store>) -> Result<Option<Self>, Failure> {
        let Some(collector) = Collector::of(app)? else { return Ok(None) };
        let (sender, ended) = mpsc::channel(WAITING);
        let sending = tokio::spawn(send_all(collector, store, ended));
        let open = Open { sender: Some(sender), run: None, steps: HashMap::new(), number: 0, lost: 0 };
        Ok(Some(Self { open: Arc::new(Mutex::new(open)), sending }))
    }

    /// A listener that tells `next` too.
    pub(crate) fn listener(&self, next: Listener) -> Listener {
        let open = Arc::clone(&self.open);
        Listener::new(move |event| {
            open.lock().unwrap_or_else(PoisonError::into_inner).take(event);
            next.pass_on(event);
        })
    }

    /// The run isn't driven any more, for the reason that there may be. Waits until all is sent, but not for ever.
    pub(crate) async fn finish(self, app: &App, status: &str, error: Option<&str>) {
        let Self { open, sending } = self;
        let lost = {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let now = now();
            for (_, mut span) in std::mem::take(&mut open.steps) {
                span.attributes.push(json!({ "key": "piton.interrupted", "value": { "boolValue": true } }));
                open.end(span, now);
            }
            if let Some(mut span) = open.run.take() {
                span.attributes.push(text("piton.status", status));
                span.error = error.map(str::to_owned);
                open.end(span, now);
            }
            // What is sent ends with it.
            open.sender = None;
            open.lost
        };
        let sent = tokio::time::timeout(2 * PATIENCE, sending).await;
        let why = match sent {
            Ok(Ok(Ok(()))) if lost == 0 => return,
            Ok(Ok(Ok(()))) => format!("{lost} spans were too many at once"),
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => "sending them has panicked".to_owned(),
            Err(_) => "the collector takes too long".to_owned(),
        };
        app.warn(&format!("traces were lost: {why}"));
    }
}

impl Open {
    fn take(&mut self, event: &Event) {
        let now = now();
        match event {
            Event::RunStarted { run, resumed } if self.run.is_none() => {
                let mut span = self.span(run, None, now);
                span.attributes.push(text("piton.run", run.as_str()));
                span.attributes.push(json!({ "key": "piton.resumed", "value": { "boolValue": resumed } }));
                self.run = Some(span);
            }
            Event::StepStarted { run, step, title } => {
                let mut span = self.span(run, Some(step), now);
                span.attributes.extend(title.as_deref().map(|title| text("piton.title", title)));
                self.steps.insert(step.clone(), span);
            }
            Event::StepRetried { step, attempt, error, .. } => {
                if let Some(span) = self.steps.get_mut(step) {
                    let said = [number("piton.attempt", u64::from(*attempt)), text("error.message", error)];
                    span.events.push(happened("retry", now, &said));
                }
            }
            Event::StepFinished { run, step, duration, usage } => {
                let mut span = self.steps.remove(step).unwrap_or_else(|| self.span(run, Some(step), now));
                // Steps that end at once are told of together, later.
                span.begun = span.begun.min(now.saturating_sub(*duration));
                span.attributes.extend(used(usage));
                self.end(span, now);
            }
            Event::StepFailed { run, step, error } => {
                let mut span = self.steps.remove(step).unwrap_or_else(|| self.span(run, Some(step), now));
                span.error = Some(error.clone());
                self.end(span, now);
            }
            Event::CheckpointSaved { checkpoint, .. } => {
                let said = [text("piton.checkpoint", &checkpoint.to_string())];
                self.run.iter_mut().for_each(|span| span.events.push(happened("checkpoint", now, &said)));
            }
            Event::RunPaused { .. } => {
                self.run.iter_mut().for_each(|span| span.events.push(happened("paused", now, &[])));
            }
            _ => {}
        }
    }

    fn span(&mut self, run: &RunId, step: Option<&StepPath>, now: Duration) -> Span {
        self.number += 1;
        let seed = format!("{run}\0{}\0{}\0{}", std::process::id(), now.as_nanos(), self.number);
        let above = |step: &StepPath| {
            let mut path = step.as_str();
            while let Some((above, _)) = path.rsplit_once('/') {
                if let Some(span) = above.parse::<StepPath>().ok().and_then(|above| self.steps.get(&above)) {
                    return Some(span.id);
                }
                path = above;
            }
            None
        };
        let parent = step.and_then(|step| above(step).or(self.run.as_ref().map(|run| run.id)));
        let mut attributes = Vec::new();
        attributes.extend(step.map(|step| text("piton.step", step.as_str())));
        Span {
            run: run.clone(),
            id: first(&blake3::hash(seed.as_bytes())),
            parent,
            step: step.cloned(),
            begun: now,
            ended: now,
            attributes,
            events: Vec::new(),
            error: None,
        }
    }

    fn end(&mut self, mut span: Span, now: Duration) {
        span.ended = now;
        if let Some(sender) = &self.sender
            && sender.try_send(span).is_err()
        {
            self.lost += 1;
        }
    }
}

/// Sends what has ended until nothing more comes. The error is why the first that were lost are.
async fn send_all(collector: Collector, store: Arc<dyn Store>, mut ended: mpsc::Receiver<Span>) -> Result<(), String> {
    let mut runs: HashMap<RunId, (String, String)> = HashMap::new();
    let mut all_sent = Ok(());
    let mut spans = Vec::new();
    while ended.recv_many(&mut spans, BATCH).await > 0 {
        let more = async {
            while spans.len() < BATCH
                && let Some(span) = ended.recv().await
            {
                spans.push(span);
            }
        };
        let _ = tokio::time::timeout(GATHERED, more).await;
        let mut made = Vec::with_capacity(spans.len());
        for span in spans.drain(..) {
            if !runs.contains_key(&span.run) {
                let summary = store.summary(&span.run).await.ok().flatten();
                let (name, at) = summary.map_or_else(
                    || (span.run.to_string(), 0),
                    |summary| (summary.name, summary.created_at.as_millis()),
                );
                // Runs of the same id in other stores were made at another moment.
                let trace = blake3::hash(format!("piton trace\0{}\0{at}", span.run).as_bytes());
                runs.insert(span.run.clone(), (name, hex(&first::<16>(&trace))));
            }
            let (name, trace) = &runs[&span.run];
            made.push(span.json(name, trace));
        }
        let sent = collector.send(made).await;
        all_sent = all_sent.and(sent);
    }
    all_sent
}

impl Span {
    fn json(self, run: &str, trace: &str) -> Json {
        let name = match &self.step {
            Some(step) => step.as_str().rsplit('/').next().unwrap_or_default().to_owned(),
            None => run.to_owned(),
        };
        let mut span = json!({
            "traceId": trace,
            "spanId": hex(&self.id),
            "name": name,
            "kind": 1,
            "startTimeUnixNano": self.begun.as_nanos().to_string(),
            "endTimeUnixNano": self.ended.as_nanos().to_string(),
            "attributes": self.attributes,
            "events": self.events,
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = hex(&parent).into();
        }
        if let Some(error) = self.error {
            span["status"] = json!({ "code": 2, "message": error });
        }
        span
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn first<const N: usize>(hash: &blake3::Hash) -> [u8; N] {
    std::array::from_fn(|place| hash.as_bytes()[place])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Numbers are texts in this JSON.
fn number(key: &str, value: u64) -> Json {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn happened(name: &str, at: Duration, attributes: &[Json]) -> Json {
    json!({ "name": name, "timeUnixNano": at.as_nanos().to_string(), "attributes": attributes })
}

/// By the names that OpenTelemetry has for models.
fn used(usage: &TokenUsage) -> Vec<Json> {
    if usage.is_zero() {
        return Vec::new();
    }
    vec![
        number("gen_ai.usage.input_tokens", usage.input),
        number("gen_ai.usage.output_tokens", usage.output),
        json!({ "key": "piton.cost", "value": { "doubleValue": usage.cost } }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_unescaped() {
        assert_eq!(unescaped("Bearer%20a%3Db").as_deref(), Some("Bearer a=b"));
        assert_eq!(unescaped("%zz"), None);
        assert_eq!(unescaped("%4").as_deref(), Some("%4"));
    }
}
