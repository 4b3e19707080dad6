// @ts-check
/** The person: signing in, pairing this browser, passkeys, sessions, and how the console calls for you. */
import { computed, effect, h, onCleanup, show, signal, untrack } from "../view.js";
import { get, post } from "../api.js";
import { offersKey, pair, refresh, session, signInByKey, signInByPassphrase, signInChallenge, signOut } from "../session.js";
import { act, ceremony, send } from "../proof.js";
import { assertion, creation, passkeysUsable } from "../webauthn.js";
import { badge, command, confirmDialog, empty, failure, loaded, resource, second, table, time, toast, toastError, visibleText } from "../widgets.js";

export const page = {
  /** @returns {Node} */
  render() {
    return h("div", { class: "person" }, show(() => session.value.state === "open", account, signInView));
  },
};

// Signing in ----------------------------------------------------------------------------------------------------

function signInView() {
  const offered = signal(/** @type {import("../session.js").Challenge | null} */ (null));
  return h("div", { class: "sign-in" },
    show(() => session.value.error && session.value.state !== "none", () => failure(session.value.error)),
    h("section", { class: "panel" }, h("h2", null, "Sign in"),
      h("p", { class: "muted" }, "With your passkey or passphrase this browser acts as you: it may look, deny and stop. Every approval asks you anew."),
      signInWays(() => {}, offered)),
    h("section", { class: "panel" }, h("h2", null, "Pair this browser"),
      h("p", { class: "muted" }, "Without a passkey at hand: a terminal of yours says that this page is yours. A paired browser may look; to answer, sign in."),
      pairing(offered)));
}

/** @param {() => void} done @param {import("../view.js").Signal<any>} [offered] gets the first challenge */
const signInWays = (done, offered) => ceremony({
  challenge: async () => {
    const challenge = await signInChallenge();
    if (offered) offered.value = challenge;
    return challenge;
  },
  byKey: (challenge, stop) => signInByKey(challenge, stop).then(() => ({})),
  byPassphrase: (passphrase) => signInByPassphrase(passphrase).then(() => ({})),
  lines: [], yes: "Sign in",
}, done, { onpage: true });

/** @param {import("../view.js").Signal<import("../session.js").Challenge | null>} offered */
function pairing(offered) {
  const shown = signal(/** @type {{digits: string, expiresAt: string} | null} */ (null));
  const error = signal(/** @type {any} */ (null));
  const stop = new AbortController();
  onCleanup(() => stop.abort());
  const begin = async () => {
    error.value = null;
    try {
      await pair((pairing) => { shown.value = pairing; }, stop.signal);
      toast("This browser is paired.", "ok");
    } catch (caught) {
      shown.value = null;
      if (!stop.signal.aborted) error.value = caught;
    }
  };
  // `bascule console` has just opened this page, most likely: without a key to touch, the digits come by themselves. Once,
  // because two pages that ask within a minute are both refused.
  let asked = false;
  effect(() => {
    if (asked || !offered.value || offersKey(offered.value)) return;
    asked = true;
    begin();
  });
  return h("div", { class: "pairing" },
    show(error, () => failure(error.value)),
    show(shown, () => h("div", { role: "status" },
      h("p", null, "Compare these digits with what ", h("code", null, "bascule console"), " shows, and press Enter there if they are the same:"),
      h("p", { class: "digits", "aria-label": () => shown.value?.digits.split("").join(" ") }, () => shown.value?.digits.replace(/^(...)/, "$1 ")),
      h("p", { class: "muted" }, "Waiting for the terminal… These digits hold for ", () => Math.max(0, Math.round((Date.parse(shown.value?.expiresAt ?? "") - second.value) / 1000)), " s.")),
    () => h("div", null, h("ol", { class: "steps" },
      h("li", null, "Run this in a terminal: ", command("bascule console")),
      h("li", null, "Show the digits here, and compare: ", h("button", { type: "button", onclick: begin }, "Show six digits"))))));
}

// With a session -----------------------------------------------------------------------------------------------------

function account() {
  // By the number of keys: with the first one a touch is offered, and what was typed stays while nothing changes.
  const ways = computed(() => (session.value.grade === "paired" ? session.value.passkeys ?? 0 : -1));
  return h("div", { class: "stack" },
    h("section", { class: "panel" },
      h("div", { class: "panel-head" }, h("h2", null, "This browser"),
        () => (session.value.grade === "signed_in" ? badge("signed in", "ok") : badge("paired", "info")),
        h("span", { class: "grow" }), h("button", { type: "button", onclick: () => signOut().catch(toastError) }, "Sign out")),
      h("p", null, () => (session.value.grade === "signed_in" ? "It acts as you: it may look, deny and stop. Each approval asks for your key or passphrase." : "It may look. To answer questions, sign in:"),
        " ", () => (session.value.until ? ["Until ", time(session.value.until), "."] : null)),
      () => (ways.value < 0 ? null : untrack(() => h("div", { class: "sign-in-here" }, signInWays(() => toast("Signed in.", "ok"))))),
      h("dl", { class: "facts" }, h("dt", null, "Daemon"), h("dd", null, () => visibleText(`${session.value.version ?? ""} ${session.value.daemon ?? ""}`)),
        h("dt", null, "Address"), h("dd", null, () => session.value.origin ?? location.origin))),
    passkeys(), sessions(), calling());
}

function passkeys() {
  const found = resource(() => get("/v1/passkeys"));
  const reload = () => { found.reload(); refresh(); };
  const revoke = async (/** @type {any} */ key) => {
    try {
      await act("passkeys.revoke", "/v1/passkeys/{passkeyId}/revoke", { passkeyId: key.passkeyId }, "Remove this passkey", { lines: [key.name, "It can no longer sign in or approve."], yes: "Remove" });
      toast("The passkey is removed.");
      reload();
    } catch (error) {
      toastError(error);
    }
  };
  return h("section", { class: "panel" }, h("h2", null, "Passkeys"),
    loaded(found, () => [
      show(() => (found.value.value ?? []).length, () => table([
        { title: "Name", cell: (key) => visibleText(key.name) },
        { title: "Added", cell: (key) => time(key.createdAt) },
        { title: "Last used", cell: (key) => time(key.lastUsedAt) },
        { title: "State", cell: (key) => (key.suspended ? badge("suspended", "bad", "its counter went back: it may have been copied") : key.synced ? badge("synced", "info") : badge("this device", "ok")) },
        { title: "Action", cell: (key) => h("button", { class: "quiet", type: "button", "aria-label": `Remove ${key.name}`, onclick: () => revoke(key) }, "Remove…") },
      ], () => found.value.value ?? [], (key) => key.passkeyId, { caption: "Passkeys" }),
      () => empty("No passkey yet.", "bascule person passkey add", "With one, a touch answers; without, you type the passphrase for each answer. The command asks for your passphrase and shows a code:")),
      enrolment(reload, found),
    ]));
}

/** @param {() => void} done @param {any} found */
function enrolment(done, found) {
  const error = signal(/** @type {any} */ (null));
  const step = signal("");
  const code = signal("");
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (step.peek()) return;
    const fields = /** @type {any} */ (event.target).elements;
    error.value = null;
    try {
      step.value = "Touch the new key, or follow the window of your browser.";
      const { challengeId, options } = await post("/v1/passkeys/begin", { code: fields.code.value.trim().toUpperCase(), name: fields.name.value.trim() });
      const made = await creation(options);
      step.value = "Once more: a first touch proves that the key works.";
      const first = await post("/v1/passkeys/finish", { challengeId, ...made });
      const signed = await assertion({ rpId: options.rp?.id, ...first });
      const { name } = await post("/v1/passkeys/confirm", { challengeId: first.challengeId, assertion: signed });
      toast(`Added: ${name}`, "ok");
      code.value = "";
      /** @type {HTMLFormElement} */ (event.target).reset();
      done();
    } catch (caught) {
      error.value = caught;
    } finally {
      step.value = "";
    }
  };
  const invite = async () => {
    try {
      code.value = (await act("passkeys.invite", "/v1/passkeys/invite", {}, "Add another passkey", { yes: "Continue" })).code;
    } catch (caught) {
      toastError(caught);
    }
  };
  if (!passkeysUsable()) return h("p", { class: "note" }, "This browser cannot use passkeys at this address. The passphrase works.");
  return h("form", { class: "enrol", onsubmit: submit },
    h("h3", null, "Add a passkey"),
    h("p", { class: "muted" }, "Type the code of ", h("code", null, "bascule person passkey add"), show(() => (found.value.value ?? []).length && session.value.grade === "signed_in", () => [", or ",
      h("button", { class: "quiet", type: "button", onclick: invite }, "make one with a key that you have")]), ". It holds for 3 minutes."),
    show(error, () => failure(error.value)),
    h("div", { class: "fields" },
      h("label", null, h("span", null, "Code"), h("input", { name: "code", required: true, placeholder: "ABCD-EFGH", autocomplete: "off", spellcheck: "false", size: 11, maxlength: 20, value: code })),
      h("label", null, h("span", null, "Name"), h("input", { name: "name", required: true, placeholder: "Blue USB key", autocomplete: "off", maxlength: 60 })),
      h("button", { class: "primary", type: "submit", disabled: () => Boolean(step.value) }, "Add")),
    show(step, () => h("p", { class: "touch", role: "status" }, h("span", { class: "pulse", "aria-hidden": "true" }), step)));
}

function sessions() {
  const found = resource(() => get("/v1/console/sessions"));
  const revoke = async (/** @type {string | null} */ sessionId) => {
    if (!sessionId && !(await confirmDialog("End every session?", "All browsers, this one too, must sign in or pair again.", "End all", { danger: true }))) return;
    try {
      await send("/v1/console/revoke", sessionId ? { sessionId } : {});
      found.reload();
      refresh();
    } catch (error) {
      toastError(error);
    }
  };
  return h("section", { class: "panel" },
    h("div", { class: "panel-head" }, h("h2", null, "Sessions"), h("span", { class: "grow" }), h("button", { class: "quiet", type: "button", onclick: () => revoke(null) }, "End all…")),
    loaded(found, () => table([
      { title: "Session", cell: (item) => [h("code", null, item.sessionId), " ", item.current ? badge("this one", "info") : null] },
      { title: "Grade", cell: (item) => (item.grade === "signed_in" ? badge("signed in", "ok") : badge("paired", "info")) },
      { title: "Since", cell: (item) => time(item.since) },
      { title: "Last seen", cell: (item) => time(item.lastSeen) },
      { title: "Action", cell: (item) => (item.current ? null : h("button", { class: "quiet", type: "button", "aria-label": `End session ${item.sessionId}`, onclick: () => revoke(item.sessionId) }, "End")) },
    ], () => found.value.value ?? [], (item) => item.sessionId, { caption: "Sessions" })));
}

/** A switch kept in this browser. @param {string} name @param {string} text @param {(on: boolean) => Promise<boolean>} [allow] */
function toggle(name, text, allow) {
  const on = signal(localStorage.getItem(name) === "on");
  return h("label", { class: "toggle" }, h("input", { type: "checkbox", checked: on, onchange: async (/** @type {any} */ event) => {
    const wanted = event.target.checked && (allow ? await allow(true) : true);
    localStorage.setItem(name, wanted ? "on" : "off");
    on.value = wanted;
    event.target.checked = wanted;
  } }), h("span", null, text));
}

function calling() {
  return h("section", { class: "panel" }, h("h2", null, "When a question comes"),
    toggle("bascule.sound", "A short sound"),
    toggle("bascule.notify", "A notification while this tab is in the background (a count, never a word of an agent)", async () => {
      if (!globalThis.Notification) return toast("This browser has no notifications.", "bad"), false;
      if ((await Notification.requestPermission()) === "granted") return true;
      toast("The browser does not allow notifications here: allow them in the settings of this site.", "bad");
      return false;
    }));
}
