"""Run the README's commands on a machine that has never seen Bascule: what `make fresh` runs.

It builds a throw-away Debian root with python3, python3-venv, make, git, ca-certificates and nothing else, clones the
committed HEAD into it, runs `make up` until the daemon answers, as root and as a user without sudo, then `make test` as
root, uses the wheels of `make wheel` without git and make, and times `bascule on`. It prints how long each took. The
root, its mounts and its processes are gone afterwards, also after Ctrl-C; only after a failure the log stays, and the
last line says where.

Needs root, mmdebstrap and the network. Package clients are configured on the machine, not by us: apt's sources and
options, pip's and npm's configuration, the certificates they name, hosts and resolv.conf are copied into the root.
"""

import argparse
import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NoReturn, Self

CHECKOUT = Path(__file__).resolve().parent.parent
# What the README asks for. Everything else must be installed by `make` itself.
INCLUDED = "python3,python3-venv,make,git,ca-certificates"
USER = "visitor"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Configuration of package clients, with ~ for the home directory of the user who runs this.
CONFIGURATION = (
    "/etc/pip.conf",
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "/etc/npmrc",
    "/usr/etc/npmrc",
    "~/.npmrc",
)
NETWORK = ("/etc/hosts", "/etc/resolv.conf")
# The same as variables; the root gets no others.
VARIABLES = re.compile(
    r"PIP_(CERT|INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST)|NODE_EXTRA_CA_CERTS|npm_config_(registry|cafile)"
    r"|(https?|all|no)_proxy",
    re.IGNORECASE,
)
# A path in a configuration file: a certificate, a key ring.
PATH_IN_TEXT = re.compile(r"""(?:^|[\s="',\[])(/[^\s"',;\]]+)""", re.MULTILINE)
DEFAULT_PORT = 5050
ANSWERS = "fresh: it answers"

# Mounts and processes in namespaces that end with their first process, and that with us, even by SIGKILL.
ISOLATED = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
CONTROLLERS = {"cpu", "memory", "pids"}
# Sixteen tasks' worth; a test run has about as many that want to run.
CPU_SHARES = str(16 * 1024)
# Daemons make control groups below their own, named after process numbers, which another namespace has too.
JOIN = 'for group in $1; do echo $$ >"$group/cgroup.procs"; done; shift; exec "$@"'
# The kernel makes no user namespace inside a chroot, so every sandbox test would fail in one: pivot_root.
ENTER = """
set -e
mount --rbind "$1" "$1" && cd "$1"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p mnt/machine
pivot_root . mnt/machine
cd / && umount -l /mnt/machine && rmdir /mnt/machine
shift
# `|| exit`: the shell stays the first process, which adopts and buries orphans.
"$@" || exit
"""
UP = f"""
make up ARGS="$1" & make=$!
until .venv/bin/bascule status >/dev/null 2>&1; do
    kill -0 $make || {{ echo 'fresh: the daemon ended before it answered'; exit 1; }}
    sleep 0.2
done
echo '{ANSWERS}'
kill -TERM $make
wait $make
if .venv/bin/bascule status >/dev/null 2>&1; then echo 'fresh: the daemon still answers'; exit 1; fi
"""
# The files by name: an index may know other packages by ours.
WHEELS = """
set -e
make wheel
python=$(command -v python3)
PATH=/nowhere
export PATH
"$python" -m venv /tmp/daemon
/tmp/daemon/bin/pip install --quiet dist/gabp-*.whl dist/bascule-*.whl
"$python" -m venv /tmp/game
/tmp/game/bin/pip install --quiet dist/gabp-*.whl dist/bascule_mod-*.whl
"$python" tools/try_installed.py /tmp/daemon /tmp/game
"""
ON = """
set -e
[ -f dist/bascule-*.whl ] || make wheel
python3 tools/try_on.py dist/gabp-*.whl dist/bascule-*.whl
"""


class Failed(Exception):
    """A step that did not end as it should."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make fresh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--up-only", action="store_true", help="leave `make test` and the wheels out (two minutes instead of twenty)"
    )
    parser.add_argument("--on-only", action="store_true", help="only `bascule on`, timed (a few minutes)")
    parser.add_argument("--shell", action="store_true", help="open a shell in the root before it is removed")
    parser.add_argument("pytest", nargs="*", metavar="PYTEST_ARGUMENT", help="for `make test`, after --")
    chosen = parser.parse_args(arguments)
    if sys.platform != "linux" or os.geteuid() != 0:
        return refuse("needs Linux and root, for its mounts: sudo make fresh")
    if shutil.which("mmdebstrap") is None:
        return refuse("needs mmdebstrap: apt-get install mmdebstrap")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    if git("status", "--porcelain"):
        say("warning: HEAD is tried; what is not committed is not in it")
    log = tempfile.NamedTemporaryFile(  # noqa: SIM115 - it outlives this function after a failure
        "w", prefix="bascule-fresh-", suffix=".log", delete=False, encoding="utf-8"
    )
    try:
        with log, Machine(log) as machine:
            visit(machine, chosen)
    except (Failed, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        return refuse(f"{why}\nfresh: the log is {log.name}; nothing else is left behind")
    os.unlink(log.name)
    say("all of it works on a machine that has never seen it; nothing is left behind")
    return 0


def visit(machine: "Machine", chosen: argparse.Namespace) -> None:
    machine.build()
    # Another daemon on this machine has the port; the sockets answer all the same.
    up = "--tcp-optional" if port_taken() else ""
    try:
        if chosen.on_only:
            machine.step("`bascule on`, from the wheels to a governed call", "root", ON, "")
            return
        machine.step("make up", "root", UP, up, until=ANSWERS)
        machine.step(f"make up, as {USER} without sudo", USER, UP, up, until=ANSWERS)
        if not chosen.up_only:
            machine.step("make test", "root", 'make test ARGS="$1"', " ".join(chosen.pytest))
            machine.step("the wheels, without git and make", "root", WHEELS, "")
            machine.step("`bascule on`, from the wheels to a governed call", "root", ON, "")
    finally:
        if chosen.shell:
            command = [*ISOLATED, *machine.entering("root", "bash", "")]
            subprocess.run(command, env=environment("root"), check=False)


class Machine:
    """A root in a temporary directory. Whatever runs in it ends with this object, however that ends."""

    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self._directory = Path(tempfile.mkdtemp(prefix="bascule-fresh-"))
        self.root = self._directory / "root"
        self._groups = [each / self._directory.name for each in own_control_groups()]
        for group in self._groups:
            group.mkdir()
            if (shares := group / "cpu.shares").exists():
                # Else all of it together would get the time of one task of the machine.
                shares.write_text(CPU_SHARES, "utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave half of it. Mounts ended with their namespace: --one-file-system is for the
        # case that this is wrong.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        subprocess.run(["rm", "-rf", "--one-file-system", str(self._directory)], check=True)
        for group in self._groups:
            for directory, _names, _files in os.walk(group, topdown=False):
                remove_group(directory)

    def build(self) -> None:
        options = self._directory / "apt.conf"
        options.write_text(apt_options(), "utf-8")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={INCLUDED}", f"--aptopt={options}"]
        command += [f'--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash {USER}']
        command += [suite(), str(self.root), *map(str, apt_sources())]
        self._run(f"a Debian with {INCLUDED}", command, dict(os.environ))
        copy_configuration(Path("/"), Path.home(), self.root, [self.root / "root", self.root / "home" / USER])
        for home in ("root", f"home/{USER}"):
            target = self.root / home / "bascule"
            git("clone", "--quiet", "--no-local", f"file://{CHECKOUT}", str(target))
        owner = (self.root / "home" / USER).stat()
        for directory, names, files in os.walk(self.root / "home" / USER):
            for name in (".", *names, *files):
                os.chown(os.path.join(directory, name), owner.st_uid, owner.st_gid, follow_symlinks=False)

    def entering(self, user: str, script: str, argument: str) -> list[str]:
        home = home_of(user)
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user != "root" else []
        command = [*as_user, "sh", "-c", f"cd {home}/bascule && {{ {script}\n}}", "sh", argument]
        return ["sh", "-c", ENTER, "sh", str(self.root), *command]

    def step(self, name: str, user: str, script: str, argument: str, until: str | None = None) -> None:
        self._run(name, self.entering(user, script, argument), environment(user), until)

    def _run(self, name: str, command: list[str], variables: dict[str, str], until: str | None = None) -> None:
        """Run `command` and show what it prints; the time counts up to the line `until`, if that is given."""
        say(f"{name} ...")
        began = time.monotonic()
        taken = None
        # A session of its own: Ctrl-C reaches this program alone, which then ends the namespace.
        process = subprocess.Popen(
            ["sh", "-c", JOIN, "sh", " ".join(map(str, self._groups)), *ISOLATED, *command],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        with ended(process):
            assert process.stdout is not None
            for line in process.stdout:
                self._log.write(line)
                self._log.flush()
                sys.stdout.write("  " + line)
                sys.stdout.flush()
                if line.strip() == until:
                    taken = time.monotonic() - began
            code = process.wait()
        taken = taken or time.monotonic() - began
        outcome = f"failed with exit code {code} after" if code else "took"
        say(f"{name}: {outcome} {duration(taken)}", self._log)
        if code:
            raise Failed(f"`{name}` failed")


@contextlib.contextmanager
def ended(process: "subprocess.Popen[str]") -> Iterator[None]:
    """At the end nothing of it runs: with the first process of a pid namespace the kernel ends all others."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        # Until the last of them has closed its output: after that nobody writes into the root.
        process.communicate()


def remove_group(directory: str) -> None:
    """The kernel takes its files along; a process that has just ended is counted for a moment."""
    end = time.monotonic() + 10
    while True:
        try:
            os.rmdir(directory)
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(0.05)


def own_control_groups() -> list[Path]:
    """The directories of the groups that this process is in, for the controllers that sandboxes use."""
    own: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    found = []
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        left, _, right = line.partition(" - ")
        root, place = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        # Version 2 has one line without a name for all controllers.
        names = {""} if kind == "cgroup2" else set(options.split(",")) & CONTROLLERS if kind == "cgroup" else set()
        for name in names:
            folder = Path(place) / os.path.relpath(own.get(name, "/"), root)
            if os.access(folder, os.W_OK) and (name or (folder / "cgroup.controllers").read_text("utf-8").strip()):
                found.append(folder)
    return found


# -- what the machine knows about its network and packages --


def suite() -> str:
    release = Path("/etc/os-release").read_text("utf-8")
    found = re.search(r'^VERSION_CODENAME="?(\w+)', release, re.MULTILINE)
    if found is None:
        raise Failed("/etc/os-release has no VERSION_CODENAME; this needs Debian or Ubuntu")
    return found[1]


def apt_sources() -> list[Path]:
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    return [each for each in files if each.is_file() and each.suffix in (".list", ".sources")]


def apt_options() -> str:
    """How packages are fetched: proxies, certificates, retries. Not the hooks of programs that the root has not."""
    dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    return "".join(f"{line}\n" for line in dumped.splitlines() if line.startswith("Acquire::"))


def copy_configuration(machine: Path, home: Path, root: Path, homes: Iterable[Path]) -> None:
    """Copy the files of CONFIGURATION and NETWORK, and every file that one of them or a variable names."""
    named: set[str] = set()
    for name in (*NETWORK, *CONFIGURATION):
        source = home / name[2:] if name.startswith("~/") else machine / name[1:]
        if not source.is_file():
            continue
        for target in [each / name[2:] for each in homes] if name.startswith("~/") else [root / name[1:]]:
            copy_file(source, target)
        if name in CONFIGURATION:
            named |= set(PATH_IN_TEXT.findall(source.read_text("utf-8", "replace")))
    for directory in (machine / "etc/apt/sources.list.d", root / "etc/apt/apt.conf.d"):
        for file in directory.glob("*"):
            named |= set(PATH_IN_TEXT.findall(file.read_text("utf-8", "replace")))
    named |= {value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}
    for path in named:
        source = machine / path[1:]
        if path.startswith("/") and source.is_file():
            copy_file(source, root / path[1:])


def copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # The root's own may be a link out of it.
    target.unlink(missing_ok=True)
    shutil.copy(source, target)


def environment(user: str) -> dict[str, str]:
    """What a login there would have, and CI=true: nobody can be asked, and nothing may be skipped."""
    given = {"CI": "true", "HOME": home_of(user), "USER": user, "LOGNAME": user, "PATH": PATH, "LANG": "C.UTF-8"}
    return given | {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}


def home_of(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


def port_taken() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", DEFAULT_PORT)) == 0


# -- small things --


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def say(text: str, *also: IO[str]) -> None:
    for file in (sys.stdout, *also):
        print(f"fresh: {text}", file=file, flush=True)


def refuse(text: str) -> int:
    print(f"fresh: {text}", file=sys.stderr)
    return 1


def interrupted(number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
