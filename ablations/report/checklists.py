"""Reproducibility checklists, and the subjects that answer their items."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a checklist in our words, with its number or section.

    ``subjects`` of the records answer it; none if only the authors can.
    """

    number: str
    asks: str
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checklist:
    """A checklist, with the address of its official wording."""

    title: str
    source: str
    items: tuple[Item, ...]


CHECKLISTS = (
    Checklist(
        "Responsible NLP Research checklist (ACL Rolling Review)",
        "https://aclrollingreview.org/responsibleNLPresearch/",
        (
            Item("A1", "limitations"),
            Item("A2", "potential risks"),
            Item("B1", "citations of the creators of artifacts"),
            Item("B2", "licence and terms of use of artifacts", ("licence",)),
            Item("B3", "use as intended"),
            Item("B4", "personal data and offensive content"),
            Item("B5", "documentation of artifacts: domains, languages, groups", ("languages",)),
            Item("B6", "statistics of the data: examples and splits", ("splits",)),
            Item(
                "C1",
                "parameters, total compute and infrastructure",
                ("parameters", "compute", "infrastructure"),
            ),
            Item("C2", "experimental setup, search and best values", ("setup", "search", "best")),
            Item(
                "C3",
                "descriptive statistics: means, maxima or single runs",
                ("runs", "scores"),
            ),
            Item("C4", "packages used, with versions and settings", ("packages", "measures")),
            Item("D1 to D5", "human annotators and participants"),
            Item("E1", "AI assistants"),
        ),
    ),
    Checklist(
        "Machine Learning Reproducibility Checklist, version 2.0 (Pineau et al. 2021)",
        "https://www.cs.mcgill.ca/~jpineau/ReproducibilityChecklist.pdf",
        (
            Item("models", "description of model and algorithm", ("setup",)),
            Item("models", "assumptions"),
            Item("models", "complexity: time, space, sample size", ("parameters", "compute")),
            Item("theory", "claims and their proofs"),
            Item("datasets", "statistics, such as the number of examples", ("splits",)),
            Item("datasets", "splits", ("splits",)),
            Item("datasets", "excluded data and preprocessing", ("excluded",)),
            Item("datasets", "link to the data", ("sources",)),
            Item("datasets", "collection of new data"),
            Item("code", "dependencies", ("packages",)),
            Item("code", "code for training and evaluation", ("code",)),
            Item("code", "trained models"),
            Item("code", "README with results and the commands for them", ("code",)),
            Item(
                "results",
                "range of hyperparameters, selection of the best, and all values",
                ("search", "best", "setup"),
            ),
            Item("results", "exact number of training and evaluation runs", ("runs",)),
            Item("results", "definition of the measures", ("measures",)),
            Item("results", "central tendency and variation", ("scores",)),
            Item("results", "average run time", ("time",)),
            Item("results", "infrastructure", ("infrastructure",)),
        ),
    ),
)
