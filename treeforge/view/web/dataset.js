// The labels of the run, and the training rows as a trainer reads them.
import { ask, isOffline } from "./api.js";
import { count, failure, h, percent, svg } from "./dom.js";

const PAGE_ROWS = 20;

export async function datasetPage(place) {
  const data = await ask("dataset");
  place.replaceChildren(h("div", { class: "reading wide" }, h("h1", {}, "Dataset"), warnings(data.warnings), labels(data), rows(data.splits)));
  return { name: "dataset", title: "Dataset" };
}

function warnings(lines) {
  return lines.length ? h("ul", { class: "notice unsure" }, lines.map((line) => h("li", {}, line))) : null;
}

function labels(data) {
  const found = data.labels;
  if (!found) return h("p", { class: "notice" }, "There are no labels yet: `treeforge label` makes them.");
  const total = found.positive + found.negative + found.unlabelled;
  const tile = (name, value, note) => h("div", { class: "tile" }, h("span", { class: "tile-value" }, value), h("span", { class: "quiet" }, name), note ? h("small", { class: "quiet" }, note) : null);
  return h(
    "section",
    {},
    h(
      "div",
      { class: "tiles" },
      tile("steps", count(total), `${found.config.estimator}, threshold ${found.config.threshold}${found.stale ? ", stale" : ""}`),
      tile("label 1", count(found.positive), found.positive_share === null ? "" : `${percent(found.positive_share)} of the labelled`),
      tile("label 0", count(found.negative)),
      tile("without a label", count(found.unlabelled)),
    ),
    h("div", { class: "charts" }, balance(found.by_depth), histogram(found)),
  );
}

function balance(byDepth) {
  const most = Math.max(1, ...byDepth.map((row) => row.positive + row.negative + row.unlabelled));
  return h(
    "figure",
    {},
    h("figcaption", {}, h("h2", {}, "Labels by depth"), h("p", { class: "key quiet" }, swatch("tone-10"), "label 1 ", swatch("tone-0"), "label 0 ", swatch("tone-none"), "none")),
    h(
      "table",
      { class: "balance" },
      h("thead", { class: "sr" }, h("tr", {}, ["Depth", "Balance", "Label 1", "Steps"].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        byDepth.slice(0, 40).map((row) => {
          const total = row.positive + row.negative + row.unlabelled;
          const width = 100 * Math.sqrt(total / most);
          let x = 0;
          const part = (value, tone) => {
            const made = svg("rect", { class: `tone ${tone}`, x, y: 0, width: total ? (width * value) / total : 0, height: 10 });
            x += total ? (width * value) / total : 0;
            return made;
          };
          return h(
            "tr",
            {},
            h("th", { scope: "row" }, String(row.depth)),
            h("td", { class: "bar-cell" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, part(row.positive, "tone-10"), part(row.negative, "tone-0"), part(row.unlabelled, "tone-none"))),
            h("td", {}, row.positive + row.negative ? percent(row.positive / (row.positive + row.negative)) : "–"),
            h("td", { class: "quiet" }, count(total)),
          );
        }),
      ),
    ),
    byDepth.length > 40 ? h("p", { class: "quiet" }, `and ${count(byDepth.length - 40)} deeper levels`) : null,
    h("p", { class: "quiet" }, "The length of a bar grows with the square root of the steps."),
  );
}

function swatch(tone) {
  return h("span", { class: `swatch tone ${tone}` });
}

function histogram(found) {
  const bins = found.value_histogram;
  const most = Math.max(1, ...bins);
  const picture = svg("svg", { class: "histogram", viewBox: "0 0 220 120", role: "img", "aria-label": `Values of the steps in ten bins from 0 to 1: ${bins.join(", ")}` });
  bins.forEach((steps, bin) => {
    const height = (100 * steps) / most;
    picture.append(
      svg("rect", { class: `tone tone-${Math.min(bin + (bin >= 5 ? 1 : 0), 10)}`, x: 22 * bin + 1, y: 104 - height, width: 20, height, rx: 1.5 }, svg("title", {}, `${bin / 10} to ${(bin + 1) / 10}: ${count(steps)} steps`)),
    );
  });
  picture.append(svg("line", { class: "axis", x1: 0, x2: 220, y1: 104.5, y2: 104.5 }));
  for (const [value, x, anchor] of [["0", 1, "start"], ["0.5", 110, "middle"], ["1", 219, "end"]]) {
    picture.append(svg("text", { class: "axis-text", x, y: 116, "text-anchor": anchor }, value));
  }
  return h(
    "figure",
    {},
    h("figcaption", {}, h("h2", {}, "Values of the steps")),
    picture,
    h("p", { class: "quiet" }, `${count(found.always_wrong)} steps are exactly 0, ${count(found.always_right)} exactly 1.`),
  );
}

function rows(splits) {
  const section = h("section", {}, h("h2", {}, "Training rows"));
  if (!splits.length) {
    section.append(h("p", { class: "notice" }, "There are no shards yet: `treeforge export` writes them."));
    return section;
  }
  const choose = h(
    "select",
    { "aria-label": "Format and split" },
    splits.map((each, at) => h("option", { value: String(at) }, `${each.name}, ${each.split} (${count(each.rows)} rows)`)),
  );
  const table = h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Training rows" });
  const where = h("span", { class: "quiet", role: "status" });
  let offset = 0;
  const split = () => splits[Number(choose.value)];
  const load = async () => {
    const { format, split: part, rows: all } = split();
    try {
      const found = (await ask("dataset/rows", { format, split: part, offset, limit: PAGE_ROWS })).rows;
      table.replaceChildren(rowTable(split(), found));
      where.textContent = isOffline ? `the first ${count(found.length)} of ${count(all)}` : `${count(offset + 1)} to ${count(offset + found.length)} of ${count(all)}`;
    } catch (error) {
      table.replaceChildren(failure(error));
    }
    back.disabled = offset === 0 || isOffline;
    next.disabled = offset + PAGE_ROWS >= all || isOffline;
  };
  const move = (label, by) => {
    const made = h("button", { type: "button", class: "plain" }, label);
    made.addEventListener("click", () => {
      offset = Math.max(offset + by, 0);
      load();
    });
    return made;
  };
  const back = move("‹ Back", -PAGE_ROWS);
  const next = move("Next ›", PAGE_ROWS);
  choose.addEventListener("change", () => {
    offset = 0;
    load();
  });
  section.append(h("div", { class: "pager" }, choose, back, next, where), table);
  load();
  return section;
}

function rowTable({ columns }, found) {
  const linked = columns.includes("tree_id") && columns.includes("node_id");
  return h(
    "table",
    { class: "rows-table" },
    h("thead", {}, h("tr", {}, linked ? h("th", { scope: "col" }, "tree") : null, columns.map((name) => h("th", { scope: "col" }, name)))),
    h(
      "tbody",
      {},
      found.map((row) =>
        h(
          "tr",
          {},
          linked
            ? h("td", {}, h("a", { href: `#/problem/${row.tree_id}?node=${row.node_id}${row.compressed ? `&pass=${row.compressed}` : ""}` }, `${row.tree_id}/${row.node_id}`))
            : null,
          columns.map((name) => h("td", { class: typeof row[name] === "string" && (row[name].length > 24 || row[name].includes("\n")) ? "long" : "" }, h("div", { dir: "auto" }, cell(row[name])))),
        ),
      ),
    ),
  );
}

function cell(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toPrecision(4).replace(/\.?0+$/, "");
  return typeof value === "string" ? value : JSON.stringify(value);
}
