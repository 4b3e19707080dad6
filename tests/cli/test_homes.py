"""Each command is found in the module that has it, and only that one is imported for it."""

import argparse
import subprocess
import sys

import pytest

from bascule.cli.main import build_parser, homes
from patience import PATIENCE


def commands_of(parser):
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return set(commands.choices) - {"mcp", "badge"}


def test_every_command_is_declared_once():
    named = [name for names in homes().values() for name in names]
    assert len(named) == len(set(named))
    assert commands_of(build_parser()) == set(named)


@pytest.mark.parametrize("module", homes())
def test_a_module_has_the_commands_that_are_declared_for_it(module):
    for name in homes()[module]:
        assert homes(name) == {module: homes()[module]}
        assert commands_of(build_parser(name)) == set(homes()[module])


def test_an_unknown_command_is_told_all_that_there_are():
    assert commands_of(build_parser("sing")) == commands_of(build_parser())


def test_one_command_imports_no_other():
    code = "import sys; from bascule.cli.main import build_parser; build_parser('exec'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "bascule.workspace.cli.work" in done.stdout.split()
    assert not {"bascule.cli.doctor", "bascule.cli.setup.command", "asyncio"} & set(done.stdout.split())


def options_of(parser):
    return {action.dest: action for action in parser._actions if action.option_strings and action.dest != "help"}


def test_what_is_given_before_a_verb_is_not_undone_by_the_verb():
    """argparse copies the defaults of a verb over what its command was given."""
    (commands,) = (each for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    shared, undone = [], []
    for name, command in commands.choices.items():
        for verbs in (each for each in command._actions if isinstance(each, argparse._SubParsersAction)):
            for verb, parser in verbs.choices.items():
                both = options_of(command).keys() & options_of(parser).keys()
                shared += both
                undone += [
                    f"{name} {verb}: {each}"
                    for each in both
                    if options_of(parser)[each].default is not argparse.SUPPRESS
                ]
    assert undone == []
    assert len(shared) > 40


@pytest.mark.parametrize(
    "words", ["runs list", "runs diff last", "agents revoke mallory", "processes stop p", "games kill g"]
)
def test_a_daemon_named_before_the_verb_is_the_one_that_is_asked(words):
    noun, *rest = words.split()
    assert build_parser(noun).parse_args([noun, "--state-dir", "/elsewhere", *rest]).state_dir == "/elsewhere"
    assert build_parser(noun).parse_args([noun, *rest, "--state-dir", "/elsewhere"]).state_dir == "/elsewhere"
    assert build_parser(noun).parse_args([noun, *rest]).state_dir is None


@pytest.mark.parametrize(("name", "needed"), [("doctor", "msgspec"), ("desktop-host", "bascule.broker")])
def test_the_doctor_and_the_desktop_host_need_no_list_of_bridges(name, needed):
    """The first says which package is missing, the second is started by the daemon and is about one bridge."""
    code = f"import sys; from bascule.cli.main import build_parser; build_parser({name!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert not {"bascule.bridge_list", needed} & set(done.stdout.split())
