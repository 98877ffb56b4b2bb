//! The same for agents, by the Model Context Protocol: tools that are routes of the table, runs and checkpoints as resources.
//!
//! An act that changes files or gives a run up is shown before it is done. A client that can ask its user is told to; from
//! any other a second call is needed, with the id of the plan that was shown. So no call changes files unseen. Whatever is
//! done passes the same roles and the same audit log as over HTTP.

mod pipe;
mod secrecy;
mod tools;
mod web;

use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, request};
use http_body_util::BodyExt as _;
use piton_app::Failure;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationSchema, ErrorData, Implementation, InputRequest, InputRequiredResult,
    JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value as Json, json};

use crate::gate::Who;
use crate::problem::Problem;
use crate::routes::perform_as;
use crate::server::Server;
use secrecy::Veil;
use tools::{How, Tool};

pub use pipe::serve_pipe;
pub(crate) use web::service;

/// The most characters of an answer: an agent has to read it.
const MOST: usize = 200_000;
/// How long a user may take to say yes or no.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Runs that are listed as resources.
const LISTED: &str = "50";
/// How many lines of a plan a user is asked about; the rest is counted.
const LINES: usize = 20;
/// What the question is called.
const QUESTION: &str = "confirm";
/// The field that says yes.
const YES: &str = "do_it";

/// What an agent is told first.
const ABOUT: &str = "Piton keeps durable checkpoints of this folder and of the runs of its agents and workflows. `status` and \
                     `log` tell what changed and who changed it, `undo` and `restore` take changes back and keep what the \
                     user typed, `save` makes a checkpoint. Acts that change files show a plan first.";

/// Piton as a server of tools.
#[derive(Clone)]
pub(crate) struct Tools {
    server: Arc<Server>,
    veil: Arc<Veil>,
    /// Who calls, if all calls are the same caller's. Over HTTP each request says it.
    who: Option<Who>,
}

type Context = RequestContext<RoleServer>;

impl Tools {
    /// The tools of a server, for one caller or for callers who say who they are.
    fn new(server: &Arc<Server>, who: Option<Who>) -> Result<Self, Failure> {
        let veil = Arc::new(Veil::of(&server.app, server.config.as_deref())?);
        Ok(Self { server: Arc::clone(server), veil, who })
    }

    /// Who calls.
    fn who(&self, context: &Context) -> Result<Who, ErrorData> {
        let said = || context.extensions.get::<request::Parts>()?.extensions.get::<Who>().copied();
        self.who.or_else(said).ok_or_else(|| ErrorData::internal_error("it isn't known who calls", None))
    }

    /// What a tool gives.
    async fn perform(&self, tool: &'static Tool, who: Who, given: JsonObject) -> Result<Json, Problem> {
        let call = tool.call(&self.server, who, given)?;
        let answer = perform_as(tool.route(), who, call).await?;
        let bytes = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| Failure::internal("an answer broke off").because(&error))?;
        let bytes = bytes.to_bytes();
        if bytes.len() > MOST {
            let failure = Failure::refused(format!("the answer has {} bytes, more than {MOST}", bytes.len()))
                .hint("ask for less: a smaller `limit`, one `path`, or no `lines`, `steps` and `values`.");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", failure));
        }
        let json: Json = match bytes.is_empty() {
            true => json!({}),
            false => serde_json::from_slice(&bytes)
                .map_err(|error| Failure::internal("an answer is no JSON").because(&error))?,
        };
        // What a tool gives is an object.
        let mut json = if json.is_object() { json } else { json!({ "result": json }) };
        self.veil.over(&mut json);
        Ok(json)
    }

    /// A plan that was shown: done if the user says so, or given with the word how to do it.
    async fn ask(&self, who: Who, plan: &Json, context: &Context) -> Result<CallToolResponse, Problem> {
        let id = plan["id"].as_str().unwrap_or_default();
        if plan["is_free"] == false {
            let hint = "paths that two sides changed keep it from being done; nothing was changed. Plan it anew with `conflict`.";
            return Ok(given(&with_hint(plan, hint)));
        }
        if !can_ask(context) {
            let hint = format!("nothing was changed yet: show this to the user; `execute` with the id {id} does it.");
            return Ok(given(&with_hint(plan, &hint)));
        }
        let question = question(plan)?;
        if context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
        {
            let asked = [(QUESTION.to_owned(), InputRequest::Elicitation(ElicitRequest::new(question)))];
            let mut required = InputRequiredResult::from_request_state(id);
            required.input_requests = Some(asked.into());
            return Ok(required.into());
        }
        match context.peer.create_elicitation_with_timeout(question, Some(PATIENCE)).await {
            Ok(said) => self.decided(who, id, &said).await,
            Err(error) => {
                drop(self.server.plans.take(id));
                Err(Failure::fixable("the user couldn't be asked; nothing was changed").because(&error).into())
            }
        }
    }

    /// Does what the user said.
    async fn decided(&self, who: Who, id: &str, said: &ElicitResult) -> Result<CallToolResponse, Problem> {
        let is_yes =
            said.action == ElicitationAction::Accept && said.content.as_ref().is_some_and(|said| said[YES] == true);
        if !is_yes {
            drop(self.server.plans.take(id));
            return Ok(given(&json!({ "done": false, "said": "the user said no: nothing was changed" })));
        }
        let execute = Tool::named("execute").ok_or_else(|| Failure::internal("there is no `execute`"))?;
        let named = JsonObject::from_iter([("id".to_owned(), id.into())]);
        Ok(given(&self.perform(execute, who, named).await?))
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &Context,
        who: Who,
        tool: &'static Tool,
    ) -> Result<CallToolResponse, Problem> {
        if let (Some(id), Some(said)) = (&request.request_state, &request.input_responses) {
            let said = said.get(QUESTION).cloned().unwrap_or_default();
            let said: ElicitResult =
                serde_json::from_value(said).map_err(|error| Problem::of_field(QUESTION, error))?;
            return self.decided(who, id, &said).await;
        }
        let arguments = request.arguments.unwrap_or_default();
        match tool.how {
            How::AtOnce | How::Queued => Ok(given(&self.perform(tool, who, arguments).await?)),
            How::Planned(_) => {
                let plan = self.perform(tool, who, arguments).await?;
                self.ask(who, &plan, context).await
            }
            How::Executed if can_ask(context) => {
                let id = arguments.get("id").and_then(Json::as_str).unwrap_or_default();
                let mut plan = Json::clone(&*self.server.plans.shown(id)?);
                self.veil.over(&mut plan);
                self.ask(who, &plan, context).await
            }
            How::Executed => Ok(given(&self.perform(tool, who, arguments).await?)),
        }
    }

    /// A look by the name of its tool.
    async fn look(&self, name: &str, who: Who, arguments: &[(&str, &str)]) -> Result<Json, ErrorData> {
        let tool = Tool::named(name).ok_or_else(|| ErrorData::internal_error(format!("there is no {name}"), None))?;
        let given = arguments.iter().map(|(name, value)| ((*name).to_owned(), Json::from(*value))).collect();
        self.perform(tool, who, given).await.map_err(|problem| {
            let object = problem.object();
            let message = object["detail"].as_str().unwrap_or_default().to_owned();
            match problem.status() {
                StatusCode::NOT_FOUND => ErrorData::resource_not_found(message, Some(object)),
                _ => ErrorData::internal_error(message, Some(object)),
            }
        })
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("piton", env!("CARGO_PKG_VERSION")))
            .with_instructions(ABOUT)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::described(self.who(&context)?.role)))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Result<CallToolResponse, ErrorData> {
        let who = self.who(&context)?;
        let Some(tool) = Tool::named(&request.name).filter(|tool| tool.role() <= who.role) else {
            return Err(ErrorData::invalid_params("there is no such tool for this role", None));
        };
        match self.call(request, &context, who, tool).await {
            Ok(response) => Ok(response),
            Err(problem) => Ok(CallToolResult::error(vec![ContentBlock::text(problem.object().to_string())]).into()),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let page = self.look("list_runs", self.who(&context)?, &[("limit", LISTED)]).await?;
        let runs = page["runs"].as_array().into_iter().flatten().filter_map(|run| {
            let text = |name: &str| run[name].as_str().unwrap_or_default();
            let id = run["id"].as_str()?;
            let name = run["short"].as_str().unwrap_or(id);
            let resource = Resource::new(format!("piton://runs/{id}"), name);
            Some(
                resource
                    .with_description(format!("{} ({})", text("name"), text("status")))
                    .with_mime_type("application/json"),
            )
        });
        Ok(ListResourcesResult::with_all_items(runs.collect()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = |uri: &str, name: &str, about: &str| {
            ResourceTemplate::new(uri, name).with_description(about).with_mime_type("application/json")
        };
        Ok(ListResourceTemplatesResult::with_all_items(vec![
            template("piton://runs/{run}", "run", "A run with its state, usage, checkpoints and questions."),
            template(
                "piton://checkpoints/{run}/{number}",
                "checkpoint",
                "A checkpoint: what it changed, and the state that it has.",
            ),
        ]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let who = self.who(&context)?;
        let unknown =
            || ErrorData::resource_not_found("a resource is piton://runs/RUN or piton://checkpoints/RUN/NUMBER", None);
        let path = request.uri.strip_prefix("piton://").ok_or_else(unknown)?;
        let reference = match path.split('/').collect::<Vec<_>>()[..] {
            ["runs", run] => run.to_owned(),
            ["checkpoints", run, number] if number.parse::<u64>().is_ok() => format!("{run}@{number}"),
            _ => return Err(unknown()),
        };
        let shown = self.look("show", who, &[("ref", &reference)]).await?;
        let contents = ResourceContents::text(shown.to_string(), request.uri).with_mime_type("application/json");
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

/// Whether the client can put a question to its user.
fn can_ask(context: &Context) -> bool {
    let modes = context.client_capabilities().and_then(|can| can.elicitation);
    // One that names no mode means forms.
    modes.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// What a tool gave.
fn given(json: &Json) -> CallToolResponse {
    CallToolResult::structured(json.clone()).into()
}

fn with_hint(plan: &Json, hint: &str) -> Json {
    let mut plan = plan.clone();
    plan["done"] = false.into();
    plan["hint"] = hint.into();
    plan
}

/// The question whether a plan is to be done, with what it does.
fn question(plan: &Json) -> Result<ElicitRequestParams, Failure> {
    let entails: Vec<_> = plan["entails"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let said = plan["plan"].as_str().unwrap_or_default();
    let mut message = format!("{}: {said}", plan["act"].as_str().unwrap_or("act"));
    for line in entails.iter().take(LINES) {
        message.push('\n');
        message.push_str(line);
    }
    if entails.len() > LINES {
        message.push_str(&format!("\n… and {} more", entails.len() - LINES));
    }
    // What others wrote stands in it.
    let message: String = message.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    let requested_schema = ElicitationSchema::builder()
        .required_bool(YES)
        .build()
        .map_err(|error| Failure::internal(format!("a question has no form: {error}")))?;
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}
