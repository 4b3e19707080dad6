// @ts-check
/** What pages are made of: text of agents, times, badges, tables, dialogs, toasts. */
import { append, computed, effect, h, list, onCleanup, root, show, signal, untrack } from "./view.js";
import { blobUrl } from "./api.js";
import { painted, pressedAt } from "./keys.js";

/** @template T @typedef {import("./view.js").Signal<T>} Signal */
/** @typedef {import("./view.js").Child} Child */

// Text ----------------------------------------------------------------------------------------------------------

// Letters that show nothing or change how their neighbours look: controls, bidi, zero width, tags, variation
// selectors, fillers. The daemon names them in what it prepares (⟨U+202E⟩); raw payloads come as they were written.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/u;
const NAMED = /⟨[A-Z0-9+]{2,12}⟩/;
const MARKED = new RegExp(`(?:${HIDDEN.source}|${NAMED.source})+`, "gu");
const EACH_HIDDEN = new RegExp(HIDDEN.source, "gu");
const SHORT_NAMES = /** @type {Record<string, string>} */ ({ "\r": "CR", "\u001b": "ESC", "\u0000": "NUL" });

/** @param {string} letter */
const nameOf = (letter) => SHORT_NAMES[letter] ?? `U+${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;

/**
 * Text that an agent wrote: its direction cannot reach ours, and letters that hide are named and coloured.
 * @param {any} text @param {{class?: string}} [options] @returns {HTMLElement}
 */
export function visibleText(text, options) {
  // With a direction of its own: where a browser has to find one, each node that is added makes it look through all
  // before. The style sheet goes by the text (`unicode-bidi: plaintext`).
  const element = h("bdi", { class: options?.class, dir: "ltr" });
  const source = typeof text === "string" ? text : text === undefined || text === null ? "" : JSON.stringify(text);
  let at = 0;
  for (const found of source.matchAll(MARKED)) {
    append(element, source.slice(at, found.index));
    append(element, h("span", { class: "hidden-letter", title: "letters that show nothing or move their neighbours" },
      found[0].replace(EACH_HIDDEN, (letter) => `⟨${nameOf(letter)}⟩`)));
    at = (found.index ?? 0) + found[0].length;
  }
  append(element, source.slice(at));
  return element;
}

/** More than a row shows. */
const ROW_CHARS = 120;
/** How a text of an agent begins, in a row of a list. @param {any} text */
export const beginning = (text) => visibleText(typeof text === "string" && text.length > ROW_CHARS ? `${text.slice(0, ROW_CHARS)}\u2026` : text);

/** @typedef {{mark?: string, text: string}} Line */
/** What is laid out as one: a chunk out of sight costs nothing. */
const LINES_PER_CHUNK = 200;
const CHARS_PER_CHUNK = 8_000;
/** About as wide as the pane: how high a chunk is before it is laid out. */
const CHARS_PER_ROW = 80;
/** What is made at once; the rest follows in slices of the same size, and between two of them keys and clicks are heard. */
const CHUNKS_AT_ONCE = 2;
const MARKS = /** @type {Record<string, string>} */ ({ "+": "add", "-": "del", "@": "hunk" });

/**
 * Lines in parts that are laid out one by one. A line too long for one goes on in the next.
 * @param {Line[]} rows @returns {{mark: string, text: string, goesOn: boolean}[][]}
 */
function chunksOf(rows) {
  /** @type {ReturnType<typeof chunksOf>} */
  const chunks = [[]];
  let chars = 0;
  for (const { mark = " ", text } of rows) {
    let at = 0;
    do {
      let end = Math.min(text.length, at + CHARS_PER_CHUNK);
      // Not between the two halves of a letter, nor within the daemon's name for one.
      if (end < text.length) {
        const name = text.lastIndexOf("⟨", end);
        if (name > at && end - name < 16 && text.slice(name, end + 1).indexOf("⟩") < 0) end = name;
        else if (/[\ud800-\udbff]/.test(text[end - 1])) end--;
      }
      if (chars && (chars + end - at > CHARS_PER_CHUNK || /** @type {any[]} */ (chunks.at(-1)).length >= LINES_PER_CHUNK)) {
        chunks.push([]);
        chars = 0;
      }
      /** @type {any[]} */ (chunks.at(-1)).push({ mark, text: text.slice(at, end), goesOn: at > 0 });
      chars += end - at + 1;
      at = end;
    } while (at < text.length);
  }
  return chunks;
}

/**
 * Lines as they are, marked ones with their sign in a gutter (never by colour alone). In chunks, so that the browser
 * lays out what is seen (a preview may have 20,000 lines, or one line of half a mebibyte), and in slices, so that nothing
 * an agent writes keeps the page from hearing STOP.
 * @param {Line[] | string} lines @param {{class?: string, label?: string, unfinished?: Signal<number>}} [options]
 * `unfinished` counts the texts of which a part is still to come @returns {HTMLElement}
 */
export function code(lines, options) {
  const rows = typeof lines === "string" ? lines.split("\n").map((text) => ({ text })) : lines;
  const box = h("div", { class: `code ${options?.class ?? ""}`, role: options?.label ? "group" : null, "aria-label": options?.label });
  const marked = rows.some((row) => /** @type {Line} */ (row).mark?.trim());
  const chunks = chunksOf(rows);
  let next = 0;
  const slice = () => {
    for (const part of chunks.slice(next, next + CHUNKS_AT_ONCE)) {
      const height = part.reduce((sum, { text }) => sum + Math.max(1, Math.ceil(text.length / CHARS_PER_ROW)), 0);
      const chunk = h("div", { class: chunks.length > 1 ? "chunk" : null, style: { "--lines": height } });
      for (const { mark, text, goesOn } of part) {
        chunk.appendChild(h("div", { class: `line ${MARKS[mark] ?? ""}` },
          marked ? h("span", { class: "mark" }, goesOn || text.startsWith("@@") ? "" : mark) : null, visibleText(text), text ? null : "\u00a0"));
      }
      box.appendChild(chunk);
    }
    next += CHUNKS_AT_ONCE;
    return next < chunks.length;
  };
  if (!slice()) return box;
  const { unfinished } = options ?? {};
  if (unfinished) unfinished.value = unfinished.peek() + 1;
  // After a frame: what is there is shown, and what was pressed is heard, before the next slice.
  let ended = false;
  const more = () => painted(() => {
    if (ended) return;
    if (slice()) more();
    else if (unfinished) unfinished.value = unfinished.peek() - 1;
  });
  onCleanup(() => { ended = true; });
  more();
  return box;
}

/** A value as indented JSON. @param {any} value @returns {HTMLElement} */
export const json = (value) => code(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");

/** @param {Child} text @param {"ok" | "warn" | "bad" | "info" | "plain"} [tone] @param {string} [title] */
export const badge = (text, tone = "plain", title) => h("span", { class: `badge ${tone}`, title }, text);

/** A key on the keyboard. @param {string} key */
export const kbd = (key) => h("kbd", { "aria-hidden": "true" }, key);

/** A command to type, with a button that copies it. @param {string} text */
export const command = (text) => h("span", { class: "command" },
  h("code", null, text),
  h("button", { class: "quiet", "aria-label": `Copy: ${text}`, onclick: async () => {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } }, "Copy"));

/** Nothing here yet, and the command that changes that. @param {Child} title @param {string} [line] @param {Child} [more] */
export const empty = (title, line, more) => h("div", { class: "empty" },
  h("p", { class: "empty-title" }, title), more ? h("p", null, more) : null, line ? command(line) : null);

/** What went wrong, in the daemon's words, with what to do. @param {any} error */
export const failure = (error) => h("div", { class: "failure", role: "alert" },
  h("strong", null, visibleText(error?.message ?? String(error))), error?.hint ? h("p", null, visibleText(error.hint)) : null);

// Time ----------------------------------------------------------------------------------------------------------

/** Ticks while the tab is seen: each second for countdowns, each 15 s for "3 min ago". */
export const second = signal(Date.now());
export const moment = signal(Date.now());
setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  second.value = now;
  if (now - moment.peek() >= 15_000) moment.value = now;
}, 1_000);

/** The daemon's clock minus ours, so that a wrong clock of the browser's machine cannot shorten a countdown. */
export const skewMs = signal(0);
/** Less is the time that an answer takes. */
const MIN_SKEW_MS = 3_000;
/** @param {number} ms how far the daemon's clock is ahead of ours, as an answer of it says */
export const noteSkew = (ms) => { skewMs.value = Math.abs(ms) < MIN_SKEW_MS ? 0 : ms; };

/** @param {number} ms @returns {string} */
export function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129_600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** "3 min ago", with the exact time as its title. @param {string | null | undefined} iso */
export function time(iso) {
  if (!iso) return h("span", { class: "muted" }, "–");
  const at = Date.parse(iso);
  const text = () => {
    moment.value; // followed, not read: it may be up to 15 s old
    const ago = Date.now() + skewMs.value - at;
    return Math.abs(ago) < 5_000 ? "now" : ago > 0 ? `${duration(ago)} ago` : `in ${duration(-ago)}`;
  };
  return h("time", { datetime: iso, title: new Date(at).toLocaleString() }, text);
}

/** "9:41", counting down; "over" at the end. @param {string} iso */
export const countdown = (iso) => h("time", { class: "countdown", datetime: iso, title: `until ${new Date(Date.parse(iso)).toLocaleTimeString()}` }, () => {
  const left = Math.floor((Date.parse(iso) - second.value - skewMs.value) / 1000);
  return left <= 0 ? "over" : `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
});

// Lists ---------------------------------------------------------------------------------------------------------

/**
 * A table whose rows are updated in place. `href` makes each row's first cell a link, found by j and k.
 * @template T
 * @param {{title: string, class?: string, cell: (item: T) => Child}[]} columns @param {Signal<T[]> | (() => T[])} items
 * @param {(item: T) => string | number} keyOf @param {{href?: (item: T) => string, caption?: string}} [options]
 */
export function table(columns, items, keyOf, options) {
  return h("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": options?.caption ?? "table" },
    h("table", null,
      options?.caption ? h("caption", { class: "sr-only" }, options.caption) : null,
      h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.class }, column.title)))),
      h("tbody", null, list(items, keyOf, (item) => h("tr", null, columns.map((column, index) =>
        h("td", { class: column.class, "data-title": column.title }, index === 0 && options?.href
          ? h("a", { href: () => options.href?.(item.value), "data-row": "" }, () => column.cell(item.value))
          : () => column.cell(item.value))))))));
}

/**
 * A scrolled list of rows of one height that keeps only what is seen in the DOM. Its box needs a height by CSS.
 * @template T @param {Signal<T[]> | (() => T[])} items @param {number} rowHeight pixels
 * @param {(item: T, index: number) => HTMLElement} render
 * @param {{label?: string, onend?: () => void, class?: string}} [options] `onend`: the last rows are seen, load more
 */
export function virtualList(items, rowHeight, render, options) {
  const OVERSCAN = 8;
  const all = typeof items === "function" ? computed(items) : items;
  const range = signal({ first: 0, last: 0 });
  const inner = h("div", { class: "virtual-inner", style: () => ({ height: `${all.value.length * rowHeight}px` }) });
  const box = h("div", { class: `virtual ${options?.class ?? ""}`, tabindex: 0, role: "region", "aria-label": options?.label ?? "list", onscroll: () => measure() }, inner);
  const measure = () => {
    const count = all.peek().length;
    const first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - OVERSCAN);
    const last = Math.min(count, Math.ceil((box.scrollTop + box.clientHeight) / rowHeight) + OVERSCAN);
    const now = range.peek();
    if (now.first !== first || now.last !== last) range.value = { first, last };
    if (options?.onend && last >= count - OVERSCAN && count > 0) options.onend();
  };
  const observer = new ResizeObserver(measure);
  observer.observe(box);
  onCleanup(() => observer.disconnect());
  effect(() => { all.value; untrack(measure); });
  // The same object for the same row: scrolling does not make again what stays in sight.
  /** @type {Map<number, {item: T, index: number}>} */
  let kept = new Map();
  const seen = computed(() => {
    const { first, last } = range.value;
    const before = kept;
    kept = new Map(all.value.slice(first, last).map((item, at) => {
      const known = before.get(first + at);
      return [first + at, known?.item === item ? known : { item, index: first + at }];
    }));
    return [...kept.values()];
  });
  append(inner, list(seen, (row) => row.index, (row) => h("div", {
    class: "virtual-row", style: () => ({ transform: `translateY(${row.value.index * rowHeight}px)`, height: `${rowHeight}px` }),
  }, () => render(row.value.item, row.value.index))));
  return box;
}

/** A picture behind the session's token. @param {string} path @param {string} alt @param {Record<string, any>} [query] */
export function picture(path, alt, query) {
  const state = signal(/** @type {{url?: string, error?: any}} */ ({}));
  let ended = false;
  blobUrl(path, query).then((url) => (ended ? URL.revokeObjectURL(url) : (state.value = { url }))).catch((error) => { state.value = { error }; });
  onCleanup(() => {
    ended = true;
    const { url } = state.peek();
    if (url) URL.revokeObjectURL(url);
  });
  return h("div", { class: "picture" }, () => (state.value.url ? h("img", { src: state.value.url, alt })
    : state.value.error ? failure(state.value.error) : h("span", { class: "muted" }, "Loading the picture…")));
}

// Dialogs and toasts --------------------------------------------------------------------------------------------

/**
 * A modal dialog; resolves with what `build`'s `close` was given, undefined when the person leaves it (Esc).
 * @template T @param {Child} title @param {(close: (value?: T) => void) => Child} build
 * @param {{class?: string, ended?: () => boolean}} [options] `ended`, a reactive read: the dialog goes when it holds
 * @returns {Promise<T | undefined>}
 */
export function dialog(title, build, options) {
  return new Promise((resolve) => {
    /** @type {T | undefined} */
    let answer;
    const back = /** @type {HTMLElement | null} */ (document.activeElement);
    let gone = false;
    const close = (/** @type {T | undefined} */ value) => { answer = value; box.close(); };

    const box = h("dialog", { class: `dialog ${options?.class ?? ""}`, "aria-labelledby": "dialog-title", onclose: () => {
      box.remove();
      watch();
      made.dispose();
      resolve(answer);
      if (!gone && back?.isConnected) back.focus({ preventScroll: true });
    } }, h("h2", { id: "dialog-title", tabindex: -1 }, title));
    const made = root(() => build(close)); // its effects end with the dialog, whatever page opened it
    append(box, made.result);
    document.body.appendChild(box);
    box.showModal();
    const watch = effect(() => {
      if (!options?.ended?.()) return;
      gone = true;
      box.close();
      // Not to where one was: what is typed into the dialog must not go on in another field.
      document.getElementById("page")?.focus({ preventScroll: true });
    });
  });
}

/** @param {Child} title @param {Child} body @param {string} yes what the button does, as a verb @param {{danger?: boolean}} [options] @returns {Promise<boolean>} */
export const confirmDialog = async (title, body, yes, options) => Boolean(await dialog(title, (/** @type {(yes: boolean) => void} */ close) => [
  h("div", { class: "dialog-body" }, body),
  h("div", { class: "actions" },
    h("button", { autofocus: true, onclick: () => close(false) }, "Cancel"),
    h("button", { class: options?.danger ? "danger" : "primary", onclick: () => close(true) }, yes)),
]));

const TOAST_MS = 6_000;
const toasts = signal(/** @type {{id: number, text: any, tone: string}[]} */ ([]));
let toastCount = 0;

/** A short notice that goes by itself. @param {string} text @param {"ok" | "bad" | "plain"} [tone] */
export function toast(text, tone = "plain") {
  const id = ++toastCount;
  toasts.value = [...toasts.peek().slice(-3), { id, text, tone }];
  setTimeout(() => { toasts.value = toasts.peek().filter((item) => item.id !== id); }, TOAST_MS);
}

/** @param {any} error */
export const toastError = (error) => {
  if (error?.name !== "AbortError") toast([error?.message ?? String(error), error?.hint].filter(Boolean).join(" "), "bad");
};

export const toastBox = () => h("div", { class: "toasts", role: "status", "aria-live": "polite" },
  list(toasts, (item) => item.id, (item) => h("div", { class: () => `toast ${item.value.tone}` }, visibleText(item.peek().text))));

// Guards --------------------------------------------------------------------------------------------------------

/** A click aimed at what was there before hits what is there now: buttons near a change wait this long once it is seen. */
const DEAF_MS = 500;

/** Keeps actions deaf for a while after a change. */
export class Deaf {
  #until = 0;
  /** True while actions are ignored: buttons look so too. */
  now = signal(false);
  #timer = 0;
  #turn = 0;
  #ms;

  constructor(ms = DEAF_MS) {
    this.#ms = ms;
  }

  /** Something near the buttons changed. */
  changed() {
    const mine = ++this.#turn;
    this.#until = Infinity;
    this.now.value = true;
    clearTimeout(this.#timer);
    // A page that is busy shows a change late.
    painted((now) => {
      if (mine !== this.#turn) return;
      this.#until = now + this.#ms;
      this.#timer = setTimeout(() => { this.now.value = false; }, this.#ms);
    });
  }

  /** Whether an action may run: the key or the click was made late enough, however long it has waited since. */
  hears() {
    return pressedAt() >= this.#until;
  }
}

/** A loaded value, its error, and a way to load it again. @template T @param {() => Promise<T>} load */
export function resource(load) {
  const state = signal(/** @type {{value?: T, error?: any, loading: boolean}} */ ({ loading: true }));
  let turn = 0;
  let ended = false;
  const reload = async () => {
    const mine = ++turn;
    try {
      const value = await load();
      if (mine === turn && !ended) state.value = { value, loading: false };
    } catch (error) {
      if (mine === turn && !ended) state.value = { ...state.peek(), error, loading: false };
    }
  };
  onCleanup(() => { ended = true; });
  reload();
  return { state, reload, value: computed(() => state.value.value), error: computed(() => state.value.error) };
}

/** What a resource has: its value shown by `render`, its error, or that it is loading. @template T @param {ReturnType<typeof resource<T>>} source @param {() => Child} render */
export const loaded = (source, render) => [
  show(() => source.error.value, () => failure(source.error.peek())),
  show(() => source.value.value !== undefined, render, () => show(() => !source.error.value, () => h("p", { class: "muted" }, "Loading…"))),
];
