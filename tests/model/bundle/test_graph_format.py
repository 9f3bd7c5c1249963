"""Bundles as NetworkX graphs: what attributes hold, that nothing is lost, and what is said of faults."""

import json
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from bundles import random_bundles
from examples import examples
from hypothesis import given

from afa.errors import BundleError
from afa.model.bundle import load_bundle
from afa.model.bundle.graph import from_networkx, read_graph, to_networkx, write_graph

TINY = load_bundle(Path(__file__).parents[2] / "data" / "bundle_tiny")


def same(one, other):
    """Whether all that a bundle holds is the same, beside what its digest covers."""
    texts = [(b.name, b.version, b.licence, dict(b.aliases), dict(b.provenance)) for b in (one, other)]
    return one.digest == other.digest and texts[0] == texts[1]


def plain_graph():
    """A graph as somebody else would draw it: a - b - c."""
    graph = nx.Graph()
    graph.add_node("a", unary=1.0)
    graph.add_edge("a", "b", coupling=0.5)
    graph.add_edge("b", "c", coupling=-1)
    return graph


def test_the_graph_of_an_entity_has_its_unaries_on_nodes_and_its_couplings_on_edges():
    graph = to_networkx(TINY, "fistula")
    assert type(graph) is nx.Graph
    assert nx.get_node_attributes(graph, "unary") == {"AQP8": 0, "CXCL8": 1, "MMP9": 1, "MUC2": 0, "TFF3": 0}
    assert nx.get_edge_attributes(graph, "coupling") == {("CXCL8", "MMP9"): 1.0}
    assert graph.nodes["TFF3"]["cost"] == 0.5
    assert json.loads(graph.graph["priors"]) == {"fistula": -1.5}


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


@pytest.mark.parametrize("entity", [None, *TINY.entities])
def test_a_graph_gives_back_all_that_the_bundle_holds(entity):
    expected = TINY if entity is None else TINY.restrict_entities([entity])
    assert same(from_networkx(to_networkx(TINY, entity)), expected)


@examples(30)
@given(random_bundles(entities=(1, 4)))
def test_any_bundle_survives_a_graph(bundle):
    assert same(from_networkx(to_networkx(bundle)), bundle)


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
@pytest.mark.parametrize("entity", [None, "fistula"])
def test_a_file_gives_back_all_that_the_bundle_holds(tmp_path, suffix, entity):
    write_graph(TINY, tmp_path / f"tiny{suffix}", entity=entity)
    expected = TINY if entity is None else TINY.restrict_entities([entity])
    assert same(read_graph(tmp_path / f"tiny{suffix}"), expected)


@examples(10)
@given(random_bundles(entities=(1, 3)))
def test_any_bundle_survives_both_files(tmp_path_factory, bundle):
    folder = tmp_path_factory.mktemp("graphs")
    for name in ("b.graphml", "b.json"):
        write_graph(bundle, folder / name)
        assert same(read_graph(folder / name), bundle)


def test_files_that_networkx_itself_writes_give_back_the_bundle(tmp_path):
    graph = to_networkx(TINY)
    nx.write_graphml(graph, tmp_path / "tiny.graphml")
    assert same(read_graph(tmp_path / "tiny.graphml"), TINY)


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_the_edges_of_node_link_json_are_read_by_both_names_that_networkx_gives_them(tmp_path, edges):
    document = nx.node_link_data(to_networkx(TINY), edges=edges)
    assert document[edges]
    (tmp_path / "tiny.json").write_text(json.dumps(document))
    assert same(read_graph(tmp_path / "tiny.json"), TINY)


@pytest.mark.parametrize("suffix", [".graphml", ".json"])
def test_a_file_has_the_same_bytes_when_written_again(tmp_path, suffix):
    for name in ("one", "two"):
        write_graph(TINY, tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_a_graph_from_elsewhere_is_a_bundle_of_one_entity():
    bundle = from_networkx(plain_graph(), entity="rust")
    assert (bundle.name, bundle.version, bundle.entities, bundle.features) == ("rust", "1", ("rust",), ("a", "b", "c"))
    np.testing.assert_array_equal(bundle.unary, [[1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(bundle.couplings("rust").toarray(), [[0, 0.5, 0], [0.5, 0, -1], [0, -1, 0]])
    assert from_networkx(plain_graph(), entity="rust", name="plants", version="2").name == "plants"


def changed(**attributes):
    graph = plain_graph()
    graph.graph.update(attributes)
    return graph


def with_edge(*ends, **attributes):
    graph = nx.MultiGraph(plain_graph())
    graph.add_edge(*ends, **attributes)
    return graph


def with_node(name, **attributes):
    graph = plain_graph()
    graph.add_node(name, **attributes)
    return graph


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (plain_graph().to_directed(), "found a DiGraph; expected an undirected graph of NetworkX"),
        ([("a", "b")], "found a list; expected an undirected graph"),
        (nx.Graph(), "key features: found an empty list; expected at least one name"),
        (with_node(7), r"node 7: found int"),
        (with_node("d", unary="high"), "potential of rust, d, column potential: found 'high'"),
        (with_node("d", unary=float("nan")), "potential of rust, d, column potential: found 'nan'"),
        (with_node("d", **{"unary:moss": 1.0}), "potential of moss, d, column entity: found 'moss'"),
        (with_node("d", cost=1.0), "no cost for a, b, c"),
        (with_edge("a", "c", weight=1.0), "potential of rust, a, c, column potential: found 'no coupling, but weight'"),
        (with_edge("a", "c", coupling="x"), "potential of rust, a, c, column potential: found 'x'"),
        (with_edge("a", "c", coupling=1.0, entity="moss"), "potential of moss, a, c, column entity: found 'moss'"),
        (
            with_edge("b", "a", coupling=1.0),
            "rust, a, b: found the same as potential of rust, a, b; expected each pair once",
        ),
        (with_edge("a", "a", coupling=1.0), "rust, a, a, column feature_b: found a paired with itself"),
        (with_edge("a", "c", coupling=float("inf")), "rust, a, c, column potential: found 'inf'"),
        (changed(entities="moss"), "key entities: found 'moss'; expected a list or an object as JSON text"),
        (changed(entities='["moss", "rust"]'), "found a list of entities, moss, rust; expected none, or 'rust'"),
        (changed(priors='{"moss": 1}'), "log_odds of moss, column entity: found 'moss'"),
        (changed(priors='{"rust": "high"}'), "log_odds of rust, column log_odds: found 'high'"),
        (changed(aliases='{"a": ["b"]}'), "alias of a, column alias: found b, the name of a feature"),
        (changed(aliases='{"a": "old"}'), "key aliases.a: found 'old'; expected a list"),
        (changed(aliases='{"z": ["y"]}'), "alias of z, column feature: found 'z'"),
        (changed(name=" rust"), "key name"),
    ],
)
def test_a_graph_with_a_fault_is_refused_by_node_edge_or_attribute(graph, words):
    with pytest.raises(BundleError, match=words):
        from_networkx(graph, entity="rust")


def test_a_graph_that_names_no_entity_needs_one():
    with pytest.raises(BundleError, match="no list of entities"):
        from_networkx(plain_graph())


def test_an_edge_of_several_entities_must_say_whose_it_is():
    with pytest.raises(BundleError, match="potential of , a, b, column entity: found nothing; expected a name"):
        from_networkx(changed(entities='["moss", "rust"]'))


def test_every_fault_is_listed_at_once():
    graph = with_node("d", unary="high")
    graph.add_edge("a", "d")
    with pytest.raises(BundleError) as caught:
        from_networkx(graph, entity="rust")
    assert [fault.where for fault in caught.value.faults] == [
        "graph rust, potential of rust, d, column potential",
        "graph rust, potential of rust, a, d, column potential",
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("g.graphml", "<graphml", "no such graph"),
        ("g.graphml", "<a/>", "no such graph"),
        ("g.json", "{", "no such graph"),
        ("g.json", "[1]", "no such graph"),
        ("g.json", '{"nodes": [1]}', "no such graph"),
        ("g.gml", "", "suffix '.gml'; expected .graphml or .json"),
        ("g.json", None, "No such file"),
    ],
)
def test_a_file_of_something_else_is_refused_by_its_name(tmp_path, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(BundleError, match=f"{re.escape(str(tmp_path / name))}: found .*{words}"):
        read_graph(tmp_path / name)


def test_a_write_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(BundleError, match="no entity 'gout'"):
        write_graph(TINY, tmp_path / "tiny.json", entity="gout")
    assert list(tmp_path.iterdir()) == []
