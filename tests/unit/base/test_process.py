import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cairn import isolation, platforms, process
from cairn.errors import PrerequisiteError, ProcessError
from cairn.platforms import landlock
from cairn.process import run_program

FOREIGN_DIRS = "notes"  # these programs write their ids for the tests


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_failure_carries_the_last_lines() -> None:
    with pytest.raises(ProcessError) as caught:
        process.run(python("print('reason'); raise SystemExit(3)"))
    assert caught.value.returncode == 3
    assert "reason" in caught.value.output


def test_missing_program_and_missing_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="no-such-program"):
        process.run(["no-such-program"])
    with pytest.raises(PrerequisiteError, match="no folder"):
        process.run(python("pass"), cwd=tmp_path / "absent")


def test_time_out_kills_grandchildren(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(marker)!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    with pytest.raises(ProcessError, match="within"):
        process.run(python(code), timeout=3)
    assert gone(int(marker.read_text()))


def test_a_child_that_will_not_end_is_killed_though_its_parent_has_ended(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    stubborn = f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open({str(marker)!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
    code = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {stubborn!r}], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(60)
"""
    group = process.Group()
    with ThreadPoolExecutor(1, initializer=group.join) as pool:
        ran = pool.submit(process.run, python(code), check=False)
        while not (marker.exists() and marker.read_text()):
            time.sleep(0.01)
        group.end()
        assert ran.result(30).returncode < 0
    assert gone(int(marker.read_text()))


def test_terminate_all_ends_what_other_threads_run() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            process.run(python("import time; print('up', flush=True); time.sleep(60)"), on_line=up.append)
        except ProcessError as error:
            caught.append(error)

    up: list[str] = []
    thread = threading.Thread(target=work)
    thread.start()
    while not up:
        time.sleep(0.01)
    process.terminate_all()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(caught[0], ProcessError)
    assert caught[0].returncode < 0


def test_a_token_in_a_url_is_never_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    url = "https://user:s3cret@example.org/x.git"
    with pytest.raises(ProcessError) as caught:
        process.run([*python("import sys; print(sys.argv[1]); raise SystemExit(1)"), url], log=log)
    assert "s3cret" not in log.read_text() + str(caught.value) + caught.value.output
    assert "example.org" in log.read_text()


def test_output_that_is_not_utf8_is_replaced() -> None:
    done = process.run(python("import sys; sys.stdout.buffer.write(b'\\xff\\n')"))
    assert done.output == "\ufffd\n"


def gone(pid: int) -> bool:
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, 9)
    return False


def test_the_threads_of_a_group_that_has_ended_start_nothing(tmp_path: Path) -> None:
    group, marker = process.Group(), tmp_path / "second"
    up: list[str] = []

    def work() -> None:
        process.run(
            python("import time; print('up', flush=True); time.sleep(60)"), on_line=up.append, check=False
        )
        process.run(python(f"open({str(marker)!r}, 'w')"), check=False)

    with ThreadPoolExecutor(1, initializer=group.join) as pool:
        future = pool.submit(work)
        while not up:
            time.sleep(0.01)
        group.end()
        with pytest.raises(ProcessError, match="not started"):
            future.result(30)
    assert not marker.exists()
    assert process.run(python("print('others may')")).output == "others may\n"


def test_a_group_that_is_a_part_of_one_that_has_ended_starts_nothing() -> None:
    whole = process.Group()

    def work() -> None:
        process.Group().join()
        whole.end()
        process.run(python("pass"))

    with (
        ThreadPoolExecutor(1, initializer=whole.join) as pool,
        pytest.raises(ProcessError, match="not started"),
    ):
        pool.submit(work).result(30)


def test_an_interrupt_while_programs_end_kills_them(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from cairn import platforms, process
stubborn = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
stubborn += "print(os.getpid(), flush=True); time.sleep(60)"
pid = []
def work():
    process.run([sys.executable, "-c", stubborn], on_line=pid.append, check=False)
thread = threading.Thread(target=work)
thread.start()
while not pid:
    time.sleep(0.01)
Path({str(tmp_path / "pid")!r}).write_text(pid[0])
process.children._GRACE = 1000
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    process.terminate_all()
except KeyboardInterrupt:
    thread.join()
    sys.exit(42)
"""
    done = process.run(python(code), check=False, timeout=40)
    assert done.returncode == 42, done.output
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_path_that_is_not_utf8_can_be_logged(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process.run([*python("pass"), os.fsdecode(b"caf\xe9")], log=log)
    assert "\\udce9" in log.read_text(encoding="utf-8")


def test_a_grandchild_that_left_the_group_cannot_prolong_a_time_out(tmp_path: Path) -> None:
    done, grandchild = _holding_the_pipe(tmp_path, own_session=True, child_stays=True)
    started = time.monotonic()
    with pytest.raises(ProcessError, match="did not end within 1 seconds") as caught:
        process.run(python(done), timeout=1)
    waited = time.monotonic() - started
    os.kill(int(grandchild.read_text()), 9)
    assert waited < 15  # of the 60 seconds that the grandchild sleeps
    assert "before" in caught.value.output


@pytest.mark.parametrize("own_session", [True, False])
def test_a_program_ends_when_it_ends_although_a_grandchild_holds_its_output(
    tmp_path: Path, *, own_session: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_program, "LINGER", 0.5)
    code, grandchild = _holding_the_pipe(tmp_path, own_session=own_session, child_stays=False)
    started = time.monotonic()
    done = process.run(python(code))
    assert time.monotonic() - started < 15
    assert done.output == "before\n"
    if own_session:
        os.kill(int(grandchild.read_text()), 9)
    assert gone(int(grandchild.read_text()))


def _holding_the_pipe(tmp_path: Path, *, own_session: bool, child_stays: bool) -> tuple[str, Path]:
    marker = tmp_path / "pid"
    return (
        f"""
import subprocess, sys, time
print("before", flush=True)
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session={own_session})
open({str(marker)!r}, "w").write(str(child.pid))
time.sleep({60 if child_stays else 0})
""",
        marker,
    )


_TALK = """
import sys
said = sys.stdin.buffer.read()
sys.stdout.buffer.write(b"out %d <" % len(said) + said + b">\\n")
sys.stdout.flush()
sys.stderr.buffer.write(b"err\\n" * int(sys.argv[1]))
"""
# Writes more than a pipe holds before it reads what it is given, which is more than a pipe holds too.
_BOTH_FULL = """
import sys
sys.stdout.buffer.write(b"x" * 300000 + b"\\n"); sys.stdout.flush()
sys.stderr.buffer.write(b"y" * 300000 + b"\\n"); sys.stderr.flush()
print(len(sys.stdin.buffer.read()))
"""


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("listened", [False, True])
@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("stdin", [None, b"", b"word", pytest.param(b"w" * 300_000, id="more")])
def test_every_way_to_run_gives_the_same_input_and_the_same_output(
    tmp_path: Path, *, stdin: bytes | None, logged: bool, listened: bool, apart: bool, timeout: float | None
) -> None:
    lines: list[str] = []
    log = tmp_path / "logs" / "step.log"
    done = process.run(
        [*python(_TALK), "2"],
        stdin=stdin,
        log=log if logged else None,
        on_line=lines.append if listened else None,
        separate_stderr=apart,
        timeout=timeout,
    )
    given = stdin or b""
    out = f"out {len(given)} <{given.decode()}>\n"
    assert (done.output, done.stderr) == ((out, "err\nerr\n") if apart else (f"{out}err\nerr\n", ""))
    wanted = [out.rstrip(), "err", "err"]
    assert sorted(lines) == (sorted(wanted) if listened else [])
    if logged:
        assert sorted(log.read_text().splitlines()[1 + _TALK.count("\n") :]) == sorted(wanted)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("logged", [False, True])
def test_pipes_that_are_full_in_both_directions_do_not_block(
    tmp_path: Path, *, apart: bool, logged: bool
) -> None:
    done = process.run(
        python(_BOTH_FULL),
        stdin=b"z" * 500_000,
        separate_stderr=apart,
        log=tmp_path / "log" if logged else None,
        timeout=60,
    )
    assert done.output.endswith("500000\n")
    assert len(done.output) + len(done.stderr) == 300_001 * 2 + 7


def test_a_program_that_does_not_read_its_input_is_no_failure() -> None:
    done = process.run(python("import sys; sys.stdin.close(); print('done')"), stdin=b"z" * 500_000)
    assert done.output == "done\n"


def test_a_program_that_writes_for_ever_is_ended_in_time(tmp_path: Path) -> None:
    lines = 0

    def count(_line: str) -> None:
        nonlocal lines
        lines += 1

    with pytest.raises(ProcessError, match="within"):
        process.run(python("while True: print('y' * 70)"), timeout=1, on_line=count, log=tmp_path / "log")
    assert lines


def test_a_program_that_closes_its_output_and_goes_on_is_ended_in_time() -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(60)"
    started = time.monotonic()
    with pytest.raises(ProcessError, match="within"):
        process.run(python(code), timeout=1)
    assert time.monotonic() - started < 30


def test_what_a_listener_raises_ends_the_program() -> None:
    pids: list[str] = []

    def refuse(line: str) -> None:
        pids.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run(python("import os, time; print(os.getpid(), flush=True); time.sleep(60)"), on_line=refuse)
    assert gone(int(pids[0]))


def test_an_argument_that_no_program_can_be_given_is_refused() -> None:
    with pytest.raises(ProcessError, match="null"):
        process.run([*python("pass"), "a\0b"])


def test_of_an_output_that_a_log_has_only_the_end_is_kept(tmp_path: Path) -> None:
    code = "for n in range(6_000): print('x' * 1000, n)"
    done = process.run(python(code), log=tmp_path / "log")
    assert len(done.output) < 5_000_000 < (tmp_path / "log").stat().st_size
    assert done.output.endswith(" 5999\n")
    assert len(process.run(python(code)).output) > 6_000_000


def test_a_line_without_end_is_handed_on_in_pieces(tmp_path: Path) -> None:
    url = "https://me:secret@host"
    code = f"import sys; n = 400_000; sys.stdout.write('{url} ' * n)"
    pieces: list[str] = []
    process.run(python(code), log=tmp_path / "log", on_line=pieces.append)
    assert max(map(len, pieces)) < 2 << 20
    assert (tmp_path / "log").read_text().partition("\n")[2] == "https://***@host " * 400_000
    assert "secret" not in "".join(pieces)


def test_of_an_output_of_foreign_code_that_nothing_logs_not_all_is_kept() -> None:
    code = "import sys; [sys.stdout.write('x' * (1 << 20)) for n in range(80)]"
    assert 60 << 20 < len(process.run(python(code)).output) < 70 << 20


def test_a_line_without_end_of_a_server_is_logged_as_it_comes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys, time; sys.stdout.write('x' * (4 << 20)); sys.stdout.flush(); time.sleep(60)"
    with process.background(
        python(code), log=log, reach=isolation.reach(python(code), cwd=None, env=os.environ)
    ) as ended:
        deadline = time.monotonic() + 30
        while log.stat().st_size < 3 << 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not ended()
        assert log.stat().st_size >= 3 << 20


@pytest.mark.parametrize(
    "watched", ["", "on_line=str, log=Path('log'), ", "stdin=b'x' * 300_000, separate_stderr=True, "]
)
def test_an_interrupt_ends_a_program_however_it_is_watched(tmp_path: Path, watched: str) -> None:
    code = f"""
import sys
from pathlib import Path
from cairn import platforms, process
inner = "import subprocess, sys; sleep = [sys.executable, '-c', 'import time; time.sleep(60)']; "
inner += "c = subprocess.Popen(sleep); open('pid', 'w').write(str(c.pid)); open('up', 'w'); c.wait()"
try:
    process.run([sys.executable, "-c", inner], {watched}timeout=60)
except KeyboardInterrupt:
    sys.exit(42)
"""
    with subprocess.Popen(python(code), cwd=tmp_path) as child:
        while not (tmp_path / "up").exists():
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 42
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_program_that_somebody_types_to_has_our_streams_and_its_own_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert process.interactive([sys.executable, "-c", "print('here'); raise SystemExit(5)"]) == 5
    assert capfd.readouterr().out == "here\n"
    with pytest.raises(PrerequisiteError, match="no-such-engine is not on this machine"):
        process.interactive(["no-such-engine", "run"])


@pytest.mark.skipif(os.name != "posix", reason="programs are guarded by a process of POSIX's")
def test_the_end_of_a_guarded_block_ends_no_program_of_another_thread() -> None:
    """One project's checkout is done while another's origin is still being written: 2 of 6 failed."""
    with ThreadPoolExecutor(1) as pool:
        with platforms.here.guarding():
            other = pool.submit(process.run, python("import time; print('up', flush=True); time.sleep(1.5)"))
            process.run(python("import time; time.sleep(0.7)"))  # by now the other one is known to the guard
        assert other.result().returncode == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the guard looks for it in /proc")
@pytest.mark.parametrize("confined", ["True", "False"])
def test_a_program_is_ended_where_we_are_killed_before_we_know_its_number(
    tmp_path: Path, confined: str
) -> None:
    sleep = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    killed = f"""
import os, pathlib, time
from cairn import platforms, process
def guard(_child):
    while not pathlib.Path({str(tmp_path / "pid")!r}).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
with platforms.here.guarding():
    process.run({python("pass")!r}, confined={confined})  # the first has the guard started
    platforms.here.guard = guard
    process.run({python(sleep)!r}, confined={confined})
"""
    subprocess.run(python(killed), check=False, timeout=120)
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="programs are confined on Linux alone")
def test_a_confined_program_is_ended_where_we_are_interrupted_while_it_starts() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        time.sleep(0.2)
        started.append(subprocess.Popen(python("import time; time.sleep(600)"), start_new_session=True))
        return started[0]

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            landlock.start_confined(start, ((Path("/"),), (Path("/"),), ()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert started[0].wait(timeout=30) == -signal.SIGKILL


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the guard looks for it in /proc")
def test_programs_that_threads_start_at_once_are_all_ended(tmp_path: Path) -> None:
    killed = f"""
import os, subprocess, time
from cairn import platforms
with platforms.here.guarding():
    first, its_end = os.pipe()
    platforms.here.expect(its_end)
    other, its_other_end = os.pipe()  # of another thread, which comes as far as to its guard
    platforms.here.expect(its_other_end)
    sleep = {python("import time; time.sleep(600)")!r}
    two = [subprocess.Popen(sleep, stdout=end, start_new_session=True) for end in (its_end, its_other_end)]
    two[1].stdout = os.fdopen(other, "rb")
    platforms.here.guard(two[1])
    open({str(tmp_path / "pids")!r}, "w").write(" ".join(str(one.pid) for one in two))
    os.kill(os.getpid(), 9)
"""
    subprocess.run(python(killed), check=False, timeout=120)
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())
