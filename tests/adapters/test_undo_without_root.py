"""The tests of undo once more as most people run it: by a user who is not root, whom modes keep out.

The interpreter and the checkout may lie where that user may not go (`/root`): they are mounted again at the same
paths, in a mount namespace of their own.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from faults.lacking import only_root
from patience import PATIENCE

TESTS = Path(__file__).resolve().parents[1]
FILES = (
    "adapters/test_checkpoints_attributes.py",
    "adapters/test_checkpoints_modes.py",
    "adapters/test_checkpoints_shut.py",
    "adapters/test_checkpoints_undo.py",
    "native/test_native_undo.py",
    "native/test_outside.py",
    "native/test_undo_keeps_everything.py",
    "native/test_undo_killed.py",
)
NOBODY = 65534
# All of them on a machine that has other things to do.
SECONDS = 12 * PATIENCE
# What only root can do was tested by root.
ALLOWED_SKIPS = ("only root can", "no tmpfs can be mounted")
_UNSHARE = ("unshare", "--mount", "--propagation", "private", "sh", "-ec")


def _script(command, wanted, hidden):
    """Directories that others may not enter are covered by empty ones in which the wanted ones are mounted again."""
    lines = ["stage=$(mktemp -d)", 'mount -t tmpfs -o mode=755 tmpfs "$stage"']
    for number, path in enumerate(wanted):
        lines += [f'mkdir "$stage/{number}"', f'mount --bind "{path}" "$stage/{number}"']
    lines += [f'mount -t tmpfs -o mode=755 tmpfs "{path}"' for path in hidden]
    for number, path in enumerate(wanted):
        if any(Path(path).is_relative_to(top) for top in hidden):
            lines += [f'mkdir -p "{path}"', f'mount --bind "$stage/{number}" "{path}"']
    return "\n".join([*lines, f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {command}"])


def _hidden(paths):
    """The outermost directories on the way that others may not enter."""
    found = set()
    for path in paths:
        for above in reversed([path, *path.parents]):
            if not above.stat().st_mode & 0o001:
                found.add(above)
                break
    return sorted(top for top in found if not any(top != other and top.is_relative_to(other) for other in found))


@only_root
@pytest.mark.timeout(SECONDS + 60)
def test_the_tests_of_undo_hold_for_a_user_who_is_not_root():
    home = Path(tempfile.mkdtemp(prefix="bsc-nobody-", dir="/var/tmp"))
    home.chmod(0o755)
    os.chown(home, NOBODY, NOBODY)
    try:
        wanted = {
            Path(sys.prefix),
            Path(sys.base_prefix),
            Path(os.path.realpath(sys.executable)).parents[1],
            TESTS.parent,
        }
        command = f'"{sys.executable}" -m pytest -q -rs -p no:cacheprovider --basetemp="{home}/made" ' + " ".join(
            str(TESTS / file) for file in FILES
        )
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "XDG_RUNTIME_DIR")}
        # Whoever made this file's directories is root; git looks at files of the tests' own making only.
        environment |= {"HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis")}
        environment |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [*_UNSHARE, _script(command, sorted(wanted), _hidden(wanted))],
            capture_output=True, text=True, check=False, timeout=SECONDS, cwd=TESTS.parent, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
        skipped = re.findall(r"^SKIPPED .*?: (.+)$", done.stdout, re.MULTILINE)
        assert all(any(words in reason for words in ALLOWED_SKIPS) for reason in skipped), skipped
        assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 150
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", home], check=False)
        shutil.rmtree(home)
