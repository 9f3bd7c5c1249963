"""docs/errata.md, made from resources/paper/errata.yaml: `python -m afa.checks.errata.page`."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from afa.checks.errata.rows import Errata, Item, load_errata

KINDS = {"erratum": "Erratum", "remark": "Remark", "withdrawn": "Withdrawn"}
TOP = """# Errata of the paper

Where arXiv 2606.18933 errs or contradicts itself (*Erratum*), and where it is loose, open, or says itself what we
note (*Remark*). Each item says what the paper concedes. Every run of the workflow makes the checks anew: they are in
`results/<run>/tables/errata` and in the report's notebook *errata*, with the paper's claim beside each. The numbers
here are of the recorded bundle; where there are three, they are of the simulated demo cohort, GSE117993 and
GSE109142, in this order. Decisions that follow are in [decisions.md](decisions.md). This page is made from
`resources/paper/errata.yaml`.
"""
CONTRADICTIONS = """## Where the paper contradicts itself

Two printed statements that cannot both hold, beside those above. No number of ours is needed to see it. The comparison
judges each of the two places by itself, and its notes name the other. Ids are those of `resources/paper/claims.csv`.

| claims | one place | the other | what follows |
|---|---|---|---|
"""


def errata_page(errata: Errata) -> str:
    """The page as Markdown."""
    parts = [TOP, *(_item(number, item) for number, item in errata.items.items())]
    rows = (
        f"| {pair['claims']} | {pair['one']} | {pair['other']} | {pair['follows']} |\n"
        for pair in errata.contradictions
    )
    return "\n".join([*parts, CONTRADICTIONS + "".join(rows)])


def _item(number: int, item: Item) -> str:
    """One paragraph a point, the first with the number, which the report links to."""
    places = ", ".join(f"`{place}`" for place in item.places.split(", "))
    paragraphs = [f"**E{number}, {item.title}.** {places}."]
    paragraphs += [f"*{KINDS[point.kind]}.* {point.text}" for point in item.points]
    if item.concedes:
        paragraphs.append(f"*The paper's concession.* {item.concedes}")
    if item.found:
        paragraphs.append(f"*Checked.* {item.found}")
    return fill(" ".join(paragraphs), 118, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    Path("docs/errata.md").write_text(errata_page(load_errata(Path("resources/paper/errata.yaml"))), encoding="utf-8")
