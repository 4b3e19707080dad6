// @ts-check
/**
 * Which keys act, and on what. Every key passes here before any button or field sees it.
 *
 * A key acts only when the person cannot have meant something else by it:
 * - Keys rest after a text field went away that the person did not leave themselves (its question was answered
 *   elsewhere), and after the window came to the front: the rest of a sentence, or keys meant for another window, are no
 *   commands. A rest ends with a pause in which no key goes down or is held; each dropped key begins the pause anew.
 * - STOP wants `s`, a moment, and `s` again, with nothing between.
 * - A key is about what was on the screen when it went down, by the time of the event: where the page was busy and shows
 *   something else meanwhile, the key does nothing.
 */
import { signal } from "./view.js";

/** @typedef {"resting" | "ready" | "chord" | "arming" | "armed"} State */
/**
 * paused: no key for as long as the rest asks. lost: a text field went away, or the window came to the front. over: the
 * state's time is up. typed: a key in a text field, or a click. other: a key that is no command. The rest are commands.
 * @typedef {"lost" | "paused" | "over" | "typed" | "other" | "key" | "g" | "s"} Input
 */
/** @typedef {"" | "drop" | "press" | "go" | "arm" | "hear" | "stop" | "disarm"} Act */

/** In each state, for each input: the next state, and what is done. @type {Record<State, Record<Input, [State, Act]>>} */
export const STEPS = {
  resting: {
    lost: ["resting", ""], paused: ["ready", ""], over: ["resting", ""], typed: ["resting", ""],
    other: ["resting", "drop"], key: ["resting", "drop"], g: ["resting", "drop"], s: ["resting", "drop"],
  },
  ready: {
    lost: ["resting", ""], paused: ["ready", ""], over: ["ready", ""], typed: ["ready", ""],
    other: ["ready", ""], key: ["ready", "press"], g: ["chord", ""], s: ["arming", "arm"],
  },
  chord: {
    lost: ["resting", ""], paused: ["chord", ""], over: ["ready", ""], typed: ["ready", ""],
    other: ["ready", ""], key: ["ready", "go"], g: ["ready", "go"], s: ["ready", "go"],
  },
  // After the first s, until a second one counts: a key that repeats, or a hand that trembles, is one press.
  arming: {
    lost: ["resting", "disarm"], paused: ["arming", ""], over: ["armed", "hear"], typed: ["ready", "disarm"],
    other: ["ready", "disarm"], key: ["ready", "disarm"], g: ["ready", "disarm"], s: ["arming", ""],
  },
  armed: {
    lost: ["resting", "disarm"], paused: ["armed", ""], over: ["ready", "disarm"], typed: ["ready", "disarm"],
    other: ["ready", "disarm"], key: ["ready", "disarm"], g: ["ready", "disarm"], s: ["ready", "stop"],
  },
};

/** After a text field went away: long enough to look up and see that the sentence goes nowhere. */
const AFTER_FIELD_MS = 2_000;
/** After the window came to the front: a person who was asked elsewhere to press keys quickly has seen what this is. */
const AFTER_FRONT_MS = 1_000;
/** How long a state lasts at most: between g and its letter; between s and the next s that counts; for that one. */
const LASTS_MS = /** @type {Record<State, number>} */ ({ resting: Infinity, ready: Infinity, chord: 1_500, arming: 250, armed: 3_000 });
/** Some systems send a repeat as up and down again, at the same moment; a finger takes longer. */
const FINGER_MS = 25;
/** A key whose release never came (it went to another window) counts as held for this long; a held one repeats. */
const HELD_MS = 3_000;

const FIELDS = "input:not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable]";
const MODIFIERS = new Set(["Shift", "Control", "Alt", "Meta", "AltGraph", "CapsLock", "Fn", "NumLock"]);

/** What keys do now; in the page's root element as `data-keys`, too. */
export const state = signal(/** @type {State} */ ("resting"));
let since = 0;
let timer = 0;
let restMs = AFTER_FRONT_MS;
let restUntil = Infinity;
let told = false;
/** Keys that are down, by their place on the keyboard, and when they were last heard of. @type {Map<string, number>} */
const held = new Map();
/** When the first s of two went down, and when s was let go. */
let first = -Infinity;
let released = -Infinity;

/**
 * What the page does with keys. `press` gets a key and says whether it was a command; `shown` is false where the key
 * went down before the view that is there now was on the screen. `resting` is told once per rest that a key was dropped.
 * @typedef {{press: (key: string, shown: boolean) => boolean, go: (key: string) => void, arm: () => void,
 *   hear: () => void, stop: () => void, disarm: () => void, resting: (why: "field" | "front") => void}} Keyboard
 */
/** @type {Keyboard} */
let keyboard;

/** @param {Input} input @param {number} at @returns {Act} */
function step(input, at) {
  const before = state.peek();
  const [next, act] = STEPS[before][input];
  if (next !== before) {
    since = at;
    state.value = next;
    document.documentElement.dataset.keys = next;
  }
  wait();
  if (act === "arm" || act === "hear" || act === "stop" || act === "disarm") keyboard[act]();
  return act;
}

/** What the time alone changes, by `at`. @param {number} at @param {string} [but] a key that has just gone down */
function pass(at, but) {
  for (const [code, heard] of held) if (at - heard > HELD_MS) held.delete(code);
  if (state.peek() === "resting") {
    if (at >= restUntil && [...held.keys()].every((code) => code === but)) step("paused", at);
  } else if (at - since >= LASTS_MS[state.peek()]) step("over", at);
}

function wait() {
  clearTimeout(timer);
  const now = performance.now();
  const until = state.peek() === "resting" ? Math.max(restUntil, held.size ? now + HELD_MS : 0) : since + LASTS_MS[state.peek()];
  if (until !== Infinity) timer = setTimeout(() => { pass(performance.now()); wait(); }, Math.max(1, until - now + 1));
}

/** @param {number} ms @param {number} at */
function rest(ms, at) {
  if (state.peek() !== "resting" || at >= restUntil) { restMs = 0; told = false; }
  restMs = Math.max(restMs, ms);
  restUntil = at + restMs;
  step("lost", at);
}

// Text fields ---------------------------------------------------------------------------------------------------

/** Where the person types. @type {Element | null} */
let field = null;
/** Fields whose words the person has sent and not changed since: they go because of that. @type {WeakSet<Element>} */
const sent = new WeakSet();
/** Whether the person's own key or click is being carried out. */
let own = false;

const fieldOf = (/** @type {EventTarget | null} */ target) => (target instanceof Element ? target.closest(FIELDS) : null);

/** Notices that the field is gone. Where the focus is now is asked of the document: browsers differ in what they tell. */
function look() {
  const now = fieldOf(document.activeElement);
  if (field === now && (!field || field.isConnected)) return;
  const lost = field && !own && !sent.has(field);
  field = now;
  if (lost) rest(AFTER_FIELD_MS, performance.now());
}

/** The person's click, Tab or Escape: until the next task, the focus moves because of it. */
function moves() {
  look();
  own = true;
  setTimeout(() => { look(); own = false; });
}

// What is on the screen -----------------------------------------------------------------------------------------

/** When the key or the click that is being carried out was made. */
let pressed = 0;
/** While a key presses a button of the page. */
let pressing = false;
export const pressedAt = () => pressed;

/** Runs `fn` with the time once what the page looks like now is on the screen. @param {(now: number) => void} fn */
export const painted = (fn) => requestAnimationFrame(() => setTimeout(() => fn(performance.now())));

let shownSince = 0;
let views = 0;
/** The page shows something else now: keys that are down already are not about it. */
export function viewChanges() {
  const mine = ++views;
  shownSince = Infinity;
  painted((now) => { if (mine === views) shownSince = now; });
}

// Events --------------------------------------------------------------------------------------------------------

/** @param {KeyboardEvent} event @returns {Input} */
function inputOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return "other";
  if (event.key === "g" || event.key === "s") return event.key;
  return event.key === "?" || event.key === "/" || /^[a-z0-9]$/.test(event.key) ? "key" : "other";
}

/** @param {KeyboardEvent} event */
function down(event) {
  if (!event.isTrusted) return;
  const at = (pressed = event.timeStamp);
  if (event.key === "Tab" || event.key === "Escape") moves();
  else look();
  pass(at, event.repeat ? undefined : event.code);
  // A busy page may hear of a key after the rest in which it went down.
  if (at < restUntil && state.peek() !== "resting") step("lost", at);
  held.set(event.code, at);
  const typing = fieldOf(event.target);
  if (typing) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || typing.tagName === "INPUT")) sent.add(typing);
    if (event.key === "Escape") document.getElementById("page")?.focus({ preventScroll: true });
    step("typed", at);
    return;
  }
  const repeats = event.repeat || (event.key === "s" && (at - released < FINGER_MS || at - first < LASTS_MS.arming));
  const resting = state.peek() === "resting";
  if (repeats && !resting) {
    if (event.key === "Enter") event.preventDefault(); // a button is pressed once
    if (!"jk".includes(event.key)) return;
  }
  if (MODIFIERS.has(event.key) && resting) return;
  const did = step(inputOf(event), at);
  if (did === "arm") first = at;
  if (did === "drop") {
    // What scrolls or leaves, and the browser's own keys, go on; what presses a button does not.
    if (event.ctrlKey || event.metaKey || event.altKey || (event.key.length > 1 && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    restUntil = Math.max(restUntil, at + restMs);
    wait();
    if (!told) keyboard.resting(restMs === AFTER_FIELD_MS ? "field" : "front");
    told = true;
  } else if (did === "press") {
    pressing = true;
    if (keyboard.press(event.key, at >= shownSince)) event.preventDefault();
    pressing = false;
  } else if (did === "go") {
    event.preventDefault();
    keyboard.go(event.key);
  }
}

/** @param {KeyboardEvent} event */
function up(event) {
  held.delete(event.code);
  // Under Meta no other key says that it was let go.
  if (event.key === "Meta") held.clear();
  if (event.key === "s") released = event.timeStamp;
  // Firefox presses a focused button when the space bar is let go.
  if (state.peek() === "resting" && event.key === " " && !fieldOf(event.target)) event.preventDefault();
  pass(event.timeStamp);
  wait();
}

/** @param {Event} event */
function pointed(event) {
  if (!event.isTrusted) {
    // A click that a key of ours makes is of the key's time.
    if (!pressing) pressed = event.timeStamp;
    return;
  }
  // Enter on a button is a click, too, of the time at which the key went down. A screen reader's click has no key.
  if (event.type !== "click" || /** @type {MouseEvent} */ (event).detail !== 0 || !held.size) pressed = event.timeStamp;
  moves();
  if (event.type === "pointerdown") step("typed", event.timeStamp);
}

/** @param {Keyboard} given */
export function start(given) {
  keyboard = given;
  document.documentElement.dataset.keys = state.peek();
  addEventListener("keydown", down, true);
  addEventListener("keyup", up, true);
  for (const kind of ["pointerdown", "mousedown", "click"]) addEventListener(kind, pointed, true);
  addEventListener("focusin", look, true);
  addEventListener("focusout", () => queueMicrotask(look), true);
  addEventListener("input", (event) => { if (event.target instanceof Element) sent.delete(event.target); }, true);
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
  const front = () => { held.clear(); rest(AFTER_FRONT_MS, performance.now()); };
  addEventListener("focus", (event) => { if (event.target === window) front(); });
  addEventListener("blur", (event) => { if (event.target === window) held.clear(); });
  addEventListener("pageshow", front);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) front(); });
  front();
}
