"""Our Wayland client without a compositor: bytes, key maps, sway's tree, where a window's numbers begin."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.toplevels import origin
from bascule.programs.desktop_host.linux.wayland.interfaces import INTERFACES
from bascule.programs.desktop_host.linux.wayland.keymaps import layout_of, strokes
from bascule.programs.desktop_host.linux.wayland.sway_tree import seen_in
from bascule.programs.desktop_host.linux.wayland.wire import BadWire, Decoder, encode
from bascule.programs.desktop_host.ports import NoSuchKey, Window

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
VALUES = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "u": st.integers(0, 2**32 - 1),
    "o": st.integers(1, 2**32 - 1),
    "O": st.integers(0, 2**32 - 1),
    "n": st.integers(1, 2**32 - 1),
    "f": st.integers(-(2**31), 2**31 - 1).map(lambda number: number / 256),
    "s": TEXTS,
    "S": st.none() | TEXTS,
    "a": st.binary(max_size=40),
    "h": st.integers(3, 1_000),
}
ARGUMENTS = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])), max_size=6
)


@st.composite
def streams(draw):
    """Messages, and the bytes of all of them in pieces."""
    messages = [
        (draw(st.integers(1, 2**32 - 1)), draw(st.integers(0, 20)), draw(ARGUMENTS))
        for _ in range(draw(st.integers(1, 4)))
    ]
    whole = b""
    descriptors = []
    for object_id, opcode, arguments in messages:
        data, beside = encode(object_id, opcode, "".join(k for k, _ in arguments), [v for _, v in arguments])
        whole += data
        descriptors += beside
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    return messages, pieces, descriptors


@given(streams())
def test_what_is_encoded_is_decoded_however_it_is_cut(stream):
    messages, pieces, descriptors = stream
    decoder = Decoder()
    signatures = iter("".join(kind for kind, _ in arguments) for _, _, arguments in messages)
    found = []
    # As a socket does: descriptors come with the first byte of what they were sent with, never later.
    decoder.feed(b"", descriptors)
    for piece in pieces:
        decoder.feed(piece)
        while (message := decoder.next(lambda *_: next(signatures))) is not None:
            found.append(message)
    assert [(each.object_id, each.opcode, list(each.arguments)) for each in found] == [
        (object_id, opcode, [value for _, value in arguments]) for object_id, opcode, arguments in messages
    ]
    assert decoder.left_over() == []


@given(st.binary(max_size=200), st.text("iufsSoOnah", max_size=6), st.lists(st.integers(3, 9), max_size=2))
def test_any_bytes_are_events_or_refused(data, signature, descriptors):
    decoder = Decoder()
    decoder.feed(data, descriptors)
    try:
        while decoder.next(lambda *_: signature) is not None:
            pass
    except BadWire:
        pass


def test_what_cannot_be_said_is_refused_before_it_is_sent():
    for signature, value in (("s", "a\0b"), ("s", "x" * 70_000), ("q", 1)):
        with pytest.raises(BadWire):
            encode(1, 0, signature, [value])


def test_descriptors_without_an_event_are_given_back():
    decoder = Decoder()
    decoder.feed(b"", [7, 8])
    assert decoder.left_over() == [7, 8]


def test_every_object_that_an_event_makes_is_of_an_interface_that_we_know():
    for interface in INTERFACES.values():
        for event in interface.events:
            assert ("n" in event.signature) == (event.creates is not None)
            assert event.creates is None or event.creates in INTERFACES
        names = {each.name for each in interface.requests}
        assert interface.destructor is None or interface.destructor in names


def test_a_chord_is_keys_of_our_own_map_with_the_shift_it_needs():
    assert [each.code for each in strokes(["ctrl", "v"])] == [29, 47]
    assert [each.code for each in strokes(["?"])] == [42, 53]
    assert [each.code for each in strokes(["shift", "?"])] == [42, 53]
    assert [each.modifier for each in strokes(["cmd", "shift", "alt", "super", "x"])] == [4, 1, 8, 64, 0]
    with pytest.raises(NoSuchKey, match="typeText"):
        strokes(["中"])
    with pytest.raises(NoSuchKey, match="no key is called"):
        strokes(["nosuchkey"])


def test_a_layout_is_read_out_of_the_compositors_keymap():
    keymap = """xkb_keymap { xkb_keycodes "x" { <AD01> = 24; <AD02> = 25; <AE01> = 10; <LFSH> = 50; };
    xkb_symbols "pc_fr" { key <AD01> { type= "ALPHABETIC", symbols[Group1]= [ a, A ] };
    key <AE01> { [ ampersand, 1, onesuperior ] }; key <LFSH> { [ Shift_L ] }; key <AD02> { [ z, Z ] }; }; };"""
    layout = layout_of(keymap)
    assert [each.code for each in strokes(["a"], layout)] == [16]
    assert [each.code for each in strokes(["1"], layout)] == [42, 2]
    assert [each.code for each in strokes(["&"], layout)] == [2]


def node(number, **more):
    return {
        "id": number,
        "type": "floating_con",
        "pid": os.getpid(),
        "app_id": "app",
        "name": f"window {number}",
        "visible": True,
        "focused": False,
        "shell": "xdg_shell",
        "rect": {"x": 100, "y": 125, "width": 304, "height": 202},
        "deco_rect": {"x": 100, "y": 100, "width": 304, "height": 25},
        "window_rect": {"x": 2, "y": 0, "width": 300, "height": 200},
        "nodes": [],
        "floating_nodes": [],
        **more,
    }


def test_windows_of_sway_have_their_place_their_order_and_who_has_the_keys():
    tiled = node(1, type="con")
    full = node(2, type="con", fullscreen_mode=1)
    hidden = node(3, visible=False)
    x11 = node(4, app_id=None, shell="xwayland", window_properties={"class": "XTerm", "instance": "xterm"})
    front = node(5, focused=True)
    space = {"id": 9, "type": "workspace", "nodes": [full, tiled], "floating_nodes": [hidden, front, x11]}
    seen = seen_in({"id": 0, "type": "root", "nodes": [space]}, lambda _: "/usr/bin/program")
    assert [each.handle for each in seen.windows] == [1, 5, 4, 2]
    assert seen.focused == 5
    window = next(each for each in seen.windows if each.handle == 5)
    assert (window.rect, window.outer) == (Rect(102, 125, 300, 200), Rect(100, 100, 304, 227))
    assert (window.active, window.placeless, window.floats) == (True, True, True)
    assert window.names == {"app", "program"}
    other = next(each for each in seen.windows if each.handle == 4)
    assert (other.bundle_id, other.placeless, seen.names[4]) == ("XTerm", False, ("window 4", "XTerm"))
    # Nobody has them: a prompt does.
    assert seen_in({"id": 0, "type": "root", "nodes": [tiled]}, lambda _: None).focused is None


def window_at(rect, outer):
    return Window(handle=1, pid=1, bundle_id="a", names=frozenset({"a"}), title="", rect=rect, outer=outer)


@pytest.mark.parametrize(
    ("top", "inside", "expected"),
    [
        # What it draws in; the frame around it.
        (Rect(0, 0, 300, 200), [], (102, 125)),
        (Rect(0, 0, 304, 227), [], (100, 100)),
        # A shadow around what sway calls the window: its children begin where the shadow ends.
        (Rect(0, 0, 352, 252), [Rect(26, 23, 300, 40), Rect(26, 63, 300, 160)], (76, 102)),
        (Rect(0, 0, 352, 252), [], (76, 99)),
        # A frame that Qt draws itself.
        (Rect(0, 0, 290, 170), [], (107, 150)),
    ],
)
def test_where_numbers_begin_is_found_by_comparing_sizes(top, inside, expected):
    window = window_at(Rect(102, 125, 300, 200), Rect(100, 100, 304, 227))
    assert origin(window, top, inside) == expected
