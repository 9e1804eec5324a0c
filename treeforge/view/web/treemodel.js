// A tree's shape in typed arrays, and where its visible nodes lie. No DOM: 100,000 nodes take some milliseconds.

// A parent stands in the middle of its children, and no more rows than this below the first: there it is seen with them.
const LEAD = 3;

export class TreeModel {
  constructor(tree) {
    this.tree = tree;
    this.size = tree.parent.length;
    this.parent = Int32Array.from(tree.parent);
    const n = this.size;
    this.depth = new Int32Array(n);
    this.below = new Int32Array(n);
    this.start = new Int32Array(n + 1);
    for (let node = 1; node < n; node += 1) {
      this.depth[node] = this.depth[this.parent[node]] + 1;
      this.start[this.parent[node] + 1] += 1;
    }
    for (let node = 0; node < n; node += 1) this.start[node + 1] += this.start[node];
    this.child = new Int32Array(Math.max(n - 1, 0));
    const next = this.start.slice(0, n);
    for (let node = 1; node < n; node += 1) this.child[next[this.parent[node]]++] = node;
    for (let node = n - 1; node > 0; node -= 1) this.below[this.parent[node]] += this.below[node] + 1;
    this.largest = Math.max(1, tree.size[0] ?? 1);
  }

  children(node) {
    return this.child.subarray(this.start[node], this.start[node + 1]);
  }

  isLeaf(node) {
    return this.start[node] === this.start[node + 1];
  }

  path(node) {
    const rows = [];
    for (let at = node; at >= 0; at = this.parent[at]) rows.push(at);
    return rows.reverse();
  }

  // Opened at first: the most visited nodes, until `most` of them show, and the best path.
  opening(most) {
    const open = new Uint8Array(this.size);
    let shown = 1;
    const heap = [0];
    const size = this.tree.size;
    while (heap.length && shown < most) {
      let at = 0;
      for (let i = 1; i < heap.length; i += 1) if (size[heap[i]] > size[heap[at]]) at = i;
      const node = heap.splice(at, 1)[0];
      const children = this.children(node);
      if (!children.length) continue;
      if (node && shown + children.length > most) continue;
      open[node] = 1;
      shown += children.length;
      for (const child of children) heap.push(child);
    }
    for (const node of this.tree.best.slice(0, -1)) open[node] = 1;
    return open;
  }

  // Nodes that satisfy `wanted`, and all above them: a tree that leads to them.
  leadingTo(wanted) {
    const keep = new Uint8Array(this.size);
    let matches = 0;
    for (let node = this.size - 1; node >= 0; node -= 1) {
      if (wanted(node)) {
        keep[node] = 2;
        matches += 1;
      }
      if (keep[node] && node && !keep[this.parent[node]]) keep[this.parent[node]] = 1;
    }
    if (this.size && !keep[0]) keep[0] = 1;
    return { keep, matches };
  }

  // The visible nodes in reading order with their rows; `until`: nodes created later are not there yet.
  layout(open, keep, until, outline) {
    const order = [];
    const stack = [0];
    const row = new Float64Array(this.size).fill(-1);
    let rows = 0;
    let deepest = 0;
    while (stack.length) {
      const node = stack.pop();
      order.push(node);
      if (this.depth[node] > deepest) deepest = this.depth[node];
      let shown = 0;
      if (open[node]) {
        const children = this.children(node);
        for (let i = children.length - 1; i >= 0; i -= 1) {
          const child = children[i];
          if (child > until || (keep && !keep[child])) continue;
          stack.push(child);
          shown += 1;
        }
      }
      if (outline || !shown) row[node] = rows++;
    }
    if (!outline) {
      const low = new Float64Array(this.size).fill(Infinity);
      const high = new Float64Array(this.size).fill(-Infinity);
      for (let i = order.length - 1; i >= 0; i -= 1) {
        const node = order[i];
        if (row[node] < 0) row[node] = Math.min((low[node] + high[node]) / 2, low[node] + LEAD);
        const above = this.parent[node];
        if (above < 0) continue;
        if (row[node] < low[above]) low[above] = row[node];
        if (row[node] > high[above]) high[above] = row[node];
      }
    }
    return new Layout(order, row, rows, deepest);
  }
}

class Layout {
  constructor(order, row, rows, deepest) {
    this.order = order;
    this.row = row;
    this.rows = rows;
    this.deepest = deepest;
    this.place = new Int32Array(row.length).fill(-1);
    order.forEach((node, at) => {
      this.place[node] = at;
    });
    // Nodes by their row, so that a window of rows is found at once.
    this.first = new Int32Array(rows + 1);
    for (const node of order) this.first[Math.floor(row[node]) + 1] += 1;
    for (let i = 0; i < rows; i += 1) this.first[i + 1] += this.first[i];
    const next = this.first.slice(0, rows);
    this.byRow = new Int32Array(order.length);
    for (const node of order) this.byRow[next[Math.floor(row[node])]++] = node;
  }

  within(from, to) {
    const low = Math.min(Math.max(Math.floor(from), 0), this.rows);
    const high = Math.min(Math.max(Math.ceil(to) + 1, 0), this.rows);
    return this.byRow.subarray(this.first[low], this.first[high]);
  }
}
