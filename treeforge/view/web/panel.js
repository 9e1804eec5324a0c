// One node whole: its step, the evidence behind its value, the steps above it, its rollouts, the prompt.
import { ask, isOffline } from "./api.js";
import { badge, count, failure, h, inline, intervalBar, percent, prose, share, tone } from "./dom.js";

const WHY = {
  undecided: "the comparison did not end within its limits",
  unparsable: "the answer cannot be read, and counts as wrong",
  numeric: "correct by numeric agreement only",
  symbolic: "found by sympy",
  preset: "another check policy says otherwise",
  changed: "the search judged otherwise",
};

export class NodePanel {
  constructor({ number, tree, sampled, goto }) {
    this.number = number;
    this.tree = tree;
    this.sampled = sampled;
    this.goto = goto;
    this.turn = 0;
    this.body = h("div", { class: "panel-body" });
    this.heading = h("h2", {}, "Node");
    this.bar = h("div", { class: "panel-bar" }, this.heading);
    this.element = h("aside", { class: "panel", "aria-label": "Node" }, this.bar, this.body);
  }

  async show(node, pass, tree) {
    this.tree = tree;
    this.turn += 1;
    const { turn } = this;
    const base = `problems/${this.number}/nodes/${node}`;
    let data;
    try {
      data = await ask(base, { pass });
    } catch (error) {
      if (turn === this.turn) this.body.replaceChildren(failure(error));
      return;
    }
    if (turn !== this.turn) return;
    this.heading.textContent = node ? `Node ${node}` : "Root";
    const whole = (part, place) => (isOffline ? null : async () => (await ask(`${base}/text`, { pass, part, place })).text);
    const sections = [
      this.head(node, data),
      node ? h("section", { "aria-label": "Step" }, prose(data.step.text, whole("text"))) : null,
      data.step.observation ? h("section", {}, h("h3", {}, "Observation"), prose(data.step.observation, whole("observation"))) : null,
      this.figures(data),
      this.answers(base, pass, data, whole, turn),
      this.prefix(data.prefix, pass),
      this.sampled ? this.prompt(base, pass, node) : null,
    ];
    this.body.replaceChildren(...sections.filter(Boolean));
    this.body.scrollTop = 0;
  }

  head(node, data) {
    const { step } = data;
    const known = step.value !== null;
    return h(
      "header",
      {},
      h(
        "p",
        { class: "tags" },
        node ? h("span", { class: "quiet" }, `step ${step.depth}`) : h("span", { class: "quiet" }, "the question itself"),
        badge(step.finish, step.verdict, step.answer),
        step.hard === null ? null : h("span", { class: `chip ${step.hard ? "good" : "bad"}` }, step.hard ? "label 1" : "label 0"),
        data.first_error ? h("span", { class: "chip bad" }, "① first error") : null,
        data.merged_from.length ? h("span", { class: "chip merged-mark" }, `⊕ merged from ${data.merged_from.join(" + ")}`) : null,
      ),
      h(
        "div",
        { class: "value-line" },
        h("span", { class: "big-value" }, share(step.value)),
        h(
          "div",
          { class: "value-more" },
          intervalBar(step.value, step.low, step.high, "The value and its interval"),
          h(
            "span",
            { class: "quiet" },
            !known
              ? "nothing below was decided"
              : step.low === null
                ? "a label from elsewhere"
                : step.low === step.high
                  ? "ends here: known exactly"
                  : `${percent(this.tree.confidence)} interval ${share(step.low)} to ${share(step.high)}`,
          ),
        ),
      ),
    );
  }

  figures(data) {
    const { own, step } = data;
    const decided = own.all - own.undecided;
    const fact = (name, value, title) => (value === null ? null : h("div", { title }, h("dt", {}, name), h("dd", {}, value)));
    const times = data.multiplicity === 0 ? "counted elsewhere" : `×${count(data.multiplicity)}`;
    return h(
      "dl",
      { class: "facts" },
      fact("Outcomes at or below", `${count(step.outcomes)}${data.undecided ? ` + ${count(data.undecided)} undecided` : ""}`, "Decided completions that the value rests on"),
      fact("Own rollouts", own.all ? `${count(own.correct)} of ${count(decided)} right${own.truncated ? `, ${count(own.truncated)} truncated` : ""}` : "none", "Started here, and not turned into nodes"),
      fact("Standard error", data.stderr === null ? null : share(data.stderr, 3)),
      fact("Sampled", times, "How many of the policy's samples this node stands for"),
      fact("Tokens", count(data.tokens)),
      fact("Log-probability", data.logprob === null ? "–" : `${share(data.logprob)} nats`),
      fact("Visits N", data.visits ? count(data.visits) : null),
      fact("Value sum W", data.visits ? share(data.value_sum, 1) : null),
      fact("Prior P", data.prior === null ? null : share(data.prior, 3)),
    );
  }

  answers(base, pass, data, whole, turn) {
    const { rollouts } = data;
    const ended = data.step.verdict !== null;
    if (!rollouts.length && !ended) return null;
    const routes = new Map();
    const slot = (place) => {
      const made = h("p", { class: "route quiet" }, "");
      routes.set(place, made);
      return made;
    };
    const items = rollouts.map((rollout) =>
      h(
        "details",
        { class: "rollout" },
        h(
          "summary",
          {},
          badge(rollout.finish, rollout.verdict, rollout.answer),
          h("span", { class: "quiet" }, `${count(rollout.steps)} ${rollout.steps === 1 ? "step" : "steps"}, ${count(rollout.tokens)} tokens`),
        ),
        rollout.text.length ? prose(rollout.text, whole("rollout", rollout.place)) : h("p", { class: "quiet" }, "Nothing was written after this step."),
        rollout.logprob === null ? null : h("p", { class: "note quiet" }, `Log-probability ${share(rollout.logprob)} nats`),
        slot(rollout.place),
      ),
    );
    const section = h(
      "section",
      {},
      h("h3", {}, ended ? "Answer" : `Own rollouts (${count(rollouts.length + data.more_rollouts)})`),
      ended ? slot(-1) : null,
      items,
      data.more_rollouts ? h("p", { class: "quiet" }, `and ${count(data.more_rollouts)} more`) : null,
    );
    ask(`${base}/checks`, { pass })
      .then(({ policy, answers }) => {
        if (turn !== this.turn) return;
        for (const check of answers) {
          const made = routes.get(check.place);
          if (made) made.replaceChildren(...route(check, policy));
        }
      })
      .catch((error) => section.append(failure(error)));
    return section;
  }

  prefix(prefix) {
    if (!prefix.steps.length) return null;
    return h(
      "section",
      {},
      h("h3", {}, "Steps above"),
      prefix.omitted ? h("p", { class: "quiet" }, `${count(prefix.omitted)} steps before these`) : null,
      h(
        "ol",
        { class: "prefix", start: prefix.omitted + 1 },
        prefix.steps.map((step) => {
          const go = h("button", { type: "button", class: "prefix-value", title: `Go to node ${step.node}` }, h("span", { class: `swatch ${tone(step.value)}` }), share(step.value));
          go.addEventListener("click", () => this.goto(step.node));
          return h("li", {}, go, prose(step.text, null), step.observation ? h("p", { class: "quiet" }, "⇒ ", h("bdi", {}, inline(step.observation.parts))) : null);
        }),
      ),
    );
  }

  prompt(base, pass, node) {
    const place = h("div", { class: "prompt" });
    let at = "parent";
    const load = async (wholly) => {
      try {
        const data = await ask(`${base}/prompt`, { pass, at, whole: wholly ? 1 : "" });
        const cut = data.messages.some((message) => message.omitted);
        const more = h("button", { type: "button", class: "more" }, "Show the whole prompt");
        more.addEventListener("click", () => load(true));
        place.replaceChildren(
          node
            ? h(
                "p",
                { class: "choices", role: "group", "aria-label": "Which prompt" },
                choice("that this step continues", "parent"),
                choice("with this step", "node"),
              )
            : "",
          ...data.messages.map((message) =>
            h(
              "div",
              { class: "message" },
              data.template === "chat" ? h("p", { class: "role" }, message.role) : null,
              h("pre", { dir: "auto", tabindex: "0", "aria-label": `Prompt, ${message.role}` }, message.omitted ? `[${count(message.omitted)} characters before]\n` : "", message.text),
            ),
          ),
          cut ? more : "",
        );
      } catch (error) {
        place.replaceChildren(failure(error));
      }
    };
    const choice = (label, value) => {
      const made = h("button", { type: "button", class: "plain", "aria-pressed": String(at === value) }, label);
      made.addEventListener("click", () => {
        at = value;
        load(false);
      });
      return made;
    };
    const box = h("details", { class: "prompt-box" }, h("summary", {}, h("h3", {}, "Exact prompt")), place);
    box.addEventListener("toggle", () => {
      if (box.open && !place.childElementCount) load(false);
    });
    return h("section", {}, box);
  }
}

function route(check, policy) {
  const others = Object.entries(check.others);
  const made = [
    h("span", {}, `Checked by route “${check.route}”: ${check.verdict.replace("_", " ")} under ${policy}`),
    check.reason ? [" (", h("bdi", {}, check.reason), ")"] : null,
    ".",
  ].flat();
  if (others.length) {
    made.push(h("span", { class: "unsure" }, ` Otherwise: ${others.map(([name, verdict]) => `${name} ${verdict.replace("_", " ")}`).join(", ")}.`));
  }
  if (check.why.length) made.push(h("span", { class: "unsure" }, ` Disputed: ${check.why.map((why) => WHY[why] || why).join("; ")}.`));
  return made.filter(Boolean);
}
