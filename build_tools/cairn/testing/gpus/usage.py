"""Check that tests have used the GPUs that their wheels are for, as `verdict` requires of every run.

A test names the GPU that it computed on in the results of its run (`junit.TestOutcome.device`): a suite's
tests by the memory that was allocated there (`suite.worker`), a stack's smoke tests and the probes of the
compatibility pages by what they write themselves. These names are compared with the GPUs of the machine
(`attest`).
"""

from __future__ import annotations

from collections.abc import Sequence

from cairn.output import wording
from cairn.targets import CPU
from cairn.testing.gpus.gpu import covers, is_amd, matches
from cairn.testing.junit import JUnit


def wrong_hardware(
    outcome: JUnit | None, targets: Sequence[str], hardware: Sequence[str], disagreements: Sequence[str]
) -> str | None:
    """Return why a run's GPUs are not, or not certainly, those that the wheels are for; None if they are.

    Args:
        outcome: the results; None where there are none.
        targets: what the wheels were built for.
        hardware: the GPUs that the tests could use.
        disagreements: where the sources of that contradict each other.
    """
    if not _for_gpus(targets):
        return None
    if disagreements:
        more = f", and {len(disagreements) - 1} more" if len(disagreements) > 1 else ""
        return f"it is not certain which GPUs this machine has: {disagreements[0]}{more}"
    on_machine, expected = wording.each_once(hardware), wording.each_once(targets)
    if not (all(map(is_amd, hardware)) and matches(hardware, targets)):
        return f"the GPUs of this machine ({on_machine}) are not all among the targets ({expected})"
    # What tests recorded counts as well, but it is their word: an override (HSA_OVERRIDE_GFX_VERSION), or a
    # test that is wrong, may call a GPU what it is not.
    used = tuple(dict.fromkeys(name for case in (outcome.cases if outcome else ()) for name in case.devices))
    untargeted = [name for name in used if not (is_amd(name) and matches([name], targets))]
    if untargeted:
        return f"tests computed on {', '.join(untargeted)}, which is not among the targets ({expected})"
    absent = [name for name in used if not covers(hardware, name)]
    if absent:
        present = f"only {on_machine}" if hardware else "no GPU"
        return f"tests say that they computed on {', '.join(absent)}, and there is {present}"
    return None


def no_gpu_used(outcome: JUnit, targets: Sequence[str], translated: str = "") -> str | None:
    """Return why no passed test counts for a GPU although the wheels are for one; None if one does.

    Args:
        outcome: the results.
        targets: what the wheels were built for.
        translated: what stood in for a GPU; whatever passed with it, no GPU was tested.
    """
    if translated:
        return f"translated by {translated}, so none of them on a GPU"
    if _for_gpus(targets) and not outcome.counts.device_passed:
        return "none of them on a GPU"
    return None


def passed_by_target(outcome: JUnit | None, targets: Sequence[str]) -> dict[str, int]:
    """Return, for each GPU target, the number of tests that passed on such a GPU."""
    passed = [case.devices for case in outcome.cases if case.outcome == "passed"] if outcome else []
    return {
        target: sum(covers(filter(is_amd, names), target) for names in passed)
        for target in targets
        if target != CPU
    }


def _for_gpus(targets: Sequence[str]) -> bool:
    return any(target != CPU for target in targets)
