//! `knowledge-retrieval`: asks a knowledge base, by the published interface for external ones:
//! `POST URL/retrieval` with `{knowledge_id, query, retrieval_setting}` answers `{"records": […]}`. Gives
//! `result`, a list of `{content, title, metadata}`, the best first.

use async_trait::async_trait;
use http::Method;
use http::header::{self, HeaderValue};
use piton_model::ExposeSecret as _;
use piton_model::net::Request;
use piton_types::{Value, from_json, to_json};
use serde::Deserialize;

use crate::kind::{Build, Built};
use crate::need::Need;
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::outside::{AuditKind, Outside};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::value::{as_f64, to_text};

/// How many records are wanted unless the document says otherwise.
const TOP: u64 = 4;

#[derive(Debug, Deserialize)]
struct Data {
    /// What is looked for.
    query_variable_selector: Selector,
    /// Where; the configuration says what each is.
    dataset_ids: Vec<String>,
    /// How much comes back.
    #[serde(default)]
    multiple_retrieval_config: Option<Retrieval>,
}

#[derive(Debug, Default, Deserialize)]
struct Retrieval {
    /// How many pieces.
    #[serde(default)]
    top_k: Option<u64>,
    /// Pieces with less are left out.
    #[serde(default)]
    score_threshold: Option<f64>,
}

#[derive(Debug)]
struct KnowledgeRetrieval {
    query: Selector,
    datasets: Vec<String>,
    top: u64,
    threshold: f64,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let retrieval = data.multiple_retrieval_config.unwrap_or_default();
    Ok(Box::new(KnowledgeRetrieval {
        query: data.query_variable_selector,
        datasets: data.dataset_ids,
        top: retrieval.top_k.unwrap_or(TOP),
        threshold: retrieval.score_threshold.unwrap_or(0.0),
    }))
}

#[async_trait]
impl Node for KnowledgeRetrieval {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map([("query", to_text(&variables.select(&self.query)).into())]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.retrieve(inputs, context, outside)).await
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(vec!["result"])
    }

    fn references(&self) -> Vec<&Selector> {
        vec![&self.query]
    }

    fn needs(&self) -> Vec<Need> {
        self.datasets.iter().map(|dataset| Need::Knowledge { dataset: dataset.clone() }).collect()
    }
}

impl KnowledgeRetrieval {
    async fn retrieve(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let mut records = Vec::new();
        for dataset in &self.datasets {
            records.extend(self.ask(dataset, inputs, context, outside).await?);
        }
        // Of several knowledge bases the best come first; a sort that is stable keeps their own order.
        let score = |record: &Value| record.field("score").and_then(as_f64).unwrap_or_default();
        records.sort_by(|a, b| score(b).total_cmp(&score(a)));
        records.truncate(usize::try_from(self.top).unwrap_or(usize::MAX));
        let result = records.into_iter().map(|record| {
            let take = |key: &str| record.field(key).cloned().unwrap_or_default();
            let mut metadata = record.field("metadata").and_then(Value::as_map).cloned().unwrap_or_default();
            metadata.insert("score".to_owned(), take("score"));
            Value::map([("content", take("content")), ("title", take("title")), ("metadata", Value::Map(metadata))])
        });
        Ok(NodeOutput::of([("result", Value::List(result.collect()))]))
    }

    async fn ask(
        &self,
        dataset: &str,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<Vec<Value>, NodeError> {
        let failed = |message: String| NodeError::new("KnowledgeError", message);
        let missing = || failed(format!("there is no knowledge base {dataset:?}"));
        let knowledge = outside.knowledge(dataset).ok_or_else(missing)?;
        let setting = Value::map([("top_k", self.top.into()), ("score_threshold", self.threshold.into())]);
        let body = Value::map([
            ("knowledge_id", dataset.into()),
            ("query", inputs.field("query").cloned().unwrap_or_default()),
            ("retrieval_setting", setting),
        ]);
        let mut request = Request::new(Method::POST, format!("{}/retrieval", knowledge.url.trim_end_matches('/')));
        request.body = to_json(&body).map_err(|error| failed(error.to_string()))?.to_string().into();
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &knowledge.api_key {
            let value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()));
            let mut value = value.map_err(|_| failed("its key can't be sent".to_owned()))?;
            value.set_sensitive(true);
            request.headers.insert(header::AUTHORIZATION, value);
        }
        outside.governor().take_request(context.run_id())?;
        outside.record(context, AuditKind::Http, &format!("POST knowledge base {dataset}"))?;
        let sent = outside.configured().send(request).await;
        let mut response = sent.map_err(|error| Outside::net_error(&error))?;
        let status = response.status().as_u16();
        let bytes = response.bytes().await.map_err(|error| Outside::net_error(&error))?;
        if !response.status().is_success() {
            let message = format!("the knowledge base {dataset:?} answered {status}");
            return Err(if status >= 500 { NodeError::passing("KnowledgeError", message) } else { failed(message) });
        }
        let answer = from_json(&bytes).map_err(|error| failed(format!("its answer is not JSON: {error}")))?;
        let records = answer.field("records").and_then(Value::as_list);
        records.map(<[Value]>::to_vec).ok_or_else(|| failed("its answer has no records".to_owned()))
    }
}
