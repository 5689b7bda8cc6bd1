"""Which input made a step new, from what to what."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from cairn.build import execution, plan, plan_graph
from cairn.build.model import BuildRequest
from cairn.build.plan_graph import PlanGraph
from cairn.errors import UsageError
from helpers.build import MakeRequest, with_stack
from helpers.packing import backend

# A wheel without a word of its own: what it is built from is all that matters here.
BACKEND = """
def build_wheel(folder, settings=None, metadata=None):
    return write_wheel(folder, "{name}", "1.0", {{}}).name
"""


@pytest.fixture
def request_(request_for: MakeRequest) -> BuildRequest:
    """Builds `a`, and `b` which needs it."""
    made = request_for(**{name: backend(BACKEND.format(name=name)) for name in "ab"})
    for tree in made.checkouts.values():
        (tree / ".git/info/exclude").write_text("__pycache__/\n")
    a, b = made.stack.projects
    return with_stack(made, projects=(a, structs.replace(b, needs=("a",))))


def edit(request: BuildRequest, name: str) -> None:
    """Change a file of a project."""
    with (request.checkouts[name] / "backend.py").open("a") as file:
        file.write("# edited\n")


def graph(*requests: BuildRequest, labels: tuple[str, ...] = ("",)) -> PlanGraph:
    return plan_graph.graph_of(plan.make_all(requests), labels)


def said(found: PlanGraph) -> dict[str, str]:
    return {one.step.name: f"{one.action}: {one.explanation.reason}" for one in found.steps}


def test_a_plan_says_what_is_new_what_changed_and_what_follows_from_it(request_: BuildRequest) -> None:
    assert said(graph(request_)) == {
        "checkout a": f"present: at {request_.checkouts['a']}",
        "checkout b": f"present: at {request_.checkouts['b']}",
        "build a": "build: never built before",
        "build b": "build: never built before",
    }
    execution.run(plan.make(request_))
    assert said(graph(request_))["build b"] == "cached: nothing changed"
    edit(request_, "a")
    (request_.checkouts["a"] / "new file.txt").touch()
    found = graph(request_)
    assert said(found)["build a"] == "build: backend.py, new file.txt changed"
    assert said(found)["build b"] == "build: a changed"
    changed = {one.name: one for one in found.find("a").explanation.differences}
    assert changed.keys() == {"tree", "sources.edited.backend.py", "sources.edited.new file.txt"}
    assert changed["tree"].before != changed["tree"].now
    assert changed["sources.edited.backend.py"].before is None
    (only,) = found.find("build b").explanation.differences
    assert only.name == "needs.a"
    assert only.before == found.find("a").explanation.last.key  # type: ignore[union-attr]


def test_from_what_to_what(request_: BuildRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    execution.run(plan.make(request_))
    changes = {
        ("build_number", "1", "2"): {"build_number": "2"},
        ("version_suffix", "", "+x"): {"version_suffix": "+x"},
        ("features", "none", "f"): {"features": frozenset({"f"})},
        ("build_env.USE_X", None, "1"): {"build_env": {"a:USE_X": "1"}},
    }
    for expected, fields in changes.items():
        (only,) = graph(structs.replace(request_, **fields)).find("a").explanation.differences
        assert (only.name, only.before, only.now) == expected
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    found = graph(request_).find("a").explanation
    assert [(one.name, one.before, one.now) for one in found.differences] == [
        ("toolchain.SOURCE_DATE_EPOCH", None, "1700000000")
    ]
    assert found.reason == "the compilers or their settings changed"


def test_a_wheel_of_the_same_variant_is_compared_before_a_later_one_of_another(
    request_: BuildRequest,
) -> None:
    own = request_.python
    other = dataclasses.replace(own, version="3.99", release="3.99.0")
    second = structs.replace(request_, python=other)
    execution.run(plan.make(request_))
    assert said(graph(second))["build a"] == (
        f"build: Python {other.tag}, not {own.tag}; the compilers or their settings changed"
    )
    edit(request_, "a")
    assert said(graph(request_))["build a"] == "build: backend.py changed"


def test_all_is_built_again_when_asked_to(request_: BuildRequest) -> None:
    assert said(graph(structs.replace(request_, clean=True)))["build a"] == "build: --clean"


def test_variants_share_checkouts_and_have_names_of_their_own(request_: BuildRequest, tmp_path: Path) -> None:
    other = dataclasses.replace(request_.python, version="3.99", release="3.99.0")
    second = structs.replace(request_, python=other, output_dir=tmp_path / "second")
    found = graph(request_, second, labels=("3.11", "3.99"))
    names = [one.step.name for one in found.steps]
    assert names == [
        *("checkout a", "checkout b", "build a [3.11]", "build b [3.11]"),
        *("build a [3.99]", "build b [3.99]"),
    ]
    assert found.find("a [3.99]").step.needs == ("checkout a",)
    assert found.find("build b [3.99]").step.needs == ("checkout b", "build a [3.99]")
    digests = [found.digest(one) for one in found.steps]
    assert len(set(digests)) == len(digests)
    # The two builds in one tree never run at once.
    one, two = (found.find(f"build a [{version}]").step.exclusive for version in ("3.11", "3.99"))
    assert one == two == (f"tree:{request_.checkouts['a']}",)
    with pytest.raises(UsageError, match="several steps") as caught:
        found.find("b")
    assert "build b [3.99]" in (caught.value.tip or "")
    with pytest.raises(UsageError, match="not a step") as caught:
        found.find("build a [3.98]")
    assert "build a [3.99]" in (caught.value.tip or "")


def test_a_digest_covers_all_that_a_step_rests_on(request_: BuildRequest) -> None:
    def digests(found: PlanGraph) -> tuple[str, str]:
        return found.digest(found.find("a")), found.digest(found.find("b"))

    before = digests(graph(request_))
    assert digests(graph(request_)) == before
    execution.run(plan.make(request_))
    assert digests(graph(request_)) == before  # whether the cache has the wheel is not an input
    edit(request_, "b")
    of_a, of_b = digests(graph(request_))
    assert of_a == before[0]
    assert of_b != before[1]
    edit(request_, "a")
    assert digests(graph(request_))[0] != of_a
    assert digests(graph(request_))[1] != of_b
