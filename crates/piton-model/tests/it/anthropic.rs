//! The Anthropic wire.

use piton_model::SecretString;
use piton_model::chat::{
    ChatAnswer, ChatError, ChatRequest, Content, Delta, Finish, Format, Message, Provider, Role, ToolCall, ToolSpec,
    Usage, Wire,
};
use piton_model::net::{Client, NetPolicy};
use piton_types::{Value, from_json, to_json};

use crate::server::{Server, Step, json, open, reply};

fn provider(server: &Server) -> Provider {
    let mut provider = Provider::new(Wire::Anthropic);
    provider.base_url = Some(server.url("/v1"));
    provider.api_key = Some(SecretString::from("sk-canary"));
    provider.default_model = Some("large".to_owned());
    provider
}

async fn ask(server: &Server, request: &ChatRequest) -> Result<ChatAnswer, ChatError> {
    let client = Client::new(NetPolicy::public().trusting("127.0.0.1")).unwrap();
    provider(server).chat(&client, request).await?.finish().await
}

fn stream(events: &[(&str, &str)]) -> Vec<Step> {
    let mut steps = open("text/event-stream");
    let text: String = events.iter().map(|(event, data)| format!("event: {event}\ndata: {data}\n\n")).collect();
    steps.push(Step::Send(text.into_bytes()));
    steps
}

fn request() -> ChatRequest {
    ChatRequest {
        messages: vec![Message::text(Role::System, "Be brief."), Message::text(Role::User, "hi")],
        stream: true,
        ..ChatRequest::default()
    }
}

const START: (&str, &str) = (
    "message_start",
    r#"{"type":"message_start","message":{"model":"large-1","usage":{"input_tokens":9,"cache_read_input_tokens":1,"output_tokens":1}}}"#,
);
const END: (&str, &str) = ("message_stop", r#"{"type":"message_stop"}"#);

#[tokio::test]
async fn a_stream_comes_in_pieces_and_as_a_whole() {
    let server = Server::start(|_| {
        stream(&[
            START,
            (
                "content_block_start",
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
            ),
            (
                "content_block_start",
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            ),
            ("ping", r#"{"type":"ping"}"#),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"!"}}"#,
            ),
            (
                "message_delta",
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}"#,
            ),
            END,
        ])
    })
    .await;
    let client = Client::new(NetPolicy::public().trusting("127.0.0.1")).unwrap();
    let mut stream = provider(&server).chat(&client, &request()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Some(Delta::Reasoning("Hm.".to_owned())));
    assert_eq!(stream.next().await.unwrap(), Some(Delta::Text("Hello".to_owned())));
    let answer = stream.finish().await.unwrap();
    assert_eq!((answer.text.as_str(), answer.reasoning.as_str()), ("Hello!", "Hm."));
    assert_eq!(answer.usage, Some(Usage { input: 10, output: 3 }));
    assert_eq!((answer.finish, answer.model.as_deref()), (Some(Finish::Stop), Some("large-1")));
    let received = server.received().pop().unwrap();
    assert_eq!(received.path, "/v1/messages");
    assert_eq!(
        (received.headers["x-api-key"].as_str(), received.headers["anthropic-version"].as_str()),
        ("sk-canary", "2023-06-01")
    );
    insta::assert_snapshot!(received.body, @r#"{"max_tokens":4096,"messages":[{"content":[{"text":"hi","type":"text"}],"role":"user"}],"model":"large","stream":true,"system":"Be brief."}"#);
}

#[tokio::test]
async fn tools_are_offered_called_and_answered() {
    let server = Server::start(|_| {
        stream(&[
            START,
            ("content_block_start", r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"search","input":{}}}"#),
            ("content_block_delta", r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"q\":"}}"#),
            ("content_block_delta", r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"rust\"}"}}"#),
            ("message_delta", r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}"#),
            END,
        ])
    })
    .await;
    let mut request = request();
    let schema = Value::map([("type", "object".into())]);
    request.tools = vec![ToolSpec { name: "search".to_owned(), description: "Searches".to_owned(), schema }];
    let answer = ask(&server, &request).await.unwrap();
    assert_eq!(
        answer.tool_calls,
        [ToolCall { id: "t1".to_owned(), name: "search".to_owned(), arguments: "{\"q\":\"rust\"}".to_owned() }]
    );
    request
        .messages
        .push(Message { role: Role::Assistant, content: vec![Content::ToolCall(answer.tool_calls[0].clone())] });
    let result = Content::ToolResult { id: "t1".to_owned(), text: "found".to_owned(), is_error: true };
    request.messages.push(Message { role: Role::Tool, content: vec![result] });
    ask(&server, &request).await.unwrap();
    let body = from_json(server.received().pop().unwrap().body.as_bytes()).unwrap();
    insta::assert_snapshot!(to_json(body.field("messages").unwrap()).unwrap(), @r#"[{"content":[{"text":"hi","type":"text"}],"role":"user"},{"content":[{"id":"t1","input":{"q":"rust"},"name":"search","type":"tool_use"}],"role":"assistant"},{"content":[{"content":"found","is_error":true,"tool_use_id":"t1","type":"tool_result"}],"role":"user"}]"#);
    insta::assert_snapshot!(to_json(body.field("tools").unwrap()).unwrap(), @r#"[{"description":"Searches","input_schema":{"type":"object"},"name":"search"}]"#);
}

#[tokio::test]
async fn an_answer_of_a_form_is_text_again() {
    let server = Server::start(|_| {
        json(200, r#"{"model":"large-1","stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2},"content":[{"type":"tool_use","id":"x","name":"give_answer","input":{"age":3}}]}"#)
    })
    .await;
    let mut request = request();
    request.stream = false;
    let schema = Value::map([("type", "object".into())]);
    request.format = Format::Schema { name: "person".to_owned(), schema };
    let answer = ask(&server, &request).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tool_calls.len(), answer.finish), (r#"{"age":3}"#, 0, Some(Finish::Stop)));
    let body = from_json(server.received().pop().unwrap().body.as_bytes()).unwrap();
    insta::assert_snapshot!(to_json(body.field("tool_choice").unwrap()).unwrap(), @r#"{"name":"give_answer","type":"tool"}"#);
}

#[tokio::test]
async fn pictures_are_sent_by_place_or_by_content() {
    let server = Server::start(|_| json(200, r#"{"content":[{"type":"text","text":"a cat"}]}"#)).await;
    let mut request = request();
    let image = |url: &str| Content::Image { url: url.to_owned(), detail: None };
    request.messages[1].content.extend([image("https://example.com/cat.png"), image("data:image/png;base64,AA==")]);
    assert_eq!(ask(&server, &request).await.unwrap().text, "a cat");
    let body = server.received().pop().unwrap().body;
    assert!(body.contains(r#"{"source":{"type":"url","url":"https://example.com/cat.png"},"type":"image"}"#), "{body}");
    assert!(
        body.contains(r#"{"source":{"data":"AA==","media_type":"image/png","type":"base64"},"type":"image"}"#),
        "{body}"
    );
}

#[tokio::test]
async fn failures_are_typed() {
    let server = Server::start(|_| stream(&[START])).await;
    assert!(matches!(ask(&server, &request()).await, Err(ChatError::Closed)));
    let overloaded = ("error", r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#);
    let server = Server::start(move |_| stream(&[START, overloaded])).await;
    assert!(matches!(ask(&server, &request()).await, Err(ChatError::Failed { message }) if message == "Overloaded"));
    let server = Server::start(|_| reply(529, &[], r#"{"type":"error","error":{"message":"Overloaded"}}"#)).await;
    let error = ask(&server, &request()).await.unwrap_err();
    assert!(matches!(error, ChatError::Status { status: 529, .. }) && error.is_retryable(), "{error}");
}
