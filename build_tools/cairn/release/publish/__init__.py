"""Bring files into an index that the gate does not guard, such as staging.

It takes wheels and sdists and gives an index that offers them: `files.publish` for single files,
`stage.stage_set` for a set, which it seals with all that it needs (`resolve`) and gives its `locks`,
`mirror` for the dependencies that others made, from an index or from `mirror_lock`, the file that pins them
(`mirror.sync`). `distribution.read` is what an index needs to know of a file;
`rules` are what must hold of it.
"""
