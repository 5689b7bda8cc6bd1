"""Workflows and actions: their jobs and steps, and what the local actions that they use do."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cairn.errors import UsageError
from cairn.workflows import document, expressions
from cairn.workflows import shell as shells
from cairn.workflows.document import Node
from cairn.workflows.expressions import Expression

HERE = ("./", "$/")
"""How `uses` begins for what is in the same repository."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a job or of a composite action.

    Attributes:
        node: what the file has of it.
        file: the file.
        inner: the steps of the local action that it uses.
        shell: what runs its `run`.
    """

    node: Node
    file: Path
    inner: tuple[Step, ...] = ()
    shell: str = "bash"

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.line

    @property
    def id(self) -> str:
        """Its id; empty where it has none."""
        return self.node.text_of("id")

    @property
    def uses(self) -> str:
        """The action that it uses; empty where it runs commands."""
        return self.node.text_of("uses")

    @property
    def name(self) -> str:
        """What to call it in a message."""
        first_line = self.node.text_of("run").partition("\n")[0]
        return self.node.text_of("name") or self.id or self.uses or first_line or f"at line {self.line}"

    @property
    def condition(self) -> Expression | None:
        """Its `if`; None where it has none, or none that can be read."""
        return _condition(self.node)

    @property
    def continues(self) -> bool:
        """Whether it may count as passed when it fails."""
        return self.node.text_of("continue-on-error") not in ("", "false")

    def with_inner(self) -> Iterator[Step]:
        """It, and the steps of the local actions below it."""
        yield self
        for step in self.inner:
            yield from step.with_inner()

    def commands(self) -> Iterator[shells.Command]:
        """The commands of its `run`."""
        return shells.commands(self.node.text_of("run"), program=self.shell)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job; `steps` are empty where it `uses` a reusable workflow."""

    id: str
    node: Node
    file: Path
    steps: tuple[Step, ...]
    called: Workflow | None = None

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.node.line

    @property
    def needs(self) -> tuple[str, ...]:
        """The jobs that it needs."""
        node = self.node.get("needs")
        return node.words() if node is not None else ()

    @property
    def condition(self) -> Expression | None:
        """Its `if`; None where it has none, or none that can be read."""
        return _condition(self.node)

    @property
    def continues(self) -> bool:
        """Whether it may count as passed when it fails."""
        return self.node.text_of("continue-on-error") not in ("", "false")

    def all_steps(self) -> Iterator[Step]:
        """Its steps, and those of the local actions and workflows that it uses."""
        for step in self.steps:
            yield from step.with_inner()
        if self.called is not None:
            for job in self.called.jobs.values():
                yield from job.all_steps()


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A workflow file; a composite action's file is one too, with `steps` and no jobs.

    Attributes:
        path: the file.
        node: all of it.
        lines: its text, for the comments in it.
        jobs: by id.
        steps: of a composite action.
    """

    path: Path
    node: Node
    lines: tuple[str, ...]
    jobs: dict[str, Job] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def events(self) -> tuple[str, ...]:
        """What starts it."""
        node = self.node.get("on")
        return node.words() if node is not None else ()

    def ancestors(self, job: Job) -> tuple[str, ...]:
        """The jobs that a job needs, directly or through others, each once and after those it needs itself.

        A job that needs itself, or one that is not there, ends the walk: actionlint names such.
        """
        found: dict[str, None] = {}

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in found or name in path or name not in self.jobs:
                return
            for need in self.jobs[name].needs:
                visit(need, (*path, name))
            found.setdefault(name)

        for need in job.needs:
            visit(need, (job.id,))
        return tuple(found)


def load(path: Path) -> Workflow:
    """Read a workflow, or the `action.yml` of an action.

    Raises:
        UsageError: it cannot be read, or is neither.
        PrerequisiteError: PyYAML is not installed.
    """
    return _load(path, above=())


def _load(path: Path, *, above: tuple[Path, ...]) -> Workflow:
    text, node = _read(path.resolve())
    if node.get("jobs") is None and node.get("runs") is None:
        raise UsageError(f"{path} is neither a workflow (`jobs`) nor an action (`runs`)")
    jobs = {
        name: _job(name, found, path, node, above=(*above, path.absolute()))
        for name, found in (node.get("jobs") or Node(line=1)).fields.items()
    }
    steps = _steps(node.get("runs", "steps"), path, "bash", above=(*above, path.absolute()))
    return Workflow(path=path, node=node, lines=tuple(text.splitlines()), jobs=jobs, steps=steps)


@functools.lru_cache(maxsize=64)
def _read_at(path: Path, _mtime: int) -> tuple[str, Node]:
    text = path.read_text(encoding="utf-8")
    return text, document.parse(text, path=path)


def _read(path: Path) -> tuple[str, Node]:
    try:
        return _read_at(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}") from error


def _job(name: str, node: Node, path: Path, workflow: Node, *, above: tuple[Path, ...]) -> Job:
    called = None
    uses = node.text_of("uses")
    if uses.startswith(HERE):
        target = _root_of(path) / uses[2:]
        # One that calls itself, which GitHub refuses, is followed once.
        called = _load(target, above=above) if target.is_file() and target not in above else None
    by_default = node.text_of("defaults", "run", "shell") or workflow.text_of("defaults", "run", "shell")
    windows = any("windows" in word for word in (node.get("runs-on") or Node(line=1)).words())
    program = by_default or ("pwsh" if windows else "bash")
    return Job(
        id=name,
        node=node,
        file=path,
        steps=_steps(node.get("steps"), path, program, above=above),
        called=called,
    )


def _steps(node: Node | None, path: Path, program: str, *, above: tuple[Path, ...]) -> tuple[Step, ...]:
    return tuple(
        Step(
            node=item,
            file=path,
            inner=_inner(item.text_of("uses"), path, above=above),
            shell=item.text_of("shell") or program,
        )
        for item in (node.items if node is not None else ())
    )


def _inner(uses: str, path: Path, *, above: tuple[Path, ...]) -> tuple[Step, ...]:
    """The steps of a local action."""
    if not uses.startswith(HERE):
        return ()
    for name in ("action.yml", "action.yaml"):
        file = _root_of(path) / uses[2:] / name
        if file.is_file() and file not in above:
            _, node = _read(file.resolve())
            return _steps(node.get("runs", "steps"), file, "bash", above=(*above, file))
    return ()


def is_there(uses: str, path: Path) -> bool:
    """Whether an action or a workflow of the same repository, which a file uses, is there."""
    place = _root_of(path) / uses[2:]
    return place.is_file() or any((place / name).is_file() for name in ("action.yml", "action.yaml"))


def _root_of(path: Path) -> Path:
    """The folder that `./` in `uses` stands for: the one with `.github`."""
    path = path.absolute()
    above = [parent.parent for parent in path.parents if parent.name == ".github"]
    return above[0] if above else path.parent


def _condition(node: Node) -> Expression | None:
    try:
        text = node.text_of("if")
        return expressions.parse_condition(text) if text else None
    except UsageError:  # the rule on expressions names it
        return None
