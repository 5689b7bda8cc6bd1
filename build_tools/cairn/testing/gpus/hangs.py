"""Find the GPUs that hang, and hide them, so that the tests run on the others.

A GPU that hangs keeps whatever touches it, often in a system call that no signal ends (the state D of ps(1)).
So each one is asked alone, by programs that nobody waits for once the time is over. A GPU that answers with
an error does not hang: tests say what is wrong with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from cairn import process
from cairn.errors import PrerequisiteError
from cairn.output import console
from cairn.testing.gpus import kernel, sources
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.gpus.visible import GPU_VARIABLES, OF_HIP

LIMIT = 120.0
"""Seconds that a GPU may take: a torch from a slow disk, and its first kernel."""
_RUNTIME = GPU_VARIABLES[0]
_COMPUTE = """\
import importlib.util
if importlib.util.find_spec("torch") is not None:
    import torch
    if getattr(torch.version, "hip", None) and torch.cuda.is_available():
        torch.ones(8, device="cuda").add_(1).sum().item()
"""
# Starts every program for every GPU at once, prints the GPUs whose programs have not ended in time, and is
# gone without having waited for these.
_ASK = f"""\
import json, os, subprocess, sys, time
limit, words, commands = map(json.loads, sys.argv[1:])
end, nothing = time.monotonic() + limit, subprocess.DEVNULL
running = [
    (word, subprocess.Popen(command, env={{**os.environ, {_RUNTIME!r}: word}}, stdin=nothing, stdout=nothing, stderr=nothing))
    for word in words for command in commands
]
while any(one.poll() is None for _, one in running) and time.monotonic() < end:
    time.sleep(0.05)
print(json.dumps(sorted({{word for word, one in running if one.poll() is None}})), flush=True)
for _, one in running:
    one.poll() is None and one.kill()
os._exit(0)
"""  # noqa: E501 - a program, not ours to read in columns


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that are left for tests.

    Attributes:
        variables: in which those that hang are hidden.
        hanging: these.
        is_empty: none is left.
    """

    variables: Mapping[str, str]
    hanging: tuple[Gpu, ...] = ()
    is_empty: bool = False

    def require(self) -> Answering:
        """Return itself.

        Raises:
            PrerequisiteError: no GPU is left.
        """
        if self.is_empty:
            raise PrerequisiteError(
                f"no GPU of this machine answers: {', '.join(map(name_of, self.hanging))}",
                tip="reset it, or restart the machine; dmesg may say why",
            )
        return self


def hide(
    variables: Mapping[str, str],
    *,
    python: Path | None,
    log: Path,
    nodes: Path = kernel.KFD_NODES,
    sysfs: Path = kernel.SYSFS,
    hanging_nodes: Collection[int] = (),
) -> Answering:
    """Hide the GPUs that hang.

    Args:
        variables: the whole environment of the tests.
        python: the interpreter of the tested environment, whose torch computes something; None to ask none.
        log: receives the command lines.
        nodes: the folder in which the kernel describes the GPUs; without one nothing is asked.
        sysfs: the root of sysfs.
        hanging_nodes: the kernel's nodes of GPUs that hang, and are not asked.
    """
    machine = kernel.read(nodes, sysfs)
    words = _words(variables, len(machine))
    # Of what is named by a UUID the kernel may know the node or not.
    gpus = {
        word: machine[int(word)]
        if word.isdecimal()
        else next((gpu for gpu in machine if gpu.uuid.lower() == word.lower()), Gpu(target="", uuid=word))
        for word in words
    }
    hanging = [word for word in words if gpus[word].node in hanging_nodes]
    to_ask = [word for word in words if word not in hanging]
    hanging += _ask(to_ask, variables, python, log) if to_ask else []
    if not hanging:
        return Answering(variables=variables)
    left = [word for word in words if word not in hanging]
    out = tuple(gpus[word] for word in hanging)
    console.current().warn(f"left out, since it hangs: {', '.join(map(name_of, out))}")
    shown = {name: value for name, value in variables.items() if name not in OF_HIP}
    return Answering(variables=shown | {_RUNTIME: ",".join(left) or "-1"}, hanging=out, is_empty=not left)


def name_of(gpu: Gpu) -> str:
    """Name a GPU so that somebody finds it: `gfx942 at 0000:0c:00.0`."""
    place = gpu.pci or gpu.uuid or (f"node {gpu.node}" if gpu.node is not None else "")
    return " at ".join(filter(None, (gpu.target, place)))


def _words(variables: Mapping[str, str], count: int) -> list[str]:
    """Return what names each GPU that the variables leave visible to the runtime."""
    given = variables.get(_RUNTIME)
    words = [str(number) for number in range(count)] if given is None else given.split(",")
    words = [word.strip() for word in words]
    valid = [word for word in words if word and (not word.isdecimal() or int(word) < count)]
    chosen = next((variables[name].split(",") for name in OF_HIP if name in variables), None)
    if chosen is not None and all(word.strip().isdecimal() for word in chosen):
        valid = [valid[int(word)] for word in chosen if int(word) < len(valid)]
    return [word for word in dict.fromkeys(valid) if count and word != "-1"]


def _ask(words: list[str], variables: Mapping[str, str], python: Path | None, log: Path) -> list[str]:
    commands: list[list[str]] = []
    if program := sources.program("rocminfo", variables):
        commands.append([program])
    if python is not None:
        commands.append([str(python), "-I", "-c", _COMPUTE])
    if not commands:
        return []
    shown = {name: value for name, value in variables.items() if name not in OF_HIP}
    completed = process.run(
        [sys.executable, "-I", "-c", _ASK, json.dumps(LIMIT), json.dumps(words), json.dumps(commands)],
        env=shown,
        log=log,
        timeout=LIMIT + 60,
        separate_stderr=True,
    )
    hanging: list[str] = json.loads(completed.output)
    return hanging
