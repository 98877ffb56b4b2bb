//! `--config FILE`: which models, knowledge bases and credentials a workflow may use, how strict it is held, and
//! how much it may spend. Only a file that the user names is read: one that lies in a folder may have come with
//! another person's document, and could send a key elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_flow::Services;
use piton_flow::{
    AuditFile, Credential, Form, Knowledge, Outside, OutsideConfig, Quotas, SecurityLevel, ServerDescription,
};
use piton_model::chat::{Provider, Providers};
use piton_model::{ExposeSecret as _, SecretString};
use piton_runtime::recovery::ChangePolicies;
use piton_store::{RedactedStore, Redaction, RedactionPolicy, SecretFiles, Store};
use piton_types::{SHORTEST_SECRET, Value, from_value, to_value};
use serde::Deserialize;

use crate::app::App;
use crate::documents::notices::Notices;
use crate::documents::texts::{document_format, read_text};
use crate::failure::Failure;
use crate::place::keys::KEY_VARIABLES;

/// What the file may say. The reference and the schema are made from this, comments included.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[schemars(
    title = "piton.toml",
    description = "What a workflow may use, how strict it is held, how much it may spend."
)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The store to use, unless `--store` names one: a URL, or `env:NAME`.
    #[schemars(with = "Option<String>")]
    store: Option<SecretString>,
    /// How strict documents are held.
    level: SecurityLevel,
    /// Models, by the name that documents call their provider.
    providers: Providers,
    /// Knowledge bases by dataset; `*` is for all others.
    knowledge: BTreeMap<String, Knowledge>,
    /// What may be sent to whom, by the name of the group.
    credentials: BTreeMap<String, Credential>,
    /// MCP servers whose tools documents may use by these names.
    mcp_servers: BTreeMap<String, ServerDescription>,
    /// What must not be stored or shown, by name; keys and credentials are, without a word.
    #[schemars(with = "BTreeMap<String, String>")]
    secrets: BTreeMap<String, SecretString>,
    /// How much each run may use; without a number, as much as there is.
    quotas: Quotas,
    /// Addresses that documents may reach although they are private, as in `http://127.0.0.1:8080`.
    reachable: Vec<String>,
    /// The file in which it is written down what was done, one JSON object a line.
    audit: Option<PathBuf>,
    /// Who is told how runs stand.
    notify: Notices,
    /// What is done about files and commits that changed while a run stood still.
    recovery: ChangePolicies,
}

/// What the nodes of a run may use.
pub fn services(app: &App, file: Option<&Path>) -> Result<Services, Failure> {
    let mut config = match file {
        None => Config::default(),
        Some(path) => read(path)?,
    };
    resolve(&mut config, |name| app.text_of(name))?;
    config.notify.check()?;
    let secrecy = Secrecy::of(&config)?;
    let mut outside = OutsideConfig::at(config.level);
    for address in &config.reachable {
        if !address.starts_with("http://") && !address.starts_with("https://") {
            return Err(Failure::fixable(format!("reachable: {address:?} isn't the beginning of a URL"))
                .hint("write it as in http://127.0.0.1:8080."));
        }
        outside.network = outside.network.trusting_url(address);
    }
    outside.providers = config.providers;
    outside.knowledge = config.knowledge;
    for (name, server) in config.mcp_servers {
        let connection = server.connection().map_err(|problem| {
            Failure::fixable(format!("mcp_servers.{name}: {problem}"))
                .hint("nothing was run. `piton reference configuration` lists every option.")
        })?;
        outside.servers.configure(name, connection);
    }
    outside.credentials = config.credentials;
    outside.secrets = config.secrets.into_iter().collect();
    outside.quotas = config.quotas;
    outside.withheld = KEY_VARIABLES.into_iter().chain(app.surroundings.withheld()).map(str::to_owned).collect();
    outside.folder = Some(app.surroundings.folder.clone());
    // Programs that serve tools are found by these; nothing else of ours is handed on.
    let handed_on = ["PATH", "HOME", "LANG"].map(|name| (name, app.text_of(name)));
    outside.environment = handed_on.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if let Some(path) = config.audit {
        let file = AuditFile::open(&path)
            .map_err(|error| Failure::fixable(format!("can't write to {}", path.display())).because(&error))?;
        outside.audit = Some(Arc::new(file));
    }
    let outside = Outside::new(outside)
        .map_err(|error| Failure::fixable("the network can't be set up").because(&error).hint("nothing was run."))?;
    Ok(outside.install(Services::default()).with(config.notify).with(Arc::new(secrecy)))
}

/// What must neither be stored nor shown.
pub struct Secrecy(Arc<Redaction>);

impl std::fmt::Debug for Secrecy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrecy").finish_non_exhaustive()
    }
}

impl Secrecy {
    /// What is kept from a reader who may not know what the configuration knows: its secrets, and whatever has the form of a
    /// key or token of a well-known service.
    pub fn from_readers(app: &App, file: Option<&Path>) -> Result<Self, Failure> {
        let mut policy = no_secrets();
        policy.formats = true;
        let config = match file {
            None => Config::default(),
            Some(path) => {
                let mut config = read(path)?;
                resolve(&mut config, |name| app.text_of(name))?;
                config
            }
        };
        Self::by(policy, &config)
    }

    /// The secrets that a configuration has, by name.
    fn of(config: &Config) -> Result<Self, Failure> {
        Self::by(no_secrets(), config)
    }

    fn by(mut policy: RedactionPolicy, config: &Config) -> Result<Self, Failure> {
        for (name, secret) in &config.secrets {
            policy = policy.with_secret(name, secret.expose_secret());
        }
        // Keys that are too short to be told from ordinary text are no reason to refuse a configuration.
        let mut add = |kind: &str, name: &str, secret: &str| {
            if secret.len() >= SHORTEST_SECRET {
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
                let name: String = name.chars().map(|c| if is_name(c) { c } else { '-' }).collect();
                policy = policy.clone().with_secret(format!("{kind}.{name}"), secret);
            }
        };
        for (name, provider) in &config.providers {
            provider.api_key.iter().for_each(|key| add("provider", name, key.expose_secret()));
        }
        for (name, knowledge) in &config.knowledge {
            knowledge.api_key.iter().for_each(|key| add("knowledge", name, key.expose_secret()));
        }
        for (name, server) in &config.mcp_servers {
            server.headers.iter().for_each(|(header, value)| {
                add("mcp", &format!("{name}.{header}"), value.expose_secret());
            });
        }
        for (name, credential) in &config.credentials {
            let value = credential.value.expose_secret();
            add("credential", name, value);
            // A scheme and its token: the token alone is as secret.
            value.split_once(' ').into_iter().for_each(|(_, token)| add("credential-token", name, token));
        }
        Redaction::new(&policy).map(|redaction| Self(Arc::new(redaction))).map_err(|error| {
            Failure::fixable("the secrets of the configuration can't be kept").because(&error).hint("nothing was run.")
        })
    }

    /// The store, in which no secret is kept.
    pub fn over(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(RedactedStore::new(store, Arc::clone(&self.0)))
    }

    /// The form of a question without secrets.
    pub fn shown_form(&self, form: &Form) -> Result<Form, Failure> {
        let shown = to_value(form).map(|form| self.0.shown_value(&form)).and_then(from_value);
        shown.map_err(|error| Failure::internal("a form can't be shown without secrets").because(&error))
    }

    /// The value without secrets.
    pub fn shown_value(&self, value: &Value) -> Value {
        self.0.shown_value(value)
    }

    /// The text without secrets.
    pub fn shown(&self, text: &str) -> String {
        self.0.shown(text).into_owned()
    }
}

/// The store, for a caller that writes what it reads there: secrets that the configuration knows are put back, and kept out
/// again.
pub fn without_secrets(app: &App, store: Arc<dyn Store>, file: Option<&Path>) -> Result<Arc<dyn Store>, Failure> {
    let Some(path) = file else { return Ok(store) };
    let mut config = read(path)?;
    resolve(&mut config, |name| app.text_of(name))?;
    Ok(Secrecy::of(&config)?.over(store))
}

/// A policy that knows no secret, and by which a text that only looks like the place of one is told from it. All that
/// is stored is stored by it at least, so that a document gets no secret by writing its name.
pub fn no_secrets() -> RedactionPolicy {
    RedactionPolicy::none().with_files(SecretFiles::Capture)
}

/// The provider and model that a text like `PROVIDER/NAME` means; the only provider if nothing is said.
pub fn chosen_model(app: &App, path: &Path, model: Option<&str>) -> Result<(Provider, Option<String>), Failure> {
    let mut config = read(path)?;
    resolve(&mut config, |name| app.text_of(name))?;
    let names: Vec<String> = config.providers.keys().cloned().collect();
    let (name, model) = match model.map(|model| model.split_once('/').unwrap_or((model, ""))) {
        Some((name, model)) => (name.to_owned(), (!model.is_empty()).then(|| model.to_owned())),
        None if names.len() == 1 => (names[0].clone(), None),
        None => {
            return Err(Failure::usage(format!(
                "{} has {} providers: name one with --model",
                path.display(),
                names.len()
            )));
        }
    };
    match config.providers.remove(&name) {
        Some(provider) => Ok((provider, model)),
        None => Err(Failure::usage(format!("{} has no provider {}", path.display(), name))),
    }
}

/// What the file says about changes that a recovery finds.
pub fn policies(path: &Path) -> Result<ChangePolicies, Failure> {
    Ok(read(path)?.recovery)
}

/// The store that the file names.
pub fn store_in(path: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, Failure> {
    let mut config = read(path)?;
    let store = config.store.take();
    let mut only = Config { store, ..Config::default() };
    resolve(&mut only, variable)?;
    Ok(only.store.map(|url| url.expose_secret().to_owned()))
}

fn read(path: &Path) -> Result<Config, Failure> {
    let wrong = |cause: String| {
        Failure::fixable(format!("{} is not a configuration", path.display()))
            .cause(cause)
            .hint("nothing was run. `piton reference configuration` lists every option.")
    };
    let (text, format) = (read_text(path)?, document_format(path)?);
    match format.read(&text).map_err(|problems| wrong(problems.to_string()))? {
        // A file of comments only.
        Value::Null => Ok(Config::default()),
        value => from_value(value).map_err(|error| wrong(error.to_string())),
    }
}

/// Puts the values of environment variables in the place of `env:NAME`.
fn resolve(config: &mut Config, variable: impl Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let keys = config.providers.values_mut().filter_map(|provider| provider.api_key.as_mut());
    let more = config.knowledge.values_mut().filter_map(|knowledge| knowledge.api_key.as_mut());
    let credentials = config.credentials.values_mut().map(|credential| &mut credential.value);
    let servers = config.mcp_servers.values_mut();
    let servers = servers.flat_map(|server| server.headers.values_mut().chain(server.env.values_mut()));
    let secrets = config.secrets.values_mut();
    let store = config.store.as_mut();
    for secret in keys.chain(more).chain(credentials).chain(servers).chain(secrets).chain(store) {
        let Some(name) = secret.expose_secret().strip_prefix("env:") else { continue };
        let value = variable(name).ok_or_else(|| {
            Failure::fixable(format!("the environment variable {name} is not set"))
                .hint("nothing was run. The configuration takes a key from it.")
        })?;
        *secret = SecretString::from(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("piton.toml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn keys_come_from_the_environment() {
        let mut config = parse(
            "level = \"strict\"\n[providers.openai]\napi_key = \"env:KEY\"\n[providers.other]\napi_key = \"plain\"\n",
        )
        .unwrap();
        assert_eq!(config.level, SecurityLevel::Strict);
        resolve(&mut config, |name| (name == "KEY").then(|| "sk-1".to_owned())).unwrap();
        let key = |name: &str| config.providers[name].api_key.as_ref().unwrap().expose_secret().to_owned();
        assert_eq!((key("openai"), key("other")), ("sk-1".to_owned(), "plain".to_owned()));

        let mut missing = parse("[credentials.git]\nhosts = [\"example.org\"]\nvalue = \"env:NOWHERE\"\n").unwrap();
        assert!(resolve(&mut missing, |_| None).is_err());
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for wrong in ["levle = \"strict\"", "[providers.openai]\nkey = \"x\"", "level = \"lax\"", "= 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
