"""Small parts of the documentation generator: Markdown, and what comments in the sources say."""

import ast
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent

NOTICE = "<!-- Written by tools/gen_docs.py (make docs). Change the sources it is made from, not this file. -->"


def code(text: object) -> str:
    return f"`{text}`"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def tests_named(names: Iterable[str]) -> str:
    """`folder/file::test`, for a page of docs/bridges. Names of tests are sentences: shown as such, each a link."""
    links = []
    for name in names:
        file, _, test = name.partition("::")
        links.append(f"[{test.removeprefix('test_').replace('_', ' ')}](../../tests/{file})")
    return "<br>".join(links)


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", NOTICE, *map(_wrapped, parts)]) + "\n"


def _wrapped(part: str) -> str:
    """Prose in lines that a diff can show; tables, headings and code as they are."""
    if "\n" in part or part.startswith(("#", "|")):
        return part
    return textwrap.fill(part, 118, break_long_words=False, break_on_hyphens=False)


def fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text.rstrip()}\n```"


_BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, blocks: dict[str, str]) -> str:
    """Hand-written text with the generated blocks between its markers replaced."""
    found = [match["name"] for match in _BLOCK.finditer(text)]
    if sorted(found) != sorted(blocks):
        raise SystemExit(f"gen_docs: the markers {found} and the blocks {sorted(blocks)} differ")
    return _BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match['name']]}\n\n{match[3]}", text)


# -- sources --------------------------------------------------------------------------------------


def comments_on_fields(source: str, class_name: str) -> dict[str, str]:
    """Field -> the comment above it; fields below each other share one."""
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    named = [(node.target.id, node.lineno) for node in body if _is_field(node)]  # type: ignore[attr-defined] # just checked
    return _comments(source, named)


def comments_on_numbers(source: str) -> dict[str, str]:
    """The same for the named numbers of a module."""
    named = [
        (node.targets[0].id, node.lineno)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    ]
    return _comments(source, named)


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _comments(source: str, named: list[tuple[str, int]]) -> dict[str, str]:
    lines = source.splitlines()
    out: dict[str, str] = {}
    above = ""
    last = 0
    for name, number in named:
        words: list[str] = []
        at = number - 2
        while lines[at].lstrip().startswith("#"):
            words.insert(0, lines[at].lstrip().removeprefix("#").strip())
            at -= 1
        if words:
            above = " ".join(words)
        elif number != last + 1:
            above = ""
        out[name] = above
        last = number
    return out


def read(path: str) -> str:
    return (HERE / path).read_text("utf-8")


# -- schemas --------------------------------------------------------------------------------------


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return "one of " + ", ".join(code(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(kind_of(each) for each in schema["anyOf"] if each.get("type") != "null")
    match schema.get("type"):
        case "array":
            return f"list of {kind_of(schema['items'])}"
        case "string":
            return "text" + _length(schema)
        case "integer" | "number":
            return ("whole number" if schema["type"] == "integer" else "number") + _range(schema)
        case "boolean":
            return "true or false"
        case "object":
            return "object"
        case _:
            return "any JSON"


def _length(schema: dict[str, Any]) -> str:
    if "description" in schema and "pattern" in schema:
        return f": {schema['description']}"
    if "maxLength" in schema:
        return f", at most {schema['maxLength']} characters"
    return ""


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else ""
