"""A build backend that compiles nothing: each wheel has random bytes, and each build leaves a line."""

from helpers import packing

BACKEND = """
import os

def build_wheel(folder, settings=None, metadata=None):
    with open({builds!r}, "a") as file:
        file.write("{name}\\n")
    print("building {name}")
    return write_wheel(folder, "{name}", "1.0", {{"{name}.py": f"X = {{os.urandom(8).hex()!r}}\\n"}}).name
"""


def backend(name: str, builds: str) -> str:
    """The text of a backend that makes the wheel of `name`, and adds a line to the file `builds`."""
    return packing.backend(BACKEND.format(name=name, builds=builds))
