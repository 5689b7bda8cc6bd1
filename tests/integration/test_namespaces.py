"""What a foreign program finds in its namespaces: no network but its own, and all else as it was."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn import isolation, process
from cairn.errors import PrerequisiteError, ProcessError
from cairn.platforms import namespaces
from cairn.testing.suite import run as suite
from cairn.testing.suite import suite_results
from cairn.testing.suite.suite_toml import Config, Group
from helpers.suites import request_of, suite_of
from helpers.trail import ROOT

pytestmark = pytest.mark.skipif(not namespaces.are_here(), reason="this machine gives no namespaces")

PYTHON = "/usr/bin/python3"  # one that every user can run
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=10).close()"
SERVE = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"


@pytest.fixture
def port() -> Iterator[str]:
    """The port of a server on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


def run(*words: str | Path, network: bool = False) -> process.Completed:
    return process.run([sys.executable, "-c", *words], check=False, network=network)


def test_a_program_has_no_network_unless_it_is_given(port: str) -> None:
    assert "refused" in run(CONNECT, port).output
    assert run(CONNECT, port, network=True).returncode == 0
    metadata = "import socket; socket.create_connection(('169.254.169.254', 80), timeout=10)"
    assert "unreachable" in run(metadata).output


def test_servers_of_its_own_answer_also_by_the_name_of_the_machine() -> None:
    assert run(SERVE).output == ""
    named = SERVE.replace("'127.0.0.1'", "socket.gethostname()")
    assert run(named).output == ""


def test_files_and_users_keep_their_numbers(tmp_path: Path) -> None:
    theirs = Path(tmp_path, "theirs")
    theirs.touch()
    if not os.geteuid():
        os.chown(theirs, 12345, 12345)
    made, before = tmp_path / "made", theirs.stat()
    code = "import os, sys; open(sys.argv[1], 'w').close(); print(os.getuid(), os.stat(sys.argv[2]).st_uid)"
    done = process.run([sys.executable, "-c", code, made, theirs], writes=[tmp_path])
    assert done.output.split() == [str(os.getuid()), str(before.st_uid)]
    assert (made.stat().st_uid, made.stat().st_gid) == (os.getuid(), os.getgid())


def test_exit_codes_and_signals_are_those_of_the_program() -> None:
    assert run("raise SystemExit(3)").returncode == 3
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGTERM)").returncode == -signal.SIGTERM
    with pytest.raises(ProcessError, match="did not end"):
        process.run(["sh", "-c", "sleep 100 & sleep 100"], timeout=0.5)


@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program"])
def test_a_program_that_is_not_there_is_said_to_be_so(name: str) -> None:
    with pytest.raises(PrerequisiteError, match=f"{name} is not on this machine"):
        process.run([name, "--version"])


def test_a_program_that_cannot_be_executed_is_said_so(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(PrerequisiteError, match="Permission denied"):
        process.run([script])
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(PrerequisiteError, match="is not on this machine"):
        process.run([script])


def test_the_level_says_whether_there_is_a_network() -> None:
    assert "namespaces shut the network" in isolation.level()
    assert isolation.level(network=True).endswith("; the network is open")


@pytest.mark.parametrize(("network", "outcome"), [("open", "passed"), ("shut", "failed")])
def test_a_configuration_of_a_suite_has_the_network_where_it_says_so(
    tmp_path: Path, port: str, network: str, outcome: str
) -> None:
    connect = f"import socket\ndef test():\n    socket.create_connection(('127.0.0.1', {port})).close()\n"
    config = Config(groups=(Group(modules=("test_a",)),), network=network == "open")
    request = request_of(tmp_path, {"test_a.py": connect}, suite=suite_of(configs={"default": config}))
    results, tests = suite_results.read_shard(suite.run_suite(request))
    assert [test.outcome for test in tests] == [outcome]
    assert results.confinement == isolation.level(network=network == "open")


@pytest.mark.skipif(os.geteuid() != 0 or not Path(PYTHON).exists(), reason="root alone can become a user")
@pytest.mark.parametrize(
    ("container", "expected"), [((), "True 1 True"), (("unshare", "--user"), "False 0 False")]
)
def test_an_ordinary_user_has_namespaces_where_the_machine_gives_them(
    container: tuple[str, ...], expected: str, port: str
) -> None:
    """The container's user has no number there, and so can make no namespace: as where a system refuses."""
    code = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from cairn.platforms import namespaces
words, handles = namespaces.entrance()
command = [*words, sys.executable, "-c", *sys.argv[2:]]
done = subprocess.run(command, pass_fds=handles, capture_output=True)
print(bool(words), done.returncode, b"refused" in done.stderr)
"""
    user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(ROOT / "build_tools" / "cairn" / "platforms", Path(folder, "cairn", "platforms"))
        command = [*user, *container, PYTHON, "-c", code, folder, CONNECT, port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == expected, done.stderr
