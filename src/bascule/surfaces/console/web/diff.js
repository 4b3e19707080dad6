// @ts-check
/**
 * Unified diffs: shown line by line with numbers and a mark (+, -) that does not depend on colour; and made, for two
 * texts of which the daemon gives us both (the policy in force and the file that waits).
 */
import { h, signal } from "./view.js";
import { visibleText } from "./widgets.js";

/**
 * @typedef {{mark: "+" | "-" | " " | "@" | "\\", text: string, old?: number, now?: number}} Line
 * @typedef {{path: string, lines: Line[], added: number, removed: number}} FilePart
 */

/** Rows that a page lays out without a pause; the rest comes by a button. */
const LINES_AT_ONCE = 1_000;
/** The table of the comparison has this many cells at most; beyond, the differing middle is shown as replaced. */
const MAX_CELLS = 4_000_000;
const CONTEXT = 3;

/** @param {string} text a unified diff of any number of files @returns {FilePart[]} */
function parseDiff(text) {
  /** @type {FilePart[]} */
  const files = [];
  /** @type {FilePart | null} */
  let file = null;
  let [old, now, oldLeft, nowLeft] = [0, 0, 0, 0];
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  lines.forEach((line, index) => {
    const inHunk = oldLeft > 0 || nowLeft > 0;
    // Every line inside of a hunk begins with a mark, so this is one even where the counts before it are wrong.
    const hunk = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(line);
    if (!inHunk && line.startsWith("--- ") && lines[index + 1]?.startsWith("+++ ")) {
      file = { path: nameOf(line, lines[index + 1]), lines: [], added: 0, removed: 0 };
      files.push(file);
    } else if (hunk) {
      if (!file) files.push(file = { path: "", lines: [], added: 0, removed: 0 });
      [old, oldLeft, now, nowLeft] = [Number(hunk[1]), Number(hunk[2] ?? 1), Number(hunk[3]), Number(hunk[4] ?? 1)];
      file.lines.push({ mark: "@", text: line });
    } else if (inHunk && file) {
      const mark = line[0] ?? " ";
      if (mark === "+") { file.lines.push({ mark, text: line.slice(1), now: now++ }); file.added++; nowLeft--; }
      else if (mark === "-") { file.lines.push({ mark, text: line.slice(1), old: old++ }); file.removed++; oldLeft--; }
      else if (mark === "\\") file.lines.push({ mark, text: line.slice(1) });
      else { file.lines.push({ mark: " ", text: line.slice(1), old: old++, now: now++ }); oldLeft--; nowLeft--; }
    } else if (line.startsWith("\\") && file) file.lines.push({ mark: "\\", text: line.slice(1) });
    else if (line.startsWith("Binary ")) files.push(file = { path: line, lines: [], added: 0, removed: 0 });
  });
  return files;
}

/** @param {string} before @param {string} after */
function nameOf(before, after) {
  const clean = (/** @type {string} */ line) => line.slice(4).split("\t")[0].replace(/^[ab]\//, "");
  return clean(after) === "/dev/null" ? clean(before) : clean(after);
}

/**
 * @param {string | FilePart[]} source @param {{truncated?: boolean, none?: string}} [options] @returns {HTMLElement}
 */
export function diffView(source, { truncated = false, none = "Nothing differs." } = {}) {
  const files = typeof source === "string" ? parseDiff(source) : source;
  if (!files.length) return h("p", { class: "quiet" }, none);
  return h("div", { class: "diff" },
    files.map((file, index) => filePart(file, index < 20)),
    truncated && h("p", { class: "note warn" }, "The daemon cut this diff at its limit: what follows is not shown."));
}

/** @param {FilePart} file @param {boolean} open */
function filePart(file, open) {
  const shown = signal(LINES_AT_ONCE);
  return h("details", { class: "diff-file", open },
    h("summary", null,
      h("span", { class: "diff-path" }, visibleText(file.path || "changes")),
      h("span", { class: "diff-count" }, `+${file.added} \u2212${file.removed}`)),
    h("div", { class: "diff-lines", tabindex: 0, role: "group", "aria-label": `Changes of ${file.path}` },
      () => file.lines.slice(0, shown.value).map(row),
      () => file.lines.length > shown.value && h("button", { type: "button", onclick: () => { shown.value += LINES_AT_ONCE * 5; } },
        `Show more (${file.lines.length - shown.value} lines left)`)));
}

const KINDS = { "+": "add", "-": "del", "@": "hunk", " ": "same", "\\": "hunk" };
const WORDS = { "+": "added: ", "-": "removed: ", "@": "", " ": "", "\\": "" };

/** @param {Line} line */
function row({ mark, text, old, now }) {
  return h("div", { class: `diff-line ${KINDS[mark]}` },
    h("span", { class: "num", "aria-hidden": true }, old ?? ""),
    h("span", { class: "num", "aria-hidden": true }, now ?? ""),
    h("span", { class: "mark", "aria-hidden": true }, mark === "-" ? "\u2212" : mark === "@" || mark === "\\" ? "" : mark),
    WORDS[mark] && h("span", { class: "sr-only" }, WORDS[mark]),
    h("code", null, visibleText(text)));
}

/** The difference of two texts, as one file. @param {string} before @param {string} after @param {string} path @returns {FilePart[]} */
export function compare(before, after, path) {
  if (before === after) return [];
  const [left, right] = [split(before), split(after)];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end++;
  const middle = steps(left.slice(start, left.length - end), right.slice(start, right.length - end));
  /** @type {Line[]} */
  const all = [];
  let [old, now] = [1, 1];
  const push = (/** @type {"+" | "-" | " "} */ mark, /** @type {string} */ text) => {
    all.push({ mark, text, ...(mark !== "+" && { old: old++ }), ...(mark !== "-" && { now: now++ }) });
  };
  for (const text of left.slice(0, start)) push(" ", text);
  for (const { mark, text } of middle) push(mark, text);
  for (const text of left.slice(left.length - end)) push(" ", text);
  const lines = hunks(all);
  return [{
    path, lines,
    added: all.filter(({ mark }) => mark === "+").length,
    removed: all.filter(({ mark }) => mark === "-").length,
  }];
}

/** @param {string} text */
function split(text) {
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
}

/**
 * The longest common subsequence, by the textbook's table.
 * @param {string[]} left @param {string[]} right @returns {{mark: "+" | "-" | " ", text: string}[]}
 */
function steps(left, right) {
  const out = /** @type {{mark: "+" | "-" | " ", text: string}[]} */ ([]);
  let [i, j] = [0, 0];
  const width = right.length + 1;
  if ((left.length + 1) * width <= MAX_CELLS) {
    const longest = new Uint32Array((left.length + 1) * width);
    for (let a = left.length - 1; a >= 0; a--) {
      for (let b = right.length - 1; b >= 0; b--) {
        longest[a * width + b] = left[a] === right[b] ? longest[(a + 1) * width + b + 1] + 1 : Math.max(longest[(a + 1) * width + b], longest[a * width + b + 1]);
      }
    }
    while (i < left.length && j < right.length) {
      if (left[i] === right[j]) { out.push({ mark: " ", text: left[i++] }); j++; }
      else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) out.push({ mark: "-", text: left[i++] });
      else out.push({ mark: "+", text: right[j++] });
    }
  }
  while (i < left.length) out.push({ mark: "-", text: left[i++] });
  while (j < right.length) out.push({ mark: "+", text: right[j++] });
  return out;
}

/** Only what changed and a little around it. @param {Line[]} all @returns {Line[]} */
function hunks(all) {
  const near = new Uint8Array(all.length);
  all.forEach(({ mark }, index) => {
    if (mark !== " ") near.fill(1, Math.max(0, index - CONTEXT), Math.min(all.length, index + CONTEXT + 1));
  });
  /** @type {Line[]} */
  const out = [];
  all.forEach((line, index) => {
    if (!near[index]) return;
    if (!near[index - 1]) out.push({ mark: "@", text: `from line ${line.now ?? line.old}` });
    out.push(line);
  });
  return out;
}
