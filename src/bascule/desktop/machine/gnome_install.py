"""Our extension for GNOME Shell, put where the shell looks for it, and the token that it and our host share.

Nothing of it is done unless a person has seen it and said yes.
"""

import ast
import contextlib
import os
import re
import secrets
import shutil
import subprocess
from typing import Final

import msgspec

from bascule.desktop.gnome import UUID, token_file
from bascule.desktop.machine.installing import CannotInstall
from bascule.foundation import paths

_SOURCES: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "gnome_extension")
# Versions that load each form of the file. Later ones refuse to load what does not name them.
_FORMS: Final = {"shell-43.js": range(43, 45), "shell-45.js": range(45, 50)}
_SHARED: Final = "desktop.js"
# They answer in milliseconds.
COMMAND_SECONDS: Final = 20.0
_TOKEN_BYTES: Final = 32
_SETTING: Final = ("org.gnome.shell", "enabled-extensions")


class Plan(msgspec.Struct, frozen=True):
    # By their path.
    files: dict[str, str]
    token: str
    # What switches it on; None: it is on already.
    enable: list[str] | None


def directory() -> str:
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(paths.home(), ".local", "share")
    return os.path.join(data, "gnome-shell", "extensions", UUID)


def shell_version() -> int:
    found = re.search(r"(\d+)", _output(["gnome-shell", "--version"]))
    if found is None:
        raise CannotInstall("gnome-shell does not say its version", "run `gnome-shell --version`")
    return int(found[1])


def code_for(version: int) -> str:
    """The extension as this version of the shell loads it: before 45 as a script, from then on as a module."""
    form = next((name for name, versions in _FORMS.items() if version in versions), None)
    if form is None:
        known = f"{_FORMS['shell-43.js'][0]} to {_FORMS['shell-45.js'][-1]}"
        raise CannotInstall(
            f"the extension is for GNOME Shell {known}, and this is {version}",
            "without it elements are read, pressed and set; log in to sway, to KDE or to an Xorg session for the rest",
        )
    return "".join(map(_read, (form, _SHARED)))


def metadata(version: int) -> str:
    """Only for this version: after an upgrade the shell does not load it until a person installs it again."""
    words = {
        "uuid": UUID,
        "name": "Bascule desktop host",
        "description": "Lets Bascule's desktop host, and nothing else, see and use windows, as far as you allow it",
        "shell-version": [str(version)],
        "x-bascule-token": token_file(),
    }
    return msgspec.json.format(msgspec.json.encode(words), indent=2).decode() + "\n"


def plan(version: int | None = None) -> Plan:
    version = shell_version() if version is None else version
    place = directory()
    files = {
        os.path.join(place, "metadata.json"): metadata(version),
        os.path.join(place, "extension.js"): code_for(version),
    }
    enabled = _enabled()
    command = None if UUID in enabled else _set_enabled([*enabled, UUID])
    return Plan(files, token_file(), command)


def install(planned: Plan) -> None:
    if os.path.islink(directory()):
        raise CannotInstall(f"{directory()} is a link, and what it leads to is not ours", "remove the link")
    paths.make_private_dir(os.path.dirname(planned.token))
    paths.write_private_file(planned.token, secrets.token_hex(_TOKEN_BYTES))
    os.makedirs(directory(), mode=0o700, exist_ok=True)
    for path, text in planned.files.items():
        paths.write_private_file(path, text)
    if planned.enable is not None:
        _output(planned.enable)


def remove() -> list[str]:
    """What was there and is not any more. The token first: nobody is answered then."""
    gone = []
    with contextlib.suppress(FileNotFoundError):
        os.unlink(token_file())
        gone.append(token_file())
    with contextlib.suppress(CannotInstall):
        # The shell ends it at once.
        if UUID in (enabled := _enabled()):
            _output(_set_enabled([each for each in enabled if each != UUID]))
    with contextlib.suppress(FileNotFoundError):
        if os.path.islink(directory()):
            # What it leads to is not ours to remove.
            os.unlink(directory())
        else:
            shutil.rmtree(directory())
        gone.append(directory())
    return gone


def installed() -> bool:
    """Whether it is there as this installation has it, for the version of the shell that it was made for."""
    try:
        paths.read_private_file(token_file())
        with open(os.path.join(directory(), "metadata.json"), encoding="utf-8") as file:
            (version,) = msgspec.json.decode(file.read())["shell-version"]
        with open(os.path.join(directory(), "extension.js"), encoding="utf-8") as file:
            return file.read() == code_for(int(version))
    except (OSError, ValueError, KeyError, TypeError, paths.UnsafePlace, CannotInstall):
        return False


def _read(name: str) -> str:
    with open(os.path.join(_SOURCES, name), encoding="utf-8") as file:
        return file.read()


def _enabled() -> list[str]:
    text = _output(["gsettings", "get", *_SETTING]).strip().removeprefix("@as ")
    try:
        return [str(each) for each in ast.literal_eval(text)]
    except (ValueError, SyntaxError, TypeError):
        raise CannotInstall(
            f"`gsettings get {' '.join(_SETTING)}` says something that is not known: {text[:100]}",
            "is this a GNOME session?",
        ) from None


def _set_enabled(names: list[str]) -> list[str]:
    return ["gsettings", "set", *_SETTING, repr(names)]


def _output(command: list[str]) -> str:
    hint = "run it in a terminal of the GNOME session; Debian's packages are gnome-shell and libglib2.0-bin"
    try:
        done = subprocess.run(  # noqa: S603 - GNOME's own programs
            command, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{command[0]} could not be run: {error}", hint) from error
    if done.returncode:
        raise CannotInstall(f"`{' '.join(command)}` failed: {done.stderr.strip()[-300:]}", hint)
    return done.stdout
