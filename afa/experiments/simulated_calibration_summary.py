"""The numbers of simulation-based calibration, with their intervals over draws."""

from __future__ import annotations

import numpy as np
import pandas as pd

from afa.experiments.accuracy import Resampled
from afa.experiments.drawn import generator_of
from afa.experiments.rank_uniformity import PosteriorSums
from afa.experiments.simulated_calibration import EXPERIMENT, LABELS_DRAWN, WHOLE
from afa.experiments.summary import summary_rows


def summarise_simulated_calibration(
    draws: pd.DataFrame, left_out: pd.DataFrame, *, resamples: int, confidence: float
) -> pd.DataFrame:
    """Summary rows `calibration` on drawn patients, all entities together: `ece`, `brier` and `gap` by inference and t.

    `reference` is the inference and t the number of observed support features, with the stratum `simulated`; after the
    whole support, which differs from entity to entity, t is empty and the stratum `simulated_whole`. `rate` in the
    stratum `simulated_uniformity_p` (`simulated_whole_uniformity_p`) is the p-value of uniform ranks. Intervals: a
    percentile bootstrap over the numbers of the draws, each standing for one patient of every entity. A resampled
    `gap` is larger than the gap itself, so that it has no interval; beside it, as reference `uniform`, is what truly
    uniform ranks stay below with probability `confidence`.
    """
    n_units = 1 if draws.empty else int(draws["draw"].max()) + 1
    resampled = Resampled.of(n_units, resamples=resamples, confidence=confidence, purpose=EXPERIMENT)
    rows = []
    for (inference, step), part in draws.groupby(["inference", "step"], sort=False):
        sums = PosteriorSums.of(part, part["draw"].to_numpy(np.int64), n_units)
        stratum = "simulated_whole" if step == WHOLE else "simulated"
        t = np.nan if step == WHOLE else int(str(step))
        ece, brier = (resampled.statistic(of, len(part)) for of in (sums.calibration_error, sums.brier))
        n, gap = len(part), sums.gap(np.ones((1, n_units)))
        found = [
            ece.assign(metric="ece", stratum=stratum),
            brier.assign(metric="brier", stratum=stratum),
            pd.DataFrame({"metric": "gap", "stratum": stratum, "value": gap, "n": n}),
            pd.DataFrame(
                {"metric": "rate", "stratum": f"{stratum}_uniformity_p", "value": [sums.uniformity()[2]], "n": n}
            ),
        ]
        rows.append(pd.concat(found, ignore_index=True).assign(reference=str(inference), t=t))
        if inference == "exact":
            limit = [uniform_gap(n, resamples=resamples, confidence=confidence)]
            table = pd.DataFrame({"metric": "gap", "stratum": stratum, "value": limit, "n": n})
            rows.append(table.assign(reference="uniform", t=t))
    count = pd.DataFrame({"metric": "count", "stratum": "simulated_left_out", "value": [float(len(left_out))]})
    whole = pd.concat([*rows, count], ignore_index=True)
    return summary_rows("calibration", whole.assign(method="two_elbo", target="drawn"))


def uniform_gap(n: int, *, resamples: int, confidence: float) -> float:
    """The `gap` that n uniform ranks stay below with this probability, from simulated ranks."""
    n_ranks = LABELS_DRAWN + 1
    counts = generator_of(EXPERIMENT, "uniform", n).multinomial(n, np.full(n_ranks, 1 / n_ranks), size=resamples)
    gaps = np.abs(np.cumsum(counts, axis=1) / n - np.arange(1, n_ranks + 1) / n_ranks).max(axis=1)
    return float(np.quantile(gaps, confidence))
