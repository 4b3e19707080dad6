// @ts-check
/** Health: charts of the last minutes or day, what the doctor finds and how to mend it, doors, versions, sandboxes. */
import { get } from "../api.js";
import { chart } from "../chart.js";
import { h, list, onCleanup, show, signal } from "../view.js";
import { badge, command, duration, loaded, resource, table, visibleText } from "../widgets.js";
import { actionButton, counted, facts, heading, keepAddress, number, stable, toneOf } from "./parts.js";

/** Of 10 minutes a new point comes each second; looking every five is lively enough and costs next to nothing. */
const REFRESH_MS = { "10m": 5_000, "24h": 60_000 };

/** @type {[string, string, [string, string][]][]} title, unit, the series with their names */
const CHARTS = [
  ["Calls", "per s", [["callsPerSecond", "calls"]]],
  ["Latency", "ms", [["p99Ms", "p99"], ["p50Ms", "p50"]]],
  ["Loop lag", "ms", [["loopLagMs", "lag"]]],
  ["Queue", "open", [["ticketsOpen", "tickets"], ["approvalsPending", "approvals"]]],
  ["Store", "MB", [["storeMb", "store"]]],
  ["Memory", "MB", [["rssMb", "memory"]]],
  ["CPU", "%", [["cpuPercent", "cpu"]]],
  ["Agents online", "agents", [["agentsOnline", "agents"]]],
];

export const page = {
  /** @param {string[]} _params @param {URLSearchParams} query */
  render(_params, query) {
    const range = signal(query.get("window") === "24h" ? /** @type {const} */ ("24h") : /** @type {const} */ ("10m"));
    const history = resource(() => get("/v1/metrics/history", { window: range.peek() }));
    const status = resource(() => get("/status"));
    let timer = 0;
    const tick = () => {
      timer = setTimeout(tick, REFRESH_MS[range.peek()]);
      if (!document.hidden) history.reload();
    };
    timer = setTimeout(tick, REFRESH_MS[range.peek()]);
    onCleanup(() => clearTimeout(timer));
    /** @param {"10m" | "24h"} wanted */
    const choose = (wanted) => () => {
      range.value = wanted;
      keepAddress("health", { window: wanted });
      history.reload();
    };
    const read = (/** @type {[string, string][]} */ series) => () => {
      const got = /** @type {any} */ (history.value.value);
      if (!got) return null;
      const from = begin(got.series);
      return { stepMs: got.stepMs, endAt: got.endAt, lines: series.map(([name]) => (got.series[name] ?? []).slice(from)) };
    };
    const button = (/** @type {"10m" | "24h"} */ name, /** @type {string} */ words) =>
      h("button", { type: "button", class: "chip", "aria-pressed": () => String(range.value === name), onclick: choose(name) }, words);
    return h("div", { class: "page stack" },
      loaded(status, () => stable(() => status.value.value, overview)),
      h("section", { class: "panel", "aria-label": "Figures" },
        heading("Figures", h("div", { class: "chips", role: "group", "aria-label": "Range" }, button("10m", "10 minutes"), button("24h", "24 hours"))),
        loaded(history, () => h("div", { class: "charts" }, CHARTS.map(([title, unit, series]) =>
          chart({ title, unit, names: series.map(([, name]) => name), read: read(series) }))))),
      doctor(),
      spaces());
  },
};

/** A daemon that is young has figures of a minute: a line in the last corner of ten would show nobody anything. */
const LEAST_POINTS = 60;

/** Where the figures begin. @param {Record<string, (number | null)[]>} series */
function begin(series) {
  const lines = Object.values(series);
  const first = Math.min(...lines.map((line) => line.findIndex((value) => value !== null)).filter((index) => index >= 0), Infinity);
  return Math.max(0, Math.min(first, (lines[0]?.length ?? 0) - LEAST_POINTS));
}

/** @param {any} status */
function overview(status) {
  return h("section", { class: "panel", "aria-label": "The daemon" },
    h("h2", null, "The daemon"),
    status.ledgerProblem && h("p", { class: "note bad" }, badge("ledger", "bad"), " ", visibleText(status.ledgerProblem)),
    facts([
      ["Version", `${status.version}, protocol ${status.protocol}`],
      ["Running", `${duration(status.uptimeS * 1_000)}, process ${status.pid}`],
      ["Stopped", status.stopped && [badge("stopped", "bad"), ` by ${status.stopped.by}`]],
      ["Agents", `${number(status.agentsOnline)} online of ${number(status.agents)}`],
      ["Tickets", `${number(status.ticketsOpen)} open of ${number(status.tickets)}`],
      ["Ledger", counted(status.ledgerRecords, "record")],
      ["Policy", visibleText(status.policy)],
      ["Durability", status.durability],
      ["Sign-in of agents", status.auth],
      ["Person", status.person ? "set" : [badge("not set", "warn"), " ", command("bascule person set")]],
      ["State", h("code", null, visibleText(status.stateDir))],
      ...Object.entries(status.doors ?? {}).map(([name, where]) => /** @type {[string, any]} */ ([`Door ${name}`, h("code", null, visibleText(String(where)))])),
    ]));
}

const ORDER = /** @type {Record<string, number>} */ ({ fail: 0, warn: 1, ok: 2, info: 3 });

function doctor() {
  const found = resource(() => get("/v1/doctor"));
  const checks = () => (found.value.value?.checks ?? []).toSorted((a, b) => (ORDER[a.state] ?? 4) - (ORDER[b.state] ?? 4));
  const count = (/** @type {string} */ state) => checks().filter((check) => check.state === state).length;
  return h("section", { class: "panel", "aria-label": "Doctor" },
    heading("Doctor", h("span", { class: "muted", role: "status" }, () => found.value.value && `${count("fail")} failed, ${counted(count("warn"), "warning")}`), actionButton("Look again", found.reload)),
    loaded(found, () => h("ul", { class: "checks" }, list(checks, (check) => check.name, (check) => h("li", null,
      () => badge(check.value.state, toneOf(check.value.state)), " ", h("strong", null, visibleText(check.peek().name)), " ", () => visibleText(check.value.text),
      () => check.value.remedy && h("p", { class: "remedy" }, "\u2192 ", visibleText(check.value.remedy)))))));
}

function spaces() {
  const found = resource(() => get("/v1/spaces"));
  return h("section", { class: "panel", "aria-label": "Sandboxes" }, h("h2", null, "Sandboxes"), loaded(found, () => show(() => found.value.value?.length,
    () => table([
      { title: "Space", cell: (space) => visibleText(space.name) },
      { title: "Where", cell: (space) => h("code", null, visibleText(space.path)) },
      { title: "Sandbox", cell: (space) => [badge(space.sandbox, space.sandbox === "none" ? "bad" : "ok"), space.problem && [" ", visibleText(space.problem)]] },
      { title: "Runs", class: "number", cell: (space) => space.runs },
      { title: "Commands", class: "number", cell: (space) => space.processes },
    ], () => found.value.value ?? [], (space) => space.spaceId, { caption: "Spaces" }),
    () => h("p", { class: "muted" }, "No space is open: ", command("bascule spaces open .")))));
}
