// @ts-check
/** The frame around the pages: navigation, router, keys, title and counts, banners. */
import { computed, effect, h, root, show, signal, untrack } from "./view.js";
import { session, start as startSession, stay } from "./session.js";
import { leading, start as startStream, state as streamState } from "./stream.js";
import * as inbox from "./inbox.js";
import * as keys from "./keys.js";
import * as stop from "./stop.js";
import { signIn } from "./proof.js";
import { Deaf, dialog, failure, kbd, noteSkew, toast, toastBox, toastError } from "./widgets.js";

/**
 * A page. `render` runs in a scope that ends when another page is shown; a page with `update` gets new parameters of
 * the same path there and keeps its nodes. Buttons with `data-key="x"` are pressed by x; elements with `data-row` are
 * what j and k walk along (`data-row="open"`: opened at once); `data-search` is what / goes to.
 * @typedef {{render: (params: string[], query: URLSearchParams) => Node,
 *   update?: (params: string[], query: URLSearchParams) => void}} Page
 */

/** Path, title, and the letter after g. The module of the path is loaded when its page is first shown. */
const PAGES = [
  ["approvals", "Approvals", "a"], ["live", "Live", "l"], ["tickets", "Tickets", "t"], ["runs", "Runs", "r"],
  ["evidence", "Evidence", "e"], ["games", "Games", "m"], ["ledger", "Ledger", "d"], ["policy", "Policy", "p"],
  ["health", "Health", "h"], ["person", "Person", "o"],
];
const HOME = "approvals";
/** A click or two that were meant for the page before are over. */
const LED_DEAF_MS = 1_000;

const place = signal(parse(location.hash));
const content = h("main", { id: "page", tabindex: -1 });
const title = signal("Bascule");

/** @param {string} hash */
function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...params] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { name: name || HOME, params: params.filter(Boolean), query: new URLSearchParams(query ?? "") };
}

/** @type {{name: string, page: Page, dispose: () => void} | null} */
let current = null;
let turn = 0;

/** @type {Promise<unknown> | null} */
let styled = null;
/** How the other pages look is loaded with the first of them: a question is there sooner. */
const moreStyle = () => (styled ??= new Promise((done) => {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = "/app/pages.css";
  link.onload = link.onerror = done;
  document.head.appendChild(link);
}));

/** @param {ReturnType<typeof parse>} to */
async function showPage(to) {
  const mine = ++turn;
  const known = PAGES.find(([path]) => path === to.name);
  if (current && current.name === to.name && current.page.update) {
    current.page.update(to.params, to.query);
    return;
  }
  try {
    if (!known) throw Object.assign(new Error(`There is no page "${to.name}".`), { hint: "Choose one from the list, or press ? for the keys." });
    /** @type {{page: Page}} */
    const [{ page }] = await Promise.all([import(`./pages/${known[0]}.js`), known[0] === HOME ? null : moreStyle()]);
    if (mine !== turn) return;
    current?.dispose();
    const { result, dispose } = root(() => page.render(to.params, to.query));
    current = { name: to.name, page, dispose };
    content.replaceChildren(h("h1", { class: "page-title" }, known[1]), result);
    keys.viewChanges();
    title.value = known[1];
    frame.querySelector('nav [aria-current]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  } catch (error) {
    if (mine !== turn) return;
    current?.dispose();
    current = null;
    content.replaceChildren(failure(error));
    title.value = known?.[1] ?? "Not found";
    if (known) reportError(error);
  }
  content.scrollTop = 0;
  if (document.activeElement === document.body) content.focus({ preventScroll: true });
}

/** Nothing of the session is here before the person says so: what they clicked or pressed was meant for another page. */
function showLed() {
  const deaf = new Deaf(LED_DEAF_MS);
  deaf.changed();
  content.replaceChildren(h("section", { class: "panel led" },
    h("h1", null, "Another page opened the console"),
    h("p", null, "If you followed a link to it, go on. If you expected something else here, close this tab: whoever made that page may want you to answer or stop something."),
    h("div", { class: "actions" }, h("button", { class: () => `primary ${deaf.now.value ? "deaf" : ""}`, type: "button", onclick: () => { if (deaf.hears()) stay(); } }, "Use the console here"))));
}

// The pages need a session; without one, the page about you signs in, and leads back to where one wanted to go.
const gate = computed(() => {
  const { state, grade } = session.value;
  if (state === "starting" || state === "led") return state;
  return state === "none" || (state === "unreachable" && !grade) ? "closed" : "open";
});
effect(() => {
  const to = place.value;
  const open = gate.value;
  untrack(() => {
    if (open === "open") showPage(to);
    else if (open === "closed") showPage({ ...to, name: "person", params: [] });
    else if (open === "led") showLed();
  });
});
addEventListener("hashchange", () => { place.value = parse(location.hash); });

effect(() => {
  const waits = inbox.waiting.value;
  document.title = `${waits ? `(${waits}) ` : ""}${title.value} · Bascule`;
  const badging = /** @type {any} */ (navigator);
  (waits ? badging.setAppBadge?.(waits) : badging.clearAppBadge?.())?.catch?.(() => {}); // only installed apps have one
});

// News ----------------------------------------------------------------------------------------------------------

/** @param {number} waits */
function announce(waits) {
  if (localStorage.getItem("bascule.sound") === "on") beep();
  if (document.hidden && localStorage.getItem("bascule.notify") === "on" && globalThis.Notification?.permission === "granted") {
    // Never a word of an agent: notifications are read by others, and look like the system speaking.
    const note = new Notification("Bascule", { body: waits === 1 ? "1 question waits for you." : `${waits} questions wait for you.`, tag: "bascule-inbox" });
    note.onclick = () => { window.focus(); location.hash = "#/approvals"; };
  }
}

function beep() {
  // Before a first key or click a browser keeps a page silent: sounds would wait, one for each question.
  if (navigator.userActivation?.hasBeenActive === false) return;
  const audio = new AudioContext();
  const [tone, volume] = [audio.createOscillator(), audio.createGain()];
  tone.frequency.value = 660;
  volume.gain.setValueAtTime(0.08, audio.currentTime);
  volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + 0.25);
  tone.connect(volume).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + 0.25);
  tone.onended = () => audio.close();
}

// Keys ----------------------------------------------------------------------------------------------------------

const RESTING = {
  field: "Keys do nothing now: what you were typing into went away. Pause for two seconds.",
  front: "Keys do nothing until you have paused for a second in this window.",
};

keys.start({
  press: pressed,
  go(letter) {
    const page = PAGES.find(([, , key]) => key === letter);
    if (page) location.hash = `#/${page[0]}`;
  },
  ...stop.byKeys,
  resting: (why) => toast(RESTING[why]),
});

/** @param {string} key @param {boolean} shown whether the view was on the screen when the key went down @returns {boolean} whether it was one of ours */
function pressed(key, shown) {
  switch (key) {
    case "?":
      showKeys();
      return true;
    case "j": case "k": {
      // Once a question is answered there is a button for the next that waits, wherever in the list it is.
      const next = key === "j" && content.querySelector('[data-key="j"]');
      if (next) next.click();
      return Boolean(next) || walk(key === "j" ? 1 : -1);
    }
    case "u": {
      const at = parse(location.hash);
      if (at.params.length) location.hash = `#/${at.name}`;
      return true;
    }
    case "/": {
      const box = content.querySelector("[data-search], input[type=search]");
      box?.focus();
      return Boolean(box);
    }
    default: {
      const button = [...content.querySelectorAll(`[data-key="${key}"]`)].find((item) => item.offsetParent !== null);
      if (shown) button?.click();
      return Boolean(button);
    }
  }
}

/** @param {1 | -1} step */
function walk(step) {
  const rows = [...content.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null || row.dataset.row === "open");
  if (!rows.length) return false;
  const focused = rows.findIndex((row) => row === document.activeElement);
  const at = focused >= 0 && rows[focused].dataset.row !== "open" ? focused : rows.findIndex((row) => row.getAttribute("aria-current") === "true");
  const base = at < 0 ? focused : at;
  const next = rows[Math.min(rows.length - 1, Math.max(0, base < 0 ? (step > 0 ? 0 : rows.length - 1) : base + step))];
  next.focus({ preventScroll: next.offsetParent === null });
  if (next.dataset.row === "open") next.click();
  return true;
}

function showKeys() {
  const rows = [
    ["j k", "next, previous"], ["a", "approve what is shown (asks for your key or passphrase)"], ["d", "deny it"], ["r", "deny with words, or answer"],
    ["n", "show newcomers"], ["u", "back to the list"], ["/", "search"], ["s s", "STOP EVERYTHING"], ["Esc", "leave a field or a dialog"], ["?", "these keys"],
  ];
  dialog("Keys", (close) => [
    h("div", { class: "keys-columns" },
      h("dl", { class: "keys" }, rows.map(([keys, text]) => [h("dt", null, keys.split(" ").map(kbd)), h("dd", null, text)])),
      h("dl", { class: "keys" }, PAGES.map(([, name, key]) => [h("dt", null, kbd("g"), kbd(key)), h("dd", null, name)]))),
    h("div", { class: "actions" }, h("button", { autofocus: true, onclick: () => close() }, "Close")),
  ]);
}

// Frame ---------------------------------------------------------------------------------------------------------

const STATES = { live: "live", reconnecting: "reconnecting", stopped: "not connected" };

const frame = h("div", { class: "frame" },
  h("header", { class: "top" },
    h("a", { class: "skip", href: "#/", onclick: (/** @type {Event} */ event) => { event.preventDefault(); content.focus(); } }, "Skip to the page"),
    h("a", { class: "brand", href: `#/${HOME}` }, h("span", { class: "glyph", "aria-hidden": "true" }), "Bascule"),
    h("span", { class: () => `link-state is-${streamState.value}`, role: "status" }, () => STATES[streamState.value]),
    h("span", { class: "grow" }),
    h("button", { class: "quiet keys-button", type: "button", onclick: showKeys, "aria-label": "Keys" }, kbd("?")),
    stop.stopButton()),
  h("nav", { "aria-label": "Pages" }, PAGES.map(([path, name]) => h("a", {
    href: `#/${path}`, class: `nav-${path}`, "aria-current": () => (place.value.name === path ? "page" : null),
  }, h("span", null, name), path === HOME ? show(inbox.waiting, () => h("span", { class: "count", "aria-label": () => `${inbox.waiting.value} waiting` }, inbox.waiting)) : null,
  path === "person" ? h("span", { class: "grade" }, () => session.value.grade.replace("_", " ")) : null))),
  h("div", { class: "column" },
    stop.stopBanner(),
    show(() => streamState.value === "reconnecting" || session.value.state === "unreachable", () => h("div", { class: "banner warn", role: "status" },
      h("strong", null, "The daemon does not answer. "), "Trying again; what you typed stays here. In a terminal: ", h("code", null, "bascule status"))),
    show(() => session.value.state === "lost" && gate.value === "open", () => h("div", { class: "banner warn", role: "alert" },
      h("strong", null, "This session has ended"), " (the daemon was restarted, or it was too long ago). What you typed stays here. ",
      h("button", { class: "primary", type: "button", onclick: () => signIn("Sign in again").catch(toastError) }, "Sign in again"),
      " ", h("a", { href: "#/person" }, "or pair this browser"))),
    content),
  toastBox());

document.getElementById("app")?.replaceWith(frame);
// What was focused may go (a banner, an answered question): the keyboard goes on from the page, not from nowhere.
new MutationObserver(() => {
  if (document.activeElement === document.body && !document.querySelector("dialog[open]")) content.focus({ preventScroll: true });
}).observe(frame, { childList: true, subtree: true });
stop.start();
effect(() => noteSkew(session.value.aheadMs ?? 0));
inbox.start(announce);
startSession().then(startStream).catch(reportError);
effect(() => { document.documentElement.dataset.leading = String(leading.value); });
