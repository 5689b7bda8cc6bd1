"""Where an index and its sets live: objects under keys, in memory, in a folder or in a bucket.

It takes a URL or a path (`opening.open_store`) and gives a `protocol.Store`. All that changes a shared object
does it by `read` and then `write_if` with the etag that was read. `transfer` moves many files at once.
"""
