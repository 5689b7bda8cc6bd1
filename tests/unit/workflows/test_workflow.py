"""Files that are not what they should be, and workflows that call themselves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.workflows import document, lint, workflow
from helpers import workflows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("just words", "is neither a workflow"),
        ("- a\n- b\n", "is neither a workflow"),
        ("jobs: [\n", "2 is not YAML"),
        ("jobs:\n\ta: b", "2 is not YAML"),
        ("jobs: {}\n---\njobs: {}\n", "is not YAML"),
        ("a: &a [*a]\n", "refers to itself"),
        ("a: &a {b: *a}\n", "refers to itself"),
        ("jobs: " + "[" * 5_000, "nested too deep|is not YAML"),
        ("jobs: " + "[" * 200 + "]" * 200, "nested too deep"),
        ("jobs:\n  a: !!python/object:os.system x\n  a: 1\n", "has 'a' twice"),
    ],
)
def test_a_file_that_is_no_workflow_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        workflow.load(workflows.write(tmp_path, text))


def test_aliases_of_aliases_do_not_take_for_ever(tmp_path: Path) -> None:
    text = "a: &l0 [x]\n" + "".join(f"b{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    started = time.monotonic()
    with pytest.raises(UsageError, match="too long"):
        workflow.load(workflows.write(tmp_path, text))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("data", [b"\xff\xfe", b"jobs: \x00", b"\xef\xbb\xbf"])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, data: bytes) -> None:
    path = workflows.write(tmp_path, "")
    path.write_bytes(data)
    assert [f.rule.code for f in lint.check([path], lambda _: None)] == ["workflow"]


def test_a_folder_and_a_missing_file_are_findings(tmp_path: Path) -> None:
    found = lint.check([tmp_path, tmp_path / "none.yml"], lambda _: None)
    assert [f.rule.code for f in found] == ["workflow", "workflow"]


def test_words_stay_as_they_are_written() -> None:
    node = document.parse("on: push\npython: 3.10\nyes: no\nempty:\nnull: ~\n", path=Path("x"))
    assert {name: found.text for name, found in node.fields.items()} == {
        "on": "push",
        "python": "3.10",
        "yes": "no",
        "empty": "",
        "null": "",
    }
    assert [found.line for found in node.fields.values()] == [1, 2, 3, 4, 5]


def test_a_workflow_and_an_action_that_call_themselves_end(tmp_path: Path) -> None:
    path = workflows.write(tmp_path, "on: push\njobs:\n  a:\n    uses: ./.github/workflows/night.yml\n")
    assert workflow.load(path).jobs["a"].called is None
    action = tmp_path / ".github" / "actions" / "x" / "action.yml"
    action.parent.mkdir(parents=True)
    calls = "\n    - uses: ./.github/actions/x" * 5
    action.write_text(f"runs:\n  using: composite\n  steps:{calls}\n", encoding="utf-8")
    assert len(list(workflow.load(action).steps)) == 5


def test_jobs_that_need_each_other_end(tmp_path: Path) -> None:
    text = "on: push\njobs:\n" + "".join(
        f"  j{n}:\n    needs: [{', '.join(f'j{m}' for m in range(40) if m != n)}, none]\n" for n in range(40)
    )
    found = workflow.load(workflows.write(tmp_path, text))
    assert set(found.ancestors(found.jobs["j0"])) == {f"j{n}" for n in range(1, 40)}


def test_names_with_spaces_and_letters_of_all_kinds(tmp_path: Path) -> None:
    path = workflows.write(tmp_path / "José's дом", workflows.GOOD, name="eine Nacht.yml")
    assert lint.find_files(tmp_path / "José's дом") == (path,)
    assert lint.check([path], lambda _: None) == ()


def test_a_repository_without_workflows_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no workflows"):
        lint.find_files(tmp_path)
