"""A few articles and preprints of a small site, and the two services that are asked for them."""

from __future__ import annotations

from elicit.literature_server import Article, FakeClock, Site, preprint

from afa.elicit.search import EuropePmc, PubMed, Query
from afa.io.web import Bounds

SECRET = "0123456789abcdef-secret"
QUERY = Query((("MUC2",), ("Crohn's disease", "colitis")))
STRUCTURED = Article(
    "99000001",
    "Loss of <i>MUC2</i> in colitis &amp; fistula",
    [
        ("OBJECTIVE", "To study <i>MUC2</i>."),
        ("RESULTS", "It fell (p<sub>adj</sub>&lt;0.01; r<sup>2</sup>=0.4)."),
        ("UNLABELLED", "As others saw."),
    ],
    doi="10.1136/GUTJNL-99-1",
)
PLAIN = Article("99000002", "MUC2 in colitis", [("", "Die Schleimschicht fehlt; IL-1β ≥ 2× und Behçet.")])
WITHOUT = Article("99000003", "MUC2 and colitis, a letter")
PREPRINT = preprint(
    "PPR900001",
    "MUC2 single cells of <i>colitis</i>",
    "<h4>Background</h4>MUC2 is &lt;made&gt; in goblet cells. <h4>Results:</h4><p>It fell 2&#215;.</p>",
    doi="10.1101/2021.03.04.99",
)


def pubmed(site: Site, clock: FakeClock | None = None, key: str = "", **bounds: float) -> PubMed:
    return PubMed("someone@example.org", key, site.pubmed, bounds=Bounds(**bounds), clock=clock or FakeClock())


def europepmc(site: Site, clock: FakeClock | None = None, **bounds: float) -> EuropePmc:
    return EuropePmc(site.europepmc, bounds=Bounds(**bounds), clock=clock or FakeClock())
