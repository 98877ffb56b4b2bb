//! One story in which every verb has its part, told twice: once for people and once for programs. What comes out is
//! `docs/reference/output.md`, with what varies taken out.

use regex::Regex;
use serde_json::Value as Json;

use crate::world::{Said, World, without_ages};

/// `# VERB` begins a verb, `! …` prepares something, the rest is shown.
const STORY: &str = r#"
# init
piton init
# save
! printf 'one\ntwo\nthree\n' > notes.txt
! echo SECRET=1 > .env
piton save -m 'before the refactor'
# guard
piton guard -- sh -c 'echo new > made.txt; echo four >> notes.txt'
# hook
piton hook install claude-code --dry-run
piton hook install claude-code --yes
piton hook show
piton hook remove claude-code --yes
# status
! echo mine > own.txt
piton status
# log
piton log -n 2
piton log notes.txt
# diff
piton diff @- @
piton diff @- @ --stat
# undo
piton undo --dry-run
piton undo --yes
# redo
piton redo --yes
# restore
piton restore @~2 notes.txt --yes
# checkpoint
piton checkpoint create 'by a chat'
# lease
piton lease take notes.txt --owner Ada
piton lease ls
piton lease check notes.txt --owner Grace
piton lease drop notes.txt --owner Ada
# merge-file
! printf 'a\nb\nc\n' > base.txt; printf 'A\nb\nc\n' > ours.txt; printf 'a\nb\nC\n' > theirs.txt
piton merge-file -p ours.txt base.txt theirs.txt
# drift
! git init -q -b main . && git add -A && git -c user.name=a -c user.email=a@b commit -q -m first
piton drift --no-fetch
# validate
piton validate flow.yml
! printf 'nodes: [{id: a, data: {type: stort}}]\nedges: []\n' > wrong.yml
piton validate wrong.yml
# graph
piton graph flow.yml
# run
piton run flow.yml -i name=Ada --id first
piton run asks.yml --id post
piton run fails.yml --id broken
# ls
piton ls
piton status
piton ls --waiting
piton ls --failed
# show
piton show first
piton show first --steps
piton show first@
piton show first/greet
# events
piton events first
# answer
piton answer post --set approved=true --by Ada
# resume
piton resume post --explain
piton resume post
# retry
! touch ready
piton retry broken
# fork
piton fork first@2 --set name=Bob --id second
piton diff first second
# stop
piton run asks.yml --id other
piton stop other
# cancel
piton cancel other --yes
piton cancel other --yes
# submit
piton submit flow.yml -i name=Eve --id queued --priority 2
piton submit fails.yml --id later --in 2h
# worker
piton worker run --until-empty --name builder
piton worker ls
# debug
! printf 'to out\nvars greet.greeting\nvars greet\nback greet\nset in.name=Grace\ncontinue\n' > commands
piton debug flow.yml -i name=Ada --id stepped < commands
# test
! mkdir case && cp flow.yml case/workflow.yml && echo 'name: Ada' > case/in.yml
! printf 'status: completed\noutputs: {greeting: Hello Ada!}\n' > case/out.yml
piton test case
# check
piton check
# gc
piton gc --dry-run
piton gc --yes
# copy
piton copy sqlite:../store.db sqlite:../second.db
# export
piton export first > ../first.export
# import
piton --store sqlite:../third.db import ../first.export
# key
! piton --store sqlite:../secret.db init --encrypt --key-file ../old.key
piton --store sqlite:../secret.db --key-file ../old.key key rotate --new-key-file ../new.key
# completions
piton completions fish | head -n 1
"#;

const FLOW: &str = "nodes:
  - {id: in, data: {type: start, title: In, variables: [{variable: name, required: true}]}}
  - {id: greet, data: {type: template-transform, title: Greet, template: 'Hello {{ name }}!', variables: [{variable: name, value_selector: [in, name]}]}}
  - {id: out, data: {type: end, title: Out, checkpoint: true, outputs: [{variable: greeting, value_selector: [greet, output]}]}}
edges:
  - {source: in, target: greet}
  - {source: greet, target: out}
";

const ASKS: &str = "nodes:
  - {id: in, data: {type: start, title: In}}
  - {id: review, data: {type: human-input, title: Review, prompt: 'Publish it?', variables: [{variable: approved, type: boolean, required: true}]}}
  - {id: out, data: {type: end, title: Out, outputs: [{variable: approved, value_selector: [review, approved]}]}}
edges:
  - {source: in, target: review}
  - {source: review, target: out}
";

const FAILS: &str = "nodes:
  - {id: in, data: {type: start, title: In}}
  - {id: look, data: {type: command, title: Look, command: [test, -e, ready]}}
  - {id: out, data: {type: end, title: Out, outputs: []}}
edges:
  - {source: in, target: look}
  - {source: look, target: out}
";

/// The page.
pub(crate) fn told() -> String {
    let (people, programs) = (stage(), stage());
    let varying = varying();
    let mut page = "# Output\n\nWhat every verb says, for people and with `--json` for programs, in one story that the tests \
        tell. What differs from run to run stands in brackets. The rules:\n\n\
        - Data is on stdout, everything else on stderr. A list is one object a line.\n\
        - The same name is the same thing everywhere: `id` of what is shown, `run`, `status`, `outputs`, `error`, `step`, \
        `folder`, `store`, `created_at`. A checkpoint or entry is named `RUN@NUMBER`, a step `RUN/STEP`.\n\
        - Times are RFC 3339 in UTC, fields that hold one end with `_at`; lengths of time are in milliseconds and end with \
        `_ms`; sizes are in bytes.\n\
        - A verb that fails before it has said anything gives `{error, kind, causes, hint, exit_code}`; a command that can't be read (exit code 2) is told on stderr alone.\n\n\
        `doctor` and `demo` say what they find on a machine, `serve` where it listens, `store` what a home has, so they aren't here.\n"
        .to_owned();
    for line in STORY.lines().filter(|line| !line.is_empty()) {
        if let Some(verb) = line.strip_prefix("# ") {
            page.push_str(&format!("\n## {verb}\n"));
        } else if let Some(command) = line.strip_prefix("! ") {
            for world in [&people, &programs] {
                let said = shell(world, command);
                assert_eq!(said.code, Some(0), "{command}: {}", said.whole());
            }
        } else {
            let said = shell(&people, line);
            let text = [said.stdout, said.stderr].concat();
            // A drawing depends on its spaces, and has no ages.
            let text = if text.contains('┌') { text } else { varying.out_of(&without_ages(&text)) };
            let end = match said.code {
                Some(0) => String::new(),
                code => format!("\n[exit {}]", code.unwrap_or(-1)),
            };
            page.push_str(&format!("\n```text\n$ {line}\n{}{end}\n```\n", text.trim_end()));
            let said_json = shell(&programs, &line.replacen("piton ", "piton --json ", 1));
            assert_eq!(said_json.code, said.code, "{line}: {}", said_json.whole());
            page.push_str(&json_block(line, &said_json, &varying));
        }
    }
    page
}

/// The objects of an answer, at most two.
fn json_block(line: &str, said: &Said, varying: &Varying) -> String {
    let mut objects = Vec::new();
    for text in said.stdout.lines().filter(|text| text.starts_with('{')) {
        let mut object: Json = serde_json::from_str(text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"));
        steady(&mut object);
        objects.push(format!("{object:#}"));
    }
    if objects.is_empty() {
        return String::new();
    }
    let more = objects.len().saturating_sub(2);
    objects.truncate(2);
    let more = if more > 0 { format!("\n… and {more} more") } else { String::new() };
    format!("\n```json\n{}{more}\n```\n", varying.out_of(&objects.join("\n")))
}

/// Numbers that differ from run to run.
fn steady(value: &mut Json) {
    match value {
        Json::Array(items) => items.iter_mut().for_each(steady),
        Json::Object(fields) => {
            // Only there if there was any.
            fields.remove("elapsed_ms");
            // Which calls a command makes of a store isn't promised.
            if let Some(Json::Object(sizes)) = fields.get_mut("sizes") {
                sizes.values_mut().for_each(|size| *size = Json::from(0));
            }
            if let Some(calls) = fields.get_mut("calls") {
                *calls = Json::Array(Vec::new());
            }
            for (name, field) in fields {
                let varies = name.ends_with("_ms")
                    || name.starts_with("bytes")
                    || name.ends_with("_bytes")
                    || ["budget", "pid", "started", "claim", "generation", "syncs", "written", "commits", "timestamp"]
                        .contains(&name.as_str());
                if varies && field.is_number() {
                    *field = Json::from(0);
                } else if ["host", "boot"].contains(&name.as_str()) {
                    *field = Json::from(format!("[{}]", name.to_uppercase()));
                } else {
                    steady(field);
                }
            }
        }
        _ => {}
    }
}

/// A home with three documents and a store beside the folder.
fn stage() -> World {
    let world = World::new();
    world.write("flow.yml", FLOW);
    world.write("asks.yml", ASKS);
    world.write("fails.yml", FAILS);
    world
}

fn shell(world: &World, command: &str) -> Said {
    let mut shell = world.shell(command);
    shell.env("PITON_STORE", format!("sqlite:{}/store.db", world.root().display())).env("USER", "ada");
    world.wait(shell.spawn().unwrap())
}

/// What differs from run to run, and what stands for it.
struct Varying(Vec<(Regex, &'static str)>);

fn varying() -> Varying {
    let patterns = [
        (r"\b[0-9a-f]{64}\b", "[HASH]"),
        (r"\b[0-9a-f]{40}\b", "[COMMIT]"),
        (r"\b[0-9a-f]{32}\b", "[TOKEN]"),
        (r"\b[0-7][0-9a-hjkmnp-tv-z]{25}\b", "[RUN]"),
        (r"\bwork-[0-9a-f]{8}\b", "[FOLDER]"),
        (r"\b\d{4}-\d\d-\d\dT[0-9:.]+Z", "[TIME]"),
        (r"\b\d+(\.\d)? (bytes?|KB|MB|GB)\b", "[SIZE]"),
        (r"\b\d+(\.\d)? (ms|s)\b", "[TOOK]"),
        // On a disk that is nearly full there is no grace.
        (r#"given back (at once|after [^"\n]+)"#, "given back after 1 h"),
        (r#"(?m)^ *"elapsed_ms": \d+,?\n"#, ""),
        (r#"("duration_ms"|"worked_ms"): ?\d+( \d+)?"#, "$1: 0"),
        (r"\b[0-9a-f]{12}\b", "[SHORT]"),
    ];
    Varying(patterns.map(|(pattern, name)| (Regex::new(pattern).unwrap(), name)).into())
}

impl Varying {
    fn out_of(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (pattern, name)| pattern.replace_all(&text, *name).into_owned())
    }
}
