"""Another user of the machine gets nothing: no file, no socket, no answer on the port, no place of ours."""

import errno
import os
import socket
import stat
import subprocess

import pytest
from living import Living, forked, short_dir
from strangers import NOBODY, as_nobody, bound, only_root, squatting
from wires import Caller, LinkWire, Wire, request

from bascule.daemon.lifecycle import check_places
from bascule.foundation import paths
from bascule.foundation.errors import InvalidRequest
from ports import free_port

USAGE = 2
CONFLICT = 6

pytestmark = only_root


@pytest.fixture(scope="module")
def daemon():
    """With its folder open to all, so that the state directory itself is what keeps others out."""
    with short_dir() as folder:
        os.chmod(folder, 0o755)
        with Living(f"{folder}/s") as living:
            Caller(living).register("Jerry")
            yield living


def everything(state: str) -> list[str]:
    return [state, *(os.path.join(folder, name) for folder, dirs, files in os.walk(state) for name in (*dirs, *files))]


# -- files ----------------------------------------------------------------------------------------


def tried(paths: list[str]) -> dict[str, str]:
    """What each path gives to whoever runs this."""
    outcome = {}
    for path in paths:
        try:
            if os.path.isdir(path):
                os.listdir(path)
            else:
                with open(path, "rb") as file:
                    file.read(1)
            outcome[path] = "read"
        except OSError as error:
            outcome[path] = type(error).__name__
    return outcome


def test_another_user_reads_no_file_and_lists_no_folder_of_ours(daemon):
    paths = everything(daemon.state)
    assert {os.path.basename(path) for path in paths} >= {"local.token", "bascule.db", "daemon.log", "+jerry.token"}
    outcome = as_nobody(lambda: tried(paths))
    assert set(outcome.values()) == {"PermissionError"}, outcome


def test_every_file_of_ours_is_closed_by_its_own_mode_too(daemon):
    open_to_others = [path for path in everything(daemon.state) if os.lstat(path).st_mode & 0o077]
    assert open_to_others == []


# -- sockets --------------------------------------------------------------------------------------


def test_with_every_mode_open_and_the_right_token_another_user_is_still_closed_unheard():
    with short_dir() as folder, Living(f"{folder}/s") as daemon:
        paths = everything(daemon.state)
        for path in (folder, *paths):
            os.chmod(path, 0o777)
        # The question of the tests above, where the answer is yes.
        outcome = as_nobody(lambda: tried(paths))
        assert {os.path.basename(path) for path, how in outcome.items() if how == "read"} >= {
            "local.token",
            "bascule.db",
        }

        def link() -> str:
            with LinkWire(daemon.link_socket) as wire:
                wire.request("hello", {"protocol": 1, "version": "x", "token": daemon.token})
                return "answered" if wire.read() else "closed"

        def http() -> str:
            with Wire(daemon.http_socket) as wire:
                wire.send(request("GET", "/healthz", []))
                return "closed" if wire.closed() else "answered"

        closed = {"closed", "ConnectionResetError", "BrokenPipeError"}
        assert {as_nobody(link), as_nobody(http)} <= closed
        # The same steps as ourselves: it is the uid that made the difference.
        assert (link(), http()) == ("answered", "answered")


# -- the port -------------------------------------------------------------------------------------

TRICKS = {
    "nothing": [],
    "a forwarded address": [
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
    ],
    "a user's name": [("Remote-User", "root"), ("X-Remote-User", "root"), ("X-Forwarded-User", "root")],
    "a uid": [("X-Uid", "0"), ("Bascule-Uid", "0"), ("Bascule-Principal", "local")],
    "an empty bearer": [("Authorization", "Bearer ")],
    "the word local": [("Authorization", "Bearer local")],
    "a name and a password": [("Authorization", "Basic cm9vdDo=")],
    "the name of an agent": [("Authorization", "Bearer Jerry"), ("Bascule-Agent", "Jerry")],
    "a cookie": [("Cookie", "token=local; agentToken=Jerry")],
    "the hash that is stored": [("Authorization", "Bearer HASH")],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_on_the_port_another_user_needs_a_token_whatever_else_is_said(daemon, trick):
    import hashlib

    stored = hashlib.sha256(daemon.token.encode()).hexdigest()
    headers = [(name, value.replace("HASH", stored)) for name, value in TRICKS[trick]]

    def ask() -> int:
        with Wire(daemon.tcp) as wire:
            return wire.ask("GET", "/status", [("Host", daemon.host), *headers]).status

    assert as_nobody(ask) in (401, 429)


def test_a_port_that_another_user_holds_is_named_with_the_way_out(state):
    port = free_port()
    with squatting(lambda: bound("127.0.0.1", port)):
        done = forked("up", "--port", str(port), "--state-dir", state)
    assert done.code == CONFLICT
    assert f"port {port} is in use" in done.output
    assert "--port" in done.output
    assert "Traceback" not in done.output
    assert not os.path.exists(os.path.join(state, "anchors.jsonl"))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_while_the_daemon_listens_nobody_else_can_listen_beside_it(daemon, host):
    def take(port: int) -> str:
        try:
            with bound(host, port) as sock:
                sock.listen()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "listening"

    spare = free_port()
    assert as_nobody(lambda: take(daemon.port)) == "EADDRINUSE"
    # Where nobody listens the same steps succeed.
    assert as_nobody(lambda: take(spare)) == "listening"


def test_a_program_that_bound_our_port_first_cannot_begin_to_listen(state):
    port = free_port()
    # Only SO_REUSEADDR: with the other option the kernel tells users apart by itself.
    with socket.socket() as early:
        early.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        early.bind(("127.0.0.1", port))
        with Living(state, port=port) as daemon:
            with pytest.raises(OSError, match="in use"):
                early.listen()
            assert Caller(daemon).get("/healthz").status == 200


# -- places ---------------------------------------------------------------------------------------


def refused(state: str) -> str:
    done = forked("up", "--port", "0", "--state-dir", state)
    assert done.code == USAGE, done
    assert "Traceback" not in done.output
    assert len(done.output.splitlines()) <= 2
    return done.output


@pytest.fixture
def ground():
    with short_dir() as folder:
        yield folder


@pytest.mark.parametrize(("mode", "gid"), [(0o777, 0), (0o757, 0), (0o775, NOBODY)], ids=["all", "others", "a group"])
def test_a_parent_that_others_may_write_is_refused_with_the_command_that_closes_it(ground, mode, gid):
    os.chown(ground, 0, gid)
    os.chmod(ground, mode)
    state = f"{ground}/deeper/s"
    outcome = refused(state)
    assert f"others may write to {ground} (mode {mode:04o})" in outcome
    assert os.listdir(ground) == []
    command = outcome.partition("run: ")[2].splitlines()[0]
    subprocess.run(["sh", "-c", command], check=True)
    check_places(state)
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700


@pytest.mark.parametrize(("mode", "gid"), [(0o755, 0), (0o1777, 0), (0o775, 0)], ids=["plain", "as /tmp", "our group"])
def test_a_parent_in_which_others_rename_nothing_of_ours_is_fine(ground, mode, gid):
    os.chown(ground, 0, gid)
    os.chmod(ground, mode)
    check_places(f"{ground}/s")


def test_a_parent_of_another_user_is_refused(ground):
    os.mkdir(f"{ground}/theirs", 0o755)
    os.chown(f"{ground}/theirs", NOBODY, NOBODY)
    outcome = refused(f"{ground}/theirs/s")
    assert f"{ground}/theirs belongs to uid {NOBODY}" in outcome
    assert "--state-dir" in outcome
    assert os.listdir(f"{ground}/theirs") == []


def test_a_parent_that_is_another_users_link_is_refused_and_our_own_is_followed(ground):
    os.mkdir(f"{ground}/real", 0o700)
    os.symlink(f"{ground}/real", f"{ground}/ours")
    check_places(f"{ground}/ours/s")
    os.symlink(f"{ground}/real", f"{ground}/theirs")
    os.lchown(f"{ground}/theirs", NOBODY, NOBODY)
    assert f"{ground}/theirs belongs to uid {NOBODY}" in refused(f"{ground}/theirs/s")


def test_a_link_of_ours_into_an_open_place_is_refused_for_that_place(ground):
    os.mkdir(f"{ground}/open", 0o700)
    os.chmod(f"{ground}/open", 0o777)
    os.symlink("open", f"{ground}/ours")
    assert f"others may write to {ground}/open" in refused(f"{ground}/ours/s")


def test_links_in_a_circle_end(ground):
    os.symlink("b", f"{ground}/a")
    os.symlink("a", f"{ground}/b")
    assert "links" in refused(f"{ground}/a/s")


def test_a_state_directory_that_another_user_made_first_is_refused_and_left_alone(ground):
    os.chmod(ground, 0o1777)
    as_nobody(lambda: os.mkdir(f"{ground}/s", 0o777))
    assert f"{ground}/s belongs to uid {NOBODY}" in refused(f"{ground}/s")
    as_nobody(lambda: os.symlink("/", f"{ground}/link"))
    assert "is a symbolic link" in refused(f"{ground}/link")
    assert os.listdir(f"{ground}/s") == []


@pytest.mark.parametrize("name", ["bascule.db", "bascule.db-wal", "daemon.lock", "anchors.jsonl", "local.token", "log"])
def test_what_another_user_left_inside_is_refused_by_name(state, name):
    os.mkdir(state, 0o700)
    path = os.path.join(state, name)
    if name == "log":
        os.mkdir(path, 0o700)
    else:
        paths.write_private_file(path, "theirs")
    os.chown(path, NOBODY, NOBODY)
    outcome = refused(state)
    assert f"{path} belongs to uid {NOBODY}, not to you (uid 0)" in outcome
    assert os.listdir(state) == [name]


@pytest.mark.parametrize("name", ["bascule.db", "daemon.lock", "anchors.jsonl", "link.sock", "tokens"])
def test_a_link_inside_is_refused_by_name_and_not_followed(state, name):
    os.mkdir(state, 0o700)
    target = state + "-elsewhere"
    os.mkdir(target, 0o700)
    os.symlink(os.path.join(target, "file"), os.path.join(state, name))
    assert f"{os.path.join(state, name)} is a symbolic link" in refused(state)
    assert os.listdir(target) == []


def test_in_a_home_directory_whose_own_group_may_write_the_daemon_starts(monkeypatch, ground):
    import grp
    import pwd

    os.chown(ground, 0, 12_345)
    os.chmod(ground, 0o775)
    me = pwd.getpwuid(0)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd((*me[:3], 12_345, *me[4:])))
    members: list[str] = []
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((me.pw_name, "x", 12_345, members)))
    check_places(f"{ground}/s")
    members.append("somebody")
    with pytest.raises(InvalidRequest, match="others may write"):
        check_places(f"{ground}/s")
