"""The corpora against the standard policy, and the controls that show they are worth something."""

import os
import re
import shlex
import shutil
import subprocess

import corpus
import pytest

from bascule.kernel.call import agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.shell.reading import read
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard
from patience import PATIENCE

JERRY = agent_principal("Jerry")
WAYS = corpus.denied()
ALLOWED_BY_READING = {"exec": "allow", "renamed": "allow"}
SUDO = "/usr/bin/sudo"


def decide(command, **more):
    return standard().decide(JERRY, "workspace.shell", Effect.EXEC, lambda: {"command": command, **more})


def test_the_corpora_are_large_and_every_entry_has_a_name_of_its_own():
    entries = corpus.harmless()
    assert len(WAYS) >= 180
    assert len(entries) >= 80
    assert len({way.name for way in WAYS}) == len({way.command for way in WAYS}) == len(WAYS)
    assert len({entry.name for entry in entries}) == len({entry.command for entry in entries}) == len(entries)
    assert sum(way.expect in ("deny", "ask") for way in WAYS) >= 180


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_way_to_a_denied_program_is_answered_as_the_corpus_says(way):
    verdict = decide(way.filled(SUDO, "id"))
    assert verdict.decision.value == ALLOWED_BY_READING.get(way.expect, way.expect)
    if way.expect == "deny":
        assert verdict.rule == "no-superuser"


@pytest.mark.parametrize("entry", corpus.harmless(), ids=lambda entry: entry.name)
def test_a_harmless_command_is_allowed_without_asking(entry):
    verdict = decide(entry.command)
    assert verdict.decision is Decision.ALLOW, (verdict.rule, read(entry.command).notes)


def test_an_ambiguous_command_is_never_allowed_when_the_name_is_not_the_first_denied_one():
    """The corpus is not fitted to one word: another denied program is found in all the same ways."""
    for way in WAYS:
        expected = ALLOWED_BY_READING.get(way.expect, way.expect)
        assert decide(way.filled("/usr/local/bin/pkexec", "whoami")).decision.value == expected, way.name


# -- controls -------------------------------------------------------------------------------------


def test_looking_for_the_word_is_not_enough():
    """What a pattern on the text or on its first words would do, with the same corpora."""

    def by_pattern(command):
        return re.search(r"\bsudo\b", command) is not None

    def by_first_words(command):
        try:
            words = shlex.split(command)
        except ValueError:
            return True
        return bool(words) and words[0].rpartition("/")[2] == "sudo"

    filled = [way.filled(SUDO, "id") for way in WAYS if way.expect == "deny"]
    assert sum(not by_pattern(command) for command in filled) >= 15
    assert sum(not by_first_words(command) for command in filled) >= 150
    assert sum(by_pattern(entry.command) for entry in corpus.harmless()) >= 15


def test_the_ways_are_real(tmp_path):
    """Run without any policy, every way that can work here reaches the program: a canary under a name of its own."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    canary = bin_directory / "qcanary"
    shutil.copy(shutil.which("touch"), canary)
    missed = []
    tried = 0
    for number, way in enumerate(WAYS):
        if not way.real or _lacking(way):
            continue
        tried += 1
        directory = tmp_path / str(number)
        directory.mkdir()
        environment = {"PATH": f"{bin_directory}:/usr/local/bin:/usr/bin:/bin", "HOME": str(directory)}
        if way.setup:
            subprocess.run(["sh", "-c", way.setup], cwd=directory, env=environment, check=True)
        subprocess.run(
            [_shell(way), "-c", way.filled(str(canary), str(directory / "ran"))],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            # A pipe: what runs in the background holds it open, and so is waited for.
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        if not (directory / "ran").exists():
            missed.append(way.name)
    assert missed == []
    assert tried >= 180 or os.environ.get("CI") != "true"


def _shell(way):
    return {"": "sh", "sh": "dash", "bash": "bash"}[way.only]


def _lacking(way):
    """A tool this machine does not have, or a right this user does not."""
    wanted = {_shell(way)}
    known = ("busybox", "python3", "perl", "make", "git", "script", "chrt", "flock", "prlimit", "choom", "setpriv",
             "nsenter", "unshare", "setarch", "linux64", "ionice", "taskset", "setsid", "rev", "gzip",
             "awk")  # fmt: skip
    wanted.update(tool for tool in known if re.search(rf"\b{tool}\b", way.command))
    # Another architecture has another loader.
    if "@LDSO@" in way.command and not os.path.exists(corpus.LOADER):
        return True
    if "chroot" in way.command and os.getuid() != 0:
        return True
    return any(shutil.which(tool) is None for tool in wanted)
