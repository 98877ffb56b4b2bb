//! Claude Code's settings as text: our hooks put in and taken out, and everything else left as it is, to the byte.

use jsonc_parser::cst::{CstArray, CstNode, CstObject, CstObjectProp, CstRootNode};
use jsonc_parser::{ParseOptions, json};

use super::CALL;
use crate::agent::{Hooks, SettingsError};

/// How long a hook may take, in seconds; the first checkpoint of a large folder takes longest.
const TIMEOUT: f64 = 120.0;

/// An event that Piton wants to be told of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    /// Whether it has to do with a tool, so that the settings ask which.
    of_tools: bool,
}

pub(crate) const EVENTS: [Event; 6] = [
    Event { name: "UserPromptSubmit", of_tools: false },
    Event { name: "PreToolUse", of_tools: true },
    Event { name: "PostToolUse", of_tools: true },
    Event { name: "PostToolUseFailure", of_tools: true },
    Event { name: "Stop", of_tools: false },
    Event { name: "SessionEnd", of_tools: false },
];

/// What is there.
pub(crate) fn found(text: &str) -> Result<Hooks, SettingsError> {
    let (_, settings) = parse(text)?;
    let mut found = Hooks::default();
    let Some(hooks) = settings.object_value("hooks") else { return Ok(found) };
    for event in EVENTS {
        let ours: Vec<String> = hooks.array_value(event.name).iter().flat_map(ours).map(|(_, _, text)| text).collect();
        if !ours.is_empty() {
            found.events.push(event.name);
        }
        for command in ours {
            if !found.commands.contains(&command) {
                found.commands.push(command);
            }
        }
    }
    Ok(found)
}

/// The settings with our hooks, each once.
pub(crate) fn installed(text: &str, command: &str) -> Result<String, SettingsError> {
    let (root, settings) = parse(text)?;
    let hooks =
        settings.object_value_or_create("hooks").ok_or_else(|| SettingsError("`hooks` is no object".to_owned()))?;
    for event in EVENTS {
        let no_list = || SettingsError(format!("`hooks.{}` is no list", event.name));
        let groups = hooks.array_value_or_create(event.name).ok_or_else(no_list)?;
        let there: Vec<String> = ours(&groups).into_iter().map(|(_, _, text)| text).collect();
        if there == [command] {
            continue;
        }
        take_out(&groups);
        let call = json!({"type": "command", "command": command, "timeout": TIMEOUT});
        let group = match event.of_tools {
            true => json!({"matcher": "*", "hooks": [call]}),
            false => json!({"hooks": [call]}),
        };
        groups.ensure_multiline();
        groups.append(group);
    }
    Ok(root.to_string())
}

/// The settings without our hooks: `None` if there are none, and an inner `None` if nothing else is left.
pub(crate) fn removed(text: &str) -> Result<Option<Option<String>>, SettingsError> {
    if found(text)?.events.is_empty() {
        return Ok(None);
    }
    let (root, settings) = parse(text)?;
    if let Some(hooks) = settings.object_value("hooks") {
        for event in EVENTS {
            let Some(groups) = hooks.array_value(event.name) else { continue };
            if take_out(&groups) && groups.elements().is_empty() {
                hooks.get(event.name).into_iter().for_each(CstObjectProp::remove);
            }
        }
        if hooks.properties().is_empty() {
            settings.get("hooks").into_iter().for_each(CstObjectProp::remove);
        }
    }
    let left = !settings.properties().is_empty();
    Ok(Some(left.then(|| root.to_string())))
}

fn parse(text: &str) -> Result<(CstRootNode, CstObject), SettingsError> {
    let strict = ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        ..ParseOptions::default()
    };
    let root = CstRootNode::parse(text, &strict).map_err(|error| SettingsError(error.to_string()))?;
    let settings = root.object_value_or_create().ok_or_else(|| SettingsError("it is no object".to_owned()))?;
    Ok((root, settings))
}

/// Our hooks in the groups of an event: each with its group, and its command.
fn ours(groups: &CstArray) -> Vec<(CstObject, CstNode, String)> {
    let mut found = Vec::new();
    for group in groups.elements().into_iter().filter_map(|group| group.as_object()) {
        let hooks = group.array_value("hooks").map(|hooks| hooks.elements()).unwrap_or_default();
        for hook in hooks {
            let command = hook.as_object().and_then(|hook| hook.get("command")?.value()?.as_string_lit());
            if let Some(Ok(command)) = command.map(|command| command.decoded_value())
                && command.contains(CALL)
            {
                found.push((group.clone(), hook, command));
            }
        }
    }
    found
}

/// Takes our hooks out, and groups that have no other; says whether there were any.
fn take_out(groups: &CstArray) -> bool {
    let ours = ours(groups);
    for (group, hook, _) in &ours {
        hook.clone().remove();
        if group.array_value("hooks").is_some_and(|hooks| hooks.elements().is_empty()) {
            group.clone().remove();
        }
    }
    !ours.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = r#"piton -C "$CLAUDE_PROJECT_DIR" hook call claude-code || true"#;

    /// Settings as people and programs write them.
    const TEXTS: [&str; 5] = [
        "{\n  \"permissions\": {\n    \"allow\": [\"Bash(ls:*)\"]\n  }\n}\n",
        "{\n\t\"model\": \"opus\",\n\t\"hooks\": {\n\t\t\"Stop\": [\n\t\t\t{ \"hooks\": [ { \"type\": \"command\", \"command\": \"say done\" } ] }\n\t\t]\n\t}\n}\n",
        "{\r\n    \"model\": \"opus\"\r\n}\r\n",
        "{\n  // mine\n  \"model\": \"opus\" /* the large one */\n}",
        "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"Bash\",\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \"./check.sh\"\n          }\n        ]\n      }\n    ]\n  }\n}\n",
    ];

    #[test]
    fn what_was_put_in_is_taken_out_to_the_byte() {
        for text in TEXTS {
            let with = installed(text, COMMAND).unwrap();
            let hooks = found(&with).unwrap();
            assert_eq!((hooks.events.len(), hooks.commands), (EVENTS.len(), vec![COMMAND.to_owned()]), "{with}");
            assert_eq!(removed(&with).unwrap().unwrap().as_deref(), Some(text), "{with}");
            assert_eq!(installed(&with, COMMAND).unwrap(), with, "a second time changes nothing");
        }
        assert_eq!(removed(&installed("{}\n", COMMAND).unwrap()).unwrap(), Some(None));
        // What stands on one line stands on several afterwards, and is the same.
        let left = removed(&installed("{\"model\": \"opus\", \"env\": {}}", COMMAND).unwrap()).unwrap().unwrap();
        assert_eq!(left.as_deref(), Some("{\n  \"model\": \"opus\",\n  \"env\": {}\n}"));
        assert_eq!(removed(TEXTS[1]).unwrap(), None);
    }

    /// Another place of the program, or hooks that are only partly there: what is there is replaced.
    #[test]
    fn what_is_out_of_date_is_replaced() {
        let old = installed(TEXTS[4], &COMMAND.replacen("piton", "'/old/piton'", 1)).unwrap();
        let new = installed(&old, COMMAND).unwrap();
        assert_eq!(found(&new).unwrap().commands, [COMMAND]);
        assert_eq!(removed(&new).unwrap().unwrap().as_deref(), Some(TEXTS[4]));
    }

    #[test]
    fn what_are_no_settings_is_refused() {
        for text in ["[1]", "{", "{\"hooks\": 3}", "{\"hooks\": {\"Stop\": {}}}", "{} {}"] {
            assert!(installed(text, COMMAND).is_err(), "{text}");
        }
    }

    #[test]
    fn new_settings_look_as_the_agent_writes_them() {
        let text = installed("{}\n", "piton hook call claude-code").unwrap();
        let start = text.lines().take(17).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(start, @r#"
        {
          "hooks": {
            "UserPromptSubmit": [
              {
                "hooks": [
                  {
                    "type": "command",
                    "command": "piton hook call claude-code",
                    "timeout": 120
                  }
                ]
              }
            ],
            "PreToolUse": [
              {
                "matcher": "*",
                "hooks": [
        "#);
    }
}
