"""Who is asked about and when, and what is refused before anything is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afa.errors import BundleError, ConfigError, ElicitationError
from afa.io.yamlfile import check_model
from afa.model.bundle import load_bundle
from afa.paper.baselines import Protocol, Trial, briefings
from afa.paper.config import Baselines

BUNDLE = load_bundle("tests/data/bundle_tiny")
NAMES = [f"p{i}" for i in range(20)]


def a_protocol(**settings):
    return Protocol(Baselines(**settings))


def test_rounds_always_have_the_beginning_and_the_end_and_none_beyond():
    assert a_protocol(rounds=(150, 10, 5)).rounds_of(100) == [0, 5, 10, 100]


def test_with_a_horizon_nothing_is_read_out_after_it():
    chosen = a_protocol(turns="stateless", rounds=(150, 10, 5), horizon=20)
    assert chosen.rounds_of(100) == [0, 5, 10, 20]
    assert chosen.rounds_of(8) == [0, 5, 8]


def test_without_potentials_or_abstracts_a_model_is_told_the_candidates_alone():
    told = briefings(BUNDLE, a_protocol(methods=["knowledge_llm"]), disease="colitis", abstracts=None)
    one = told["knowledge_llm", "top_k", ""]
    assert one.facts["abstracts"] == []
    assert "potentials" not in one.facts
    assert one.labels == BUNDLE.entities


def test_a_seed_is_a_set_of_patients_whatever_their_order_and_a_larger_one_holds_it():
    few, more = a_protocol(patients=4, seed=1), a_protocol(patients=9, seed=1)
    chosen = few.patients_of(NAMES)
    assert len(chosen) == 4
    assert set(few.patients_of(NAMES[::-1])) == set(chosen) < set(more.patients_of(NAMES))
    assert few.patients_of(NAMES) != a_protocol(patients=4, seed=2).patients_of(NAMES)
    assert a_protocol(patients=50).patients_of(NAMES) == NAMES


def test_entities_are_all_or_those_named_in_the_order_of_the_bundle():
    assert a_protocol().entities_of(BUNDLE) == list(BUNDLE.entities)
    assert a_protocol(entities=("fistula", "bleeding")).entities_of(BUNDLE) == ["bleeding", "fistula"]
    with pytest.raises(BundleError, match="no entity 'gout'"):
        a_protocol(entities=("gout",)).entities_of(BUNDLE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ["gpt"]},
        {"tasks": []},
        {"turns": "often"},
        {"order": "mine"},
        {"patients": 0},
        {"tasks": ["binary"] * 2},
        {"horizon": 5},
        {"horizon": 0, "turns": "stateless"},
    ],
)
def test_a_word_or_number_that_is_none_is_refused_by_its_name(wrong):
    with pytest.raises(ConfigError, match=f"baselines, (key )?{next(iter(wrong))}"):
        Protocol(check_model(wrong, Baselines, "baselines"))


def test_a_briefing_on_potentials_has_each_coupling_once_and_no_zero():
    told = briefings(BUNDLE, a_protocol(methods=["mrf_llm"]), disease="colitis", abstracts=None)
    one = told["mrf_llm", "binary", "bleeding"].facts["potentials"]
    assert one == [
        {"name": "bleeding", "unary": [("CXCL8", 1.0), ("MUC2", -1.0)], "pairwise": [("CXCL8", "MUC2", -1.0)]}
    ]
    assert len(told["mrf_llm", "top_k", ""].facts["potentials"]) == 3


def test_several_phenotypes_get_the_two_best_abstracts_of_each_none_twice():
    shelf = {"bleeding": "abc", "diarrhea": "cde", "fistula": ""}
    abstracts = {name: [{"title": "", "source": s, "text": ""} for s in shelf[name]] for name in shelf}
    plan = a_protocol(methods=["rag_llm"], entities=("bleeding",))
    told = briefings(BUNDLE, plan, disease="colitis", abstracts=abstracts.__getitem__)
    sources = {key[1:]: [each["source"] for each in briefing.facts["abstracts"]] for key, briefing in told.items()}
    assert sources == {("binary", "bleeding"): ["a", "b", "c"], ("top_k", ""): ["a", "b", "c", "d"]}
    with pytest.raises(ElicitationError, match="no abstract on fistula"):
        briefings(
            BUNDLE, a_protocol(methods=["rag_llm"], entities=("fistula",)), disease="c", abstracts=abstracts.__getitem__
        )


def test_an_entity_named_control_is_refused():
    entities = ("control", *BUNDLE.entities[1:])
    with pytest.raises(BundleError, match="rename the entity"):
        briefings(replace(BUNDLE, entities=entities), a_protocol(methods=["mrf_llm"]), disease="c", abstracts=None)


def test_a_patients_alias_hangs_on_the_name_and_does_not_hold_it():
    first, second = (Trial("mrf_llm", "binary", "bleeding", name, {}, None).alias for name in ("GSM1", "GSM2"))
    assert first != second
    assert "GSM" not in first
