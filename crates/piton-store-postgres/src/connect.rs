//! Connections to the server, and statements on them.
//!
//! A statement is sent together with its parameters and their types, and isn't prepared: that is one round trip, and leaves
//! nothing behind in the session. A statement that may be carried out twice is sent again if its answer was lost.

use std::time::Duration;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts, Transaction,
};
use piton_store::StoreError;
use tokio_postgres::{NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::errors::{Failed, connecting, statement};
use crate::params::Params;
use crate::{PostgresUrl, tls};

/// Connections that one handle has at most. Servers allow a hundred or so, for all handles of all processes.
const CONNECTIONS: usize = 8;

/// How long to wait for a connection of this handle to be free.
const FOR_A_TURN: Duration = Duration::from_secs(60);

/// How long an answer may take. A server that is frozen keeps its connections open, and nothing else would tell.
const FOR_AN_ANSWER: Duration = Duration::from_secs(120);

/// The pauses before a statement is sent again.
pub(crate) const PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
];

/// The connections of one handle.
pub(crate) struct Core {
    pool: Pool,
    /// The URL without a password.
    pub(crate) shown: String,
    pub(crate) schema: String,
}

impl Core {
    pub(crate) fn new(url: &PostgresUrl) -> Result<Self, StoreError> {
        let recycled = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match url.encrypted {
            true => {
                let tls = MakeRustlsConnect::new(tls::config(url.roots.as_deref())?);
                Manager::from_config(url.config(), tls, recycled)
            }
            false => Manager::from_config(url.config(), NoTls, recycled),
        };
        let shown = url.shown().to_owned();
        let timeouts = Timeouts { wait: Some(FOR_A_TURN), create: None, recycle: None };
        let built = Pool::builder(manager).max_size(CONNECTIONS).timeouts(timeouts).runtime(Runtime::Tokio1).build();
        let pool = built.map_err(|error| StoreError::Unavailable { detail: format!("{shown}: {error}") })?;
        Ok(Self { pool, shown, schema: url.schema.clone() })
    }

    /// A statement of ours, in which `@name` is a table of the store.
    pub(crate) fn sql(&self, text: &str) -> String {
        let mut parts = text.split('@');
        let mut sql = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            match part.starts_with(|first: char| first.is_ascii_lowercase()) {
                true => sql.extend(["\"", &self.schema, "\"."]),
                false => sql.push('@'),
            }
            sql.push_str(part);
        }
        sql
    }

    /// A connection.
    pub(crate) async fn connection(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => connecting(&error, &self.shown),
            PoolError::Closed => StoreError::Unavailable { detail: format!("{} was closed", self.shown) },
            error => StoreError::Unavailable { detail: format!("{}: {error}", self.shown) },
        })
    }

    /// Sends a statement once.
    pub(crate) async fn once(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, Failed> {
        let client = self.connection().await?;
        let sql = self.sql(sql);
        let answer = tokio::time::timeout(FOR_AN_ANSWER, client.query_typed(&sql, &params.typed())).await;
        match answer {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(statement(&error, &self.shown)),
            Err(_) => {
                // What is still to come belongs to no later statement.
                drop(Object::take(client));
                Err(Failed::Lost(format!("{}: the server doesn't answer", self.shown)))
            }
        }
    }

    /// Sends a statement that may be carried out more than once, until there is an answer or it takes too long.
    pub(crate) async fn again(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let failed = match self.once(sql, params).await {
                Ok(rows) => return Ok(rows),
                Err(failed) => failed,
            };
            match (&failed, pauses.next()) {
                (Failed::Refused(error), Some(pause)) if passes(error) => tokio::time::sleep(pause).await,
                (Failed::Lost(_) | Failed::Undone(_), Some(pause)) => tokio::time::sleep(pause).await,
                _ => return Err(failed.into_error()),
            }
        }
    }

    /// The same for a statement with one row as its answer.
    pub(crate) async fn one(&self, sql: &str, params: &Params<'_>) -> Result<Row, StoreError> {
        self.again(sql, params).await?.pop().ok_or_else(|| StoreError::corrupt(&self.shown, "an answer has no row"))
    }

    /// A transaction's statement.
    pub(crate) async fn within(
        &self,
        transaction: &Transaction<'_>,
        sql: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Failed> {
        let sql = self.sql(sql);
        transaction.query_typed(&sql, &params.typed()).await.map_err(|error| statement(&error, &self.shown))
    }

    /// Begins and ends are statements too.
    pub(crate) fn failed(&self, error: &tokio_postgres::Error) -> Failed {
        statement(error, &self.shown)
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

/// Whether a server that refuses a connection now may take it in a moment.
pub(crate) const fn passes(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. })
}
