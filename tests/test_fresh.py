"""`tools/fresh.py` without its half hour: a fake mmdebstrap stands for the machine that is built."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "tools/fresh.py"
SECONDS = 60

# It and its child ignore every polite signal; the pipe has a reader for as long as one of them lives.
HANGING = """#!/bin/sh
trap '' INT TERM HUP
exec 3<>"{root}/pipe"
sleep 1000 &
echo began
wait
"""
FAILING = "#!/bin/sh\necho 'E: no such suite'\nexit 25\n"

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("CI") != "true", reason="mounts and namespaces of `make fresh` are root's"
)


@pytest.fixture
def fresh():
    spec = importlib.util.spec_from_file_location("fresh", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def start(tmp_path):
    """`start(text of mmdebstrap)`: make fresh, with its temporary files below `tmp_path`."""
    programs = tmp_path / "programs"
    temporary = tmp_path / "temporary"
    programs.mkdir()
    temporary.mkdir()
    started = []

    def start(text):
        (programs / "mmdebstrap").write_text(text.format(root=tmp_path))
        (programs / "mmdebstrap").chmod(0o755)
        apt_config = programs / "apt-config"
        apt_config.write_text("#!/bin/sh\n")
        apt_config.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def left(tmp_path):
    return sorted(each.suffix for each in (tmp_path / "temporary").iterdir())


@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_processes_and_leaves_only_the_log(fresh, start, tmp_path, number):
    os.mkfifo(tmp_path / "pipe")
    process = start(HANGING)
    while "began" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    (made,) = (each.name for each in (tmp_path / "temporary").iterdir() if each.is_dir())
    groups = [group / made for group in fresh.own_control_groups()]
    assert all(map(Path.exists, groups))
    process.send_signal(number)
    _, complaint = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert left(tmp_path) == [".log"]
    assert not any(map(Path.exists, groups))
    assert f"the log is {tmp_path}/temporary/bascule-fresh-" in complaint
    with pytest.raises(OSError, match="No such device"):
        os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)


@needs_root
def test_a_step_that_fails_is_named_and_its_output_is_kept(start, tmp_path):
    process = start(FAILING)
    output, complaint = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "failed with exit code 25" in output
    assert "a Debian with python3" in complaint
    (log,) = (tmp_path / "temporary").iterdir()
    assert "E: no such suite" in log.read_text()


def test_what_package_clients_are_configured_with_is_copied_with_the_files_it_names(fresh, tmp_path, monkeypatch):
    machine, home, root = tmp_path / "machine", tmp_path / "person", tmp_path / "root"
    homes = [root / "root", root / "home/visitor"]
    files = {
        machine / "etc/hosts": "127.0.0.1 localhost\n",
        machine / "etc/pip.conf": "[global]\ncert = /etc/ssl/company.pem\n",
        machine / "etc/ssl/company.pem": "a certificate",
        machine / "etc/apt/sources.list.d/x.sources": "Signed-By: /etc/keys/mirror.gpg\n",
        machine / "etc/keys/mirror.gpg": "a key",
        machine / "opt/npm.pem": "another certificate",
        machine / "etc/secret": "nobody names it",
        home / ".npmrc": 'cafile="/opt/npm.pem"\n',
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    # A fresh root has links of its own, which must not lead out of it.
    (root / "etc").mkdir(parents=True)
    (root / "etc/hosts").symlink_to(machine / "etc/secret")
    fresh.copy_configuration(machine, home, root, homes)
    found = {str(each.relative_to(root)): each.read_text() for each in root.rglob("*") if each.is_file()}
    assert found == {
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/pip.conf": "[global]\ncert = /etc/ssl/company.pem\n",
        "etc/ssl/company.pem": "a certificate",
        "etc/keys/mirror.gpg": "a key",
        "opt/npm.pem": "another certificate",
        "root/.npmrc": 'cafile="/opt/npm.pem"\n',
        "home/visitor/.npmrc": 'cafile="/opt/npm.pem"\n',
    }
    assert (machine / "etc/secret").read_text() == "nobody names it"


def test_the_root_gets_no_variable_of_ours_but_those_of_package_clients(fresh, monkeypatch):
    monkeypatch.setenv("PIP_CERT", "/etc/ssl/company.pem")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("BASCULE_STATE_DIR", "/elsewhere")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    given = fresh.environment("visitor")
    assert {"PIP_CERT", "HTTPS_PROXY"} <= set(given)
    assert not {"BASCULE_STATE_DIR", "PIP_FIND_LINKS"} & set(given)
    assert (given["CI"], given["HOME"], given["PATH"]) == ("true", "/home/visitor", fresh.PATH)
