"""Each command is found in the module that has it, and only that one is imported for it."""

import argparse
import subprocess
import sys

import pytest

from bascule.cli.main import HOMES, build_parser


def commands_of(parser):
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return set(commands.choices) - {"mcp"}


def test_the_table_names_every_command_once():
    named = [name for names in HOMES.values() for name in names]
    assert len(named) == len(set(named))
    assert commands_of(build_parser()) == set(named)


@pytest.mark.parametrize("home", HOMES)
def test_a_module_has_the_commands_that_the_table_says(home):
    for name in HOMES[home]:
        assert commands_of(build_parser(name)) == set(HOMES[home])


def test_an_unknown_command_is_told_all_that_there_are():
    assert commands_of(build_parser("sing")) == commands_of(build_parser())


def test_one_command_imports_no_other():
    code = "import sys; from bascule.cli.main import build_parser; build_parser('exec'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "bascule.workspace.cli.work" in done.stdout.split()
    assert not {"bascule.cli.doctor", "bascule.cli.setup.command", "asyncio"} & set(done.stdout.split())
