// What stands around a tree: the problem above it, what there is of one that grows, the legend.
import { ask, isOffline } from "./api.js";
import { count, h, inline, prose, svg } from "./dom.js";

export function heading(run, problem) {
  const { number } = problem;
  const whole = isOffline ? null : async () => (await ask(`problems/${number}/question`)).text;
  const step = (to, label, name) =>
    to >= 0 && to < run.problems ? h("a", { class: "step-link", href: `#/problem/${to}`, "aria-label": name, rel: to < number ? "prev" : "next" }, label) : null;
  return h(
    "header",
    { class: "problem-head" },
    h(
      "p",
      { class: "crumbs" },
      h("a", { href: "#/" }, "Problems"),
      step(number - 1, "‹", "Previous problem"),
      step(number + 1, "›", "Next problem"),
    ),
    h("h1", {}, `Problem ${number} `, h("bdi", { class: "problem-id" }, problem.problem_id), h("span", { class: `chip status-${problem.status}` }, problem.status)),
    h(
      "details",
      { class: "question", open: problem.question.length < 700 && window.matchMedia("(min-width: 700px)").matches },
      h("summary", {}, "Question and gold answer"),
      prose(problem.question, whole),
      h("p", { class: "gold" }, h("span", { class: "quiet" }, "Gold answer "), h("bdi", {}, inline(problem.gold_answer)), problem.reason ? h("span", { class: "quiet" }, " · ended by: ", h("bdi", {}, problem.reason)) : null),
    ),
  );
}

export function growing(problem) {
  const { growing: now } = problem;
  return h(
    "section",
    { class: "growing" },
    h("p", { class: "notice" }, `This tree has not ended. So far: ${count(now.requests)} requests, ${count(now.completions)} completions, ${count(now.tokens)} tokens.`),
    now.samples.length ? h("h2", {}, "The last completions") : null,
    now.samples.map((sample) =>
      h(
        "article",
        { class: "sample" },
        h("div", { class: "prose", dir: "auto" }, sample.text || "(empty)"),
        h("p", { class: "quiet" }, `${sample.finish}, ${count(sample.tokens)} tokens`, sample.length > sample.text.length ? `, ${count(sample.length)} characters` : ""),
      ),
    ),
  );
}

export function legend(tree) {
  const scale = svg("svg", { class: "scale", viewBox: "0 0 110 10", "aria-hidden": "true" });
  for (let i = 0; i <= 10; i += 1) scale.append(svg("rect", { class: `tone tone-${i}`, x: 10 * i, y: 0, width: 10.5, height: 10 }));
  const dot = (radius, classes) => svg("svg", { class: "dot", viewBox: "-10 -10 20 20", "aria-hidden": "true" }, svg("circle", { class: classes, r: radius }));
  return h(
    "div",
    { class: "legend", role: "note", "aria-label": "Legend" },
    h("span", { class: "legend-item" }, "value 0 ", scale, " 1"),
    h("span", { class: "legend-item" }, dot(5, "tone tone-none"), "unknown"),
    h("span", { class: "legend-item" }, dot(3, "tone tone-5"), dot(8, "tone tone-5"), `size: ${tree.sized_by}`),
    h("span", { class: "legend-item" }, h("span", { class: "good" }, "✓"), "correct"),
    h("span", { class: "legend-item" }, h("span", { class: "bad" }, "✗"), "wrong"),
    h("span", { class: "legend-item" }, h("span", { class: "unsure" }, "?"), "undecided"),
    h("span", { class: "legend-item" }, h("span", { class: "bad" }, "①"), "first error"),
    h("span", { class: "legend-item" }, h("span", { class: "merged-mark" }, "⊕"), "merged"),
  );
}
