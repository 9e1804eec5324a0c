// The list of problems: searched, filtered and sorted by the server, a window of rows at a time.
import { ask } from "./api.js";
import { count, failure, h, inline, later, percent, tone } from "./dom.js";

const PAGE_ROWS = 100;
const SORTS = [
  ["number", "Order in the run"],
  ["accuracy", "Accuracy"],
  ["nodes", "Tree size"],
  ["completions", "Outcomes"],
  ["variance", "Variance"],
  ["disputed", "Disputed answers"],
  ["status", "Status"],
];
const STATUSES = ["done", "exhausted", "failed", "open"];

export async function problemsPage(place, { params }) {
  const run = await ask("run");
  const state = Object.fromEntries(params);
  const pages = new Map();
  let matching = 0;
  let asked = 0;

  const summary = h(
    "p",
    { class: "summary" },
    STATUSES.filter((status) => run.by_status[status]).map((status) =>
      h("span", { class: `chip status-${status}` }, `${count(run.by_status[status])} ${status}`),
    ),
    h("span", { class: "quiet" }, `${run.strategy} · `, h("bdi", {}, run.policy), run.labels ? ` · ${run.labels.estimator}` : "", run.recheck ? [" · verdicts of the recheck ", h("bdi", {}, run.recheck)] : ""),
  );

  const field = (label, control, name = label) => {
    control.setAttribute("aria-label", name);
    return h("label", { class: "field" }, h("span", {}, label), control);
  };
  const change = later(120, () => {
    remember();
    restart();
  });
  const control = (name, element, event = "input") => {
    if (element.type === "checkbox") element.checked = state[name] === "true";
    else if (state[name] !== undefined) element.value = state[name];
    element.addEventListener(event, () => {
      const value = element.type === "checkbox" ? (element.checked ? "true" : "") : element.value;
      if (value === "") delete state[name];
      else state[name] = value;
      change();
    });
    return element;
  };
  const options = (pairs) => pairs.map(([value, label]) => h("option", { value }, label));
  const fractions = [["", "any"], ["0.1", "10%"], ["0.25", "25%"], ["0.5", "50%"], ["0.75", "75%"], ["0.9", "90%"]];

  const search = control("text", h("input", { type: "search", placeholder: "Question, answer or id", "aria-label": "Search problems" }));
  const direction = h("button", { type: "button", class: "plain", "aria-pressed": String(state.descending === "true") }, "↓ Descending");
  direction.addEventListener("click", () => {
    if (state.descending) delete state.descending;
    else state.descending = "true";
    direction.setAttribute("aria-pressed", String(Boolean(state.descending)));
    change();
  });
  const filters = h(
    "div",
    { class: "filters" },
    field("Status", control("status", h("select", {}, options([["", "all"], ...STATUSES.map((name) => [name, name])])))),
    field("Accuracy from", control("least", h("select", {}, options(fractions)))),
    field("to", control("most", h("select", {}, options([...fractions.slice(0, 1), ["0", "0%"], ...fractions.slice(1)]))), "Accuracy to"),
    field("Nodes at least", control("smallest", h("input", { type: "number", min: "0", step: "1", class: "short" }))),
    h("label", { class: "check" }, control("disputed", h("input", { type: "checkbox" }), "change"), "Disputed"),
    h(
      "label",
      { class: "check", title: "20% to 80% of the outcomes are right" },
      control("variance", h("input", { type: "checkbox" }), "change"),
      "High variance",
    ),
    field("Sort by", control("sort", h("select", {}, options(SORTS)))),
    direction,
  );
  const wide = window.matchMedia("(min-width: 700px)").matches;
  const found = h("p", { class: "found", role: "status" });
  const spacer = h("div", { class: "spacer", role: "list", "aria-label": "Problems" });
  const rows = h("div", { class: "rows" }, spacer);
  place.replaceChildren(
    h(
      "div",
      { class: "list-head" },
      h("h1", {}, "Problems"),
      summary,
      search,
      h("details", { class: "filter-box", open: wide }, h("summary", {}, "Filter and sort"), filters),
      found,
    ),
    rows,
  );

  function remember() {
    const query = new URLSearchParams(state).toString();
    history.replaceState(null, "", query ? `#/?${query}` : "#/");
  }

  function restart() {
    pages.clear();
    asked += 1;
    rows.scrollTop = 0;
    draw();
  }

  async function load(page) {
    const turn = asked;
    pages.set(page, null);
    try {
      const data = await ask("problems", { ...state, offset: page * PAGE_ROWS, limit: PAGE_ROWS });
      if (turn !== asked) return;
      pages.set(page, data.rows);
      matching = data.matching;
      found.textContent = matching === run.problems ? `${count(matching)} problems` : `${count(matching)} of ${count(run.problems)} problems`;
      draw();
    } catch (error) {
      if (turn === asked) spacer.replaceChildren(failure(error));
    }
  }

  function draw() {
    const height = parseFloat(getComputedStyle(rows).getPropertyValue("--row")) || 64;
    spacer.style.height = `${Math.max(matching, 1) * height}px`;
    const first = Math.max(Math.floor(rows.scrollTop / height) - 5, 0);
    const last = Math.min(Math.ceil((rows.scrollTop + rows.clientHeight) / height) + 5, Math.max(matching - 1, 0));
    for (let page = Math.floor(first / PAGE_ROWS); page <= Math.floor(last / PAGE_ROWS); page += 1) {
      if (!pages.has(page)) load(page);
    }
    const made = [];
    for (let at = first; at <= last && at < matching; at += 1) {
      const page = pages.get(Math.floor(at / PAGE_ROWS));
      const item = page ? problemItem(page[at % PAGE_ROWS]) : h("div", { class: "row waiting" });
      item.setAttribute("role", "listitem");
      item.setAttribute("aria-setsize", String(matching));
      item.setAttribute("aria-posinset", String(at + 1));
      item.style.top = `${at * height}px`;
      made.push(item);
    }
    const held = document.activeElement && spacer.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    spacer.replaceChildren(...made);
    if (!made.length && pages.get(0)) spacer.append(h("p", { class: "empty" }, "No problem matches."));
    if (held) spacer.querySelector(`a[href="${CSS.escape(held).replace(/\\/g, "")}"]`)?.focus({ preventScroll: true });
  }

  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
  rows.addEventListener("scroll", redraw);
  const size = new ResizeObserver(redraw);
  size.observe(rows);
  const keys = (event) => {
    if (event.key === "/" && !event.target.matches("input, select, textarea")) {
      event.preventDefault();
      search.focus();
    }
  };
  document.addEventListener("keydown", keys);
  await load(0);
  return {
    name: "problems",
    title: "Problems",
    close() {
      size.disconnect();
      document.removeEventListener("keydown", keys);
    },
  };
}

function problemItem(row) {
  const outcome =
    row.accuracy === null
      ? h("span", { class: "quiet" }, row.status === "open" ? "growing" : "no outcome")
      : [
          h("span", { class: "accuracy-bar", "aria-hidden": "true" }, accuracyFill(row.accuracy)),
          h("span", { class: "figure" }, percent(row.accuracy)),
        ];
  return h(
    "div",
    { class: "row" },
    h("span", { class: "row-number" }, String(row.number)),
    h(
      "a",
      { class: "row-main", href: `#/problem/${row.number}` },
      h("span", { class: "row-question", dir: "auto" }, row.question.length ? inline(row.question) : "(no text)"),
      h("span", { class: "row-id" }, h("bdi", {}, row.problem_id), " · gold ", h("bdi", {}, inline(row.gold_answer))),
    ),
    h("span", { class: "row-accuracy" }, outcome),
    h("span", { class: "row-size" }, row.nodes ? `${count(row.nodes)} nodes` : "", row.completions ? h("small", {}, `${count(row.completions)} outcomes`) : ""),
    h(
      "span",
      { class: "row-status" },
      h("span", { class: `chip status-${row.status}`, title: row.reason }, row.status),
      row.disputed ? h("span", { class: "chip unsure", title: "Answers that a person should look at" }, `${count(row.disputed)} disputed`) : null,
    ),
  );
}

function accuracyFill(accuracy) {
  const made = h("span", { class: tone(accuracy) });
  made.style.width = `${100 * accuracy}%`;
  return made;
}
