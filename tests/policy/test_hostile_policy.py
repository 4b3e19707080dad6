"""A policy that a caller sends to be looked at must not cost the daemon its time or its memory."""

import fnmatch
import tomllib

import pytest

from bascule.admin.ledger_search import parse_query
from bascule.bridge_list import presets_of, rows_of
from bascule.kernel.ledger import Record
from bascule.kernel.policy import rules
from bascule.kernel.policy.globs import glob_matches
from bascule.kernel.policy.rules import MAX_DOTS_PER_LINE, MAX_GLOB_CHARS, BadPolicy, read_document
from bascule.kernel.policy.text import load_policy
from bascule.testing.house import House

EFFECTS = {row.name: row.effect for row in rows_of()}
# To find that the glob does not mean the path takes four times as long with each `**a` and `aa` more: at 12 a second,
# at 24 half a year, and nothing else in the process happens meanwhile. Here it has to be reached, not waited for.
ENDLESS = """
version = 1
[[rule]]
name = "endless"
decision = "deny"
reason = "none"
methods = ["workspace.readFile"]
paths = ["**a**a**a**ab"]
not_match = [{principal = "local", method = "workspace.readFile", params = {path = "aaaaaaaa"}}]
"""
RULE = 'version = 1\n[[rule]]\nname = "x"\ndecision = "deny"\nreason = "r"\n'


class Reached(Exception):
    pass


@pytest.fixture
def compared(monkeypatch):
    """The paths that are compared with a glob."""
    found = []

    def matches_any(globs, path):
        found.append(path)
        return False

    monkeypatch.setattr(rules, "matches_any", matches_any)
    return found


def test_a_policy_that_is_replayed_has_no_path_compared_with_a_glob_of_it(compared):
    with House() as house:
        assert house.call("local", "policy.replay", {"text": ENDLESS})["changed"] == []
    assert compared == []


def test_a_policy_that_is_put_in_force_is_proved_by_its_examples(compared):
    """The control: this is where the time would go."""
    load_policy(ENDLESS, EFFECTS, EFFECTS, presets_of())
    assert compared == ["aaaaaaaa"]


def test_a_key_of_many_dots_is_refused_before_it_is_read(monkeypatch):
    text = "version = 1\n" + "a." * MAX_DOTS_PER_LINE + "a.b = 1"

    def loads(_text):
        raise Reached

    monkeypatch.setattr(tomllib, "loads", loads)
    with pytest.raises(BadPolicy, match="line 2 of the policy has 257 dots"):
        read_document(text)
    # The control: without the limit it is read, which takes a minute for 30,000 dots, and with their square.
    monkeypatch.setattr(rules, "MAX_DOTS_PER_LINE", 10**9)
    with pytest.raises(Reached):
        read_document(text)


def test_a_list_of_many_names_is_read_when_it_has_a_line_each():
    names = "".join(f'  "dir{number}.d/x.y",\n' for number in range(MAX_DOTS_PER_LINE))
    assert len(read_document(f"version = 1\npaths = [\n{names}]\n")["paths"]) == MAX_DOTS_PER_LINE


@pytest.mark.parametrize("text", ["a = " + "9" * 5_000, "a = " + "[" * 5_000, "a = " + "{a = " * 5_000])
def test_what_the_reader_of_toml_cannot_read_is_the_policys_fault_and_not_ours(text):
    with pytest.raises(BadPolicy, match="is not TOML"):
        read_document(text)


@pytest.mark.parametrize("field", ["principals", "methods", "paths", "commands"])
def test_a_glob_has_a_length(field):
    long = "*" + "a" * MAX_GLOB_CHARS
    with pytest.raises(BadPolicy, match="has 1001 characters"):
        load_policy(f'{RULE}{field} = ["{long}"]\n', EFFECTS, EFFECTS, presets_of())


def kept_by_fnmatch():
    return fnmatch._compile_pattern.cache_info().currsize


def test_no_pattern_of_a_caller_is_kept_for_good():
    record = Record(seq=1, at=0, principal="agent:Jerry", method="files.read", outcome="ok", rule="read", subject="x")
    before = kept_by_fnmatch()
    for field in ("who", "method", "outcome", "rule", "subject"):
        parse_query(f"{field}:kept-for-good-{field}*", 0).matches(record)
    assert glob_matches("files.read", "files.*")
    assert not glob_matches("files.read", "Files.*")
    assert kept_by_fnmatch() == before
    # The control.
    fnmatch.fnmatchcase("files.read", "kept-for-good*")
    assert kept_by_fnmatch() == before + 1
