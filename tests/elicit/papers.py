"""A few articles and preprints, and the service that is asked for them."""

from __future__ import annotations

from elicit.literature_server import FakeClock, Site, article, preprint

from afa.elicit.search import EuropePmc, Query
from afa.io.web import RequestLimits

QUERY = Query((("MUC2",), ("Crohn's disease", "colitis")))
STRUCTURED = article(
    "99000001",
    "Loss of <i>MUC2</i> in colitis &amp; fistula",
    "<h4>Objective</h4>To study <i>MUC2</i>. <h4>Results</h4>It fell (p<sub>adj</sub>&lt;0.01; r<sup>2</sup>=0.4).",
    doi="10.1136/GUTJNL-99-1",
)
PLAIN = article("99000002", "MUC2 in colitis", "Die Schleimschicht fehlt; IL-1β ≥ 2× und Behçet.")
WITHOUT = article("99000003", "MUC2 and colitis, a letter")
PREPRINT = preprint(
    "PPR900001",
    "MUC2 single cells of <i>colitis</i>",
    "<h4>Background</h4>MUC2 is &lt;made&gt; in goblet cells. <h4>Results:</h4><p>It fell 2&#215;.</p>",
    doi="10.1101/2021.03.04.99",
)


def europepmc(site: Site, clock: FakeClock | None = None, **bounds: float) -> EuropePmc:
    return EuropePmc(site.url, bounds=RequestLimits(**bounds), clock=clock or FakeClock())
