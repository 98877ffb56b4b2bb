//! The question to a person what became of work that was in flight when a process died (`on_uncertain: ask`), and his
//! answer.

use piton_runtime::EffectAnswer;
use piton_types::{StepPath, Value, from_json};

use crate::inbox::{Field, Form, Question};

const OUTCOME: &str = "outcome";
const OUTPUT: &str = "output";
const DONE: &str = "done";
const NOT_DONE: &str = "not_done";
const GIVE_UP: &str = "give_up";

/// Asks whether it took place, and if so, what it gave.
pub(crate) fn ask(step: StepPath, prompt: String) -> Question {
    let field = |name: &str, kind: &str, options: &[&str]| Field {
        name: name.to_owned(),
        label: String::new(),
        kind: kind.to_owned(),
        required: !options.is_empty(),
        options: options.iter().copied().map(Value::from).collect(),
        default: Value::Null,
    };
    let fields = vec![field(OUTCOME, "select", &[DONE, NOT_DONE, GIVE_UP]), field(OUTPUT, "any", &[])];
    Question { step, prompt, form: Form { fields, ..Form::default() }, timeout: None }
}

/// What was said. The form admits nothing else; whatever gets past it is no leave to do it again.
pub(crate) fn read(answer: &Value) -> EffectAnswer {
    match answer.field(OUTCOME).and_then(Value::as_str) {
        Some(DONE) => EffectAnswer::Done(output(answer.field(OUTPUT).cloned().unwrap_or_default())),
        Some(NOT_DONE) => EffectAnswer::NotDone,
        _ => EffectAnswer::GiveUp,
    }
}

/// From a command line everything is text.
fn output(given: Value) -> Value {
    match &given {
        Value::String(text) => from_json(text.as_bytes()).unwrap_or(given),
        Value::Null => Value::map::<&str>([]),
        _ => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_as_the_form_asks_for_it() {
        let form = ask("pay#?1".parse().unwrap(), String::new()).form;
        let said = |pairs: &[(&str, &str)]| {
            let answer = Value::map(pairs.iter().map(|(name, text)| (*name, Value::from(*text))));
            form.check(&answer).map(|accepted| read(&Value::Map(accepted)))
        };
        assert_eq!(said(&[("outcome", "not_done")]), Ok(EffectAnswer::NotDone));
        assert_eq!(said(&[("outcome", "give_up")]), Ok(EffectAnswer::GiveUp));
        let stdout = Value::map([("stdout", "x".into())]);
        assert_eq!(said(&[("outcome", "done"), ("output", r#"{"stdout": "x"}"#)]), Ok(EffectAnswer::Done(stdout)));
        assert_eq!(said(&[("outcome", "done"), ("output", "x")]), Ok(EffectAnswer::Done("x".into())));
        assert_eq!(said(&[("outcome", "done")]), Ok(EffectAnswer::Done(Value::map::<&str>([]))));
        assert!(said(&[("outcome", "perhaps")]).is_err());
        assert!(said(&[("output", "x")]).is_err());
    }
}
