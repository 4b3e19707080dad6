"""Text of an agent that wants to be more than text, and answers of a daemon that hold it in every field.

A payload that works calls `hit()`, opens a dialog, asks evil.test for something or leaves an element behind.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

EVIL = "http://evil.test:9"
COUNT = 500

_SCRIPTS = ("hit()", "top.hit()", "alert(1)", "[1].map(hit)", "window['hit']()", "setTimeout(hit)", "hit`1`")
# Elements that do something by themselves as soon as they are there.
_LOADS = (
    '<img src=x onerror="{}">',
    "<img src=x onerror='{}'>",
    "<IMG SRC=x OnErRoR={}>",
    '<svg onload="{}">',
    "<svg/onload={}>",
    '<svg><animate onbegin="{}" attributeName=x dur=1s>',
    '<svg><set onbegin="{}" attributename=x>',
    '<video><source onerror="{}">',
    "<video src=x onerror={}>",
    '<audio src=x onerror="{}">',
    '<iframe srcdoc="<script>parent.hit();{}</script>">',
    '<iframe src="javascript:parent.{}">',
    '<details open ontoggle="{}">',
    '<input autofocus onfocus="{}">',
    '<body onload="{}">',
    '<object data="javascript:{}">',
    '<embed src="javascript:{}">',
    "<script>{}</script>",
    "<ScRiPt >{}</sCrIpT>",
    "<script\n>{}</script\n>",
    '<math><mtext><img src=x onerror="{}"></mtext></math>',
    '<table><td><img src=x onerror="{}">',
    '<template><img src=x onerror="{}"></template><img src=x onerror="{}">',
    '<a href="javascript:{}">click</a>',
    '<form action="javascript:{}"><button>go</button></form>',
    '<style>@import "' + EVIL + '/{}";</style>',
    f'<link rel=stylesheet href="{EVIL}/{{}}">',
    f'<img src="{EVIL}/{{}}">',
    f'<iframe src="{EVIL}/{{}}"></iframe>',
    f'<meta http-equiv=refresh content="0;url={EVIL}/{{}}">',
    f'<base href="{EVIL}/{{}}">',
    '<marquee onstart="{}">x</marquee>',
    '<img src=x:x onerror="{}" style="position:fixed;inset:0">',
    '<picture><source srcset=x><img src=x onerror="{}"></picture>',
    '<xmp></xmp><img src=x onerror="{}">',
    '<noscript><p title="</noscript><img src=x onerror={}>">',
    '<svg><foreignObject><img src=x onerror="{}"></foreignObject></svg>',
    '<svg><style><img src=x onerror="{}"></style></svg>',
)
# What may stand around it, so that it leaves where it was put.
_AROUND = (
    "{}",
    '">{}',
    "'>{}",
    "</textarea>{}",
    "</script>{}",
    "</title></style>{}",
    "-->{}",
    "]]>{}",
    "`;{}//",
    "\u202e{}",
    "\x00{}",
    "{{{{{}}}}}",
    "${{{}}}",
    "x\n{}\n",
)
# No markup: what would act in an attribute, an address, a template, a terminal or an eye.
_OTHERS = (
    "javascript:hit()",
    "JaVaScRiPt:hit()",
    "java\tscript:hit()",
    "data:text/html,<script>parent.hit()</script>",
    "vbscript:hit()",
    '" onmouseover="hit()" x="',
    "' onfocus='hit()' autofocus='",
    "{{constructor.constructor('hit()')()}}",
    "${hit()}",
    "#{hit()}",
    "<%= hit() %>",
    "&lt;img src=x onerror=hit()&gt;",
    "&#60;img src=x onerror=hit()&#62;",
    "\\u003cimg src=x onerror=hit()\\u003e",
    "%3Cimg%20src=x%20onerror=hit()%3E",
    "\u202eevorppa\u202c",
    "\u2066a\u2069",
    "\x1b[2Ka",
    "\x07",
    "a\u0300" * 40,
    "\ufeff\u200b\u200d",
    "__proto__",
    "constructor",
    "toString",
    "[object Object]",
    "../../../etc/passwd",
    "//evil.test:9/x",
    "http://evil.test:9/x",
    "/\\evil.test:9",
    "#/person",
    "\u2028hit()\u2029",
    "W" * 2_000,
)


def corpus() -> list[str]:
    """Always the same ones, in the same order."""
    made = list(_OTHERS)
    places = itertools.product(_AROUND, _LOADS)
    for number, (around, load) in enumerate(places):
        if len(made) == COUNT:
            break
        made.append(around.format(load.replace("{}", _SCRIPTS[number % len(_SCRIPTS)])))
    assert len(set(made)) == COUNT
    return made


# Watches from the first moment on; what a page of ours never has counts. Ours are: links to `#/...`, pictures of blobs,
# scripts and styles below /app.
WATCH = r"""
globalThis.effects = [];
globalThis.hit = () => { effects.push("script"); };
const never = new Set(("iframe object embed base marquee video audio source template foreignobject animate set math " +
    "xmp picture track style").split(" "));
const addresses = new Set(["href", "action", "formaction", "xlink:href"]);
const sources = new Set(["src", "srcset", "data", "poster"]);
const judge = (element) => {
    const name = element.localName;
    const own = (attribute) => /^\/app\//.test(element.getAttribute(attribute) ?? "");
    if (never.has(name.toLowerCase()) || (name === "meta" && element.httpEquiv)) effects.push(`<${name}>`);
    if ((name === "script" && !own("src")) || (name === "link" && !own("href"))) effects.push(`<${name}>`);
    for (const {name: attribute, value} of element.attributes) {
        const finding = `${name} ${attribute}=${value}`;
        if (/^on/i.test(attribute)) effects.push(finding);
        if (addresses.has(attribute) && !/^(#|\/app\/)/.test(value)) effects.push(finding);
        if (sources.has(attribute) && !/^(blob:|\/app\/)/.test(value)) effects.push(finding);
    }
};
const all = (node) => { if (node.nodeType === 1) { judge(node); node.querySelectorAll("*").forEach(judge); } };
new MutationObserver((changes) => {
    for (const {addedNodes, target, type} of changes) {
        addedNodes.forEach(all);
        if (type === "attributes") judge(target);
    }
}).observe(document, {childList: true, subtree: true, attributes: true});
"""

# What must be of its kind, or the page would rather show nothing: names, times, numbers of states.
_TYPED: tuple[tuple[str, str], ...] = (
    (r"^(expiresAt|until|replyBy)$", "2099-01-01T00:00:00Z"),
    (r"(At|since|now)$", "2026-01-01T00:00:00Z"),
    (r"^state$", "pending"),
    (r"(?i)digest$|^hash$|^head$", "ab" * 32),
)


def answers(schema: dict[str, Any], parts: dict[str, Any], payloads: list[str], rows: int) -> Any:
    """What a route could answer at the worst: each string that the schema leaves open is a payload."""
    made = _Maker(parts, payloads)
    return made.value(schema, "", rows, 0)


class _Maker:
    def __init__(self, parts: dict[str, Any], payloads: list[str]) -> None:
        self._parts = parts
        self._payloads: Iterator[str] = itertools.cycle(payloads)
        self._numbers = itertools.count(1)

    def value(self, schema: dict[str, Any], name: str, rows: int, depth: int) -> Any:
        schema = self._plain(schema)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next(each for each in kind if each != "null")
        if kind == "object":
            return self._object(schema, rows, depth)
        if kind == "array":
            return [self.value(schema.get("items", {}), name, 2, depth + 1) for _ in range(rows if depth < 6 else 0)]
        if kind in ("integer", "number"):
            return next(self._numbers)
        if kind == "boolean":
            return True
        return self._text(name)

    def _plain(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The first of what it may be that is something."""
        while True:
            if "$ref" in schema:
                schema = self._parts[schema["$ref"].rpartition("/")[2]]
            elif choices := schema.get("anyOf") or schema.get("oneOf"):
                schema = next(each for each in choices if each.get("type") != "null")
            else:
                return schema

    def _object(self, schema: dict[str, Any], rows: int, depth: int) -> dict[str, Any]:
        if depth > 8:
            return {}
        made = {key: self.value(part, key, rows, depth + 1) for key, part in schema.get("properties", {}).items()}
        if not made:
            # Of any names: a payload is one, and what pages look for is another.
            more = schema.get("additionalProperties")
            part = more if isinstance(more, dict) else {}
            made = {key: self.value(part, key, 2, depth + 1) for key in (next(self._payloads), "question")}
        return made

    def _text(self, name: str) -> str:
        for pattern, value in _TYPED:
            if re.search(pattern, name):
                return value
        if name == "approvalId":
            return f"apr_{next(self._numbers):020x}"
        if name.endswith("Id"):
            # Agents choose some ids themselves, and pages count on no two being the same.
            return f"{next(self._numbers)}{next(self._payloads)}"
        return next(self._payloads)
