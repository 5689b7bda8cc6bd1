"""Stores for indexes and sets: objects under keys, in memory, in a folder or in a bucket.

`opening.open_store` takes a URL or a path and returns a `protocol.Store`. Code that changes a shared object
does so by `read` and then `write_if` with the etag that was read. `transfer` moves many files at once.
"""
