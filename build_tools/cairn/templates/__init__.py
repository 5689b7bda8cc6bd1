"""How every page of HTML for people is made: Jinja2 templates, one layout, one style sheet, one script.

A caller gives values to `html.page`; whatever they hold is shown as text. A page is one file that loads
nothing. The pages of `simple/` alone are not made here (`release.index.render` says why).
"""
