"""The parts that need no desktop: tokens, refs, selectors, trees, rectangles, texts in pieces, names of keys."""

import asyncio
import re
import unicodedata

import msgspec
import pytest
from element_making import element, tree_of
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.desktop import roles
from bascule.desktop.errors import DesktopError
from bascule.desktop.host_methods import METHODS
from bascule.desktop.protocol import (
    DEFAULT_LIMIT,
    ConfirmIssueParams,
    HotkeyOptions,
    Meta,
    ObserveOptions,
    Route,
    RouteApp,
    RouteWindow,
    Selector,
    TypeTextOptions,
    WaitUntilCall,
)
from bascule.kernel.evidence import EvidenceRoot
from bascule.programs.desktop_host.elements import Key, arrange, clip
from bascule.programs.desktop_host.executions import Execution, Executions
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.linux.accessibility import Accessibility, Node, Program, elements_of, state_names
from bascule.programs.desktop_host.linux.clipboard import pieces
from bascule.programs.desktop_host.linux.keys import keysym_name, known_keys
from bascule.programs.desktop_host.linux.toolkits import GECKO, GTK3, GTK4, PLAIN, QT, quirks_of
from bascule.programs.desktop_host.linux.wayland import gnome_link
from bascule.programs.desktop_host.matching import first_visible, matches
from bascule.programs.desktop_host.peers import Client, PeerId
from bascule.programs.desktop_host.ports import Aborted, NotReachable, Window
from bascule.programs.desktop_host.redaction import REDACTED, Typed, clean
from bascule.programs.desktop_host.refs import Ambiguous, Refs, find_again, fingerprint_of, read_fingerprint
from bascule.programs.desktop_host.routes import KEEP_OUT, is_kept_out, resolve
from bascule.programs.desktop_host.service import Host
from bascule.programs.desktop_host.tokens import Grant, Tokens
from bascule.testing.clock import FakeClock

ME, OTHER = Client(PeerId(10, 1, 0)), Client(PeerId(10, 2, 0))
MY_AGENT = Client(ME.peer, "agent:one")
rects = st.builds(Rect, *(st.integers(-10, 10),) * 2, *(st.integers(0, 12),) * 2)


# -- rectangles --


@settings(deadline=None)
@given(rects, rects)
def test_what_two_rectangles_share_lies_in_both(one, other):
    shared = one.within(other)
    assert shared == other.within(one) or (shared.empty and other.within(one).empty)
    for x, y in [(shared.x, shared.y)] if not shared.empty else []:
        assert one.contains(x, y)
        assert other.contains(x, y)
    assert one.meets(other) == any(
        other.contains(x, y) for x in range(one.x, one.right) for y in range(one.y, one.bottom)
    )


@settings(deadline=None)
@given(rects, rects)
def test_what_holds_two_rectangles_holds_each(one, other):
    both = one.joined(other)
    for each in (one, other):
        assert each.empty or each.within(both) == each


# -- trees --


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=60), st.integers(0, 6), st.integers(1, 20))
def test_each_element_is_taken_once_from_the_root_down_whatever_parents_a_program_reports(pairs, depth, nodes):
    """Cycles, two parents, orphans: a tree comes out, within its limits."""
    made = [(element(path=f"/{child}"), Key("app", f"/{parent}")) for child, parent in pairs]
    root = element(path="/0")
    tree = arrange([(root, None), *made], Key("app", "/0"), max_depth=depth, max_nodes=nodes)
    keys = [each.key for each in tree.elements]
    assert len(keys) == len(set(keys)) <= nodes
    assert tree.elements[0].key == root.key
    for at, each in enumerate(tree.elements):
        assert each.depth <= depth
        assert each.parent < at
        assert all(tree.elements[child].parent == at for child in each.children)


def test_an_element_scrolled_out_of_its_parent_is_not_seen_though_its_toolkit_says_so():
    outer = element("list", "AXScrollArea", "/1", (0, 0, 100, 50))
    inside, below = element("a", path="/2", rect=(0, 10, 90, 20)), element("b", path="/3", rect=(0, 60, 90, 20))
    half, hidden = element("c", path="/4", rect=(0, 40, 90, 20)), element("d", path="/5", states=())
    root = element("app", "AXApplication", "/root", rect=NOWHERE)
    below_outer = [(each, outer.key) for each in (inside, below, half, hidden)]
    tree = arrange([(root, None), (outer, root.key), *below_outer], root.key, max_depth=9, max_nodes=99)
    clip(tree, Rect(0, 0, 500, 500))
    assert [each.title for each in tree.elements if each.on_screen] == ["list", "a", "c"]
    assert half.visible == Rect(0, 40, 90, 10)


def test_a_menus_items_are_seen_outside_of_it():
    bar, menu = element("", "AXMenuBar", "/1", (0, 0, 100, 20)), element("File", "AXMenu", "/2", (0, 0, 30, 20))
    item = element("Open", "AXMenuItem", "/3", (0, 20, 80, 20))
    root = element("app", "AXApplication", "/root", rect=NOWHERE)
    pairs = [(root, None), (bar, root.key), (menu, bar.key), (item, menu.key)]
    tree = arrange(pairs, root.key, max_depth=9, max_nodes=99)
    clip(tree, Rect(0, 0, 500, 500))
    assert item.visible == item.rect


# -- AT-SPI --


def test_every_native_role_has_one_ax_role_and_the_way_back_leads_to_it():
    for number in range(131):
        native = roles.native_role(number)
        ax = roles.ax_role(native)
        assert ax in roles.known_roles()
        assert ax == "AXUnknown" or native in roles.native_roles(ax)
    assert roles.native_role(43) == "push button"
    assert roles.native_role(40) == "password text"
    assert roles.native_role(10_000) == "unknown"
    assert roles.native_roles("AXNothing") == ()


def test_states_are_named_by_their_bits():
    assert state_names(1 << 4 | 1 << 12 | 1 << 41) == {"checked", "focused", "checkable"}


@pytest.mark.parametrize(
    ("toolkit", "version", "quirks"),
    [("gtk", "3.24.38", GTK3), ("GTK", "4.8.3", GTK4), ("Qt", "6.4.2", QT), ("Gecko", "153", GECKO), ("", "", PLAIN)],
)
def test_quirks_are_chosen_by_toolkit_and_version(toolkit, version, quirks):
    assert quirks_of(toolkit, version) == quirks


def test_a_text_of_one_line_is_a_field_and_one_of_many_an_area():
    program = Program(bus_name="app", pid=1)
    root = "/org/a11y/atspi/accessible/root"
    nodes = [Node("/1", "/0", 0, 0, frozenset(), "a", 61, 0), Node("/2", "/0", 1, 0, frozenset(), "b", 61, 1 << 17)]
    made = [each for each, _ in elements_of(program, PLAIN, nodes)]
    assert [each.role for each in made] == ["AXTextField", "AXTextArea"]
    (window, _), *_ = elements_of(program, QT, [Node("/3", root, 0, 0, frozenset(), "w", 20, 0)])
    assert window.role == "AXWindow"
    (shown, _), *_ = elements_of(program, GTK4, [Node("/4", "/0", 0, 0, frozenset(), "w", 43, 1 << 30)])
    assert "showing" in shown.states


# -- tokens --


def grant(**changed):
    return Grant(**{"client": ME, "method": "desktop.click", "digest": "d", "workspace": "/w"} | changed)


def test_a_token_is_spent_by_exactly_what_it_was_issued_for():
    tokens = Tokens(FakeClock())
    token = tokens.issue(grant(), 60)
    for wrong in (
        {"client": OTHER},
        {"client": MY_AGENT},
        {"method": "desktop.hotkey"},
        {"digest": "e"},
        {"workspace": "/v"},
    ):
        assert tokens.spend(token, grant(**wrong)) is not None
    assert tokens.spend(token, grant()) is None
    assert tokens.spend(token, grant()) is not None


def test_a_token_ends_by_the_monotonic_clock_whatever_the_wall_says():
    clock = FakeClock()
    tokens = Tokens(clock)
    token = tokens.issue(grant(), 60)
    clock.advance(59.9)
    kept = tokens.issue(grant(), 60)
    assert tokens.spend(token, grant()) is None
    clock.advance(60)
    assert tokens.spend(kept, grant()) == "the token has expired"


def test_a_reused_pid_is_another_process():
    """The number is the same, the start time is not."""
    tokens = Tokens(FakeClock())
    token = tokens.issue(grant(), 60)
    assert OTHER.peer.pid == ME.peer.pid
    assert tokens.spend(token, grant(client=OTHER)) is not None
    tokens.forget(OTHER.peer)
    assert len(tokens) == 1
    tokens.forget(ME.peer)
    assert tokens.spend(token, grant()) is not None


# -- refs --


@settings(deadline=None)
@given(st.text(max_size=40), rects)
def test_a_fingerprint_reads_back_whatever_the_title_holds(title, rect):
    made = element(title, rect=rect)
    read = read_fingerprint(fingerprint_of(made))
    assert (read.role, read.title, read.rect) == ("AXButton", title, rect)


@pytest.mark.parametrize("text", ["", "AXButton", "AXButton|x", "|x|x=1,y=2,w=3,h=4", "AXButton|x|x=a,y=2,w=3,h=4"])
def test_what_is_no_fingerprint_is_none(text):
    assert read_fingerprint(text) is None


def test_an_element_keeps_its_name_and_the_oldest_names_go_first():
    refs = Refs(max_per_client=2)
    one, two, three = (element(path=f"/{number}") for number in range(3))
    names = [refs.name(ME, each, 1) for each in (one, two)]
    assert refs.name(ME, one, 1) == names[0]
    refs.name(ME, three, 1)
    assert refs.get(ME, names[1]) is None
    assert refs.get(ME, names[0]) is not None
    assert refs.get(OTHER, names[0]) is None
    assert refs.get(MY_AGENT, names[0]) is None
    mine = refs.name(MY_AGENT, one, 1)
    refs.forget(OTHER.peer)
    assert refs.get(MY_AGENT, mine) is not None
    # A process is gone with everybody it spoke for.
    refs.forget(ME.peer)
    assert refs.get(ME, names[0]) is None
    assert refs.get(MY_AGENT, mine) is None


def test_what_elements_show_is_not_kept_and_the_clients_are_limited():
    refs = Refs(max_clients=2)
    shown = element("A title", value="a document", path="/1")
    clients = [Client(ME.peer, f"agent:{number}") for number in range(3)]
    names = [refs.name(each, shown, 1) for each in clients]
    assert [refs.get(each, name) is None for each, name in zip(clients, names, strict=True)] == [True, False, False]
    kept = refs.get(clients[1], names[1])
    assert (kept.element.title, kept.element.value) == ("", None)
    assert kept.fingerprint == fingerprint_of(shown)
    # Nobody's element was changed by that.
    assert (shown.title, shown.value) == ("A title", "a document")


def test_of_elements_that_look_alike_the_one_in_the_same_place_is_meant():
    one, two = element("Twin", path="/1"), element("Twin", path="/2", rect=(50, 0, 10, 10))
    tree = tree_of(one, two)
    assert find_again(tree, fingerprint_of(two)) is two
    with pytest.raises(Ambiguous):
        find_again(tree, "AXButton|Twin|x=1,y=1,w=1,h=1")
    assert find_again(tree, "AXButton|Other|x=1,y=1,w=1,h=1") is None
    assert find_again(tree_of(one), "AXButton|Twin|x=1,y=1,w=1,h=1") is one


# -- selectors and routes --


def test_of_several_hits_the_first_that_can_be_seen_is_meant():
    hidden, seen = element("a", path="/1"), element("a", path="/2")
    hidden.visible = NOWHERE
    assert first_visible(matches(tree_of(hidden, seen), Selector(title_contains="a", by_role="AXButton"))) is seen
    assert first_visible([hidden]) is hidden
    assert first_visible([]) is None


def window(handle, pid, name, title="t", *, active=False, popup=False):
    return Window(
        handle=handle,
        pid=pid,
        bundle_id=name,
        names=frozenset({name}),
        title=title,
        rect=Rect(0, 0, 9, 9),
        outer=Rect(0, 0, 9, 9),
        active=active,
        popup=popup,
    )


def test_a_route_finds_the_window_in_front_the_named_app_and_the_matching_title():
    low, front = window(1, 10, "low", "Letter A"), window(3, 20, "front", active=True)
    menu, second = window(4, 10, "low", popup=True), window(2, 10, "low", "Letter B")
    windows = [low, second, front, menu]
    assert resolve(windows, None).window is front
    by_app = resolve(windows, Route(app=RouteApp(bundle_id="low")))
    assert by_app.window is second, "the topmost of its windows"
    assert [each.handle for each in by_app.windows] == [2, 1, 4]
    by_title = resolve(windows, Route(window=RouteWindow(title_pattern="^Letter A")))
    assert by_title.window is low
    assert by_title.searched == (low,)
    for route in (Route(app=RouteApp(bundle_id="none")), Route(window=RouteWindow(title_pattern="none"))):
        with pytest.raises(DesktopError, match="no window"):
            resolve(windows, route)
    with pytest.raises(DesktopError, match="no window is in front"):
        resolve([low], None)
    with pytest.raises(DesktopError, match="bundleId or pid"):
        resolve(windows, Route(app=RouteApp()))


@pytest.mark.parametrize("name", ["org.keepassxc.KeePassXC", "Bitwarden", "1Password", "pinentry-gtk-2", "bascule"])
def test_password_managers_and_ourselves_are_kept_out(name):
    assert is_kept_out(window(1, 1, name), KEEP_OUT)
    with pytest.raises(DesktopError, match="never seen into"):
        resolve([window(1, 1, name, active=True)], None)
    assert not is_kept_out(window(1, 1, "org.gnome.Calculator"), KEEP_OUT)
    # A dialog of that program, under another name.
    dialog = msgspec.structs.replace(window(1, 1, "Open File"), process_names=frozenset({"Open File", name}))
    assert is_kept_out(dialog, KEEP_OUT)


CONSOLE_TITLES = [
    "Approvals · Bascule",
    "(3) Approvals · Bascule - Chromium",
    "Ledger · Bascule \u2014 Mozilla Firefox",
]
OTHER_TITLES = ["Bascule", "About · Bascule in the press - Chromium", "Approvals Bascule - Chromium", "· Bascule docs"]


@pytest.mark.parametrize("title", CONSOLE_TITLES)
def test_a_tab_of_our_console_is_kept_out_and_the_browser_is_not(title):
    console, other = window(1, 7, "chromium", title, active=True), window(2, 7, "chromium", "News - Chromium")
    assert is_kept_out(console, KEEP_OUT)
    with pytest.raises(DesktopError, match="Bascule's console is never seen into"):
        resolve([other, console], None)
    # By its pattern it is not even found: whether one matches would tell the title.
    with pytest.raises(DesktopError, match="no window's title matches"):
        resolve([other, console], Route(window=RouteWindow(title_pattern="Bascule")))
    named = Route(window=RouteWindow(title_pattern="News"))
    found = resolve([other, console], named)
    assert found.window is other
    assert console not in found.windows, "what is searched and shown of a program is without it"


def test_a_title_pattern_that_misses_is_answered_alike_with_and_without_a_window_that_is_kept_out():
    """Otherwise it would be no miss that is counted, and the titles of the others could be read letter by letter."""
    console, other = window(1, 7, "chromium", CONSOLE_TITLES[1], active=True), window(2, 7, "chromium", "News")
    app = RouteApp(bundle_id="chromium")
    guess = Route(app=app, window=RouteWindow(title_pattern="^A"))
    for windows in ([other, console], [other]):
        with pytest.raises(DesktopError, match="no window's title matches"):
            resolve(windows, guess)
    assert resolve([other, console], Route(app=app, window=RouteWindow(title_pattern="^N"))).window is other
    # The control: where all that was named is kept out, that is said of every pattern.
    for pattern in ("^A", "Approvals"):
        with pytest.raises(DesktopError, match="never seen into"):
            resolve([console], Route(app=app, window=RouteWindow(title_pattern=pattern)))


@pytest.mark.parametrize("title", OTHER_TITLES)
def test_other_titles_are_not_the_consoles(title):
    assert not is_kept_out(window(1, 7, "chromium", title), KEEP_OUT)
    assert resolve([window(1, 7, "chromium", title, active=True)], None)


def test_what_acts_takes_a_confirmation_and_nothing_else_does():
    for row in METHODS.values():
        assert row.confirmed == ("confirm" in row.wire_type().__struct_fields__)


@pytest.mark.req("DSK-5.3-5")
@pytest.mark.req("DSK-5.8-5")
@pytest.mark.req("DSK-5.10-6")
def test_what_is_left_out_has_the_contracts_defaults():
    options = ObserveOptions()
    assert (options.include_screenshot, options.include_ax_tree) == (True, True)
    assert (options.ax_max_depth, options.ax_max_nodes) == (8, 2000)
    defaults = {
        name: value
        for kind in (WaitUntilCall, ConfirmIssueParams, Meta, HotkeyOptions, TypeTextOptions)
        for name, value in zip(
            kind.__struct_fields__[-len(kind.__struct_defaults__) :], kind.__struct_defaults__, strict=True
        )
    }
    assert defaults["poll_ms"] == 500
    assert defaults["ttl_ms"] == defaults["timeout_ms"] == 60_000
    assert DEFAULT_LIMIT == 10


# -- texts --


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(8, 40))
def test_pieces_are_the_text_each_small_enough(text, limit):
    parts = pieces(text, limit)
    assert "".join(parts) == text
    for part in parts:
        assert len(part.encode()) <= limit


def test_a_piece_does_not_end_inside_a_character_as_people_see_it():
    text = "x" * 7 + "e\u0301" + "👩\u200d💻" + "👍🏽" + "\r\n" * 3
    for limit in range(24, 40):
        for part in pieces(text, limit)[1:]:
            assert not unicodedata.combining(part[0])
            assert part[0] not in "\u200d\U0001f3fd\n"


def test_every_named_key_has_a_keysym_and_cmd_is_control():
    assert all(keysym_name(name) for name in known_keys())
    assert keysym_name("cmd") == keysym_name("CTRL") == "Control_L"
    assert keysym_name("super") == "Super_L"
    assert keysym_name("enter") == "Return"
    assert keysym_name("中") == "中"
    assert keysym_name("nokey") is None
    assert keysym_name("\n") is None


def test_what_was_typed_is_found_again_line_by_line_and_short_words_are_not():
    typed = Typed()
    typed.remember("first line\nno\nsecond-secret")
    assert typed.shown_in("Title: second-secret - Editor")
    assert not typed.shown_in("no")
    assert clean("x first line y", typed) == REDACTED
    assert clean("nothing", typed) == "nothing"
    assert re.fullmatch(r"[0-9a-f]{16}", typed.digest("x"))
    assert typed.digest("x") != Typed().digest("x"), "the key is the host's own"
    shows = element("second-secret", path="/1", rect=(1, 2, 3, 4))
    password = element("Password", roles.SECRET, "/2", rect=(5, 6, 7, 8))
    assert typed.places(tree_of(shows, password)) == [Rect(1, 2, 3, 4), Rect(5, 6, 7, 8)]


def test_a_text_longer_than_what_is_read_of_an_element_is_found_all_the_same():
    typed = Typed()
    secret = "correct horse battery staple " * 1_000
    typed.remember(secret)
    assert typed.shown_in(secret[:16_384])
    assert clean("before it: " + secret[:300], typed) == REDACTED
    assert not typed.shown_in("a horse")
    assert sum(map(len, typed._all)) < 1_000, "a million characters are not kept to be looked for"


META = Meta(schema_version=1, request_id="r", workspace_path="/w")


def test_what_is_being_written_down_is_neither_cancelled_nor_aborted():
    async def story():
        executions = Executions(FakeClock())
        began, written = asyncio.get_running_loop().create_future(), asyncio.Event()

        async def run():
            with executions.running(ME, META, "desktop.click") as execution:
                began.set_result(execution)
                execution.ending = True
                await written.wait()
            return "the answer"

        task = asyncio.ensure_future(run())
        execution = await began
        assert executions.find(ME, "r") is None
        aborting = asyncio.ensure_future(executions.abort(execution))
        await asyncio.sleep(0)
        written.set()
        await aborting
        assert await task == "the answer"

    asyncio.run(story())


class CountingBus:
    """A bus that counts rules, as the real one does."""

    connected = True

    def __init__(self):
        self.rules = []

    def listen(self, _handler):
        pass

    async def match(self, rule, *, on):
        # Another task may come in between, as over a socket.
        await asyncio.sleep(0)
        self.rules.append(rule) if on else self.rules.remove(rule)


def test_however_many_listen_at_once_the_bus_is_asked_once_and_forgets_it_afterwards():
    async def story():
        bus = CountingBus()
        accessibility = Accessibility(bus)
        inside, leave = [], asyncio.Event()

        async def listen(number):
            async with accessibility.listening(lambda *_: None):
                inside.append(len(bus.rules))
                if number % 2:
                    raise RuntimeError("it ends in another way")
                await leave.wait()

        tasks = [asyncio.ensure_future(listen(number)) for number in range(6)]
        for _ in range(50):
            await asyncio.sleep(0)
        tasks[0].cancel()
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert inside == [2] * 6
        assert bus.rules == []

    asyncio.run(story())


def test_a_stopped_execution_lets_nothing_through():
    async def story():
        execution = Execution(ME, "r", "desktop.click", FakeClock(), 1_000)
        execution.halt.check()
        execution.stop()
        with pytest.raises(Aborted):
            execution.halt.check()
        with pytest.raises(Aborted):
            execution.halt.pause(60)

    asyncio.run(story())


# -- a shell that answers late --


class LateDesktop:
    """A desktop whose shell is asked when it opens, as GNOME's is."""

    def __init__(self, link):
        self._link = link

    async def open(self):
        await self._link.open()

    async def close(self):
        self._link.close()


def test_a_shell_that_does_not_answer_in_time_is_asked_again_by_the_next_call(tmp_path, monkeypatch):
    """A bus that takes the connection and says nothing: a suspended shell looks like it."""
    monkeypatch.setattr(gnome_link, "ANSWER_SECONDS", 0.05)

    async def story():
        path = str(tmp_path / "bus")
        taken = []

        async def silent(_reader, writer):
            taken.append(writer)

        server = await asyncio.start_unix_server(silent, path)
        link = gnome_link.GnomeLink({"DBUS_SESSION_BUS_ADDRESS": f"unix:path={path}"})
        logged = []
        root = EvidenceRoot(str(tmp_path))
        service = Host(LateDesktop(link), root, FakeClock(), lambda event, **fields: logged.append(event))
        # Not the end: what does not answer may answer later, and every call looks again.
        await service.open()
        assert logged == ["not_reachable"]
        assert service._ready
        with pytest.raises(NotReachable, match="does not answer within"):
            await link.open()
        assert len(taken) == 2
        for writer in taken:
            writer.close()
        server.close()
        root.close()

    asyncio.run(story())
