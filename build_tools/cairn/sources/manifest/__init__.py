"""Every input of a build, frozen.

`manifest.create` freezes, `restore.reproduce` makes the checkouts again, `changelog.between` compares two.
"""
