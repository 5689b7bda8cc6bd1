"""Readers and writers of file formats: ZIP, ELF, PE, kpack, and the device code embedded in them.

Takes bytes (a file, a member of an archive: `view.View`), gives small frozen values, and refuses what is
malformed with a `WheelError`; `view.apply_patches` writes into a file. Knows nothing of wheels:
`zip.reader.Archive.open`, `elf.read`, `pe.read`.
"""
