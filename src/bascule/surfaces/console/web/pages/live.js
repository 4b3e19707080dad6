// @ts-check
/** Live: every agent with what it does now, commands that run, browsers that are signed in, and the river of events. */
import { events, get } from "../api.js";
import { on } from "../stream.js";
import { effect, h, list, onCleanup, show, signal, untrack } from "../view.js";
import { badge, duration, empty, loaded, resource, table, time, visibleText } from "../widgets.js";
import { actionButton, address, counted, follow, handleOf, heading, keepAddress, longText, onEvents, perform, plain, settled, shortHandle, shortId, toneOf } from "./parts.js";

const KINDS = ["agent", "ticket", "approval", "run", "process", "game", "desktop", "person", "daemon"];
/** What one scrolls back through; the ledger has the rest. */
const RIVER_LENGTH = 500;
/** A session that falls silent makes no event, and neither does an agent of another machine. */
const LOOK_MS = 30_000;
/** The end of an output, as much as one looks at. */
const LOG_BYTES = 16_384;

/** The river outlives the page: coming back shows what happened meanwhile. */
const river = signal(/** @type {any[]} */ ([]));
let listening = false;
/** What happened before the page came is read from the daemon's ring: it comes at once, or not at all. */
const BACKLOG_MS = 1_000;

/** Where a stream begins or has lost something is not news. @param {any} item */
const isNews = (item) => item.kind !== "daemon" || (item.event !== "open" && item.event !== "gap");

function listen() {
  if (listening) return;
  listening = true;
  on("*", (event) => { if (isNews(event)) river.value = [event, ...river.peek()].slice(0, RIVER_LENGTH); });
  readBacklog().catch(() => {}); // the stream itself says when the daemon is away
}

async function readBacklog() {
  /** @type {any[]} */
  let earlier = [];
  const merge = () => {
    const known = new Set(river.peek().map((event) => event.cursor));
    river.value = [...river.peek(), ...earlier.filter((event) => !known.has(event.cursor))].sort((a, b) => b.cursor - a.cursor).slice(0, RIVER_LENGTH);
    earlier = [];
  };
  for await (const { event, data } of events("/v1/events/all?after=0", AbortSignal.timeout(BACKLOG_MS))) {
    if (event === "ping" || event === "overflow" || !isNews(data)) continue;
    if (earlier.push(data) === 1) setTimeout(merge);
  }
}

export const page = {
  /** @param {string[]} _params @param {URLSearchParams} query */
  render(_params, query) {
    listen();
    // A space has an inbox, too, but is nobody who does something.
    const agents = resource(async () => (await get("/agents")).filter((/** @type {any} */ agent) => agent.type !== "space"));
    const processes = resource(() => get("/v1/processes"));
    const sessions = resource(() => get("/v1/console/sessions"));
    const doing = resource(whatTheyDo);
    const clients = resource(() => get("/v1/sessions"));
    followClients(clients);
    const refresh = [agents, processes, sessions, doing].map((source) => settled(source.reload));
    onEvents(["agent", "ticket"], () => { refresh[0](); refresh[3](); });
    onEvents(["node"], refresh[0]);
    every(LOOK_MS, refresh[0]);
    onEvents(["run", "approval"], () => { refresh[1](); refresh[3](); });
    onEvents(["process"], refresh[1]);
    onEvents(["person"], refresh[2]);
    return h("div", { class: "page live" },
      h("div", { class: "stack" },
        panel("Agents", agents, () => agentsTable(agents.value, doing.value)),
        panel("Sessions of clients", clients, () => clientsTable(clients)),
        panel("Commands", processes, () => commandCards(processes)),
        panel("Browsers", sessions, () => sessionsTable(sessions.value))),
      riverPanel(new Set((query.get("kinds") ?? "").split(",").filter((kind) => KINDS.includes(kind)))));
  },
};

/** @param {string} title @param {any} source @param {() => any} make */
const panel = (title, source, make) => h("section", { class: "panel", "aria-label": title }, h("h2", null, title), loaded(source, make));

// Agents ----------------------------------------------------------------------------------------------------------

/**
 * One line for each agent, from what it has taken from its inbox, runs and asks; the most pressing comes last, so
 * that it is the one that stays. @returns {Promise<Map<string, {text: string, href: string}>>}
 */
async function whatTheyDo() {
  const [tickets, runs, approvals] = await Promise.all([
    get("/tickets", { status: "delivered", limit: 200 }),
    get("/v1/runs", { status: "running", limit: 100 }),
    get("/v1/approvals"),
  ]);
  const doing = new Map();
  for (const ticket of tickets.reverse()) {
    doing.set(ticket.targetAgent, { text: `answers ${ticket.from}`, href: address(`tickets/${ticket.ticketId}`) });
  }
  for (const run of runs) doing.set(handleOf(run.startedBy), { text: `runs ${counted(run.operations, "operation")}`, href: address(`runs/${run.runId}`) });
  for (const { principal, summary, approvalId } of approvals) {
    doing.set(handleOf(principal), { text: `waits for you: ${summary}`, href: address(`approvals/${approvalId}`) });
  }
  return doing;
}

/** @param {any} agents @param {any} doing */
function agentsTable(agents, doing) {
  const now = (agent) => doing.value?.get(agent.agentId);
  const columns = [
    { title: "Agent", cell: (agent) => visibleText(shortHandle(agent.agentId)) },
    { title: "State", cell: (agent) => [badge(agent.status, toneOf(agent.status)), h("span", { class: "muted kind" }, visibleText(agent.type), agent.groups?.length > 0 && [" in ", visibleText(agent.groups.join(", "))])] },
    { title: "Doing now", class: "doing", cell: (agent) => (now(agent) ? h("a", { href: now(agent).href, title: now(agent).text }, visibleText(now(agent).text)) : h("span", { class: "muted" }, "nothing known")) },
    { title: "Unread", class: "number", cell: (agent) => agent.unread ?? 0 },
    { title: "Seen", cell: (agent) => time(agent.lastHeartbeat) },
    { title: "", cell: (agent) => h("a", { href: address("tickets/~new", { to: agent.agentId }), "aria-label": `Write to ${agent.agentId}` }, "write") },
  ];
  return show(() => agents.value?.length,
    () => table(columns, agents, (agent) => agent.agentId, { caption: "Table of agents", href: (agent) => address("tickets", { agentId: agent.agentId }) }),
    () => empty("No agent has registered yet.", "bascule setup claude"));
}

// Sessions of clients ---------------------------------------------------------------------------------------------

/** How they are shown: silence is no fact, and is said to be none. @param {any} session */
const stateOf = (session) => `${session.probably ? "probably " : ""}${session.state.replaceAll("_", " ")}`;

/** The daemon says what changes; a state that only silence says comes with the next look. @param {any} clients */
function followClients(clients) {
  const again = settled(clients.reload);
  follow("/v1/sessions/stream", () => ({}), () => again());
  every(LOOK_MS, again);
}

/** As long as the page is there. @param {number} ms @param {() => void} fn */
function every(ms, fn) {
  const timer = setInterval(fn, ms);
  onCleanup(() => clearInterval(timer));
}

/** @param {any} clients */
function clientsTable(clients) {
  const live = () => (clients.value.value ?? []).filter((/** @type {any} */ session) => session.state !== "ended");
  const columns = [
    { title: "Client", cell: (session) => [visibleText(session.client), " ", h("span", { class: "muted" }, visibleText(shortId(session.session)))] },
    { title: "State", cell: (session) => badge(stateOf(session), toneOf(session.state)) },
    { title: "What says so", cell: (session) => [visibleText(session.evidence), h("span", { class: "muted" }, `, ${duration(session.ageMs)} ago`), session.notice && h("p", { class: "muted" }, visibleText(session.notice))] },
    { title: "Where", cell: (session) => [visibleText(session.directory ?? "not known"), session.pane && h("p", { class: "muted" }, "tmux pane ", h("code", null, visibleText(session.pane)))] },
    { title: "Calls", class: "number", cell: (session) => session.calls ?? 0 },
  ];
  return show(() => live().length,
    () => table(columns, live, (session) => `${session.client} ${session.session}`, { caption: "Table of clients' sessions" }),
    () => empty("No client reports what its own tools do.", "bascule on"));
}

// Commands --------------------------------------------------------------------------------------------------------

/** @param {any} processes */
function commandCards(processes) {
  return show(() => processes.value.value?.length,
    () => h("ul", { class: "cards" }, list(() => (processes.value.value ?? []).toSorted((a, b) => Number(b.running) - Number(a.running)), (item) => item.processId, (item) => commandCard(item, processes.reload))),
    () => empty("No command runs.", "bascule exec --background make test"));
}

/** @param {any} item @param {() => void} reload */
function commandCard(item, reload) {
  const { processId, command, runId, startedBy, startedAt } = item.peek();
  const log = signal(/** @type {any} */ (null));
  async function look() {
    log.value = await Promise.all(["stdout", "stderr"].map((stream) =>
      get(`/v1/processes/${encodeURIComponent(processId)}/logs`, { stream, offset: -LOG_BYTES, limit: LOG_BYTES })));
  }
  const state = () => {
    const { running, endedBy, exitCode } = item.value;
    return running ? "running" : endedBy && endedBy !== "exit" ? endedBy : `exit ${exitCode ?? "?"}`;
  };
  return h("li", { class: "card command-card" },
    h("code", { class: "command-line" }, visibleText(command)),
    h("p", { class: "muted" },
      () => badge(state(), state().startsWith("exit") ? (state() === "exit 0" ? "ok" : "bad") : toneOf(state())), " ", visibleText(startedBy), " ", time(startedAt),
      runId && [" · ", h("a", { href: address(`runs/${runId}`) }, "its run")]),
    h("div", { class: "actions" },
      actionButton(() => (log.value ? "Read again" : "Output"), look),
      show(() => item.value.running, () => actionButton("Stop", async () => {
        await perform("processes.stop", "/v1/processes/{processId}/stop", { processId }, "Stop this command");
        reload();
      }, { tone: "danger" }))),
    () => log.value && log.value.map((part) => part.text && longText(plain(part.text), part.stream, "terminal")),
    () => log.value?.every((part) => !part.text) && h("p", { class: "muted" }, "It has printed nothing yet."));
}

// Browsers --------------------------------------------------------------------------------------------------------

/** @param {any} sessions */
const sessionsTable = (sessions) => table([
  { title: "Browser", cell: (session) => [session.sessionId, session.current && h("span", { class: "muted" }, " (this one)")] },
  { title: "Grade", cell: (session) => badge(session.grade.replace("_", " "), toneOf(session.grade)) },
  { title: "Since", cell: (session) => time(session.since) },
  { title: "Seen", cell: (session) => time(session.lastSeen) },
], () => sessions.value ?? [], (session) => session.sessionId, { caption: "Table of browsers" });

// River -----------------------------------------------------------------------------------------------------------

/** @param {Set<string>} chosen none are all */
function riverPanel(chosen) {
  const kinds = signal(chosen);
  const paused = signal(false);
  const held = signal(/** @type {string[]} */ ([]));
  const shown = signal(river.peek());
  /** Nothing moves under the pointer or the focus: newcomers wait until it leaves, or until they are asked for. */
  const isHeld = () => paused.value || held.value.length > 0;
  const wanted = (event) => kinds.value.size === 0 || kinds.value.has(event.kind);
  const catchUp = () => { shown.value = river.peek(); };
  const flow = () => { if (!isHeld()) catchUp(); };
  const newcomers = () => (isHeld() ? river.value.slice(0, shown.value.length ? Math.max(0, river.value.indexOf(shown.value[0])) : undefined).filter(wanted).length : 0);
  effect(() => { river.value; untrack(flow); });

  /** @param {string} kind */
  function toggle(kind) {
    const next = new Set(kinds.peek());
    if (!next.delete(kind)) next.add(kind);
    kinds.value = next;
    keepAddress("live", { kinds: [...next].join(",") });
  }
  const visible = () => shown.value.filter(wanted);
  const hold = (/** @type {string} */ by, /** @type {boolean} */ now) => () => {
    held.value = [...held.peek().filter((each) => each !== by), ...(now ? [by] : [])];
    flow();
  };
  return h("section", { class: "panel river", "aria-label": "What happens" },
    heading("What happens",
      h("span", { role: "status" }, () => newcomers() > 0 && h("button", { type: "button", class: "newcomers", "data-key": "n", onclick: catchUp }, `${newcomers()} new`)),
      h("button", { type: "button", "data-key": "p", "aria-pressed": () => String(paused.value), onclick: () => { paused.value = !paused.peek(); flow(); } }, "Pause")),
    h("div", { class: "chips", role: "group", "aria-label": "Kinds of events" }, KINDS.map((kind) =>
      h("button", { type: "button", class: "chip", "aria-pressed": () => String(kinds.value.has(kind)), onclick: () => toggle(kind) }, kind))),
    h("ol", {
      class: "events", tabindex: 0, role: "list", "aria-label": "Events, the newest first",
      onpointerenter: hold("pointer", true), onpointerleave: hold("pointer", false), onfocusin: hold("focus", true), onfocusout: hold("focus", false),
    }, list(visible, (event) => event.cursor, (event) => eventRow(event.peek()))),
    show(() => visible().length === 0, () => (kinds.peek().size
      ? h("p", { class: "muted" }, "Nothing of this kind since the page was opened.")
      : empty("Nothing has happened since the page was opened.", "bridge-send Jerry 'Are you there?'"))));
}

const PAGES = /** @type {Record<string, string>} */ ({ ticket: "tickets", approval: "approvals", run: "runs", game: "games", desktop: "evidence" });

/** @param {any} event */
function eventRow({ at, kind, event, id, principal, agentId, from, status, text }) {
  const actor = from ?? principal ?? agentId;
  const about = text || (id && id !== actor && id !== agentId ? shortId(id) : "");
  return h("li", { class: "event" },
    time(at), badge(kind),
    h("span", null,
      actor && [h("strong", null, visibleText(actor)), " "], visibleText(event),
      agentId && actor !== agentId && [" \u2192 ", h("strong", null, visibleText(agentId))],
      status && [" ", badge(status.replaceAll("_", " "), toneOf(status))],
      about && [" ", PAGES[kind] && id ? h("a", { href: address(`${PAGES[kind]}/${id}`), title: id }, visibleText(about)) : visibleText(about)]));
}
