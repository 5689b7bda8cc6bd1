"""Compiles a kernel with the triton of the tested environment; its targets need not be GPUs of this machine.

Run as a script by the tested interpreter, so it imports nothing but the standard library and triton:
`python -I compile_kernel.py REQUEST.json ANSWER.json`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_KEPT = 4000  # characters of what is said of a failure


def main(request_path: str, answer_path: str) -> None:
    """Compile for each processor, and write each code object in hex, or the error, to the answer file."""
    answer: dict[str, tuple[str | None, str]] = {}
    message = json.loads(Path(request_path).read_text(encoding="utf-8"))
    for processor in message["request"]:
        code, why = None, ""
        with tempfile.TemporaryFile() as messages:
            # LLVM says what it has to say past Python, to the descriptor itself.
            sys.stderr.flush()
            saved = os.dup(2)
            os.dup2(messages.fileno(), 2)
            try:
                code = _compile(processor).hex()
            except BaseException:  # noqa: BLE001 - a broken compiler may raise anything
                why = traceback.format_exc(limit=-3)
            finally:
                sys.stderr.flush()
                os.dup2(saved, 2)
                os.close(saved)
            messages.seek(0)
            answer[processor] = (code, f"{why}{messages.read(_KEPT).decode('utf-8', 'replace')}")
    result = {"token": message["token"], "answer": answer}
    Path(answer_path).write_text(json.dumps(result), encoding="utf-8")


def _compile(processor: str) -> bytes:
    # GCN and CDNA compute in waves of 64, RDNA in waves of 32.
    target = GPUTarget("hip", processor, 64 if processor.startswith("gfx9") else 32)
    signature = {"left": "*fp16", "right": "*fp16", "product": "*fp32", "size": "constexpr"}
    source = ASTSource(fn=triton.jit(_multiply), signature=signature, constexprs={"size": 32})
    code: bytes = triton.compile(source, target=target).asm["hsaco"]
    return code


def _multiply(left, right, product, size: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
    # In triton's own language, which reads this text: a product, for the matrix instructions of the target.
    rows, columns = tl.arange(0, size)[:, None], tl.arange(0, size)[None, :]
    places = rows * size + columns
    tl.store(product + places, tl.dot(tl.load(left + places), tl.load(right + places)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
