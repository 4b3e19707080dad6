"""`docs/mesh.md` is typed word for word at computers with a network of their own, and shows what it says."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from lacking import missing_here
from live_nodes import PASSPHRASE
from living import eventually, short_dir
from namespaces import Computer, address, computers, why_impossible
from team_servers import team_servers

from bascule.mesh.machine import layout
from bascule.mesh.ports import Board
from operator_of_nats import Key, Operator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mesh.md"
COMPUTERS = ("workstation", "laptop", "vm")
# In the part about servers that are there already: whose they are, and where those are.
SERVERS_PART = "## On servers that are there already\n"
TEAM = ("office", "annbook")
SERVERS = ("a", "b", "c")
# On all of them.
EACH = "each"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(rf"^({'|'.join((*COMPUTERS, *TEAM, EACH))})\$ (.+)$")
# What differs from one run to the next, but is the same wherever the page has the same.
_BOUND = re.compile(r"bsc1-[A-Z0-9]+\.\.\.|(?:apr|msh)_[0-9a-f]+\.\.\.|^  (?:[a-z]+ ){4}[a-z]+$", re.MULTILINE)
# What differs each time. The ledger's line has more numbers than one that count.
_FREE = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", r"\d{4}-\d\d-\d\dT[\d:.]+Z"),
    (r"\d{4}-\d\d-\d\d", r"\d{4}-\d\d-\d\d"),
    (r"\bpid \d+", r"pid \d+"),
    (r"\b\d+\.\d+\.\d+\b(?!\.)", r"\d+\.\d+\.\d+\S*"),
    (r"\d+ records \(1 to \d+\), \d+ anchors", r"\d+ records \(1 to \d+\), \d+ anchors"),
    # Whichever of several servers.
    (r"nats://[abc](?!,)", r"nats://[abc]"),
    (r"head [0-9a-f]{16}, [\d.]+ s", r"head [0-9a-f]{16}, [\d.]+ s"),
)
_ANY_LINES = "..."
# A reader looks once more when news of another computer is on its way.
_LOOKS = (
    *("bascule agents", "bascule approvals list", "bascule ledger verify", "bascule mesh status", "bascule node list"),
    "bridgectl show",
)


class Step(NamedTuple):
    """What is typed at one computer and what it shows; without a command, what the one that waits goes on to show."""

    computer: str
    command: str
    shown: str


def steps(page: str) -> Iterator[Step]:
    for block in _BLOCK.findall(page):
        computer = command = ""
        lines: list[str] = []
        for line in block.splitlines():
            if found := _PROMPT.match(line):
                if command:
                    yield Step(computer, command, "\n".join(lines))
                computer, command = found.groups()
                lines = []
            else:
                lines.append(line)
        yield Step(computer, command, "\n".join(lines))


class Running:
    """A command at a computer."""

    def __init__(self, computer: Computer, command: str, shown: str) -> None:
        self.command = command
        self.text = ""
        self.code: int | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(computer, list(_typed(shown))))
        self._thread.start()

    def _run(self, computer: Computer, typed: list[tuple[str, str]]) -> None:
        try:
            self.code, text = computer.type(self.command, typed, self._read)
            self._read(text)
        except BaseException as fault:  # noqa: BLE001 - raised again by whoever waits
            self._fault = fault

    def _read(self, text: str) -> None:
        lines = text.replace("\r\n", "\n").split("\n")
        self.text = "\n".join(line.rstrip() for line in lines).rstrip("\n")

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> str:
        self._thread.join()
        if self._fault is not None:
            raise self._fault
        return self.text


def _typed(shown: str) -> Iterator[tuple[str, str]]:
    """What the page's reader types: passphrases, which no terminal shows, and answers, which it does."""
    for line in shown.splitlines():
        if re.match(r"(Passphrase|New passphrase .*|The same again):$", line):
            yield line.rpartition(" ")[2] + " ", PASSPHRASE
        elif found := re.match(r"(.*\bType \w+: |Approve\? .*: )(\w+)$", line):
            yield found[1], found[2]


class Reader:
    """Who has only the page."""

    def __init__(self, found: dict[str, Computer]) -> None:
        self._computers = found
        # What the page has as an example -> what it is in this run.
        self._bound: dict[str, str] = {}
        self._waiting: Running | None = None
        self._seen = ""

    def follow(self, step: Step) -> None:
        if not step.command:
            self._go_on(step.shown)
            return
        for name in self._computers if step.computer == EACH else (step.computer,):
            self._type(self._computers[name], step)

    def finish(self) -> None:
        assert self._waiting is None, f"the page does not tell how this ends: {self._waiting.command}"

    def _type(self, computer: Computer, step: Step) -> None:
        command = _BOUND.sub(lambda each: self._bound[each[0]], step.command)
        running = Running(computer, command, step.shown)
        if not step.shown or step.shown.endswith("(Ctrl-C ends the waiting; the daemon goes on)"):
            assert self._waiting is None
            eventually(lambda: self.shows(step.shown, running.text) or not running.runs, f"{command} waits")
            assert running.runs, running.end()
            self._waiting, self._seen = running, running.text
            return
        text = running.end()
        if step.command.startswith(_LOOKS) and not self.shows(step.shown, text):
            seen = [text]

            def look() -> bool:
                seen.append(Running(computer, command, step.shown).end())
                return self.shows(step.shown, seen[-1])

            with contextlib.suppress(AssertionError):
                eventually(look, f"{command} shows what the page says")
            text = seen[-1]
        assert self.shows(step.shown, text), f"{computer.name}$ {command}\n{text}\n\nbut the page has:\n{step.shown}"
        refused = re.search(r"^bridge-\w+: |was cancelled", step.shown, re.MULTILINE)
        assert bool(running.code) == bool(refused) or step.command.startswith(_LOOKS), (command, running.code)

    def _go_on(self, shown: str) -> None:
        running, self._waiting = self._waiting, None
        assert running is not None, f"nobody waits to show this: {shown}"
        text = running.end().removeprefix(self._seen).lstrip("\n")
        assert self.shows(shown, text), f"{running.command} ended with:\n{text}\n\nbut the page has:\n{shown}"
        assert running.code == 0

    def shows(self, expected: str, text: str) -> bool:
        names: list[str] = []
        found = re.fullmatch(self._pattern(expected, names), _spaced(text))
        if found is not None:
            self._bound.update((name, found[f"bound{number}"].strip()) for number, name in enumerate(names))
        return found is not None

    def _pattern(self, expected: str, names: list[str]) -> str:
        """As a regular expression; `names` gets what its groups are called on the page."""
        lines = _spaced(expected).split("\n")
        patterns = [r"(?:.*\n)*?" if line == _ANY_LINES else self._line_pattern(line, names) + r"\n" for line in lines]
        # The last line has no end.
        whole = "".join(patterns).removesuffix(r"\n")
        return whole + ".*" if lines[-1] == _ANY_LINES else whole

    def _line_pattern(self, line: str, names: list[str]) -> str:
        parts, end = [], 0
        for each in _BOUND.finditer(line):
            parts.append(_free(line[end : each.start()]))
            name, end = each[0].strip(), each.end()
            if name in self._bound:
                parts.append(re.escape(each[0].replace(name, self._bound[name])))
            elif name in names:
                parts.append(f"(?P=bound{names.index(name)})")
            else:
                like = r"\S+" if name.endswith("...") else "  (?:[a-z]+ ){4}[a-z]+"
                parts.append(f"(?P<bound{len(names)}>{like})")
                names.append(name)
        return "".join(parts) + _free(line[end:])


def _free(text: str) -> str:
    """Escaped, but for what differs each time."""
    whole = re.compile("|".join(f"({on_page})" for on_page, _ in _FREE))
    parts, end = [], 0
    for each in whole.finditer(text):
        assert each.lastindex is not None
        parts += [re.escape(text[end : each.start()]), _FREE[each.lastindex - 1][1]]
        end = each.end()
    return "".join(parts) + re.escape(text[end:])


def _spaced(text: str) -> str:
    """Columns are as wide as what is in them."""
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def test_a_newcomer_with_only_the_page_joins_three_computers_and_writes_between_them():
    if (reason := why_impossible()) is not None:
        missing_here(reason)
    before, _, _ = PAGE.read_text("utf-8").partition(SERVERS_PART)
    page = list(steps(before))
    assert {step.computer for step in page} == {*COMPUTERS, EACH, ""}
    with short_dir() as folder, computers(folder, *COMPUTERS) as found:
        reader = Reader(found)
        for step in page:
            reader.follow(step)
        reader.finish()


def test_a_newcomer_with_only_the_page_and_creds_meets_somebody_else_on_servers_that_are_there():
    if (reason := why_impossible()) is not None:
        missing_here(reason)
    before, heading, part = PAGE.read_text("utf-8").partition(SERVERS_PART)
    assert heading
    # What each computer needs is said once, at the top of the page.
    page = [*(step for step in steps(before) if step.computer == EACH), *steps(part)]
    assert {step.computer for step in page} == {*TEAM, EACH, ""}
    with short_dir() as folder, computers(folder, *TEAM, *SERVERS) as found:
        hosts = Path(folder, "hosts")
        hosts.write_text("".join(f"{address(number)} {name}\n" for number, name in enumerate(found)))
        for computer in found.values():
            computer.knows(hosts)
        operator = Operator()
        office, annbook = (Path(folder, name) for name in TEAM)
        # They may do what the page lists, and nothing else.
        key = Key("user")
        node, asking = layout.node_permissions("annbook"), layout.invited_permissions(key.text)
        may = layout.Permissions([*node.publish, *asking.publish], [*node.subscribe, *asking.subscribe])
        operator.creds(office, "office", layout.authority_permissions("office"))
        operator.creds(annbook, "annbook", may, key=key)
        with team_servers(Path(folder), operator, [found[name] for name in SERVERS]):
            reader = Reader({name: found[name] for name in TEAM})
            for step in page:
                reader.follow(step)
            reader.finish()


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("vm  member  yes", "vm  member  no"),
        ("...\nstatus: delivered\n...", "ticketId: a\nstatus: pending\nfrom: Ada"),
        ("  salad wizard velvet grape pilot", "  lion crown falcon trumpet bucket"),
        ("bascule join bsc1-AB...", "bascule join bsc1-OTHER"),
        ("one line", "one line\nand another"),
        ("2 machines, head efd21c92259d1a01, 0.006 s", "1 machines, head efd21c92259d1a01, 0.006 s"),
    ],
)
def test_a_page_that_has_something_else_is_noticed(page, shown):
    reader = Reader({})
    assert reader.shows("  salad wizard velvet grape pilot\nbsc1-AB...", "  onion tiger cloud spoon robot\nbsc1-CODE")
    assert not reader.shows(page, shown)
    # Control: what only looks different is taken.
    assert reader.shows("  salad wizard velvet grape pilot", "  onion tiger cloud spoon robot")
    assert reader.shows("bascule join bsc1-AB...", "bascule join bsc1-CODE")
    assert reader.shows("...\nstatus: pending\nat 2026-01-01\n...", "a\nb\nstatus: pending\nat 2027-02-03\nc")


@pytest.mark.req("MESH-JOIN-10")
def test_an_operator_finds_every_permission_of_a_node_and_of_the_one_that_holds_the_mesh_key():
    page = PAGE.read_text("utf-8")
    _, _, table = page.partition("| publish | subscribe |\n|---|---|\n")
    table, _, rest = table.partition("\n\n")
    publish, subscribe = zip(*(row.split("|")[1:3] for row in table.splitlines()), strict=True)
    node = layout.node_permissions("NODE")
    assert subjects(*publish) == {*node.publish}
    assert subjects(*subscribe) == {*node.subscribe}
    holder = layout.authority_permissions("NODE")
    more = [_as_pattern(each) for each in subjects(rest.partition("; whoever wants to join")[0])]
    for subject in {*holder.publish, *holder.subscribe} - {*node.publish, *node.subscribe}:
        assert any(re.fullmatch(each, subject) for each in more), subject


def _as_pattern(subject: str) -> str:
    return re.escape(subject).replace(r"\*", "[^.]+").replace(">", ".+")


def subjects(*cells: str) -> set[str]:
    """In backquotes; one of each board is written once."""
    found = [each for cell in cells for each in re.findall(r"`([^`]*\.[^`]*)`", cell)]
    return {each.replace("BOARD", board) for each in found for board in Board}
