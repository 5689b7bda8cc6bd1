"""Where an index and its sets live: objects under keys, in a folder or in memory.

It takes a URL or a path (`folder.open_store`) and gives a `protocol.Store`, whose few operations a bucket has
too. All that changes a shared object does it by `read` and then `write_if` with the etag that was read.
"""
