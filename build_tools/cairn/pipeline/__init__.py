"""A stack's whole way in one go: checkout, build, stage, smoke test, gate, promotion, installation, report.

Takes a `request.TrailRequest`, gives a `request.TrailResult`: `run.run`, and `report.collect` for its page.
The only room that knows both how wheels are made and how they are released.
"""
