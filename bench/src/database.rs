//! The PostgreSQL server of a bench: stores in schemas of their own, and a bare client beside them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use piton_store_postgres::{PostgresStore, PostgresUrl};
use tokio_postgres::{Client, NoTls};

/// A server, and one connection to it.
pub(crate) struct Database {
    url: String,
    pub(crate) client: Client,
}

impl Database {
    /// The server at `postgresql://…`.
    pub(crate) async fn at(url: &str) -> anyhow::Result<Self> {
        Ok(Self { url: url.to_owned(), client: client(url).await? })
    }

    /// One more connection.
    pub(crate) async fn another(&self) -> anyhow::Result<Client> {
        client(&self.url).await
    }

    /// An empty schema.
    pub(crate) async fn fresh(&self, schema: &str) -> anyhow::Result<()> {
        Ok(self.client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?)
    }

    /// A handle of the store in a schema, which is made if it isn't there.
    pub(crate) async fn store(&self, schema: &str) -> anyhow::Result<PostgresStore> {
        let joint = if self.url.contains('?') { '&' } else { '?' };
        let url = PostgresUrl::parse(&format!("{}{joint}schema={schema}", self.url))?;
        Ok(PostgresStore::open(url, true).await?)
    }

    /// What a query for one number gives.
    pub(crate) async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(self.client.query_one(&format!("SELECT ({sql})::bigint"), &[]).await?.get(0))
    }

    /// Bytes of WAL that were ever written.
    pub(crate) async fn wal(&self) -> anyhow::Result<i64> {
        self.number("pg_current_wal_insert_lsn() - '0/0'::pg_lsn").await
    }

    /// Transactions that ever wrote.
    pub(crate) async fn writes(&self) -> anyhow::Result<i64> {
        self.number("pg_snapshot_xmax(pg_current_snapshot())::text").await
    }

    /// Bytes of some tables of a schema, of all with an empty list, with their indexes and what is stored beside them.
    pub(crate) async fn bytes(&self, schema: &str, tables: &str) -> anyhow::Result<i64> {
        let which = if tables.is_empty() { String::new() } else { format!("AND c.relname IN ({tables})") };
        self.number(&format!(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = '{schema}' AND c.relkind = 'r' {which}"
        ))
        .await
    }

    /// Bare commits a second by `pgbench`, from so many connections at once.
    pub(crate) fn bare_rate(&self, scratch: &Path, clients: usize, commits: usize) -> anyhow::Result<f64> {
        let script = scratch.join("bare.sql");
        std::fs::write(&script, "INSERT INTO bare(b) VALUES (repeat('0123456789abcdef', 24)::bytea);\n")?;
        let mut pgbench = Command::new("pgbench");
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--client", &clients.to_string(), "--jobs"]);
        pgbench.args([
            &clients.min(2).to_string(),
            "--transactions",
            &(commits / clients).max(1).to_string(),
            "--file",
        ]);
        let output = pgbench.arg(&script).arg(&self.url).output().context("pgbench is needed")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "pgbench: {}", String::from_utf8_lossy(&output.stderr));
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.with_context(|| format!("pgbench says no rate: {said}"))
    }

    /// The table of bare commits, empty.
    pub(crate) async fn bare_table(&self) -> anyhow::Result<()> {
        let sql = "DROP TABLE IF EXISTS bare; CREATE TABLE bare(id bigserial PRIMARY KEY, b bytea)";
        Ok(self.client.batch_execute(sql).await?)
    }
}

async fn client(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
