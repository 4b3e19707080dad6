// @ts-check
/**
 * One event stream per browser. A browser opens six connections to a server: with a stream per tab, the seventh tab
 * would not load. The tab that holds a Web Lock reads `events.all` and repeats it on a BroadcastChannel; when it is
 * closed, the next tab takes over from the cursor that it has seen last.
 */
import { effect, signal } from "./view.js";
import { ApiError, events, withQuery } from "./api.js";
import { refresh, session } from "./session.js";

/**
 * @typedef {{cursor: string | number, at: string, kind: string, event: string, id?: string, principal?: string,
 *   agentId?: string, from?: string, status?: string, text?: string}} Item
 */
/** live: events arrive. reconnecting: the daemon does not answer. stopped: no session, nothing is asked. */
export const state = signal(/** @type {"live" | "reconnecting" | "stopped"} */ ("stopped"));
/** True in the one tab that reads the stream: it alone makes sounds and notifications. */
export const leading = signal(false);

const RETRY_MS = [250, 500, 1_000, 2_000, 4_000];
/** The daemon writes a comment each 15 s; a stream silent for longer is dead. */
const SILENCE_MS = 40_000;

/** @type {Map<string, Set<(item: Item) => void>>} */
const listeners = new Map();
/** @type {string | number | null} */
let cursor = null;
const channel = new BroadcastChannel("bascule-events");

/**
 * Calls `listener` for each event of a kind (`approval`, `ticket`, ... or `*`). After a gap (the daemon was away for
 * longer than it remembers) every listener gets `{kind: "daemon", event: "gap"}`: load again what you show.
 * @param {string} kind @param {(item: Item) => void} listener @returns {() => void} ends it; give it to onCleanup
 */
export function on(kind, listener) {
  const found = listeners.get(kind) ?? new Set();
  listeners.set(kind, found.add(listener));
  return () => found.delete(listener);
}

/** @param {Item} item */
function deliver(item) {
  if (item.cursor !== undefined) cursor = item.cursor;
  const gap = item.kind === "daemon" && item.event === "gap";
  const kinds = gap ? [...listeners.keys()] : [item.kind, "*"];
  for (const kind of kinds) {
    for (const listener of [...(listeners.get(kind) ?? [])]) {
      try {
        listener(item);
      } catch (error) {
        reportError(error);
      }
    }
  }
}

channel.onmessage = ({ data }) => {
  if (data.item) deliver(data.item);
  if (data.state && !leading.peek()) state.value = data.state;
  if (data.hello && leading.peek()) channel.postMessage({ state: state.peek() });
};

/** @param {typeof state.value} next */
function announce(next) {
  state.value = next;
  channel.postMessage({ state: next });
}

/** Follows the session: reads while it is open, in whichever tab leads. */
export function start() {
  channel.postMessage({ hello: true });
  /** @type {AbortController | null} */
  let current = null;
  effect(() => {
    const open = session.value.state === "open" || session.value.state === "unreachable";
    if (open && !current) {
      current = new AbortController();
      lead(current.signal).catch((error) => { if (error?.name !== "AbortError") reportError(error); });
    } else if (!open && current) {
      current.abort();
      current = null;
      state.value = "stopped";
    }
  });
}

/** @param {AbortSignal} stop */
async function lead(stop) {
  await navigator.locks.request("bascule-stream", { signal: stop }, async () => {
    leading.value = true;
    try {
      await readForever(stop);
    } finally {
      leading.value = false;
    }
  });
}

/** @param {AbortSignal} stop */
async function readForever(stop) {
  let failed = 0;
  while (!stop.aborted) {
    const attempt = new AbortController();
    let watch = 0;
    let heard = false;
    const alive = () => {
      heard = true;
      clearTimeout(watch);
      watch = setTimeout(() => attempt.abort(), SILENCE_MS);
      if (state.peek() !== "live") announce("live");
    };
    try {
      for await (const { event, data } of events(withQuery("/v1/events/all", { after: cursor }), AbortSignal.any([stop, attempt.signal]))) {
        failed = 0;
        alive();
        if (event === "overflow") publish({ kind: "daemon", event: "gap", at: new Date().toISOString(), cursor: cursor ?? 0 });
        else if (event !== "ping") publish(data);
      }
    } catch (error) {
      if (stop.aborted) return;
      // The session is over: session.js says so, and start() ends this.
      if (error instanceof ApiError && error.status === 401) return;
    } finally {
      clearTimeout(watch);
    }
    if (stop.aborted) return;
    // One that was live and ends may be that of an old session (signing in ends it): nothing is said before the next
    // one fails, too, and no banner comes and goes under the pointer.
    if (!heard) announce("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failed++, RETRY_MS.length - 1)]));
    // A daemon that was restarted does not know our session any more; this finds out.
    await refresh();
  }
}

/** @param {Item} item */
function publish(item) {
  channel.postMessage({ item });
  deliver(item);
}
