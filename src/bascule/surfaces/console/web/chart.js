// @ts-check
/**
 * A line chart over time: one SVG of our own, axes, a value under the pointer or the arrow keys, and the same figures
 * as a table for those who cannot see lines. A value of null is a gap, not a zero.
 */
import { effect, h, onCleanup, signal, svg, untrack } from "./view.js";

/**
 * @typedef {{stepMs: number, endAt: string, lines: (number | null)[][]}} Measured the newest value is the last
 * @typedef {{title: string, unit: string, names: string[], read: () => Measured | null}} ChartOptions
 */

const HEIGHT = 132;
const LEFT = 44;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
/** A table of 1,440 rows helps nobody: the fallback shows this many means. */
const TABLE_ROWS = 12;
/** Before the first layout the width is unknown. */
const FIRST_WIDTH = 480;
/** Dashes tell the second line from the first without colour. */
const DASHES = ["", "5 3", "2 3"];

/** @param {ChartOptions} options @returns {HTMLElement} */
export function chart({ title, unit, names, read }) {
  const width = signal(FIRST_WIDTH);
  const at = signal(/** @type {number | null} */ (null));
  const drawing = svg("svg", {
    class: "plot", height: HEIGHT, role: "img", tabindex: 0,
    "aria-label": () => summary(title, unit, names, read()),
    onpointermove: (/** @type {PointerEvent} */ event) => {
      const measured = read();
      const box = drawing.getBoundingClientRect();
      if (measured) at.value = indexAt(event.clientX - box.left, width.peek(), measured);
    },
    onpointerleave: () => { at.value = null; },
    onblur: () => { at.value = null; },
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const measured = read();
      const next = measured && moved(event.key, at.peek(), lengthOf(measured));
      if (next === null || next === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      at.value = next;
    },
  });
  const watcher = new ResizeObserver(([entry]) => { width.value = Math.max(200, Math.floor(entry.contentRect.width)); });
  const frame = h("div", { class: "plot-frame" }, drawing);
  watcher.observe(frame);
  onCleanup(() => watcher.disconnect());

  const hair = svg("line", { class: "hair", y1: TOP, y2: HEIGHT - BOTTOM });
  effect(() => {
    const measured = read();
    drawing.setAttribute("width", String(width.value));
    drawing.replaceChildren(...(measured ? parts(measured, width.value, unit) : []), hair);
  });
  effect(() => {
    const index = at.value;
    const measured = untrack(read);
    hair.setAttribute("visibility", index === null || !measured ? "hidden" : "visible");
    if (index === null || !measured) return;
    const x = String(xOf(index, lengthOf(measured), width.value));
    hair.setAttribute("x1", x);
    hair.setAttribute("x2", x);
  });

  return h("figure", { class: "chart" },
    h("figcaption", null,
      h("span", { class: "chart-title" }, title),
      h("output", { class: "chart-now", "aria-live": "off" }, () => readout(read(), at.value, names, unit))),
    frame,
    h("details", { class: "chart-table" },
      h("summary", null, "As a table"),
      () => table(title, names, unit, read())));
}

/** @param {Measured} measured */
const lengthOf = (measured) => measured.lines[0]?.length ?? 0;

/** @param {number} index @param {number} length @param {number} width */
const xOf = (index, length, width) => LEFT + (length < 2 ? 0 : (index / (length - 1)) * (width - LEFT - RIGHT));

/** @param {number} x @param {number} width @param {Measured} measured */
function indexAt(x, width, measured) {
  const length = lengthOf(measured);
  const share = (x - LEFT) / (width - LEFT - RIGHT);
  return Math.max(0, Math.min(length - 1, Math.round(share * (length - 1))));
}

/** @param {string} key @param {number | null} at @param {number} length @returns {number | null} */
function moved(key, at, length) {
  const last = length - 1;
  const from = at ?? last;
  if (key === "ArrowLeft") return Math.max(0, from - 1);
  if (key === "ArrowRight") return Math.min(last, from + 1);
  if (key === "PageUp") return Math.max(0, from - Math.ceil(length / 10));
  if (key === "PageDown") return Math.min(last, from + Math.ceil(length / 10));
  if (key === "Home") return 0;
  if (key === "End") return last;
  return null;
}

/** @param {Measured} measured @param {number} width @param {string} unit @returns {SVGElement[]} */
function parts(measured, width, unit) {
  const length = lengthOf(measured);
  const top = niceTop(Math.max(0, ...measured.lines.map((line) => line.reduce((/** @type {number} */ most, value) => Math.max(most, value ?? 0), 0))));
  const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const out = [];
  for (const tick of [0, top / 2, top]) {
    out.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }));
    out.push(svg("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick)));
  }
  const ticks = width < 360 ? 2 : 4;
  for (let step = 0; step <= ticks; step++) {
    const index = Math.round((step / ticks) * (length - 1));
    const anchor = step === 0 ? "start" : step === ticks ? "end" : "middle";
    out.push(svg("text", { class: "tick", x: xOf(index, length, width), y: HEIGHT - 5, "text-anchor": anchor }, clockAt(measured, index)));
  }
  measured.lines.forEach((line, number) => {
    const d = path(line, width, y);
    if (d) out.push(svg("path", { class: `line line-${number}`, d, "stroke-dasharray": DASHES[number % DASHES.length] || null }));
  });
  if (!measured.lines.some((line) => line.some((value) => value !== null))) {
    out.push(svg("text", { class: "tick", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, `no ${unit} measured yet`));
  }
  return out;
}

/**
 * One point for each pixel at most; of several values the largest counts, because peaks are what one looks for.
 * @param {(number | null)[]} line @param {number} width @param {(value: number) => number} y
 */
function path(line, width, y) {
  const stride = Math.max(1, Math.ceil(line.length / Math.max(1, width - LEFT - RIGHT)));
  let d = "";
  let pen = false;
  for (let start = 0; start < line.length; start += stride) {
    /** @type {number | null} */
    let most = null;
    for (let index = start; index < Math.min(line.length, start + stride); index++) {
      const value = line[index];
      if (value !== null && (most === null || value > most)) most = value;
    }
    if (most === null) pen = false;
    else {
      const x = xOf(start, line.length, width).toFixed(1);
      // A lonely value between two gaps is a dot: a line of no length with round ends.
      d += pen ? `L${x} ${y(most).toFixed(1)}` : `M${x} ${y(most).toFixed(1)}h0`;
      pen = true;
    }
  }
  return d;
}

/** 1, 2 or 5 times a power of ten, not below the value. @param {number} value */
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((each) => each * power >= value * 0.999) ?? 10) * power;
}

/** @param {number} value */
export function figure(value) {
  if (value >= 1e6) return `${trim(value / 1e6)}M`;
  if (value >= 1e4) return `${trim(value / 1e3)}k`;
  return trim(value);
}

/** @param {number} value */
const trim = (value) => String(Number(value.toPrecision(3)));

/** @param {Measured} measured @param {number} index */
function clockAt(measured, index) {
  const when = new Date(Date.parse(measured.endAt) - (lengthOf(measured) - 1 - index) * measured.stepMs);
  const parts = /** @type {Intl.DateTimeFormatOptions} */ ({ hour: "2-digit", minute: "2-digit" });
  if (measured.stepMs < 60_000) parts.second = "2-digit";
  return when.toLocaleTimeString([], { ...parts, hour12: false });
}

/** @param {Measured | null} measured @param {number | null} at @param {string[]} names @param {string} unit */
function readout(measured, at, names, unit) {
  if (!measured) return "";
  const index = at ?? lengthOf(measured) - 1;
  const words = names.map((name, number) => {
    const value = measured.lines[number]?.[index];
    const shown = value === null || value === undefined ? "–" : `${figure(value)} ${unit}`;
    return names.length > 1 ? `${name} ${shown}` : shown;
  });
  return at === null ? words.join("  ") : `${clockAt(measured, index)}  ${words.join("  ")}`;
}

/** @param {string} title @param {string} unit @param {string[]} names @param {Measured | null} measured */
function summary(title, unit, names, measured) {
  if (!measured) return `${title}: no figures yet`;
  const words = names.map((name, number) => {
    const known = (measured.lines[number] ?? []).filter((value) => value !== null);
    if (!known.length) return `${name}: nothing measured`;
    const [least, most] = known.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    return `${name}: now ${figure(known[known.length - 1])} ${unit}, between ${figure(least)} and ${figure(most)}`;
  });
  return `${title}. ${words.join("; ")}. Arrow keys read single values.`;
}

/** @param {string} title @param {string[]} names @param {string} unit @param {Measured | null} measured */
function table(title, names, unit, measured) {
  if (!measured) return null;
  const length = lengthOf(measured);
  const size = Math.max(1, Math.ceil(length / TABLE_ROWS));
  const rows = [];
  for (let start = 0; start < length; start += size) {
    const cells = measured.lines.map((line) => {
      const known = /** @type {number[]} */ (line.slice(start, start + size).filter((value) => value !== null));
      return known.length ? figure(known.reduce((sum, value) => sum + value, 0) / known.length) : "–";
    });
    rows.push(h("tr", null, h("th", { scope: "row" }, clockAt(measured, start)), cells.map((cell) => h("td", null, cell))));
  }
  return h("table", null,
    h("caption", null, `${title}, mean from this time on, in ${unit}`),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "from"), names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows));
}
