"""What every test that speaks to an endpoint starts from: no other endpoint's keys."""

from collections.abc import Iterator

import pytest
from elicit.literature_server import Site, serve
from elicit.papers import PLAIN, PREPRINT, STRUCTURED, WITHOUT


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request) -> bool:
    """Both ways in which a reply may be carried."""
    return request.param


@pytest.fixture
def site() -> Iterator[Site]:
    """Europe PMC with four records."""
    with serve(STRUCTURED, PLAIN, WITHOUT, PREPRINT) as served:
        yield served
