// A run while it goes on: asked for again every two seconds, as long as somebody looks.
import { ask } from "./api.js";
import { count, duration, failure, h, percent, svg } from "./dom.js";

const AGAIN = 2_000;

export async function livePage(place) {
  const body = h("div", { class: "live" });
  place.replaceChildren(h("div", { class: "reading wide" }, h("h1", {}, "Live"), body));
  let timer = 0;
  let closed = false;
  const load = async () => {
    clearTimeout(timer);
    try {
      const data = await ask("live");
      if (!closed) body.replaceChildren(...show(data));
    } catch (error) {
      if (!closed) body.replaceChildren(failure(error));
    }
    if (!closed && !document.hidden) timer = setTimeout(load, AGAIN);
  };
  const looked = () => {
    if (!document.hidden) load();
  };
  document.addEventListener("visibilitychange", looked);
  await load();
  return {
    name: "live",
    title: "Live",
    close() {
      closed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", looked);
    },
  };
}

function show(data) {
  const done = data.problems - (data.by_status.open || 0);
  const { now } = data;
  const tile = (name, value) => h("div", { class: "tile" }, h("span", { class: "tile-value" }, value), h("span", { class: "quiet" }, name));
  const progress = h("progress", { max: String(Math.max(data.problems, 1)), value: String(done), "aria-label": "Trees that have ended" });
  return [
    h("p", { class: "summary" }, h("span", { class: `chip ${data.going ? "good" : ""}` }, data.going ? "going" : done === data.problems ? "finished" : "stopped"), h("span", { class: "quiet" }, `${count(done)} of ${count(data.problems)} trees have ended`, data.seconds_left === null ? "" : ` · about ${duration(data.seconds_left)} left`)),
    progress,
    now
      ? h(
          "div",
          { class: "tiles" },
          tile("tokens a second", count(Math.round(now.tokens_per_second))),
          tile("completions a second", count(Math.round(10 * now.completions_per_second) / 10)),
          tile("in flight", count(now.in_flight)),
          tile("right of the judged", now.judged ? percent(now.correct / now.judged) : "–"),
          tile("retries, errors", `${count(now.retries)}, ${count(now.errors)}`),
          tile("this sitting", duration(now.seconds)),
        )
      : h("p", { class: "notice" }, "No metrics yet: a run writes them to logs/metrics.jsonl."),
    data.points.length > 1 ? h("div", { class: "charts" }, chart("Tokens a second", data.points, 1), chart("Completions a second", data.points, 2)) : "",
    data.growing.length
      ? h(
          "section",
          {},
          h("h2", {}, data.going ? "Trees that grow now" : "Trees that have begun"),
          h("ul", { class: "growing-list" }, data.growing.map((tree) => h("li", {}, h("a", { href: `#/problem/${tree.number}`, dir: "auto" }, tree.question || `Problem ${tree.number}`), h("span", { class: "quiet" }, `${count(tree.requests)} requests`)))),
        )
      : "",
  ];
}

function chart(name, points, column) {
  const most = Math.max(1e-9, ...points.map((point) => point[column]));
  const [start, end] = [points[0][0], points[points.length - 1][0]];
  const at = (point) => [((point[0] - start) / Math.max(end - start, 1e-9)) * 300, 74 - (68 * point[column]) / most];
  const line = points.map((point, i) => `${i ? "L" : "M"}${at(point).map((value) => value.toFixed(1)).join(" ")}`).join("");
  const picture = svg("svg", { class: "spark", viewBox: "0 0 300 80", preserveAspectRatio: "none", role: "img", "aria-label": `${name}, at most ${count(Math.round(most))}` });
  picture.append(svg("path", { class: "spark-area", d: `${line}L300 78L0 78Z` }), svg("path", { class: "spark-line", d: line }));
  return h("figure", {}, h("figcaption", {}, h("h2", {}, name), h("p", { class: "quiet" }, `up to ${count(Math.round(most))}`)), picture, h("p", { class: "quiet axis-row" }, h("span", {}, duration(start)), h("span", {}, duration(end))));
}
