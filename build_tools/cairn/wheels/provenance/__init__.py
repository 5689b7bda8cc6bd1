"""Who built the wheels of a set of what, as the builder says it and as each wheel's bill of materials does.

`build_statement` is the builder's word (`builder.json` beside `set.json`) and what it is held against;
`manifest_sources` the commits of a manifest; `builder` who runs Cairn.
"""
