//! An answer as it comes in.

use std::fmt;
use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use http::header;
use piton_types::{Value, from_json};
use sse_stream::{Sse, SseStream};

use super::error::ChatError;
use super::provider::Wire;
use super::{ChatAnswer, anthropic, openai};
use crate::net::{NetError, Response};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// More of what it thinks before it answers.
    Reasoning(String),
}

type Events = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

enum Source {
    Whole(Box<Response>),
    Events(Events),
    Pieces(Pin<Box<dyn Stream<Item = Result<Delta, ChatError>> + Send>>),
    Ended,
}

/// An answer that is coming in.
pub struct ChatStream {
    wire: Wire,
    source: Source,
    answer: ChatAnswer,
    /// Whether the wire's own sign of the end was seen.
    complete: bool,
}

impl fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream").field("wire", &self.wire).field("answer", &self.answer).finish_non_exhaustive()
    }
}

impl ChatStream {
    pub(super) fn new(wire: Wire, response: Response) -> Self {
        // What the server says it sends decides, not what was asked for: some don't stream.
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let source = if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            Source::Events(Box::pin(SseStream::from_bytes_stream(response.into_stream())))
        } else {
            Source::Whole(Box::new(response))
        };
        Self { wire, source, answer: ChatAnswer::default(), complete: false }
    }

    /// An answer of a [`Model`](super::Model) in pieces. `rest` has what isn't text: calls of tools, tokens, why it ends.
    pub fn of_pieces(pieces: impl Stream<Item = Result<Delta, ChatError>> + Send + 'static, rest: ChatAnswer) -> Self {
        Self { wire: Wire::default(), source: Source::Pieces(Box::pin(pieces)), answer: rest, complete: true }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    ///
    /// What went wrong; the stream is at its end then.
    pub async fn next(&mut self) -> Result<Option<Delta>, ChatError> {
        let next = self.advance().await;
        if !matches!(next, Ok(Some(_))) {
            self.source = Source::Ended;
        }
        next
    }

    async fn advance(&mut self) -> Result<Option<Delta>, ChatError> {
        loop {
            let events = match &mut self.source {
                Source::Ended => return Ok(None),
                Source::Whole(response) => {
                    let body = response.bytes().await?;
                    self.source = Source::Ended;
                    return self.whole(body);
                }
                Source::Pieces(pieces) => {
                    let delta = pieces.next().await.transpose()?;
                    match &delta {
                        Some(Delta::Text(text)) => self.answer.text.push_str(text),
                        Some(Delta::Reasoning(text)) => self.answer.reasoning.push_str(text),
                        None => {}
                    }
                    return Ok(delta);
                }
                Source::Events(events) => events,
            };
            let Some(event) = events.next().await else {
                return if self.complete { Ok(None) } else { Err(ChatError::Closed) };
            };
            let event = event.map_err(broken)?;
            let Some(data) = event.data else { continue };
            if data.trim() == "[DONE]" {
                self.complete = true;
                return Ok(None);
            }
            let value = parse(data.as_bytes())?;
            let delta = match self.wire {
                Wire::OpenAi => openai::event(&mut self.answer, &value)?,
                Wire::Anthropic => anthropic::event(&mut self.answer, &value)?,
            };
            // Not every server of the OpenAI wire says `[DONE]`; a reason to stop is as good.
            self.complete |= match self.wire {
                Wire::OpenAi => self.answer.finish.is_some(),
                Wire::Anthropic => value.field("type").and_then(Value::as_str) == Some("message_stop"),
            };
            if delta.is_some() {
                return Ok(delta);
            }
        }
    }

    fn whole(&mut self, body: Vec<u8>) -> Result<Option<Delta>, ChatError> {
        let value = parse(&body)?;
        self.answer = match self.wire {
            Wire::OpenAi => openai::whole(&value)?,
            Wire::Anthropic => anthropic::whole(&value)?,
        };
        self.complete = true;
        let text = self.answer.text.clone();
        Ok((!text.is_empty()).then_some(Delta::Text(text)))
    }

    /// The rest of the answer, and with it the whole.
    ///
    /// # Errors
    ///
    /// As for [`ChatStream::next`].
    pub async fn finish(mut self) -> Result<ChatAnswer, ChatError> {
        while self.next().await?.is_some() {}
        anthropic::unwrap_forced_tool(&mut self.answer);
        Ok(self.answer)
    }
}

/// A whole answer, as one piece.
impl From<ChatAnswer> for ChatStream {
    fn from(mut answer: ChatAnswer) -> Self {
        let texts =
            [Delta::Reasoning(std::mem::take(&mut answer.reasoning)), Delta::Text(std::mem::take(&mut answer.text))];
        let pieces = texts.into_iter().filter(|(Delta::Text(text) | Delta::Reasoning(text))| !text.is_empty()).map(Ok);
        Self::of_pieces(futures_util::stream::iter(pieces.collect::<Vec<_>>()), answer)
    }
}

fn parse(bytes: &[u8]) -> Result<Value, ChatError> {
    from_json(bytes).map_err(|error| ChatError::Malformed(error.to_string()))
}

fn broken(error: sse_stream::Error) -> ChatError {
    match error {
        sse_stream::Error::Body(error) => match error.downcast::<NetError>() {
            Ok(error) if matches!(*error, NetError::Broken { .. }) => ChatError::Closed,
            Ok(error) => ChatError::Net(*error),
            Err(error) => ChatError::Malformed(error.to_string()),
        },
        error => ChatError::Malformed(error.to_string()),
    }
}
