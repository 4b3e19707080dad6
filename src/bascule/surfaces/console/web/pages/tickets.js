// @ts-check
/** Tickets: a list of thousands, one ticket as a timeline, conversations, and writing to an agent as the person. */
import { get } from "../api.js";
import { act } from "../proof.js";
import { batch, h, list, onCleanup, show, signal } from "../view.js";
import { badge, duration, empty, failure, loaded, resource, time, virtualList, visibleText } from "../widgets.js";
import { actionButton, address, bytes, counted, facts, heldList, keepAddress, number, onEvents, payload, perform, settled, shortId, stable, toneOf } from "./parts.js";

const STATUSES = ["pending", "delivered", "responded", "timeout", "cancelled"];
/** One page of the daemon; the next is asked for before the end is in sight. */
const PAGE = 500;
const CONVERSATIONS = 100;
const ROW_PX = 40;
/** Typing pauses this long before the daemon is asked. */
const TYPING_MS = 250;
const DRAFT = "bascule.draft.message";

// A ticket's id may be any word, so what is not a ticket begins with a character that ids cannot have.
export const page = {
  /** @param {string[]} params @param {URLSearchParams} query */
  render(params, query) {
    const [first, second] = params;
    if (first === "~new") return compose(query);
    if (first === "~conversations") return conversations();
    if (first === "~conversation") return conversation(second);
    return first ? ticketPage(first) : ticketList(query);
  },
};

/** @param {string} current */
function tabs(current) {
  const tab = (/** @type {string} */ name, /** @type {string} */ path) =>
    h("a", { href: address(path), "aria-current": name === current ? "page" : null }, name);
  return h("nav", { class: "tabs", "aria-label": "Tickets" },
    tab("All tickets", "tickets"), tab("Conversations", "tickets/~conversations"), tab("Write to an agent", "tickets/~new"));
}

// The list --------------------------------------------------------------------------------------------------------

/** @param {URLSearchParams} query */
function ticketList(query) {
  const filters = signal({ status: query.get("status") ?? "", agentId: query.get("agentId") ?? "", text: query.get("text") ?? "" });
  const items = signal(/** @type {any[]} */ ([]));
  const fresh = signal(/** @type {Set<string>} */ (new Set()));
  const failed = signal(/** @type {any} */ (null));
  const state = signal("asking");
  let turn = 0;

  /** @param {boolean} more */
  async function load(more) {
    const mine = ++turn;
    state.value = "asking";
    try {
      const known = more ? items.peek() : [];
      const got = await get("/tickets", { ...filters.peek(), before: known.at(-1)?.ticketId, limit: PAGE });
      if (mine !== turn) return;
      batch(() => {
        items.value = [...known, ...got];
        if (!more) fresh.value = new Set();
        failed.value = null;
        state.value = got.length < PAGE ? "end" : "more";
      });
    } catch (error) {
      if (mine === turn) batch(() => { failed.value = error; state.value = "failed"; });
    }
  }
  onCleanup(() => { turn++; });
  load(false);
  const again = settled(() => load(false), TYPING_MS);

  /** @param {string} name */
  const choose = (name) => (event) => {
    filters.value = { ...filters.peek(), [name]: event.target.value.trim() };
    keepAddress("tickets", filters.peek());
    again();
  };
  onEvents(["ticket"], (event) => {
    const known = items.peek();
    const at = known.findIndex((ticket) => ticket.ticketId === event.id);
    if (at < 0) fresh.value = new Set(fresh.peek()).add(event.id);
    else if (event.status && known[at].status !== event.status) items.value = known.with(at, { ...known[at], status: event.status });
  });

  const isFiltered = () => Object.values(filters.value).some(Boolean);
  return h("div", { class: "page fill" },
    tabs("All tickets"),
    h("div", { class: "filters", role: "search" },
      h("label", null, h("span", null, "Status"), h("select", { value: filters.peek().status, onchange: choose("status") },
        h("option", { value: "" }, "any"), STATUSES.map((status) => h("option", { value: status }, status)))),
      h("label", null, h("span", null, "To"), h("input", { type: "search", value: filters.peek().agentId, placeholder: "Jerry", oninput: choose("agentId") })),
      h("label", null, h("span", null, "Search"), h("input", { type: "search", value: filters.peek().text, placeholder: "id, handle, words", oninput: choose("text") })),
      h("span", { class: "muted", role: "status" }, () => `${number(items.value.length)}${state.value === "more" ? "+" : ""} tickets`),
      () => fresh.value.size > 0 && h("button", { type: "button", class: "newcomers", "data-key": "n", onclick: () => load(false) }, `${fresh.value.size} new`)),
    () => failed.value && failure(failed.value),
    show(() => items.value.length,
      () => virtualList(items, ROW_PX, ticketRow, { label: "Tickets", class: "tickets", onend: () => { if (state.peek() === "more") load(true); } }),
      () => () => state.value === "end" && (isFiltered()
        ? h("p", { class: "muted" }, "No ticket fits these filters.")
        : empty("No ticket yet: a ticket is a message that one agent sends to another.", "bridge-send Jerry 'Are you there?'"))));
}

/** @param {any} ticket */
const ticketRow = (ticket) => h("a", { class: "ticket-row", "data-row": "", href: address(`tickets/${ticket.ticketId}`) },
  badge(ticket.status, toneOf(ticket.status)),
  h("span", { class: "parties" }, visibleText(ticket.from), " \u2192 ", visibleText(ticket.targetAgent)),
  h("span", { class: "muted id" }, visibleText(shortId(ticket.ticketId))),
  h("span", { class: "muted size" }, bytes(ticket.payloadBytes)),
  time(ticket.createdAt));

// One ticket ------------------------------------------------------------------------------------------------------

/** @param {string} ticketId */
function ticketPage(ticketId) {
  const ticket = resource(() => get(`/tickets/${encodeURIComponent(ticketId)}`));
  const refresh = settled(ticket.reload);
  onEvents(["ticket"], (event) => { if (event.id === ticketId) refresh(); });
  return h("div", { class: "page" },
    tabs(""),
    h("h2", null, "Ticket ", h("code", null, visibleText(ticketId))),
    loaded(ticket, () => stable(() => ticket.value.value, (value) => timeline(value, ticket.reload))));
}

const DELIVERY = /** @type {Record<string, string>} */ ({
  queued: "Waits in the inbox of", rung: "Waits, and a bell was rung for", fetched: "Fetched, not acknowledged yet, by", acknowledged: "Delivered to",
});

/** @param {any} ticket @param {() => void} reload */
function timeline(ticket, reload) {
  const isOpen = ticket.status === "pending" || ticket.status === "delivered";
  const { delivery, replies = [] } = ticket;
  return h("div", { class: "stack" },
    facts([
      ["Status", [badge(ticket.status, toneOf(ticket.status)), ticket.late && " late"]],
      ["Group", ticket.group && visibleText(ticket.group)],
      ["Conversation", ticket.conversationId && h("a", { href: address(`tickets/~conversation/${ticket.conversationId}`) }, visibleText(ticket.conversationId))],
      ["Reply by", isOpen && ticket.expectReply && time(ticket.replyBy)],
      ["Reply", !ticket.expectReply && "none is expected"],
      ["Attempts", ticket.attempts > 1 && ticket.attempts],
    ]),
    h("ol", { class: "timeline" },
      step("Question from", ticket.from, ticket.createdAt, "info", [payload(ticket.payload, "Question"), metadata(ticket.metadata)]),
      delivery && step(DELIVERY[delivery.state] ?? delivery.state, ticket.targetAgent, delivery.at, delivery.state === "acknowledged" ? "ok" : "plain",
        delivery.by?.length > 0 && h("p", { class: "muted" }, "Bell: ", visibleText(delivery.by.join(", ")))),
      replies.map((reply) => step("Reply from", reply.from, reply.at, "ok", [
        (reply.late || Date.parse(reply.at) - Date.parse(ticket.createdAt) >= 1_000) && h("p", { class: "muted" }, `after ${duration(Date.parse(reply.at) - Date.parse(ticket.createdAt))}`, reply.late && ", late"),
        payload(reply.payload, "Reply"), metadata(reply.metadata)])),
      !replies.length && ticket.status === "responded" && step("Reply from", ticket.targetAgent, ticket.settledAt, "ok", payload(ticket.response, "Reply")),
      ticket.status === "timeout" && step("No reply in time", "", ticket.settledAt, "bad", h("p", { class: "muted" }, "A late reply would still be stored.")),
      ticket.status === "cancelled" && step("Cancelled", "", ticket.settledAt, "plain", ticket.reason && h("p", null, visibleText(ticket.reason)))),
    isOpen && h("div", { class: "actions" },
      ticket.targetAgent === "person" && h("a", { href: "#/approvals" }, "Answer it in the inbox"),
      actionButton("Cancel this ticket", async () => {
        await perform("tickets.cancel", "/tickets/{ticketId}/cancel", { ticketId: ticket.ticketId }, "Cancel this ticket");
        reload();
      }, { tone: "danger", key: "x" })));
}

/** @param {string} name @param {string} by @param {string | null} at @param {string} tone @param {any} body */
const step = (name, by, at, tone, body) => h("li", { class: `step ${tone}` },
  h("p", { class: "step-head" }, name, by && [" ", h("strong", null, visibleText(by))], " ", at && time(at)), body);

/** @param {Record<string, any> | null | undefined} value */
const metadata = (value) => value && Object.keys(value).length > 0
  && h("details", null, h("summary", null, "Metadata, as the sender wrote it"), payload(value, "Metadata"));

// Conversations ---------------------------------------------------------------------------------------------------

function conversations() {
  const found = heldList((before) => get("/conversations", { before, limit: CONVERSATIONS }), (item) => item.conversationId, CONVERSATIONS);
  onEvents(["ticket"], found.update);
  return h("div", { class: "page" },
    tabs("Conversations"),
    h("div", { class: "panel-head" }, found.newcomers()),
    loaded(found.source, () => show(() => found.rows.value.length,
      () => [h("ul", { class: "cards" }, list(found.rows, (item) => item.conversationId, (item) => h("li", { class: "card" },
        h("a", { "data-row": "", href: address(`tickets/~conversation/${item.peek().conversationId}`) }, visibleText(item.peek().conversationId)),
        h("p", { class: "muted" }, () => [counted(item.value.tickets, "ticket"), `, ${item.value.open} open · `, visibleText(item.value.members.join(", ")), " · ", time(item.value.lastAt)])))), found.olderButton("Older conversations")],
      () => empty("No conversation yet: tickets with the same conversation id are one.", "bridge-send Jerry 'And then?' --conversation plan"))));
}

/** @param {string} conversationId */
function conversation(conversationId) {
  const found = resource(() => get(`/conversations/${encodeURIComponent(conversationId)}`, { limit: 500 }));
  onEvents(["ticket"], settled(found.reload, 1_000));
  return h("div", { class: "page" },
    tabs("Conversations"),
    h("h2", null, "Conversation ", h("code", null, visibleText(conversationId))),
    h("p", null, h("a", { href: address("tickets/~new", { conversation: conversationId }) }, "Write into this conversation")),
    loaded(found, () => h("ol", { class: "timeline" }, list(() => found.value.value?.tickets ?? [], (ticket) => ticket.ticketId, (item) => {
      const ticket = item.peek();
      return h("li", { class: "step" },
        h("p", { class: "step-head" }, () => badge(item.value.status, toneOf(item.value.status)), " ",
          h("a", { "data-row": "", href: address(`tickets/${ticket.ticketId}`) }, visibleText(ticket.from), " \u2192 ", visibleText(ticket.targetAgent)), " ", time(ticket.createdAt)),
        payload(ticket.payload, "Message"),
        () => (item.value.replies ?? []).map((reply) => h("div", { class: "answer" },
          h("p", { class: "step-head" }, h("strong", null, visibleText(reply.from)), " ", time(reply.at)), payload(reply.payload, "Reply"))));
    }))));
}

// Writing ---------------------------------------------------------------------------------------------------------

/** @param {URLSearchParams} query */
function compose(query) {
  const agents = resource(() => get("/agents"));
  const words = signal({ to: "", text: "", conversation: "", reply: true, ...draft() });
  if (query.has("to")) words.value = { ...words.peek(), to: query.get("to") };
  if (query.has("conversation")) words.value = { ...words.peek(), conversation: query.get("conversation") };
  const sent = signal(/** @type {any} */ (null));
  /** @param {string} name @param {string} [from] */
  const type = (name, from = "value") => (event) => {
    words.value = { ...words.peek(), [name]: event.target[from] };
    // A reload, or a daemon that restarts, loses nothing typed.
    sessionStorage.setItem(DRAFT, JSON.stringify(words.peek()));
  };
  async function send() {
    const { to, text, conversation: conversationId, reply } = words.peek();
    sent.value = null;
    const params = { agentId: to.trim(), payload: text, ...(conversationId && { conversationId }), ...(!reply && { expectReply: false }) };
    const answer = await act("messages.send", "/agents/{agentId}/send", params, `Write to ${to} as yourself`);
    sessionStorage.removeItem(DRAFT);
    batch(() => {
      words.value = { ...words.peek(), text: "" };
      sent.value = { ...answer, to };
    });
  }
  return h("div", { class: "page" },
    tabs("Write to an agent"),
    h("form", { class: "form", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("p", { class: "muted" }, "The agent reads this as your own words, so it takes a touch or your passphrase."),
      h("label", null, h("span", null, "To"), h("input", { list: "agents-known", required: true, autocomplete: "off", value: () => words.value.to, oninput: type("to") })),
      h("datalist", { id: "agents-known" }, () => (agents.value.value ?? []).map((agent) => h("option", { value: agent.agentId }, agent.status))),
      h("label", null, h("span", null, "Message"), h("textarea", { rows: 6, required: true, value: () => words.value.text, oninput: type("text") })),
      h("label", null, h("span", null, "Conversation"), h("input", { value: () => words.value.conversation, placeholder: "none", oninput: type("conversation") })),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: () => words.value.reply, onchange: type("reply", "checked") }), " I want a reply"),
      h("div", { class: "actions" }, actionButton("Send", send, { tone: "primary", disabled: () => !words.value.to || !words.value.text })),
      h("div", { role: "status" }, () => sent.value && h("p", null,
        sent.value.agentStatus === "online" ? "Sent. " : `Queued: ${sent.value.to} is ${sent.value.agentStatus}. `,
        h("a", { href: address(`tickets/${sent.value.ticketId}`) }, "Follow the ticket")))));
}

/** @returns {any} */
function draft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT) ?? "{}");
  } catch {
    return {};
  }
}
