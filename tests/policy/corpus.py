"""Ways to reach a program, and commands that reach none: one entry per line, with a name.

`denied.jsonl` has placeholders for the program, so that the same ways can be tried for real with a canary:

    @P@ its name            @H@ its first letter    @T@ the rest           @LAST@ its last letter   @LEN@ its length
    @PATH@ its whole path   @DIR@ its directory     @OUT@ its argument     @LDSO@ the dynamic loader
    @HEX@ @OCT@ @U@ @HX@ the first letter as $'...' writes it       @UPPER@ in capitals     @REV@ backwards
    @B64@ @REVLINE@ @HEXLINE@ the line `P OUT` in base64, backwards, and in \\x escapes

`expect` is what reading must answer under the standard policy: `deny`; `ask`; `exec`, when only the supervisor can see
it, because reading allows it; `renamed`, a copy under another name, which is contained and not prevented. `only` names
the shell that takes it at all, `setup` is run before, and `real = false` means that it cannot work on every machine
(a tool that is not there, a name that is no applet), so trying it proves nothing.
"""

import base64
import json
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LOADER = "/lib64/ld-linux-x86-64.so.2"


class Way(NamedTuple):
    name: str
    expect: str
    command: str
    only: str = ""
    setup: str = ""
    real: bool = True

    def filled(self, path, argument):
        return fill(self.command, path, argument)


class Harmless(NamedTuple):
    name: str
    command: str


def denied():
    return [Way(**json.loads(line)) for line in (HERE / "denied.jsonl").read_text().splitlines()]


def harmless():
    return [Harmless(**json.loads(line)) for line in (HERE / "harmless.jsonl").read_text().splitlines()]


def fill(command, path, argument, loader=LOADER):
    """The command with a real program in it."""
    directory, _, name = path.rpartition("/")
    line = f"{name} {argument}"
    values = {
        "P": name,
        "H": name[0],
        "T": name[1:],
        "LAST": name[-1],
        "LEN": str(len(name)),
        "PATH": path,
        "DIR": directory,
        "OUT": argument,
        "LDSO": loader,
        "HEX": f"\\x{ord(name[0]):02x}",
        "HX": f"{ord(name[0]):02x}",
        "OCT": f"\\{ord(name[0]):03o}",
        "U": f"\\u{ord(name[0]):04x}",
        "UPPER": name.upper(),
        "REV": name[::-1],
        "B64": base64.b64encode(f"{line}\n".encode()).decode(),
        "REVLINE": line[::-1],
        "HEXLINE": "".join(f"\\x{ord(letter):02x}" for letter in line) + "\\n",
    }
    for placeholder, value in values.items():
        command = command.replace(f"@{placeholder}@", value)
    return command
