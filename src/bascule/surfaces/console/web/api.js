// @ts-check
/** Calls to the daemon: JSON in, JSON out, the session's token as a header (never a cookie: other ports would get it). */

/** sessionStorage is per tab and per port; the token dies with the tab, and with the daemon. */
const TOKEN_KEY = "bascule.token";
/** The daemon answers within 60 s at the longest (waits); later it is not going to. */
const TIMEOUT_MS = 75_000;

/** What the daemon refused, in its words. */
export class ApiError extends Error {
  /** @param {number} status @param {{code?: string, message?: string, hint?: string, details?: any}} body */
  constructor(status, body) {
    super(body.message ?? `the daemon answered ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = body.code ?? "unknown";
    this.hint = body.hint ?? "";
    /** @type {any} */
    this.details = body.details ?? {};
  }
}

/** @type {((error: ApiError) => void)[]} */
const onLost = [];
/** Called when the daemon no longer knows our session. @param {(error: ApiError) => void} listener */
export const onSessionLost = (listener) => { onLost.push(listener); };

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(TOKEN_KEY, value),
  clear: () => sessionStorage.removeItem(TOKEN_KEY),
};

/** @param {string} path @param {Record<string, any>} [query] values that are null or "" are left out @returns {string} */
export function withQuery(path, query) {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/**
 * One request. `anonymous` is for the few calls of a page that has no session yet.
 * @param {string} path @param {RequestInit & {proof?: string, anonymous?: boolean, endless?: boolean}} [options]
 * @returns {Promise<Response>} an answer with a 2xx status
 */
export async function request(path, { proof, anonymous, endless, ...init } = {}) {
  const headers = new Headers(init.headers);
  const sent = anonymous ? null : token.get();
  if (sent) headers.set("Authorization", `Bearer ${sent}`);
  if (proof) headers.set("Bascule-Proof", proof);
  const signals = [init.signal, endless ? null : AbortSignal.timeout(TIMEOUT_MS)].filter((item) => item != null);
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, {
      ...init, headers, signal: AbortSignal.any(/** @type {AbortSignal[]} */ (signals)),
      credentials: "omit", cache: "no-store", redirect: "error",
    });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, {
      code: "unreachable", message: "The daemon does not answer.",
      hint: "Look at `bascule status`; `bascule up` starts it. Nothing was lost here.",
    });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const failure = new ApiError(response.status, body?.error ?? {});
  // Only for the token that is still ours: a slow answer to an old one must not end a new session.
  if (response.status === 401 && sent && sent === token.get()) {
    token.clear();
    for (const listener of onLost) listener(failure);
  }
  throw failure;
}

/** @param {Response} response @returns {Promise<any>} */
const json = async (response) => {
  const text = await response.text();
  return text ? JSON.parse(text) : null;
};

/** @param {string} path @param {Record<string, any>} [query] @param {RequestInit & {anonymous?: boolean}} [init] @returns {Promise<any>} */
export const get = async (path, query, init) => json(await request(withQuery(path, query), init));

/**
 * @param {string} path @param {any} [body] @param {{proof?: string, anonymous?: boolean, signal?: AbortSignal}} [options]
 * @returns {Promise<any>} null when the answer is empty
 */
export async function post(path, body, options) {
  return json(await request(path, {
    ...options, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}),
  }));
}

/**
 * A picture as an object URL. Revoke it when it is no longer shown (widgets.picture does).
 * @param {string} path @param {Record<string, any>} [query] @returns {Promise<string>}
 */
export async function blobUrl(path, query) {
  const blob = await (await request(withQuery(path, query))).blob();
  // Pictures only: an agent's HTML or SVG in a blob of our origin would be a page of ours.
  if (blob.type !== "image/png") throw new ApiError(0, { code: "not_a_picture", message: "The answer is not a PNG picture." });
  return URL.createObjectURL(blob);
}

/**
 * The events of an SSE answer, as they come. EventSource would send no Authorization header.
 * @param {string} path @param {AbortSignal} signal
 * @returns {AsyncGenerator<{event: string, id: string, data: any}>}
 */
export async function* events(path, signal) {
  const response = await request(path, { signal, endless: true, headers: { Accept: "text/event-stream" } });
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      let end;
      while ((end = buffer.indexOf("\n\n")) >= 0) {
        const frame = buffer.slice(0, end);
        buffer = buffer.slice(end + 2);
        const fields = { event: "message", id: "", data: "" };
        for (const line of frame.split("\n")) {
          const at = line.indexOf(":");
          const name = line.slice(0, at);
          const text = line.slice(at + 1).replace(/^ /, "");
          if (name === "data") fields.data += (fields.data ? "\n" : "") + text;
          else if (name === "event" || name === "id") fields[name] = text;
        }
        if (fields.data) yield { ...fields, data: JSON.parse(fields.data) };
        else if (isComment(frame)) yield { event: "ping", id: "", data: null };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** A comment line: the daemon says that it is still there. @param {string} frame */
const isComment = (frame) => frame.startsWith(":");
