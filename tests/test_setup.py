"""`tools/setup.sh` and `make up` on machines we do not have: their programs are small scripts on PATH."""

import ast
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

HERE = Path(__file__).resolve().parent.parent
# The list as it is; what it holds is its own business.
PACKAGES = next(
    line.split('"')[1]
    for line in (HERE / "tools/setup.sh").read_text().splitlines()
    if line.startswith("TEST_PACKAGES=")
)
# What an installed environment depends on: dependencies, and the version that the builds read.
VERSIONED = (
    "pyproject.toml",
    "packages/gabp/pyproject.toml",
    "packages/bascule-mod/pyproject.toml",
    "src/bascule/__init__.py",
)
TOOLS = ("sh", "cat", "cksum", "dirname", "grep", "flock", "env", "mkdir", "cp", "chmod")

# A Python as far as setup.sh can see. `has-ensurepip` beside it appears when its package is installed.
PYTHON = """#!/bin/sh
echo "python {version} $*" >> {log}
case "$*" in
*version_info\\ \\<*) exit {too_old} ;;
*import\\ ensurepip*) [ -e {ensurepip} ] || exit 1 ;;
*import\\ pip*) exit 0 ;;
*version_info*) echo python{version}-venv ;;
--version) echo Python {version}.0 ;;
*venv\\ --clear*)
    for venv; do :; done
    mkdir -p $venv/bin && cp "$0" $venv/bin/python && echo "$PWD/$venv" > $venv/bin/activate ;;
esac
"""
APT = """#!/bin/sh
echo "apt-get $*" >> {log}
[ ! -e {root}/offline ] || exit 100
for word in "$@"; do case $word in *-venv) : > {ensurepip} ;; systemd) : > {root}/systemd ;; esac; done
"""
DPKG_QUERY = """#!/bin/sh
echo "dpkg-query $*" >> {log}
[ -e {root}/systemd ] && printf installed || exit 1
"""


class Machine:
    """A checkout, a PATH that holds only what a test puts there, and the log of what was run."""

    def __init__(self, root: Path) -> None:
        self.checkout = root / "checkout"
        self.programs = root / "programs"
        self.log = root / "log"
        self.ensurepip = root / "has-ensurepip"
        self.root = root
        for name in ("tools", "packages/gabp", "packages/bascule-mod", "src/bascule"):
            (self.checkout / name).mkdir(parents=True)
        self.programs.mkdir()
        self.ensurepip.touch()
        self.environment = {"PATH": str(self.programs)}
        for name in ("tools/setup.sh", "Makefile", *VERSIONED):
            shutil.copy(HERE / name, self.checkout / name)
        for name in TOOLS:
            if found := shutil.which(name):
                (self.programs / name).symlink_to(found)
        self.program("id", "#!/bin/sh\necho 1000\n")

    def program(self, name: str, text: str) -> None:
        file = self.programs / name
        file.write_text(text.format(log=self.log, root=self.root, ensurepip=self.ensurepip))
        file.chmod(0o755)

    def python(self, name: str, version: str, *, too_old: bool = False) -> None:
        (self.programs / name).unlink(missing_ok=True)
        text = PYTHON.replace("{version}", version).replace("{too_old}", str(int(too_old)))
        self.program(name, text)

    def debian(self, *, root: bool) -> None:
        self.program("apt-get", APT)
        self.program("dpkg-query", DPKG_QUERY)
        self.program("id", f"#!/bin/sh\necho {0 if root else 1000}\n")

    def setup(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "tools/setup.sh", *words],
            cwd=self.checkout,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def ran(self, word: str) -> list[str]:
        """What was run since the last look, of the lines with this word in them."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line for line in lines if word in line]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# -- which Python ---------------------------------------------------------------------------------


def test_the_first_python_that_really_is_new_enough_makes_the_environment(machine):
    # A version manager's shim stands on PATH for versions it does not have.
    machine.program("python3.11", "#!/bin/sh\necho 'no such version' >&2\nexit 127\n")
    machine.python("python3.13", "3.13")
    machine.python("python3", "3.9", too_old=True)
    done = machine.setup("env")
    assert done.returncode == 0, done.stderr
    assert machine.ran("venv --clear") == ["python 3.13 -m venv --clear .venv"]


def test_a_python_that_can_make_environments_is_preferred_to_one_that_cannot(machine):
    machine.python("python3.11", "3.11")
    (machine.programs / "python3.11").write_text('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\n')
    machine.python("python3", "3.12")
    assert machine.setup("env").returncode == 0
    assert machine.ran("venv --clear") == ["python 3.12 -m venv --clear .venv"]


def test_without_a_new_enough_python_the_message_says_what_to_install(machine):
    machine.python("python3", "3.9", too_old=True)
    done = machine.setup("env")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; here: Python 3.9.0" in done.stderr
    assert "make up PYTHON=" in done.stderr


def test_a_python_named_by_the_user_is_taken_or_refused_never_replaced(machine):
    machine.python("python3", "3.12")
    machine.environment["PYTHON"] = "/nowhere/python"
    done = machine.setup("env")
    assert done.returncode == 1
    assert "PYTHON=/nowhere/python is not" in done.stderr


def test_a_missing_ensurepip_is_installed_where_nobody_can_be_asked(machine):
    machine.python("python3", "3.12")
    machine.ensurepip.unlink()
    machine.debian(root=True)
    done = machine.setup("env")
    assert done.returncode == 0, done.stderr
    assert "python3.12-venv" in machine.ran("apt-get")[0]


def test_a_missing_ensurepip_is_named_where_we_may_not_install(machine):
    machine.python("python3", "3.12")
    machine.ensurepip.unlink()
    machine.debian(root=False)
    done = machine.setup("env")
    assert done.returncode == 1
    assert "apt-get install python3.12-venv" in done.stderr
    assert machine.ran("apt-get") == []


# -- when to install again ------------------------------------------------------------------------


def test_a_second_run_starts_no_python_at_all(machine):
    machine.python("python3", "3.12")
    assert machine.setup("env", "dev").returncode == 0
    assert len(machine.ran("pip --disable")) == 1
    for words in (("env", "dev"), ("env",)):
        done = machine.setup(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.ran("python") == []


@pytest.mark.parametrize("changed", VERSIONED)
def test_a_changed_dependency_or_version_installs_all_three_again_into_the_same_environment(machine, changed):
    machine.python("python3", "3.12")
    machine.setup("env")
    machine.ran("")
    with (machine.checkout / changed).open("a") as file:
        file.write("# changed\n")
    assert machine.setup("env").returncode == 0
    ran = machine.ran("python")
    (line,) = (line for line in ran if "--editable" in line)
    assert line.endswith("--editable packages/gabp --editable packages/bascule-mod --editable .")
    assert not [line for line in ran if "venv --clear" in line]


def test_a_moved_checkout_gets_a_new_environment(machine):
    machine.python("python3", "3.12")
    machine.setup("env")
    machine.ran("")
    machine.checkout = machine.checkout.rename(machine.root / "moved")
    assert machine.setup("env").returncode == 0
    assert machine.ran("venv --clear")


# -- Debian packages ------------------------------------------------------------------------------


def test_packages_that_are_there_cost_no_apt_get(machine):
    machine.debian(root=True)
    (machine.root / "systemd").touch()
    done = machine.setup("packages")
    assert (done.returncode, done.stdout) == (0, "")
    assert machine.ran("apt-get") == []


def test_root_without_a_terminal_installs_missing_packages_at_once(machine):
    machine.debian(root=True)
    assert machine.setup("packages").returncode == 0
    assert machine.ran("apt-get")[0].endswith(PACKAGES)


def test_a_user_without_a_terminal_is_told_and_the_tests_go_on(machine):
    machine.debian(root=False)
    done = machine.setup("packages")
    assert done.returncode == 0
    assert f"sudo apt-get install -y --no-install-recommends {PACKAGES}" in done.stderr
    assert machine.ran("apt-get") == []


def test_in_ci_packages_that_cannot_be_installed_are_a_failure(machine):
    machine.debian(root=True)
    (machine.root / "offline").touch()
    machine.environment["CI"] = "true"
    done = machine.setup("packages")
    assert done.returncode == 1
    assert f"could not install: {PACKAGES}" in done.stderr


def test_the_bench_installs_what_it_compares_with_and_nothing_of_the_tests(machine):
    machine.debian(root=True)
    assert machine.setup("packages", "bench").returncode == 0
    installed = machine.ran("apt-get")[0].split()
    assert {"redis-tools", "python3-dogtail"} <= set(installed)
    assert not {"chromium", "systemd", "tmux"} & set(installed)


def test_the_bench_goes_on_without_a_peer_that_cannot_be_installed(machine):
    machine.debian(root=True)
    (machine.root / "offline").touch()
    done = machine.setup("packages", "bench")
    assert done.returncode == 0
    assert "going on without them" in done.stdout


def test_make_fresh_installs_what_builds_its_root_or_says_that_it_cannot(machine):
    machine.debian(root=True)
    assert machine.setup("packages", "fresh").returncode == 0
    assert machine.ran("apt-get")[0].endswith("install -y --no-install-recommends mmdebstrap")
    (machine.root / "offline").touch()
    done = machine.setup("packages", "fresh")
    assert done.returncode == 1
    assert "make fresh needs: mmdebstrap" in done.stderr


def looked_up(source: str) -> set[str]:
    """Programs that a test looks for: `shutil.which("x")`, and the names in a tuple called NEEDED."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("which"):
            found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NEEDED":
            found |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return found


@pytest.mark.skipif(
    shutil.which("dpkg-query") is None and os.environ.get("CI") != "true", reason="needs Debian's list of packages"
)
def test_every_program_that_a_test_looks_for_is_in_a_package_that_make_test_installs():
    names = set().union(*(looked_up(file.read_text("utf-8")) for file in (HERE / "tests").rglob("*.py")))
    assert {"tmux", "git", "Xvfb", "bwrap"} <= names
    files = {found for name in names if (found := shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin"))}
    # With and without /usr: Debian lists a file under the name that its package gave it.
    spelled = files | {file.removeprefix("/usr") for file in files}
    owners = set(re.findall(r"^([^ :]+):", debian("-S", *spelled), re.MULTILINE))
    essential = {line.split()[0] for line in debian("-Wf", "${Package} ${Essential}\n").splitlines() if "yes" in line}
    listed = set(PACKAGES.split())
    needed = set(re.findall(r"[a-z0-9][a-z0-9.+-]+", debian("-Wf", "${Depends}\n", *listed)))
    assert owners - essential - listed - needed - {"git", "make", "python3"} == set()


def debian(*words: str) -> str:
    """What dpkg-query knows; it complains about what is not installed, and answers about the rest."""
    return subprocess.run(["dpkg-query", *words], capture_output=True, text=True, check=False).stdout


def test_another_system_than_debian_is_left_alone(machine):
    done = machine.setup("packages")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("answer", "installs"), [("n", False), ("y", True), ("", True)])
def test_at_a_terminal_the_command_is_shown_and_asked_about(machine, answer, installs):
    machine.debian(root=True)
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            ["/bin/sh", "tools/setup.sh", "packages"],
            cwd=machine.checkout,
            env=machine.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as asking:
            seen = b""
            while b"[Y/n]" not in seen:
                seen += os.read(ours, 4096)
            os.write(ours, answer.encode() + b"\n")
            assert asking.wait(timeout=PATIENCE) == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert f"apt-get install -y --no-install-recommends {PACKAGES}".encode() in seen
    assert bool(machine.ran("apt-get")) is installs


# -- make up --------------------------------------------------------------------------------------

DAEMON = """#!{python}
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT, signal.SIGTERM}})
print("up", *sys.argv[1:], flush=True)
if "--fail" in sys.argv:
    sys.exit(7)
got = signal.sigwait({{signal.SIGINT, signal.SIGTERM}})
print("stopped by", signal.Signals(got).name, flush=True)
"""


@pytest.fixture
def make_up(machine):
    (machine.checkout / "tools/setup.sh").write_text("exit 0\n")
    script = machine.checkout / ".venv/bin/bascule"
    script.parent.mkdir(parents=True)
    script.write_text(DAEMON.format(python=sys.executable))
    script.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def start(arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", "up", f"ARGS={arguments}"],
            cwd=machine.checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A group of its own, as under a terminal: Ctrl-C must not reach the test.
            start_new_session=True,
        )

    return start


def test_make_up_runs_the_daemon_with_more_arguments_and_ctrl_c_stops_it_first(make_up):
    with make_up("--port 5051") as make:
        assert make.stdout.readline() == "up up --port 5051\n"
        # Ctrl-C: the terminal signals the whole foreground group.
        os.killpg(make.pid, signal.SIGINT)
        output, _ = make.communicate(timeout=PATIENCE)
    assert output.startswith("stopped by SIGINT\n")


def test_sigterm_to_make_reaches_the_daemon_and_make_waits_for_it(make_up):
    with make_up("") as make:
        make.stdout.readline()
        make.send_signal(signal.SIGTERM)
        output, _ = make.communicate(timeout=PATIENCE)
    assert "stopped by SIGTERM\n" in output


def test_make_up_fails_when_the_daemon_does_and_shows_its_exit_code(make_up):
    with make_up("--fail") as make:
        output, _ = make.communicate(timeout=PATIENCE)
    assert make.returncode == 2
    assert "Error 7" in output


def test_the_wheels_are_built_with_two_packages_where_there_is_no_environment_for_development(machine):
    machine.python("python3", "3.11")
    for _ in range(2):
        done = machine.setup("builder")
        assert (done.returncode, done.stdout) == (0, ".venv-build\n"), done.stderr
        assert not (machine.checkout / ".venv").exists()
    (installed,) = machine.ran(" install ")
    assert re.search(r" install build==[0-9.]+ hatchling==[0-9.]+$", installed)


def test_the_wheels_are_built_with_the_environment_for_development_where_it_is(machine):
    machine.python("python3", "3.11")
    machine.setup("env", "dev")
    machine.ran("")
    assert machine.setup("builder").stdout == ".venv\n"
    assert machine.ran(" install ") == []
    assert not (machine.checkout / ".venv-build").exists()
