// @ts-check
/** Who this tab is to the daemon: nobody yet, paired (`local`), or signed in (the person). */
import { signal } from "./view.js";
import { ApiError, get, onSessionLost, post, token } from "./api.js";
import { assertion, passkeysUsable } from "./webauthn.js";

/**
 * `led`: another page opened this one, and the person has not said yet that they want it here.
 * @typedef {{state: "starting" | "led" | "none" | "lost" | "open" | "unreachable", grade: "" | "paired" | "signed_in",
 *   sessionId?: string, until?: string, personSet?: boolean, passkeys?: number, origin?: string, daemon?: string,
 *   stopped?: boolean, version?: string, now?: string, aheadMs?: number, error?: ApiError}} Session
 */
/** @type {import("./view.js").Signal<Session>} */
export const session = signal(/** @type {Session} */ ({ state: "starting", grade: "" }));

/** Another tab of this browser has an open session within this time, or there is none. */
const NEIGHBOUR_MS = 150;
/** A claim waits this long in the daemon before we ask again. */
const CLAIM_WAIT_MS = 20_000;

// A deep link from the command line opens a new tab, which has no token of its own: it asks its neighbours. Only pages
// of our own origin hear this channel, and each of them could ask the daemon for the same.
const channel = new BroadcastChannel("bascule-session");
channel.onmessage = ({ data }) => {
  const own = token.get();
  if (data.ask && own && session.peek().state === "open") channel.postMessage({ to: data.ask, token: own });
  if (data.ended && own && data.ended === session.peek().sessionId) forget();
  if (data.newer && data.was === session.peek().sessionId) adopt(data.newer);
};

onSessionLost((error) => {
  // A token of a daemon that is gone, found at the start, is no session that ended under somebody's hands.
  const { state, grade } = session.peek();
  session.value = { ...session.peek(), state: grade && state !== "starting" ? "lost" : "none", grade: "", error };
});

function forget() {
  token.clear();
  session.value = { ...session.peek(), state: "none", grade: "" };
}

/** Another page led here: it may want the person's next keys and clicks to be for this one. */
const led = document.documentElement.dataset.opened === "elsewhere" || window.opener !== null;

/** The person wants this page: loaded anew, by itself, it is led by none. */
export const stay = () => location.reload();

/** Finds this tab's session: its own, a neighbour's, or none. */
export async function start() {
  if (led) {
    session.value = { state: "led", grade: "" };
    return;
  }
  if (!token.get()) {
    const found = await fromNeighbour();
    if (found) token.set(found);
  }
  await refresh();
}

/** @returns {Promise<string | null>} */
function fromNeighbour() {
  const me = crypto.randomUUID();
  return new Promise((resolve) => {
    const give = (/** @type {MessageEvent} */ event) => { if (event.data.to === me) done(event.data.token); };
    const done = (/** @type {string | null} */ found) => {
      channel.removeEventListener("message", give);
      clearTimeout(timer);
      resolve(found);
    };
    const timer = setTimeout(() => done(null), NEIGHBOUR_MS);
    channel.addEventListener("message", give);
    channel.postMessage({ ask: me });
  });
}

/** Asks the daemon what our token is worth. */
export async function refresh() {
  if (!token.get()) {
    session.value = { ...session.peek(), state: session.peek().state === "lost" ? "lost" : "none", grade: "" };
    return;
  }
  try {
    const found = await get("/v1/console/session");
    session.value = { ...found, state: "open", aheadMs: Date.parse(found.now) - Date.now() };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A 401 has set `lost` already.
    if (error.status !== 401) session.value = { ...session.peek(), state: "unreachable", error };
  }
}

/** @param {string} fresh a new token */
async function adopt(fresh) {
  token.set(fresh);
  await refresh();
}

/** Takes a new session over, here and in the tabs that shared the old one. @param {{token: string}} result */
async function opened(result) {
  const was = session.peek().sessionId;
  token.set(result.token);
  // Before anything else: the daemon ends the old one, and a tab that still uses it would think that it is lost.
  if (was) channel.postMessage({ newer: result.token, was });
  await refresh();
}

/**
 * @typedef {{challengeId: string, challenge: string, statement: string, rpId: string, expiresAt: string,
 *   allowCredentials: {id: string, transports?: string[]}[], passphrase: boolean}} Challenge
 */

/** @returns {Promise<Challenge>} */
export const signInChallenge = () => post("/v1/person/challenge", { purpose: "sign-in" });

/** Whether this browser can be asked for one of the challenge's keys. @param {Challenge} challenge */
export const offersKey = (challenge) => challenge.allowCredentials.length > 0 && passkeysUsable();

/** @param {Challenge} challenge @param {AbortSignal} [stop] */
export async function signInByKey(challenge, stop) {
  const proof = await assertion(challenge, stop);
  await opened(await post("/v1/person/prove", { challengeId: challenge.challengeId, assertion: proof }));
}

/** @param {string} passphrase */
export async function signInByPassphrase(passphrase) {
  const challenge = await signInChallenge();
  await opened(await post("/v1/person/prove", { challengeId: challenge.challengeId, passphrase }));
}

/**
 * Pairing: the page keeps a secret and shows digits, the waiting `bascule console` compares them.
 * @param {(shown: {digits: string, expiresAt: string}) => void} onDigits @param {AbortSignal} stop
 */
export async function pair(onDigits, stop) {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  const secret = hex(bytes);
  const secretHash = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret))));
  const pairing = await post("/v1/console/pair", { secretHash }, { anonymous: true, signal: stop });
  onDigits(pairing);
  while (!stop.aborted) {
    const claimed = await post("/v1/console/claim", { pairingId: pairing.pairingId, secret, waitMs: CLAIM_WAIT_MS },
      { anonymous: true, signal: stop });
    if (claimed?.token) return opened(claimed);
    if (Date.parse(pairing.expiresAt) < Date.now()) {
      throw new ApiError(0, { code: "expired", message: "These digits are no longer valid.", hint: "Ask for new ones." });
    }
  }
}

export async function signOut() {
  const { sessionId } = session.peek();
  await post("/v1/console/signout").catch(() => {}); // the token is forgotten here in any case
  channel.postMessage({ ended: sessionId });
  forget();
}

/** @param {Uint8Array} bytes */
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
