"""A hundred calls that destroy something, the same for every client, and the place in which they run.

Fixed before what is measured by them was mended: a call that no undo holds stays in the list, and is counted.
"""

import os
import shutil
import stat
import subprocess
from pathlib import Path

from native_scene import DESTRUCTIVE, git, make_project

# What a client or Bascule makes beside the two folders.
OURS = {"project", "beside", "home", "copy", "script.sh"}

# Beside the scripts that the hooks' own tests run: what agents did and an undo missed, and what clients make different.
MORE = [
    # Writing without a word that destroys.
    "cat > src/m1.py <<'X'\nlost\nX",
    "echo lost | tee src/m1.py src/m2.py",
    'awk \'BEGIN { print "lost" > "src/m1.py" }\'',
    "cp /dev/null src/m1.py",
    "install -m 600 /dev/null src/m1.py",
    "make clobber",
    "sh tools/wipe.sh",
    "./tools/wipe.sh",
    # Programs that are not read.
    'python3 -c "$(echo aW1wb3J0IHNodXRpbCxvcztzaHV0aWwucm10cmVlKCdzcmMnKQ== | base64 -d)"',
    "python3 -c \"import sqlite3; c = sqlite3.connect('db.sqlite'); c.execute('drop table t'); c.commit()\"",
    "env -i PATH=/usr/bin:/bin sh -c 'rm -r src'",
    "timeout 20 nice rm -r src",
    "eval 'rm -r src'",
    "trap 'rm -r src' EXIT",
    "(cd src && rm -r ./*)",
    'rm -r "$(pwd)/src"',
    # Modes, links, attributes, names.
    "chmod -R 000 src docs",
    "chmod -R a-w src && chmod 700 .",
    "rmdir sticky && rm -r shared && chmod 4755 run.sh",
    "python3 -c \"import os; os.removexattr('docs/page.md', 'user.note')\"; rm docs/page.md",
    "echo lost > hard",
    "rm hard && ln src/m3.py hard",
    "mkfifo src/pipe && mv src/m1.py src/M1.PY",
    "rm -r docs && ln -s src docs",
    "rm names/*",
    "mv names/* . && rmdir names",
    # Files that programs obey, and git.
    "rm -r .vscode .claude Makefile",
    "rm -r .git/hooks",
    "rm -r vendor/lib",
    "git config user.name lost && git remote add lost /nowhere",
    "git tag -d v1 && git tag v2",
    "git reset -q --hard side && git commit -q --allow-empty -m later",
    "git checkout -q -f --orphan fresh && git rm -rqf .",
    "git restore -q --source=HEAD~1 src && git add -A",
    "git pack-refs --all && git commit -qam packed",
    "git mv src/m1.py src/renamed.py && git commit -qm moved",
    # Beside the project.
    "rm ../beside/a",
    "mv ../beside/b ../beside/c && echo lost > ../beside/d",
    "sed -i s/kept/lost/ ../beside/a",
    "rm -r ../beside/folder",
    "mv src ../beside/",
    "cp -r src ../beside/src && rm -r src",
    "chmod 600 ../beside/a",
    # Later than the call.
    "nohup sh -c 'sleep 1; rm -r src' >/dev/null 2>&1 &",
    "(sleep 1; echo lost > src/m1.py) >/dev/null 2>&1 &",
]
# The project itself: a session each, for the directory that the client stands in is another afterwards.
ALONE = ["mv ../project ../elsewhere", "cd .. && rm -r project"]
CALLS = [*DESTRUCTIVE, *MORE, *ALONE]


def make_place(root: Path) -> None:
    """`project`, which git knows, and `beside`, which is nobody's."""
    project, beside = root / "project", root / "beside"
    for name in ("docs", "names", "shared", "sticky", "tools", ".vscode", ".claude", "vendor/lib"):
        (project / name).mkdir(parents=True)
    (project / "docs" / "page.md").write_text("page\n")
    os.setxattr(project / "docs" / "page.md", "user.note", b"1")
    for name in ("n\u0303o", "\u00f1o", "-rf", "a\nb", "tab\there", "quote'\""):
        (project / "names" / name).write_text("named\n")
    (project / os.fsdecode(b"names/\xff")).write_text("named\n")
    (project / "shared" / "file").write_text("shared\n")
    (project / "shared").chmod(0o2775)
    (project / "sticky").chmod(0o1777)
    (project / ".vscode" / "tasks.json").write_text("{}\n")
    (project / ".claude" / "notes.md").write_text("notes\n")
    (project / "Makefile").write_text("clobber:\n\trm -r src docs\n")
    (project / "tools" / "wipe.sh").write_text("#!/bin/sh\nrm -r src tests\necho lost > docs/page.md\n")
    (project / "tools" / "wipe.sh").chmod(0o755)
    subprocess.run(
        ["python3", "-c", "import sqlite3; c = sqlite3.connect('db.sqlite'); c.execute('create table t (a)')"],
        cwd=project,
        check=True,
    )
    git(project / "vendor" / "lib", "init", "-q")
    (project / "vendor" / "lib" / "code").write_text("code\n")
    git(project / "vendor" / "lib", "add", "code")
    git(project / "vendor" / "lib", "commit", "-q", "-m", "theirs")
    make_project(project)
    (project / "hard").hardlink_to(project / "src" / "m5.py")
    git(project, "tag", "v1")
    git(project, "branch", "side", "HEAD~1")
    (beside / "folder" / "deep").mkdir(parents=True)
    for name in ("a", "b", "folder/one", "folder/deep/two"):
        (beside / name).write_text(f"kept {name}\n")


class Place:
    """What is there, compared with what was, and made anew where an undo did not do it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        make_place(root)
        (root / "copy").mkdir()
        for name in ("project", "beside"):
            subprocess.run(["cp", "-a", root / name, root / "copy"], check=True)
        self.was = self.look()

    def look(self) -> dict[str, object]:
        """Every name with kind, mode, attributes and bytes; of `.git` what a person would miss."""
        found: dict[str, object] = {name: "new" for name in os.listdir(self.root) if name not in OURS}
        for top in ("project", "beside"):
            for folder, folders, names in os.walk(self.root / top):
                # Of a link there is no `.git` here.
                if ".git" in folders:
                    folders.remove(".git")
                    found |= _of_git(Path(folder), self.root)
                for name in (".", *folders, *names):
                    path = Path(folder, name)
                    found[str(path.relative_to(self.root))] = _of(path)
        return found

    def differs(self) -> set[str]:
        now = self.look()
        return {name for name in {*now, *self.was} if now.get(name) != self.was.get(name)}

    def other_names(self, path: str) -> list[str]:
        """Its hard links, as they were."""
        copy = self.root / "copy"
        was = copy / os.path.relpath(path, self.root)
        return [
            str(self.root / each.relative_to(copy))
            for each in copy.rglob("*")
            if was.exists() and each.is_file() and each.samefile(was)
        ]

    def make_anew(self) -> None:
        """By hand, as a person would from a copy."""
        for name in os.listdir(self.root):
            if name not in OURS:
                _remove(self.root / name)
        for top in ("project", "beside"):
            (self.root / top).mkdir(exist_ok=True)
            for name in os.listdir(self.root / top):
                _remove(self.root / top / name)
            subprocess.run(["cp", "-a", f"{self.root}/copy/{top}/.", self.root / top], check=True)
        assert not self.differs()


def _remove(path: Path) -> None:
    subprocess.run(["chmod", "-R", "u+rwx", path], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _of(path: Path) -> tuple[object, ...]:
    kind = path.lstat()
    try:
        content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    except PermissionError:
        content = "shut"
    attributes = [] if path.is_symlink() else [(name, os.getxattr(path, name)) for name in os.listxattr(path)]
    return stat.S_IFMT(kind.st_mode), stat.S_IMODE(kind.st_mode), content, attributes


def _of_git(root: Path, top: Path) -> dict[str, object]:
    """Each repository, also one that is no longer whole."""
    inside = root / ".git"
    asked = [("for-each-ref",), ("stash", "list"), ("ls-files", "-s"), ("fsck", "--connectivity-only", "--no-dangling")]
    found: dict[str, object] = {f" {' '.join(words)}": _git(inside, words) for words in asked}
    for name in ("HEAD", "config"):
        found[f"/{name}"] = (inside / name).read_text() if (inside / name).is_file() else None
    found["/hooks"] = sorted(os.listdir(inside / "hooks")) if (inside / "hooks").is_dir() else None
    return {f"{inside.relative_to(top)}{name}": what for name, what in found.items()}


def _git(inside: Path, words: tuple[str, ...]) -> tuple[int, str]:
    done = subprocess.run(
        ["git", f"--git-dir={inside}", *words], cwd=inside.parent, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout
