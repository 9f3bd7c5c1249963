"""Check that the contract of reruns, `reruns.yaml`, covers every setting and every module."""

from __future__ import annotations

from code_reach import graph
from rerun_contract import FILE, keys_of, load_contract
from rerun_lab import ROOT

from afa.paper.config import RunConfig

CONTRACT = load_contract()


def test_every_setting_has_an_entry_and_no_entry_is_of_a_setting_that_there_is_not() -> None:
    there, listed = set(keys_of(RunConfig)), set(CONTRACT.settings)
    advice = "add under `settings:` a line `KEY: { to: ANOTHER VALUE, first: [RULES THAT READ IT] }`"
    assert not there - listed, f"settings without an entry in {FILE}: {sorted(there - listed)}; {advice}"
    assert not listed - there, f"entries of {FILE} for settings that there are not: {sorted(listed - there)}"


def test_every_module_is_in_the_graph_that_the_expectation_comes_from() -> None:
    files = (ROOT / "afa").rglob("*.py")
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files}
    unseen = sorted(names - graph().modules)
    assert not unseen, f"modules that grimp does not see: {unseen}; is there a folder without __init__.py?"
