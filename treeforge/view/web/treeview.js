// The drawn tree: the nodes of the visible window as pills over SVG edges, whatever the tree's size.
import { count, h, inline, later, share, svg, tone } from "./dom.js";

const SHAPES = {
  tree: { row: 38, column: 282, pill: 246 },
  outline: { row: 34, column: 22, pill: 0 },
};
const MARGIN = 16;
// The symbols of Verdict and Finish, by code.
const VERDICTS = [
  ["✗", "bad", "wrong"],
  ["✓", "good", "correct"],
  ["∅", "bad", "no answer"],
  ["⁇", "unsure", "unparsable"],
  ["?", "unsure", "undecided"],
];
const TRUNCATED = 3;
const FAILED = 4;

export class TreeView {
  // `onselect(node)` when another node is chosen; `labels(nodes)` fetches the beginnings of their texts.
  constructor(model, { labels, onselect, shape }) {
    this.model = model;
    this.fetchLabels = labels;
    this.onselect = onselect;
    this.shape = shape;
    this.open = model.opening(shape === "outline" ? 70 : 40);
    this.keep = null;
    this.until = model.size - 1;
    this.selected = 0;
    this.texts = new Map();
    this.wanted = new Set();
    this.showBest = false;
    this.edges = svg("g", {});
    this.picture = svg("svg", { class: "edges", "aria-hidden": "true" }, this.edges);
    this.pills = h("div", { class: "pills", role: "presentation" });
    this.pane = h("div", { class: "pane", role: "presentation" }, this.picture, this.pills);
    this.spacer = h("div", { class: "tree-spacer", role: "presentation" }, this.pane);
    this.element = h(
      "div",
      { class: "canvas", role: "tree", tabindex: "0", "aria-label": "Search tree. Arrow keys move, question mark lists all keys." },
      this.spacer,
    );
    this.element.addEventListener("scroll", () => this.redraw());
    this.element.addEventListener("click", (event) => this.clicked(event));
    this.element.addEventListener("dblclick", (event) => {
      const node = nodeOf(event.target);
      if (node !== null) this.toggle(node);
    });
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(this.element);
    this.askLabels = later(40, () => this.loadLabels());
    this.setBest();
    this.update();
  }

  close() {
    this.resized.disconnect();
  }

  // Another tree of the same nodes: before or after HNC.
  replace(model) {
    this.model = model;
    this.texts.clear();
    this.keep = null;
    this.setBest();
    this.update();
  }

  // The same tree with further nodes; what was folded stays folded, and what is new is unfolded as at first.
  grow(model) {
    const before = this.model;
    const atEnd = this.until >= before.size - 1;
    const opening = model.opening(this.shape === "outline" ? 70 : 40);
    for (let node = 0; node < before.size; node += 1) if (!before.isLeaf(node)) opening[node] = this.open[node];
    this.model = model;
    this.open = opening;
    this.keep = null;
    if (atEnd) this.until = model.size - 1;
    this.setBest();
    this.update();
  }

  setBest() {
    this.best = new Set([0, ...this.model.tree.best]);
    this.firstErrors = new Set(this.model.tree.first_errors);
    this.merged = new Set(this.model.tree.merged);
  }

  update() {
    this.layout = this.model.layout(this.open, this.keep, this.until, this.shape === "outline");
    const { row, column, pill } = SHAPES[this.shape];
    const width = 2 * MARGIN + this.layout.deepest * column + (pill || 320);
    this.width = width;
    this.spacer.style.height = `${2 * MARGIN + this.layout.rows * row}px`;
    this.spacer.style.width = `${width}px`;
    this.redraw();
  }

  redraw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.draw();
    });
  }

  x(node) {
    return MARGIN + this.model.depth[node] * SHAPES[this.shape].column;
  }

  y(node) {
    const { row } = SHAPES[this.shape];
    return MARGIN + this.layout.row[node] * row + row / 2;
  }

  draw() {
    const { element, layout, model } = this;
    const { row, pill } = SHAPES[this.shape];
    const left = element.scrollLeft;
    const top = element.scrollTop;
    const width = element.clientWidth;
    const height = element.clientHeight;
    const outline = this.shape === "outline";
    this.pane.style.width = `${width}px`;
    this.pane.style.height = `${height}px`;
    const nodes = [];
    for (const node of layout.within((top - MARGIN) / row - 2, (top + height - MARGIN) / row + 2)) {
      const x = this.x(node) - left;
      if (outline || (x > -pill - 40 && x < width + 40)) nodes.push(node);
    }
    nodes.sort((a, b) => layout.place[a] - layout.place[b]);
    this.edges.replaceChildren(...this.lines(nodes, left, top));
    const missing = [];
    const made = nodes.map((node) => {
      const item = this.pill(node);
      item.style.left = `${this.x(node) - left}px`;
      item.style.top = `${this.y(node) - top - row / 2 + 2}px`;
      item.style.width = outline ? `${Math.max(Math.max(width, this.width) - left - (this.x(node) - left) - MARGIN, 120)}px` : `${pill}px`;
      if (node && !this.texts.has(node) && !this.wanted.has(node)) missing.push(node);
      return item;
    });
    this.pills.replaceChildren(...made);
    const active = layout.place[this.selected] >= 0 ? `node-${this.selected}` : "";
    if (active && nodes.includes(this.selected)) element.setAttribute("aria-activedescendant", active);
    else element.removeAttribute("aria-activedescendant");
    if (missing.length) {
      for (const node of missing) this.wanted.add(node);
      this.askLabels();
    }
  }

  lines(nodes, left, top) {
    const { model, layout } = this;
    const outline = this.shape === "outline";
    const { pill } = SHAPES[this.shape];
    const drawn = [];
    const bold = [];
    const seen = new Set();
    const line = (node) => {
      if (seen.has(node) || node === 0) return;
      seen.add(node);
      const above = model.parent[node];
      const y1 = this.y(above) - top;
      const y2 = this.y(node) - top;
      let d;
      if (outline) {
        const x = this.x(above) - left + 10;
        d = `M${x} ${y1 + 13}V${y2 - 6}q0 6 6 6H${this.x(node) - left}`;
      } else {
        const x1 = this.x(above) - left + pill;
        const x2 = this.x(node) - left;
        const middle = (x1 + x2) / 2;
        d = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
      }
      const best = this.showBest && this.best.has(node) && this.best.has(above);
      (best ? bold : drawn).push(svg("path", { class: best ? "edge best" : "edge", d }));
    };
    for (const node of nodes) {
      line(node);
      // Lines go on to children that are out of sight.
      if (this.open[node]) {
        const children = model.children(node);
        for (let i = 0; i < children.length; i += 1) if (layout.place[children[i]] >= 0) { line(children[i]); break; }
        for (let i = children.length - 1; i >= 0; i -= 1) if (layout.place[children[i]] >= 0) { line(children[i]); break; }
      }
      if (outline) {
        for (let at = model.parent[node]; at > 0 && !seen.has(at); at = model.parent[at]) line(at);
      }
    }
    return [...drawn, ...bold];
  }

  pill(node) {
    const { tree } = this.model;
    const value = tree.value[node];
    const leaf = this.model.isLeaf(node);
    const open = Boolean(this.open[node]);
    const verdict = tree.verdict[node];
    let mark = verdict >= 0 ? VERDICTS[verdict] : null;
    if (tree.finish[node] === TRUNCATED && verdict !== 1) mark = ["✂", "bad", "truncated"];
    if (tree.finish[node] === FAILED) mark = ["!", "unsure", "engine error"];
    const radius = 3.6 + 5.9 * Math.sqrt(Math.min(tree.size[node] / this.model.largest, 1));
    const classes = ["pill"];
    if (node === this.selected) classes.push("selected");
    if (this.showBest && this.best.has(node)) classes.push("on-best");
    if (this.merged.has(node)) classes.push("merged");
    if (this.keep && this.keep[node] !== 2) classes.push("passing");
    if (this.until < this.model.size - 1 && node === this.until) classes.push("newest");
    const parts = this.texts.get(node);
    const text = h("span", { class: "step", dir: "auto" }, node === 0 ? "Question" : parts ? inline(parts) : "…");
    const words = [`node ${node}`, value === null ? "no value" : `value ${share(value)}`, mark ? mark[2] : null];
    words.push(this.firstErrors.has(node) ? "first error" : null, this.merged.has(node) ? "merged by HNC" : null);
    const item = h(
      "div",
      {
        class: classes.join(" "),
        id: `node-${node}`,
        role: "treeitem",
        "data-node": node,
        "aria-level": this.model.depth[node] + 1,
        "aria-selected": String(node === this.selected),
        "aria-expanded": leaf ? null : String(open),
        title: words.filter(Boolean).join(", "),
      },
      svg("svg", { class: "dot", viewBox: "-10 -10 20 20", "aria-hidden": "true" }, svg("circle", { class: tone(value), r: radius.toFixed(2) })),
      h("span", { class: "value" }, share(value)),
      text,
      this.firstErrors.has(node) ? h("span", { class: "mark bad", title: "First error on its path" }, "①") : null,
      this.merged.has(node) ? h("span", { class: "mark merged-mark", title: "Merged by HNC" }, "⊕") : null,
      mark ? h("span", { class: `mark ${mark[1]}`, title: mark[2] }, mark[0]) : null,
      leaf
        ? null
        : h(
            "span",
            { class: "toggle", "data-toggle": node, title: open ? "Fold" : `Unfold (${count(this.model.below[node])} nodes below)`, "aria-hidden": "true" },
            open ? "−" : `+${short(this.model.below[node])}`,
          ),
    );
    return item;
  }

  async loadLabels() {
    const nodes = [...this.wanted].slice(0, 400);
    if (!nodes.length) return;
    try {
      const found = await this.fetchLabels(nodes);
      for (const node of nodes) {
        this.wanted.delete(node);
        this.texts.set(node, found[node] || []);
      }
    } catch {
      for (const node of nodes) this.wanted.delete(node);
      return;
    }
    this.redraw();
    if (this.wanted.size) this.askLabels();
  }

  clicked(event) {
    const toggle = event.target.closest("[data-toggle]");
    if (toggle) {
      this.toggle(Number(toggle.dataset.toggle));
      return;
    }
    const node = nodeOf(event.target);
    if (node !== null) this.select(node);
  }

  toggle(node) {
    if (this.model.isLeaf(node)) return;
    this.open[node] = this.open[node] ? 0 : 1;
    this.update();
  }

  openAll(value) {
    this.open.fill(value ? 1 : 0);
    this.open[0] = 1;
    this.update();
  }

  // Make a node visible: unfold what is above it and scroll there. `changed`: what is shown is another tree by now.
  reveal(node, { changed = false } = {}) {
    for (let at = this.model.parent[node]; at >= 0; at = this.model.parent[at]) {
      if (!this.open[at]) {
        this.open[at] = 1;
        changed = true;
      }
    }
    if (this.keep && !this.keep[node]) {
      this.keep = null;
      changed = true;
    }
    if (changed || this.layout.place[node] < 0) this.update();
    if (this.layout.place[node] < 0) return;
    const { row, pill } = SHAPES[this.shape];
    const { element } = this;
    const x = this.x(node);
    const y = this.y(node);
    const wide = this.shape === "outline" ? 160 : pill;
    let { scrollLeft, scrollTop } = element;
    if (y - row < scrollTop || y + row > scrollTop + element.clientHeight) scrollTop = y - element.clientHeight / 2;
    if (x - MARGIN < scrollLeft || x + wide + MARGIN > scrollLeft + element.clientWidth) {
      scrollLeft = this.shape === "outline" ? x - 40 : x + wide / 2 - element.clientWidth / 2;
    }
    element.scrollTo({ left: scrollLeft, top: scrollTop, behavior: "instant" });
    this.redraw();
  }

  select(node, { quiet = false } = {}) {
    this.selected = node;
    this.reveal(node);
    this.redraw();
    if (!quiet) this.onselect(node);
  }

  // Arrow keys, Home and End as in any tree; true where the key was used.
  key(key) {
    const { model, layout } = this;
    const at = layout.place[this.selected];
    const go = (node) => {
      if (node !== undefined && node >= 0) this.select(node);
      return true;
    };
    if (at < 0) return false;
    const visible = [...model.children(this.selected)].filter((child) => layout.place[child] >= 0);
    switch (key) {
      case "ArrowDown":
        return go(this.shape === "outline" ? layout.order[at + 1] : this.beside(1));
      case "ArrowUp":
        return go(this.shape === "outline" ? layout.order[at - 1] : this.beside(-1));
      case "ArrowRight":
        if (model.isLeaf(this.selected)) return true;
        if (!this.open[this.selected]) this.toggle(this.selected);
        else go(visible[0]);
        return true;
      case "ArrowLeft":
        if (this.shape === "outline" && this.open[this.selected] && visible.length) this.toggle(this.selected);
        else go(model.parent[this.selected]);
        return true;
      case "Home":
        return go(0);
      case "End":
        return go(layout.order[layout.order.length - 1]);
      case " ":
        this.toggle(this.selected);
        return true;
      default:
        return false;
    }
  }

  // The next node at the same depth, up or down.
  beside(step) {
    const { layout, model } = this;
    const depth = model.depth[this.selected];
    for (let at = layout.place[this.selected] + step; at >= 0 && at < layout.order.length; at += step) {
      if (model.depth[layout.order[at]] === depth) return layout.order[at];
    }
    return undefined;
  }
}

function nodeOf(target) {
  const item = target.closest("[data-node]");
  return item ? Number(item.dataset.node) : null;
}

function short(number) {
  return number < 1_000 ? String(number) : number < 1_000_000 ? `${Math.round(number / 100) / 10}k` : `${Math.round(number / 1e5) / 10}M`;
}
