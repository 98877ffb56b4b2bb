//! What a document is given, and what `validate` says of names that nothing gives.

use crate::world::World;

const FLOW: &str = "
nodes:
- {id: in, data: {type: start, variables: [{variable: tags, type: 'array[string]', required: true}]}}
- {id: out, data: {type: end, outputs: [{variable: tags, value_selector: [in, tags]}]}}
edges: [{source: in, target: out}]
";

/// F1: an input that is a list is given by saying it again.
#[test]
fn a_list_is_given_by_repeating_an_input() {
    let world = World::new();
    world.write("flow.yml", FLOW);
    let said = world.piton(["run", "flow.yml", "-i", "tags=red", "-i", "tags=blue", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert_eq!(said.json()["outputs"]["tags"], serde_json::json!(["red", "blue"]));
}

/// F1: `validate` warns of a variable that no node gives, with the nearest one.
#[test]
fn validate_warns_of_names_that_nothing_gives() {
    let world = World::new();
    world.write("flow.yml", &FLOW.replace("[in, tags]", "[in, tagz]"));
    let said = world.piton(["validate", "flow.yml"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let whole = said.whole();
    assert!(whole.contains(r#"it uses "tagz", which "in" doesn't give"#) && whole.contains(r#""tags""#), "{whole}");
}
