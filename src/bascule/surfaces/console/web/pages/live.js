// @ts-check
/** Live: every agent with what it does now, commands that run, browsers that are signed in, and the river of events. */
import { get } from "../api.js";
import { on } from "../stream.js";
import { batch, h, list, onCleanup, show, signal } from "../view.js";
import { badge, empty, time, visibleText } from "../widgets.js";
import { actionButton, address, keepAddress, longText, onEvents, perform, resource, settled, toneOf, waiting, who } from "./parts.js";

export const KINDS = ["agent", "ticket", "approval", "run", "process", "game", "desktop", "person", "daemon"];
/** What one scrolls back through; the ledger has the rest. */
const RIVER_LENGTH = 500;
/** The end of an output, as much as one looks at. */
const LOG_BYTES = 16_384;

/** The river outlives the page: coming back shows what happened meanwhile. */
const river = signal(/** @type {any[]} */ ([]));
let listening = false;

function listen() {
  if (listening) return;
  listening = true;
  for (const kind of KINDS) {
    on(kind, (event) => { river.value = [event, ...river.peek()].slice(0, RIVER_LENGTH); });
  }
}

export const page = {
  path: "live",
  title: "Live",
  key: "l",
  /** @param {string[]} _params @param {URLSearchParams} query */
  render(_params, query) {
    listen();
    const agents = resource(() => get("/agents"));
    const processes = resource(() => get("/v1/processes"));
    const sessions = resource(() => get("/v1/console/sessions"));
    const doing = resource(whatTheyDo);
    const refresh = {
      agents: settled(agents.reload), processes: settled(processes.reload),
      sessions: settled(sessions.reload), doing: settled(doing.reload),
    };
    onEvents(["agent", "ticket"], () => { refresh.agents(); refresh.doing(); });
    onEvents(["run", "approval"], () => { refresh.doing(); refresh.processes(); });
    onEvents(["process"], refresh.processes);
    onEvents(["person"], refresh.sessions);
    return h("div", { class: "page live" },
      h("div", { class: "stack" },
        section("Agents", agents, () => agentsTable(agents, doing)),
        section("Commands", processes, () => processesTable(processes)),
        section("Browsers", sessions, () => sessionsTable(sessions))),
      riverPanel(new Set((query.get("kinds") ?? "").split(",").filter((kind) => KINDS.includes(kind)))));
  },
};

/** @param {string} title @param {any} source @param {() => any} make */
function section(title, source, make) {
  return h("section", { class: "panel", "aria-label": title },
    h("h2", null, title),
    waiting(source),
    show(() => source.data.value !== null, make));
}

// Agents ----------------------------------------------------------------------------------------------------------

/**
 * One line for each agent, from what it asks, runs and has taken from its inbox; the most pressing last, so that it
 * is the one that stays. @returns {Promise<Map<string, {text: string, href: string}>>}
 */
async function whatTheyDo() {
  const [tickets, runs, approvals] = await Promise.all([
    get("/tickets", { status: "delivered", limit: 200 }),
    get("/v1/runs", { status: "running", limit: 100 }),
    get("/v1/approvals", {}),
  ]);
  const doing = new Map();
  for (const ticket of tickets.reverse()) {
    doing.set(ticket.targetAgent, { text: `answers ${who(ticket.from)}`, href: address(`tickets/${ticket.ticketId}`) });
  }
  for (const run of runs) {
    doing.set(who(run.startedBy), { text: `runs ${run.operations} operation${run.operations === 1 ? "" : "s"}`, href: address(`runs/${run.runId}`) });
  }
  for (const approval of approvals) {
    doing.set(who(approval.principal), { text: `waits for you: ${approval.summary}`, href: address(`approvals/${approval.approvalId}`) });
  }
  return doing;
}

/** @param {any} agents @param {any} doing */
function agentsTable(agents, doing) {
  return show(() => agents.data.value.length > 0,
    () => h("table", { class: "rows" },
      head(["Agent", "State", "Doing now", "Unread", "Seen"]),
      h("tbody", null, list(() => agents.data.value, (agent) => agent.agentId, (agent) => {
        const { agentId, type, groups } = agent.peek();
        const now = () => doing.data.value?.get(agentId);
        return h("tr", null,
          h("th", { scope: "row" },
            h("a", { href: address("tickets", { agentId }) }, visibleText(agentId)),
            h("span", { class: "quiet" }, " ", visibleText(type), groups?.length ? ` in ${groups.join(", ")}` : ""),
            " ", h("a", { class: "quiet", href: address("tickets/~new", { to: agentId }), "aria-label": `Write to ${agentId}` }, "write")),
          h("td", { "data-label": "State" }, () => badge(agent.value.status, toneOf(agent.value.status))),
          h("td", { "data-label": "Doing now" }, () => (now() ? h("a", { href: now().href }, visibleText(now().text)) : h("span", { class: "quiet" }, "nothing known"))),
          h("td", { "data-label": "Unread", class: "number" }, () => agent.value.unread || h("span", { class: "quiet" }, "0")),
          h("td", { "data-label": "Seen" }, () => time(agent.value.lastHeartbeat)));
      }))),
    () => empty("No agent has registered yet.", "bascule wrap --name Jerry -- claude"));
}

/** @param {string[]} names */
export function head(names) {
  return h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col" }, name))));
}

// Commands --------------------------------------------------------------------------------------------------------

/** @param {any} processes */
function processesTable(processes) {
  return show(() => processes.data.value.length > 0,
    () => h("ul", { class: "cards" }, list(() => processes.data.value, (item) => item.processId, (item) => processCard(item, processes.reload))),
    () => empty("No command runs.", "bascule runs start --help"));
}

/** @param {any} item @param {() => void} reload */
function processCard(item, reload) {
  const { processId, command, runId, startedBy, startedAt } = item.peek();
  const log = signal(/** @type {any} */ (null));
  async function look() {
    const [out, err] = await Promise.all(["stdout", "stderr"].map((stream) =>
      get(`/v1/processes/${encodeURIComponent(processId)}/logs`, { stream, offset: -LOG_BYTES, limit: LOG_BYTES })));
    log.value = { out, err };
  }
  return h("li", { class: "card" },
    h("code", { class: "command" }, visibleText(command)),
    h("p", { class: "quiet" },
      () => badge(item.value.running ? "running" : `exit ${item.value.exitCode ?? item.value.endedBy ?? "?"}`, item.value.running ? "wait" : "off"),
      " ", visibleText(who(startedBy)), " ", time(startedAt),
      runId && [" ", h("a", { href: address(`runs/${runId}`) }, "its run")]),
    h("div", { class: "actions" },
      actionButton(() => (log.value ? "Read again" : "Output"), look),
      () => item.value.running && actionButton("Stop", async () => {
        await perform("processes.stop", "/v1/processes/{processId}/stop", { processId }, "Stop this command");
        reload();
      }, { tone: "danger" })),
    () => log.value && [
      longText(plain(log.value.out.text) || "Nothing on standard output.", "Standard output", "terminal"),
      log.value.err.text && longText(plain(log.value.err.text), "Standard error", "terminal"),
    ]);
}

/** Colours of a terminal are left out; every other control character is shown as such. @param {string} text */
export const plain = (text) => text.replace(/\x1b\[[0-9;:]*m/g, "");

// Browsers --------------------------------------------------------------------------------------------------------

/** @param {any} sessions */
function sessionsTable(sessions) {
  return h("table", { class: "rows" },
    head(["Browser", "Grade", "Since", "Seen"]),
    h("tbody", null, list(() => sessions.data.value, (session) => session.sessionId, (session) => h("tr", null,
      h("th", { scope: "row" }, session.peek().sessionId, session.peek().current && h("span", { class: "quiet" }, " this one")),
      h("td", { "data-label": "Grade" }, () => badge(session.value.grade.replace("_", " "), toneOf(session.value.grade))),
      h("td", { "data-label": "Since" }, time(session.peek().since)),
      h("td", { "data-label": "Seen" }, () => time(session.value.lastSeen))))));
}

// River -----------------------------------------------------------------------------------------------------------

/** @param {Set<string>} chosen none are all */
function riverPanel(chosen) {
  const kinds = signal(chosen);
  const paused = signal(false);
  const held = signal(false);
  const shown = signal(river.peek());
  /** Nothing moves under the pointer or the focus: newcomers wait until it leaves, or until they are asked for. */
  const isHeld = () => paused.value || held.value;
  const newcomers = () => (isHeld() ? river.value.indexOf(shown.value[0]) : 0);
  const flow = () => { if (!isHeld()) shown.value = river.peek(); };
  const catchUp = () => { shown.value = river.peek(); };
  for (const kind of KINDS) onCleanup(on(kind, flow));

  /** @param {string} kind */
  function toggle(kind) {
    const next = new Set(kinds.peek());
    if (!next.delete(kind)) next.add(kind);
    kinds.value = next;
    keepAddress("live", { kinds: [...next].join(",") });
  }
  const visible = () => shown.value.filter((event) => kinds.value.size === 0 || kinds.value.has(event.kind));
  return h("section", { class: "panel river", "aria-label": "What happens" },
    h("div", { class: "panel-head" }, h("h2", null, "What happens"),
      h("button", { type: "button", "aria-pressed": () => String(paused.value), onclick: () => batch(() => { paused.value = !paused.peek(); if (!paused.peek()) catchUp(); }) },
        () => (paused.value ? "Go on" : "Pause"))),
    h("div", { class: "chips", role: "group", "aria-label": "Kinds of events" }, KINDS.map((kind) =>
      h("button", { type: "button", class: "chip", "aria-pressed": () => String(kinds.value.has(kind)), onclick: () => toggle(kind) }, kind))),
    () => newcomers() > 0 && h("button", { type: "button", class: "newcomers", onclick: catchUp }, `${newcomers()} new`),
    h("ol", {
      class: "events", tabindex: 0, "aria-label": "Events, the newest first",
      onpointerenter: () => { held.value = true; }, onpointerleave: () => { held.value = false; flow(); },
      onfocusin: () => { held.value = true; }, onfocusout: () => { held.value = false; flow(); },
    }, list(visible, (event) => event.cursor, (event) => eventRow(event.peek()))),
    show(() => visible().length === 0, () => (kinds.peek().size
      ? h("p", { class: "quiet" }, "Nothing of this kind since the page was opened.")
      : empty("Nothing has happened since the page was opened.", "bascule send Jerry 'Are you there?'"))));
}

/** @param {any} event */
function eventRow(event) {
  const target = hrefOf(event);
  const words = [event.from ?? event.principal ?? event.agentId].filter(Boolean).map(who);
  const subject = [event.agentId && event.from ? `to ${event.agentId}` : "", event.status ?? "", event.text ?? ""].filter(Boolean).join(" · ");
  return h("li", { class: `event kind-${event.kind}` },
    time(event.at), " ",
    badge(event.kind, "off"), " ",
    h("span", { class: "event-name" }, visibleText(event.event)), " ",
    words.length > 0 && h("strong", null, visibleText(words[0])), " ",
    h("span", null, visibleText(subject)), " ",
    event.id && (target ? h("a", { href: target }, visibleText(shortId(event.id))) : h("span", { class: "quiet" }, visibleText(shortId(event.id)))));
}

/** Where an event's subject is shown. @param {{kind: string, id?: string}} event */
export function hrefOf({ kind, id }) {
  const pages = /** @type {Record<string, string>} */ ({ ticket: "tickets", approval: "approvals", run: "runs", game: "games", desktop: "evidence" });
  return id && pages[kind] ? address(`${pages[kind]}/${id}`) : null;
}

/** @param {string} id */
export const shortId = (id) => (id.length > 20 ? `${id.slice(0, 18)}\u2026` : id);
