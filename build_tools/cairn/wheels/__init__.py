"""Operations on built wheels; independent of git and of how the wheels were built.

Each takes wheels and returns new wheels or findings; no wheel is changed in place. The lowest layers are
`metadata` (reads and changes METADATA, WHEEL and RECORD), `contents` (inspects the files in a wheel) and
`rewrite` (writes a changed copy). `verify` (may it be published?), `repair`, `split`, `sbom`, `wheelset` with
its `build_statement`, and `fat` build on these.
"""
