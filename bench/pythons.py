"""Which Python of this machine runs Bascule fastest: `make bench` measures on that one.

python bench/pythons.py [what run.py takes]

The same code takes a tenth less time on an interpreter that was built with profile-guided optimisation (PGO), as
Debian's is and many a self-built one is not. So the bench looks for the fastest, makes an environment for it beside
.venv, and runs there, peers written in Python included; the tables of an ask show Bascule on the other one too.
"""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import report

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = ".venv-bench"
NAMES = ("python3", *(f"python3.{minor}" for minor in range(11, 16)))
# A name on PATH may be a shim that starts nothing.
PROBE_SECONDS = 30.0
# What the machine's noise may be: an interpreter has to be faster by more than this to be worth an environment.
MARGIN = 0.95

_PROBE = f"""
import json, os, sys, sysconfig
import ensurepip, venv
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import report
print(json.dumps({{
    "program": os.path.realpath(sys.executable),
    "version": list(sys.version_info[:3]),
    "config": sysconfig.get_config_var("CONFIG_ARGS") or "",
    "prefix": sys.base_prefix,
    "micros": min(report.spin_micros() for _ in range(20)),
}}))
"""


class Python(NamedTuple):
    program: str
    version: tuple[int, ...]
    optimised: bool
    # What `report.spin_micros` takes in it.
    micros: float

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))}, {'PGO' if self.optimised else 'no PGO'}"


def probe(program: str) -> Python | None:
    """None for what is not a Python that we could use."""
    try:
        done = subprocess.run(
            [program, "-P", "-c", _PROBE], capture_output=True, timeout=PROBE_SECONDS, check=False, cwd="/"
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    # Debian builds every one of its interpreters with PGO, and says so nowhere in it.
    debian = found["prefix"] == "/usr" and os.path.exists("/etc/debian_version")
    optimised = debian or "--enable-optimizations" in found["config"]
    return Python(found["program"], tuple(found["version"]), optimised, found["micros"])


def here() -> Python:
    """The one that runs this."""
    found = probe(sys.executable)
    if found is None:
        raise RuntimeError(f"{sys.executable} does not answer")
    return found


def candidates() -> list[str]:
    """Every Python on PATH, each once. Our own environment's is looked at by `here`."""
    places = [each for each in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(each)]
    found = {}
    for name in NAMES:
        for place in places:
            path = os.path.join(place, name)
            if os.access(path, os.X_OK):
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def best(ours: Python, others: list[Python]) -> Python:
    usable = [each for each in others if each.version >= (3, 11)]
    fastest = min(usable, key=lambda each: each.micros, default=ours)
    return fastest if fastest.micros < ours.micros * MARGIN else ours


def main() -> None:
    ours = here()
    chosen = best(ours, [found for each in candidates() if (found := probe(each)) is not None])
    program = sys.executable
    beside: list[str] = []
    if chosen.program != ours.program:
        print(f"bench: on {chosen}: {report.micros(chosen.micros)} where {ours} takes {report.micros(ours.micros)}")
        subprocess.run(
            ["sh", os.path.join(ROOT, "tools", "setup.sh"), "env", "bench", ENVIRONMENT],
            env=os.environ | {"PYTHON": chosen.program},
            check=True,
        )
        program = os.path.join(ROOT, ENVIRONMENT, "bin", "python")
        beside = ["--beside", sys.executable]
    sys.stdout.flush()
    os.execv(program, [program, os.path.join(ROOT, "bench", "run.py"), *beside, *sys.argv[1:]])


if __name__ == "__main__":
    main()
