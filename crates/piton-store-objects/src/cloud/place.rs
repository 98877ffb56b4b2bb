//! Where a store in a cloud is: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, and the settings
//! that reach it, named as the environment variables of the usual tools are.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ClientOptions, RetryConfig};
use piton_store::StoreError;
use url::Url;

use super::Cloud;
use super::connect::Connector;
use super::errors::{Secrets, store_error};

/// Whose object store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudKind {
    /// Amazon S3, or what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl CloudKind {
    const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    /// The scheme of its URLs.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// The settings that are looked at. Those that end in `!` are secret.
    const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &[
                "AWS_ACCESS_KEY_ID!",
                "AWS_SECRET_ACCESS_KEY!",
                "AWS_SESSION_TOKEN!",
                "AWS_DEFAULT_REGION",
                "AWS_REGION",
                "AWS_ENDPOINT_URL",
                "AWS_ENDPOINT_URL_S3",
                "AWS_ENDPOINT_URL_STS",
                "AWS_ALLOW_HTTP",
                "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_ROLE_ARN",
                "AWS_ROLE_SESSION_NAME",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                "AWS_SERVER_SIDE_ENCRYPTION",
                "AWS_SSE_KMS_KEY_ID",
                "AWS_DISABLE_BULK_DELETE",
                "AWS_REQUEST_PAYER",
            ],
            Self::Google => &[
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_SERVICE_ACCOUNT",
                "GOOGLE_SERVICE_ACCOUNT_KEY!",
                "GOOGLE_BEARER_TOKEN!",
                "GOOGLE_BASE_URL",
                "GOOGLE_ALLOW_HTTP",
            ],
            Self::Azure => &[
                "AZURE_STORAGE_ACCOUNT_NAME",
                "AZURE_STORAGE_ACCOUNT_KEY!",
                "AZURE_STORAGE_SAS_KEY!",
                "AZURE_STORAGE_TOKEN!",
                "AZURE_STORAGE_ENDPOINT",
                "AZURE_STORAGE_CLIENT_ID",
                "AZURE_STORAGE_CLIENT_SECRET!",
                "AZURE_STORAGE_TENANT_ID",
                "AZURE_CLIENT_ID",
                "AZURE_CLIENT_SECRET!",
                "AZURE_TENANT_ID",
                "AZURE_FEDERATED_TOKEN_FILE",
                "AZURE_ALLOW_HTTP",
            ],
        }
    }

    /// One of these says who asks.
    const fn credentials(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &[
                "AWS_ACCESS_KEY_ID",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            ],
            Self::Google => &[
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GOOGLE_SERVICE_ACCOUNT",
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                "GOOGLE_BEARER_TOKEN",
            ],
            Self::Azure => &[
                "AZURE_STORAGE_ACCOUNT_KEY",
                "AZURE_STORAGE_SAS_KEY",
                "AZURE_STORAGE_TOKEN",
                "AZURE_STORAGE_CLIENT_SECRET",
                "AZURE_CLIENT_SECRET",
                "AZURE_FEDERATED_TOKEN_FILE",
            ],
        }
    }
}

/// Settings by their names.
pub type CloudSettings = BTreeMap<String, String>;

/// A store's place, taken apart.
#[derive(Debug, Clone)]
pub struct CloudPlace {
    pub(super) kind: CloudKind,
    bucket: String,
    /// Without slashes around it; may be empty.
    pub(super) prefix: String,
    settings: Settings,
    pub(super) secrets: Secrets,
    /// The credentials of the machine itself are asked for at the address that clouds have for it.
    of_instance: bool,
}

/// Hides what it has.
#[derive(Clone)]
struct Settings(CloudSettings);

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl CloudPlace {
    /// Every setting that is looked at, for a shell that takes them from its environment.
    pub fn settings() -> impl Iterator<Item = &'static str> {
        CloudKind::ALL.into_iter().flat_map(CloudKind::settings).map(|name| name.trim_end_matches('!'))
    }

    /// Takes a URL apart. `Invalid` says what is wrong with it.
    pub fn parse(text: &str, settings: &CloudSettings) -> Result<Self, StoreError> {
        let shown = text.split(['?', '#']).next().unwrap_or_default();
        let invalid = |detail: String| {
            let what = format!("store URL {:?}", piton_store::without_secrets(shown));
            StoreError::Invalid { what, detail }
        };
        let written = "it is written as s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX";
        let kind = CloudKind::ALL.into_iter().find(|kind| text.starts_with(&format!("{}://", kind.scheme())));
        let kind = kind.ok_or_else(|| invalid(written.to_owned()))?;
        let rest = &shown[kind.scheme().len() + 3..];
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
        if !(3..=222).contains(&bucket.len()) || !bucket.bytes().all(is_plain) || bucket.starts_with(['.', '-']) {
            let detail = "the name of a bucket has at least 3 small letters, digits, '-' and '.', and no user is named before it";
            return Err(invalid(format!("{detail}; {written}")));
        }
        let prefix = prefix.trim_end_matches('/');
        let fits = |part: &str| {
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._=~".contains(&b);
            !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain)
        };
        if prefix.len() > 300 || !(prefix.is_empty() || prefix.split('/').all(fits)) {
            let detail = "a prefix has letters, digits and -._=~ between its slashes, and no part begins with a dot";
            return Err(invalid(detail.to_owned()));
        }
        let mut of_instance = false;
        let query = text.split_once('?').map_or("", |(_, query)| query);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("credentials", "instance") => of_instance = true,
                // The value isn't repeated: it may be a key.
                _ => return Err(invalid(format!("it has the unknown parameter {name:?}"))),
            }
        }
        let own = kind.settings().iter().map(|name| name.trim_end_matches('!'));
        let own: CloudSettings = own.filter_map(|name| Some((name.to_owned(), settings.get(name)?.clone()))).collect();
        let own: CloudSettings = own.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        if !of_instance && !kind.credentials().iter().any(|name| own.contains_key(*name)) {
            let what = format!("{}://{bucket}", kind.scheme());
            let names = kind.credentials().join(", ");
            let detail = format!(
                "no credentials are given: none of {names} is set; with ?credentials=instance in the URL those of the \
                 machine in the cloud are asked for"
            );
            return Err(StoreError::Denied { what, detail });
        }
        let is_secret = |name: &str| kind.settings().iter().any(|known| known.strip_suffix('!') == Some(name));
        let secrets = own.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone());
        let secrets = Secrets::new(secrets);
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(Self { kind, bucket, prefix, settings: Settings(own), secrets, of_instance })
    }

    /// The URL for people.
    pub fn url(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let credentials = if self.of_instance { "?credentials=instance" } else { "" };
        format!("{}://{}{slash}{}{credentials}", self.kind.scheme(), self.bucket, self.prefix)
    }

    /// A client for what may be sent twice, and one that sends everything once.
    pub(super) fn clients(&self) -> Result<[Arc<dyn Cloud>; 2], StoreError> {
        let connector = Connector::new()?;
        let retries = |max_retries| RetryConfig {
            max_retries,
            retry_timeout: Duration::from_secs(20),
            backoff: object_store::BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(3),
                base: 2.0,
            },
        };
        let build =
            |count| self.client(&connector, retries(count)).map_err(|e| store_error(&e, &self.url(), &self.secrets));
        Ok([build(6)?, build(0)?])
    }

    fn client(&self, connector: &Connector, retries: RetryConfig) -> object_store::Result<Arc<dyn Cloud>> {
        let options = ClientOptions::new().with_allow_http(self.allows_http());
        let settings = self.settings.0.iter().filter(|(name, _)| !name.ends_with("_ALLOW_HTTP"));
        Ok(match self.kind {
            CloudKind::S3 => {
                let mut builder = AmazonS3Builder::new().with_client_options(options);
                for (name, value) in settings {
                    builder = builder.with_config(AmazonS3ConfigKey::from_str(&name.to_ascii_lowercase())?, value);
                }
                let builder = builder.with_bucket_name(&self.bucket).with_retry(retries);
                Arc::new(builder.with_http_connector(connector.clone()).build()?)
            }
            CloudKind::Google => {
                let mut builder = GoogleCloudStorageBuilder::new().with_client_options(options);
                for (name, value) in settings {
                    builder = builder.with_config(GoogleConfigKey::from_str(&name.to_ascii_lowercase())?, value);
                }
                let builder = builder.with_bucket_name(&self.bucket).with_retry(retries);
                Arc::new(builder.with_http_connector(connector.clone()).build()?)
            }
            CloudKind::Azure => {
                let mut builder = MicrosoftAzureBuilder::new().with_client_options(options);
                for (name, value) in settings {
                    builder = builder.with_config(AzureConfigKey::from_str(&name.to_ascii_lowercase())?, value);
                }
                let builder = builder.with_container_name(&self.bucket).with_retry(retries);
                Arc::new(builder.with_http_connector(connector.clone()).build()?)
            }
        })
    }

    /// Whether what is sent may be in clear: to this machine, or because the user says so.
    fn allows_http(&self) -> bool {
        let setting = |name: &str| self.settings.0.get(name).map(String::as_str);
        let endpoints = match self.kind {
            CloudKind::S3 => ["AWS_ALLOW_HTTP", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
            CloudKind::Google => ["GOOGLE_ALLOW_HTTP", "GOOGLE_BASE_URL", ""],
            CloudKind::Azure => ["AZURE_ALLOW_HTTP", "AZURE_STORAGE_ENDPOINT", ""],
        };
        let is_here = |text: &str| {
            let url = Url::parse(text).ok();
            url.as_ref().and_then(Url::host).is_some_and(|host| match host {
                url::Host::Domain(name) => name == "localhost",
                url::Host::Ipv4(address) => address.is_loopback(),
                url::Host::Ipv6(address) => address.is_loopback(),
            })
        };
        setting(endpoints[0]).is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || endpoints[1..].iter().find_map(|name| setting(name)).is_some_and(is_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> CloudSettings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Promise 22: a URL leads nowhere else, and no error repeats what may be a key.
    #[test]
    fn urls_are_taken_apart_or_refused() {
        let keys = settings(&[("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden")]);
        let place = CloudPlace::parse("s3://team-bucket/a/b_1/", &keys).unwrap();
        assert_eq!((place.bucket.as_str(), place.prefix.as_str()), ("team-bucket", "a/b_1"));
        assert_eq!(place.url(), "s3://team-bucket/a/b_1");
        assert!(!format!("{place:?}").contains("hidden"));
        assert_eq!(CloudPlace::parse("s3://team-bucket", &keys).unwrap().url(), "s3://team-bucket");
        let long = format!("s3://team-bucket/{}", "x".repeat(301));
        for url in [
            "s3:team-bucket",
            "s3://",
            "s3://x",
            "s3://me:hidden@team-bucket",
            "s3://Team",
            "s3://../etc",
            "s3://team-bucket/../x",
            "s3://team-bucket//x",
            "s3://team-bucket/.x",
            "s3://team-bucket/a b",
            "s3://team-bucket/a\0",
            "s3://team-bucket/a\nb",
            "s3://team-bucket/*",
            "s3://team-bucket/x?key=hidden",
            "s3://team-bucket/<script>",
            &long,
        ] {
            let error = CloudPlace::parse(url, &keys).expect_err(url);
            assert!(matches!(error, StoreError::Invalid { .. }), "{url}: {error}");
            assert!(url.starts_with("s3://me") || !error.to_string().contains("hidden"), "{error}");
        }
    }

    /// Promise 34: without credentials nobody is asked for any, unless the URL says so.
    #[test]
    fn credentials_are_given_or_asked_for_explicitly() {
        for url in ["s3://bucket/x", "gs://bucket/x", "az://bucket/x"] {
            let error = CloudPlace::parse(url, &CloudSettings::new()).expect_err(url);
            assert!(
                matches!(&error, StoreError::Denied { detail, .. } if detail.contains("credentials=instance")),
                "{error}"
            );
            let asked = format!("{url}?credentials=instance");
            assert_eq!(CloudPlace::parse(&asked, &CloudSettings::new()).unwrap().url(), asked);
        }
    }

    /// What isn't for this machine isn't sent in clear.
    #[test]
    fn only_loopback_is_reached_without_tls() {
        for (endpoint, allow, may) in [
            ("http://127.0.0.1:9000", "", true),
            ("http://localhost:9000", "", true),
            ("http://[::1]:9000", "", true),
            ("http://minio.example:9000", "", false),
            ("http://127.0.0.1.example:9000", "", false),
            ("http://minio.example:9000", "true", true),
        ] {
            let settings = settings(&[
                ("AWS_ACCESS_KEY_ID", "id"),
                ("AWS_SECRET_ACCESS_KEY", "hidden"),
                ("AWS_ENDPOINT_URL", endpoint),
                ("AWS_ALLOW_HTTP", allow),
            ]);
            assert_eq!(CloudPlace::parse("s3://bucket", &settings).unwrap().allows_http(), may, "{endpoint}");
        }
    }
}
