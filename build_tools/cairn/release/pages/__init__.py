"""The pages of an index besides its simple pages: landing page, status page and targets.json.

It takes `view.IndexView` values, which hold what the pages of one index need, and gives bytes: the same
values always give the same bytes. It reads and writes nothing. The calls one needs: `landing.page`,
`status.page` and `targets_file.make`; `targets_file.choose` picks what a machine installs.
"""
