// @ts-check
/** One question of the gate, or several alike: who, what, by which rule, how it looks, and the answers. */
import { computed, effect, h, list, onCleanup, show, signal, untrack } from "../view.js";
import { get } from "../api.js";
import { RETRY_MS, STATES, entries, isPassing, noteApproval, noteState } from "../inbox.js";
import { MAX_CALLS_PER_PROOF, prove, send } from "../proof.js";
import { badge, code, countdown, failure, kbd, picture, second, skewMs, time, toast, visibleText } from "../widgets.js";

/** @typedef {{deaf: import("../widgets.js").Deaf, goNext: () => void, apart: (() => void) | null}} Tools */
/** @typedef {{scope: "once" | "run" | "rule", offer?: number, minutes: number}} Choice */

const DECIDE = "/v1/approvals/{approvalId}/decision";
const MAX_MINUTES = 480;
const MAX_REASON_CHARS = 1_000;
/** What the person typed as a reason, kept while they look elsewhere. @type {Map<string, string>} */
const drafts = new Map();

/** @param {string[]} ids @param {Tools} tools @returns {Node} */
export function approvalDetail(ids, tools) {
  /** @type {import("../view.js").Signal<Map<string, any>>} */
  const views = signal(new Map());
  const error = signal(/** @type {any} */ (null));
  const read = async (/** @type {string} */ id) => {
    const view = await get(`/v1/approvals/${encodeURIComponent(id)}`);
    views.value = new Map(views.peek()).set(id, view);
    tools.deaf.changed();
    noteApproval(view);
  };
  readUntilDone(async (isOver) => {
    for (const id of ids) if (!isOver() && !views.peek().has(id)) await read(id);
  }, error);

  const all = computed(() => ids.map((id) => views.value.get(id)).filter(Boolean));
  const unfinished = signal(0);
  const complete = computed(() => all.value.length === ids.length && unfinished.value === 0);
  // Answered in another tab, in the terminal, or by the clock: it is said here, in place, and the buttons go. Of several
  // alike each has its own end.
  const states = new Map(ids.map((id) => [id, computed(() => {
    const view = views.value.get(id);
    const state = entries.value.get(id)?.state ?? view?.state ?? "pending";
    return state === "pending" && view && Date.parse(view.expiresAt) <= second.value + skewMs.value ? "expired" : state;
  })]));
  const stateOf = (/** @type {string} */ id) => states.get(id)?.value ?? "pending";
  const open = computed(() => ids.filter((id) => stateOf(id) === "pending"));
  // The number, not the list: a list is a new one whenever any question changes, and the buttons would stay deaf.
  const openCount = computed(() => open.value.length);
  effect(() => { openCount.value; untrack(() => tools.deaf.changed()); });

  const body = signal(/** @type {HTMLElement | null} */ (null));
  const seenAll = scrolledThrough(body, complete);
  const skipped = signal(/** @type {Set<string>} */ (new Set()));
  const picked = computed(() => open.value.filter((id) => !skipped.value.has(id)));

  return h("article", { class: "question" },
    show(error, () => failure(error.value)),
    show(() => all.value.length > 0, () => h("div", { class: "question-inner" },
      heading(all.peek()[0], ids.length, tools, computed(() => all.value.filter((view) => stateOf(view.approvalId) === "pending").map((view) => view.expiresAt).sort()[0] ?? "")),
      h("div", { class: "question-frame" }, h("div", { class: "question-body", tabindex: 0, role: "region", "aria-label": "What it would do", ref: (/** @type {HTMLElement} */ element) => { body.value = element; } },
        list(all, (view) => view.approvalId, (view) => one(view.peek(), ids.length > 1 ? all.peek()[0] : null, skipped, stateOf, unfinished)),
        show(complete, () => history(all.peek()[0]))),
        // Over the preview, not beside the buttons: when it goes, nothing moves.
        show(() => complete.value && open.value.length && !seenAll.value, () => h("p", { class: "scroll-hint" }, "Scroll through all of it to approve"))),
      show(openCount, () => answers({ ids, all, picked, complete, seenAll, tools, read, stateOf }),
        () => h("div", { class: "answered", role: "status" }, () => outcome(ids, stateOf, all.value),
          h("button", { type: "button", "data-key": "j", "aria-keyshortcuts": "j", onclick: () => tools.goNext() }, kbd("j"), "Next question"))))));
}

/**
 * Runs `work` now, and again after a while when it fails in passing; the error is shown meanwhile.
 * @param {(isOver: () => boolean) => Promise<void>} work @param {import("../view.js").Signal<any>} error
 */
export function readUntilDone(work, error) {
  let timer = 0;
  let ended = false;
  onCleanup(() => { ended = true; clearTimeout(timer); });
  const attempt = async (/** @type {number} */ failures) => {
    try {
      await work(() => ended);
      if (failures) error.value = null;
    } catch (caught) {
      if (ended) return;
      const passing = isPassing(caught) && /** @type {any} */ (caught)?.status !== 404;
      error.value = passing ? { message: `This could not be read: ${/** @type {any} */ (caught)?.message}`, hint: "Trying again." } : caught;
      if (passing) timer = setTimeout(() => attempt(failures + 1), RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    }
  };
  attempt(0);
}

/** @param {any} view @param {number} count @param {Tools} tools @param {import("../view.js").Signal<string>} until the first end of those that wait */
function heading(view, count, tools, until) {
  return h("header", { class: "question-head" },
    h("div", { class: "row-top" },
      h("strong", { class: "who" }, visibleText(view.principal)), h("span", { class: "muted" }, "wants"), h("code", null, visibleText(view.method)),
      count > 1 ? badge(`×${count}`, "info") : null,
      h("span", { class: "grow" }), show(until, () => h("span", { class: "until muted" }, "answer within ", () => countdown(until.value)))),
    count > 1 ? h("p", null, `${count} questions alike. `, h("button", { class: "quiet", type: "button", onclick: () => tools.apart?.() }, "Show them one by one"))
      : h("h2", { class: "summary" }, visibleText(view.summary)));
}

/** @param {any} view @param {any} first of the group, which says what is the same for all @param {import("../view.js").Signal<Set<string>>} skipped @param {(id: string) => string} stateOf @param {import("../view.js").Signal<number>} unfinished */
function one(view, first, skipped, stateOf, unfinished) {
  const id = view.approvalId;
  const blocks = view.blocks ?? (view.preview ? [{ kind: "text", lines: view.preview.split("\n").map((/** @type {string} */ text) => ({ text })) }] : []);
  // The daemon's own preview often says it; once is enough.
  const said = blocks.some((/** @type {any} */ block) => block.lines?.some((/** @type {any} */ line) => line.text.startsWith(`rule: ${view.rule}`)));
  return h("section", { class: "one" },
    first ? h("label", { class: "pick" }, h("input", { type: "checkbox", checked: () => !skipped.value.has(id), disabled: () => stateOf(id) !== "pending", onchange: (/** @type {any} */ event) => {
      const next = new Set(skipped.peek());
      if (event.target.checked) next.delete(id); else next.add(id);
      skipped.value = next;
    } }), h("strong", null, visibleText(view.summary)), () => (stateOf(id) === "pending" ? null : badge(...(STATES[stateOf(id)] ?? [stateOf(id), "plain"])))) : null,
    blocks.map((/** @type {any} */ block) => blockView(block, unfinished)),
    view.hasPicture || view.picture ? picture(`/v1/approvals/${encodeURIComponent(id)}/picture`, "Where it would act, marked") : null,
    h("div", { class: "end-of-preview", "aria-hidden": "true" }),
    h("dl", { class: "facts" },
      said || (first && first !== view && first.rule === view.rule && first.reason === view.reason) ? null
        : [h("dt", null, "Rule"), h("dd", null, h("code", null, visibleText(view.rule)), " ", visibleText(view.reason))],
      view.suggestion ? [h("dt", null, "Instead"), h("dd", null, visibleText(view.suggestion))] : null,
      view.runId ? [h("dt", null, "Run"), h("dd", null, h("a", { href: `#/runs/${encodeURIComponent(view.runId)}` }, view.runId))] : null,
      h("dt", null, "Digest"), h("dd", null, h("code", { title: view.digest }, groups(view.digest)), " ", h("span", { class: "muted" }, id)),
      first ? null : [h("dt", null, "Asked"), h("dd", null, time(view.askedAt), view.waiting ? `, ${view.waiting} waiting for the answer` : view.runId ? ", its run waits" : ", nobody waits just now: the agent may ask again")]));
}

const BLOCK_TITLES = /** @type {Record<string, string>} */ ({ command: "Command", diff: "Change", keys: "Keys", text: "Text", facts: "Facts" });

/** @param {{kind: string, title?: string, lines: {mark?: string, text: string}[]}} block @param {import("../view.js").Signal<number>} unfinished */
function blockView(block, unfinished) {
  return h("figure", { class: `block block-${BLOCK_TITLES[block.kind] ? block.kind : "text"}` },
    h("figcaption", null, visibleText(block.title || BLOCK_TITLES[block.kind] || "Text")), code(block.lines ?? [], { unfinished }));
}

/** @param {any} view */
function history(view) {
  const past = view.history;
  if (!past) return null;
  return h("section", { class: "history" },
    h("p", null, h("strong", null, visibleText(view.principal)), past.asked === 1 ? " asks for the first time." : ` has asked ${past.asked} times: ${past.approved} approved, ${past.denied} denied, ${past.expired} expired.`),
    past.recent?.length ? h("ul", null, past.recent.map((/** @type {any} */ item) => h("li", null,
      badge(...(STATES[item.state] ?? [item.state, "plain"])), " ", visibleText(item.summary), " ", h("span", { class: "muted" }, time(item.at))))) : null);
}

/** "2051 5f6b ...": what a person can compare with the terminal. @param {string} digest */
const groups = (digest) => digest.slice(0, 16).replaceAll(/(.{4})(?=.)/g, "$1 ");

/** What a line or two more or less than a screen is: rounding, and a hint that covers the edge. */
const SEAM_PX = 8;

/**
 * Whether every part of a long preview has been in sight, from its begin to its end: a jump to the end passes over
 * what it hides, and counts for nothing. A short one is seen at once.
 * @param {import("../view.js").Signal<HTMLElement | null>} box @param {import("../view.js").Signal<boolean>} complete
 */
function scrolledThrough(box, complete) {
  const seen = signal(false);
  effect(() => {
    const element = box.value;
    if (!element || !complete.value || seen.peek()) return;
    const last = [...element.querySelectorAll(".end-of-preview")].at(-1);
    let seenTo = 0;
    const look = () => {
      const { scrollTop, clientHeight } = element;
      if (!last || !clientHeight || scrollTop > seenTo + SEAM_PX) return;
      seenTo = Math.max(seenTo, scrollTop + clientHeight);
      const end = last.getBoundingClientRect().top - element.getBoundingClientRect().top + scrollTop;
      if (end <= seenTo + SEAM_PX) seen.value = true;
    };
    const watcher = new ResizeObserver(look);
    watcher.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    onCleanup(() => {
      watcher.disconnect();
      element.removeEventListener("scroll", look);
    });
  });
  return seen;
}

/** @param {string[]} ids @param {(id: string) => string} stateOf @param {any[]} all */
function outcome(ids, stateOf, all) {
  const counts = /** @type {Record<string, number>} */ ({});
  for (const id of ids) {
    const state = stateOf(id);
    counts[state] = (counts[state] ?? 0) + 1;
  }
  const reason = all[0]?.decidedReason;
  return [Object.entries(counts).map(([state, count]) => [badge(...(STATES[state] ?? [state, "plain"])), ids.length > 1 ? ` ${count} ` : " "]),
    all[0]?.decidedAt ? time(all[0].decidedAt) : null, reason ? [" “", visibleText(reason), "”"] : null, " "];
}

/**
 * @param {{ids: string[], all: import("../view.js").Signal<any[]>, picked: import("../view.js").Signal<string[]>,
 *   complete: import("../view.js").Signal<boolean>, seenAll: import("../view.js").Signal<boolean>, tools: Tools, read: (id: string) => Promise<void>, stateOf: (id: string) => string}} given
 */
function answers({ ids, all, picked, complete, seenAll, tools, read, stateOf }) {
  const view = all.peek()[0];
  const single = ids.length === 1;
  const choice = signal(/** @type {Choice} */ ({ scope: "once", minutes: 10 }));
  const words = signal(drafts.has(view.approvalId));
  const busy = signal("");
  const error = signal(/** @type {any} */ (null));
  const offers = single ? view.offers ?? [] : [];
  const shut = computed(() => (!complete.value ? "Loading…" : !seenAll.value ? "Scroll through the whole preview first" : picked.value.length ? "" : "Nothing is ticked"));

  const run = async (/** @type {string} */ name, /** @type {() => Promise<void>} */ work) => {
    if (!tools.deaf.hears() || busy.peek()) return;
    busy.value = name;
    error.value = null;
    try {
      await work();
    } catch (caught) {
      const failed = /** @type {any} */ (caught);
      if (failed?.name !== "AbortError") error.value = failed;
      // Answered elsewhere or expired meanwhile: show what is true now.
      if (failed?.status === 409 || failed?.status === 404) await Promise.all(ids.map(read)).catch(() => {});
    } finally {
      busy.value = "";
      tools.deaf.changed();
    }
  };

  /** @param {string} decision @param {Record<string, any>} more */
  const decide = async (decision, more) => {
    const chosen = picked.peek().slice(0, MAX_CALLS_PER_PROOF);
    const calls = chosen.map((approvalId) => ({ method: "approvals.decide", params: { approvalId, decision, ...more } }));
    const fresh = decision === "approved" || more.reason;
    const shown = all.peek().filter((item) => chosen.includes(item.approvalId));
    const proof = fresh ? await prove(calls, decision === "approved" ? `Approve ${chosen.length === 1 ? "this" : `these ${chosen.length}`}` : "Deny, with your words", {
      lines: [`${view.principal} · ${view.method}`, ...shown.map((item) => `${item.summary}  (${groups(item.digest)})`), decision === "approved" ? inWords(choice.peek(), offers) : more.reason],
      yes: decision === "approved" ? "Approve" : "Deny",
      ended: () => chosen.some((id) => stateOf(id) !== "pending"),
    }) : undefined;
    for (const { params } of calls) {
      const result = await send(DECIDE, params, { proof });
      noteState(result.approvalId, result.state);
      if (result.rule) toast(`Allowed until ${new Date(result.rule.expiresAt).toLocaleTimeString()}: ${result.rule.text}`, "ok");
    }
    drafts.delete(view.approvalId);
    await Promise.all(chosen.map(read)).catch(() => {});
  };

  const approve = () => {
    if (shut.peek()) return void (error.value = { message: shut.peek() });
    const { scope, offer, minutes } = choice.peek();
    run("approve", () => decide("approved", scope === "once" ? {} : scope === "run" ? { scope } : { scope, offer, minutes }));
  };
  const deny = () => run("deny", () => decide("denied", {}));
  const denyWithWords = () => {
    const reason = (drafts.get(view.approvalId) ?? "").trim();
    if (!words.peek()) words.value = true;
    else if (reason) run("words", () => decide("denied", { reason }));
  };
  const radio = (/** @type {Choice["scope"]} */ scope, /** @type {number | undefined} */ offer, /** @type {any[]} */ ...label) => h("label", { class: "scope" },
    h("input", { type: "radio", name: "scope", checked: () => choice.value.scope === scope && choice.value.offer === offer, onchange: () => { choice.value = { ...choice.peek(), scope, offer }; } }),
    h("span", null, label));

  return h("div", { class: () => `answers ${tools.deaf.now.value ? "deaf" : ""}` },
    show(error, () => failure(error.value)),
    single && (view.runId || offers.length) ? h("fieldset", { class: "scopes" }, h("legend", { class: "sr-only" }, "For how long"),
      radio("once", undefined, "this once"),
      view.runId ? radio("run", undefined, "everything that this run asks") : null,
      offers.map((/** @type {any} */ offer) => radio("rule", offer.number, h("strong", null, visibleText(offer.title)), " for ",
        h("input", { type: "number", min: 1, max: MAX_MINUTES, "aria-label": "minutes", value: String(choice.peek().minutes), oninput: (/** @type {any} */ event) => {
          const minutes = Math.min(MAX_MINUTES, Math.max(1, Math.round(Number(event.target.value)) || 10));
          choice.value = { scope: "rule", offer: offer.number, minutes };
        } }), " min: ", h("span", { class: "rule-text", title: offer.text }, visibleText(offer.words ?? offer.text))))) : null,
    show(words, () => h("label", { class: "words" }, h("span", null, "Why not? The agent reads this as your word."), h("textarea", {
      rows: 2, maxlength: MAX_REASON_CHARS, value: drafts.get(view.approvalId) ?? "", oninput: (/** @type {any} */ event) => drafts.set(view.approvalId, event.target.value),
      ref: (/** @type {HTMLElement} */ element) => queueMicrotask(() => element.focus()),
      onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) denyWithWords(); },
    }))),
    h("div", { class: "actions" },
      h("button", { class: "primary", type: "button", "data-key": "a", "aria-keyshortcuts": "a", "aria-disabled": () => (shut.value || busy.value ? "true" : null), title: shut, onclick: approve },
        kbd("a"), () => (busy.value === "approve" ? "Waiting for you…" : single ? inButton(choice.value, view.lasts) : `Approve ${picked.value.length}`)),
      h("button", { class: "danger", type: "button", "data-key": "d", "aria-keyshortcuts": "d", "aria-disabled": () => (busy.value ? "true" : null), onclick: deny }, kbd("d"), () => (single ? "Deny" : `Deny ${picked.value.length}`)),
      h("button", { type: "button", "data-key": "r", "aria-keyshortcuts": "r", onclick: denyWithWords }, kbd("r"), () => (words.value ? "Send these words" : "Deny with words")),
      h("button", { class: "quiet", type: "button", onclick: () => tools.goNext() }, "Not now")));
}

/** @param {Choice} choice @param {string} [lasts] what a yes holds for, where that is more than one call */
const inButton = (choice, lasts) => (choice.scope === "once" ? (lasts ? `Approve ${lasts}` : "Approve once") : choice.scope === "run" ? "Approve for this run" : `Approve, and allow for ${choice.minutes} min`);

/** @param {Choice} choice @param {any[]} offers */
function inWords(choice, offers) {
  if (choice.scope === "once") return "This once.";
  if (choice.scope === "run") return "Everything that this run asks.";
  return `And for ${choice.minutes} min: ${offers.find(({ number }) => number === choice.offer)?.text ?? ""}`;
}
