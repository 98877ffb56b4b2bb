//! Who answers.

use async_trait::async_trait;

use super::error::ChatError;
use super::provider::{Price, Provider};
use super::stream::ChatStream;
use super::{ChatRequest, Usage};
use crate::net::Client;

/// A language model, or several behind one name. A program that has its own implements this; what an endpoint offers is
/// a [`Remote`].
///
/// ```
/// use piton_model::chat::{ChatAnswer, ChatError, ChatRequest, ChatStream, Model};
///
/// struct Parrot;
///
/// #[async_trait::async_trait]
/// impl Model for Parrot {
///     async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError> {
///         let asked = request.messages.last().map(|message| message.plain()).unwrap_or_default();
///         Ok(ChatAnswer::text(asked).into())
///     }
/// }
/// ```
#[async_trait]
pub trait Model: Send + Sync {
    /// Answers a request. Returns once the answer begins.
    ///
    /// # Errors
    ///
    /// Every kind of [`ChatError`] that can occur before the answer.
    async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError>;

    /// The model for requests that name none.
    fn default_model(&self) -> Option<&str> {
        None
    }

    /// What a model costs, if that is known.
    fn price(&self, _model: &str) -> Option<Price> {
        None
    }
}

impl Price {
    /// What so many tokens cost.
    pub fn of(self, usage: Usage) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "no request has 2^53 tokens")]
        let (input, output) = (usage.input as f64, usage.output as f64);
        (input * self.input + output * self.output) / 1e6
    }
}

/// The models of an endpoint, reached by a client.
#[derive(Debug, Clone)]
pub struct Remote {
    /// Where they are.
    pub provider: Provider,
    /// The way there.
    pub client: Client,
}

#[async_trait]
impl Model for Remote {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError> {
        self.provider.chat(&self.client, request).await
    }

    fn default_model(&self) -> Option<&str> {
        self.provider.default_model.as_deref()
    }

    fn price(&self, model: &str) -> Option<Price> {
        self.provider.prices.get(model).copied()
    }
}
