"""Device code in host binaries: clang's offload bundles, plain and compressed, and code objects.

`bundle` reads the headers of plain (`__CLANG_OFFLOAD_BUNDLE__`) and compressed (`CCOB`) bundles,
`compression` the zlib and zstd streams in the latter. `code_object.of_view` lists what a library has for
which target. `wrappers` are what a runtime finds them by. `detach` takes the code out of a library, for kpack
archives to hold; `record` unpacks it, and says what else a bundle had; `restore.join` puts it back.
"""

SPLIT_RECORD = "cairn-split.json"
"""The file of a host wheel's dist-info folder that has the record of its split (`record`)."""
