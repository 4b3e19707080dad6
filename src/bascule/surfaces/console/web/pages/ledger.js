// @ts-check
/** The ledger: search, one record, and the check of every hash with its progress. */
import { get } from "../api.js";
import { h, list, onCleanup, show, signal } from "../view.js";
import { badge, empty, failure, loaded, resource, time, visibleText } from "../widgets.js";
import { actionButton, address, counted, facts, follow, heading, keepAddress, number, payload, settled, toneOf } from "./parts.js";

const PAGE = 100;
const TYPING_MS = 300;
const EXAMPLES = ["who:Jerry", "method:desktop.*", "outcome:denied", "who:person method:approvals.decide", "rule:destructive-asks"];

export const page = {
  /** @param {string[]} params @param {URLSearchParams} query */
  render: (params, query) => (params[0] ? recordPage(params[0]) : searchPage(query)),
};

/** @param {URLSearchParams} query */
function searchPage(query) {
  const words = signal(query.get("q") ?? "");
  const older = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {number | null} */ (null));
  const scanned = signal(0);
  const ask = async (/** @type {number | null} */ before) => {
    const got = await get("/v1/ledger/search", { q: words.peek(), before, limit: PAGE });
    next.value = got.next ?? null;
    scanned.value = (before ? scanned.peek() : 0) + (got.scanned ?? 0);
    return got.records;
  };
  const newest = resource(() => ask(null));
  const again = settled(() => { older.value = []; newest.reload(); }, TYPING_MS);
  /** @param {string} text */
  function search(text) {
    words.value = text;
    keepAddress("ledger", { q: text });
    again();
  }
  const all = () => [...(newest.value.value ?? []), ...older.value];
  return h("div", { class: "page stack" },
    verifyPanel(),
    h("div", { class: "stack", role: "search" },
      h("label", { class: "search" }, h("span", { class: "sr-only" }, "Search the ledger"),
        h("input", { type: "search", value: words, placeholder: "who:Jerry method:desktop.* outcome:denied since:2026-01-31", autocomplete: "off", spellcheck: "false", oninput: (event) => search(event.target.value) })),
      h("div", { class: "chips", role: "group", "aria-label": "Examples" }, EXAMPLES.map((example) =>
        h("button", { type: "button", class: "chip", onclick: () => search(example) }, example))),
      h("p", { class: "muted", role: "status" }, () => `${counted(all().length, "record")} shown, ${number(scanned.value)} looked through. Words without a colon match subject, method and principal.`)),
    loaded(newest, () => show(() => all().length,
      () => [
        h("ul", { class: "records" }, list(all, (record) => record.seq, (record) => recordRow(record.peek()))),
        show(() => next.value !== null, () => actionButton("Older records", async () => { older.value = [...older.peek(), ...await ask(next.peek())]; })),
      ],
      () => (words.peek()
        ? h("div", { class: "stack" }, h("p", { class: "muted" }, "No record fits among those looked through."),
          show(() => next.value !== null, () => actionButton("Look further back", async () => { older.value = [...older.peek(), ...await ask(next.peek())]; })))
        : empty("The ledger is empty.", "bridge-send Jerry 'Are you there?'")))));
}

/** @param {string} word */
const outcome = (word) => (word === "approval_required" ? badge("asked", "warn", word) : badge(word.replaceAll("_", " "), toneOf(word), word));

/** @param {any} record */
const recordRow = (record) => h("li", null,
  h("a", { class: "record", "data-row": "", href: address(`ledger/${record.seq}`) },
    h("span", { class: "muted number" }, `#${record.seq}`),
    outcome(record.outcome),
    h("strong", null, visibleText(record.principal)),
    h("code", null, visibleText(record.method)),
    h("span", { class: "subject" }, record.subject && visibleText(record.subject), record.rule && h("span", { class: "muted" }, " rule ", visibleText(record.rule))),
    time(record.at)));

/** @param {string} what a number, or a ticket id, handle or method */
function recordPage(what) {
  const found = resource(() => get(`/v1/ledger/about/${encodeURIComponent(what)}`));
  const isNumber = /^\d+$/.test(what);
  return h("div", { class: "page stack" },
    h("p", null, h("a", { href: "#/ledger" }, "All records")),
    h("h2", null, isNumber ? `Record #${what}` : ["Records about ", visibleText(what)]),
    loaded(found, () => {
      const records = /** @type {any[]} */ (found.value.peek());
      if (!records.length) return h("p", { class: "muted" }, "There is no such record: it may be past its retention.");
      return isNumber ? recordDetail(records[0]) : h("ul", { class: "records" }, records.map(recordRow));
    }),
    isNumber && h("nav", { class: "actions", "aria-label": "Neighbours" },
      Number(what) > 1 && h("a", { href: address(`ledger/${Number(what) - 1}`) }, "Earlier"),
      h("a", { href: address(`ledger/${Number(what) + 1}`) }, "Later")));
}

/** @param {any} record */
const recordDetail = (record) => h("div", { class: "stack" },
  facts([
    ["When", [time(record.at), ` (${record.at})`]],
    ["Who", visibleText(record.principal)],
    ["Method", h("code", null, visibleText(record.method))],
    ["Outcome", outcome(record.outcome)],
    ["Subject", record.subject && h("a", { href: address(`ledger/${record.subject}`) }, visibleText(record.subject))],
    ["Rule", record.rule && visibleText(record.rule)],
    ["Proof", record.details?.proof && [badge("proved", "ok", "The person showed a key or the passphrase for exactly this call"), " ", visibleText(String(record.details.proof))]],
    ["Hash", h("code", { class: "hash" }, record.hash)],
  ]),
  h("h3", null, "Details"),
  payload(record.details ?? {}, "Details"));

// The check -------------------------------------------------------------------------------------------------------

function verifyPanel() {
  const progress = signal(/** @type {{done: number, total: number} | null} */ (null));
  const result = signal(/** @type {any} */ (null));
  const failed = signal(/** @type {any} */ (null));
  let stop = () => {};
  onCleanup(() => stop());
  function start() {
    if (progress.peek()) return;
    [result.value, failed.value] = [null, null];
    progress.value = { done: 0, total: 0 };
    stop = follow("/v1/ledger/verify/stream", () => ({}), (item) => {
      if (item.result) [result.value, progress.value] = [item.result, null];
      else progress.value = item;
      return !item.result;
    }, (state) => {
      if (state === "overflow") return;
      // A half of a check proves nothing, and the next begins anew: let the person decide.
      stop();
      [failed.value, progress.value] = [{ message: `The check broke off: ${state === "reconnecting" ? "the daemon ended it" : state}.` }, null];
    });
  }
  return h("section", { class: "panel", "aria-label": "Check of the ledger" },
    heading("Is it whole?", h("button", { type: "button", "data-key": "v", disabled: () => progress.value !== null, onclick: start }, "Verify")),
    h("div", { role: "status" },
      () => (progress.value ? h("label", { class: "progress" }, h("progress", { max: progress.value.total || null, value: progress.value.total ? progress.value.done : null, "aria-label": "Records checked" }),
        ` ${number(progress.value.done)} of ${progress.value.total ? number(progress.value.total) : "?"}`)
        : result.value ? verdict(result.value) : !failed.value && h("p", { class: "muted" }, "Every record holds the hash of the one before it. Verify checks all of them, the anchors, and the signatures of your approvals."))),
    () => failed.value && failure(failed.value));
}

/** @param {any} result */
const verdict = (result) => h("div", { class: "stack" },
  h("p", null, badge(result.ok ? "whole" : "broken", result.ok ? "ok" : "bad"),
    ` ${counted(result.records, "record")} (#${result.first} to #${result.last}), ${counted(result.anchors, "anchor")}, ${Number(result.seconds).toFixed(1)} s`),
  (result.faults ?? []).length > 0 && h("ul", null, result.faults.map((/** @type {string} */ fault) => h("li", null, visibleText(fault)))),
  h("p", { class: "muted" }, "Head ", h("code", { class: "hash" }, result.head)));
