//! What may run in a graph once something ended: an edge is taken or not when its source has ended; a node is ready
//! when all its edges are decided and one of them is taken, and is passed over when none is.

use std::collections::VecDeque;
use std::ops::Deref;

use crate::graph::{EdgeExit, Graph};
use crate::node::Join;

/// The nodes that may run, and what the others wait for.
#[derive(Debug)]
pub(crate) struct Ready<G> {
    graph: G,
    pub(crate) queue: VecDeque<usize>,
    /// By node: edges that aren't decided yet.
    undecided: Vec<usize>,
    /// By node: how many edges to it were taken.
    taken: Vec<usize>,
    /// By node: it is in the queue, or was.
    begun: Vec<bool>,
    /// Nodes that will not run, as found by the last node that ended.
    pub(crate) passed: Vec<usize>,
    /// Nodes that are no longer wanted, likewise.
    pub(crate) unwanted: Vec<usize>,
    /// Nodes that don't wait for ever, and to which the first edge was taken, likewise.
    pub(crate) impatient: Vec<usize>,
}

impl<G: Deref<Target = Graph>> Ready<G> {
    pub(crate) fn new(graph: G) -> Self {
        Self {
            queue: VecDeque::from([graph.start]),
            undecided: graph.nodes.iter().map(|node| node.waits_for).collect(),
            taken: vec![0; graph.nodes.len()],
            begun: vec![false; graph.nodes.len()],
            passed: Vec::new(),
            unwanted: Vec::new(),
            impatient: Vec::new(),
            graph,
        }
    }

    /// A node doesn't wait any longer for the edges to it; `false` if it has begun already.
    pub(crate) fn begin(&mut self, node: usize) -> bool {
        if std::mem::replace(&mut self.begun[node], true) {
            return false;
        }
        self.passed.clear();
        self.unwanted.clear();
        self.queue.push_back(node);
        self.unwanted.extend(&self.graph.nodes[node].only_for_it);
        true
    }

    /// A node ended, by this exit. Afterwards `passed` has the nodes that will not run because of it.
    pub(crate) fn done(&mut self, node: usize, exit: Option<&str>) {
        self.passed.clear();
        self.unwanted.clear();
        self.impatient.clear();
        let mut decided = 0;
        self.decide(node, |edge| edge.is_taken(exit));
        while let Some(&passed) = self.passed.get(decided) {
            decided += 1;
            self.decide(passed, |_| false);
        }
    }

    fn decide(&mut self, source: usize, is_taken: impl Fn(&EdgeExit) -> bool) {
        for edge in &self.graph.nodes[source].edges {
            let target = edge.target;
            let taken = is_taken(&edge.exit);
            self.taken[target] += usize::from(taken);
            self.undecided[target] -= 1;
            let node = &self.graph.nodes[target];
            let enough = match node.join {
                Join::All => false,
                Join::AtLeast { count, .. } => self.taken[target] >= count,
            };
            if self.begun[target] || !(enough || self.undecided[target] == 0) {
                if taken && self.taken[target] == 1 && node.patience.is_some() {
                    self.impatient.push(target);
                }
                continue;
            }
            if self.taken[target] == 0 {
                self.passed.push(target);
                continue;
            }
            self.begun[target] = true;
            self.queue.push_back(target);
            if enough && self.undecided[target] > 0 {
                self.unwanted.extend(&node.only_for_it);
            }
        }
    }
}
