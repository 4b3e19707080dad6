// @ts-check
/**
 * What the person shows for exactly these calls: a touch of a passkey, or the passphrase, typed for this answer.
 * The daemon makes the challenge from the calls that we name, and what is signed names them; the words of the dialog
 * are this page's.
 */
import { h, onCleanup, show, signal, untrack } from "./view.js";
import { ApiError, post } from "./api.js";
import { offersKey, session, signInByKey, signInByPassphrase, signInChallenge } from "./session.js";
import { assertion } from "./webauthn.js";
import { dialog, failure, toast, visibleText } from "./widgets.js";

/** @typedef {{method: string, params: Record<string, any>}} ProvedCall */
/** `ended` says that nothing is asked any more (a reactive read): the dialog goes. @typedef {{lines?: string[], yes?: string, ended?: () => boolean}} Options */
/** @typedef {import("./session.js").Challenge} Challenge */

/** The person closed the dialog. Nothing happened; nothing needs to be said. */
class Closed extends Error {
  constructor() {
    super("You closed the question; nothing was sent.");
    this.name = "AbortError";
  }
}

/** One touch for at most so many calls, all of which are shown. */
export const MAX_CALLS_PER_PROOF = 20;

/**
 * Asks the person to prove these calls. Rejects with Closed when the person leaves the dialog.
 * @param {ProvedCall[]} calls @param {string} title what they do, in words @param {Options} [options]
 * @returns {Promise<string>} the proof's id, for the header of each call
 */
export async function prove(calls, title, options) {
  await signedIn();
  const result = await ask(title, {
    challenge: () => post("/v1/person/challenge", { purpose: "calls", calls }),
    byKey: async (challenge, stop) => {
      const signed = await assertion(challenge, stop);
      return post("/v1/person/prove", { challengeId: challenge.challengeId, assertion: signed });
    },
    byPassphrase: async (passphrase, challenge) => post("/v1/person/prove", { challengeId: challenge.challengeId, passphrase }),
    lines: options?.lines ?? [],
    yes: options?.yes ?? "Confirm",
  }, options?.ended);
  return result.proofId;
}

/**
 * Challenge, proof and the call in one go. Names in braces in the path are taken from the params:
 * `act("runs.undo", "/v1/runs/{runId}/undo", {runId}, "Undo this run")`.
 * @param {string} method @param {string} path @param {Record<string, any>} params @param {string} title
 * @param {Options} [options] @returns {Promise<any>}
 */
export async function act(method, path, params, title, options) {
  const proof = await prove([{ method, params }], title, options);
  return send(path, params, { proof });
}

/**
 * A call that needs no proof of its own. A session that is only paired is asked to sign in where the daemon wants that.
 * @param {string} path with names in braces @param {Record<string, any>} params @param {{proof?: string}} [options]
 */
export async function send(path, params, options) {
  const { filled, rest } = fillPath(path, params);
  try {
    return await post(filled, rest, options);
  } catch (error) {
    if (!(error instanceof ApiError && error.code === "proof_required" && error.details.grade === "signed_in")) throw error;
    await signIn("This needs you, not only this browser");
    return post(filled, rest, options);
  }
}

/** @param {string} path @param {Record<string, any>} params */
function fillPath(path, params) {
  const rest = { ...params };
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name) => {
    const value = rest[name];
    delete rest[name]; // what stands in the path may not stand in the body too
    return encodeURIComponent(String(value));
  });
  return { filled, rest };
}

/** Signs in unless this session is signed in. */
async function signedIn() {
  if (session.peek().grade !== "signed_in") await signIn("Sign in first");
}

/** @param {string} title */
export async function signIn(title) {
  await ask(title, {
    challenge: signInChallenge,
    byKey: (challenge, stop) => signInByKey(challenge, stop).then(() => ({})),
    byPassphrase: (passphrase) => signInByPassphrase(passphrase).then(() => ({})),
    lines: ["Signed in, this browser may look, deny and stop. Each approval still asks you anew."],
    yes: "Sign in",
  });
}

/**
 * @param {string} title
 * @param {{challenge: () => Promise<Challenge>, byKey: (challenge: Challenge, stop: AbortSignal) => Promise<any>,
 *   byPassphrase: (passphrase: string, challenge: Challenge) => Promise<any>, lines: string[], yes: string}} ways
 * @param {() => boolean} [ended]
 */
async function ask(title, ways, ended) {
  const result = await dialog(title, (close) => ceremony(ways, close), { class: "proof", ended });
  if (result !== undefined) return result;
  if (ended && untrack(ended)) toast("That question is over: nothing was sent.", "bad");
  throw new Closed();
}

/**
 * The inside of a proof dialog, also used by the sign-in page. Each attempt has a challenge of its own: the daemon
 * spends one at first sight, right or wrong.
 * @param {Parameters<typeof ask>[1]} ways @param {(result: any) => void} close @param {{onpage?: boolean}} [options]
 */
export function ceremony(ways, close, options) {
  const challenge = signal(/** @type {Challenge | null} */ (null));
  const error = signal(/** @type {any} */ (null));
  const busy = signal(/** @type {"" | "key" | "passphrase"} */ (""));
  let running = new AbortController();
  onCleanup(() => running.abort());

  const fresh = async () => {
    challenge.value = await ways.challenge();
    return challenge.value;
  };
  const byKey = async (/** @type {Challenge | null} */ given) => {
    running.abort();
    const mine = (running = new AbortController());
    error.value = null;
    busy.value = "key";
    try {
      close(await ways.byKey(given ?? (await fresh()), mine.signal));
    } catch (caught) {
      if (mine.signal.aborted) return;
      error.value = caught;
    } finally {
      if (mine === running) busy.value = "";
    }
  };
  const byPassphrase = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const input = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements.namedItem("passphrase"));
    if (!input.value || busy.peek() === "passphrase") return;
    running.abort();
    running = new AbortController();
    error.value = null;
    busy.value = "passphrase";
    try {
      close(await ways.byPassphrase(input.value, await fresh()));
    } catch (caught) {
      error.value = caught;
      input.select();
    } finally {
      input.value = "";
      busy.value = "";
    }
  };
  fresh().then((made) => { if (offersKey(made) && !options?.onpage) byKey(made); }).catch((caught) => { error.value = caught; });

  return h("div", { class: "ceremony" },
    ways.lines.length ? h("ul", { class: "proof-lines" }, ways.lines.map((line) => h("li", null, visibleText(line)))) : null,
    show(error, () => failure(error.value)),
    show(() => challenge.value && offersKey(challenge.value), () => h("div", { class: "key-way" },
      show(() => busy.value === "key", () => h("p", { class: "touch", role: "status" }, h("span", { class: "pulse", "aria-hidden": "true" }), "Touch your key, or use the window of your browser"),
        () => h("button", { class: "primary", type: "button", onclick: () => byKey(null) }, error.value ? "Try the key again" : `${ways.yes} with a passkey`)))),
    show(() => challenge.value?.passphrase, () => h("form", { class: "passphrase-way", onsubmit: byPassphrase },
      h("label", null, h("span", null, "Passphrase"), h("input", {
        name: "passphrase", type: "password", autocomplete: "off", required: true, maxlength: 1024,
        // Only where nothing else can be done in this dialog; never while a key is being asked for.
        ref: (/** @type {HTMLElement} */ input) => { if (!options?.onpage && challenge.peek() && !offersKey(/** @type {Challenge} */ (challenge.peek()))) queueMicrotask(() => input.focus()); },
      })),
      h("button", { type: "submit", disabled: () => busy.value === "passphrase" }, () => (busy.value === "passphrase" ? "Checking…" : ways.yes)))),
    show(() => challenge.value && !challenge.value.passphrase && !offersKey(challenge.value), () => h("p", null,
      "No passphrase is set and no passkey is enrolled, so nobody can be the person here. Run ", h("code", null, "bascule person set"), " in a terminal.")),
    options?.onpage ? null : h("div", { class: "actions" }, h("button", { type: "button", onclick: () => close(undefined) }, "Cancel")));
}
