//! `piton serve`: the API and the page, until a signal comes.

use piton_server::{Options, Serving, Tls};
use serde_json::json;

use crate::arguments::scale::Serve;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::signals::first_signal;

pub(crate) async fn execute(session: &Session, arguments: Serve) -> Result<Exit, Failure> {
    let Serve { listen, host, tls_cert, tls_key, without_tls, config } = arguments;
    let tls = tls_cert.zip(tls_key).map(|(certificate, key)| Tls { certificate, key });
    let options = Options { listen, hosts: host, tls, without_tls, config };
    let serving = Serving::bind(session, options).await?;
    let (link, folder) = (serving.link()?, serving.folder().display().to_string());
    let output = &session.output;
    if output.is_json() {
        output.object(&json!({ "url": serving.url(), "sign_in": link, "tokens": folder }))?;
    } else {
        output.data(&link)?;
        output.note("open it within ten minutes: it signs one browser in");
        output.note(&clean(&format!("programs use the tokens in {folder}: look, answer, operate")));
    }
    let stopped = first_signal()?;
    serving
        .serve(async {
            stopped.await;
            output.note("stopping: runs that are driven here may take 30 s to stop in peace");
        })
        .await;
    Ok(Exit::Done)
}
