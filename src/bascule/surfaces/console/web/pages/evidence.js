// @ts-check
/** Evidence: what agents saw and did on the desktop. A film strip; one execution with its pictures, elements and trace. */
import { get } from "../api.js";
import { h, list, onCleanup, show, signal, svg } from "../view.js";
import { badge, empty, loaded, picture, resource, time, virtualList, visibleText } from "../widgets.js";
import { address, bytes, facts, heading, heldList, onEvents, payload, toneOf, took } from "./parts.js";

const PAGE = 60;
const NODE_PX = 24;
/** More boxes than this hide the picture, and take longer than a frame to lay out. */
const MAX_BOXES = 1_500;
const ROOT = "/v1/desktop/evidence";

const chosen = signal("");

export const page = {
  /** @param {string[]} params */
  render(params) {
    chosen.value = params[0] ?? "";
    return h("div", { class: "page stack" }, filmStrip(), () => (chosen.value ? execution(chosen.value)
      : h("p", { class: "muted" }, "Choose a picture: before and after, the elements that were there, and each step.")));
  },
  /** The strip stays where it is. @param {string[]} params */
  update(params) {
    chosen.value = params[0] ?? "";
  },
};

const pathOf = (/** @type {string} */ id) => `${ROOT}/${encodeURIComponent(id)}`;
const isPicture = (/** @type {{name: string}} */ file) => file.name.endsWith(".png");
const shortMethod = (/** @type {string | undefined} */ method) => (method ?? "an execution").replace(/^desktop\./, "");

// The strip -------------------------------------------------------------------------------------------------------

function filmStrip() {
  const strip = heldList((before) => get(ROOT, { before, limit: PAGE }), (item) => item.executionId, PAGE);
  onEvents(["desktop"], (event) => { if (event.id) strip.update(); });
  return loaded(strip.source, () => show(() => strip.rows.value.length,
    () => [
      heading("Executions", strip.newcomers()),
      h("ol", {
        class: "film", tabindex: 0, role: "list", "aria-label": "Executions, the newest first",
      },
      list(strip.rows, (item) => item.executionId, (item) => frame(item.peek())),
      h("li", null, strip.olderButton("Older"))),
    ],
    () => empty("No agent has looked at the desktop yet.", "bascule desktop enable")));
}

/** @param {any} item */
function frame(item) {
  const name = ["after.png", "observe.png", "before.png"].find((wanted) => item.files?.some((file) => file.name === wanted));
  const seen = signal(false);
  // Pictures are large: those in sight are fetched.
  const watcher = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      seen.value = true;
      watcher.disconnect();
    }
  });
  onCleanup(() => watcher.disconnect());
  const label = `${shortMethod(item.method)}${item.app ? ` in ${item.app}` : ""}`;
  return h("li", { class: "film-frame", ref: (/** @type {Element} */ element) => watcher.observe(element) },
    h("a", { href: address(`evidence/${item.executionId}`), "data-row": "", "aria-current": () => (item.executionId === chosen.value ? "true" : null) },
      h("div", { class: "thumb" }, name
        ? show(seen, () => picture(`${pathOf(item.executionId)}/file`, `Screen after ${label}`, { name }))
        : h("span", { class: "muted" }, "no picture")),
      h("span", { class: "film-title" }, visibleText(label)),
      h("span", { class: "muted" }, time(item.at), (item.error ?? item.effect) && [" ", badge(visibleText(item.error ?? item.effect), item.error ? "bad" : toneOf(item.effect))])));
}

// One execution ---------------------------------------------------------------------------------------------------

/** @param {string} executionId */
function execution(executionId) {
  const found = resource(() => get(pathOf(executionId)));
  return h("div", { class: "stack" }, loaded(found, () => detail(/** @type {any} */ (found.value.value), executionId)));
}

/** The files lie where agents write, too: what is not a list of objects is not shown. @param {any} list @returns {any[]} */
const objects = (list) => (Array.isArray(list) ? list : []).filter((each) => each !== null && typeof each === "object");

/** @param {any} item @param {string} executionId */
function detail(item, executionId) {
  const result = item.result ?? {};
  const done = result.result ?? result;
  const marked = signal(-1);
  const nodes = objects(item.tree?.nodes);
  return h("div", { class: "stack" },
    h("h2", null, visibleText(shortMethod(item.method)), item.app && [" in ", visibleText(item.app)]),
    facts([
      ["Execution", h("code", null, executionId)],
      ["When", time(item.at)],
      ["For", visibleText((item.principal ?? result.client) || "the person")],
      ["Took", result.ms !== undefined && took(result.ms)],
      ["Effect", (item.effect ?? done.effect) && badge(visibleText(item.effect ?? done.effect), toneOf(item.effect ?? done.effect))],
      ["Error", result.error && [badge(visibleText(result.error.code ?? "error"), "bad"), " ", visibleText(result.error.message)]],
      ["Window", item.tree?.window && visibleText(item.tree.window)],
    ]),
    item.changed?.length > 0 && h("p", { class: "note warn" }, "Not as the host left it: ", visibleText(item.changed.join(", ")), ". Somebody has changed these files since."),
    item.leftOut?.length > 0 && h("p", { class: "muted" }, "Too large or not readable: ", visibleText(item.leftOut.join(", "))),
    pictures(item, executionId, nodes, marked),
    h("div", { class: "columns" },
      nodes.length > 0 && elements(item.tree, nodes, marked),
      h("section", { class: "panel" }, h("h2", null, "Trace"), trace(objects(item.trace)))),
    h("details", null, h("summary", null, "Result, as the host wrote it"), payload(result, "Result")),
    h("p", { class: "muted" }, (item.files ?? []).map((file) => `${file.name} ${bytes(file.size)}`).join(" · ")));
}

/** @param {any} item @param {string} executionId @param {any[]} nodes @param {any} marked */
function pictures(item, executionId, nodes, marked) {
  const names = /** @type {string[]} */ ((item.files ?? []).filter(isPicture).map((file) => file.name));
  if (!names.length) return h("p", { class: "muted" }, "It left no picture.");
  const areas = objects(item.trace).filter((step) => step.step === "picture" && typeof step.x === "number");
  const areaOf = (/** @type {string} */ name) => (name === "before.png" ? areas[0] : areas.at(-1));
  const boxes = signal(false);
  const wipe = signal(50);
  const at = (/** @type {string} */ name, /** @type {string} */ words) => h("div", { class: "shot" },
    picture(`${pathOf(executionId)}/file`, words, { name }), areaOf(name) && nodes.length > 0 && overlay(areaOf(name), nodes, marked, boxes));
  const both = names.includes("before.png") && names.includes("after.png");
  const rest = names.filter((name) => !both || (name !== "before.png" && name !== "after.png"));
  return h("section", { class: "panel", "aria-label": "Pictures" },
    h("div", { class: "filters" },
      both && h("label", { class: "grow" }, h("span", null, "Before | after"), h("input", { type: "range", min: 0, max: 100, value: wipe.peek(), oninput: (event) => { wipe.value = Number(event.target.value); } })),
      nodes.length > 0 && h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => { boxes.value = event.target.checked; } }), " Boxes of all elements")),
    both && h("div", { class: "wipe" },
      at("after.png", "The window after it"),
      h("div", { class: "wipe-over", style: () => ({ "clip-path": `inset(0 ${100 - wipe.value}% 0 0)` }) }, at("before.png", "The window before it")),
      h("div", { class: "wipe-line", "aria-hidden": true, style: () => ({ left: `${wipe.value}%` }) })),
    rest.map((name) => h("figure", null, at(name, `Picture ${name}`), h("figcaption", { class: "muted" }, name))));
}

/**
 * Boxes in the screen's own coordinates: the drawing's view is the area that the picture shows.
 * @param {{x: number, y: number, width: number, height: number}} area @param {any[]} nodes @param {any} marked @param {any} boxes
 */
function overlay(area, nodes, marked, boxes) {
  const box = (node, /** @type {string} */ kind) => svg("rect", { class: kind, x: node.x, y: node.y, width: node.width, height: node.height, "vector-effect": "non-scaling-stroke" });
  const drawing = svg("svg", {
    class: "boxes", viewBox: `${area.x} ${area.y} ${area.width} ${area.height}`, preserveAspectRatio: "none", "aria-hidden": true,
    onclick: (/** @type {MouseEvent} */ event) => {
      const place = drawing.getBoundingClientRect();
      const x = area.x + ((event.clientX - place.left) / place.width) * area.width;
      const y = area.y + ((event.clientY - place.top) / place.height) * area.height;
      marked.value = smallestAt(nodes, x, y);
    },
  },
  () => boxes.value && nodes.filter((node) => node.visible).slice(0, MAX_BOXES).map((node) => box(node.visible, "box")),
  () => nodes[marked.value]?.frame && box(nodes[marked.value].frame, "box marked"));
  return drawing;
}

/** @param {any[]} nodes @param {number} x @param {number} y */
function smallestAt(nodes, x, y) {
  let best = -1;
  let least = Infinity;
  nodes.forEach(({ visible: seen }, index) => {
    if (!seen || x < seen.x || y < seen.y || x > seen.x + seen.width || y > seen.y + seen.height) return;
    const size = seen.width * seen.height;
    if (size <= least) [best, least] = [index, size];
  });
  return best;
}

/** @param {any} tree @param {any[]} nodes @param {any} marked */
function elements(tree, nodes, marked) {
  const row = (node, /** @type {number} */ index) => h("button", {
    type: "button", class: () => `node${node.visible ? "" : " off"}`, "aria-pressed": () => String(marked.value === index),
    style: { "padding-left": `${6 + Math.min(Number(node.depth) || 0, 24) * 12}px` },
    onclick: () => { marked.value = marked.peek() === index ? -1 : index; },
  }, h("span", { class: "role" }, visibleText(node.role)), node.title && [" ", visibleText(node.title)], node.value && h("span", { class: "muted" }, " = ", visibleText(node.value)));
  const box = virtualList(() => nodes, NODE_PX, row, { label: "Elements", class: "nodes" });
  return h("section", { class: "panel" },
    h("h2", null, `Elements (${nodes.length})`),
    tree.partial?.length > 0 && h("p", { class: "muted" }, "Not complete: ", visibleText(tree.partial)),
    box,
    () => {
      const node = nodes[marked.value];
      if (marked.value >= 0) box.scrollTop = Math.max(0, marked.value * NODE_PX - box.clientHeight / 2);
      return node && facts([
        ["Role", visibleText(`${node.role} (${node.nativeRole})`)], ["Title", node.title && visibleText(node.title)], ["Value", node.value && visibleText(node.value)],
        ["Frame", node.frame && visibleText(`${node.frame.x}, ${node.frame.y}  ${node.frame.width} \u00d7 ${node.frame.height}`)], ["States", node.states && visibleText(node.states)],
        ["On screen", node.visible ? "yes" : "no"],
      ]);
    });
}

/** @param {any[]} steps */
function trace(steps) {
  if (!steps.length) return h("p", { class: "muted" }, "It left no trace.");
  return h("ol", { class: "trace" }, steps.map(({ ms, step, ...rest }) => h("li", null,
    h("span", { class: "muted number" }, visibleText(`${ms} ms`)), " ", h("strong", null, visibleText(step)), " ",
    Object.entries(rest).map(([name, value]) => h("span", { class: "pair" }, h("span", { class: "muted" }, visibleText(`${name} `)), visibleText(typeof value === "string" ? value : JSON.stringify(value)), " ")))));
}
