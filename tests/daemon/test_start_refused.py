"""A daemon that cannot start says why and what to do, in a sentence, with its exit code, never with a traceback."""

import os
import shutil
import sqlite3
import subprocess
import zlib

import pytest
from living import Ended, Living, forked, free_port, run_command, short_dir
from wires import Caller

USAGE = 2
UNREACHABLE = 7


def up(state: str, *more: str, **environment: str) -> Ended:
    done = forked("up", "--port", "0", "--state-dir", state, *more, environment=environment)
    assert "Traceback" not in done.output, done.output
    return done


# -- settings -------------------------------------------------------------------------------------


def test_a_wrong_setting_is_one_sentence_and_one_hint_at_the_real_command(state, tmp_path):
    (tmp_path / "config.toml").write_text("prot = 5051")
    done = run_command("up", "--state-dir", state, environment={"BASCULE_CONFIG_DIR": str(tmp_path)})
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert done.stderr == f"bascule: {tmp_path}/config.toml: unknown key 'prot'\n  did you mean 'port'?\n"
    assert not os.path.exists(state)


@pytest.mark.parametrize(
    ("more", "environment", "expected"),
    [
        (["--config", "/nonexistent/file.toml"], {}, "/nonexistent/file.toml cannot be read"),
        (["--policy", "lax"], {}, "'lax' is none of restrictive, standard, permissive"),
        (["--port", "99999"], {}, "65535"),
        (["--port", "-1"], {}, "`port`"),
        ([], {"BASCULE_LEASE_MS": "soon"}, "`lease_ms`"),
        ([], {"BASCULE_AGENTS": "Jerry"}, "BASCULE_AGENTS"),
        ([], {"BASCULE_TLS_CERT": "cert.pem"}, "tls_cert and tls_key belong together"),
        ([], {"BRIDGE_AGENT_REGISTRY": "/nonexistent/agents.json"}, "/nonexistent/agents.json cannot be read"),
        ([], {"BASCULE_DESKTOP_ROOT": "/nonexistent"}, "desktop_root: /nonexistent is not a directory"),
    ],
)
def test_a_wrong_argument_or_variable_is_named(state, more, environment, expected):
    done = up(state, *more, **environment)
    assert done.code == USAGE
    # One sentence for the person and at most one hint below it; no log lines in between.
    assert done.output.startswith("bascule: ")
    assert len(done.output.splitlines()) <= 2
    assert expected in done.output


def test_a_registry_that_cannot_be_read_leaves_no_trace_of_a_start(state, tmp_path):
    registry = tmp_path / "agents.json"
    registry.write_text('[{"agentId":"Tom","colour":"grey"}]')
    done = up(state, BRIDGE_AGENT_REGISTRY=str(registry))
    assert done.code == USAGE
    assert str(registry) in done.output
    # Nothing ran, so nothing ended badly.
    assert not os.path.exists(os.path.join(state, "anchors.jsonl"))


def test_a_certificate_that_cannot_be_used_is_named_and_nothing_is_recorded(state, tmp_path):
    certificate = tmp_path / "cert.pem"
    certificate.write_text("not a certificate")
    environment = {"BASCULE_TLS_CERT": str(certificate), "BASCULE_TLS_KEY": str(certificate)}
    done = run_command("up", "--port", str(free_port()), "--state-dir", state, environment=environment)
    assert "Traceback" not in done.stderr
    assert done.returncode == USAGE
    assert str(certificate) in done.stderr
    assert not os.path.exists(os.path.join(state, "anchors.jsonl"))


# -- places ---------------------------------------------------------------------------------------


def test_a_state_directory_that_is_a_link_is_refused(state):
    os.mkdir(state + "-target", 0o700)
    os.symlink(state + "-target", state)
    done = up(state)
    assert done.code == USAGE
    assert "is a symbolic link" in done.output
    assert "--state-dir" in done.output
    assert os.listdir(state + "-target") == []


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_a_state_directory_open_to_others_is_refused_with_the_command_that_closes_it(state, mode):
    os.mkdir(state)
    os.chmod(state, mode)
    done = up(state)
    assert done.code == USAGE
    assert f"{state} is open to other users (mode {mode:04o}); run: chmod go= '{state}'" in done.output
    assert os.listdir(state) == []
    subprocess.run(["sh", "-c", f"chmod go= '{state}'"], check=True)
    assert os.stat(state).st_mode & 0o777 == 0o700


@pytest.mark.skipif(
    os.getuid() != 0 and os.environ.get("CI") != "true", reason="only root can give a directory to somebody else"
)
def test_a_state_directory_of_somebody_else_is_refused(state):
    os.mkdir(state, 0o700)
    os.chown(state, 65534, 65534)
    done = up(state)
    assert done.code == USAGE
    assert "belongs to uid 65534, not to you (uid 0)" in done.output
    assert os.listdir(state) == []


def test_a_file_where_the_state_directory_should_be_is_refused(state):
    with open(state, "w") as file:
        file.write("precious")
    done = up(state)
    assert done.code == USAGE
    assert "is not a directory; move it away" in done.output
    with open(state) as file:
        assert file.read() == "precious"


def test_a_place_below_a_file_is_refused(state):
    with open(state, "w"):
        pass
    done = up(f"{state}/below")
    assert done.code == USAGE
    assert "cannot be made" in done.output


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made(state):
    long = f"{state}/{'x' * 100}"
    done = up(long)
    assert done.code == USAGE
    assert "too long for a unix socket" in done.output
    assert "choose a shorter --state-dir" in done.output
    assert not os.path.exists(long)


@pytest.fixture(scope="module")
def template():
    """What a daemon leaves behind that ran for a while and was stopped."""
    with short_dir() as folder:
        with Living(f"{folder}/s") as daemon:
            local = Caller(daemon)
            local.register("Jerry")
            # Enough that every table has pages of its own.
            for _ in range(50):
                local.send("Jerry", "x" * 500)
            assert daemon.stop() == 0
        yield f"{folder}/s"


@pytest.fixture
def used(state, template):
    shutil.copytree(template, state)
    return state


@pytest.mark.parametrize("name", ["local.token", "digest.key"])
def test_a_secret_others_can_read_is_refused_with_the_command_that_closes_it(used, name):
    path = os.path.join(used, name)
    os.chmod(path, 0o644)
    done = up(used)
    assert done.code == USAGE
    assert f"chmod go= '{path}'" in done.output


def test_a_secret_that_is_a_link_is_refused(used):
    path = os.path.join(used, "local.token")
    os.rename(path, path + ".moved")
    os.symlink(path + ".moved", path)
    done = up(used)
    assert done.code == USAGE
    assert path in done.output


@pytest.mark.parametrize("name", ["tokens", "log"])
def test_a_folder_inside_that_is_open_to_others_is_refused(used, name):
    path = os.path.join(used, name)
    os.chmod(path, 0o755)
    done = up(used)
    assert done.code == USAGE
    assert f"chmod go= '{path}'" in done.output


# -- the store ------------------------------------------------------------------------------------


def database(state: str) -> str:
    return os.path.join(state, "bascule.db")


def test_a_database_of_a_newer_version_is_refused_and_left_alone(used):
    connection = sqlite3.connect(database(used))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with open(database(used), "rb") as file:
        before = file.read()
    done = up(used)
    assert done.code == UNREACHABLE
    assert "was written by a newer Bascule (schema 99" in done.output
    assert "backups" in done.output
    with open(database(used), "rb") as file:
        assert file.read() == before


def change(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


DAMAGES = {
    "not a database": lambda path: change(path, 0, b"this was a database once"),
    "an empty header": lambda path: change(path, 0, bytes(100)),
    "cut in half": lambda path: os.truncate(path, os.path.getsize(path) // 2 // 4096 * 4096),
    "the schema overwritten": lambda path: change(path, 100, b"\xff" * 400),
    "every page but the first overwritten": lambda path: change(path, 4096, b"\xaa" * (os.path.getsize(path) - 4096)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_refused_in_a_sentence(used, damage):
    DAMAGES[damage](database(used))
    done = up(used)
    assert done.code == UNREACHABLE
    assert database(used) in done.output
    assert "backups" in done.output


@pytest.mark.parametrize("table", ["tickets", "messages", "agents", "house"])
@pytest.mark.parametrize("how", ["flipped", "another shape"])
def test_a_row_that_is_not_what_was_written_is_named(used, table, how):
    connection = sqlite3.connect(database(used))
    with connection:
        key, body = connection.execute(f"SELECT key, body FROM {table} LIMIT 1").fetchone()
        if how == "flipped":
            wrong = bytes([body[0] ^ 1]) + body[1:]
            connection.execute(f"UPDATE {table} SET body = ? WHERE key = ?", (wrong, key))
        else:
            wrong = b"[]"
            connection.execute(f"UPDATE {table} SET body = ?, crc = ? WHERE key = ?", (wrong, zlib.crc32(wrong), key))
    connection.close()
    done = up(used)
    assert done.code == UNREACHABLE
    assert f"{table} row" in done.output
    assert "backups" in done.output
