"""Fixtures of all tests, the order of the tests, and how many examples property tests draw."""

import functools
import gc
import os
import sys
from pathlib import Path

import pytest
import typer.main
from examples import FEWER, MOST
from hypothesis import settings

from afa.elicit.stages import build_recorded_bundle
from afa.model.bundle import load_bundle

ROOT = Path(__file__).parent.parent
# Tests, and workflows that tests run in other folders, use the kernels that `make reproduce` has compiled.
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".snakemake/afa_kernels"))
os.environ["NO_PROXY"] = "127.0.0.1"  # servers of the tests
LONGEST = ("reliability", "report")
"""Folders of tests that take long. These tests start first."""
# Notebooks are read without this package, which takes two seconds to import (afa/paper/report/notebook.py).
sys.modules.setdefault("rfc3987_syntax", None)
gc.disable()  # until all tests are collected: a quarter of that time went into looking for garbage
typer.main.get_command = functools.cache(typer.main.get_command)  # a process builds the commands once; so do the tests
# They hold no doctests, and several have one name.
collect_ignore_glob = ["conftest.py", "*/conftest.py", "*/sitecustomize.py"]


def _mirror() -> Path | None:
    given = os.environ.get("AFA_GEO_MIRROR")
    folder = Path(given) if given else ROOT.parent / "shared" / "geo"
    return folder if (folder / "series").is_dir() else None


@pytest.fixture(scope="session")
def geo_mirror() -> Path:
    """A folder with real series in GEO's layout."""
    folder = _mirror()
    if folder is None:
        pytest.skip("no mirror of real GEO series: set AFA_GEO_MIRROR")
    return folder


@pytest.fixture(scope="session")
def recorded_elicitation() -> Path:
    """The recorded answers that the default bundle is built from."""
    return ROOT / "resources" / "elicitation"


@pytest.fixture(scope="session")
def bundle_tiny():
    """Three entities on five features, small enough to check by hand."""
    return load_bundle(ROOT / "tests" / "data" / "bundle_tiny")


@pytest.fixture(scope="session")
def recorded_bundle(recorded_elicitation, tmp_path_factory):
    """The default bundle: 25 phenotypes on 253 genes, built from the recorded answers."""
    folder = tmp_path_factory.mktemp("bundle") / "recorded"
    build_recorded_bundle(recorded_elicitation, folder, min_agree=2)
    return load_bundle(folder)


@pytest.fixture(scope="module")
def browser():
    """A headless browser for the tests of one file: a page that was left can still ask its server for news."""
    import browsers

    driver = browsers.start()
    yield driver
    driver.quit()


def pytest_configure(config):
    """Set the number of examples of property tests. Pytest calls this function before it imports the tests."""
    drawn = MOST // FEWER if config.option.markexpr == "not slow" else MOST
    settings.register_profile("afa", derandomize=bool(os.environ.get("CI")), deadline=None, max_examples=drawn)
    settings.load_profile("afa")


def pytest_sessionstart(session):
    """Compile the kernels before the workers of a parallel run start, so that no worker compiles its own.

    Two processes would finish sooner, but they would compile a third of the kernels twice.
    """
    if getattr(session.config.option, "numprocesses", None):
        from afa.engine.warm import compile_all  # a run of a few tests compiles only what they need

        compile_all(processes=1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put the tests in order."""
    items.sort(key=lambda item: not set(LONGEST) & set(item.path.relative_to(ROOT).parts))


def pytest_collection_finish():
    """Pass over what was imported and collected, whenever garbage is looked for from now on."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter):
    """Say how many tests had no real data to run on."""
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if "mirror" in r.keywords]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests need a mirror of real GEO series and were skipped")
