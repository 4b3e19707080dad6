// @ts-check
/** What the pages share: answers that are being asked for, addresses, actions with a proof, facts, JSON, streams. */
import { ApiError, open, post } from "../api.js";
import { act } from "../proof.js";
import { on } from "../stream.js";
import { h, onCleanup, signal } from "../view.js";
import { visibleText } from "../widgets.js";

/** A change near a button makes it deaf for so long: nobody presses what was not there when they aimed. */
export const DEAF_MS = 500;
/** Several events of one moment are one question to the daemon. */
const SETTLE_MS = 250;
/** JSON that is laid out at once; the rest comes by a button. */
const JSON_CHARS = 20_000;
/** A stream that ended is opened again after this long. */
const RETRY_MS = 2_000;

/**
 * An answer of the daemon that the page shows. Of several questions the newest counts; the old answer stays visible
 * while the next one is on its way.
 * @template T @param {() => Promise<T>} ask
 */
export function resource(ask) {
  const data = signal(/** @type {T | null} */ (null));
  const error = signal(/** @type {any} */ (null));
  const busy = signal(true);
  let turn = 0;
  async function reload() {
    const mine = ++turn;
    busy.value = true;
    try {
      const got = await ask();
      if (mine !== turn) return;
      data.value = got;
      error.value = null;
    } catch (failure) {
      if (mine === turn) error.value = failure;
    } finally {
      if (mine === turn) busy.value = false;
    }
  }
  onCleanup(() => { turn++; });
  reload();
  return { data, error, busy, reload };
}

/** Runs `work` once things are quiet; at the page's end not at all. @param {() => void} work @param {number} [ms] */
export function settled(work, ms = SETTLE_MS) {
  let timer = 0;
  onCleanup(() => clearTimeout(timer));
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}

/** Calls `fn` for every event of these kinds until the page ends. @param {string[]} kinds @param {(event: any) => void} fn */
export function onEvents(kinds, fn) {
  for (const kind of kinds) onCleanup(on(kind, fn));
}

/** `#/path?query`, without what is empty. @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) kept.set(name, String(value));
  }
  const text = kept.toString();
  return `#/${path.split("/").map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Puts filters into the address bar without rendering the page anew. @param {string} path @param {Record<string, any>} query */
export function keepAddress(path, query) {
  history.replaceState(history.state, "", address(path, query));
}

/**
 * Calls a method that changes something. A proof is asked for only when the daemon wants one, so that what needs none
 * (a dry run, a cancellation) costs no touch. Names in braces of `path` are taken from `params`.
 * @param {string} method @param {string} path @param {Record<string, any>} params @param {string} title
 */
export async function perform(method, path, params, title) {
  const { filled, body } = fill(path, params);
  try {
    return await post(filled, body);
  } catch (error) {
    const wanted = error instanceof ApiError && error.code === "proof_required" && error.details?.grade === "fresh";
    if (!wanted) throw error;
    return act(method, path, params, title);
  }
}

/** @param {string} path @param {Record<string, any>} params */
export function fill(path, params) {
  const body = { ...params };
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => {
    const value = body[name];
    delete body[name];
    return encodeURIComponent(value);
  });
  return { filled, body };
}

/**
 * A button that does something which can fail: it says that it is at work, and what went wrong, beside itself.
 * @param {string | (() => any)} label @param {() => Promise<any>} work
 * @param {{tone?: string, disabled?: () => boolean, title?: string}} [options]
 */
export function actionButton(label, work, { tone = "", disabled, title } = {}) {
  const busy = signal(false);
  const failure = signal(/** @type {any} */ (null));
  const born = performance.now();
  async function press() {
    if (busy.peek() || performance.now() - born < DEAF_MS) return;
    busy.value = true;
    failure.value = null;
    try {
      await work();
    } catch (error) {
      // Closing the proof dialog is an answer, not a failure.
      if (/** @type {any} */ (error)?.name !== "AbortError") failure.value = error;
    } finally {
      busy.value = false;
    }
  }
  return h("span", { class: "action" },
    h("button", { type: "button", class: tone || null, title, disabled: () => busy.value || Boolean(disabled?.()), "aria-busy": () => busy.value || null, onclick: press }, label),
    () => failure.value && problem(failure.value));
}

/** @param {any} error */
export function problem(error) {
  return h("p", { class: "note bad", role: "alert" },
    visibleText(String(error?.message ?? error)),
    error?.hint && h("span", { class: "hint" }, " ", visibleText(error.hint)));
}

/** The state of a resource where its answer will be. @param {{error: any, busy: any, data: any, reload: () => any}} source */
export function waiting(source) {
  return () => {
    if (source.error.value) {
      return h("div", { class: "stack" }, problem(source.error.value),
        h("button", { type: "button", onclick: source.reload }, "Ask again"));
    }
    return source.data.value === null && h("p", { class: "quiet", "aria-busy": true }, "Asking the daemon\u2026");
  };
}

/** @param {[string, any][]} rows what is null, undefined or "" is left out */
export function facts(rows) {
  const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return h("dl", { class: "facts" }, kept.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

/** A payload as its author wrote it: words as words, everything else as JSON. @param {any} value @param {string} [label] */
export function payload(value, label = "Payload") {
  if (value === undefined) return h("p", { class: "quiet" }, "The payload is shown to the ticket's two sides and to the signed-in person.");
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return longText(text, label, typeof value === "string" ? "words" : "json");
}

/** @param {string} text @param {string} label @param {string} [kind] */
export function longText(text, label, kind = "json") {
  const all = signal(text.length <= JSON_CHARS);
  return h("div", { class: "long-text" },
    h("pre", { class: kind, tabindex: 0, role: "group", "aria-label": label }, () => visibleText(all.value ? text : text.slice(0, JSON_CHARS))),
    () => !all.value && h("button", { type: "button", onclick: () => { all.value = true; } },
      `Show all ${bytes(text.length)}`));
}

/** @param {number} count */
export function bytes(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${(count / 1024).toFixed(1)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
}

/** `agent:Jerry` as people say it. @param {string | null | undefined} principal */
export const who = (principal) => (principal ?? "").replace(/^agent:/, "");

/** Colours of a word's state come in four; the word itself always stands there too. @param {string} state */
export function toneOf(state) {
  if (/^(online|live|responded|completed|ok|allow|approved|confirmed|paired|signed_in|acknowledged)$/.test(state)) return "good";
  if (/^(timeout|error|fail|failed|deny|denied|refused|destructive|blocking)$/.test(state)) return "bad";
  if (/^(pending|awaiting_approval|running|starting|reconnecting|warn|ask|unknown|unverified|stopping|delivered|asked)$/.test(state)) return "wait";
  return "off";
}

/**
 * Follows a stream of the daemon (server-sent events, read by fetch: an EventSource sends no bearer) until the page
 * ends or `take` returns false. A stream that breaks is opened again from the last id.
 * @param {string} path @param {(after: string | null) => Record<string, any>} queryAfter
 * @param {(item: any, event: string) => boolean | void} take @param {(state: string) => void} [onState]
 */
export function follow(path, queryAfter, take, onState = () => {}) {
  const abort = new AbortController();
  onCleanup(() => abort.abort());
  /** @type {string | null} */
  let last = null;
  (async () => {
    while (!abort.signal.aborted) {
      try {
        const response = await open(path, queryAfter(last), { signal: abort.signal });
        onState("live");
        for await (const { data, event, id } of eventsOf(response.body)) {
          if (id) last = id;
          if (event === "overflow") onState("overflow");
          else if (take(JSON.parse(data), event) === false) return abort.abort();
        }
        onState("ended");
      } catch (error) {
        if (abort.signal.aborted) return;
        onState("broken");
        if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
      }
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
    }
  })().catch((error) => { if (!abort.signal.aborted) onState(String(error.message ?? error)); });
  return () => abort.abort();
}

/** @param {ReadableStream<Uint8Array>} body @returns {AsyncGenerator<{data: string, event: string, id: string}>} */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = { data: "", event: "message", id: "" };
      for (const line of block.split("\n")) {
        const at = line.indexOf(":");
        const name = line.slice(0, at);
        if (at > 0 && name in fields) {
          const text = line.slice(at + 1).replace(/^ /, "");
          fields[/** @type {"data"} */ (name)] = name === "data" && fields.data ? `${fields.data}\n${text}` : text;
        }
      }
      if (fields.data) yield fields;
    }
  }
}
