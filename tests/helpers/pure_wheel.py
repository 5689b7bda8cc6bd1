"""A build backend that compiles nothing: each wheel has random bytes, and each build leaves a line."""

BACKEND = """
import base64, hashlib, os, pathlib, zipfile

def build_wheel(folder, settings=None, metadata=None):
    with open({builds!r}, "a") as file:
        file.write("{name}\\n")
    print("building {name}")
    info = "{name}-1.0.dist-info"
    members = {{
        "{name}.py": b"X = " + os.urandom(8).hex().encode().join([b"'", b"'\\n"]),
        info + "/METADATA": b"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n",
        info + "/WHEEL": b"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    rows = []
    path = pathlib.Path(folder, "{name}-1.0-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{{name}},sha256={{digest}},{{len(data)}}")
            archive.writestr(name, data)
        archive.writestr(info + "/RECORD", "\\n".join([*rows, info + "/RECORD,,", ""]))
    return path.name
"""


def backend(name: str, builds: str) -> str:
    """The text of a backend that makes the wheel of `name`, and adds a line to the file `builds`."""
    return BACKEND.format(name=name, builds=builds)
