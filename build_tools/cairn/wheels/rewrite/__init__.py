"""One wheel in, a changed one out: names, versions, requirements, files, ELF headers; the rest is copied.

`wheel.apply` makes the wheel that a `wheel.Edit` describes; `set_version.set_versions` gives wheels that
belong together new versions at once.
"""
