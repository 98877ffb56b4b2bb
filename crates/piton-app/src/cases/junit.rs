//! The results as JUnit XML, which CI systems show.

use super::run::{Outcome, Verdict};

/// The whole report.
pub fn junit(outcomes: &[Outcome]) -> String {
    let count = |wanted: fn(&Verdict) -> bool| outcomes.iter().filter(|outcome| wanted(&outcome.verdict)).count();
    let failures = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Unsupported(_)));
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.duration.as_secs_f64()).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let total = outcomes.len();
    xml.push_str(&format!(
        "<testsuites><testsuite name=\"piton test\" tests=\"{total}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n"
    ));
    for outcome in outcomes {
        let (name, seconds) = (escape(&outcome.name), outcome.duration.as_secs_f64());
        xml.push_str(&format!("  <testcase name=\"{name}\" classname=\"piton\" time=\"{seconds:.3}\">"));
        match &outcome.verdict {
            Verdict::Passed => {}
            Verdict::Failed(differences) => {
                let first = differences.first().map(String::as_str).unwrap_or_default();
                let (first, all) = (escape(first), escape(&differences.join("\n")));
                xml.push_str(&format!("<failure message=\"{first}\">{all}</failure>"));
            }
            Verdict::Unsupported(reason) => xml.push_str(&format!("<skipped message=\"{}\"/>", escape(reason))),
        }
        xml.push_str("</testcase>\n");
    }
    xml.push_str("</testsuite></testsuites>\n");
    xml
}

/// A text in XML. Characters that XML can't have at all are left out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn hostile_names_and_texts_stay_text() {
        let outcome =
            |name: &str, verdict| Outcome { name: name.to_owned(), verdict, duration: Duration::from_millis(1500) };
        let xml = junit(&[
            outcome("a\"<script>", Verdict::Passed),
            outcome("b", Verdict::Failed(vec!["x]]>\u{0}".to_owned(), "y".to_owned()])),
            outcome("c", Verdict::Unsupported("no".to_owned())),
        ]);
        insta::assert_snapshot!(xml, @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites><testsuite name="piton test" tests="3" failures="1" skipped="1" time="4.500">
          <testcase name="a&quot;&lt;script&gt;" classname="piton" time="1.500"></testcase>
          <testcase name="b" classname="piton" time="1.500"><failure message="x]]&gt;�">x]]&gt;�&#10;y</failure></testcase>
          <testcase name="c" classname="piton" time="1.500"><skipped message="no"/></testcase>
        </testsuite></testsuites>
        "#);
    }
}
