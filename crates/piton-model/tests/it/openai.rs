//! The OpenAI wire, spoken well and badly.

use std::time::Duration;

use piton_model::SecretString;
use piton_model::chat::{
    ChatAnswer, ChatError, ChatRequest, ChatStream, Content, Delta, Finish, Format, Message, Model, Price, Provider,
    Remote, Role, ToolCall, ToolSpec, Usage, Wire,
};
use piton_model::net::{Client, NetError, NetPolicy};
use piton_types::{Value, from_json};

use crate::server::{Received, Server, Step, events, json, open, reply};

fn client() -> Client {
    Client::new(NetPolicy::public().trusting("127.0.0.1")).unwrap()
}

fn provider(server: &Server) -> Provider {
    let mut provider = Provider::new(Wire::OpenAi);
    provider.base_url = Some(server.url("/v1/"));
    provider.api_key = Some(SecretString::from("sk-canary"));
    provider.default_model = Some("small".to_owned());
    provider.organization = Some("org-1".to_owned());
    provider
}

fn request() -> ChatRequest {
    ChatRequest { messages: vec![Message::text(Role::User, "hi")], stream: true, ..ChatRequest::default() }
}

async fn ask(server: &Server, request: &ChatRequest) -> Result<ChatAnswer, ChatError> {
    provider(server).chat(&client(), request).await?.finish().await
}

fn sent(server: &Server) -> (Received, Value) {
    let received = server.received().pop().unwrap();
    let body = from_json(received.body.as_bytes()).unwrap();
    (received, body)
}

#[tokio::test]
async fn a_stream_comes_in_pieces_and_as_a_whole() {
    let server = Server::start(|_| {
        events(&[
            r#"{"model":"small-1","choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hello"}}]}"#,
            r#"{"choices":[{"delta":{"content":" world"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#,
            "[DONE]",
        ])
    })
    .await;
    let mut stream = provider(&server).chat(&client(), &request()).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Some(Delta::Text("Hello".to_owned())));
    assert_eq!(stream.next().await.unwrap(), Some(Delta::Text(" world".to_owned())));
    assert_eq!(stream.next().await.unwrap(), None);
    let answer = stream.finish().await.unwrap();
    assert_eq!(answer.text, "Hello world");
    assert_eq!(answer.usage, Some(Usage { input: 5, output: 2 }));
    assert_eq!((answer.finish, answer.model.as_deref()), (Some(Finish::Stop), Some("small-1")));
    let (received, body) = sent(&server);
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(received.headers["authorization"], "Bearer sk-canary");
    assert_eq!(received.headers["openai-organization"], "org-1");
    insta::assert_snapshot!(piton_types::to_json(&body).unwrap(), @r#"{"messages":[{"content":"hi","role":"user"}],"model":"small","stream":true,"stream_options":{"include_usage":true}}"#);
}

/// Bytes don't come in lines: a character is cut in two, `\r\n` ends lines, comments are in between.
#[tokio::test]
async fn events_may_be_cut_anywhere() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"grüß\"}}]}\r\n\r\n: ping\r\n\r\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n";
    let server = Server::start(move |_| {
        let mut steps = open("text/event-stream; charset=utf-8");
        steps.extend(text.as_bytes().iter().map(|byte| Step::Send(vec![*byte])));
        steps
    })
    .await;
    assert_eq!(ask(&server, &request()).await.unwrap().text, "grüß");
}

#[tokio::test]
async fn a_whole_answer_serves_as_a_stream_of_one() {
    let body = r#"{"choices":[{"message":{"content":"all"},"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let server = Server::start(move |_| json(200, body)).await;
    let answer = ask(&server, &request()).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("all", Some(Finish::Length)));
}

#[tokio::test]
async fn tools_are_offered_called_and_answered() {
    let server = Server::start(|_| {
        events(&[
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"search","arguments":"{\"q\":"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"now","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"rust\"}"}}]},"finish_reason":"tool_calls"}]}"#,
            "[DONE]",
        ])
    })
    .await;
    let mut request = request();
    request.tools = vec![ToolSpec {
        name: "search".to_owned(),
        description: "Searches".to_owned(),
        schema: Value::map([("type", "object".into()), ("$schema", "x".into())]),
    }];
    let answer = ask(&server, &request).await.unwrap();
    let [search, now] = answer.tool_calls.as_slice() else { panic!("{answer:?}") };
    assert_eq!((search.id.as_str(), search.name.as_str()), ("a", "search"));
    assert_eq!(search.parsed().unwrap(), Value::map([("q", "rust".into())]));
    assert_eq!(now.parsed().unwrap(), Value::map::<&str>([]), "no text is no arguments");
    assert_eq!(answer.finish, Some(Finish::ToolCalls));

    let mut turn = Message { role: Role::Assistant, content: Vec::new() };
    turn.content.extend(answer.tool_calls.into_iter().map(Content::ToolCall));
    let result = |id: &str| Content::ToolResult { id: id.to_owned(), text: "found".to_owned(), is_error: false };
    request.messages.extend([turn, Message { role: Role::Tool, content: vec![result("a"), result("b")] }]);
    ask(&server, &request).await.unwrap();
    let (_, body) = sent(&server);
    insta::assert_snapshot!(piton_types::to_json(&body).unwrap(), @r#"{"messages":[{"content":"hi","role":"user"},{"content":"","role":"assistant","tool_calls":[{"function":{"arguments":"{\"q\":\"rust\"}","name":"search"},"id":"a","type":"function"},{"function":{"arguments":"","name":"now"},"id":"b","type":"function"}]},{"content":"found","role":"tool","tool_call_id":"a"},{"content":"found","role":"tool","tool_call_id":"b"}],"model":"small","stream":true,"stream_options":{"include_usage":true},"tools":[{"function":{"description":"Searches","name":"search","parameters":{"$schema":"x","type":"object"}},"type":"function"}]}"#);
}

#[tokio::test]
async fn pictures_forms_and_parameters_are_sent() {
    let server = Server::start(|_| json(200, r#"{"choices":[{"message":{"content":"{}"}}]}"#)).await;
    let mut request = request();
    request.stream = false;
    request.max_tokens = Some(9);
    request.parameters.insert("temperature".to_owned(), Value::from(0.5));
    request.format = Format::Schema { name: "person".to_owned(), schema: Value::map([("type", "object".into())]) };
    let image = Content::Image { url: "data:image/png;base64,AA==".to_owned(), detail: Some("low".to_owned()) };
    request.messages[0].content.push(image);
    ask(&server, &request).await.unwrap();
    let (_, body) = sent(&server);
    insta::assert_snapshot!(piton_types::to_json(&body).unwrap(), @r#"{"max_tokens":9,"messages":[{"content":[{"text":"hi","type":"text"},{"image_url":{"detail":"low","url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"user"}],"model":"small","response_format":{"json_schema":{"name":"person","schema":{"type":"object"},"strict":true},"type":"json_schema"},"temperature":0.5}"#);
}

#[tokio::test]
async fn a_limit_says_when_to_come_back() {
    let server = Server::start(|_| reply(429, &[("retry-after", "7")], r#"{"error":{"message":"slow down"}}"#)).await;
    let error = ask(&server, &request()).await.unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    insta::assert_snapshot!(error, @"the provider is limiting requests (429): slow down");
}

#[tokio::test]
async fn a_failure_is_typed_and_says_whether_to_try_again() {
    for (status, body, retryable) in [
        (500, "boom", true),
        (503, "", true),
        (401, r#"{"error":{"message":"bad key sk-canary"}}"#, false),
        (404, "{}", false),
    ] {
        let server = Server::start(move |_| reply(status, &[], body)).await;
        let error = ask(&server, &request()).await.unwrap_err();
        assert!(matches!(error, ChatError::Status { status: told, .. } if told == status), "{error}");
        assert_eq!(error.is_retryable(), retryable, "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_too_soon_is_an_error() {
    let half = r#"{"choices":[{"delta":{"content":"half of"}}]}"#;
    let server = Server::start(move |_| events(&[half])).await;
    let error = ask(&server, &request()).await.unwrap_err();
    assert!(matches!(error, ChatError::Closed) && error.is_retryable(), "{error}");
    let server = Server::start(|_| vec![]).await;
    let error = ask(&server, &request()).await.unwrap_err();
    assert!(matches!(error, ChatError::Net(NetError::Broken { .. })), "{error:?}");
}

#[tokio::test]
async fn broken_json_is_an_error_with_a_place() {
    for steps in [
        events(&[r#"{"choices":[{"delta":{"content":"x"#]),
        json(200, "{\"choices\": [nonsense]}"),
        json(200, "[]"),
        json(200, r#"{"choices":[]}"#),
        json(200, ""),
    ] {
        let server = Server::start(move |_| steps.clone()).await;
        let error = ask(&server, &request()).await.unwrap_err();
        assert!(matches!(error, ChatError::Malformed(_)) && !error.is_retryable(), "{error:?}");
    }
    let broken = ToolCall { id: "a".to_owned(), name: "x".to_owned(), arguments: "{\"q\":".to_owned() };
    assert!(broken.parsed().is_err());
}

#[tokio::test]
async fn an_error_in_mid_stream_is_an_error() {
    let server = Server::start(|_| {
        events(&[r#"{"choices":[{"delta":{"content":"x"}}]}"#, r#"{"error":{"message":"overloaded"}}"#])
    })
    .await;
    let error = ask(&server, &request()).await.unwrap_err();
    assert!(matches!(&error, ChatError::Failed { message } if message == "overloaded"), "{error}");
}

#[tokio::test]
async fn an_endless_stream_is_cut() {
    let endless = |piece: &'static [u8]| {
        Server::start(move |_| {
            let mut steps = open("text/event-stream");
            steps.push(Step::Endlessly(piece.to_vec()));
            steps
        })
    };
    // Events without end, one event without end, and a tool call out of all bounds.
    for piece in
        [&b"data: {\"choices\":[{\"delta\":{\"content\":\"again and again\"}}]}\n\n"[..], b"data: xxxxxxxxxxxxxxxxxx"]
    {
        let server = endless(piece).await;
        let mut policy = NetPolicy::public().trusting("127.0.0.1");
        policy.max_body = 1 << 18;
        let client = Client::new(policy).unwrap();
        let error = match provider(&server).chat(&client, &request()).await {
            Ok(stream) => stream.finish().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, ChatError::Net(NetError::TooLarge { .. })), "{error:?}");
    }
    let server = Server::start(|_| {
        events(&[r#"{"choices":[{"delta":{"tool_calls":[{"index":4000000000,"function":{"name":"x"}}]}}]}"#])
    })
    .await;
    assert!(matches!(ask(&server, &request()).await, Err(ChatError::Malformed(_))));
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_cut() {
    let server = Server::start(|_| {
        let mut steps = events(&[r#"{"choices":[{"delta":{"content":"x"}}]}"#]);
        steps.push(Step::Hang);
        steps
    })
    .await;
    let mut request = request();
    request.timeout = Some(Duration::from_millis(300));
    let error = ask(&server, &request).await.unwrap_err();
    assert!(matches!(error, ChatError::Net(NetError::Timeout { .. })), "{error:?}");
}

#[test]
fn a_price_that_was_not_given_is_unknown() {
    let mut provider = Provider::new(Wire::OpenAi);
    provider.prices.insert("small".to_owned(), Price { input: 2.0, output: 8.0 });
    let remote = Remote { provider, client: Client::new(NetPolicy::public()).unwrap() };
    let usage = Usage { input: 1_000_000, output: 500_000 };
    assert_eq!(remote.price("small").map(|price| price.of(usage)), Some(6.0));
    assert_eq!(remote.price("other"), None);
}

/// A model of a program's own: whole, and in pieces.
#[tokio::test]
async fn an_answer_of_the_programs_own_model_is_whole_however_it_comes() {
    let whole = ChatAnswer { reasoning: "hm".to_owned(), ..ChatAnswer::text("Hello") };
    assert_eq!(ChatStream::from(whole.clone()).finish().await.unwrap(), whole);
    let pieces = ["Hel", "lo"].map(|text| Ok(Delta::Text(text.to_owned())));
    let mut stream = ChatStream::of_pieces(futures_util::stream::iter(pieces), ChatAnswer::text(""));
    assert_eq!(stream.next().await.unwrap(), Some(Delta::Text("Hel".to_owned())));
    assert_eq!(stream.finish().await.unwrap(), ChatAnswer::text("Hello"));
    let broken = futures_util::stream::iter([Ok(Delta::Text("Hel".to_owned())), Err(ChatError::Closed)]);
    let error = ChatStream::of_pieces(broken, ChatAnswer::default()).finish().await.unwrap_err();
    assert!(matches!(error, ChatError::Closed), "{error:?}");
}

#[test]
fn a_provider_does_not_print_its_key() {
    let mut provider = Provider::new(Wire::OpenAi);
    provider.api_key = Some(SecretString::from("sk-canary"));
    assert!(!format!("{provider:?}").contains("canary"));
}
