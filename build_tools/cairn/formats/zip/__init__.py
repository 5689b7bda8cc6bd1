"""ZIP archives (APPNOTE.TXT), read without trusting a header and written by copying what does not change.

`reader.Archive.open` reads one; `writer.write` makes one of members that are copied as they lie
(`writer.CopiedMember`) and new ones (`writer.New`). What an archive may claim is bounded in `limits`.

The standard library's zipfile compares nothing but names between local headers and the directory, cannot copy
a member as it lies, and takes 2.4 times the CPU to unpack (1.28 s for the libtorch_cpu.so of torch 2.13.0,
0.53 s here with isal).
"""
