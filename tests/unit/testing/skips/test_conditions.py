"""Conditions of skips: when they hold, and whether two of them may hold at once."""

import pytest

from cairn.errors import UsageError
from cairn.testing.skips import conditions
from cairn.testing.skips.conditions import RunFacts, When

RUN = RunFacts(targets=("gfx942",), platform="linux", torch="2.13.0a0+rocm7.10.0", python="3.12.4")


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(), True),
        (When(family=("gfx94X-dcgpu",)), True),
        (When(family=("dcgpu-all",)), True),
        (When(family=("gfx110X-all", "gfx94X-dcgpu")), True),
        (When(family=("gfx110X-all",)), False),
        (When(target=("gfx942",)), True),
        (When(target=("gfx94X",)), True),
        (When(target=("gfx942:xnack+",)), True),
        (When(target=("gfx950", "cpu")), False),
        (When(family=("gfx94X-dcgpu",), target=("gfx950",)), False),
        (When(platform=("linux", "windows")), True),
        (When(platform=("windows",)), False),
        (When(torch=">=2.13"), True),
        (When(torch="==2.13.*"), True),
        (When(torch="<2.13"), False),
        (When(torch=">=2.9,<2.13"), False),
        (When(python=">=3.14"), False),
        (When(python="==3.12.*", torch=">=2.13"), True),
    ],
)
def test_all_conditions_must_hold(when: When, *, expected: bool) -> None:
    conditions.check(when)
    assert conditions.applies(when, RUN) is expected
    assert conditions.applies(when, RunFacts()) is True  # nothing is known: it may


def test_one_of_several_gpus_is_enough_and_none_is_the_target_cpu() -> None:
    when = When(family=("gfx110X-all",))
    assert conditions.applies(when, RunFacts(targets=("gfx942", "gfx1100")))
    assert not conditions.applies(when, RunFacts(targets=("cpu",)))
    assert conditions.applies(When(target=("cpu", "gfx942")), RunFacts(targets=("cpu",)))


@pytest.mark.parametrize(
    ("when", "said", "tip"),
    [
        (When(family=("gfx94X-dcpgu",)), "unknown family", "gfx94X-dcgpu"),
        (When(target=("gfx9421",)), "unknown GPU target", "gfx942"),
        (When(torch="2.13"), "not a range of versions", "==2.13"),
        (When(python="new"), "not a range of versions", ">="),
        (When(torch="===2.13"), "compares texts", "==2.13"),
        (When(torch=">=2.14,<2.12"), "no version is in", ">="),
    ],
)
def test_a_condition_that_cannot_be_meant(when: When, said: str, tip: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        conditions.check(when)
    assert tip in str(caught.value.tip)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (When(), When(), True),
        (When(), When(torch=">=2.13"), True),
        (When(torch="==2.12.*"), When(torch="==2.13.*"), False),
        (When(torch=">=2.12,<2.14"), When(torch=">=2.13"), True),
        (When(torch="<2.12"), When(torch=">=2.12"), False),
        (When(torch="<=2.12"), When(torch=">=2.12"), True),
        (When(torch=">2.12,<2.13"), When(torch=">=2.12"), True),
        (When(torch="<2.12"), When(torch="<2.9"), True),
        (When(torch="!=2.12"), When(torch="==2.12"), False),
        (When(torch="~=2.12.0"), When(torch=">2.12.5"), True),
        (When(torch=">=2.12"), When(torch="!=2.12.*"), True),
        (When(torch=">2.13,!=2.14.*"), When(torch="!=2.13.*"), True),
        (When(torch=">=2.12,<2.13"), When(torch="!=2.12.*"), False),
        (When(platform=("linux",)), When(platform=("windows",)), False),
        (When(platform=("linux",)), When(python=">=3.14"), True),
        (When(family=("gfx94X-dcgpu",)), When(target=("gfx942",)), True),
        (When(family=("gfx94X-dcgpu",)), When(target=("gfx1100",)), False),
        (When(target=("cpu",)), When(family=("dcgpu-all",)), False),
    ],
)
def test_whether_two_conditions_may_hold_at_once(one: When, other: When, *, expected: bool) -> None:
    assert conditions.may_coincide(one, other) is expected
    assert conditions.may_coincide(other, one) is expected
