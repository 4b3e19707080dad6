"""One resolved path: both ways to find it agree on where it leads, and what is acted on is what was judged."""

import errno
import os
import tempfile
import time

import pytest
from by_name import ByName
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_outside import SECRET
from test_files_openers import lay_out, layouts
from test_files_races import SECONDS

from bascule.bridge_list import presets_of
from bascule.kernel.call import Principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import Rule
from bascule.kernel.rows import Effect
from bascule.workspace.machine.files.beneath import KernelOpener, WalkingOpener
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.machine.files.syscalls import has_openat2
from bascule.workspace.paths import parse_path
from bascule.workspace.ports import FileFault
from descriptors import Descriptors
from faults.lacking import missing_here
from faults.swapping import swapping

PRESETS = presets_of()

MAX = 1 << 20
EXAMPLES = 5_000 if os.environ.get("BASCULE_LONG") else 200
# Between two looks at what must not change.
ROUNDS = 10

_paths = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=4).map("/".join)


def resolved(opener, root: int, path: str, *, follow: bool) -> tuple | str:
    """Where it leads: the directory, what is missing there, the name, and the path; or the error."""
    try:
        found = opener.resolve(root, path, follow=follow)
    except OSError as error:
        return errno.errorcode[error.errno]
    at = os.fstat(found.directory)
    os.close(found.directory)
    return at.st_dev, at.st_ino, found.missing, found.name, found.path


@settings(max_examples=EXAMPLES, deadline=None)
@given(layout=layouts, paths=st.lists(_paths, min_size=1, max_size=8), follow=st.booleans())
def test_both_openers_resolve_alike_and_as_the_file_system_does(layout, paths, follow):
    if not has_openat2():
        missing_here("this kernel has no openat2")
    with tempfile.TemporaryDirectory() as directory:
        inside = os.path.join(os.path.realpath(directory), "x/y/z/w/v/workspace")
        os.makedirs(inside)
        lay_out(inside, layout)
        root = os.open(inside, os.O_RDONLY)
        before = Descriptors()
        try:
            for path in paths:
                kernel = resolved(KernelOpener(), root, path, follow=follow)
                assert resolved(WalkingOpener(), root, path, follow=follow) == kernel, (layout, path)
                cached = KernelOpener().resolve_cached(root, path, follow=follow)
                if cached is not None:
                    # Only a plain path has a quick answer, and it is the same one.
                    assert (cached.missing, cached.name, cached.path) == kernel[2:], (layout, path)
                    assert cached.path == path
                    os.close(cached.directory)
                assert before.left() == []
                if isinstance(kernel, tuple):
                    whole = os.path.join(inside, path)
                    head, name = os.path.split(whole)
                    real = os.path.realpath(whole if follow else head)
                    real = real if follow else os.path.join(real, name)
                    assert os.path.normpath(os.path.join(inside, kernel[4])) == real, (layout, path)
        finally:
            os.close(root)


# -- what a path leads to --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "follow", "path"),
    [
        ("gg/config", True, ".git/config"),
        ("deep/gg/config", True, ".git/config"),
        ("gg/hooks/new/x", False, ".git/hooks/new/x"),
        ("e", True, ".env"),
        ("twice", True, ".env"),
        ("e", False, "e"),
        ("gg/e", True, ".env"),
        ("dangling", True, ".git/nowhere/x"),
        ("here/.env", True, ".env"),
        ("new/x", True, "new/x"),
        (".git/config", True, ".git/config"),
    ],
)
def test_a_resolved_path_says_what_was_written_and_where_it_leads(place, written, follow, path):
    (place.inside / ".git/hooks").mkdir(parents=True)
    (place.inside / ".git/config").write_bytes(b"")
    (place.inside / ".env").write_bytes(b"")
    (place.inside / "deep").mkdir()
    for name, target in {
        "gg": ".git",
        "deep/gg": "../deep/../gg",
        "e": ".env",
        "twice": "./e",
        ".git/e": "../.env",
        "dangling": "gg/nowhere/x",
        "here": ".",
    }.items():
        os.symlink(target, place.inside / name)
    with place.root.resolve(parse_path(written), follow=follow) as found:
        assert (found.written, found.path) == (written, path)
        assert found.elsewhere is (written != path)


def test_what_is_acted_on_is_what_was_judged_whatever_the_link_is_by_then(place):
    for name in ("mine", "secret"):
        (place.inside / name).mkdir()
        (place.inside / name / "x").write_bytes(name.encode())
    os.symlink("mine", place.inside / "link")
    with place.root.resolve(parse_path("link/x"), follow=True) as found:
        os.unlink(place.inside / "link")
        os.symlink("secret", place.inside / "link")
        assert place.root.read(found, MAX) == b"mine"
        place.root.replace(found, b"edited", expected=b"mine")
        place.root.create(found, b"written", overwrite=True)
        place.root.delete(found)
    assert os.listdir(place.inside / "mine") == []
    assert (place.inside / "secret/x").read_bytes() == b"secret"


@pytest.mark.parametrize("act", ["read", "create", "replace", "delete", "digest"])
def test_a_name_that_became_a_link_after_it_was_judged_is_not_followed(place, act):
    (place.inside / "x").write_bytes(b"mine")
    (place.inside / "secret").write_bytes(SECRET)
    with place.root.resolve(parse_path("x"), follow=True) as found:
        os.unlink(place.inside / "x")
        os.symlink("secret", place.inside / "x")
        if act == "digest":
            assert place.root.digest(found, MAX) is None
        elif act == "delete":
            # The name goes, which is all that was asked for.
            place.root.delete(found)
        else:
            acts = {
                "read": lambda: place.root.read(found, MAX),
                "create": lambda: place.root.create(found, b"new", overwrite=True),
                "replace": lambda: place.root.replace(found, b"new", expected=SECRET),
            }
            with pytest.raises(FileFault, match=r"replaced by a link meanwhile|is a link"):
                acts[act]()
    assert (place.inside / "secret").read_bytes() == SECRET


def test_a_missing_directory_that_became_a_link_after_it_was_judged_is_not_entered(place):
    (place.inside / "secret").mkdir()
    with place.root.resolve(parse_path("new/deep/x"), follow=False) as found:
        os.symlink("secret", place.inside / "new")
        with pytest.raises(FileFault, match="replaced by a link meanwhile"):
            place.root.create(found, b"x", overwrite=False)
    assert os.listdir(place.inside / "secret") == []


# -- rules on paths, against names that are swapped --------------------------------------------------------------

JERRY = Principal("agent:Jerry")
POLICY = Policy(
    (
        *PRESETS["standard"],
        Rule(
            name="no-secrets",
            decision=Decision.DENY,
            reason="secret",
            methods=("workspace.*",),
            paths=("secret/**", "secret.txt"),
        ),
    ),
    "no secrets",
    "digest",
)


def allowed(method: str, effect: Effect, *paths: str) -> bool:
    verdicts = [POLICY.decide(JERRY, method, effect, lambda path=path: {"path": path}) for path in paths]
    return all(verdict.decision is Decision.ALLOW for verdict in verdicts)


class Judged:
    """Resolve, judge both paths, act on what was resolved: as the runner does it."""

    def __init__(self, root) -> None:
        self.root = root

    def do(self, method: str, effect: Effect, path, act, *, follow: bool):
        with self.root.resolve(path, follow=follow) as found:
            if not allowed(method, effect, found.written, found.path):
                raise FileFault("denied")
            return act(found)

    def read(self, path):
        return self.do("workspace.readFile", Effect.READ, path, lambda at: self.root.read(at, MAX), follow=True)

    def overwrite(self, path):
        write = lambda at: self.root.create(at, b"edited", overwrite=True)  # noqa: E731 - one of four alike
        return self.do("workspace.createFile", Effect.WRITE, path, write, follow=True)

    def create(self, path):
        write = lambda at: self.root.create(at, b"edited", overwrite=False)  # noqa: E731 - one of four alike
        return self.do("workspace.createFile", Effect.WRITE, path, write, follow=False)

    def delete(self, path):
        return self.do("workspace.deleteFile", Effect.WRITE, path, self.root.delete, follow=False)


class JudgedThenOpened(Judged):
    """The control: judges where the path leads, and then resolves it once more to act."""

    def do(self, method, effect, path, act, *, follow):
        super().do(method, effect, path, lambda _at: None, follow=follow)
        with self.root.resolve(path, follow=follow) as found:
            return act(found)


class JudgedAsText(Judged):
    """The control of the control: rules on the text alone, as it was."""

    def do(self, method, effect, path, act, *, follow):
        if not allowed(method, effect, path):
            raise FileFault("denied")
        with self.root.resolve(path, follow=follow) as found:
            return act(found)


class SecretDirectory:
    def __init__(self, inside) -> None:
        self.inside = inside
        (inside / "mine").mkdir()
        (inside / "secret").mkdir()
        os.symlink("secret", inside / "other")
        self.restore()

    def restore(self) -> None:
        secret = self.inside / "secret"
        for name in os.listdir(secret):
            os.unlink(secret / name)
        (secret / "x").write_bytes(SECRET)

    def harmed(self) -> bool:
        secret = self.inside / "secret"
        if os.listdir(secret) == ["x"] and (secret / "x").read_bytes() == SECRET:
            return False
        self.restore()
        return True


def test_a_link_swapped_between_judging_and_acting_leads_past_no_rule(place):
    """`mine` is a directory one moment and a link to what a rule denies the next.

    The controls, in the same place under the same attack: who judges and then resolves anew does get past the rule,
    and who judges the text always does.
    """
    scene = SecretDirectory(place.inside)
    first, second = place.inside / "mine", place.inside / "other"
    descriptor = os.open(first, os.O_RDONLY)
    try:
        with swapping(first, second):
            ours = raced(Judged(place.root), scene, descriptor, SECONDS)
            naive: dict[str, int] = {}
            until = time.monotonic() + max(SECONDS, 30)
            while time.monotonic() < until and not (naive.get("read") and sum(naive.values()) > naive["read"]):
                for name, (_, escapes) in raced(JudgedThenOpened(place.root), scene, descriptor, 0.5).items():
                    naive[name] = naive.get(name, 0) + escapes
    finally:
        os.close(descriptor)
    assert {name: escapes for name, (_, escapes) in ours.items()} == dict.fromkeys(ours, 0)
    assert all(worked for worked, _ in ours.values()), ours
    assert naive["read"] > 0, naive
    assert sum(naive.values()) > naive["read"], naive


def raced(files: Judged, scene: SecretDirectory, mine: int, seconds: float) -> dict[str, tuple[int, int]]:
    """operation -> times that it worked, escapes past the rule; `mine` is the directory, whatever it is called."""
    counted = {}
    for name in ("read", "overwrite", "create", "delete"):
        path = parse_path("mine/new" if name == "create" else "mine/x")
        worked = escapes = 0
        until = time.monotonic() + seconds / 4
        while time.monotonic() < until:
            for _ in range(ROUNDS):
                os.close(os.open("x", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=mine))
                for made in set(os.listdir(mine)) - {"x"}:
                    os.unlink(made, dir_fd=mine)
                try:
                    escapes += getattr(files, name)(path) == SECRET
                    worked += 1
                except (FileFault, OSError):
                    continue
            escapes += scene.harmed()
        counted[name] = (worked, escapes)
    return counted


@pytest.mark.parametrize("files", [Judged, JudgedAsText])
def test_a_link_that_stays_is_judged_by_where_it_leads(place, files):
    (place.inside / "secret.txt").write_bytes(SECRET)
    os.symlink("secret.txt", place.inside / "link")
    act = files(place.root).read
    if files is Judged:
        with pytest.raises(FileFault, match="denied"):
            act(parse_path("link"))
    else:
        assert act(parse_path("link")) == SECRET, "the control must get past the rule"


def test_a_hard_link_is_another_name_and_writing_it_never_changes_the_first(place):
    """A rule on a name cannot see it; but a write replaces the name, and the file that is protected stays."""
    (place.inside / ".git").mkdir()
    (place.inside / ".git/config").write_bytes(b"[core]\n")
    os.link(place.inside / ".git/config", place.inside / "hard")
    files = ByName(place.root)
    files.replace(parse_path("hard"), b"[core]\n\tfsmonitor = evil\n", expected=b"[core]\n")
    files.create(parse_path("hard"), b"evil", overwrite=True)
    files.delete(parse_path("hard"))
    assert (place.inside / ".git/config").read_bytes() == b"[core]\n"


def test_resolving_leaves_no_descriptor_open(place):
    (place.inside / "d").mkdir()
    os.symlink("d", place.inside / "l")
    os.symlink("/", place.inside / "out")
    before = Descriptors()
    root = WorkspaceFiles((), opener=place.root.opener).open_root(os.fspath(place.inside))
    for path in ("d/x", "l/x", "l/new/x", "out/x", "l/../x", "d/x/y/z"):
        for follow in (True, False):
            try:
                root.resolve(path, follow=follow).close()
            except FileFault:
                continue
    root.close()
    assert before.left() == []
