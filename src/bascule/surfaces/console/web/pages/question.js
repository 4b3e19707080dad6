// @ts-check
/** A question in words that an agent asked the person. An answer is an answer: it is never consent to anything. */
import { computed, h, onCleanup, show, signal } from "../view.js";
import { get } from "../api.js";
import { STATES, asker, entries, noteTicket, questionOf } from "../inbox.js";
import { act } from "../proof.js";
import { readUntilDone } from "./approval.js";
import { on } from "../stream.js";
import { badge, code, countdown, failure, json, kbd, time, visibleText } from "../widgets.js";

/** @type {Map<string, string>} */
const drafts = new Map();

/** @param {string} id @param {import("./approval.js").Tools} tools @returns {Node} */
export function questionDetail(id, tools) {
  const ticket = signal(/** @type {any} */ (null));
  const error = signal(/** @type {any} */ (null));
  const busy = signal(false);
  const load = async () => {
    ticket.value = await get(`/tickets/${encodeURIComponent(id)}`);
    noteTicket(ticket.peek());
    tools.deaf.changed();
  };
  readUntilDone(load, error);
  onCleanup(on("ticket", (item) => { if (item.id === id) load().catch((caught) => { error.value = caught; }); }));
  const state = computed(() => entries.value.get(id)?.state ?? "pending");

  const answer = async (/** @type {string} */ text) => {
    if (!tools.deaf.hears() || busy.peek() || !text.trim()) return;
    busy.value = true;
    error.value = null;
    try {
      await act("replies.post", "/replies", { ticketId: id, payload: text }, "Answer as yourself", {
        lines: [`To ${asker(ticket.peek())}`, text], yes: "Send", ended: () => state.value !== "pending",
      });
      drafts.delete(id);
      await load();
    } catch (caught) {
      if (/** @type {any} */ (caught)?.name !== "AbortError") error.value = caught;
    } finally {
      busy.value = false;
    }
  };

  return h("article", { class: "question" },
    show(error, () => failure(error.value)),
    show(ticket, () => {
      const view = ticket.peek();
      const { text, choices } = questionOf(view);
      /** @type {HTMLTextAreaElement} */
      let box;
      const plain = typeof view.payload === "string" || typeof view.payload?.question === "string";
      return h("div", { class: "question-inner" },
        h("header", { class: "question-head" },
          h("div", { class: "row-top" }, h("strong", { class: "who" }, visibleText(asker(view))), h("span", { class: "muted" }, "asks you"), badge("question", "info"),
            h("span", { class: "grow" }), show(() => state.value === "pending", () => h("span", { class: "until muted" }, "answer within ", countdown(view.replyBy)))),
          h("p", { class: "muted" }, "Your answer goes to the agent as a message. It permits nothing: what a rule asks about is asked apart.")),
        h("div", { class: "question-frame" }, h("div", { class: "question-body", tabindex: 0, role: "region", "aria-label": "Question" },
          plain ? code(text, { class: "prose" }) : json(view.payload),
          h("p", { class: "muted" }, "Asked ", time(view.createdAt), " · ", h("a", { href: `#/tickets/${encodeURIComponent(id)}` }, id)))),
        show(() => state.value === "pending", () => h("div", { class: () => `answers ${tools.deaf.now.value ? "deaf" : ""}` },
          choices.length ? h("div", { class: "choices", tabindex: 0, role: "group", "aria-label": "Answers to choose from" }, choices.map((item) => h("button", { type: "button", onclick: () => answer(item) }, visibleText(item)))) : null,
          h("label", { class: "words", "data-key": "r" }, h("span", null, choices.length ? "Or in your words" : "Your answer", " ", kbd("r")), h("textarea", {
            "aria-keyshortcuts": "r",
            rows: 3, value: drafts.get(id) ?? "", ref: (/** @type {any} */ element) => { box = element; }, oninput: () => drafts.set(id, box.value),
            onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) answer(box.value); },
          })),
          h("div", { class: "actions" },
            h("button", { class: "primary", type: "button", disabled: () => busy.value, onclick: () => answer(box.value) }, () => (busy.value ? "Waiting for you…" : "Send the answer")),
            h("button", { class: "quiet", type: "button", onclick: () => tools.goNext() }, "Not now"))),
        () => h("div", { class: "answered", role: "status" }, () => badge(...(STATES[state.value] ?? [state.value, "plain"])), " ",
          () => (ticket.value?.response !== undefined ? h("span", null, "“", visibleText(ticket.value.response), "”") : null),
          h("button", { type: "button", "data-key": "j", "aria-keyshortcuts": "j", onclick: () => tools.goNext() }, kbd("j"), "Next question"))));
    }));
}
