//! The variables of a running workflow. The pool is a persistent map: a snapshot is O(1), and every
//! running node has its own, so that no node sees half of what another wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_types::{Value, ValueError, from_value};
use rpds::HashTrieMapSync;

use crate::engine::Inputs;
use crate::selector::Selector;

/// The variables by scope (a node's id, or a word such as `sys`) and name.
///
/// ```
/// use piton_flow::{Selector, VariablePool};
/// use piton_types::Value;
/// let mut pool = VariablePool::default();
/// pool.set_scope("fetch", [("body".to_owned(), "text".into())].into());
/// let before = pool.clone();
/// pool.assign(&Selector::of("fetch", "body"), Value::Null);
/// assert_eq!(before.find(&Selector::of("fetch", "body")), Some(&"text".into()));
/// ```
#[derive(Debug, Clone, Default)]
pub struct VariablePool {
    inputs: Arc<Inputs>,
    scopes: HashTrieMapSync<Arc<str>, Arc<BTreeMap<String, Value>>>,
    /// How many updates by hand it has had.
    pub(crate) updates: usize,
}

impl VariablePool {
    /// A pool of a workflow that is given `inputs`.
    pub fn new(inputs: Inputs) -> Self {
        Self { inputs: Arc::new(inputs), scopes: HashTrieMapSync::new_sync(), updates: 0 }
    }

    /// What the workflow was given.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Replaces what the workflow was given; for workflows inside workflows.
    pub(crate) fn set_inputs(&mut self, inputs: Inputs) {
        self.inputs = Arc::new(inputs);
    }

    /// The variables as a checkpoint keeps them: a map by scope, which is the shape of its part `variables`. To hold a
    /// moment fast, clone the pool, which costs nothing, and ask the clone. Text that is still streaming isn't a
    /// variable yet: it is left out, and its producer runs again.
    ///
    /// ```
    /// use piton_flow::{Inputs, Selector, VariablePool};
    /// let mut pool = VariablePool::default();
    /// pool.set_scope("fetch", [("body".to_owned(), "text".into())].into());
    /// let kept = pool.snapshot_for_checkpoint();
    /// let again = VariablePool::restore_from_checkpoint(Inputs::new(), kept).unwrap();
    /// assert_eq!(again.find(&Selector::of("fetch", "body")), Some(&"text".into()));
    /// ```
    pub fn snapshot_for_checkpoint(&self) -> Value {
        Value::map(self.scopes().map(|(name, scope)| (name.to_owned(), Value::Map(scope.clone()))))
    }

    /// The pool of a workflow with these inputs and the variables that a checkpoint kept.
    ///
    /// # Errors
    ///
    /// If it isn't a map by scope of maps by name.
    pub fn restore_from_checkpoint(inputs: Inputs, variables: Value) -> Result<Self, ValueError> {
        let scopes: BTreeMap<String, BTreeMap<String, Value>> = from_value(variables)?;
        let mut pool = Self::new(inputs);
        scopes.into_iter().for_each(|(name, scope)| pool.set_scope(name, scope));
        Ok(pool)
    }

    /// All variables of a scope.
    pub fn scope(&self, name: &str) -> Option<&BTreeMap<String, Value>> {
        self.scopes.get(name).map(|scope| &**scope)
    }

    /// The scopes, in no order.
    pub fn scopes(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, Value>)> {
        self.scopes.iter().map(|(name, scope)| (&**name, &**scope))
    }

    /// Sets all variables of a scope.
    pub fn set_scope(&mut self, name: impl Into<Arc<str>>, variables: BTreeMap<String, Value>) {
        self.scopes.insert_mut(name.into(), Arc::new(variables));
    }

    /// The variable, if there is one.
    pub fn find(&self, selector: &Selector) -> Option<&Value> {
        let (first, rest) = selector.path.split_first()?;
        rest.iter().try_fold(self.scopes.get(&*selector.node)?.get(first)?, |value, key| match value {
            Value::Map(entries) => entries.get(key),
            Value::List(items) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }

    /// The variable, or null if there is none.
    pub fn select(&self, selector: &Selector) -> Value {
        self.find(selector).cloned().unwrap_or_default()
    }

    /// Sets a variable, or a place inside it. What is on the way there and isn't a map becomes one.
    pub fn assign(&mut self, selector: &Selector, value: Value) {
        let Some((first, rest)) = selector.path.split_first() else { return };
        let scope = self.scopes.get(&*selector.node).cloned();
        let mut variables = scope.map(Arc::unwrap_or_clone).unwrap_or_default();
        let mut place = variables.entry(first.clone()).or_default();
        for key in rest {
            if !matches!(place, Value::Map(_)) {
                *place = Value::map::<&str>([]);
            }
            let Value::Map(entries) = place else { return };
            place = entries.entry(key.clone()).or_default();
        }
        *place = value;
        self.set_scope(&*selector.node, variables);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_reach_into_lists_and_maps() {
        let mut pool = VariablePool::default();
        let inside = Value::map([("xs", Value::from(vec![Value::from(1), Value::map([("k", "v".into())])]))]);
        pool.set_scope("a", [("b".to_owned(), inside)].into());
        let find = |words: &[&str]| {
            pool.find(&Selector::new(words.iter().map(ToString::to_string).collect()).unwrap()).cloned()
        };
        assert_eq!(find(&["a", "b", "xs", "1", "k"]), Some("v".into()));
        for nothing in [&["a", "b", "xs", "2"][..], &["a", "c"], &["b", "b"], &["a", "b", "xs", "0", "k"]] {
            assert_eq!(find(nothing), None, "{nothing:?}");
        }
    }

    /// F2: every kind of value comes back as it was, and what isn't a pool is refused.
    #[test]
    fn a_snapshot_is_restored_exactly() {
        let mut pool = VariablePool::default();
        let values = [Value::Null, true.into(), 7.into(), 0.5.into(), "text".into(), Value::Bytes(vec![0, 255])];
        let nested = Value::map([("list", Value::List(values.to_vec())), ("map", Value::map::<&str>([]))]);
        pool.set_scope("node", [("all".to_owned(), nested)].into());
        pool.assign(&Selector::of("conversation", "n"), i64::MAX.into());
        let again = VariablePool::restore_from_checkpoint(Inputs::new(), pool.snapshot_for_checkpoint()).unwrap();
        assert_eq!(again.snapshot_for_checkpoint(), pool.snapshot_for_checkpoint());
        assert_eq!(again.scope("node"), pool.scope("node"));
        for wrong in [Value::from(1), Value::map([("node", 1.into())])] {
            assert!(VariablePool::restore_from_checkpoint(Inputs::new(), wrong).is_err());
        }
    }

    #[test]
    fn an_assignment_makes_its_way_and_leaves_snapshots_alone() {
        let mut pool = VariablePool::default();
        let before = pool.clone();
        let place = Selector::new(["conversation", "a", "b"].map(str::to_owned).to_vec()).unwrap();
        pool.assign(&place, 1.into());
        assert_eq!(pool.find(&place), Some(&1.into()));
        assert_eq!(before.find(&place), None);
    }
}
