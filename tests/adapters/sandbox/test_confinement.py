"""From inside a cell: what is out of reach, each with a control that reaches it from outside."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.sandbox.cells import a_space, some_sandboxes
from bascule.workspace.ports import SandboxFault
from faults.lacking import missing_here, only_root
from patience import PATIENCE

PROBE = """
import socket, sys
reached = []
for name in sys.argv[1:]:
    address = "\\0" + name[1:] if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        try:
            client.connect(address)
        except OSError:
            continue
        reached.append(name)
print("reached", *reached)
"""


@contextlib.contextmanager
def listening(*names: str):
    with contextlib.ExitStack() as stack:
        for name in names:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind("\0" + name[1:] if name.startswith("@") else name)
            server.listen()
        yield


def quoted(*words: str) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def owners():
    return [None] if os.getuid() != 0 else [0, 65534]


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("owner", owners())
def test_no_socket_of_the_machine_can_be_reached(outside: Path, owner: int | None, network: bool):
    # No number: those belong to real displays.
    unique = f"{outside.name}-{os.getpid()}"
    x11 = Path("/tmp/.X11-unix")
    made = not x11.exists()
    x11.mkdir(mode=0o1777, exist_ok=True)
    names = [
        str(x11 / f"X{unique}"),
        f"@/tmp/.X11-unix/X{unique}",
        f"@/tmp/dbus-{unique}",
        str(outside / "bus"),
        str(outside / "agent.1"),
        str(outside / "docker.sock"),
        str(outside / "link.sock"),
    ]

    async def story():
        async with a_space(outside, owner=owner, network=network) as space:
            return await space.output_of(f"/usr/bin/python3 -c {quoted(PROBE, *names)}")

    try:
        with listening(*names):
            for name in names:
                if not name.startswith("@"):
                    os.chmod(name, 0o777)
            control = subprocess.run(
                ["/usr/bin/python3", "-c", PROBE, *names], capture_output=True, text=True, check=True
            )
            assert control.stdout.split()[1:] == names, "outside all of them answer"
            assert asyncio.run(story()).split() == ["reached"]
    finally:
        os.unlink(names[0])
        if made:
            # Somebody's display may have come meanwhile.
            with contextlib.suppress(OSError):
                x11.rmdir()


def test_a_tmux_server_cannot_be_typed_into(outside: Path):
    if shutil.which("tmux") is None:
        missing_here("tmux is not installed")
    server = str(outside / "tmux.sock")
    subprocess.run(["tmux", "-S", server, "new-session", "-d", "cat"], check=True, timeout=PATIENCE)
    try:
        ask = f"tmux -S {server} list-sessions"
        assert subprocess.run(ask.split(), capture_output=True, timeout=PATIENCE, check=False).returncode == 0

        async def story():
            async with a_space(outside) as space:
                outcome = await space.run(ask)
                assert outcome.exit_code != 0
                assert "No such file or directory" in outcome.stderr.text

        asyncio.run(story())
    finally:
        subprocess.run(["tmux", "-S", server, "kill-server"], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("owner", owners())
def test_the_files_of_the_machine_are_not_there(outside: Path, owner: int | None):
    state = outside / "state"
    state.mkdir()
    (state / "secret").write_text("secret")
    names = ["/etc/shadow", "/root", "/home", "/var", "/run/docker.sock", "/sys", "/boot", str(state / "secret")]
    assert (state / "secret").read_text() == "secret", "outside it can be read"

    async def story():
        async with a_space(outside, owner=owner) as space:
            there = await space.output_of(f"for n in {quoted(*names)}; do [ -e $n ] && echo $n; done; true")
            assert there == ""
            assert set((await space.output_of("ls /")).split()) <= {
                "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr",
            }  # fmt: skip
            for place in ("/", "/usr", "/etc", "/dev", "/run"):
                outcome = await space.run(f"touch {place}/mine")
                assert "Read-only file system" in outcome.stderr.text, place
            assert (await space.run("echo x > mine && echo y > /tmp/mine && cat mine /tmp/mine")).exit_code == 0
            assert (await space.output_of("cat /etc/passwd")).count("\n") == 1

    asyncio.run(story())


# Opens for writing without writing: `core_pattern` would name the program that the kernel starts outside, as root.
WRITABLE = """
import os
for top, folders, files in os.walk("/proc"):
    folders[:] = [f for f in folders if not (top == "/proc" and (f.isdigit() or f in ("self", "thread-self")))]
    for name in files:
        path = os.path.join(top, name)
        if "/pressure/" in path:
            continue
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        print(path)
"""


@pytest.mark.parametrize("owner", owners())
def test_no_setting_of_the_kernel_can_be_written(outside: Path, owner: int | None):
    async def story():
        async with a_space(outside, owner=owner) as space:
            assert await space.output_of(f"/usr/bin/python3 -c {quoted(WRITABLE)}") == ""

    asyncio.run(story())


@only_root
def test_plain_bubblewrap_leaves_the_kernels_settings_to_root():
    """The control: this is why we cover /proc/sys ourselves."""
    bare = f"bwrap --unshare-all --cap-drop ALL --ro-bind / / --proc /proc --dev /dev python3 -c {quoted(WRITABLE)}"
    done = subprocess.run(bare, shell=True, capture_output=True, text=True, check=True)
    assert "/proc/sys/kernel/core_pattern" in done.stdout.splitlines()


@pytest.mark.parametrize("owner", owners())
def test_nothing_of_the_caller_comes_along(outside: Path, owner: int | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")

    async def story():
        async with a_space(outside, owner=owner) as space:
            environment = await space.output_of("env")
            assert "secret" not in environment
            assert "HOME=/tmp/home\n" in environment
            # Standard streams, and the directory that `ls` itself has open.
            assert (await space.output_of("ls /proc/self/fd")).split() == ["0", "1", "2", "3"]
            assert (await space.output_of("readlink /proc/self/fd/0")).strip() == "/dev/null"
            status = await space.output_of("grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status")
            values = dict(line.split(":\t") for line in status.splitlines())
            assert {values[name] for name in values if name.startswith("Cap")} == {"0000000000000000"}
            assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2")
            assert (await space.output_of("id -u")).strip() == str(os.getuid() if owner is None else owner)

    asyncio.run(story())


ATTACKS = """
import ctypes, os, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def fails(what, call):
    try:
        result = call()
    except (OSError, PermissionError):
        return
    if isinstance(result, int) and result < 0:
        return
    print(what, "worked:", result)

for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGUSR1):
    os.kill(1, number)
fails("reading pid 1", lambda: open("/proc/1/mem", "rb"))
for number in range(3, 256):
    fails("the spawner's descriptor", lambda: os.open(f"/proc/1/fd/{number}", os.O_RDWR))
    fails("where its descriptor leads", lambda: os.readlink(f"/proc/1/fd/{number}"))
fails("the spawner's environment", lambda: open("/proc/1/environ", "rb").read())
fails("ptrace", lambda: libc.ptrace(16, 1, 0, 0))
fails("its limits", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)))
fails("its processor", lambda: os.sched_setaffinity(1, {0}))
fails("its priority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
fails("everyone's priority", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
fails("a user namespace", lambda: libc.unshare(0x10000000))
fails("a mount", lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
fails("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).fileno())
fails("keys", lambda: libc.syscall(250, 0, -3, 1))
fails("io_uring", lambda: libc.syscall(425, 1, 0))
fails("bpf", lambda: libc.syscall(321, 0, 0, 0))
fails("a pidfd's files", lambda: libc.syscall(438, libc.syscall(434, 1, 0), 3, 0))
"""


@pytest.mark.parametrize("owner", owners())
def test_the_spawner_and_the_kernels_corners_withstand(outside: Path, owner: int | None):
    async def story():
        async with a_space(outside, owner=owner) as space:
            (space.path / "attack.py").write_text(ATTACKS)
            assert await space.output_of("/usr/bin/python3 attack.py") == ""
            assert await space.output_of("echo still here") == "still here\n"

    asyncio.run(story())


def test_the_attacks_work_outside(tmp_path: Path):
    """The control, where it is harmless: a namespace of one's own can be had without a sandbox."""
    script = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    if done.stdout.strip() != "0":
        missing_here("this machine gives user namespaces to nobody")


def test_two_spaces_do_not_see_each_other(outside: Path):
    async def story():
        sandboxes = some_sandboxes(outside)
        async with (
            a_space(outside, "one", sandboxes=sandboxes) as one,
            a_space(outside, "two", sandboxes=sandboxes) as two,
        ):
            await one.output_of("echo mine > file; echo mine > /tmp/file; echo mine > $HOME/file")
            sleeper = await one.start("exec sleep 60")
            assert await one.output_of("cat file ~/file; ls /tmp/file 2>/dev/null; true") == "mine\n" * 2
            assert await two.output_of(f"ls -A /tmp/file ~ {one.path} 2>/dev/null; true") == "/tmp/home:\n"
            assert "sleep" not in await two.output_of("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            sleeper.stop()
            await sleeper.wait()

    asyncio.run(story())


def test_what_git_would_run_and_what_others_left_cannot_be_written(outside: Path):
    subprocess.run(["git", "init", "-q", str(outside / "work")], check=True, timeout=PATIENCE)

    async def story():
        async with a_space(outside) as space:
            (space.path / "artifacts").mkdir()
            (space.path / "artifacts" / "shot.png").write_text("evidence")
            assert (await space.run("echo x > file && git add file && git -c user.name=a -c user.email=b commit -qm x")
                    ).exit_code == 0  # fmt: skip
            for attack in (
                "echo evil > .git/hooks/pre-commit",
                "git config core.fsmonitor evil",
                "mv .git elsewhere",
                "rm -rf .git; [ -e .git/config ] && false",
                "mv .git/hooks .git/old",
                "echo x > artifacts/shot.png",
                "rm -rf artifacts",
                "mv artifacts elsewhere",
            ):
                assert (await space.run(attack)).exit_code != 0, attack
            assert "fsmonitor" not in (space.path / ".git" / "config").read_text()
            assert (space.path / "artifacts" / "shot.png").read_text() == "evidence"

    asyncio.run(story())


def test_a_link_in_a_protected_place_opens_nothing(outside: Path):
    (outside / "secret").mkdir()
    (outside / "secret" / "key").write_text("secret")

    async def story():
        async with a_space(outside) as space:
            await space.output_of(
                f"ln -s {outside}/secret artifacts; mkdir .git; ln -s {outside}/secret/key .git/config"
            )
            # A new cell is made: the workspace looks different now.
            outcome = await space.run("cat artifacts/key .git/config")
            assert outcome.exit_code != 0
            assert "secret" not in outcome.stdout.text

    asyncio.run(story())


def test_a_cell_that_was_not_left_as_it_was_is_not_used_again(outside: Path):
    async def story():
        async with a_space(outside) as space:
            # The namespace's number can be given again at once; when its first process began cannot.
            cell = "readlink /proc/self/ns/mnt; cut -d ' ' -f 22 /proc/1/stat"
            first = await space.output_of(cell)
            assert await space.output_of(cell) == first
            await space.output_of("echo mine > /dev/shm/left")
            assert await space.output_of("ls -A /dev/shm") == ""
            assert await space.output_of(cell) != first

    asyncio.run(story())


@only_root
def test_commands_run_as_the_workspaces_owner(outside: Path):
    async def story():
        async with a_space(outside, owner=65534) as space:
            assert await space.output_of("id -un; touch mine; stat -c %u mine") == "agent\n65534\n"

    asyncio.run(story())


@only_root
def test_an_owner_who_cannot_reach_the_workspace_is_told(outside: Path):
    outside.chmod(0o700)

    async def story():
        async with a_space(outside, owner=65534) as space:
            with pytest.raises(SandboxFault, match="user 65534, who owns the workspace, and whom"):
                await space.start("true")

    asyncio.run(story())
