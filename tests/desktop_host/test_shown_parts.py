"""What is shown of a window, without one: snapshots for models, pictures for people, a part of a tree."""

import base64
import io
import random

import pytest
from element_making import element, tree_of
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bascule.desktop.protocol import INLINE_EDGE_PIXELS
from bascule.programs.desktop_host import pictures, snapshot
from bascule.programs.desktop_host.elements import Key, Tree, arrange, cut
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.linux.accessibility import Node, Program, elements_of
from bascule.programs.desktop_host.linux.toolkits import GTK4, PLAIN

# -- snapshots --


def test_a_snapshot_has_a_line_for_what_can_be_seen_and_used():
    ticked = element("Agree", "AXCheckBox", "/1", states=("showing", "enabled", "checked"), value="1")
    field = element("Name", "AXTextField", "/2", value="line one\nline two")
    grey = element("Send", path="/3", states=("showing",))
    hidden = element("Hidden", path="/4")
    hidden.visible = NOWHERE
    silent = element("", "AXGroup", "/5")
    tree = tree_of(ticked, field, grey, hidden, silent)
    text = snapshot.text_of(
        Tree(elements=tree.elements, partial=("nodes",)), lambda each: each.key.path, lambda words: words
    )
    assert text.splitlines() == [
        'checkbox "Agree" checked [/1]',
        'textfield "Name" = "line one line two" [/2]',
        'button "Send" disabled [/3]',
        "(not all was read: nodes)",
    ]


def lines_of(*elements, parents=None):
    root = element("app", "AXApplication", "/root", rect=NOWHERE)
    pairs = [(each, (parents or {}).get(each.key.path, root.key)) for each in elements]
    tree = arrange([(root, None), *pairs], root.key, max_depth=9, max_nodes=99)
    return snapshot.text_of(tree, lambda each: each.key.path, lambda words: words).splitlines()


def test_the_words_on_a_button_are_its_name_in_a_snapshot_and_have_no_line_of_their_own():
    named, nameless = element("Close Close", path="/1"), element("", path="/2")
    box, one, two = (
        element("", "AXGroup", "/3"),
        *(element(each, "AXStaticText", f"/{each}") for each in ("Close", "π")),
    )
    free, other = element("Free", "AXStaticText", "/7"), element("Not on it", "AXStaticText", "/8")
    parents = {"/Close": named.key, "/3": nameless.key, "/π": box.key, "/8": named.key}
    assert lines_of(named, nameless, one, box, two, free, other, parents=parents) == [
        'button "Close" [/1]',
        '  statictext "Not on it" [/8]',
        'button "π" [/2]',
        'statictext "Free" [/7]',
    ]


def test_what_a_program_shows_cannot_pass_for_a_line_of_ours():
    shown_lines = lines_of(
        element('Cancel" [/9]\nbutton "Pay', path="/1"), element("Note", "AXTextArea", "/2", value='" focused [/9]')
    )
    assert shown_lines == ["button \"Cancel' [/9] button 'Pay\" [/1]", 'textarea "Note" = "\' focused [/9]" [/2]']


@pytest.mark.parametrize(
    ("name", "shown"), [("GtkMenuButton", ""), ("AdwGizmo", ""), ("Gtkmm", "Gtkmm"), ("Save", "Save")]
)
def test_gtk4_calls_nothing_after_its_class(name, shown):
    node = Node("/1", "/0", 0, 0, frozenset(), name, 43, 1 << 30)
    ((made, _),) = elements_of(Program(bus_name="app", pid=1), GTK4, [node])
    assert made.title == shown
    ((elsewhere, _),) = elements_of(Program(bus_name="app", pid=1), PLAIN, [node])
    assert elsewhere.title == name


# -- pictures --


def test_a_large_picture_is_made_small_and_says_by_how_much():
    wide = pictures.inline(Image.new("RGB", (3_000, 1_500)))
    assert (wide.mime_type, wide.width, wide.height) == ("image/png", INLINE_EDGE_PIXELS, INLINE_EDGE_PIXELS // 2)
    assert wide.scale == pytest.approx(3_000 / INLINE_EDGE_PIXELS)
    small = pictures.inline(Image.new("RGB", (30, 10)))
    assert (small.width, small.height, small.scale) == (30, 10, 1)
    thin = pictures.inline(Image.new("RGB", (10_000, 1)))
    assert (thin.width, thin.height) == (INLINE_EDGE_PIXELS, 1)


def test_what_does_not_fit_as_png_is_sent_as_jpeg():
    noise = Image.frombytes("RGB", (1_200, 1_200), random.Random(1).randbytes(1_200 * 1_200 * 3))
    sent = pictures.inline(noise)
    assert sent.mime_type == "image/jpeg"
    assert len(sent.data) < 2 * 1024 * 1024
    assert Image.open(io.BytesIO(base64.b64decode(sent.data))).size == (1_200, 1_200)


def test_a_crop_is_around_what_is_meant_and_never_outside_the_picture():
    image, origin = Image.new("RGB", (100, 80)), Rect(10, 20, 100, 80)
    assert pictures.cropped(image, origin, Rect(50, 50, 10, 10), 5).size == (20, 20)
    assert pictures.cropped(image, origin, Rect(10, 20, 10, 10), 5).size == (15, 15)
    for nowhere in (NOWHERE, Rect(500, 500, 9, 9)):
        assert pictures.cropped(image, origin, nowhere, 5).size == image.size


# -- a part of a tree --


@settings(deadline=None)
@given(st.lists(st.integers(0, 15), max_size=30), st.integers(0, 6), st.integers(1, 20))
def test_a_cut_tree_is_the_tree_that_was_read_with_these_limits(parents, depth, nodes):
    def pairs():
        made = [(element(path=f"/{at + 1}"), Key("app", f"/{min(parent, at)}")) for at, parent in enumerate(parents)]
        return [(element(path="/0"), None), *made]

    root = Key("app", "/0")
    cut_one = cut(arrange(pairs(), root, max_depth=99, max_nodes=999), max_depth=depth, max_nodes=nodes)
    read_so = arrange(pairs(), root, max_depth=depth, max_nodes=nodes)
    seen = [(each.key, each.depth, each.parent, each.children) for each in cut_one.elements]
    assert seen == [(each.key, each.depth, each.parent, each.children) for each in read_so.elements]
    assert bool(cut_one.partial) == bool(read_so.partial)
