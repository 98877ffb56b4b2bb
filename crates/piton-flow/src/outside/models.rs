//! Asking a model: which provider, whether it may be asked, what it took, when to ask again.

use std::borrow::Cow;
use std::time::Duration;

use piton_model::chat::{ChatAnswer, ChatError, ChatRequest, ChatStream, Delta, Model};
use piton_types::TokenUsage;

use super::{AuditKind, Outside};
use crate::node::{NodeContext, NodeError};

/// The longest wait that a provider may ask for before the node fails, and how often it may.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const MOST_WAITS: u32 = 2;

/// Whether a provider of this name is meant: exports name them with the plugin that they come from, as in
/// `langgenius/openai/openai`.
pub(super) fn is(name: &str, wanted: &str) -> bool {
    name == wanted || wanted.rsplit('/').next() == Some(name)
}

/// What a model said, and what that took.
pub(crate) struct Said {
    pub(crate) answer: ChatAnswer,
    pub(crate) cost: Option<f64>,
    pub(crate) seconds: f64,
}

impl Outside {
    /// Who answers in the name of a provider.
    fn model(&self, wanted: &str) -> Result<&dyn Model, NodeError> {
        let found = self.models.get(wanted).or_else(|| {
            let mut fitting = self.models.iter().filter(|(name, _)| is(name, wanted));
            fitting.next().map(|(_, model)| model)
        });
        found
            .map(|model| &**model)
            .ok_or_else(|| NodeError::new("ModelError", format!("LLM provider '{wanted}' not found")))
    }

    /// Asks a model. Pieces of its text are told as `variable` if there is one.
    pub(crate) async fn ask(
        &self,
        context: &NodeContext<'_>,
        provider_name: &str,
        request: &ChatRequest,
        variable: Option<&str>,
    ) -> Result<Said, NodeError> {
        let provider = self.model(provider_name)?;
        let named = request.model.as_deref().filter(|name| !name.is_empty()).or_else(|| provider.default_model());
        let model = named.ok_or_else(|| NodeError::new("ModelError", "no model is named"))?.to_owned();
        let price = provider.price(&model);
        self.governor.may_ask(context.run_id(), &model, price.is_some())?;
        self.record(context, AuditKind::Model, &format!("{provider_name} {model}"))?;
        let started = context.clock().monotonic();
        let (mut waits, mut request) = (0, Cow::Borrowed(request));
        let stream = loop {
            match provider.chat(&request).await {
                Ok(stream) => break stream,
                Err(error) => match error.retry_after().filter(|wait| *wait <= LONGEST_WAIT && waits < MOST_WAITS) {
                    Some(wait) => {
                        waits += 1;
                        // It was answered, so this is another call.
                        if let Some(key) = &request.key {
                            let key = key.split('+').next().unwrap_or_default();
                            let key = Some(format!("{key}+{waits}"));
                            request = Cow::Owned(ChatRequest { key, ..request.into_owned() });
                        }
                        context.sleep(wait).await;
                    }
                    None => return Err(chat_error(&error)),
                },
            }
        };
        let answer = self.listen(context, stream, variable).await?;
        let usage = answer.usage.unwrap_or_default();
        let cost = answer.usage.zip(price).map(|(usage, price)| price.of(usage));
        self.governor.asked(context.run_id(), usage, cost);
        let cost_known = cost.unwrap_or_default();
        context.used(TokenUsage { input: usage.input, output: usage.output, cost: cost_known });
        let seconds = context.clock().monotonic().saturating_sub(started).as_secs_f64();
        Ok(Said { answer, cost, seconds })
    }

    async fn listen(
        &self,
        context: &NodeContext<'_>,
        mut stream: ChatStream,
        variable: Option<&str>,
    ) -> Result<ChatAnswer, NodeError> {
        if let Some(variable) = variable {
            while let Some(delta) = stream.next().await.map_err(|error| chat_error(&error))? {
                if let Delta::Text(text) = delta {
                    context.text(variable, &text).await;
                }
            }
        }
        stream.finish().await.map_err(|error| chat_error(&error))
    }
}

pub(crate) fn chat_error(error: &ChatError) -> NodeError {
    match error {
        ChatError::Net(error) => Outside::net_error(error),
        error if error.is_retryable() => NodeError::passing("ModelError", error.to_string()),
        error => NodeError::new("ModelError", error.to_string()),
    }
}
