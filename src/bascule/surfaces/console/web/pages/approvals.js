// @ts-check
/**
 * The inbox: what waits for the person, in a fixed order. Nothing moves by itself: newcomers wait below "2 new",
 * answered questions keep their row, and buttons are deaf for a moment after anything near them changed. A list that
 * grows under the pointer approves the wrong thing.
 */
import { computed, effect, h, list, onCleanup, show, signal, untrack } from "../view.js";
import { STATES, entries, load, loadedOnce, problem, waiting } from "../inbox.js";
import { viewChanges } from "../keys.js";
import { MAX_CALLS_PER_PROOF } from "../proof.js";
import { Deaf, badge, beginning, countdown, empty, failure, kbd, visibleText } from "../widgets.js";
import { counted } from "./parts.js";
import { approvalDetail } from "./approval.js";
import { questionDetail } from "./question.js";

/** @typedef {import("../inbox.js").Entry} Entry */
/** @typedef {{key: string, ids: string[], shape: string}} Row one question, or several alike */

/** Longer ones are alike to nothing: finding the names in a text takes its length squared. */
const MAX_ALIKE_CHARS = 500;
/** So many alike are shown as one; two are faster read one by one. */
const MIN_ALIKE = 3;

/** The order stays while the tab lives. @type {import("../view.js").Signal<Row[]>} */
const order = signal(/** @type {Row[]} */ ([]));
/** Groups that the person took apart. @type {Set<string>} */
const apart = new Set();
const chosen = signal("");

/** What is alike: the same asker, method and summary, numbers and names of files aside. @param {Entry} entry */
function shapeOf(entry) {
  if (entry.kind === "question" || entry.summary.length > MAX_ALIKE_CHARS) return entry.id;
  const summary = entry.summary
    .replaceAll(/\b[0-9a-f]{7,}\b|\d+/gi, "#")
    .replaceAll(/[^\s"'/]+(?=\.[A-Za-z0-9]{1,5}(?:\s|$))/g, "*");
  return `${entry.principal}\n${entry.method}\n${summary}`;
}

/** @param {Entry[]} found in the order they were asked @returns {Row[]} */
function rowsOf(found) {
  /** @type {Map<string, Entry[]>} */
  const alike = new Map();
  for (const entry of found) {
    const shape = shapeOf(entry);
    alike.set(shape, [...(alike.get(shape) ?? []), entry]);
  }
  /** @type {Row[]} */
  const rows = [];
  const done = new Set();
  for (const entry of found) {
    const shape = shapeOf(entry);
    const group = alike.get(shape) ?? [];
    if (group.length < MIN_ALIKE || apart.has(shape)) rows.push({ key: entry.id, ids: [entry.id], shape });
    else if (!done.has(shape)) {
      done.add(shape);
      // One touch answers no more.
      for (let at = 0; at < group.length; at += MAX_CALLS_PER_PROOF) {
        const part = group.slice(at, at + MAX_CALLS_PER_PROOF);
        rows.push({ key: part[0].id, ids: part.map(({ id }) => id), shape });
      }
    }
  }
  return rows;
}

const byAge = (/** @type {Entry} */ one, /** @type {Entry} */ other) => Date.parse(one.askedAt) - Date.parse(other.askedAt);

const newcomers = computed(() => {
  const placed = new Set(order.value.flatMap(({ ids }) => ids));
  return [...entries.value.values()].filter((entry) => entry.state === "pending" && !placed.has(entry.id)).sort(byAge);
});

/** The newcomers take their places at the end. */
const admit = () => { order.value = [...order.peek(), ...rowsOf(newcomers.peek())]; };

/** Leaves out what is answered, and orders the rest anew: when the page is opened, or by a button. */
function tidy() {
  const pending = [...entries.peek().values()].filter((entry) => entry.state === "pending").sort(byAge);
  order.value = rowsOf(pending);
}

export const page = {
  /** @param {string[]} params */
  update(params) {
    chosen.value = params[0] ?? "";
  },

  /** @param {string[]} params @returns {Node} */
  render(params) {
    const deaf = new Deaf();
    chosen.value = params[0] ?? "";
    if (loadedOnce.peek()) tidy();
    load();
    // Into an empty list newcomers come at once: there is nothing that they could push away.
    effect(() => { if (newcomers.value.length && !order.value.length) untrack(admit); });
    // Not for newcomers: they wait elsewhere, and a storm of them must not keep the person from answering.
    effect(() => { order.value; chosen.value; untrack(() => { deaf.changed(); viewChanges(); }); });
    const noticed = () => deaf.changed(); // the window came back: the eye needs a moment, too
    addEventListener("focus", noticed);
    onCleanup(() => removeEventListener("focus", noticed));

    const row = computed(() => order.value.find(({ ids }) => ids.includes(chosen.value)) ?? null);
    const answered = computed(() => order.value.filter(({ ids }) => ids.every((id) => entries.value.get(id)?.state !== "pending")).length);
    const goNext = () => {
      const rows = order.peek();
      const at = rows.findIndex(({ ids }) => ids.includes(chosen.peek()));
      const next = [...rows.slice(at + 1), ...rows.slice(0, at)].find(({ ids }) => ids.some((id) => entries.peek().get(id)?.state === "pending"));
      location.hash = next ? `#/approvals/${encodeURIComponent(next.key)}` : "#/approvals";
    };
    const takeApart = (/** @type {Row} */ group) => {
      apart.add(group.shape);
      order.value = order.peek().flatMap((item) => (item === group ? item.ids.map((id) => ({ key: id, ids: [id], shape: item.shape })) : [item]));
    };

    return h("div", { class: () => `inbox ${chosen.value ? "has-detail" : order.value.length ? "" : "is-empty"}` },
      h("section", { class: "inbox-list", "aria-label": "Waiting" },
        show(problem, () => failure(problem.value)),
        // What the badge counts are questions; some rows hold several.
        show(() => order.value.length > 0, () => h("p", { class: "inbox-count muted", role: "status" }, () => {
          const rows = order.value.length - answered.value;
          const fresh = newcomers.value.length;
          const grouped = waiting.value - fresh > rows ? ` in ${counted(rows, "row")}` : "";
          return `${waiting.value} ${waiting.value === 1 ? "waits" : "wait"} for you${fresh && rows ? `: ${waiting.value - fresh}${grouped || " here"}, ${fresh} new` : grouped && `,${grouped}`}`;
        })),
        h("ul", null, list(order, (item) => item.key, (item) => rowView(item))),
        show(() => newcomers.value.length > 0, () => h("button", { class: "newcomers", type: "button", "data-key": "n", onclick: admit },
          () => `${newcomers.value.length} new`, kbd("n"))),
        show(() => answered.value > 0, () => h("button", { class: "quiet tidy", type: "button", onclick: tidy }, () => `Clear ${answered.value} answered`)),
        show(() => loadedOnce.value && !order.value.length && !newcomers.value.length, () => empty("Nothing waits for you.", "bascule exec -- rm -rf ./not-there",
          "When a rule says “ask”, the agent waits here for your answer. To see how that is, ask yourself something:"))),
      h("section", { class: "inbox-detail", "aria-label": "Chosen question" },
        show(chosen, () => h("a", { class: "back", href: "#/approvals" }, "‹ All questions")),
        () => {
          const id = chosen.value;
          if (!id) return show(() => order.value.length > 0, () => h("p", { class: "muted hint" }, "Choose a question: ", kbd("j"), " and ", kbd("k"), " walk through them."));
          const ids = row.value?.ids ?? [id];
          const tools = { deaf, goNext, apart: ids.length > 1 && row.value ? () => takeApart(/** @type {Row} */ (row.peek())) : null };
          return untrack(() => (entries.peek().get(id)?.kind === "question" || !id.startsWith("apr_") ? questionDetail(id, tools) : approvalDetail(ids, tools)));
        }));
  },
};

/** @param {import("../view.js").Signal<Row>} item */
function rowView(item) {
  const first = computed(() => entries.value.get(item.value.ids[0]));
  const open = computed(() => item.value.ids.map((id) => entries.value.get(id)).filter((entry) => entry?.state === "pending"));
  const state = computed(() => (open.value.length ? "pending" : first.value?.state ?? "gone"));
  const unread = computed(() => open.value.some((entry) => entry?.unread !== undefined));
  // Of several alike, the first that runs out.
  const soonest = computed(() => open.value.map((entry) => entry?.expiresAt ?? "").filter(Boolean).sort()[0] ?? "");
  return h("li", { class: () => `inbox-row is-${state.value}` }, h("a", {
    href: () => `#/approvals/${encodeURIComponent(item.value.key)}`, "data-row": "open",
    "aria-current": () => (item.value.ids.includes(chosen.value) ? "true" : null),
  },
  h("span", { class: "row-top" },
    h("strong", null, () => visibleText(first.value?.principal)),
    h("span", { class: "muted method" }, () => (first.value?.kind === "question" ? badge("question", "info") : visibleText(first.value?.method))),
    () => (item.value.ids.length > 1 ? badge(`×${open.value.length || item.value.ids.length}`, "plain", "alike, as one") : null),
    h("span", { class: "grow" }),
    show(() => state.value === "pending", () => () => (soonest.value ? countdown(soonest.value) : null), () => () => badge(...(STATES[state.value] ?? [state.value, "plain"])))),
  show(unread, () => h("span", { class: "row-unread" }, "This could not be read. Trying again.")),
  h("span", { class: "row-summary" }, () => beginning(first.value?.summary))));
}
