"""Pages made of the sets that they show are the pages of all sets of an index."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.release.index import people
from cairn.release.index.generation import IndexSet
from cairn.release.pages import chooser, landing, status, targets_file
from cairn.release.pages.view import IndexView, shown_sets
from helpers.pages import one_set

VERSIONS = ("2.9.0+rocm7.10.0", "2.9.1+rocm7.10.0", "2.10.0rc1", "2.10.0+rocm7.11.0", "2.8.0")
TARGETS = (("gfx942",), ("gfx942", "gfx1201"), ("gfx1101",), ("cpu",))


@st.composite
def sets(draw: st.DrawFn) -> tuple[IndexSet, ...]:
    every = []
    for number in range(draw(st.integers(0, 25))):
        targets = draw(st.sampled_from(TARGETS))
        entry = one_set(
            number,
            draw(st.sampled_from(VERSIONS)),
            targets,
            family=draw(st.sampled_from(["gfx94X-dcgpu", "gfx110X-all"])),
            line=draw(st.sampled_from(["release/2.9", "release/2.10"])),
            python=draw(st.sampled_from(["3.11", "3.12"])),
            platform=draw(st.sampled_from(["linux_x86_64", "win_amd64"])),
            added=f"2026-11-{draw(st.integers(1, 28)):02}T01:02:03.{number:06}Z",
            untested=draw(st.sampled_from([None, None, "no such GPU is here"])),
            untested_targets=draw(st.sampled_from([(), targets])),
            yanked=draw(st.sampled_from([None, None, None, "bad"])),
        )
        device = draw(st.sampled_from([None, None, "amd-torch-device-gfx942", "torch-device-gfx1201"]))
        more = {device: entry.projects["torch"]} if device else {}
        gone = draw(st.sampled_from(["", "", "torch", "triton"]))
        projects = {name: version for name, version in entry.projects.items() if name != gone} | more
        every.append(msgspec.structs.replace(entry, projects=projects))
    return tuple(every)


@settings(max_examples=80, deadline=None)
@given(sets())
def test_every_page_of_the_sets_that_are_shown_is_that_of_all(every: tuple[IndexSet, ...]) -> None:
    whole = IndexView(name="release", generation=1, sets=every)
    shown = IndexView(name="release", generation=1, sets=shown_sets(every))
    assert targets_file.make("release", [shown]) == targets_file.make("release", [whole])
    assert status.rows([shown]) == status.rows([whole])
    assert people.of_names(shown.sets) == people.of_names(whole.sets)
    assert chooser.make([shown]) == chooser.make([whole])
    assert landing.page([shown], folder="release") == landing.page([whole], folder="release")


def test_few_of_many_sets_are_shown() -> None:
    every = [
        msgspec.structs.replace(
            one_set(1, f"2.9.{n}", ("gfx942",), added=f"2026-11-01T00:00:00.{n:06}Z"), set_id=f"{n:064}"
        )
        for n in range(500)
    ]
    assert shown_sets(every) == (every[-1],)
