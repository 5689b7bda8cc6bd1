"""One run at a time works in a checkout."""

import threading
import time
from pathlib import Path

import pytest

from cairn.output import console
from cairn.sources.git import lock


def test_who_waits_for_another_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console.use(console.Console())
    entered = threading.Event()

    def second() -> None:
        with lock.hold(tmp_path / "pytorch"):
            entered.set()

    with lock.hold(tmp_path / "pytorch"):
        other = threading.Thread(target=second)
        other.start()
        shown, end = "", time.monotonic() + 60
        while "waiting" not in shown and time.monotonic() < end:
            time.sleep(0.05)
            shown += capsys.readouterr().err
        assert not entered.is_set()
    other.join(60)
    assert entered.is_set()
    assert shown.strip() == f"waiting for another run that works in {tmp_path / 'pytorch'}"
