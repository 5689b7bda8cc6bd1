import dataclasses

import msgspec
import pytest

from cairn.build import backend, plan
from cairn.errors import BuildError, ProblemsError
from helpers.build import MakeRequest

PURE = "def build_wheel(folder, settings=None, metadata=None): raise SystemExit('it was built')"


def test_requirements_that_cannot_be_met_are_told_for_all_projects_before_one_is_built(
    request_for: MakeRequest,
) -> None:
    request = request_for(good=PURE, bad=PURE, worse=PURE)
    wanted = {"good": (), "bad": ("wheel<0.30", "wheel>0.40"), "worse": ("wheel>0.45", "wheel<0.45")}
    projects = tuple(
        msgspec.structs.replace(p, build_requires=wanted[p.name]) for p in request.stack.projects
    )
    request = dataclasses.replace(request, stack=msgspec.structs.replace(request.stack, projects=projects))
    with pytest.raises(ProblemsError) as caught:
        backend.require_resolvable([plan.make(request)])
    assert [str(problem).split(" cannot")[0] for problem in caught.value.problems] == [
        "the build requirements of bad",
        "the build requirements of worse",
    ]
    assert all(isinstance(problem, BuildError) for problem in caught.value.problems)
