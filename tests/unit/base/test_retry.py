from __future__ import annotations

import pytest

from cairn.errors import NetworkError, SourceError
from cairn.retry import RetryPolicy, retrying


def test_only_network_faults_are_tried_again() -> None:
    said: list[str] = []
    tries: list[int] = []

    def fails_twice() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise NetworkError("lost")
        return "done"

    assert retrying(fails_twice, retry=RetryPolicy(attempts=3, wait=0), say=said.append) == "done"
    assert len(said) == 2

    def refuses() -> str:
        tries.append(1)
        raise SourceError("no")

    tries.clear()
    with pytest.raises(SourceError):
        retrying(refuses, retry=RetryPolicy(attempts=3, wait=0), say=said.append)
    assert len(tries) == 1


def test_retries_end() -> None:
    def fails() -> str:
        raise NetworkError("lost")

    with pytest.raises(NetworkError):
        retrying(fails, retry=RetryPolicy(attempts=2, wait=0), say=lambda _line: None)


def test_waits_grow_to_the_longest_and_are_never_in_step() -> None:
    retry = RetryPolicy(wait=1.0, factor=2.0, longest=5.0, jitter=0.25)
    for failures, middle in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (40, 5.0)):
        waits = {retry.seconds(failures) for _ in range(50)}
        assert len(waits) > 40
        assert 0.75 * middle <= min(waits) < middle < max(waits) <= 1.25 * middle


@pytest.mark.parametrize("seconds", [1.0, 30.0, 600.0, 100_000.0])
def test_an_outage_is_waited_out_for_as_long_as_was_asked(seconds: float) -> None:
    retry = RetryPolicy.lasting(seconds)
    waits = [min(retry.longest, retry.wait * retry.factor ** min(n, 9)) for n in range(retry.attempts - 1)]
    assert retry.seconds(retry.attempts - 1) <= 75
    assert seconds <= sum(waits) < seconds + 60
    assert max(waits) <= 60
