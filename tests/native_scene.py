"""A project, a daemon that knows it, and hooks as a client would send them."""

import contextlib
import os
import stat
import subprocess
import sys
from itertools import count
from pathlib import Path

from bascule.client import SyncClient
from patience import PATIENCE

BRIDGE_NATIVE = str(Path(sys.executable).parent / "bridge-native")
_calls = count(1)

# What agents were seen to do, and worse. Each runs in a fresh copy of nothing: the undo before it put all of it back.
DESTRUCTIVE = [
    "rm -rf src",
    "rm -rf src node_modules .env",
    "rm -rf ./*",
    "rm -rf * .env .gitignore",
    "find . -type f -not -path './.git/*' -delete",
    "find src -name '*.py' -exec rm {} +",
    "find . -path ./.git -prune -o -type d -empty -delete",
    "git clean -fdxq",
    "git reset -q --hard HEAD~1",
    "git checkout -q -- .",
    "git checkout -q feature",
    "git branch -D feature",
    "git stash -q",
    "git stash drop -q",
    "git stash drop -q 'stash@{1}'",
    "git stash clear",
    "git rm -rqf src",
    "git commit -qam x",
    "git commit -q --amend --allow-empty -m other",
    "git checkout -q -b other && git branch -D main",
    "git update-ref -d refs/heads/feature",
    "mv src gone",
    "mv src/m1.py src/m2.py",
    "mv src tests/",
    ": > src/m1.py",
    "truncate -s 0 src/*.py",
    "shred -u src/m3.py",
    "dd if=/dev/zero of=src/m4.py bs=1 count=10 2>/dev/null",
    "chmod -R 777 .",
    "chmod -x run.sh",
    "chmod 000 private",
    "ln -sf /etc/passwd link",
    "rm link && echo x > link",
    "rm -r src && echo x > src",
    "rm run.sh && mkdir run.sh && touch run.sh/inside",
    "sed -i s/value/broken/ src/*.py",
    "perl -pi -e 's/value/broken/' src/m5.py",
    "python3 -c 'import shutil; shutil.rmtree(\"src\")'",
    "python3 - <<'E'\nimport glob, os\nfor name in glob.glob('src/*.py'):\n    os.remove(name)\nE",
    "cp src/m1.py src/m2.py; cp -r tests/. src/",
    "tar cf a.tar src && rm -rf src",
    "tar czf a.tgz src && rm -rf src && mkdir src && echo x > src/new",
    'for f in src/*.py; do echo x > "$f"; done',
    "echo x > new.txt; mkdir -p a/b/c; touch a/b/c/d",
    "touch 'a b' \"a'b\" -- '-rf'; rm -rf src",
    "ln -s src again; rm -rf src",
    "printf 'a\\0b' > src/m1.py",
    "rm -f .gitignore .env; echo '*' > .gitignore",
    'D=src; rm -rf "$D"',
    "ls | grep src | xargs rm -rf",
    "bash -c 'bash -c \"rm -rf src\"'",
    "rm -rf empty tests src/deep",
    "rm -rf node_modules && mkdir node_modules && echo x > node_modules/x",
]  # fmt: skip


def git(directory, *words):
    identity = ["-c", "user.email=a@example.org", "-c", "user.name=a", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout.strip()


def make_project(root):
    """Files, links, modes, empty directories, ignored files, a repository with two branches."""
    for name in ("src/deep/er", "tests", "node_modules/pkg", "empty"):
        (root / name).mkdir(parents=True)
    for number in range(12):
        (root / "src" / f"m{number}.py").write_text(f"value = {number}\n")
        (root / "node_modules" / "pkg" / f"{number}.js").write_bytes(os.urandom(64))
    (root / "src" / "deep" / "er" / "data.bin").write_bytes(bytes(range(256)))
    (root / ".env").write_text("KEY=1\n")
    (root / ".gitignore").write_text("node_modules\n.env\n")
    (root / "run.sh").write_text("#!/bin/sh\nexit 0\n")
    (root / "run.sh").chmod(0o755)
    (root / "private").write_text("x")
    (root / "private").chmod(0o600)
    (root / "link").symlink_to("src/m1.py")
    (root / "dangling").symlink_to("nowhere")
    git(root, "init", "-q", "-b", "main")
    # For the scripts' own commits.
    git(root, "config", "user.email", "a@example.org")
    git(root, "config", "user.name", "a")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    git(root, "branch", "feature")
    (root / "src" / "m1.py").write_text("changed = True\n")
    git(root, "commit", "-q", "-am", "second")
    for number in range(2):
        (root / "src" / "m3.py").write_text(f"put aside {number}\n")
        git(root, "stash", "-q")
    (root / "src" / "m2.py").write_text("not committed\n")
    return root


def snapshot(root):
    """Every name with its kind, mode and bytes; of `.git` what names commits."""
    found = {}
    for folder, folders, names in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            content = None
            if stat.S_ISLNK(mode):
                content = os.readlink(path)
            elif stat.S_ISREG(mode):
                with contextlib.suppress(PermissionError):
                    # Who is not root may have shut it.
                    content = Path(path).read_bytes()
            found[os.path.relpath(path, root)] = (stat.S_IFMT(mode), stat.S_IMODE(mode), content)
    refs = (git(root, "for-each-ref"), git(root, "stash", "list")) if (Path(root) / ".git").is_dir() else None
    head = (Path(root) / ".git" / "HEAD").read_text() if refs is not None else None
    return found, refs, head


class Scene:
    """One client's session in one project."""

    def __init__(self, daemon, root, client="claude", session="session-1"):
        self.daemon = daemon
        self.root = Path(root)
        self.client = client
        self.session = session
        self.wire = SyncClient.connect(daemon.state_dir)

    def close(self):
        self.wire.close()

    def event(self, name, tool=None, arguments=None, **more):
        event = {"hook_event_name": name, "session_id": self.session, "cwd": str(self.root), **more}
        return event | ({"tool_name": tool, "tool_input": arguments} if tool else {})

    def send(self, method, event):
        # The session's process is the one that undoes: it takes back its own work.
        return self.wire.call(method, {"client": self.client, "event": event, "pid": os.getpid()})

    def note(self, name, **more):
        return self.send("sessions.note", self.event(name, **more))

    def before(self, command, call_id=None):
        call_id = call_id or f"t{next(_calls)}"
        event = self.event("PreToolUse", "Bash", {"command": command}, tool_use_id=call_id)
        return call_id, self.send("native.before", event)

    def after(self, command, call_id, name="PostToolUse"):
        return self.send("native.after", self.event(name, "Bash", {"command": command}, tool_use_id=call_id))

    def run(self, command):
        """As a client does it: before, the client's own shell, after; the run is over when this returns."""
        call_id, answer = self.before(command)
        subprocess.run(
            ["bash", "-c", command], cwd=self.root, check=False, capture_output=True, timeout=PATIENCE,
            env={**os.environ, "HOME": str(self.root.parent)},
        )  # fmt: skip
        self.after(command, call_id)
        if "runId" in answer:
            self.wire.call("runs.wait", {"runId": answer["runId"], "waitMs": 60_000})
        return answer

    def undo(self, run_id):
        return self.wire.call("runs.undo", {"runId": run_id})

    def redo(self):
        """Take the last undo back."""
        return self.wire.call("runs.redo", {"spaceId": self.space_id()})

    def space_id(self):
        spaces = self.wire.call("spaces.list", {})
        return next(each["spaceId"] for each in spaces if each["path"] == str(self.root))
