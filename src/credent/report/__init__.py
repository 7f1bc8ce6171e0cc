"""Reports: plots that draw numbers they are given, and self-contained HTML pages for a run or a comparison."""

from credent.report import plots
from credent.report.measures import MEASURES, Measure
from credent.report.numbers import Estimate
from credent.report.page import Page
from credent.report.pages import comparison_page, run_page
from credent.report.parts import Card, Column, Figure, Note, Section, Table

__all__ = [
    "MEASURES",
    "Card",
    "Column",
    "Estimate",
    "Figure",
    "Measure",
    "Note",
    "Page",
    "Section",
    "Table",
    "comparison_page",
    "plots",
    "run_page",
]
