"""PURE. The report: one self-contained HTML file made of a run's tables and manifest."""

from tasks.report.page import build_report

__all__ = ["build_report"]
