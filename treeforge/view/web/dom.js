// Elements out of data. Text goes in as text nodes only; nothing here, or anywhere in the page, parses markup.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";
const MATH_ELEMENTS = new Set(
  ("math mrow mi mn mo mtext mspace ms mfrac msqrt mroot mstyle merror mpadded mphantom msub msup msubsup munder " +
    "mover munderover mmultiscripts mprescripts none mtable mtr mtd menclose").split(" "),
);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function math([tag, attributes, ...children]) {
  if (!MATH_ELEMENTS.has(tag)) return document.createTextNode("");
  const made = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children) made.append(typeof child === "string" ? child : math(child));
  return made;
}

// The pieces of a text (see treeforge/view/mathml.py) as text nodes and mathematics.
export function inline(parts) {
  const isBlock = (part) => typeof part === "object" && part.ml[1].display === "block";
  return parts.map((part, at) => {
    if (typeof part !== "string") return math(part.ml);
    // A formula on lines of its own makes its line breaks itself.
    const start = at && isBlock(parts[at - 1]) ? part.replace(/^[ \t]*\n?/, "") : part;
    return at + 1 < parts.length && isBlock(parts[at + 1]) ? start.replace(/\n?[ \t]*$/, "") : start;
  });
}

export function written(parts) {
  return parts.map((part) => (typeof part === "string" ? part : part.tex)).join("");
}

// A text to read; `whole` fetches all of one that was cut.
export function prose(text, whole) {
  const block = h("div", { class: "prose", dir: "auto" }, inline(text.parts));
  if (!text.cut) return block;
  const more = h("button", { type: "button", class: "more" }, `Show all ${count(text.length)} characters`);
  if (!whole) {
    more.disabled = true;
    more.textContent = `${count(text.length)} characters, cut here`;
  }
  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const found = await whole();
      const plain = h("pre", { class: "whole", dir: "auto", tabindex: "0", "aria-label": "The whole text" });
      plain.textContent = found;
      block.replaceWith(plain);
      more.remove();
    } catch (error) {
      more.textContent = error.message;
    }
  });
  return h("div", {}, block, more);
}

const NUMBERS = new Intl.NumberFormat("en");

export function count(number) {
  return Number.isInteger(number) ? NUMBERS.format(number) : NUMBERS.format(Math.round(number * 100) / 100);
}

export function share(value, digits = 2) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${Math.round(100 * value)}%`;
}

export function duration(seconds) {
  const whole = Math.round(seconds);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (parts[0]) return `${parts[0]} h ${parts[1]} min`;
  return parts[1] ? `${parts[1]} min ${parts[2]} s` : `${parts[2]} s`;
}

// The class of a value's colour: eleven steps from wrong to right, and one for "nothing known".
export function tone(value) {
  return value === null || value === undefined ? "tone tone-none" : `tone tone-${Math.round(10 * value)}`;
}

const ENDINGS = {
  correct: ["✓", "correct", "good"],
  incorrect: ["✗", "wrong", "bad"],
  no_answer: ["∅", "no answer", "bad"],
  unparsable: ["⁇", "unparsable, counts as wrong", "unsure"],
  undecided: ["?", "undecided", "unsure"],
};

// How a trajectory ended: [symbol, words, class]; null where it goes on.
export function ending(finish, verdict) {
  if (finish === "error") return ["!", "engine error, counts nowhere", "unsure"];
  if (finish === "truncated" && verdict !== "correct") return ["✂", "truncated", "bad"];
  return verdict ? ENDINGS[verdict] : null;
}

export function badge(finish, verdict, answer) {
  const found = ending(finish, verdict);
  if (!found) return null;
  const said = answer && answer.length ? h("bdi", { class: "answer" }, inline(answer)) : null;
  return h("span", { class: `badge ${found[2]}` }, h("span", { "aria-hidden": "true" }, found[0]), ` ${found[1]} `, said);
}

// An interval on [0, 1] with its value.
export function intervalBar(value, low, high, title) {
  const picture = svg("svg", { class: "interval", viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(svg("rect", { class: "interval-all", x: 0, y: 5, width: 100, height: 2, rx: 1 }));
  if (value === null) return h("span", { class: "interval-box", title }, picture);
  if (low !== null && high !== null) {
    const width = Math.max(100 * (high - low), 0.6);
    picture.append(svg("rect", { class: "interval-range", x: 100 * low, y: 3, width, height: 6, rx: 1.5 }));
  }
  picture.append(svg("rect", { class: tone(value), x: Math.min(Math.max(100 * value - 1, 0), 98), y: 0, width: 2, height: 12 }));
  return h("span", { class: "interval-box", title }, picture);
}

export function failure(error) {
  return h("div", { class: "notice bad", role: "alert" }, h("strong", {}, "This cannot be shown. "), h("bdi", {}, error.message));
}

export function later(wait, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
}
