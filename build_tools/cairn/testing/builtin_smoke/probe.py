"""Imports an installed wheel's modules and loads its libraries, in a process of the wheel's own environment.

Run as a script by the tested interpreter, so it imports nothing but the standard library:
`python -I probe.py REQUEST.json ANSWER.json`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import subprocess
import sys
import traceback
from pathlib import Path


def main(request_path: str, answer_path: str) -> None:
    """Import the modules, load the libraries, and write the results to the answer file."""
    message = json.loads(Path(request_path).read_text(encoding="utf-8"))
    # An import that exits after writing an answer of its own finds neither the file's name nor the token.
    Path(request_path).unlink()
    del sys.argv[1:]
    sys.orig_argv.clear()
    request = message["request"]
    answer: dict[str, object] = {"imported": [], "versions": {}, "import_errors": {}}
    for name in request["modules"]:
        _import(name, answer)
    answer["library_errors"] = _load(request["libraries"])
    mapped = _mapped()
    loaded = {Path(path).name for path in mapped}  # after the imports and the libraries above
    answer["program_errors"] = {p: why for p in request["programs"] if (why := _unresolved(p, loaded))}
    answer["mapped"] = mapped
    answer["prefixes"] = [sys.prefix, sys.base_prefix]
    result = {"token": message["token"], "answer": answer}
    Path(answer_path).write_text(json.dumps(result), encoding="utf-8")


def _import(name: str, answer: dict) -> None:  # type: ignore[type-arg]
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - a broken wheel may raise anything
        summary = traceback.format_exception_only(error)[-1].strip()
        answer["import_errors"][name] = f"import {name}: {summary}\n{traceback.format_exc(limit=-3)}"
    else:
        answer["imported"].append(name)
        version = getattr(module, "__version__", None)
        if "." not in name and version is not None:
            answer["versions"][name] = str(version)


def _load(paths: list[str]) -> dict[str, str]:
    """Load libraries, in rounds until no further one loads; return those that fail, and why.

    The loader reuses a loaded library of the same name, wherever its file is. scipy has libraries without a
    run path whose dependencies are found only because a library in the same folder has loaded them before.
    """
    left = paths
    while True:
        errors = {path: why for path in left if (why := _open(path))}
        if len(errors) in (0, len(left)):
            return errors
        left = [*errors]


def _open(path: str) -> str | None:
    """Return why a library cannot be loaded after the imports with all its symbols, or None if it can."""
    try:
        ctypes.CDLL(path)
    except OSError as error:
        return str(error)
    return None


def _unresolved(path: str, loaded: set[str]) -> str | None:
    """Return the libraries that a program does not find, without running it.

    A library that the loader does not find for the program, but that this process has loaded, counts as
    found: PyTorch's wheels hold test programs without a run path, and linked wheels preload ROCm's libraries.
    See LD_TRACE_LOADED_OBJECTS in ld.so(8).
    """
    try:
        completed = subprocess.run(  # noqa: PLW1510 - a failure is part of the answer
            [path], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line.split() for line in completed.stdout.splitlines() if line.endswith("=> not found")]
    missing = sorted({words[0] for words in lines if words[0] not in loaded})
    return f"cannot find {', '.join(missing)}" if missing else None


def _mapped() -> list[str]:
    """Return the files that this process has mapped as executable code."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    # proc(5): address, permissions, offset, device, inode, path.
    fields = (line.split(maxsplit=5) for line in lines)
    return sorted({f[5] for f in fields if len(f) > 5 and "x" in f[1] and f[5].startswith("/")})  # noqa: PLR2004


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
