// @ts-check
/** Policy: the rules in words, what would happen to a call, what waits to be accepted, and what it would have decided. */
import { get, post } from "../api.js";
import { compare, diffView } from "../diff.js";
import { act } from "../proof.js";
import { h, list, show, signal } from "../view.js";
import { badge, countdown, failure, loaded, resource, table, time, visibleText } from "../widgets.js";
import { actionButton, address, counted, facts, heading, keepAddress, longText, onEvents, settled, stable, toneOf } from "./parts.js";

const RECORDS = 1_000;

export const page = {
  /** @param {string[]} _params @param {URLSearchParams} query */
  render(_params, query) {
    const policy = resource(() => get("/v1/policy"));
    onEvents(["person", "approval", "daemon"], settled(policy.reload, 1_000));
    return h("div", { class: "page stack" }, loaded(policy, () => [
      stable(() => waits(policy.value.value), (value) => pending(value, policy.reload)),
      show(() => policy.value.value?.timed?.length, () => timedRules(policy.value)),
      tryCall(query),
      rules(policy.value),
    ]));
  },
};

// Rules -----------------------------------------------------------------------------------------------------------

/** @param {any} policy a signal */
function rules(policy) {
  const wanted = signal("");
  const found = () => (policy.value.rules ?? []).filter((rule) => !rule.timed).filter((rule) => !wanted.value || JSON.stringify(rule).toLowerCase().includes(wanted.value));
  return h("section", { class: "panel", "aria-label": "Rules" },
    heading(() => `Rules in force: ${policy.value.name}`,
      h("label", null, h("span", { class: "sr-only" }, "Search the rules"), h("input", { type: "search", placeholder: "Search the rules", oninput: (event) => { wanted.value = event.target.value.trim().toLowerCase(); } }))),
    h("p", { class: "muted" }, "Of all rules that fit a call the strictest decides: deny before ask before allow. What no rule fits is denied."),
    show(() => found().length,
      () => h("ul", { class: "rules" }, list(found, (rule) => rule.name, (rule) => h("li", null,
        () => badge(rule.value.decision, toneOf(rule.value.decision)), " ", h("strong", null, visibleText(rule.peek().name)),
        h("p", null, () => visibleText(rule.value.text ?? "")),
        h("p", { class: "muted" }, () => visibleText(rule.value.reason ?? ""))))),
      () => h("p", { class: "muted" }, "No rule speaks of this.")),
    h("details", null, h("summary", null, "As TOML"), () => longText(policy.value.text, "The policy as TOML"),
      h("p", { class: "muted" }, "Digest ", h("code", { class: "hash" }, () => policy.value.digest))));
}

/** Timed rules stand among the others, too, there in words; here is until when, and by which answer. @param {any} policy a signal */
function timedRules(policy) {
  const inWords = (/** @type {any} */ timed) => policy.value.rules?.find((rule) => rule.name === timed.ruleId);
  return h("section", { class: "panel", "aria-label": "For now" }, h("h2", null, "For now"),
    h("ul", { class: "rules" }, list(() => policy.value.timed ?? [], (timed) => timed.ruleId, (timed) => h("li", null,
      badge("allow", "ok"), " ", h("strong", null, visibleText(inWords(timed.peek())?.reason ?? "")), " for another ", countdown(timed.peek().expiresAt),
      h("p", { title: timed.peek().text }, visibleText(inWords(timed.peek())?.text ?? timed.peek().text)),
      h("p", { class: "muted" }, h("a", { href: address(`approvals/${timed.peek().approvalId}`) }, "The answer that made it"))))));
}

// Try a call ------------------------------------------------------------------------------------------------------

/** @param {URLSearchParams} query */
function tryCall(query) {
  const fields = { principal: query.get("principal") ?? "", method: query.get("method") ?? "", params: query.get("params") ?? "" };
  const verdict = signal(/** @type {any} */ (null));
  const failed = signal(/** @type {any} */ (null));
  const set = (/** @type {keyof typeof fields} */ name) => (event) => { fields[name] = event.target.value; };
  async function explain() {
    [failed.value, verdict.value] = [null, null];
    try {
      const { principal, method } = fields;
      const params = fields.params.trim() ? JSON.parse(fields.params) : {};
      keepAddress("policy", fields);
      verdict.value = await post("/v1/policy/explain", { method: method.trim(), params, ...(principal.trim() && { principal: principal.trim() }) });
    } catch (error) {
      failed.value = error instanceof SyntaxError ? { message: `The params are not JSON: ${error.message}`, hint: 'Write for example {"command": "rm -rf build"}.' } : error;
    }
  }
  if (fields.method) explain();
  return h("section", { class: "panel", "aria-label": "Try a call" },
    h("h2", null, "Try a call"),
    h("form", { class: "filters try", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); explain(); } },
      h("label", null, h("span", null, "Who"), h("input", { value: fields.principal, placeholder: "agent:Jerry", oninput: set("principal") })),
      h("label", null, h("span", null, "Method"), h("input", { value: fields.method, placeholder: "workspace.shell", required: true, oninput: set("method") })),
      h("label", { class: "grow" }, h("span", null, "Params"), h("input", { value: fields.params, placeholder: '{"command": "rm -rf build"}', spellcheck: "false", oninput: set("params") })),
      h("button", { type: "submit" }, "What would happen?")),
    h("div", { role: "status" },
      () => failed.value && failure(failed.value),
      () => verdict.value && h("div", { class: "stack" },
        facts([
          ["Verdict", badge(verdict.value.decision, toneOf(verdict.value.decision))],
          ["Rule", visibleText(verdict.value.rule)],
          ["Why", visibleText(verdict.value.reason)],
          ["Instead", verdict.value.suggestion && visibleText(verdict.value.suggestion)],
        ]),
        longText(verdict.value.text, "The whole decision"))));
}

// What waits ------------------------------------------------------------------------------------------------------

/** @param {any} policy */
const waits = (policy) => (policy?.pending ? { text: policy.text, problem: policy.problem, file: policy.file, fileText: policy.fileText, fileDigest: policy.fileDigest } : null);

/** @param {any} policy @param {() => void} reload */
function pending(policy, reload) {
  const accept = async () => {
    await act("policy.accept", "/v1/policy/accept", { digest: policy.fileDigest }, "Put this policy in force");
    reload();
  };
  return h("section", { class: "panel waiting", "aria-label": "A changed policy" },
    h("h2", null, "A changed policy waits"),
    h("p", null, "The file ", h("code", null, visibleText(policy.file ?? "policy.toml")), " differs from what is in force. It counts only once you accept it."),
    policy.problem ? failure({ message: policy.problem, hint: "Mend the file; `bascule policy test FILE` checks it." }) : null,
    policy.fileText !== undefined && policy.fileText !== null && [
      diffView(compare(policy.text, policy.fileText, policy.file ?? "policy.toml")),
      !policy.problem && replay(policy.fileText),
      !policy.problem && h("div", { class: "actions" }, actionButton("Accept this policy", accept, { tone: "primary" })),
    ]);
}

/** @param {string} text */
function replay(text) {
  const shown = signal(/** @type {any} */ (null));
  const ask = async () => { shown.value = await post("/v1/policy/replay", { text, limit: RECORDS }); };
  const columns = [
    { title: "Record", cell: (change) => `#${change.seq}` },
    { title: "When", cell: (change) => time(change.at) },
    { title: "Who", cell: (change) => visibleText(change.principal) },
    { title: "Method", cell: (change) => h("code", null, visibleText(change.method)) },
    { title: "About", cell: (change) => visibleText(change.subject ?? "") },
    { title: "Was", cell: (change) => badge(change.was, toneOf(change.was)) },
    { title: "Would be", cell: (change) => badge(change.now, toneOf(change.now)) },
    { title: "Rule", cell: (change) => visibleText(change.rule ?? "") },
  ];
  return h("div", { class: "stack" },
    h("div", { class: "actions" }, actionButton(() => (shown.value ? "Compare again" : "What would it have decided?"), ask)),
    () => shown.value && [
      h("p", { role: "status" }, `Of the last ${counted(shown.value.records, "record")}, ${shown.value.compared} could be compared, ${counted(shown.value.changed.length, "decision")} would differ.`,
        shown.value.unreadable > 0 && ` ${shown.value.unreadable} hold too little to say: their rules read params that the ledger does not keep.`),
      shown.value.changed.length > 0 && table(columns, () => shown.value.changed, (change) => change.seq, { caption: "Decisions that would differ", href: (change) => address(`ledger/${change.seq}`) }),
    ]);
}
