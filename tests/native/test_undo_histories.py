"""Random histories of two agents, a person and git in real projects: no undo loses the work of others, none is silent.

The model looks at the real tree before and after each act, so it knows who truly wrote what. Bascule sees the states at
which calls began and ended, and what they named. As docs/native.md says: a call that works at the same time as another
one writes nothing that the other one names, and what a person saves while a command works counts for the command.
"""

import contextlib
import os
import random
import shutil
import stat
import subprocess
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest
from test_undo_killed import DYING

from bascule.client import SyncClient
from bascule.client.faults import OutcomeUnknown
from bascule.foundation.errors import Conflict, NotFound
from daemon_process import DaemonProcess
from native_scene import Scene, git
from patience import PATIENCE

LONG = bool(os.environ.get("BASCULE_LONG"))
HISTORIES = 500 if LONG else 6
KILLED = range(100) if LONG else range(8, 10)
PARTS = 10 if LONG else 2
# How many steps lie at most between two kills.
STRIDE = 60
AGENT = "Ada"
BEGAN_LAST = """
import sys
if "up" in sys.orig_argv:
    from bascule.workspace.timeline import Piece
    Piece.able = lambda piece, _key: (list(piece.at_work), list(piece.at_work[:1]))
"""
# A call of all of the project works alone; others keep to one of these.
REGIONS = ["one", "two", "three"]
WHOLE = ""
GIT = [
    "git add -A", "git commit -qam x --allow-empty", "git stash -q", "git stash drop -q", "git stash pop -q",
    "git branch -q -D feature", "git branch -q -f feature HEAD", "git branch -q more", "git reset -q --hard HEAD~1",
    "git reset -q HEAD", "git checkout -q -B other", "git checkout -q main", "git tag -f v1", "git tag -d v1",
    "git pack-refs --all", "git rm -rq --cached two", "git add -A && git commit -q --amend -m y", "git clean -fdq",
]  # fmt: skip
BESIDE_OTHERS = ["git branch -q -D feature", "git branch -q more", "git tag -f v2"]
# Why an undo that finds nothing to do refuses.
NOTHING = ("there is nothing to take back", "was undone already", "there is no undo here", "no run that is kept has")
NOTHING += ("no work of a session", "another repository")
IDENTITY = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Write(NamedTuple):
    """Between two moments an actor takes a path from one value to another."""

    op: str
    actor: str
    old: object
    new: object
    interval: int
    # The writes that counted before it.
    truth: tuple = ()


class Op:
    """A call, from its begin to its end; `names` is the only file of an edit."""

    def __init__(self, scene, actor, region, lines, names=None, *, hidden):
        self.scene, self.actor, self.region, self.lines, self.names = scene, actor, region, lines, names
        self.call = "Bash", {"command": "sh ../step.sh" if hidden else "\n".join(lines)}
        if names is not None and actor == "codex":
            patch = f"*** Begin Patch\n*** Update File: {names}\n@@\n-a\n+b\n*** End Patch"
            self.call = "apply_patch", {"command": patch}
        elif names is not None:
            self.call = "Write", {"file_path": str(scene.root / names), "content": "x"}
        self.id = ""
        self.time = datetime.now(UTC).isoformat()
        self.began = self.ended = 0
        self.first = {}
        # Whether its end was another state than its begin: an undo may take place between them.
        self.left_changes = False


def look(root):
    """Each path with its kind, mode and content; what git has is below `.git`."""
    found = {}
    for folder, folders, names in os.walk(root):
        # What a killed undo has staged goes with a later look at the project.
        folders[:] = [name for name in folders if not name.startswith(".bascule-")]
        if folder == str(root):
            folders.remove(".git")
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = os.readlink(path) if stat.S_ISLNK(mode) else None
            if stat.S_ISREG(mode):
                content = Path(path).read_bytes()
            found[os.path.relpath(path, root)] = (mode, content)
    for name in ("HEAD", "logs/refs/stash"):
        path = root / ".git" / name
        if path.exists():
            found[f".git/{name}"] = path.read_text()
    for line in git(root, "for-each-ref", "--format=%(refname) %(objectname)").splitlines():
        name, value = line.split()
        found[f".git/{name}"] = value
    found[".git/index"] = git(root, "ls-files", "-s")
    return found


def is_directory(value):
    return isinstance(value, tuple) and stat.S_ISDIR(value[0])


def lines_of(value):
    return value[1].decode().split() if isinstance(value, tuple) and isinstance(value[1], bytes) else []


class World:
    """What is there, and of each path the writes that still count (`truth`), and all of them (`raw`)."""

    def __init__(self, seed, root, scenes):
        self.random = random.Random(seed)
        self.root, self.scenes = root, scenes
        self.now = look(root)
        self.truth, self.raw, self.left = {}, {}, {}
        self.ops, self.at_work, self.story = [], [], []
        self.chosen = set()
        # Runs that are taken back, and of each undo which it took back.
        self.gone, self.undoes = set(), {}
        # Where undos of undos can see it as if it had not been written.
        self.by_hand = set()
        self.interval = self.count = self.undone = 0

    def connect(self):
        for scene in self.scenes.values():
            scene.wire.close()
            scene.wire = SyncClient.connect(scene.daemon.state_dir)

    # -- what happens --

    def act(self, line, op=None):
        subprocess.run(
            ["bash", "-c", line], cwd=self.root, check=False, capture_output=True, timeout=PATIENCE,
            env={**os.environ, **IDENTITY, "HOME": str(self.root.parent)},
        )  # fmt: skip
        found = look(self.root)
        self.story.append((op.id if op else "person", line))
        for key in sorted(self.now.keys() | found.keys()):
            if self.now.get(key) != found.get(key):
                self.write(key, found.get(key), op.id if op else "", op.actor if op else "person")
        self.now = found

    def write(self, key, value, op, actor):
        truth = self.truth.setdefault(key, [])
        known = tuple(truth)
        for history in (truth, self.raw.setdefault(key, [])):
            write = Write(op, actor, self.now.get(key), value, self.interval, known)
            if history and (history[-1].op, history[-1].interval) == (op, self.interval):
                first = history.pop()
                write = write._replace(old=first.old, truth=first.truth)
            if write.old != value:
                history.append(write)
        if not op and (first := next((each for each in reversed(truth) if each.old == value), None)):
            # What a person brings to a value that it had before is as if nothing had been written since.
            del truth[truth.index(first) :]
        if not op and any(each.old == value for each in self.raw[key]):
            self.by_hand.add(key)

    def step(self):
        kind = self.random.choice(["begin", "begin", "line", "line", "end", "person"])
        if kind == "begin" and len(self.at_work) < 2:
            self.begin()
        elif kind == "line" and self.at_work:
            self.line(self.random.choice(self.at_work))
        elif kind == "end" and self.at_work:
            self.end(self.random.choice(self.at_work))
        elif kind == "person" and all(op.names and op.region != WHOLE for op in self.at_work):
            region = self.free_region()
            lines = [*GIT, "touch x"] if region == WHOLE and self.random.random() < 0.3 else self.lines(region)
            self.act(lines[0] if len(lines) < 5 else self.random.choice(lines))

    def end_all(self):
        while self.at_work:
            self.end(self.at_work[0])

    def free_region(self):
        if not self.at_work and self.random.random() < 0.5:
            return WHOLE
        return self.random.choice([each for each in REGIONS if each not in [op.region for op in self.at_work]])

    def begin(self):
        if any(op.region == WHOLE for op in self.at_work):
            return
        region = self.free_region()
        actor = self.random.choice(list(self.scenes))
        hidden = self.random.random() < 0.4
        lines, names = self.lines(region), None
        if self.random.random() < 0.35:
            names = self.some(region, stat.S_ISREG) or f"{region or 'one'}/made/new"
            lines = [f"mkdir -p '{os.path.dirname(names) or '.'}'; {self.text_into(names)}"]
        elif region == WHOLE and self.random.random() < 0.5:
            lines = self.random.sample(GIT, self.random.randint(1, 2))
        elif hidden and self.random.random() < 0.2:
            lines.append(self.random.choice(BESIDE_OTHERS))
        op = Op(self.scenes[actor], actor, region, lines, names, hidden=hidden)
        answer = self.send(op, "native.before", "PreToolUse")
        op.id, op.first = answer["runId"], self.now
        self.story.append((op.id, f"begins, {actor}: {op.call}"))
        self.interval += 1
        op.began = self.interval
        self.ops.append(op)
        self.at_work.append(op)

    def send(self, op, method, name):
        return op.scene.send(method, op.scene.event(name, *op.call, tool_use_id=f"c{id(op)}"))

    def line(self, op):
        # What the call does of git's record, and again after an undo, is not known for its own: nothing differs.
        if op.lines and not (op.lines[0].startswith("git") and self.undone > op.began and op.lines.pop(0)):
            self.act(op.lines.pop(0).replace("TOKEN", f"{op.id}."), op)

    def end(self, op):
        while op.lines:
            self.line(op)
        self.send(op, "native.after", "PostToolUse")
        op.scene.wire.call("runs.wait", {"runId": op.id, "waitMs": 60_000})
        self.story.append((op.id, "ends"))
        self.interval += 1
        op.ended = self.interval
        op.left_changes = op.first != self.now
        self.at_work.remove(op)

    # -- shell --

    def some(self, region, is_kind=lambda _mode: True):
        """A path of this kind in this region, if there is one."""
        found = [
            key for key, value in self.now.items()
            if key.startswith(f"{region}/" if region else "") and not key.startswith(".git/") and is_kind(value[0])
        ]  # fmt: skip
        return self.random.choice(found) if found else None

    def text_into(self, path):
        """Each line says who wrote it."""
        self.count += 1
        text = f"TOKEN{self.count}"
        row = self.random.randint(1, 7)
        linked = os.path.lexists(self.root / path) and os.lstat(self.root / path).st_nlink > 1
        # What is written through one name of several shows at that one alone: the others are not looked at.
        ways = [f"sed -i '{row}s/.*/{text}/' '{path}'", f"sed -i '{row}i {text}' '{path}'", f"sed -i {row}d '{path}'"]
        written = f"printf '{text}\\n{text}b\\n'"
        fresh = f"{written} >'{path}'"
        return (
            self.random.choice(ways) if linked else self.random.choice([*ways, fresh, fresh, f"{written} >>'{path}'"])
        )

    def lines(self, region):
        return [self.line_in(region) for _ in range(self.random.randint(1, 4))]

    def line_in(self, region):
        top = region or self.random.choice(REGIONS)
        path, other = self.some(region) or f"{top}/a", self.some(region, stat.S_ISREG) or f"{top}/b"
        folder = self.some(region, stat.S_ISDIR) or top
        new = f"{folder}/{self.random.choice('abcf')}"
        text = self.text_into(other)
        return self.random.choice([
            text, text, text, text, self.text_into(new),
            f"mkdir -p '{new}'; {self.text_into(f'{new}/x')}", f"rm -rf '{path}'", f"rm -f '{other}'",
            f"mv -T '{path}' '{new}'", f"mv -f '{other}' '{new}'", f"mv '{path}' '{folder}'",
            f"chmod {self.random.choice(['600', '755', '644'])} '{other}'", f"chmod 700 '{folder}'",
            f"ln -sfn a '{new}'", f"ln -f '{other}' '{new}'", f"cp '{other}' '{new}'",
            f"rm -rf '{path}'; mkdir -p '{path}'; echo TOKENx >'{path}/x'", f"rm -rf '{path}'; echo TOKENy >'{path}'",
            f"rmdir '{folder}'", f"mkdir -p '{new}/e'",
        ])  # fmt: skip

    # -- taking back --

    def words(self):
        """The words of an undo or of a redo, but for calls that are at work: of those it waits for the end."""
        over = [op for op in self.ops if op.ended]
        quiet = [actor for actor in self.scenes if all(op.actor != actor for op in self.at_work)]
        kinds = ["one"] if over else []
        kinds += ["session", "session", "since", "agent"] if over and quiet else []
        kinds += ["paths", "last"] if over and not self.at_work else []
        kinds += ["to"] if over and not self.at_work else []
        kinds += ["redo", "redo"] if self.undos() else []
        if not kinds:
            return None
        kind = self.random.choice(kinds)
        merge = {"merge": True} if self.random.random() < 0.15 else {}
        if kind == "redo":
            return "runs.redo", {"undoId": self.random.choice(self.undos())} if self.random.random() < 0.4 else {}
        if kind in ("one", "to"):
            return "runs.undo", {"runId" if kind == "one" else "to": self.random.choice(over).id, **merge}
        if kind == "last":
            return "runs.undo", merge
        if kind == "paths":
            path = self.some(WHOLE) or "one"
            words = {"session": self.scenes[quiet[0]].session} if self.random.random() < 0.3 else {}
            return "runs.undo", {"paths": [path], **words, **merge}
        actor = self.random.choice(quiet)
        if kind == "agent" and actor == "codex":
            return "runs.undo", {"agent": AGENT, **merge}
        words = {"session": self.scenes[actor].session, **merge}
        return "runs.undo", words | ({"since": self.random.choice(over).time} if kind == "since" else {})

    def undos(self):
        return list(dict.fromkeys(undo for undo, _ in self.left))

    def undo(self):
        words = self.words()
        if words is not None:
            self.try_undo(*words)

    def call(self, method, params):
        words = params if "runId" in params else {"spaceId": self.space_id(), **params}
        return self.scenes["claude"].wire.call(method, words)

    def try_undo(self, method, params):
        self.story.append((method, params))
        self.before = self.now
        try:
            dry = self.call(method, params | {"dryRun": True})
            unchanged = look(self.root) == self.before
            done = self.call(method, params)
        except (NotFound, Conflict) as error:
            refused = error
        else:
            refused = None
        if refused is not None:
            assert any(each in refused.message for each in NOTHING), self.show(refused.message)
            assert look(self.root) == self.before, self.show("a refused undo changed something")
            return
        assert unchanged, self.show("a dry run changed something")
        found = look(self.root)
        assert answer_of(dry) == answer_of(done), self.show(
            f"a dry run says something else\n{answer_of(dry)}\n{answer_of(done)}"
        )
        chosen = set(done["operations"])
        self.story.append(("answer", (done["operations"], done.get("leftAlone"), done.get("failed"))))
        meant = params.get("paths")
        keys = [
            key for key in sorted(self.now.keys() | found.keys() | self.raw.keys()) if not meant or is_in(key, meant)
        ]
        self.check(chosen, keys, found, done, params)
        self.took_back(done["operations"], found)

    def space_id(self):
        return next(iter(self.scenes.values())).space_id()

    def check(self, chosen, keys, found, done, params):
        named = [each["path"] for each in (*done.get("leftAlone", []), *done.get("failed", []))]
        mine = [op for op in self.ops if op.id in chosen]
        beside = {other.id for op in mine for other in self.ops if overlap(op, other)}
        siblings = {each for each in beside - chosen if any(op.actor == self.actor(each) for op in mine)}
        able = chosen | (beside if params.get("paths") else siblings)
        for key in self.now.keys() | found.keys():
            old, new = self.now.get(key), found.get(key)
            if old != new and not self.may_change(key, able, chosen, found):
                if params.get("merge") and self.keeps_lines(key, chosen, old, new):
                    continue
                raise AssertionError(self.show(f"lost: the work of somebody else in {key}", key))
        if not siblings and not (params.get("paths") and beside - chosen):
            for key in keys:
                if not any(is_in(key, [each]) for each in named):
                    self.check_is_back(key, chosen, found, merge=bool(params.get("merge")))
        if "session" in params and not {"since", "paths"} & params.keys():
            of_it = {op.id for op in self.ops if op.scene.session == params["session"] and op.left_changes}
            missing = (of_it & {stack[-1].op for stack in self.truth.values() if stack}) - chosen - self.gone
            assert not missing, self.show(f"not chosen: {missing}")

    def may_change(self, key, able, chosen, found):
        old, new = self.now.get(key), found.get(key)
        stack, raw = self.truth.get(key, []), self.raw.get(key, [])
        undoes = any(each.startswith("undo") for each in chosen)
        if (undoes and key in self.by_hand) or any(self.left.get((each, key), self) == old for each in chosen):
            # A redo: it is still as that undo has left it.
            return True
        if (stack and stack[-1].op in able) or (raw and raw[-1].op in chosen):
            return True
        # A directory is made where something comes back that was in it.
        return old is None and is_directory(new) and holds(found, key)

    def keeps_lines(self, key, chosen, old, new):
        return all(line in lines_of(new) for line in lines_of(old) if line.partition(".")[0] not in chosen) and bool(
            lines_of(old)
        )

    def check_is_back(self, key, chosen, found, *, merge):
        """What is not named is as it was before the last stretch of the chosen operations, and below is nothing."""
        undoes = any(each.startswith("undo") for each in chosen)
        if undoes and key in self.by_hand:
            return
        stack = self.raw.get(key, []) if undoes else self.truth.get(key, [])
        first = base(stack, chosen)
        top = stack.index(first) if first is not None else len(stack)
        wanted = first.old if first is not None else self.now.get(key)
        result = found.get(key)
        if wanted is None and is_directory(result) and holds(found, key):
            return
        if is_directory(result) and self.now.get(key) is None:
            return
        if not undoes and any(write.op in chosen for write in stack[:top]) and not merge:
            assert result == next(write.old for write in stack if write.op in chosen), self.show(
                f"silent: a part of {key} stays below later work", key
            )
        if first is not None and not merge:
            assert result == wanted, self.show(f"silent: {key} is not back", key)

    def took_back(self, operations, found):
        """In truth an undo takes writes away, and an undo of an undo puts them there again."""
        newest = self.call("spaces.log", {"limit": 1})[0]["operationId"]
        self.chosen = chosen = set(operations)
        for each in operations:
            self.mark(each, undone=True)
        if newest.startswith("undo"):
            self.undoes.setdefault(newest, operations)
        if found == self.now and newest in self.undos():
            return
        self.interval += 2
        self.undone = self.interval
        for key in sorted(self.now.keys() | found.keys()):
            old, new = self.now.get(key), found.get(key)
            if old == new:
                continue
            self.left[newest, key] = new
            stack, raw = self.truth.setdefault(key, []), self.raw.setdefault(key, [])
            write = Write(newest, "person", old, new, self.interval, tuple(stack))
            # Else an undo of undos: what counted when it was so.
            lowest = [each for each in (base(stack, chosen), base(raw, chosen), *reversed(raw)) if each is not None]
            known = next((each.truth for each in lowest if each.old == new), (*stack, write))
            self.truth[key] = list(known)
            raw.append(write)
        self.now = found

    def mark(self, op_id, *, undone):
        """What is taken back is gone; where it is an undo, what that had taken back is there again."""
        for each in self.undoes.get(op_id, ()):
            self.mark(each, undone=not undone)
        if op_id not in self.undoes:
            (self.gone.add if undone else self.gone.discard)(op_id)

    def actor(self, op_id):
        return next(op.actor for op in self.ops if op.id == op_id)

    def show(self, what, key=None):
        writes = [] if key is None else ["truth:", *(each[:5] for each in self.truth.get(key, []))]
        writes += [] if key is None else ["raw:", *(each[:5] for each in self.raw.get(key, []))]
        return "\n".join(map(str, (what, *self.story, *writes)))


def answer_of(done):
    return [sorted(map(str, each)) for each in (done["changes"], [*done.get("leftAlone", []), *done.get("failed", [])])]


def differing(found, wanted):
    return {
        key: (found.get(key), wanted.get(key))
        for key in found.keys() | wanted.keys()
        if found.get(key) != wanted.get(key)
    }


def base(history, chosen):
    """The first write of the last stretch of these operations."""
    return next(iter(list(takewhile(lambda write: write.op in chosen, reversed(history)))[::-1]), None)


def is_in(key, paths):
    return any(key == each or key.startswith(f"{each}/") for each in paths)


def holds(found, folder):
    return any(key.startswith(f"{folder}/") for key in found)


def overlap(one, other):
    return one.began < (other.ended or one.ended) and other.began < one.ended


def is_between(there, now, back):
    """Of a file in a directory's place there may be neither, and a directory may be open for its owner alone."""
    if there is None:
        return None in (now, back) or is_directory(now) != is_directory(back)
    return there in (now, back) or (is_directory(there) and (is_directory(now) or is_directory(back)))


class Place:
    """A daemon, and projects that are copies of one."""

    def __init__(self, home, *args, site=None):
        self.home = home
        env = {"HOME": str(home), "DIES_AT": str(home / "armed")}
        if site is not None:
            (home / "site").mkdir()
            (home / "site" / "sitecustomize.py").write_text(site)
            env["PYTHONPATH"] = str(home / "site")
        self.daemon = DaemonProcess(None, *args, env=env)
        self.wire = SyncClient.connect(self.daemon.state_dir)
        self.token = self.wire.call("agents.register", {"agentId": AGENT, "type": "codex"})["agentToken"]
        self.template = home / "template"
        for number, name in enumerate(("one/sub", "two", "three/sub/deep")):
            (self.template / name).mkdir(parents=True)
            for file in "ab":
                (self.template / name / file).write_text("".join(f"base.{number}{file}{row}\n" for row in range(6)))
        (self.template / ".gitignore").write_text("*/f\n")
        git(self.template, "init", "-q", "-b", "main")
        for number in range(3):
            (self.template / "one" / "log").write_text(f"base.{number}\n")
            git(self.template, "add", "-A")
            git(self.template, "commit", "-q", "-m", str(number))
        git(self.template, "branch", "feature", "HEAD~1")
        (self.template / "two" / "a").write_text("base.aside\n")
        git(self.template, "stash", "-q")

    @contextlib.contextmanager
    def world(self, seed):
        """A new project with a session of each client; the one of codex is a registered agent's."""
        root = self.home / f"project-{seed}"
        shutil.copytree(self.template, root, symlinks=True)
        scenes = {client: Scene(self.daemon, root, client, f"{client}-{seed}") for client in ("claude", "codex")}
        with SyncClient.connect(self.daemon.state_dir, token=self.token) as agent:
            event = scenes["codex"].event("UserPromptSubmit", prompt="x")
            agent.call("sessions.note", {"client": "codex", "event": event, "pid": os.getpid()})
        world = World(seed, root, scenes)
        try:
            yield world
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
        finally:
            for scene in scenes.values():
                scene.close()
            shutil.rmtree(root)

    def play(self, seed):
        with self.world(seed) as world:
            for _ in range(world.random.randint(15, 90)):
                world.step()
                if len(world.ops) > 2 and world.random.random() < 0.2:
                    world.undo()
            world.end_all()
            world.undo()

    def play_all(self, seeds):
        for seed in seeds:
            self.play(seed)

    def kill(self, seed):
        """An undo of a session, killed at several steps; how often it was killed, and how often in the middle."""
        deaths = halves = 0
        with self.world(seed) as world:
            while len(world.ops) < 5 or not world.undos():
                world.step()
                if len(world.ops) >= 5:
                    world.end_all()
                    world.try_undo(
                        "runs.undo", {"session": world.scenes[world.random.choice(list(world.scenes))].session}
                    )
            session = next(op.scene.session for op in world.ops if op.id in world.chosen)
            back, now = world.now, world.before
            world.call("runs.redo", {})
            world.story.append("redone")
            assert look(world.root) == now, world.show("a redo does not bring back what was there")
            steps = 1
            while not self.survives(world, {"session": session}, steps):
                deaths += 1
                there = look(world.root)
                halves += there not in (now, back)
                for key in now.keys() | back.keys() | there.keys():
                    assert is_between(there.get(key), now.get(key), back.get(key)), world.show(f"neither: {key}")
                if there == now or world.random.random() < 0.5:
                    # It may be killed once more: the same goes on.
                    if not self.survives(world, {"session": session}, world.random.randint(1, STRIDE)):
                        # One that was killed after its last step is over.
                        with contextlib.suppress(NotFound):
                            world.call("runs.undo", {"session": session})
                    assert look(world.root) == back, world.show("a repeated undo is not finished")
                world.call("runs.redo", {})
                assert look(world.root) == now, world.show(f"a redo does not bring back what was there, after {steps}")
                steps += world.random.randint(1, STRIDE)
            assert look(world.root) == back, world.show(f"as nobody killed it: {differing(look(world.root), back)}")
        return deaths, halves

    def survives(self, world, params, steps):
        written = self.home / "written"
        written.write_text(str(steps))
        written.replace(self.home / "armed")
        survived = True
        try:
            world.call("runs.undo", params)
        except OutcomeUnknown:
            survived = False
        self.daemon.restart(kill=True)
        world.connect()
        return survived

    def close(self):
        self.wire.close()
        self.daemon.remove()


@pytest.fixture
def start(tmp_path):
    places = []

    def start(*args, **more):
        places.append(Place(tmp_path, *args, **more))
        return places[-1]

    yield start
    for place in places:
        place.close()


@pytest.mark.timeout(6 * PATIENCE)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_undo_loses_the_work_of_others_or_is_silent_about_what_stays(start, part):
    place = start("--durability", "memory")
    place.play_all(range(part, HISTORIES, PARTS))


def test_without_the_rule_for_what_overlaps_a_loss_is_found(start):
    """The control: whoever began last gets what changed while several worked."""
    place = start("--durability", "memory", site=BEGAN_LAST)
    with pytest.raises(AssertionError, match="lost"):
        place.play_all(range(20))


@pytest.mark.timeout(6 * PATIENCE)
@pytest.mark.parametrize("part", range(PARTS))
def test_an_undo_of_a_session_that_is_killed_at_any_step_is_finished_or_taken_back(start, part):
    place = start(site=DYING)
    counts = [place.kill(seed) for seed in KILLED[part::PARTS]]
    deaths, halves = (sum(each) for each in zip(*counts, strict=True))
    assert deaths
    # Of two histories all kills may come before the first change, or after the last one.
    assert halves or not LONG
