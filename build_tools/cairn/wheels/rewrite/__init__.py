"""Writing changed copies of wheels: names, versions, requirements, files, ELF headers; the rest is copied.

`wheel.edit_wheel` writes the wheel that a `wheel.Edit` describes; `set_version.set_versions` gives new
versions to wheels that belong together.
"""
