"""`bascule setup shell`: aliases and completions, in the shells themselves."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bascule.cli.main import main
from bascule.cli.setup import completion, shell
from bascule.local_client import exits
from faults.lacking import missing_here
from patience import PATIENCE

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def setup(tmp_path, monkeypatch, capsys):
    for name in ("BASCULE_CONFIG_DIR", "ZDOTDIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BASCULE_STATE_DIR", str(tmp_path / "state"))

    def run(*words, expect=0):
        code = main(["setup", "shell", *words])
        output = capsys.readouterr()
        assert code == expect, output
        return output.out + output.err

    return run


def files(home):
    return {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file() and file.name != "setup.json"}


PLACES = {
    "bash": {".bashrc", ".config/bascule/completion.bash"},
    "zsh": {".zshrc", ".config/bascule/completion.zsh"},
    "fish": {".config/fish/conf.d/bascule.fish"},
}


@pytest.mark.parametrize("name", SHELLS)
def test_completion_is_installed_once_and_removed_again(setup, tmp_path, name):
    setup(name, "--yes")
    assert files(tmp_path) == PLACES[name]
    assert setup(name) == "nothing to change\n"
    setup(name, "--yes", "--undo")
    assert files(tmp_path) == set()
    assert not (tmp_path / ".config").exists()


def test_what_stands_in_the_start_file_stays(setup, tmp_path):
    start = tmp_path / ".bashrc"
    start.write_text("export A=1\n")
    setup("bash", "--yes")
    assert start.read_text().startswith("export A=1\n")
    setup("bash", "--yes", "--undo")
    assert start.read_text() == "export A=1\n"


def test_the_shell_in_use_is_the_default(setup, monkeypatch):
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert "compdef _shtab_bascule" in setup("--print")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "which shell? One of bash, zsh, fish" in setup("--print", expect=exits.USAGE)


def test_a_script_of_somebody_else_is_left_alone(setup, tmp_path):
    theirs = tmp_path / ".config/fish/conf.d/bascule.fish"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("# mine\n")
    assert "is not Bascule's" in setup("fish", "--yes", expect=1)
    assert theirs.read_text() == "# mine\n"


def test_zsh_may_keep_its_start_file_elsewhere(setup, tmp_path, monkeypatch):
    monkeypatch.setenv("ZDOTDIR", str(tmp_path / "z"))
    setup("zsh", "--yes")
    assert (tmp_path / "z" / ".zshrc").exists()


# -- bash itself --


def bash(home, text, *, interactive=False):
    done = subprocess.run(
        ["bash", "--norc", *(["-i"] if interactive else []), "-c", text],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(home, *words):
    """What bash proposes for the last word: its own completion function, called as bash calls it."""
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    return bash(
        home,
        f"""
        . "$HOME/.bashrc"
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        function=$(complete -p {words[0].rpartition("/")[2]} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function
        printf '%s\\n' "${{COMPREPLY[@]}}"
        """,
    ).split("\n")[:-1]


@pytest.fixture
def bash_home(setup, tmp_path):
    setup("bash", "--yes")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (("bascule", "set"), ["setup"]),
        (("bascule", "setup", "c"), ["claude", "codex"]),
        (("bascule", "setup", "claude", "--un"), ["--undo"]),
        (("bascule", "setup", "claude", "--agent", "Jerry", "--un"), ["--undo"]),
        (("bascule", "setup", "claude", "--agent", ""), []),
        (("bascule", "setup", "shell", "f"), ["fish"]),
        (("bridgectl", "li"), ["list"]),
        (("bridgectl", "list", "tickets", "--status", "re"), ["responded"]),
        (("bridgectl", "list", "--st"), []),
        (("bridge-wait", "--hook", "c"), ["claude", "codex"]),
        (("bridge-wait", "--hook", "claude", "--event", "S"), ["SessionStart", "Stop"]),
        (("/some/where/bridge-reply", "--ti"), ["--ticket"]),
        (("bridge-recv", "--wa"), ["--wait"]),
        (("bridge-send", "--ex"), []),
        (("bridge-register", "--ag"), ["--agent"]),
        (("reply", "--ti"), ["--ticket"]),
        (("register", "--ty"), ["--type"]),
        (("bascule", "nonsense", "--he"), ["--help"]),
    ],
)
def test_bash_proposes_what_fits(bash_home, words, proposed):
    assert [word for word in completed(bash_home, *words) if word] == proposed


def test_bash_proposes_directories_with_spaces_in_their_names(bash_home):
    (bash_home / "my project").mkdir()
    assert completed(bash_home, "bascule", "setup", "claude", "--project", f"{bash_home}/my") == [
        f"{bash_home}/my project"
    ]


def test_zsh_knows_how_to_complete_every_program(setup, tmp_path):
    if shutil.which("zsh") is None:
        missing_here("zsh is not installed")
    setup("zsh", "--yes")
    known = " ".join(f'"$_comps[{parser.prog}]"' for parser in shell.parsers())
    done = subprocess.run(
        ["zsh", "-f", "-i", "-c", f'. "$HOME/.zshrc"; whence -w {known}'],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stderr == ""
    assert [line.rpartition(": ")[2] for line in done.stdout.splitlines()] == ["function"] * len(shell.parsers())


def test_fish_proposes_what_fits(setup, tmp_path):
    if shutil.which("fish") is None:
        missing_here("fish is not installed")
    setup("fish", "--yes")
    for line, proposed in (
        ("bascule set", ["setup"]),
        ("bascule setup c", ["claude", "codex"]),
        ("bascule setup claude --un", ["--undo"]),
        ("bridgectl list tickets --status re", ["responded"]),
        ("reply --ti", ["--ticket"]),
    ):
        done = subprocess.run(
            ["fish", "-c", f"complete -C '{line}'"],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert [each.partition("\t")[0] for each in done.stdout.splitlines()] == proposed


def test_hidden_options_stay_hidden(bash_home):
    assert "--home" not in completed(bash_home, "bascule", "setup", "claude", "--")


def test_the_aliases_run_our_commands(setup, tmp_path):
    setup("bash", "--yes", "--agent", "Jerry")
    output = bash(tmp_path, '. "$HOME/.bashrc"; alias reply register', interactive=True)
    reply, register = output.splitlines()
    assert reply.endswith("bridge-reply'")
    assert register.endswith("bridge-register --agent Jerry'")
    assert "0.1" in bash(
        tmp_path, 'shopt -s expand_aliases; . "$HOME/.bashrc"\neval "reply --version"', interactive=True
    )


@pytest.mark.parametrize("name", SHELLS)
def test_the_shell_finds_no_fault_with_its_script(setup, tmp_path, name):
    if shutil.which(name) is None:
        missing_here(f"{name} is not installed")
    script = tmp_path / "script"
    script.write_text(setup(name, "--print"))
    done = subprocess.run([name, "-n", script], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# -- nothing is missing --


@pytest.mark.parametrize("name", SHELLS)
def test_every_command_and_option_that_help_shows_is_in_the_script(name):
    known = [each for parser in shell.parsers() for each in completion.commands(parser)]
    text = shell.script(name, "/bin", None)
    assert len(known) > 20
    for path, parser in known:
        assert path.rpartition(" ")[2] in text
        for action in parser._actions:
            if action.help != argparse.SUPPRESS:
                for each in (*action.option_strings, *map(str, action.choices or ())):
                    assert each.lstrip("-") in text


def test_every_installed_command_has_completions():
    from importlib.metadata import distribution

    installed = {each.name for each in distribution("bascule").entry_points if each.group == "console_scripts"}
    assert {parser.prog for parser in shell.parsers()} == installed


def test_a_quote_in_a_path_stays_in_the_alias(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    folder = Path("/opt/it's")
    assert "alias reply='/opt/it'\\''s/bridge-reply'" in shell.script("bash", str(folder), None)
    assert "alias reply '/opt/it\\'s/bridge-reply'" in shell.script("fish", str(folder), None)
