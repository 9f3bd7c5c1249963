"""The table of a bundle's features, counted by hand on the smallest bundle."""

from dataclasses import replace
from pathlib import Path

from afa.model.bundle import load_bundle
from afa.paper.report.tables import feature_table

TINY = load_bundle(Path(__file__).parents[2] / "data" / "bundle_tiny")


def test_it_counts_potentials_of_either_sign_by_feature_and_a_coupling_at_both_its_ends():
    table = feature_table(TINY).set_index("feature")
    assert table.loc["CXCL8"].to_list() == [2, 0, 1, 1, 2.0]
    assert table.loc["MUC2"].to_list() == [0, 1, 1, 1, 0.0]
    assert table.loc["TFF3"].to_list() == [0, 0, 0, 0, 0.5]


def test_without_costs_it_has_no_such_column():
    assert list(feature_table(replace(TINY, costs=None)).columns) == [
        *("feature", "unary_up", "unary_down", "couplings_same", "couplings_opposite")
    ]
