// The shapes of what the server gives, for the check of types. The same names as in `piton … --json`.

export interface Usage { input: number; output: number; total: number; cost: number }

export interface Run {
  id: string; run: string; short?: string; name: string; kind: string; status: string;
  created_at: string; updated_at: string; parent: string | null; folder: string | null;
}
export interface Place {
  worker: string | null; attempts: number; due: string | null; priority: number; labels: string[]; problem: string | null;
}
export interface ListedRun extends Run {
  stalled: boolean; duration_ms: number; usage: Usage;
  question?: string; questions?: Question[]; error?: string; queue?: Place;
}
export interface WholeRun extends Run {
  outputs: unknown; error: string | null; checkpoint: string | null; duration_ms: number | null;
  recovery_attempts: number; usage: Usage; questions: { step: string; prompt: string; timeout_at: string | null }[];
  finished_steps: number; stalled: boolean; driven_here: boolean; debugged: boolean;
  queue?: Place;
}
export interface Step {
  id: string; run: string; step: string; index: number; status: string; attempt: number; created_at: string;
  duration_ms: number; input: unknown; output: unknown; input_bytes?: number; output_bytes?: number;
  error: string | null; usage: Usage; undone: boolean; retry_at?: string | null;
}
export interface Entry {
  id: string; run: string; seq: number; kind: string; label: string; created_at: string; checkpoint: boolean;
  parts: Record<string, { schema: string; version: number; root: string }>; removed?: boolean; undone?: boolean; body?: any;
}
export interface WholeEntry extends Entry { hash: string; state: Record<string, any> }
export interface Field {
  name: string; label: string; type: string; required: boolean; options: unknown[]; default: unknown;
}
export interface Question {
  step: string; token: string; title: string | null; prompt: string; approval: boolean; fields: Field[];
  problem: string | null; timeout_at: string | null;
}
export interface Summary {
  counts: Record<string, number>; stalled: number;
  today: { runs: number; usage: Usage; more: boolean }; bytes: number; budget: number | null;
  queue: { waiting: number; held: number; dead: number } | null; workers: Worker[]; here: string[];
}
export interface Worker {
  name: string; labels: string[]; concurrency: number; runs: number; silent_for_ms: number; draining: boolean;
}
export interface Session { role: string; name: string; may: string[]; folder: string; store: string; version: string }
export interface Graph { width: number; height: number; nodes: GraphNode[]; edges: GraphEdge[] }
export interface GraphNode {
  id: string; kind: string; title: string; x: number; y: number; width: number; height: number; inside: Graph | null;
}
export interface GraphEdge { source: string; target: string; exit: string | null; label: [number, number] | null; points: [number, number][] }
export interface Breakpoint { node: string; phase: 'before' | 'after'; if?: string }
export interface Stop {
  run?: string; reason: string; phase?: 'before' | 'after'; node?: string; step?: string; type?: string; title?: string;
  gave?: unknown; error?: string; outputs?: unknown;
}
export interface Debugged { number: number; standing: boolean; stop: Stop | null; breakpoints: Breakpoint[]; on_error: boolean }
export interface Change { path: string; kind: string; from?: string }
export interface Moment {
  id: string; run: string; created_at: string; files?: number; label: string; made_by: string; changes?: Change[];
  role?: string; operation?: boolean; since?: string | null; step?: string | null; tool?: string | null; author?: string | null;
  description?: string;
}
export interface FileDiff extends Change { added?: number; removed?: number; diff?: string; unattributed: boolean }
export interface FilesDiff { from: string; to: string | null; changes: FileDiff[] }
export interface ValueChange { path: string; old?: unknown; new?: unknown }
export interface Reason { path: string; reason: string }
export interface RestorePlan {
  restore: string; changes: { path: string; action: string; added?: number; removed?: number }[];
  conflicts: Reason[]; left: Reason[]; unattributed: string[];
}
export interface Plan { id: string; act: string; expires_at: string; plan: string; entails: string[]; is_free?: boolean; files?: RestorePlan }
export interface Status {
  folder: string; store: string; bytes: number; budget: number | null; runs: number; waiting: number; failed: number;
  checkpoint: string | null; created_at: string | null; changes: Change[]; made_by: string; excluded: Reason[];
}
export interface Explained {
  run: string; refused: boolean; changes: { component: string; description: string; severity: string }[];
  impact: { changed: string[]; affected: string[]; valid: string[]; outdated: string[]; lost: string[] } | null;
}
export interface Lease { path: string; mode: string; owner: string; fence: number; acquired_at: string; expires_at: string; pid: number | null }
export interface Act { at: string; by: string; from: string; act: string; subject: string; status: number | null; detail: string | null }
/** What a place of the page is: what it shows, and how it ends. */
export interface View { node: HTMLElement; title: string; stop?: () => void; refined?: () => void }
