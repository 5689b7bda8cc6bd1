"""An index as it is stored: generations that never change, the pointer to the current one, and its pages.

It takes a store and a `snapshot.Change`, and gives pages that pip, uv and people read. Commands read an index
by `reading.read_current`; `commit.attempts` yields attempts at a change, and `Attempt.commit` makes the next
generation, so that a crash anywhere can be finished or undone. Keys are spelt in `keys` alone, pages made in
`render` and written by `write`.
"""
