//! What a request says, read strictly: a parameter that a route doesn't have is refused, and every refusal names the field.

use std::str::FromStr;

use piton_app::Failure;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use crate::problem::Problem;

/// A parameter of a route, as its description names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub(crate) kind: &'static str,
    pub(crate) about: &'static str,
}

/// The query of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it for a route that has these parameters.
    pub(crate) fn read(text: &str, known: &[Parameter]) -> Result<Self, Problem> {
        Self::of(form_urlencoded::parse(text.as_bytes()).into_owned().collect(), known)
    }

    /// Takes what was said for a route that has these parameters.
    pub(crate) fn of(pairs: Vec<(String, String)>, known: &[Parameter]) -> Result<Self, Problem> {
        for (name, _) in &pairs {
            if !known.iter().any(|parameter| parameter.name == name) {
                let names = known.iter().map(|parameter| parameter.name).collect::<Vec<_>>().join(", ");
                let name: String = name.chars().take(80).collect();
                let failure = Failure::usage(format!("there is no parameter {name:?} here"));
                let failure = if names.is_empty() { failure } else { failure.hint(format!("there is {names}.")) };
                return Err(Problem::from(failure).field(name));
            }
        }
        Ok(Self(pairs))
    }

    /// A parameter, if it is there and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).filter(|text| !text.is_empty())
    }

    /// All of one name.
    pub(crate) fn texts(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| &**value).collect()
    }

    /// A parameter as what it is.
    pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.text(name).map(|text| parse(name, text)).transpose()
    }

    /// The same where there is no way without it.
    pub(crate) fn needed<T: FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, Problem> {
        self.parse(name)?.ok_or_else(|| Problem::of_field(name, "it is needed"))
    }

    /// Whether something is wanted.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(Problem::of_field(name, "it is true or false")),
        }
    }

    /// How many are wanted, of at most so many.
    pub(crate) fn limit(&self, usual: usize, most: usize) -> Result<usize, Problem> {
        match self.parse::<usize>("limit")? {
            None => Ok(usual),
            Some(limit) if (1..=most).contains(&limit) => Ok(limit),
            Some(_) => Err(Problem::of_field("limit", format!("it is a number from 1 to {most}"))),
        }
    }

    /// Words that commas separate, each one of those that a type has.
    pub(crate) fn words<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, Problem> {
        self.text(name).into_iter().flat_map(|text| text.split(',')).map(|word| named(name, word)).collect()
    }
}

/// A text as what it is.
pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| Problem::of_field(field, error))
}

/// A word as the value of an enumeration.
pub(crate) fn named<T: DeserializeOwned>(field: &str, word: &str) -> Result<T, Problem> {
    serde_json::from_value(serde_json::Value::from(word)).map_err(|error| Problem::of_field(field, error))
}

/// The body of a request as what the route takes.
pub(crate) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(if bytes.is_empty() { b"{}" } else { bytes }).map_err(|error| {
        let message = error.to_string();
        let problem = Problem::from(Failure::usage(format!("the body is not what is taken here: {message}")));
        // serde names the field between backticks.
        match message.split('`').nth(1).filter(|_| message.contains("field")) {
            Some(field) => problem.field(field),
            None => problem,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: &[Parameter] = &[Parameter { name: "limit", kind: "integer", about: "" }];

    #[test]
    fn what_a_route_does_not_have_is_refused_with_its_name() {
        let query = Query::read("limit=7", LIMIT).unwrap();
        assert_eq!(query.limit(5, 10).unwrap(), 7);
        assert!(Query::read("limit=11", LIMIT).unwrap().limit(5, 10).is_err());
        let problem = Query::read("limit=7&x=%00", LIMIT).unwrap_err().object();
        assert_eq!((&problem["field"], &problem["status"]), (&"x".into(), &400.into()));
    }

    #[test]
    fn a_body_that_lacks_a_field_names_it() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Taken {
            #[expect(dead_code, reason = "only what is wrong matters here")]
            name: String,
        }
        for (text, field) in [("{}", "name"), (r#"{"name":"a","x":1}"#, "x"), (r#"{"name":"a","name":"b"}"#, "name")] {
            assert_eq!(body::<Taken>(text.as_bytes()).unwrap_err().object()["field"], field, "{text}");
        }
        assert!(body::<Taken>(b"[").is_err());
    }
}
