import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.kernel.policy.paths import matches_any, normal, path_matches
from bascule.kernel.policy.steering import STEERING_FILES, TEXT_FILES
from bascule.kernel.policy.zones import SECRET_FILES


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        (".env", ".env", True),
        (".env", "sub/dir/.env", True),
        (".env", ".env.local", False),
        (".env", "x.env", False),
        (".env*", ".env.local", True),
        (".git/**", ".git", True),
        (".git/**", ".git/hooks/pre-commit", True),
        (".git/**", "vendor/lib/.git/config", True),
        (".git/**", ".github/workflows/x.yml", False),
        (".git/**", ".gitignore", False),
        ("*.pem", "keys/a.pem", True),
        ("*.pem", "keys/a.pem/x", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/sub/a.py", False),
        ("src/**/a.py", "src/x/y/a.py", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("docs/", "docs/x", True),
        ("/etc/**", "/etc", True),
        ("/etc/**", "/etc/passwd", True),
        ("/etc/**", "/home/me/etc", False),
        ("/etc/**", "etc/passwd", False),
        ("a+(b)", "a+(b)", True),
        ("a.c", "abc", False),
    ],
)
def test_a_glob_matches_at_any_depth(glob, path, matches):
    assert path_matches(glob, path, exact=False) is matches
    assert path_matches(glob, path, exact=True) is matches


def test_case_and_ignored_characters_count_in_rules_that_allow_and_not_in_rules_that_restrict():
    for path in (".GIT/config", ".Git/Config", ".g\u200cit/config", ".git./config", "x/.git ./config", ".GIT. "):
        assert path_matches(".git/**", path, exact=False)
        assert not path_matches(".git/**", path, exact=True)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        (".ssh/**", ".\N{LATIN SMALL LETTER SHARP S}h/id"),
        (".gitconfig", ".gitcon\N{LATIN SMALL LIGATURE FI}g"),
        (".husky/**", ".hu\N{LATIN SMALL LETTER LONG S}\N{KELVIN SIGN}y/pre-commit"),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}/**", "cafe\N{COMBINING ACUTE ACCENT}/x"),
        (".env", ".\N{FULLWIDTH LATIN SMALL LETTER E}nv"),
    ],
)
def test_a_rule_that_restricts_matches_every_spelling_a_file_system_takes_for_the_name(glob, path):
    assert path_matches(glob, path, exact=False)
    assert not path_matches(glob, path, exact=True)


@pytest.mark.parametrize(
    ("path", "directory", "found"),
    [
        ("a/./b//c", "", "a/b/c"),
        ("./x", "sub", "sub/x"),
        ("../.git/config", "sub", ".git/config"),
        ("/abs", "sub", "/abs"),
        ("x/..", "", "."),
        ("", "", ""),
    ],
)
def test_a_path_is_told_from_where_the_command_stands(path, directory, found):
    assert normal(path, directory) == found


_GLOBS = (*STEERING_FILES, *TEXT_FILES, *SECRET_FILES, "caf\N{LATIN SMALL LETTER E WITH ACUTE}/**", "x. /y", "a/*b/**")
# Letters that some comparison takes for those of an ASCII name, and what some file systems leave out.
_ALIKE = {
    "i": "\N{LATIN SMALL LETTER DOTLESS I}\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}I",
    "s": "\N{LATIN SMALL LETTER LONG S}S",
    "k": "\N{KELVIN SIGN}",
    "e": "\N{FULLWIDTH LATIN SMALL LETTER E}\N{LATIN SMALL LETTER E WITH ACUTE}",
    "/": "\N{FULLWIDTH SOLIDUS}",
}
_names = st.sampled_from([glob.replace("**", "x").replace("*", "y") for glob in _GLOBS])
_changes = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 40), st.just("alike")),
        st.tuples(st.integers(0, 40), st.sampled_from(["\u200c", ".", " ", ". ", "/", "é", "a", "\u0307"])),
    ),
    max_size=4,
)


@settings(max_examples=1_000, deadline=None)
@given(_names, _changes, st.sampled_from(["", "/", "a/", "/é/"]))
def test_many_globs_at_once_match_what_one_of_them_matches(name, changes, before):
    for at, change in changes:
        if change != "alike":
            name = name[:at] + change + name[at:]
        elif at < len(name):
            alike = _ALIKE.get(name[at].lower(), name[at].upper())
            name = name[:at] + alike[at % len(alike)] + name[at + 1 :]
    path = before + name
    assert matches_any(_GLOBS, path) is any(path_matches(glob, path, exact=False) for glob in _GLOBS)
