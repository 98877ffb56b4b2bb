//! The ReAct strategy: tools by text, for models that can't call functions.

use piton_model::chat::{ToolCall, ToolSpec};
use piton_types::to_json;

/// Where the model must stop: what it observes is for us to say.
pub(super) const STOP: &str = "Observation:";

/// What the model is told before its last turn.
pub(super) const LAST: &str = "No more tools are available. Write your Final Answer now.";

/// The rules, with the tools in them.
pub(super) fn rules(instruction: &str, tools: &[ToolSpec]) -> String {
    let mut rules = instruction.trim().to_owned();
    rules.push_str("\n\nYou may use these tools:\n");
    for tool in tools {
        let schema = to_json(&tool.schema).map(|json| json.to_string()).unwrap_or_default();
        rules.push_str(&format!("- {}: {} Arguments: {schema}\n", tool.name, tool.description));
    }
    rules.push_str(
        "\nWork in steps. In each step write exactly one of these two forms.\n\n\
         Thought: what you think\nAction: the name of one tool\nAction Input: its arguments, a JSON object\n\n\
         or, when you know the answer,\n\n\
         Thought: what you think\nFinal Answer: the answer\n\n\
         After an Action you will be given its Observation. Never write an Observation yourself.",
    );
    rules.trim().to_owned()
}

/// The answer or the call that is in a text. A text in neither form is an answer.
pub(super) fn read(text: String, iteration: i64) -> (String, Vec<ToolCall>) {
    // What it imagines to observe doesn't count.
    let said = text.split(STOP).next().unwrap_or_default().trim_end();
    let action = said.rfind("Action:");
    if let Some((before, answer)) = said.rsplit_once("Final Answer:")
        && action.is_none_or(|action| action < before.len())
    {
        return (answer.trim().to_owned(), Vec::new());
    }
    let Some(rest) = action.map(|start| &said[start + "Action:".len()..]) else {
        return (said.trim().to_owned(), Vec::new());
    };
    let (name, arguments) = rest.split_once("Action Input:").unwrap_or((rest, ""));
    let name = name.trim().trim_matches(['`', '"', '\'']).lines().next().unwrap_or_default().trim().to_owned();
    let arguments = arguments.trim().trim_start_matches("```json").trim_matches('`').trim().to_owned();
    let call = ToolCall { id: format!("react-{iteration}"), name, arguments };
    (said.trim().to_owned(), vec![call])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_answers_are_told_apart() {
        let (text, calls) = read(
            "Thought: hm\nAction: search\nAction Input: {\"q\": 1}\nObservation: made up\nFinal Answer: no".to_owned(),
            3,
        );
        assert!(!text.contains("made up"));
        assert_eq!(
            calls,
            [ToolCall { id: "react-3".to_owned(), name: "search".to_owned(), arguments: "{\"q\": 1}".to_owned() }]
        );
        let (_, calls) = read("Action: `now`\nAction Input:\n```json\n{}\n```".to_owned(), 0);
        assert_eq!((calls[0].name.as_str(), calls[0].arguments.as_str()), ("now", "{}"));
        assert_eq!(read("Thought: I know.\nFinal Answer: 42 ".to_owned(), 0), ("42".to_owned(), vec![]));
        assert_eq!(read("Just 42.".to_owned(), 0), ("Just 42.".to_owned(), vec![]));
    }
}
