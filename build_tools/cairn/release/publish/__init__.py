"""Bringing files into a channel that is not a release.

`files.publish` for single files, `wheel_set.stage_set` for a set, `mirror.mirror` for what others made.
`distribution.read` is what an index needs to know of a file; `resolve.closure` what a set needs of a channel.
"""
