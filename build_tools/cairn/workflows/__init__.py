"""Checks of GitHub Actions workflows that no linter does: `cairn ci lint`.

`document` reads YAML with its lines, `expressions` GitHub's expressions, `workflow` jobs and steps;
`runs` says which of them run after a failure. `rules` has a module for each subject, `lint` runs them all.
"""
