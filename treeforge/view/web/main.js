// The page: which of its views the address names, and what all of them share.
import { ask, isOffline } from "./api.js";
import { failure, h } from "./dom.js";
import { problemsPage } from "./problems.js";
import { treePage } from "./treepage.js";
import { datasetPage } from "./dataset.js";
import { livePage } from "./live.js";

const main = document.getElementById("main");
const PAGES = [
  ["Problems", "#/"],
  ["Dataset", "#/dataset"],
  ["Live", "#/live"],
];
let page = null;

function parse(hash) {
  const [path, query] = (hash.replace(/^#/, "") || "/").split("?");
  const [, name, number] = path.split("/");
  return { name: name || "problems", number: number === undefined ? null : Number(number), params: new URLSearchParams(query || "") };
}

async function show() {
  if (location.hash === "#main") return;
  const wanted = parse(location.hash);
  if (page && page.name === wanted.name && page.follow && page.follow(wanted)) return;
  if (page && page.close) page.close();
  page = null;
  const makers = { problems: problemsPage, problem: treePage, dataset: datasetPage, live: livePage };
  const make = makers[wanted.name] || problemsPage;
  for (const link of document.querySelectorAll("#pages a")) {
    const own = link.getAttribute("href") === "#/" ? ["problems", "problem"] : [link.getAttribute("href").slice(2)];
    if (own.includes(wanted.name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = h("div", { class: `page page-${wanted.name}` });
  main.replaceChildren(place);
  try {
    page = await make(place, wanted);
  } catch (error) {
    place.replaceChildren(failure(error));
    return;
  }
  document.title = page.title ? `${page.title} · treeforge` : "treeforge";
}

async function start() {
  const pages = document.getElementById("pages");
  for (const [label, address] of PAGES) {
    if (isOffline && label === "Live") continue;
    pages.append(h("a", { href: address }, label));
  }
  try {
    document.getElementById("run").textContent = (await ask("run")).name;
  } catch (error) {
    main.replaceChildren(failure(error));
    return;
  }
  window.addEventListener("hashchange", show);
  await show();
}

start();
