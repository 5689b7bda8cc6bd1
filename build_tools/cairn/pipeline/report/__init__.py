"""The page that tells what a run did: one self-contained HTML file."""

from cairn.pipeline.report.model import Commit, Demand, Gate, Link, Report, Skip, Stage, TestRun, Wheel
from cairn.pipeline.report.page import render, write_report

__all__ = [
    "Commit",
    "Demand",
    "Gate",
    "Link",
    "Report",
    "Skip",
    "Stage",
    "TestRun",
    "Wheel",
    "render",
    "write_report",
]
