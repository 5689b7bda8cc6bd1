"""Bringing files into a channel that the gate does not guard, such as staging.

It takes wheels and sdists and gives a channel that offers them: `files.publish` for single files,
`wheel_set.stage_set` for a set (both put bytes and `.metadata` into the store by `files`),
`mirror.mirror` for the dependencies that others made. `distribution.read` is what an index needs to know of a
file; `resolve.closure` is what a set needs of a channel.
"""
