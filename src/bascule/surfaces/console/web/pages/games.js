// @ts-check
/** Games: state, what a game wants looked at, its tools with pins and destructive marks, events, output. */
import { get } from "../api.js";
import { h, list, show, signal } from "../view.js";
import { badge, empty, failure, loaded, resource, time, visibleText } from "../widgets.js";
import { actionButton, address, counted, facts, heading, longText, onEvents, payload, perform, plain, settled, stable, toneOf } from "./parts.js";

const TOOLS_PAGE = 100;
const EVENTS = 100;

export const page = {
  /** @param {string[]} params */
  render: (params) => (params[0] ? gamePage(params[0]) : gameList()),
};

function gameList() {
  const games = resource(() => get("/v1/games"));
  onEvents(["game"], settled(games.reload));
  return h("div", { class: "page stack" }, loaded(games, () => [
    () => games.value.value?.problem && failure({ message: games.value.value.problem, hint: "The last good games.toml stays in force." }),
    show(() => games.value.value?.games.length,
      () => h("ul", { class: "cards grid" }, list(() => games.value.value?.games ?? [], (game) => game.gameId, (game) => h("li", { class: "card" },
        h("a", { href: address(`games/${game.peek().gameId}`), "data-row": "" }, h("strong", null, visibleText(game.peek().name ?? game.peek().gameId))),
        " ", () => badge(game.value.state, toneOf(game.value.state)),
        () => game.value.description && h("p", null, visibleText(game.value.description)),
        h("p", { class: "muted" }, () => `${counted(game.value.tools ?? 0, "tool")} · ${counted(game.value.cursor ?? 0, "event")}`),
        () => game.value.attention && h("p", null, badge("attention", "warn"), " ", visibleText(game.value.attention)),
        () => game.value.problem && h("p", null, badge("problem", "bad"), " ", visibleText(game.value.problem))))),
      () => empty("No game is known: games.toml names them.", "bascule games import --write")),
  ]));
}

// One game --------------------------------------------------------------------------------------------------------

/** @param {string} gameId */
function gamePage(gameId) {
  const path = `/v1/games/${encodeURIComponent(gameId)}`;
  const game = resource(() => get(path));
  const reload = settled(game.reload);
  onEvents(["game"], (event) => { if (!event.id || event.id === gameId) reload(); });
  const status = () => game.value.value?.status ?? {};
  const isLive = () => status().state === "live";
  const doIt = (/** @type {string} */ verb, /** @type {string} */ words) => async () => {
    await perform(`games.${verb}`, `/v1/games/{gameId}/${verb}`, { gameId }, words);
    game.reload();
  };
  return h("div", { class: "page stack" },
    h("h2", null, visibleText(gameId)),
    loaded(game, () => [
      () => facts([
        ["State", badge(status().state, toneOf(status().state))],
        ["Name", status().name && visibleText(status().name)],
        ["App", status().app && [visibleText(status().app), " ", visibleText(status().version ?? "")]],
        ["Started by", status().startedBy && visibleText(status().startedBy)],
        ["Process", status().pid],
        ["Command", game.value.value.command && h("code", null, visibleText(game.value.value.command))],
        ["Calls now", `${status().callsSent ?? 0} running, ${status().callsWaiting ?? 0} waiting`],
        ["Problem", status().problem && visibleText(status().problem)],
      ]),
      () => (status().notes ?? []).map((/** @type {string} */ note) => h("p", { class: "muted" }, visibleText(note))),
      h("div", { class: "actions" },
        show(() => ["stopped", "failed"].includes(status().state), () => actionButton("Start", doIt("start", `Start ${gameId}`), { tone: "primary" })),
        show(() => !["stopped", "failed"].includes(status().state), () => [actionButton("Stop", doIt("stop", `Stop ${gameId}`)), actionButton("Kill", doIt("kill", `Kill ${gameId}`), { tone: "danger" })])),
      show(isLive, () => [attention(path, gameId), tools(path), gameEvents(path, gameId), gameState(path)],
        () => h("p", { class: "muted" }, "Tools, events and state are there while the game is live.")),
      stable(() => game.value.value.output || null, (output) => h("section", { class: "panel" }, h("h2", null, "Output"), longText(plain(output), "Output", "terminal"))),
    ]));
}

/** @param {string} path @param {string} gameId */
function attention(path, gameId) {
  const found = resource(() => get(`${path}/attention`));
  onEvents(["game"], settled(found.reload));
  const acknowledge = (/** @type {string} */ attentionId) => async () => {
    await perform("games.acknowledge", "/v1/games/{gameId}/attention", { gameId, attentionId }, "Tell the game that you have looked");
    found.reload();
  };
  return h("section", { class: "panel" }, h("h2", null, "Attention"), loaded(found, () => stable(() => found.value.value, ({ attention: open }) => {
    if (!open) return h("p", { class: "muted" }, "The game wants nothing looked at.");
    return h("div", { class: "stack" },
      h("p", null, badge(open.severity ?? "warning", open.severity === "info" ? "info" : "warn"), open.blocking !== false && [" ", badge("blocking", "bad", "Calls that act are held back")], " ", visibleText(open.summary ?? "")),
      (open.sample ?? []).map((entry) => h("p", { class: "muted" }, `${entry.level}: `, visibleText(entry.message), entry.repeatCount > 1 && ` (${entry.repeatCount} times)`)),
      h("div", { class: "actions" }, actionButton("I have looked", acknowledge(open.attentionId))));
  })));
}

// Tools -----------------------------------------------------------------------------------------------------------

/** @param {string} path */
function tools(path) {
  const query = signal("");
  const cursor = signal("");
  const before = signal(/** @type {any[]} */ ([]));
  const found = resource(() => get(`${path}/tools`, { query: query.peek(), cursor: cursor.peek(), limit: TOOLS_PAGE }));
  const again = settled(() => { cursor.value = ""; before.value = []; found.reload(); });
  const more = async () => {
    const { tools: known, nextCursor } = /** @type {any} */ (found.value.peek());
    before.value = [...before.peek(), ...known];
    cursor.value = nextCursor;
    await found.reload();
  };
  return h("section", { class: "panel", "aria-label": "Tools" },
    heading(() => `Tools${found.value.value ? ` (${found.value.value.total})` : ""}`,
      h("label", null, h("span", { class: "sr-only" }, "Search the tools"), h("input", { type: "search", placeholder: "Search the tools", oninput: (event) => { query.value = event.target.value.trim(); again(); } }))),
    loaded(found, () => [
      h("ul", { class: "tools" }, list(() => [...before.value, ...(found.value.value?.tools ?? [])], (tool) => tool.name, (tool) => toolRow(path, tool.peek()))),
      show(() => found.value.value?.nextCursor, () => actionButton("More tools", more)),
      show(() => found.value.value?.total === 0, () => h("p", { class: "muted" }, "No tool speaks of this.")),
    ]));
}

const PINS = /** @type {Record<string, [string, import("./parts.js").Tone, string]>} */ ({
  same: ["pinned", "ok", "Allowed before, and unchanged since"],
  changed: ["changed", "warn", "Not what was allowed before: its description or schema has changed"],
  new: ["new", "info", "Never allowed yet"],
});

/** @param {string} path @param {any} tool */
function toolRow(path, tool) {
  const shown = signal(/** @type {any} */ (null));
  const pin = PINS[tool.pin];
  const look = async () => { shown.value = await get(`${path}/tools/${tool.name.split("/").map(encodeURIComponent).join("/")}`); };
  return h("li", null,
    h("p", null, h("strong", null, visibleText(tool.name)), " ",
      tool.destructive && [badge("destructive", "bad", "Asks the person each time"), " "],
      pin && [badge(...pin), " "],
      tool.deprecated && [badge("deprecated", "warn"), " "],
      h("code", { class: "muted", title: `Schema ${tool.schemaHash}` }, (tool.schemaHash ?? "").replace(/^sha256:/, "").slice(0, 8))),
    tool.description && h("p", null, visibleText(tool.description)),
    h("p", { class: "muted" }, tool.parameters?.length ? visibleText(`takes ${tool.parameters.join(", ")}`) : "takes nothing"),
    () => (shown.value ? payload({ input: shown.value.inputSchema, output: shown.value.outputSchema }, `Schemas of ${tool.name}`) : actionButton("Schemas", look, { tone: "quiet" })));
}

// Events and state ------------------------------------------------------------------------------------------------

/** @param {string} path @param {string} gameId */
function gameEvents(path, gameId) {
  // Only the last ones: the cursor counts all events, so the page begins that many before its end.
  const found = resource(async () => {
    const { cursor = 0 } = await get(`${path}/status`);
    return get(`${path}/events`, { since: Math.max(0, cursor - EVENTS), limit: EVENTS });
  });
  const again = settled(found.reload, 1_000);
  onEvents(["game"], (event) => { if (!event.id || event.id === gameId) again(); });
  const events = () => (found.value.value?.events ?? []).toReversed();
  return h("section", { class: "panel", "aria-label": "Events" },
    heading("Events", actionButton("Read again", found.reload)),
    loaded(found, () => show(() => events().length,
      () => h("ol", { class: "events", tabindex: 0, role: "list", "aria-label": "Events, the newest first" }, list(events, (event) => event.cursor, (item) => {
        const event = item.peek();
        return h("li", { class: "event" }, time(new Date(event.atMs).toISOString()), badge(visibleText(event.channel)),
          h("code", null, event.message ? visibleText(event.message) : visibleText(JSON.stringify(event.payload ?? null))),
          event.missed > 0 && h("span", { class: "muted" }, ` ${event.missed} missed before it`));
      })),
      () => h("p", { class: "muted" }, "Nothing has happened in it yet."))));
}

/** @param {string} path */
function gameState(path) {
  const shown = signal(/** @type {any} */ (null));
  // Asked for by a press: reading the state may cost the game a pause.
  return h("section", { class: "panel" }, heading("State", actionButton(() => (shown.value ? "Read again" : "Read"), async () => { shown.value = await get(`${path}/state`); })),
    () => (shown.value ? payload(shown.value.state, "State") : h("p", { class: "muted" }, "Not read yet.")));
}
