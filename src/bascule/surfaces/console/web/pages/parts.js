// @ts-check
/** What the pages share: addresses, events, actions with a proof, facts, payloads, streams. */
import { ApiError, events, withQuery } from "../api.js";
import { act, send } from "../proof.js";
import { on } from "../stream.js";
import { batch, computed, h, onCleanup, show, signal, untrack } from "../view.js";
import { Deaf, code, duration, failure, kbd, resource } from "../widgets.js";

/** Several events of one moment are one question to the daemon. */
const SETTLE_MS = 300;
/** Text that is laid out at once; the rest comes by a button. */
const TEXT_CHARS = 20_000;
/** A stream that ended is opened again after this long. */
const RETRY_MS = 2_000;

/** Runs `work` a moment after it is first wanted, once for all that want it; after the page's end not at all. @param {() => void} work @param {number} [ms] */
export function settled(work, ms = SETTLE_MS) {
  let timer = 0;
  onCleanup(() => clearTimeout(timer));
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      work();
    }, ms);
  };
}

/** Calls `fn` for every event of these kinds until the page ends. @param {string[]} kinds @param {(event: any) => void} fn */
export function onEvents(kinds, fn) {
  for (const kind of kinds) onCleanup(on(kind, fn));
}

/** `#/path?query`, without what is empty. @param {string} path @param {Record<string, any>} [query] */
export const address = (path, query) => withQuery(`#/${path.split("/").map(encodeURIComponent).join("/")}`, query);

/** Puts filters into the address bar without rendering the page anew. @param {string} path @param {Record<string, any>} query */
export const keepAddress = (path, query) => history.replaceState(history.state, "", address(path, query));

/**
 * Calls a method that changes something. A proof is asked for only when the daemon wants one, so that what needs none
 * (a dry run, a cancellation) costs no touch. Names in braces of `path` are taken from `params`.
 * @param {string} method @param {string} path @param {Record<string, any>} params @param {string} title
 */
export async function perform(method, path, params, title) {
  try {
    return await send(path, params);
  } catch (error) {
    if (!(error instanceof ApiError && error.code === "proof_required" && error.details.grade === "fresh")) throw error;
    return act(method, path, params, title);
  }
}

/**
 * A button whose work can fail: it says that it is busy, and what went wrong, beside itself; deaf when it has just
 * come. @param {string | (() => any)} label @param {() => Promise<any>} work
 * @param {{tone?: string, key?: string, disabled?: () => boolean}} [options] `key` presses it
 */
export function actionButton(label, work, { tone, key, disabled } = {}) {
  const busy = signal(false);
  const failed = signal(/** @type {any} */ (null));
  const deaf = new Deaf();
  deaf.changed();
  async function press() {
    if (busy.peek() || !deaf.hears()) return;
    busy.value = true;
    failed.value = null;
    try {
      await work();
    } catch (error) {
      // Closing the proof dialog is an answer, not a failure.
      if (/** @type {any} */ (error)?.name !== "AbortError") failed.value = error;
    } finally {
      busy.value = false;
    }
  }
  return h("span", { class: "action" },
    h("button", { type: "button", class: tone, "data-key": key, disabled: () => busy.value || Boolean(disabled?.()), "aria-busy": () => busy.value || null, onclick: press }, label, key && kbd(key)),
    () => failed.value && failure(failed.value));
}

/** @param {[string, any][]} rows what is null, undefined, false or "" is left out */
export function facts(rows) {
  const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return h("dl", { class: kept.length > 4 ? "facts wide" : "facts" }, kept.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** A payload as its author wrote it: words as words, everything else as JSON. @param {any} value @param {string} label */
export function payload(value, label) {
  if (value === undefined) return h("p", { class: "muted" }, "Only the ticket's two sides and the signed-in person see its words.");
  return longText(typeof value === "string" ? value : JSON.stringify(value, null, 2), label);
}

/** @param {string} text @param {string} label @param {string} [kind] */
export function longText(text, label, kind = "") {
  text = text.replace(/\n+$/, "");
  const all = signal(text.length <= TEXT_CHARS);
  return h("div", { class: `long-text ${kind}`, tabindex: 0, role: "group", "aria-label": label },
    () => code(all.value ? text : text.slice(0, TEXT_CHARS)),
    () => !all.value && h("button", { type: "button", onclick: () => { all.value = true; } }, `Show all ${bytes(text.length)}`));
}

/** Colours of a terminal are left out; every other control character is shown as such. @param {string} text */
export const plain = (text) => text.replace(/\x1b\[[0-9;:]*m/g, "");

/** @param {number} count */
export function bytes(count) {
  if (count < 1024) return `${count} B`;
  return count < 1024 * 1024 ? `${(count / 1024).toFixed(1)} KB` : `${(count / 1024 / 1024).toFixed(1)} MB`;
}

/** 10,000 @param {number} count */
export const number = (count) => count.toLocaleString("en");

/** How long something took, to the millisecond where that says something. @param {number} ms */
export const took = (ms) => (ms < 10_000 ? `${number(ms)} ms` : duration(ms));

/** "1 file", "2 files". @param {number} count @param {string} word */
export const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

/** The handle of `agent:Jerry`. Lists show the whole: an agent may be called `Local`. @param {string | null | undefined} principal */
export const handleOf = (principal) => (principal ?? "").replace(/^agent:/, "");

/** Both ends: many ids begin with the time, and those of one day look the same there. @param {string} id */
export const shortId = (id) => (id.length > 22 ? `${id.slice(0, 13)}\u2026${id.slice(-8)}` : id);

/** Whole behind the `@`: a long handle must not hide whose machine it is on. @param {string} handle */
export function shortHandle(handle) {
  const at = handle.indexOf("@");
  return at < 0 ? shortId(handle) : shortId(handle.slice(0, at)) + handle.slice(at);
}

/** @typedef {"ok" | "warn" | "bad" | "info" | "plain"} Tone */
const TONES = /** @type {Record<string, Tone>} */ (Object.fromEntries([
  ["ok", "online live responded completed ok allow allowed approved confirmed signed_in acknowledged committed idle"],
  ["bad", "timeout error fail failed deny denied refused destructive blocking lost dead"],
  ["warn", "awaiting_approval warn ask asked unknown unreachable outbox mailed unverified reconnecting changed warning waits_for_permission asks"],
  ["info", "pending delivered running starting stopping new works"],
].flatMap(([tone, words]) => words.split(" ").map((word) => [word, tone]))));

/** The colour of a state's word; the word itself always stands there too. @param {string} state @returns {Tone} */
export const toneOf = (state) => TONES[state] ?? "plain";

/**
 * Follows a stream of the daemon until the page ends or `take` returns false; one that breaks is opened again.
 * @param {string} path @param {(lastId: string) => Record<string, any>} query
 * @param {(item: any, event: string) => boolean | void} take @param {(state: string) => void} [onState]
 */
export function follow(path, query, take, onState = () => {}) {
  const abort = new AbortController();
  onCleanup(() => abort.abort());
  let last = "";
  async function run() {
    while (!abort.signal.aborted) {
      try {
        for await (const { data, event, id } of events(withQuery(path, query(last)), abort.signal)) {
          if (event === "ping") continue;
          if (id) last = id;
          if (event === "overflow") onState("overflow");
          else if (take(data, event) === false) return abort.abort();
        }
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof ApiError && error.status >= 400) return onState(error.message);
      }
      onState("reconnecting");
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
    }
  }
  run();
  return () => abort.abort();
}

/** A heading with what belongs beside it. @param {any} title @param {...any} beside */
export const heading = (title, ...beside) => h("div", { class: "panel-head" }, h("h2", null, title), beside);


/**
 * What `make` shows of an answer, made anew only when the answer says something else: what is open, focused or scrolled
 * stays while the page asks again and again.
 * @template T @param {() => T} read @param {(value: NonNullable<T>) => any} make
 */
export function stable(read, make) {
  const text = computed(() => JSON.stringify(read() ?? null));
  return () => {
    const value = JSON.parse(text.value);
    return value !== null && untrack(() => make(value));
  };
}

/**
 * A list that keeps its order while one looks at it: what is known is updated in place, newcomers are counted until
 * they are asked for.
 * @template T @param {(before: string) => Promise<T[]>} ask @param {(row: T) => string} keyOf @param {number} size of a page
 */
export function heldList(ask, keyOf, size) {
  const rows = signal(/** @type {T[]} */ ([]));
  const fresh = signal(0);
  const more = signal(false);
  const source = resource(async () => {
    const got = await ask("");
    batch(() => { rows.value = got; fresh.value = 0; more.value = got.length === size; });
    return true;
  });
  async function older() {
    const got = await ask(keyOf(/** @type {T} */ (rows.peek().at(-1))));
    batch(() => { rows.value = [...rows.peek(), ...got]; more.value = got.length === size; });
  }
  const update = settled(async () => {
    if (!rows.peek().length) return source.reload();
    const got = await ask("").catch(() => /** @type {T[]} */ ([])); // the banner says it when the daemon is away
    const found = new Map(got.map((row) => /** @type {[string, T]} */ ([keyOf(row), row])));
    const known = rows.peek().map((row) => found.get(keyOf(row)) ?? row);
    const keys = new Set(known.map(keyOf));
    batch(() => { rows.value = known; fresh.value = got.filter((row) => !keys.has(keyOf(row))).length; });
  }, 1_000);
  const newcomers = () => show(fresh, () => h("button", { type: "button", class: "newcomers", "data-key": "n", onclick: source.reload }, () => `${fresh.value} new`));
  const olderButton = (/** @type {string} */ label) => show(more, () => actionButton(label, older));
  return { rows, source, update, newcomers, olderButton };
}
