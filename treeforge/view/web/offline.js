// What the server would answer, from the data inside the file (see treeforge/view/bundle.py).
import { written } from "./dom.js";

const SORTED = new Set(["accuracy", "nodes", "completions", "variance", "disputed", "status"]);

export function answer(bundle, path, params) {
  if (path === "run") return bundle.run;
  if (path === "problems") return list(bundle.rows, params);
  if (path === "dataset") return bundle.dataset;
  if (path === "dataset/rows") return { rows: bundle.rowsBySplit[`${params.format}/${params.split}`] || [] };
  const [, number, what, node, part] = path.split("/");
  const problem = bundle.problems[number];
  if (!problem) throw new Error("This file does not have the tree of that problem.");
  const stored = problem.passes[params.pass || 0];
  if (!stored) throw new Error("This file does not have that HNC pass.");
  if (what === undefined) return { ...problem.about, tree: stored.tree };
  if (what === "labels") return stored.labels;
  if (what === "search") return search(stored, params.text);
  if (part === undefined) return { ...stored.nodes[node], prefix: prefix(stored, Number(node)) };
  if (part === "checks") return { policy: problem.policy, answers: stored.checks[node] || [] };
  if (part === "prompt") return prompt(problem, stored, Number(node), params.at);
  throw new Error("Not in this file.");
}

function list(rows, params) {
  const text = (params.text || "").trim().toLowerCase();
  const least = Number(params.least || 0);
  const most = params.most === undefined || params.most === "" ? 1 : Number(params.most);
  const found = rows.filter(
    (row) =>
      (!text || `${written(row.question)}\n${written(row.gold_answer)}\n${row.problem_id}`.toLowerCase().includes(text)) &&
      (!params.status || row.status === params.status) &&
      (least <= 0 || (row.accuracy !== null && row.accuracy >= least)) &&
      (most >= 1 || (row.accuracy !== null && row.accuracy <= most)) &&
      row.nodes >= Number(params.smallest || 0) &&
      (!params.disputed || row.disputed > 0) &&
      (!params.variance || (row.variance !== null && row.variance >= 0.16)),
  );
  const sign = params.descending ? -1 : 1;
  if (SORTED.has(params.sort)) {
    const key = params.sort;
    found.sort((a, b) => {
      if (a[key] === null || b[key] === null) return (a[key] === null) - (b[key] === null);
      return sign * (a[key] > b[key] ? 1 : a[key] < b[key] ? -1 : 0) || a.number - b.number;
    });
  } else if (sign < 0) found.reverse();
  const offset = Number(params.offset || 0);
  return { matching: found.length, offset, rows: found.slice(offset, offset + Number(params.limit || 100)) };
}

function search(stored, text) {
  const wanted = text.toLowerCase();
  const nodes = Object.keys(stored.nodes)
    .map(Number)
    .filter((node) => written(stored.nodes[node].step.text.parts).toLowerCase().includes(wanted));
  return { nodes, found: nodes.length };
}

function pathTo(stored, node) {
  const path = [];
  for (let at = node; at > 0; at = stored.tree.parent[at]) path.push(at);
  return path.reverse();
}

function prefix(stored, node) {
  return { steps: pathTo(stored, node).slice(0, -1).map((at) => stored.nodes[at].step), omitted: 0 };
}

function prompt(problem, stored, node, at) {
  const start = at === "node" ? node : Math.max(stored.tree.parent[node], 0);
  const steps = pathTo(stored, start)
    .map((row) => problem.raw[row] ?? "")
    .join("");
  const messages = problem.prompt.messages.map((message) => ({ ...message }));
  if (problem.prompt.template === "chat" && steps && messages.at(-1).role !== "assistant") {
    messages.push({ role: "assistant", text: "", omitted: 0 });
  }
  if (steps) messages.at(-1).text += steps;
  return { at: start, template: problem.prompt.template, messages };
}
