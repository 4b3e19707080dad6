// @ts-check
/** Tickets: a list of thousands, one ticket as a timeline, conversations, and writing to an agent as the person. */
import { get } from "../api.js";
import { act } from "../proof.js";
import { h, list, onCleanup, show, signal } from "../view.js";
import { badge, empty, time, virtualList, visibleText } from "../widgets.js";
import { shortId } from "./live.js";
import { actionButton, address, bytes, duration, facts, keepAddress, onEvents, payload, perform, problem, resource, settled, toneOf, waiting, who } from "./parts.js";

const STATUSES = ["pending", "delivered", "responded", "timeout", "cancelled"];
/** One page of the daemon; the next is asked for before the end is in sight. */
const PAGE = 500;
const ROW_PX = 44;
const DRAFT = "bascule.draft.message";

// A ticket's id may be any word, so what is no ticket begins with a character that ids cannot have.
export const page = {
  path: "tickets",
  title: "Tickets",
  key: "t",
  /** @param {string[]} params @param {URLSearchParams} query */
  render(params, query) {
    const [first, second] = params;
    if (first === "~new") return compose(query);
    if (first === "~conversations") return conversations();
    if (first === "~conversation") return conversation(second);
    return first ? ticketPage(first) : ticketList(query);
  },
};

function tabs(/** @type {string} */ current) {
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
  const fresh = signal(0);
  const failure = signal(/** @type {any} */ (null));
  const state = signal("asking");
  let turn = 0;

  /** @param {boolean} more */
  async function load(more) {
    const mine = ++turn;
    state.value = "asking";
    try {
      const before = more ? items.peek()[items.peek().length - 1]?.ticketId : undefined;
      const got = await get("/tickets", { ...filled(filters.peek()), before, limit: PAGE });
      if (mine !== turn) return;
      items.value = more ? [...items.peek(), ...got] : got;
      if (!more) fresh.value = 0;
      failure.value = null;
      state.value = got.length < PAGE ? "end" : "more";
    } catch (error) {
      if (mine === turn) [failure.value, state.value] = [error, "failed"];
    }
  }
  onCleanup(() => { turn++; });
  load(false);
  const again = settled(() => load(false), 200);

  /** @param {string} name @param {string} value */
  function choose(name, value) {
    filters.value = { ...filters.peek(), [name]: value };
    keepAddress("tickets", filters.peek());
    again();
  }
  onEvents(["ticket"], (event) => {
    const known = items.peek();
    const at = known.findIndex((ticket) => ticket.ticketId === event.id);
    if (at < 0) fresh.value += 1;
    else if (event.status && known[at].status !== event.status) items.value = known.with(at, { ...known[at], status: event.status, updatedAt: event.at });
  });

  return h("div", { class: "page tickets" },
    tabs("All tickets"),
    h("div", { class: "filters", role: "search" },
      h("label", null, "Status ", h("select", { value: filters.peek().status, onchange: (/** @type {any} */ event) => choose("status", event.target.value) },
        h("option", { value: "" }, "any"), STATUSES.map((status) => h("option", { value: status }, status)))),
      h("label", null, "To ", h("input", { value: filters.peek().agentId, size: 12, placeholder: "Jerry", oninput: (/** @type {any} */ event) => choose("agentId", event.target.value.trim()) })),
      h("label", { class: "grow" }, "Search ", h("input", { type: "search", "data-search": true, value: filters.peek().text, placeholder: "id, handle, words", oninput: (/** @type {any} */ event) => choose("text", event.target.value.trim()) })),
      h("output", { class: "quiet" }, () => `${items.value.length}${state.value === "more" ? "+" : ""} tickets`)),
    () => failure.value && problem(failure.value),
    () => fresh.value > 0 && h("button", { type: "button", class: "newcomers", onclick: () => load(false) }, `${fresh.value} new`),
    show(() => items.value.length > 0,
      () => virtualList(items, ROW_PX, ticketRow, { label: "Tickets", onEnd: () => { if (state.peek() === "more") load(true); } }),
      () => () => state.value === "end" && (Object.values(filters.value).some(Boolean)
        ? h("p", { class: "quiet" }, "No ticket fits these filters.")
        : empty("No ticket yet: a ticket is a message that one agent sends to another.", "bascule send Jerry 'Are you there?'"))));
}

/** @param {Record<string, string>} filters */
const filled = (filters) => Object.fromEntries(Object.entries(filters).filter(([, value]) => value));

/** @param {any} ticket */
function ticketRow(ticket) {
  return h("a", { class: "ticket-row", href: address(`tickets/${ticket.ticketId}`) },
    badge(ticket.status, toneOf(ticket.status)),
    h("span", { class: "parties" }, h("strong", null, visibleText(who(ticket.from))), " \u2192 ", h("strong", null, visibleText(ticket.targetAgent))),
    h("span", { class: "quiet id" }, visibleText(shortId(ticket.ticketId))),
    h("span", { class: "quiet size" }, bytes(ticket.payloadBytes)),
    time(ticket.createdAt));
}

// One ticket ------------------------------------------------------------------------------------------------------

/** @param {string} ticketId */
function ticketPage(ticketId) {
  const ticket = resource(() => get(`/tickets/${encodeURIComponent(ticketId)}`));
  const refresh = settled(ticket.reload);
  onEvents(["ticket"], (event) => { if (event.id === ticketId) refresh(); });
  return h("div", { class: "page" },
    tabs(""),
    h("h2", null, "Ticket ", h("code", null, visibleText(ticketId))),
    waiting(ticket),
    () => ticket.data.value && timeline(ticket.data.value, ticket.reload));
}

/** @param {any} ticket @param {() => void} reload */
function timeline(ticket, reload) {
  const isOpen = ticket.status === "pending" || ticket.status === "delivered";
  const replies = ticket.replies ?? [];
  return h("div", { class: "stack" },
    facts([
      ["Status", [badge(ticket.status, toneOf(ticket.status)), ticket.late && " answered late"]],
      ["From", visibleText(who(ticket.from))],
      ["To", [visibleText(ticket.targetAgent), ticket.group && ` (sent to the group ${ticket.group})`]],
      ["Conversation", ticket.conversationId && h("a", { href: address(`tickets/~conversation/${ticket.conversationId}`) }, visibleText(ticket.conversationId))],
      ["Reply by", isOpen && ticket.expectReply && time(ticket.replyBy)],
      ["Attempts", ticket.attempts > 1 && ticket.attempts],
    ]),
    h("ol", { class: "timeline" },
      step("Question", ticket.createdAt, who(ticket.from), [payload(ticket.payload, "Question"), metadata(ticket.metadata)]),
      ticket.delivery && step(DELIVERY[/** @type {keyof DELIVERY} */ (ticket.delivery.state)] ?? ticket.delivery.state, ticket.delivery.at, ticket.targetAgent,
        ticket.delivery.by?.length ? h("p", { class: "quiet" }, "Bell: ", visibleText(ticket.delivery.by.join(", "))) : null),
      replies.map((/** @type {any} */ reply, /** @type {number} */ index) => step(index ? "Another reply" : "Reply", reply.at, who(reply.from),
        [h("p", { class: "quiet" }, `after ${duration(Date.parse(reply.at) - Date.parse(ticket.createdAt))}`, reply.late && ", late"), payload(reply.payload, "Reply"), metadata(reply.metadata)])),
      !replies.length && ticket.status === "responded" && step("Reply", ticket.settledAt, ticket.targetAgent, payload(ticket.response, "Reply")),
      ticket.status === "timeout" && step("No reply in time", ticket.settledAt, "", h("p", { class: "quiet" }, "A late reply is still stored.")),
      ticket.status === "cancelled" && step("Cancelled", ticket.settledAt, "", ticket.reason && h("p", null, visibleText(ticket.reason)))),
    isOpen && h("div", { class: "actions" },
      ticket.targetAgent === "person" && h("a", { class: "button", href: "#/approvals" }, "Answer it in the inbox"),
      actionButton("Cancel this ticket", async () => {
        await perform("tickets.cancel", "/tickets/{ticketId}/cancel", { ticketId: ticket.ticketId }, "Cancel this ticket");
        reload();
      }, { tone: "danger" })));
}

const DELIVERY = { queued: "Waits in the inbox", rung: "Waits, and a bell was rung", fetched: "Fetched, not acknowledged yet", acknowledged: "Delivered" };

/** @param {string} name @param {string | null | undefined} at @param {string} by @param {any} body */
function step(name, at, by, body) {
  return h("li", { class: "step" },
    h("p", { class: "step-head" }, h("strong", null, name), " ", by && visibleText(by), " ", at && time(at)),
    body);
}

/** @param {Record<string, any> | null | undefined} value */
function metadata(value) {
  if (!value || !Object.keys(value).length) return null;
  return h("details", null, h("summary", null, "Metadata, as the sender wrote it"), payload(value, "Metadata"));
}

// Conversations ---------------------------------------------------------------------------------------------------

function conversations() {
  const found = resource(() => get("/conversations", { limit: 200 }));
  onEvents(["ticket"], settled(found.reload, 1_000));
  return h("div", { class: "page" },
    tabs("Conversations"),
    waiting(found),
    show(() => found.data.value?.length, () => h("ul", { class: "cards" }, list(() => found.data.value ?? [], (item) => item.conversationId, (item) =>
      h("li", { class: "card" },
        h("a", { href: address(`tickets/~conversation/${item.peek().conversationId}`) }, visibleText(item.peek().conversationId)),
        h("p", { class: "quiet" }, () => `${item.value.tickets} tickets, ${item.value.open} open, `, () => visibleText(item.value.members.map(who).join(", ")), " ", () => time(item.value.lastAt)))))),
    show(() => found.data.value?.length === 0, () => empty("No conversation yet: tickets with the same conversation id are one.", "bascule send Jerry 'And then?' --conversation plan")));
}

/** @param {string} conversationId */
function conversation(conversationId) {
  const found = resource(() => get(`/conversations/${encodeURIComponent(conversationId)}`, { limit: 500 }));
  onEvents(["ticket"], settled(found.reload, 1_000));
  return h("div", { class: "page" },
    tabs("Conversations"),
    h("h2", null, "Conversation ", h("code", null, visibleText(conversationId))),
    h("p", null, h("a", { href: address("tickets/~new", { conversation: conversationId }) }, "Write into this conversation")),
    waiting(found),
    h("ol", { class: "timeline" }, list(() => found.data.value?.tickets ?? [], (ticket) => ticket.ticketId, (item) => {
      const ticket = item.peek();
      return h("li", { class: "step" },
        h("p", { class: "step-head" }, () => badge(item.value.status, toneOf(item.value.status)), " ",
          h("a", { href: address(`tickets/${ticket.ticketId}`) }, visibleText(who(ticket.from)), " \u2192 ", visibleText(ticket.targetAgent)), " ", time(ticket.createdAt)),
        payload(ticket.payload, "Message"),
        () => (item.value.replies ?? []).map((/** @type {any} */ reply) => h("div", { class: "answer" },
          h("p", { class: "step-head" }, h("strong", null, visibleText(who(reply.from))), " ", time(reply.at)), payload(reply.payload, "Reply"))));
    })));
}

// Writing ---------------------------------------------------------------------------------------------------------

/** @param {URLSearchParams} query */
function compose(query) {
  const agents = resource(() => get("/agents"));
  const kept = draft();
  const words = signal(/** @type {{to: string, text: string, conversation: string, reply: boolean}} */ ({
    to: query.get("to") ?? kept.to ?? "", text: kept.text ?? "", conversation: query.get("conversation") ?? kept.conversation ?? "", reply: kept.reply ?? true,
  }));
  const sent = signal(/** @type {any} */ (null));
  /** @param {Record<string, any>} change */
  function type(change) {
    words.value = { ...words.peek(), ...change };
    // A reload, or a daemon that restarts, loses nothing typed.
    sessionStorage.setItem(DRAFT, JSON.stringify(words.peek()));
  }
  async function send() {
    const { to, text, conversation: conversationId, reply } = words.peek();
    sent.value = null;
    const params = { agentId: to, payload: text, ...(conversationId && { conversationId }), ...(!reply && { expectReply: false }) };
    const answer = await act("messages.send", "/agents/{agentId}/send", params, `Write to ${to} as yourself`);
    sessionStorage.removeItem(DRAFT);
    words.value = { ...words.peek(), text: "" };
    sent.value = answer;
  }
  return h("div", { class: "page" },
    tabs("Write to an agent"),
    h("form", { class: "form", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      h("p", { class: "quiet" }, "The agent reads this as your own words, so it takes a touch or your passphrase."),
      h("label", null, "To", h("input", { list: "agents-known", required: true, autocomplete: "off", value: () => words.value.to, oninput: (/** @type {any} */ event) => type({ to: event.target.value.trim() }) })),
      h("datalist", { id: "agents-known" }, () => (agents.data.value ?? []).map((/** @type {any} */ agent) => h("option", { value: agent.agentId }, agent.status))),
      h("label", null, "Message", h("textarea", { rows: 6, required: true, value: () => words.value.text, oninput: (/** @type {any} */ event) => type({ text: event.target.value }) })),
      h("label", null, "Conversation", h("input", { value: () => words.value.conversation, placeholder: "none", oninput: (/** @type {any} */ event) => type({ conversation: event.target.value.trim() }) })),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: () => words.value.reply, onchange: (/** @type {any} */ event) => type({ reply: event.target.checked }) }), " I want a reply"),
      h("div", { class: "actions" }, actionButton("Send", send, { tone: "primary", disabled: () => !words.value.to || !words.value.text })),
      () => sent.value && h("p", { class: "note good", role: "status" },
        sent.value.agentStatus === "online" ? "Sent. " : `Queued: ${words.peek().to} is ${sent.value.agentStatus}. `,
        h("a", { href: address(`tickets/${sent.value.ticketId}`) }, "Follow the ticket"))));
}

/** @returns {any} */
function draft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT) ?? "{}");
  } catch {
    return {};
  }
}
