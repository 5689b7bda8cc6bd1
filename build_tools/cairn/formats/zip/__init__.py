"""ZIP archives (APPNOTE.TXT), read without trusting a header and written by copying what does not change.

`reader.Archive.open` reads one; `writer.write` makes one of members that are copied as they lie
(`writer.CopiedMember`) and new ones (`writer.New`). What an archive may claim is bounded in `limits`.
"""
