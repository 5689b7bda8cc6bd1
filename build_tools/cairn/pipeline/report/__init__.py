"""The page that shows what a run did: one self-contained HTML file, straight from the values of its stages.

Takes the request and the result of a run: `page.write` (or `page.render`, for the text alone).
"""
