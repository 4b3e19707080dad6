"""Our block in somebody else's text."""

from bascule.cli.setup.blocks import remove_block, set_block

BLOCK = "<!-- bascule:begin (written by bascule setup) -->\nours\n<!-- bascule:end -->\n"


def test_a_sentence_about_the_markers_is_theirs():
    theirs = "Do not touch the lines between bascule:begin and bascule:end.\n"
    with_block = set_block(theirs, BLOCK)
    assert theirs in with_block
    assert "ours" in with_block
    assert remove_block(with_block) == theirs


def test_a_block_is_replaced_where_it_stands():
    text = set_block("before\n", BLOCK) + "after\n"
    assert set_block(text, BLOCK.replace("ours", "new")) == text.replace("ours", "new")


def test_the_markers_of_a_shells_file_are_found_too():
    block = "# bascule:begin\nalias reply=bridge-reply\n# bascule:end\n"
    assert remove_block(set_block("export A=1\n", block)) == "export A=1\n"
