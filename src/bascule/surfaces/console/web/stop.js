// @ts-check
/** STOP EVERYTHING: on every page, two presses (the button, or s s); the banner that says what is stopped; Resume. */
import { batch, effect, h, list, show, signal } from "./view.js";
import { get } from "./api.js";
import { session } from "./session.js";
import { on } from "./stream.js";
import { act, send } from "./proof.js";
import { time, toast, toastError, visibleText } from "./widgets.js";

/** @typedef {{at?: string, by?: string, reason?: string, results?: {bridge: string, text: string}[]}} Stopped */
export const stopped = signal(/** @type {Stopped | null} */ (null));
/** What a second press of would stop, and whether it would already. */
const armed = signal(/** @type {"" | "keys" | "button"} */ (""));
const hears = signal(false);
const busy = signal(false);
/** Two presses within this time: one alone may be a slip. */
const ARMED_MS = 3_000;
let timer = 0;

/** @param {"" | "keys" | "button"} by @param {boolean} now */
function arm(by, now) {
  clearTimeout(timer);
  batch(() => { armed.value = by; hears.value = now; });
}

/** The button: the first press arms, the second stops. */
function press() {
  if (busy.peek()) return;
  if (armed.peek() === "button") {
    arm("", false);
    stop();
  } else {
    arm("button", true);
    timer = setTimeout(() => arm("", false), ARMED_MS);
  }
}

const usable = () => session.peek().state === "open" && !busy.peek();

/** The same by keys, whose order and times are those of keys.js. */
export const byKeys = {
  arm: () => { if (usable()) arm("keys", false); },
  hear: () => { if (armed.peek() === "keys") arm("keys", true); },
  disarm: () => { if (armed.peek() === "keys") arm("", false); },
  stop: () => { if (usable() && armed.peek() === "keys") { arm("", false); stop(); } },
};

async function stop() {
  busy.value = true;
  try {
    const result = await send("/v1/stop", {});
    stopped.value = { at: result.at, by: result.by, results: result.results ?? [] };
  } catch (error) {
    toastError(error);
  } finally {
    busy.value = false;
  }
}

async function resume() {
  try {
    await act("admin.resume", "/v1/resume", {}, "Resume: let agents act again", { yes: "Resume" });
    stopped.value = null;
    toast("Agents may act again.", "ok");
  } catch (error) {
    toastError(error);
  }
}

async function refresh() {
  try {
    const { stopped: now } = await get("/status");
    // What this page learnt from its own stop (what each bridge did) is more than the status says.
    stopped.value = now ? { ...now, results: stopped.peek()?.results ?? now.results } : null;
  } catch {
    // The banner of the connection says that the daemon does not answer.
  }
}

export function start() {
  on("daemon", refresh);
  effect(() => { if (session.value.state === "open") refresh(); });
}

export const stopButton = () => h("button", {
  class: () => `stop ${armed.value ? "armed" : ""}`, type: "button", onclick: press, "aria-keyshortcuts": "s s",
  disabled: () => busy.value || session.value.state !== "open",
}, h("span", { class: "stop-long" }, () => (busy.value ? "Stopping…" : hears.value ? "Press again to stop" : "STOP EVERYTHING")),
h("span", { class: "stop-short" }, () => (hears.value ? "Again!" : "STOP")));

export const stopBanner = () => show(stopped, () => h("section", { class: "banner stopped", role: "alert" },
  h("div", null, h("strong", null, "Everything is stopped"),
    () => (stopped.value?.at ? [" since ", time(stopped.value.at)] : null), () => (stopped.value?.by ? [" by ", visibleText(stopped.value.by)] : null),
    ". Agents can read and wait; everything else is refused until you resume."),
  h("ul", { class: "results" }, list(() => stopped.value?.results ?? [], (item) => item.bridge + item.text, (item) => h("li", null, h("strong", null, visibleText(item.peek().bridge)), " ", visibleText(item.peek().text)))),
  h("button", { class: "primary", type: "button", onclick: resume }, "Resume…")));
