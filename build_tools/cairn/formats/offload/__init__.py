"""Device code in host binaries: clang's offload bundles, plain and compressed, and code objects.

`bundle` reads the headers of plain (`__CLANG_OFFLOAD_BUNDLE__`) and compressed (`CCOB`) bundles,
`compression` the zlib and zstd streams in the latter. `code_object.read` lists what a library has for which
target; `strip.cut` takes code out and `restore.join` puts it back byte for byte, through the file that
`container` describes.
"""
