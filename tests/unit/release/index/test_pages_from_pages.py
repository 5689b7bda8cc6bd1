"""A page that takes lines of the page before it has the bytes of a page that is rendered whole."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.release.history.rollback import rollback
from cairn.release.index import keys, render, write
from cairn.release.index.generation import (
    FileEntry,
    ProjectState,
    VariantsFile,
)
from cairn.release.index.snapshot import Change, Index, Snapshot
from cairn.store.memory import MemoryStore
from helpers.release import commit, with_forged_page

PREFIX = keys.simple_prefix("release")
VERSIONS = (
    "1.0",
    "1.0.1",
    "2.0a1",
    "2.0",
    "2.0.0",
    "2.0+rocm7",
    "2.0+rocm7.1",
    "2.1",
    "3.0",
    "10.0",
    "10.0.post1",
)
TEXTS = st.sampled_from(
    [
        None,
        "",
        "bad",
        '{"filename":"torch-2.0-cp311-cp311-linux_x86_64.whl"',
        "<details><summary><b>2.0</b>",
        "\0]}\n",
    ]
)
TAGS = ("cp311-cp311-linux_x86_64", "cp312-cp312-win_amd64")


@st.composite
def files(draw: st.DrawFn) -> FileEntry:
    version, tag = draw(st.sampled_from(VERSIONS)), draw(st.sampled_from(TAGS))
    name = f"torch-{version}-{tag}.whl"
    digest = hashlib.sha256(f"{name}{draw(st.integers(0, 2))}".encode()).hexdigest()
    variants = VariantsFile(filename=f"torch-{version}-variants.json", sha256=digest, size=7)
    return FileEntry(
        filename=name,
        sha256=digest,
        size=draw(st.sampled_from([0, 434_000_000])),
        version=version,
        build="published",
        upload_time=draw(
            st.sampled_from([None, "2026-01-02T03:04:05.678901Z", "2026-02-02T03:04:05.678901Z"])
        ),
        requires_python=draw(st.sampled_from([None, ">=3.10,<4"])),
        metadata_sha256=draw(st.sampled_from([None, digest])),
        provenance=draw(st.sampled_from([None, digest])),
        provenance_kind=draw(st.sampled_from(["pep740", "local-key"])),
        yanked=draw(TEXTS),
        untested=draw(TEXTS),
        failed=draw(TEXTS),
        variants=draw(st.sampled_from([None, None, variants])),
    )


@st.composite
def states(draw: st.DrawFn) -> ProjectState:
    state = ProjectState(
        name="torch",
        files=(),
        serial=draw(st.integers(0, 120)),
        status=draw(st.sampled_from(["active", "archived", "quarantined"])),
        status_reason=draw(TEXTS),
    )
    return state.with_files(tuple(draw(st.lists(files(), max_size=8))))


@settings(max_examples=40, deadline=None)
@given(states(), states(), st.integers(0, 70_000))
def test_a_page_over_any_other_is_the_whole_page(before: ProjectState, after: ProjectState, cut: int) -> None:
    page, whole = render.project_page(before, prefix=PREFIX), render.project_page(after, prefix=PREFIX)
    assert render.project_page(after, prefix=PREFIX, over=(before, page)) == whole
    assert render.project_page(before, prefix=PREFIX, over=(after, whole)) == page
    torn = render.Page(html=page.html[:cut], json=page.json[:cut])
    render.project_page(after, prefix=PREFIX, over=(before, torn))


def wheel(store: MemoryStore, project: str, version: int) -> FileEntry:
    name = f"{project}-{version}.0-py3-none-any.whl"
    digest = hashlib.sha256(name.encode()).hexdigest()
    store.write(keys.file_key(digest, name), name.encode())
    return FileEntry(filename=name, sha256=digest, size=len(name), version=f"{version}.0", build="published")


def act(store: MemoryStore, act: str, version: int) -> None:
    """Change an index as the command of that name does; a rollback is the command itself."""
    index = Index(store, "release")
    if act == "rollback":
        rollback(store, "release", f"{version % (index.load().generation.number + 1):07}")
        return

    def plan(now: Snapshot) -> Change:
        projects: dict[str, ProjectState | None] = {}
        for name in ("torch", "triton")[: 1 + version % 2]:
            old, file = now.project(name), wheel(store, name, version)
            if act == "publish":
                projects[name] = old.with_files((file,))
            elif act == "retain":
                projects[name] = old.without(frozenset({file.filename})) if len(old.files) > 1 else None
            else:
                why = "bad" if act == "yank" else None
                marked = [
                    msgspec.structs.replace(f, yanked=why) for f in old.files if f.version == file.version
                ]
                projects[name] = old.with_files(tuple(marked))
        return Change(projects={name: new for name, new in projects.items() if new != now.project(name)})

    commit(index, act, plan)  # type: ignore[arg-type]


def require_whole(store: MemoryStore) -> None:
    """Compare each page with one that is rendered whole."""
    now = Index(store, "release").load()
    for project in now.projects():
        page = render.project_page(project, prefix=PREFIX)
        assert stored(store, project.name) == page
        assert project.page == page.digest
    for name in {"torch", "triton"}.difference(now.project_names):
        assert write.is_empty_page(store, f"{PREFIX}{name}/index.html") or not store.exists(
            f"{PREFIX}{name}/index.html"
        )


def stored(store: MemoryStore, name: str) -> render.Page:
    data = {kind: store.read(f"{PREFIX}{name}/index.{kind}").data for kind in ("html", "json")}
    return render.Page(**data)


ACTS = st.tuples(
    st.sampled_from(["publish", "publish", "yank", "unyank", "retain", "rollback"]), st.integers(1, 9)
)


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTS, min_size=3, max_size=15))
def test_every_page_of_a_history_is_the_whole_page(history: list[tuple[str, int]]) -> None:
    store = MemoryStore()
    for name, version in [("publish", 1), *history]:
        act(store, name, version)
        require_whole(store)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    for version in range(1, 9):
        act(store, "publish", version)
    return store


def test_lines_are_copied_from_the_page_of_the_state_before(store: MemoryStore) -> None:
    before, page = Index(store, "release").load().project("torch"), stored(store, "torch")
    marked = render.Page(
        html=page.html.replace(b">torch-2.0-py3", b">TORCH-2.0-py3"),
        json=page.json.replace(b'-2.0-py3-none-any.whl","url', b'-2.0-PY3-none-any.whl","url'),
    )
    new = before.with_files((wheel(store, "torch", 9),))
    copied = render.project_page(new, prefix=PREFIX, over=(before, marked))
    assert (b">TORCH-2.0-py3" in copied.html, b"-2.0-PY3-none" in copied.json) == (True, True)


@pytest.mark.parametrize("kind", ["html", "json"])
def test_nothing_is_copied_from_a_page_that_was_changed_in_the_store(store: MemoryStore, kind: str) -> None:
    key = f"{PREFIX}torch/index.{kind}"
    store.write(key, store.read(key).data.replace(b"torch-2.0-py3", b"torch-6.6-py3"))
    act(store, "publish", 9)
    require_whole(store)


@pytest.mark.parametrize("kind", ["html", "json"])
def test_nothing_is_copied_from_a_page_that_is_lost(store: MemoryStore, kind: str) -> None:
    store.delete(f"{PREFIX}torch/index.{kind}")
    act(store, "publish", 9)
    require_whole(store)


def test_nothing_is_copied_from_a_page_of_another_rendering(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored(store, "torch").digest == Index(store, "release").load().project("torch").page
    monkeypatch.setattr(render, "_RENDERING", 0)
    assert stored(store, "torch").digest != Index(store, "release").load().project("torch").page


RENDERED = (1, "ab2cdbf99f2ee655cff7b35dcbb6d798ac4a0c2e9b8edd04b769032828a2ec7c")
"""`render._RENDERING`, and the sha256 of the pages below in that rendering."""


def test_the_rendering_has_its_number() -> None:
    digest = hashlib.sha256(b"a").hexdigest()
    entries = tuple(
        FileEntry(
            filename=f"torch-{version}-cp311-cp311-linux_x86_64.whl",
            sha256=digest,
            size=434_000_000,
            version=version,
            build="published",
            upload_time="2026-01-02T03:04:05.678901Z",
            requires_python=">=3.10,<4",
            metadata_sha256=digest,
            provenance=digest,
            provenance_kind="pep740" if version == "1.0" else "local-key",
            yanked=marks[0],
            untested=marks[1],
            failed=marks[2],
            variants=VariantsFile(filename=f"torch-{version}-variants.json", sha256=digest, size=7)
            if version == "2.0"
            else None,
        )
        for version, marks in {
            "1.0": (None, None, None),
            "2.0": ("bad", "untested on <gfx942>", None),
            "3.0": ("", None, "a test has failed"),
            "10.0": (None, "untested", None),
        }.items()
    )
    state = ProjectState(name="torch", files=entries, status="archived", status_reason="moved", serial=7)
    pages = [
        render.project_page(project, prefix=PREFIX)
        for project in (
            state,
            ProjectState(name="torch", files=entries[:1]),
            ProjectState(name="x", files=()),
        )
    ]
    rendered = hashlib.sha256(b"".join(page.html + page.json for page in pages)).hexdigest()
    assert (render._RENDERING, rendered) == RENDERED, (
        "pages have other bytes: raise render._RENDERING, and note it here with the new sha256"
    )


def test_a_forged_page_that_the_state_names_ends_by_itself(store: MemoryStore) -> None:
    with_forged_page(store)
    shown = []
    for version in range(9, 73, 2):  # triton changes too
        act(store, "publish", version)
        shown.append(b"torch-6.6-py3" in store.read(f"{PREFIX}torch/index.html").data)
    assert (shown[0], shown[-1]) == (True, False)
    require_whole(store)


def test_of_large_pages_the_lines_that_stay_are_copied_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page in pieces is kept where all of it is too large, and is not rendered again."""
    store, rendered = MemoryStore(), list[str]()
    act(store, "publish", 1)
    for version in range(3, 60, 2):
        act(store, "publish", version)
    render_page = render.project_page

    def counted(project: ProjectState, **options: Any) -> render.Page:
        rendered.append(project.name)
        return render_page(project, **options)

    monkeypatch.setattr(write, "_is_rendered_whole", lambda _: False)
    monkeypatch.setattr(write, "_KEPT", len(stored(store, "torch").html) - 1_000)
    monkeypatch.setattr(render, "project_page", counted)
    act(store, "publish", 61)
    assert sorted(rendered) == ["torch", "triton"]
    require_whole(store)


@pytest.mark.parametrize(("most", "kept"), [(1, 0), (1 << 20, 2)])
def test_pages_beyond_what_is_kept_are_rendered_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch, most: int, kept: int
) -> None:
    monkeypatch.setattr(write, "_KEPT", most)
    store, counts = MemoryStore(), list[int]()
    put = write.put_project_page

    def counted(shown: Snapshot, name: str) -> bool:
        counts.append(len(shown.index.pages))
        return put(shown, name)

    monkeypatch.setattr(write, "put_project_page", counted)
    act(store, "publish", 1)  # torch and triton
    require_whole(store)
    assert counts[0] == kept
