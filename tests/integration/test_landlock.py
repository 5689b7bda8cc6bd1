"""What a confined program cannot look into, and what it can do as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cairn.platforms import landlock
from helpers import foreign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
needs_landlock = pytest.mark.skipif(landlock.version() < 2, reason="this kernel has no Landlock")
LOOK = "open(f'/proc/{__import__(\"os\").getppid()}/environ', 'rb').read()"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in which files can be hidden."""
    with foreign.home_folder() as place:
        yield place


EVERYWHERE = (Path("/"),)


def run(
    code: str, *hidden: Path, reads: Sequence[Path] = EVERYWHERE, writes: Sequence[Path] = EVERYWHERE
) -> subprocess.CompletedProcess[str]:
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with landlock.start_confined(
        lambda: subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe), (reads, writes, hidden)
    ) as child:
        output, errors = child.communicate()
    return subprocess.CompletedProcess(command, child.returncode, output.decode(), errors.decode())


@needs_landlock
def test_who_started_it_cannot_be_looked_into() -> None:
    assert "PermissionError" in run(LOOK).stderr
    assert run("print(open('/proc/self/environ').read() != '')").stdout == "True\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="of root alone")
def test_root_cannot_either_where_the_kernel_has_no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert "PermissionError" in run(LOOK).stderr


@needs_landlock
def test_what_is_hidden_cannot_be_read_moved_or_linked_and_all_else_can(folder: Path, tmp_path: Path) -> None:
    for name in ("user/.aws/credentials", "user/notes", "user/tree/a/file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    (folder / "user" / "tree" / "b").mkdir()
    user, hidden = folder / "user", folder / "user" / ".aws"
    for act in (
        "open(s).read()",
        f"os.rename(s, {str(tmp_path / 'x')!r})",
        f"os.link(s, {str(tmp_path / 'x')!r})",
    ):
        done = run(f"import os; s = {str(hidden / 'credentials')!r}; {act}", hidden)
        assert "Error" in done.stderr, act
    moves = f"import os; os.chdir({str(user / 'tree')!r}); os.rename('a/file', 'b/file')"
    moves += "; print(open('b/file').read())"
    assert run(moves, hidden).stdout == "text\n"
    assert run(f"print(open({str(user / 'notes')!r}).read())", hidden).stdout == "text\n"
    made = f"p = {str(tmp_path / 'new')!r}; open(p, 'w').write('made'); print(open(p).read())"
    assert run(made, hidden).stdout == "made\n"


@needs_landlock
def test_a_program_reaches_the_folders_that_are_named_and_no_key_in_them(folder: Path) -> None:
    for name in ("sources/a", "sources/key", "work/a/a", "work/deep/key", "rest/a"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text")
    sources, work = folder / "sources", folder / "work"
    keys = (sources / "key", work / "deep" / "key")
    python = [Path(place) for place in (sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64")]

    def can(code: str) -> bool:
        act = f"import os, pathlib; folder = pathlib.Path({str(folder)!r}); {code}"
        done = run(act, *keys, reads=[*python, sources], writes=[work])
        assert done.returncode == 0 or "PermissionError" in done.stderr, done.stderr
        return done.returncode == 0

    for code in (
        "(folder / 'sources' / 'a').read_text()",
        "(folder / 'work' / 'a' / 'a').write_text('')",
        "(folder / 'work' / 'a' / 'a').rename(folder / 'work' / 'a' / 'b')",
    ):
        assert can(code), code
    for code in (
        "(folder / 'sources' / 'key').read_text()",
        "(folder / 'sources' / 'a').write_text('')",
        "(folder / 'work' / 'deep' / 'key').read_text()",
        "(folder / 'work' / 'deep' / 'key').rename(folder / 'work' / 'key')",
        "(folder / 'rest' / 'a').read_text()",
        "os.truncate(folder / 'rest' / 'a', 0)",
        "os.listdir(folder)",
        "(folder / 'new').write_text('')",
    ):
        assert not can(code), code


@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can make a folder that others cannot list")
def test_a_home_in_a_folder_that_its_user_cannot_list_keeps_no_program_from_starting(folder: Path) -> None:
    """As /home on machines of several users, which they may pass and not read (mode 711)."""
    user = folder / "home" / "user"
    (user / ".aws").mkdir(parents=True)
    for name in ("notes", ".aws/credentials"):
        (user / name).write_text("text")
    folder.chmod(0o755)
    user.parent.chmod(0o711)
    ask = f"""
import os, subprocess, sys
from pathlib import Path
from cairn.platforms import landlock
os.setgroups([]), os.setgid(12345), os.setuid(12345)
landlock.start_confined(
    lambda: subprocess.Popen(["/bin/sh", "-c", sys.argv[1]]),
    ([Path("/")], [Path("/")], [Path({str(user / ".aws")!r})]),
).wait()
"""
    acts = f"cat {user}/notes; cat {user}/.aws/credentials"
    done = subprocess.run([sys.executable, "-c", ask, acts], capture_output=True, text=True, check=False)
    assert (done.stdout, "Permission denied" in done.stderr) == ("text", True), done.stderr


@needs_landlock
def test_a_program_that_is_not_there_is_said_to_be_so_by_who_asked() -> None:
    with pytest.raises(FileNotFoundError):
        landlock.start_confined(lambda: subprocess.Popen(["/no/such/program"]), (EVERYWHERE, EVERYWHERE, ()))


def test_a_program_that_ends_with_its_parent_outlives_its_start() -> None:
    """The kernel counts the thread that has started it for its parent (prctl(2), PR_SET_PDEATHSIG)."""
    ask = "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL)"
    ready = "print('ready', flush=True); sys.stdin.read(); print('to its end')"
    command, pipe = [sys.executable, "-c", f"{ask}; {ready}"], subprocess.PIPE
    with landlock.start_confined(
        lambda: subprocess.Popen(command, stdin=pipe, stdout=pipe), (EVERYWHERE, EVERYWHERE, ())
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert child.communicate()[0] == b"to its end\n"
