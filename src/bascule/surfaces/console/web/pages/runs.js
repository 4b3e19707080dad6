// @ts-check
/** Runs: what agents did in spaces. One run with its operations, output as it comes, diff, undo (looked at first), cancel, commit. */
import { get } from "../api.js";
import { diffView } from "../diff.js";
import { act } from "../proof.js";
import { h, list, show, signal } from "../view.js";
import { badge, empty, failure, loaded, resource, table, time, visibleText } from "../widgets.js";
import { actionButton, address, bytes, counted, facts, follow, heading, heldList, keepAddress, longText, onEvents, perform, plain, settled, shortId, stable, toneOf, took } from "./parts.js";

const STATUSES = ["running", "awaiting_approval", "completed", "error", "cancelled", "unknown"];
const PAGE = 100;
/** The end of a long output; the whole is in the process's log. */
const OUTPUT_CHARS = 200_000;

export const page = {
  /** @param {string[]} params @param {URLSearchParams} query */
  render: (params, query) => (params[0] ? runPage(params[0]) : runList(query)),
};

const isOver = (/** @type {string} */ status) => status !== "running" && status !== "awaiting_approval";
const say = (/** @type {string} */ status) => badge(status.replace("_", " "), toneOf(status));

// The list --------------------------------------------------------------------------------------------------------

/** @param {URLSearchParams} query */
function runList(query) {
  const filters = { status: query.get("status") ?? "", principal: query.get("principal") ?? "" };
  const runs = heldList((before) => get("/v1/runs", { ...filters, before, limit: PAGE }), (run) => run.runId, PAGE);
  const spaces = resource(() => get("/v1/spaces").catch(() => [])); // their ids will do
  const spaceName = (/** @type {string} */ id) => spaces.value.value?.find((space) => space.spaceId === id)?.name ?? shortId(id);
  const again = settled(runs.source.reload);
  onEvents(["run"], runs.update);
  /** @param {"status" | "principal"} name */
  const choose = (name) => (event) => {
    filters[name] = event.target.value.trim();
    keepAddress("runs", filters);
    again();
  };
  const columns = [
    { title: "Run", cell: (run) => h("code", null, shortId(run.runId)) },
    { title: "State", cell: (run) => [say(run.status), ...marks(run)] },
    { title: "By", cell: (run) => visibleText(run.startedBy) },
    { title: "Space", class: "extra", cell: (run) => visibleText(spaceName(run.spaceId)) },
    { title: "Operations", class: "number extra", cell: (run) => run.operations },
    { title: "Started", cell: (run) => time(run.startedAt) },
    { title: "Took", class: "extra", cell: (run) => (run.endedAt ? took(Date.parse(run.endedAt) - Date.parse(run.startedAt)) : "\u2013") },
  ];
  return h("div", { class: "page" },
    h("div", { class: "filters", role: "search" },
      h("label", null, h("span", null, "State"), h("select", { value: filters.status, onchange: choose("status") },
        h("option", { value: "" }, "any"), STATUSES.map((status) => h("option", { value: status }, status.replace("_", " "))))),
      h("label", null, h("span", null, "By"), h("input", { type: "search", value: filters.principal, placeholder: "agent:Jerry", oninput: choose("principal") })),
      runs.newcomers()),
    loaded(runs.source, () => show(() => runs.rows.value.length,
      () => [table(columns, runs.rows, (run) => run.runId, { caption: "Runs", href: (run) => address(`runs/${run.runId}`) }),
        runs.olderButton("Older runs")],
      () => (filters.status || filters.principal
        ? h("p", { class: "muted" }, "No run fits these filters.")
        : empty("Nothing has run yet: a run is what an agent does to the files of a space.", "bascule exec make test")))));
}

/** @param {any} run */
const marks = (run) => [run.onCopy && "on a copy", run.background && "background", run.undone && "undone", run.committed && "committed"]
  .filter(Boolean).map((word) => [" ", badge(word)]);

// One run ---------------------------------------------------------------------------------------------------------

/** @param {string} runId */
function runPage(runId) {
  const path = `/v1/runs/${encodeURIComponent(runId)}`;
  const answer = resource(() => get(path));
  // The answer of a run says what happened in it; who started it, and what can be done with it, stands in the list.
  const about = resource(async () => (await get("/v1/runs", { limit: 1_000 })).find((run) => run.runId === runId) ?? {});
  const reload = settled(() => { answer.reload(); about.reload(); });
  onEvents(["run"], (event) => { if (event.id === runId || event.event === "gap") reload(); });
  return h("div", { class: "page stack" },
    h("h2", null, "Run ", h("code", null, visibleText(runId))),
    loaded(answer, () => [
      stable(() => { const { runId: id, status, steering } = /** @type {any} */ (answer.value.value); return [{ runId: id, status, steering }, about.value.value ?? {}]; }, ([now, run]) => overview(now, run, reload)),
      h("section", { class: "panel" }, h("h2", null, "Operations"), operations(answer.value)),
      // Only of a run that is under way: what is over stands above in whole.
      show(() => !isOver(/** @type {any} */ (answer.value.value).status), () => liveOutput(path, reload)),
      changes(path, runId, about.value, reload),
    ]));
}

/** @param {any} answer @param {any} run @param {() => void} reload */
function overview(answer, run, reload) {
  const { runId } = answer;
  return h("div", { class: "stack" },
    facts([
      ["State", [say(answer.status), ...marks(run)]],
      ["By", run.startedBy && visibleText(run.startedBy)],
      ["Space", run.spaceId && visibleText(run.spaceId)],
      ["Started", run.startedAt && time(run.startedAt)],
      ["Took", run.endedAt && took(Date.parse(run.endedAt) - Date.parse(run.startedAt))],
      ["Note", run.note && visibleText(run.note)],
    ]),
    (answer.steering ?? []).map((/** @type {string} */ line) => h("p", { class: "note warn" }, "Other programs obey what it left: ", visibleText(line))),
    answer.status === "awaiting_approval" && h("p", null, "It waits for your answer: ", h("a", { href: "#/approvals" }, "to the inbox")),
    h("div", { class: "actions" },
      !isOver(answer.status) && actionButton("Cancel this run", async () => {
        await perform("runs.cancel", "/v1/runs/{runId}/cancel", { runId }, "Cancel this run");
        reload();
      }, { tone: "danger", key: "x" }),
      run.onCopy && !run.committed && isOver(answer.status) && actionButton("Commit: take it over into the space", async () => {
        await act("runs.commit", "/v1/runs/{runId}/commit", { runId }, "Take this run over into the space");
        reload();
      }, { tone: "primary", key: "c" })));
}

/** @param {any} answer a signal */
function operations(answer) {
  const events = () => (answer.value.events ?? []).map((event, /** @type {number} */ number) => ({ event, number }));
  return show(() => events().length,
    () => h("ol", { class: "operations" }, list(events, (item) => item.number, (item) => operation(item.peek().event))),
    () => h("p", { class: "muted" }, "No operation is over yet."));
}

const WORDS = /** @type {Record<string, string>} */ ({
  message: "Message", createFile: "Create", readFile: "Read", editFile: "Edit", deleteFile: "Delete", shell: "Command",
  approvalRequired: "Asks", policyDenied: "Refused", error: "Error",
});

/** @param {any} event */
function operation(event) {
  const outcome = event.success === undefined ? { approvalRequired: "ask", policyDenied: "denied", error: "error" }[/** @type {"error"} */ (event.type)] ?? "" : event.success ? "ok" : "failed";
  const subject = event.path ?? event.command ?? event.details?.command ?? event.details?.path ?? "";
  const numbers = [
    event.bytesWritten !== undefined && bytes(event.bytesWritten), event.size !== undefined && bytes(event.size),
    event.editsApplied !== undefined && counted(event.editsApplied, "edit"),
    event.exitCode !== undefined && `exit ${event.exitCode}`, event.durationMs !== undefined && took(event.durationMs),
    event.timedOut && "timed out", event.endedBy && `ended by ${event.endedBy}`, event.sandbox === "none" && "without a sandbox",
  ].filter(Boolean).join(" · ");
  return h("li", null,
    h("p", { class: "step-head" }, h("strong", null, WORDS[event.type] ?? event.type), " ", h("code", null, visibleText(subject)), " ",
      outcome && badge(outcome, toneOf(outcome)), " ", h("span", { class: "muted" }, numbers)),
    [event.error, event.reason, event.message, event.suggestion].filter(Boolean).map((words) => h("p", null, visibleText(words))),
    event.details?.approvalId && h("p", null, h("a", { href: address(`approvals/${event.details.approvalId}`) }, "The question")),
    event.stdout && longText(plain(event.stdout), "Standard output", "terminal"),
    event.stderr && longText(plain(event.stderr), "Standard error", "terminal"),
    event.content && h("details", null, h("summary", null, "What was read"), longText(event.content, "Content")),
    (event.notUndoable ?? []).map((left) => h("p", { class: "muted" }, "Cannot be undone: ", visibleText(left.path), ": ", visibleText(left.reason))));
}

/** @param {string} path @param {() => void} reload */
function liveOutput(path, reload) {
  const text = signal("");
  const state = signal("");
  follow(`${path}/stream`, (last) => ({ since: last || 0 }), (item) => {
    if (item.text) text.value = (text.peek() + plain(item.text)).slice(-OUTPUT_CHARS);
    if (item.kind === "event" || item.kind === "status") reload();
    return item.kind !== "status" || !isOver(item.status);
  }, (now) => { state.value = now; });
  /** @type {any} */
  let box = null;
  box = h("pre", { class: "terminal live-output", tabindex: 0, role: "log", "aria-label": "Output as it comes" }, () => {
    // It follows the end while the end is in sight; who scrolled up to read is left alone.
    if (box && box.scrollTop + box.clientHeight >= box.scrollHeight - 20) requestAnimationFrame(() => { box.scrollTop = box.scrollHeight; });
    return visibleText(text.value || "Nothing yet.");
  });
  return h("section", { class: "panel" }, heading("Output", h("span", { class: "muted", role: "status" }, state)), box);
}

// What it changed -------------------------------------------------------------------------------------------------

/** @param {string} path @param {string} runId @param {any} about a signal @param {() => void} reload */
function changes(path, runId, about, reload) {
  const diff = resource(() => get(`${path}/diff`));
  const rehearsal = signal(/** @type {any} */ (null));
  // A run that is too old for the list may still be undone: the dry run says.
  const mayUndo = () => about.value && (about.value.undoable || !about.value.runId);
  const look = async () => { rehearsal.value = await perform("runs.undo", "/v1/runs/{runId}/undo", { runId, dryRun: true }, "See what undoing would change"); };
  async function undo() {
    await act("runs.undo", "/v1/runs/{runId}/undo", { runId }, "Undo this run");
    rehearsal.value = null;
    reload();
    diff.reload();
  }
  onEvents(["run"], (event) => { if (event.id === runId) diff.reload(); });
  return h("section", { class: "panel", "aria-label": "Changes" },
    heading("Changes", () => mayUndo() && !rehearsal.value && actionButton("Undo\u2026", look, { key: "z" })),
    () => rehearsal.value && h("div", { class: "rehearsal", role: "region", "aria-label": "What undoing would change" },
      h("h3", null, "Undoing would put back ", counted(rehearsal.value.changes.length, "file")),
      rehearsal.value.note && h("p", null, visibleText(rehearsal.value.note)),
      reasons("Stays as it is", rehearsal.value.leftAlone),
      diffView(rehearsal.value.diff, { truncated: rehearsal.value.truncated, none: "Nothing would change." }),
      h("div", { class: "actions" },
        actionButton("Undo it: put these back", undo, { tone: "danger", key: "z" }),
        h("button", { type: "button", onclick: () => { rehearsal.value = null; } }, "Leave it as it is"))),
    show(() => diff.error.value, () => failure(diff.error.peek())),
    stable(() => diff.value.value, (found) => h("div", { class: "stack" },
      found.note && h("p", { class: "muted" }, visibleText(found.note)),
      fileList(found.changes ?? []),
      reasons("May have changed, and no checkpoint holds it", found.unknown),
      diffView(found.diff ?? "", { truncated: found.truncated, none: "It changed no file." }))));
}

const SIGNS = /** @type {Record<string, string>} */ ({ added: "+", deleted: "\u2212", modified: "~", mode: "m", type: "t" });

/** @param {any[]} files */
const fileList = (files) => files.length > 0 && h("ul", { class: "files" }, files.map(({ path, change, binary, added = 0, removed = 0 }) => h("li", null,
  h("span", { class: "mark", "aria-hidden": true }, SIGNS[change]), h("span", { class: "sr-only" }, change), " ",
  h("code", null, visibleText(path)), " ", h("span", { class: "muted" }, binary ? "binary" : `+${added} \u2212${removed}`))));

/** @param {string} title @param {any[] | undefined} items */
const reasons = (title, items) => items && items.length > 0 && h("details", null, h("summary", null, `${title} (${items.length})`),
  h("ul", null, items.map(({ path, reason }) => h("li", null, h("code", null, visibleText(path)), ": ", visibleText(reason)))));
