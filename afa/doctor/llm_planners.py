"""The language models that plan by themselves: off, or with a record, or asked live; what they would need."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from afa.config import Baselines, RunConfig, language_models
from afa.doctor.finding import Finding, fault, of_error, ok, warning
from afa.elicit.endpoint import BASE_URL, KEY, MODEL
from afa.elicit.pubmed import EMAIL
from afa.elicit.record import Record
from afa.elicit.study import load_study
from afa.errors import AfaError

CHECK = "baselines"


def check_baselines(run: RunConfig, entities: Sequence[str]) -> list[Finding]:
    """Whether the settings of `baselines` can be carried out; `entities` are the bundle's, empty where not known."""
    settings = language_models(run)
    if settings.folder is None:
        return [ok(CHECK, "off: not live, and no record of answers to these settings")]
    findings = list(_faults(settings, entities))
    try:
        load_study(settings.study)
        answers = sum(1 for _ in Record(settings.folder).entries()) if settings.folder.exists() else 0
    except AfaError as error:
        return findings + of_error(CHECK, error)
    if not answers and not settings.live:
        findings.append(fault(CHECK, f"{settings.folder}: found no answer", "name a folder of answers, or set live"))
    if settings.live:
        findings += _needs(settings)
    how = "asked for what it lacks" if settings.live else "replayed, and nothing is asked"
    return findings or [ok(CHECK, f"{settings.folder}: {answers} answers, {how}")]


def _faults(settings: Baselines, entities: Sequence[str]) -> Iterator[Finding]:
    unknown = [name for name in settings.entities if entities and name not in entities]
    if unknown:
        step = "name entities of the bundle, or leave the list empty for all"
        yield fault(CHECK, f"key baselines.entities: found {', '.join(unknown)}, which the bundle has not", step)


def _needs(settings: Baselines) -> Iterator[Finding]:
    """What a live run cannot do without."""
    names = [BASE_URL, KEY] + ([] if settings.model else [MODEL]) + ([EMAIL] if "rag_llm" in settings.methods else [])
    for name in names:
        if not os.environ.get(name):
            yield warning(CHECK, f"live: {name} is not set, and the stage that asks will stop", "export it")
    if settings.calls is None and settings.tokens is None and settings.money is None:
        step = "set baselines.calls, tokens or money"
        yield warning(CHECK, "live: no cap on calls, tokens or money is set, and the stage that asks will stop", step)
