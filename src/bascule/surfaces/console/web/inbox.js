// @ts-check
/** What waits for the person, on every page: questions of the gate (approvals) and questions in words (tickets). */
import { batch, computed, effect, signal } from "./view.js";
import { ApiError, get } from "./api.js";
import { session } from "./session.js";
import { leading, on } from "./stream.js";

/**
 * @typedef {{kind: "approval" | "question", id: string, state: string, principal: string, method: string,
 *   summary: string, askedAt: string, expiresAt: string, waiting: number, decidedAt?: string, runId?: string,
 *   unread?: string}} Entry `unread`: why it could not be read the last time
 */

/** @type {import("./view.js").Signal<Map<string, Entry>>} */
export const entries = signal(new Map());
export const loadedOnce = signal(false);
export const problem = signal(/** @type {any} */ (null));
/** How many wait for an answer now: in the title, the navigation and the badge. */
export const waiting = computed(() => [...entries.value.values()].filter((entry) => entry.state === "pending").length);

/** All that the daemon keeps pending. */
const MAX_ENTRIES = 1_000;
/** Events of one moment are read together; the first of them at once. */
const GATHER_MS = 80;
/** More changed questions than this are cheaper to read as one list. */
const MAX_SINGLE_READS = 6;

/** What could not be read is read again after these times, the last of them again and again. */
export const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];

/** The daemon lets no more wait for the person. */
const MAX_QUESTIONS = 50;

const OPEN_TICKETS = new Set(["pending", "delivered"]);

/** @param {any} view @returns {Entry} */
const fromApproval = (view) => ({
  kind: "approval", id: view.approvalId, state: view.state, principal: view.principal, method: view.method, summary: view.summary,
  askedAt: view.askedAt, expiresAt: view.expiresAt, waiting: view.waiting ?? 0, decidedAt: view.decidedAt, runId: view.runId,
});

/** A handle alone could be called as we are. @param {any} ticket @returns {string} */
export const asker = (ticket) => (ticket.from.includes(":") ? ticket.from : `agent:${ticket.from}`);

/** @param {any} ticket @returns {Entry} */
const fromTicket = (ticket) => ({
  kind: "question", id: ticket.ticketId, principal: asker(ticket), method: "asks you",
  // Lists leave the words out: what was read before stays.
  summary: ticket.payload === undefined ? entries.peek().get(ticket.ticketId)?.summary ?? questionOf(ticket).text : questionOf(ticket).text,
  state: OPEN_TICKETS.has(ticket.status) ? "pending" : ticket.status === "responded" ? "answered" : ticket.status === "timeout" ? "expired" : ticket.status,
  askedAt: ticket.createdAt, expiresAt: ticket.replyBy, waiting: 0, decidedAt: ticket.settledAt,
});

/** The words and choices of a ticket to the person. @param {any} ticket @returns {{text: string, choices: string[]}} */
export function questionOf(ticket) {
  const payload = ticket.payload;
  if (typeof payload === "string") return { text: payload, choices: [] };
  const text = payload?.question ?? payload?.text ?? payload?.message;
  const choices = Array.isArray(payload?.choices) ? payload.choices.filter((/** @type {any} */ item) => typeof item === "string") : [];
  return { text: typeof text === "string" ? text : payload === undefined ? "a question (sign in to read it)" : JSON.stringify(payload), choices };
}

/** @param {Entry[]} changed */
function merge(changed) {
  const next = new Map(entries.peek());
  for (const entry of changed) next.set(entry.id, entry);
  entries.value = next;
}

/** Takes over what a decision or a full view says. @param {any} view */
export const noteApproval = (view) => merge([fromApproval(view)]);
/** @param {any} ticket */
export const noteTicket = (ticket) => merge([fromTicket(ticket)]);
/** @param {string} id @param {string} state */
export function noteState(id, state) {
  const known = entries.peek().get(id);
  if (known) merge([{ ...known, state, decidedAt: new Date().toISOString() }]);
}

/** Reads everything that waits. What waited before and is gone keeps its row, as answered elsewhere. */
export async function load() {
  try {
    const [approvals, tickets] = await Promise.all([
      get("/v1/approvals", { limit: MAX_ENTRIES }),
      // What is answered is left out: it could be more than one answer of the daemon holds.
      Promise.all([...OPEN_TICKETS].map((status) => get("/tickets", { agentId: "person", status, limit: 200 }))).then((lists) => lists.flat()).catch((error) => {
        // A daemon whose person cannot be asked in words, or a session that may not read them.
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 401) return [];
        throw error;
      }),
    ]);
    const next = new Map();
    for (const entry of [...approvals.map(fromApproval), ...tickets.map(fromTicket)]) {
      if (entry.state === "pending" || entries.peek().has(entry.id)) next.set(entry.id, entry);
    }
    /** @type {string[]} */
    const gone = [];
    for (const [id, entry] of entries.peek()) {
      if (next.has(id)) continue;
      next.set(id, entry);
      if (entry.state === "pending") gone.push(id);
    }
    batch(() => {
      entries.value = next;
      loadedOnce.value = true;
      problem.value = null;
    });
    // Lists do not hold the words of a ticket; the person reads them one by one.
    const mute = session.peek().grade === "signed_in" ? tickets.filter((/** @type {any} */ ticket) => OPEN_TICKETS.has(ticket.status) && ticket.payload === undefined) : [];
    await Promise.all(mute.slice(0, MAX_QUESTIONS).map((/** @type {any} */ ticket) => read(ticket.ticketId)));
    if (gone.length <= MAX_SINGLE_READS) await Promise.all(gone.map((id) => read(id)));
    else for (const id of gone) noteState(id, "gone");
  } catch (error) {
    problem.value = error;
    readAgain();
  }
}

/** @param {string} id */
async function read(id) {
  try {
    if (entries.peek().get(id)?.kind === "question" || !id.startsWith("apr_")) noteTicket(await get(`/tickets/${encodeURIComponent(id)}`));
    else noteApproval(await get(`/v1/approvals/${encodeURIComponent(id)}`));
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) noteState(id, "gone");
    else if (isPassing(error)) noteUnread(id, error);
  }
}

/** Whether reading it again may help: not without a session, nor where this session may not read it. @param {any} error */
export const isPassing = (error) => !(error instanceof ApiError && (error.status === 401 || error.status === 403));

/** It waits and has its row, though nothing is known of it. @param {string} id @param {any} error */
function noteUnread(id, error) {
  /** @type {Entry} */
  const known = entries.peek().get(id) ?? {
    kind: id.startsWith("apr_") ? "approval" : "question", id, state: "pending", principal: "", method: "", summary: "",
    askedAt: new Date().toISOString(), expiresAt: "", waiting: 0,
  };
  merge([{ ...known, unread: error?.message ?? String(error) }]);
  readAgain();
}

let failures = 0;
let retry = 0;

/** Reads again what could not be read, until it can. */
function readAgain() {
  retry ||= setTimeout(async () => {
    if (session.peek().state === "open") {
      const unread = [...entries.peek().values()].filter((entry) => entry.unread !== undefined).map(({ id }) => id);
      if (problem.peek() || unread.length > MAX_SINGLE_READS) await load();
      else await Promise.all(unread.map(read));
    }
    retry = 0;
    const left = problem.peek() || [...entries.peek().values()].some((entry) => entry.unread !== undefined);
    failures = left ? failures + 1 : 0;
    // Without a session nothing is read; once there is one everything is.
    if (left && session.peek().state === "open") readAgain();
  }, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
}

/** @type {Set<string>} */
const changed = new Set();
let gathering = false;

/** @param {string | undefined} id */
function touched(id) {
  if (id) changed.add(id);
  if (gathering) return;
  gathering = true;
  const now = [...changed];
  changed.clear();
  const work = !id ? load() : Promise.all(now.map(read));
  work.finally(() => setTimeout(() => {
    gathering = false;
    if (changed.size > MAX_SINGLE_READS) { changed.clear(); touched(undefined); }
    else if (changed.size) { for (const next of [...changed]) touched(next); }
  }, GATHER_MS));
}

/** Follows the daemon; `announce` is called with the new count when more wait than before. @param {(count: number) => void} announce */
export function start(announce) {
  on("approval", (item) => touched(item.event === "gap" ? undefined : item.id));
  on("ticket", (item) => {
    if (item.event === "gap") return;
    if (item.agentId === "person" || (item.id && entries.peek().has(item.id))) touched(item.id);
  });
  // What happened between the first list and the begin of the stream.
  on("daemon", (item) => { if (item.event === "open") touched(undefined); });
  effect(() => {
    if (session.value.state !== "open") return;
    failures = 0;
    load();
  });
  let before = Infinity; // what waits already when the page opens is no news
  effect(() => {
    const count = waiting.value;
    if (!loadedOnce.value) return;
    if (count > before && leading.peek()) announce(count);
    before = count;
  });
}

/** How a question ended, in words, and their tone. @type {Record<string, [string, "ok" | "warn" | "bad" | "info" | "plain"]>} */
export const STATES = {
  pending: ["waits", "info"], approved: ["approved", "ok"], spent: ["approved, running", "ok"], done: ["approved, done", "ok"],
  unknown: ["approved, end unknown", "warn"], denied: ["denied", "bad"], expired: ["expired", "warn"], withdrawn: ["withdrawn", "plain"],
  answered: ["answered", "ok"], cancelled: ["withdrawn", "plain"], gone: ["answered elsewhere", "plain"],
};
