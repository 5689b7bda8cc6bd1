"""One wheel in, another out: names, versions, requirements, ELF headers; all else is copied as it lies.

`wheel.apply` makes the wheel that a `wheel.Edit` describes; `set_version.set_versions` gives wheels that
belong together new versions at once.
"""
