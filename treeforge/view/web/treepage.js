// A problem: its tree, what to look for in it, the replay of its search, and the panel of one node.
import { ask } from "./api.js";
import { count, h, later } from "./dom.js";
import { NodePanel } from "./panel.js";
import { growing, heading, legend } from "./problem.js";
import { TreeModel } from "./treemodel.js";
import { TreeView } from "./treeview.js";

const CORRECT = 1;
const UNPARSABLE = 3;
const UNDECIDED = 4;
const TRUNCATED = 3;
const WIDE = 0.5;
const REPLAY_SECONDS = 10;
const LARGE = 1_000;
const AGAIN = 3_000;

// What the filter keeps, with all that leads there.
const FILTERS = [
  ["", "All nodes", null],
  ["correct", "Correct ends", (tree) => (node) => tree.verdict[node] === CORRECT],
  ["wrong", "Wrong ends", (tree) => (node) => [0, 2, UNPARSABLE].includes(tree.verdict[node])],
  ["disputed", "Undecided or unparsable ends", (tree) => (node) => tree.verdict[node] >= UNPARSABLE && tree.verdict[node] <= UNDECIDED],
  ["truncated", "Truncated", (tree) => (node) => tree.finish[node] === TRUNCATED],
  ["errors", "First errors", (tree) => {
    const errors = new Set(tree.first_errors);
    return (node) => errors.has(node);
  }],
  ["merged", "Merged by HNC", (tree) => {
    const merged = new Set(tree.merged);
    return (node) => merged.has(node);
  }],
  ["uncertain", "Uncertain values", (tree) => (node) => tree.value[node] !== null && tree.high[node] - tree.low[node] > WIDE],
  ["label1", "Label 1", (tree) => (node) => tree.hard[node] === 1],
  ["label0", "Label 0", (tree) => (node) => tree.hard[node] === 0],
];

const KEYS = [
  ["← → ↑ ↓", "move; → unfolds, space folds"],
  ["Home End", "root, last node"],
  ["b", "show the best path"],
  ["e", "next first error"],
  ["m", "before or after HNC"],
  ["o", "tree or outline"],
  ["p", "play the search"],
  ["/", "find text in the tree"],
  ["Enter", "read the node"],
  ["[ ]", "previous, next problem"],
  ["Esc", "back to the tree"],
];

export async function treePage(place, wanted) {
  const { number, params } = wanted;
  const [run, problem] = await Promise.all([ask("run"), ask(`problems/${number}`, { pass: params.get("pass") || 0 })]);
  const head = heading(run, problem);
  if (!problem.tree) {
    place.replaceChildren(h("div", { class: "reading" }, head, growing(problem)));
    return notBegun(number, problem.growing);
  }
  const page = new TreePage(place, head, run, problem, params);
  return page;
}

// Nothing to draw yet: asked for again until there is.
function notBegun(number, known) {
  let timer = 0;
  const again = async () => {
    try {
      const found = document.hidden ? null : await ask(`problems/${number}`, { requests: known.requests });
      if (found && !(found.growing && found.growing.same)) {
        window.dispatchEvent(new Event("hashchange"));
        return;
      }
    } catch {
      // The server may come back.
    }
    timer = setTimeout(again, AGAIN);
  };
  timer = setTimeout(again, AGAIN);
  return { name: "problem", title: `Problem ${number}`, close: () => clearTimeout(timer) };
}

class TreePage {
  constructor(place, head, run, problem, params) {
    this.name = "problem";
    this.title = `Problem ${problem.number}`;
    this.number = problem.number;
    this.run = run;
    this.pass = problem.tree.compressed;
    this.trees = new Map([[this.pass, problem.tree]]);
    this.playing = false;
    this.growing = problem.growing;
    this.panelOpen = window.matchMedia("(min-width: 900px)").matches;
    const shape = params.get("view") || (window.matchMedia("(min-width: 700px)").matches ? "tree" : "outline");
    this.view = new TreeView(new TreeModel(problem.tree), {
      shape: shape === "outline" ? "outline" : "tree",
      labels: (nodes) => ask(`problems/${this.number}/labels`, { pass: this.pass, nodes: nodes.join(",") }),
      onselect: (node) => this.selected(node),
    });
    this.panel = new NodePanel({ number: this.number, tree: problem.tree, sampled: run.strategy !== "imported", goto: (node) => this.view.select(node) });
    this.showNode = later(90, () => this.panel.show(this.view.selected, this.pass, this.trees.get(this.pass)));
    this.remember = later(200, () => this.writeAddress());
    this.build(place, head);
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
    this.follow({ number: this.number, params });
    if (!params.get("node")) this.panel.show(0, this.pass, problem.tree);
    requestAnimationFrame(() => {
      this.view.update();
      this.view.reveal(this.view.selected);
    });
    if (this.growing) this.watching = setTimeout(() => this.watch(), AGAIN);
  }

  close() {
    this.closed = true;
    clearTimeout(this.watching);
    this.playing = false;
    this.view.close();
    document.removeEventListener("keydown", this.keys);
  }

  build(place, head) {
    const tree = this.trees.get(this.pass);
    const button = (label, title, act) => {
      const made = h("button", { type: "button", class: "plain", title }, label);
      made.addEventListener("click", act);
      return made;
    };
    this.shapeButton = button("", "Tree or outline (o)", () => this.turn());
    this.bestButton = button("Best path", "The highest value at each step that leads to a correct end (b)", () => this.toggleBest());
    this.errorButton = button("", "The next first error (e)", () => this.nextError());
    this.passSelect = h("select", { "aria-label": "Before or after HNC" }, h("option", { value: "0" }, "As grown"));
    for (let pass = 1; pass <= this.run.passes; pass += 1) {
      this.passSelect.append(h("option", { value: String(pass) }, this.run.passes > 1 ? `After HNC, pass ${pass}` : "After HNC"));
    }
    this.passSelect.value = String(this.pass);
    this.passSelect.addEventListener("change", () => this.compare(Number(this.passSelect.value)));
    this.filter = h("select", { "aria-label": "Show" }, FILTERS.map(([value, label]) => h("option", { value }, label)));
    this.filter.addEventListener("change", () => this.applyFilter());
    this.find = h("input", { type: "search", placeholder: "Find in tree", "aria-label": "Find text in the tree" });
    this.find.addEventListener("input", later(250, () => this.search()));
    this.told = h("span", { class: "told quiet", role: "status" });
    this.helpBox = h(
      "dialog",
      { class: "help", "aria-label": "Keys" },
      h("h2", {}, "Keys"),
      h("dl", {}, KEYS.map(([keys, what]) => [h("dt", {}, keys), h("dd", {}, what)]).flat()),
      h("form", { method: "dialog" }, h("button", { class: "plain" }, "Close")),
    );
    this.helpBox.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.helpBox.close();
    });
    const n = tree.nodes;
    this.slider = h("input", { type: "range", min: "0", max: String(n - 1), value: String(n - 1), "aria-label": "Nodes created so far", class: "replay-range" });
    this.slider.addEventListener("input", () => this.replay(Number(this.slider.value)));
    this.playButton = button("▶", "Play the search (p)", () => this.play());
    this.playButton.setAttribute("aria-label", "Play the search");
    this.replayText = h("output", { class: "quiet replay-text" });
    this.closeButton = button("✕", "Close the node (Esc)", () => this.openPanel(false));
    this.closeButton.setAttribute("aria-label", "Close the node");
    this.panel.bar.append(this.closeButton);
    this.layout = h(
      "div",
      { class: "tree-layout" },
      h(
        "div",
        { class: "tree-side" },
        h(
          "div",
          { class: "toolbar", role: "toolbar", "aria-label": "Tree" },
          this.shapeButton,
          this.run.passes ? this.passSelect : null,
          this.filter,
          this.find,
          this.bestButton,
          this.errorButton,
          button("Unfold all", "Show all nodes", () => this.unfold()),
          button("Fold", "Only the first steps", () => this.view.openAll(false)),
          button("?", "Keys", () => this.helpBox.showModal()),
          this.told,
        ),
        this.view.element,
        h("div", { class: "replay" }, this.playButton, this.slider, this.replayText),
        legend(tree),
      ),
      this.panel.element,
    );
    this.banner = this.growing ? h("p", { class: "banner unsure", role: "status" }) : "";
    place.replaceChildren(head, this.banner, this.layout, this.helpBox);
    this.offer();
    this.openPanel(this.panelOpen);
    this.named();
    this.tellReplay(n - 1);
    this.tell();
  }

  // What the toolbar has for this tree.
  offer() {
    const tree = this.trees.get(this.pass);
    this.bestButton.disabled = !tree.best.length && !tree.best_rollout;
    this.errorButton.textContent = `First errors ${tree.first_errors.length ? count(tree.first_errors.length) : ""}`.trim();
    this.errorButton.disabled = !tree.first_errors.length;
    if (this.growing) this.banner.textContent = `This tree has not ended: ${count(this.growing.requests)} requests, ${count(this.growing.completions)} completions, ${count(this.growing.tokens)} tokens so far. What is new appears by itself.`;
  }

  // A tree that grows is asked for again as long as somebody looks; once it has ended the page is made anew.
  async watch() {
    try {
      const found = document.hidden || this.playing ? null : await ask(`problems/${this.number}`, { requests: this.growing.requests });
      if (this.closed) return;
      if (found && !found.growing) {
        this.over = true;
        window.dispatchEvent(new Event("hashchange"));
        return;
      }
      if (found && found.tree) this.grow(found);
    } catch {
      // The server may come back.
    }
    if (!this.closed) this.watching = setTimeout(() => this.watch(), AGAIN);
  }

  grow({ tree, growing: now }) {
    this.growing = now;
    this.trees.set(0, tree);
    this.view.grow(new TreeModel(tree));
    this.slider.max = String(tree.nodes - 1);
    this.slider.value = String(this.view.until);
    this.tellReplay(this.view.until);
    this.offer();
    if (this.find.value.trim()) this.search();
    else this.applyFilter();
    if (!this.view.selected) this.showNode();
  }

  named() {
    this.shapeButton.textContent = this.view.shape === "tree" ? "Outline" : "Tree";
  }

  tell(words) {
    const tree = this.trees.get(this.pass);
    this.told.textContent = words || `${count(tree.nodes)} nodes`;
  }

  // The address changed: go to its node. False where this page cannot show it.
  follow({ number, params }) {
    if (number !== this.number || this.over) return false;
    const node = Number(params.get("node") || 0);
    const pass = Number(params.get("pass") || 0);
    const at = params.get("at");
    if (pass !== this.pass) this.compare(pass);
    if (at !== null && Number(at) < this.view.model.size) this.replay(Number(at));
    if (node !== this.view.selected || node) {
      if (node < this.view.model.size) {
        this.view.select(node, { quiet: true });
        this.openPanel(true);
        this.showNode();
      } else this.tell(`There is no node ${node}; the last one is ${this.view.model.size - 1}.`);
    }
    return true;
  }

  selected(node) {
    if (!this.playing) this.openPanel(this.panelOpen || document.activeElement !== this.view.element);
    this.showNode();
    this.remember();
    return node;
  }

  openPanel(open) {
    this.panelOpen = open;
    const changed = this.layout.classList.contains("with-panel") !== open;
    this.layout.classList.toggle("with-panel", open);
    // The tree has another size now.
    if (changed) requestAnimationFrame(() => this.view.reveal(this.view.selected));
  }

  writeAddress() {
    if (this.closed) return;
    const params = new URLSearchParams();
    if (this.view.selected) params.set("node", this.view.selected);
    if (this.pass) params.set("pass", this.pass);
    if (this.view.until < this.view.model.size - 1) params.set("at", this.view.until);
    const query = params.toString();
    history.replaceState(null, "", `#/problem/${this.number}${query ? `?${query}` : ""}`);
  }

  turn() {
    this.view.shape = this.view.shape === "tree" ? "outline" : "tree";
    this.named();
    this.view.update();
    this.view.reveal(this.view.selected);
  }

  // A large tree unfolded is read as an outline; as a tree it is mostly empty space.
  unfold() {
    this.view.openAll(true);
    if (this.view.model.size > LARGE && this.view.shape === "tree") this.turn();
  }

  toggleBest() {
    this.view.showBest = !this.view.showBest;
    this.bestButton.setAttribute("aria-pressed", String(this.view.showBest));
    const { best } = this.trees.get(this.pass);
    if (this.view.showBest && best.length) {
      this.view.reveal(best[best.length - 1]);
      this.view.select(best[best.length - 1]);
    } else this.view.redraw();
  }

  nextError() {
    const errors = this.trees.get(this.pass).first_errors;
    if (errors.length) this.view.select(errors.find((node) => node > this.view.selected) ?? errors[0]);
  }

  async compare(pass) {
    try {
      if (!this.trees.has(pass)) this.trees.set(pass, (await ask(`problems/${this.number}`, { pass })).tree);
    } catch (error) {
      this.tell(error.message);
      this.passSelect.value = String(this.pass);
      return;
    }
    this.pass = pass;
    this.passSelect.value = String(pass);
    this.view.replace(new TreeModel(this.trees.get(pass)));
    const merged = this.trees.get(pass).merged.length;
    this.offer();
    this.applyFilter();
    if (pass && !this.filter.value) this.tell(`${count(merged)} merged ${merged === 1 ? "node" : "nodes"}`);
    this.view.reveal(this.view.selected);
    this.showNode();
    this.remember();
  }

  applyFilter() {
    const make = FILTERS.find(([value]) => value === this.filter.value)[2];
    if (make === null) {
      this.keepOnly(null);
      return;
    }
    const { keep, matches } = this.view.model.leadingTo(make(this.trees.get(this.pass)));
    this.keepOnly(keep);
    this.tell(matches ? `${count(matches)} of ${count(keep.length)} nodes` : "No node of this kind");
  }

  keepOnly(keep) {
    this.view.keep = keep;
    if (keep) {
      // Unfold what leads to matches, up to a point.
      let opened = 0;
      for (let node = 0; node < keep.length && opened < 3_000; node += 1) {
        if (keep[node] && !this.view.model.isLeaf(node)) {
          this.view.open[node] = 1;
          opened += 1;
        }
      }
    } else this.tell();
    this.view.update();
  }

  async search() {
    const text = this.find.value.trim();
    if (!text) {
      this.applyFilter();
      return;
    }
    try {
      const found = await ask(`problems/${this.number}/search`, { pass: this.pass, text });
      if (text !== this.find.value.trim()) return;
      const nodes = new Set(found.nodes);
      this.keepOnly(this.view.model.leadingTo((node) => nodes.has(node)).keep);
      this.tell(`${count(found.found)} ${found.found === 1 ? "node has" : "nodes have"} it`);
      if (found.nodes.length) this.view.select(found.nodes[0]);
    } catch (error) {
      this.tell(error.message);
    }
  }

  // Show the tree as it was when node `until` was the newest.
  replay(until) {
    this.view.until = until;
    this.slider.value = String(until);
    this.tellReplay(until);
    if (until < this.view.model.size - 1) this.view.reveal(until, { changed: true });
    else this.view.update();
    this.remember();
  }

  tellReplay(until) {
    const last = this.view.model.size - 1;
    this.replayText.textContent = until === last ? `all ${count(last + 1)} nodes` : `node ${count(until)} of ${count(last)}`;
  }

  play() {
    this.playing = !this.playing;
    this.playButton.textContent = this.playing ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", this.playing ? "Pause" : "Play the search");
    if (!this.playing) return;
    const last = this.view.model.size - 1;
    let from = this.view.until >= last ? 0 : this.view.until;
    let started = null;
    const frame = (now) => {
      if (!this.playing) return;
      if (started === null) started = now;
      const pace = Math.max(last / REPLAY_SECONDS, 4);
      const until = Math.min(Math.floor(from + ((now - started) / 1000) * pace), last);
      if (until !== this.view.until) this.replay(until);
      if (until >= last) this.play();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.helpBox.open) return;
    const typing = event.target.matches("input:not([type=range]), select, textarea, pre");
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if (!window.matchMedia("(min-width: 900px)").matches) this.openPanel(false);
      this.view.element.focus({ preventScroll: true });
      return;
    }
    if (typing) return;
    const inTree = event.target === this.view.element || event.target === document.body || event.target.id === "main";
    if (inTree && this.view.key(event.key)) {
      event.preventDefault();
      return;
    }
    const act = {
      b: () => !this.bestButton.disabled && this.toggleBest(),
      e: () => this.nextError(),
      m: () => this.run.passes && this.compare(this.pass ? 0 : 1),
      o: () => this.turn(),
      p: () => this.play(),
      "/": () => this.find.focus(),
      "?": () => this.helpBox.showModal(),
      "[": () => document.querySelector(".problem-head a[rel=prev]")?.click(),
      "]": () => document.querySelector(".problem-head a[rel=next]")?.click(),
      Enter: inTree ? () => this.openPanel(true) : null,
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
