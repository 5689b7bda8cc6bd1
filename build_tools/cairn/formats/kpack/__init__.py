"""kpack: the archive that ROCm's runtime reads device code from when a library no longer has it.

`archive.Archive.open` reads one, `writer.Writer` writes one, `reference` is what stands in the library and
leads there, `msgpack` the strict reader under both.
docs/reference/device-wheels.md describes the files.
"""
