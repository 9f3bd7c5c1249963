"""Bundles as graphs of NetworkX: their attributes, and their files."""

import json
from pathlib import Path

import networkx as nx
import pytest

from afa.errors import BundleError
from afa.model.bundle import load_bundle
from afa.model.bundle.graph import to_networkx, write_graph

TINY = load_bundle(Path(__file__).parents[2] / "data" / "bundle_tiny")


def test_the_graph_of_an_entity_has_its_unaries_on_nodes_and_its_couplings_on_edges():
    graph = to_networkx(TINY, "fistula")
    assert type(graph) is nx.Graph
    assert nx.get_node_attributes(graph, "unary") == {"AQP8": 0, "CXCL8": 1, "MMP9": 1, "MUC2": 0, "TFF3": 0}
    assert nx.get_edge_attributes(graph, "coupling") == {("CXCL8", "MMP9"): 1.0}
    assert graph.nodes["TFF3"]["cost"] == 0.5


def test_the_graph_of_a_bundle_has_an_edge_for_each_coupling_of_each_entity():
    graph = to_networkx(TINY)
    assert type(graph) is nx.MultiGraph
    assert nx.get_edge_attributes(graph, "coupling") == {
        ("CXCL8", "MUC2", "bleeding"): -1.0,
        ("AQP8", "MUC2", "diarrhea"): 1.0,
        ("CXCL8", "MMP9", "fistula"): 1.0,
    }
    assert {key: x for key, x in graph.nodes["CXCL8"].items() if key != "cost"} == {
        "unary:bleeding": 1.0,
        "unary:fistula": 1.0,
    }


@pytest.mark.parametrize("entity", [None, "fistula"])
def test_networkx_reads_the_same_graph_from_both_files(tmp_path, entity):
    graph = to_networkx(TINY, entity)
    for suffix in ("graphml", "json"):
        write_graph(TINY, tmp_path / f"tiny.{suffix}", entity=entity)
    document = json.loads((tmp_path / "tiny.json").read_text())
    for found in (nx.read_graphml(tmp_path / "tiny.graphml"), nx.node_link_graph(document, edges="edges")):
        assert dict(found.nodes(data=True)) == dict(graph.nodes(data=True))
        assert list(found.edges(data="coupling")) == list(graph.edges(data="coupling"))
        assert (found.graph["name"], found.graph["version"]) == (TINY.name, TINY.version)


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
def test_a_file_has_the_same_bytes_when_written_again(tmp_path, suffix):
    for name in ("one", "two"):
        write_graph(TINY, tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_a_write_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(BundleError, match="no entity 'gout'"):
        write_graph(TINY, tmp_path / "tiny.json", entity="gout")
    assert list(tmp_path.iterdir()) == []
