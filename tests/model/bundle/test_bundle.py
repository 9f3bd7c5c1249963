"""The Bundle: what it holds, how it is restricted, written and stamped, and what its digest depends on."""

from __future__ import annotations

import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from afa.errors import BundleError, ConfigError
from afa.io.csvfile import CONTROLS, LARGEST_CELL_NUMBER
from afa.io.files import sha256_of
from afa.model.bundle import Bundle, load_bundle, save_bundle, stamp_bundle, validate_bundle, write_bundle

TINY = Path(__file__).parents[2] / "data" / "bundle_tiny"


@pytest.fixture
def tiny() -> Bundle:
    return load_bundle(TINY)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "bundle"))


def write_small(path: Path, **changes: object) -> None:
    """Two entities on the features g1, g2, g3: a single unary of v1, a single coupling of v2."""
    arguments: dict = {
        "name": "small",
        "version": "1",
        "entities": ["v1", "v2"],
        "features": ["g1", "g2", "g3"],
        "unary": pd.DataFrame({"entity": ["v1"], "feature": ["g2"], "potential": [1]}),
        "pairwise": pd.DataFrame({"entity": ["v2"], "feature_a": ["g3"], "feature_b": ["g1"], "potential": [-1]}),
    }
    write_bundle(path, **(arguments | changes))


def test_the_tiny_bundle_reads_as_worked_by_hand(tiny: Bundle) -> None:
    assert (tiny.name, tiny.version, tiny.licence) == ("tiny", "1", "MIT")
    assert tiny.entities == ("bleeding", "diarrhea", "fistula")
    assert tiny.features == ("AQP8", "CXCL8", "MMP9", "MUC2", "TFF3")
    assert tiny.unary.tolist() == [[0, 1, 0, -1, 0], [-1, 0, 0, 0, 0], [0, 1, 1, 0, 0]]
    assert tiny.priors.tolist() == [0, 0, -1.5]
    assert tiny.costs is not None
    assert tiny.costs.tolist() == [1, 2, 1, 0, 0.5]
    assert tiny.aliases == {"CXCL8": ("IL8", "IL-8"), "TFF3": ("ITF",)}
    assert tiny.provenance["model"] == "none; written by hand"


def test_couplings_are_symmetric_with_a_zero_diagonal(tiny: Bundle) -> None:
    expected = np.zeros((5, 5))
    expected[1, 3] = expected[3, 1] = -1
    assert tiny.couplings("bleeding").toarray().tolist() == expected.tolist()
    for entity in tiny.entities:
        matrix = tiny.couplings(entity).toarray()
        assert (matrix == matrix.T).all()
        assert not matrix.diagonal().any()


def test_a_zero_coupling_is_the_same_as_none(tiny: Bundle) -> None:
    assert tiny.couplings("fistula").nnz == 2


def test_the_support_holds_features_with_a_non_zero_unary_or_coupling(tiny: Bundle) -> None:
    assert tiny.support("bleeding").tolist() == [1, 3]
    assert tiny.support("diarrhea").tolist() == [0, 3]
    assert tiny.support("fistula").tolist() == [1, 2]


def test_the_model_of_an_entity_has_its_potentials_prior_and_feature_names(tiny: Bundle) -> None:
    model = tiny.mrf("fistula")
    assert model.unary.tolist() == [0, 1, 1, 0, 0]
    assert model.prior == -1.5
    assert model.features == tiny.features
    assert (model.couplings != tiny.couplings("fistula")).nnz == 0


def test_an_unknown_entity_is_named_with_a_near_match(tiny: Bundle) -> None:
    with pytest.raises(BundleError, match=r"no entity 'fistulas'.*did you mean fistula"):
        tiny.couplings("fistulas")


def test_the_arrays_of_a_bundle_cannot_be_changed(tiny: Bundle) -> None:
    for array in (tiny.unary, tiny.priors, tiny.costs, tiny.packed.value):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 7  # type: ignore[index]


def test_a_bundle_survives_pickling(tiny: Bundle) -> None:
    assert pickle.loads(pickle.dumps(tiny)).digest == tiny.digest


def test_restricting_keeps_the_chosen_features_in_the_given_order(tiny: Bundle) -> None:
    chosen = tiny.restrict(["MUC2", "AQP8", "CXCL8"])
    assert chosen.features == ("MUC2", "AQP8", "CXCL8")
    assert chosen.unary.tolist() == [[-1, 0, 1], [0, -1, 0], [0, 0, 1]]
    assert chosen.couplings("bleeding").toarray().tolist() == [[0, 0, -1], [0, 0, 0], [-1, 0, 0]]
    assert chosen.couplings("diarrhea").toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert chosen.couplings("fistula").nnz == 0
    assert chosen.costs is not None
    assert chosen.costs.tolist() == [0, 1, 2]
    assert chosen.aliases == {"CXCL8": ("IL8", "IL-8")}
    assert chosen.priors.tolist() == tiny.priors.tolist()
    assert chosen.provenance["restricted_from"] == tiny.digest


def test_restricting_in_two_steps_equals_restricting_in_one(tiny: Bundle) -> None:
    steps = tiny.restrict(["MMP9", "MUC2", "AQP8", "CXCL8"]).restrict(["CXCL8", "MMP9"])
    assert steps.digest == tiny.restrict(["CXCL8", "MMP9"]).digest


def test_restricting_to_all_features_changes_nothing(tiny: Bundle) -> None:
    assert tiny.restrict(tiny.features) is tiny


def test_restricting_names_every_feature_that_cannot_be_kept(tiny: Bundle) -> None:
    with pytest.raises(BundleError) as caught:
        tiny.restrict(["MUC3", "AQP8", "AQP8", "XYZ"])
    text = str(caught.value)
    assert "no feature 'MUC3'" in text
    assert "did you mean MUC2" in text
    assert "no feature 'XYZ'" in text
    assert "AQP8 more than once" in text


def test_restricting_to_no_feature_is_refused(tiny: Bundle) -> None:
    with pytest.raises(BundleError, match="found no feature; expected at least one"):
        tiny.restrict([])


def test_restricting_entities_keeps_the_models_of_the_chosen_ones_in_the_given_order(tiny: Bundle) -> None:
    chosen = tiny.restrict_entities(["fistula", "bleeding"])
    assert chosen.entities == ("fistula", "bleeding")
    assert chosen.features == tiny.features
    for entity in chosen.entities:
        assert chosen.mrf(entity).unary.tolist() == tiny.mrf(entity).unary.tolist()
        assert chosen.couplings(entity).toarray().tolist() == tiny.couplings(entity).toarray().tolist()
        assert chosen.priors[chosen.index(entity)] == tiny.priors[tiny.index(entity)]
    assert chosen.provenance["restricted_from"] == tiny.digest
    assert tiny.restrict_entities(tiny.entities) is tiny


def test_restricting_to_unknown_entities_names_them(tiny: Bundle) -> None:
    with pytest.raises(BundleError, match=r"no entity 'bleedin'.*did you mean bleeding"):
        tiny.restrict_entities(["bleedin"])
    with pytest.raises(BundleError, match="fistula more than once"):
        tiny.restrict_entities(["fistula", "fistula"])


def test_saving_and_loading_a_bundle_keeps_it(tiny: Bundle, tmp_path: Path) -> None:
    save_bundle(tiny, tmp_path / "copy")
    copy = load_bundle(tmp_path / "copy")
    assert copy.digest == tiny.digest
    assert (copy.name, copy.version, copy.licence) == (tiny.name, tiny.version, tiny.licence)
    assert copy.aliases == tiny.aliases
    assert copy.provenance == tiny.provenance


def test_writing_the_same_content_gives_the_same_bytes(tiny: Bundle, tmp_path: Path) -> None:
    save_bundle(tiny, tmp_path / "one")
    save_bundle(load_bundle(tmp_path / "one"), tmp_path / "two")
    for file in sorted(path.name for path in (tmp_path / "one").iterdir()):
        assert sha256_of(tmp_path / "one" / file) == sha256_of(tmp_path / "two" / file)


def test_rows_are_written_in_bundle_order_with_pairs_turned(tmp_path: Path) -> None:
    unary = pd.DataFrame(
        {
            "entity": ["v2", "v1", "v1"],
            "feature": ["g1", "g3", "g1"],
            "potential": [0.5, -1.0, 1.0],
            "evidence": ["late", "a\r\nb", None],
        }
    )
    write_small(tmp_path / "b", unary=unary)
    assert (tmp_path / "b" / "unary.csv").read_text() == (
        'entity,feature,potential,confidence,evidence\nv1,g1,1,,\nv1,g3,-1,,"a\nb"\nv2,g1,0.5,,late\n'
    )
    assert (tmp_path / "b" / "pairwise.csv").read_text() == (
        "entity,feature_a,feature_b,potential,confidence,evidence\nv2,g1,g3,-1,,\n"
    )


def test_a_written_bundle_loads_with_pandas_alone(tiny: Bundle, tmp_path: Path) -> None:
    save_bundle(tiny, tmp_path / "b")
    table = pd.read_csv(tmp_path / "b" / "unary.csv")
    assert table["potential"].tolist() == [1, -1, -1, 1, 1]


def test_features_without_potentials_are_kept(tmp_path: Path) -> None:
    write_small(tmp_path / "b", features=["g1", "g2", "g3", "g0"])
    assert load_bundle(tmp_path / "b").features == ("g1", "g2", "g3", "g0")


def test_nothing_is_written_where_the_result_would_be_faulty(tmp_path: Path) -> None:
    unary = pd.DataFrame({"entity": ["v1"], "feature": ["g9"], "potential": [float("nan")]})
    with pytest.raises(BundleError) as caught:
        write_small(tmp_path / "b", unary=unary)
    assert f"{tmp_path / 'b' / 'unary.csv'}, line 2, column feature: found 'g9'" in str(caught.value)
    assert "found nothing; expected a finite number" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_potential_that_is_no_number_is_named_on_writing(tmp_path: Path) -> None:
    unary = pd.DataFrame({"entity": ["v1"], "feature": ["g1"], "potential": ["Upregulated"]})
    with pytest.raises(BundleError, match="column potential: found 'Upregulated'; expected a finite number"):
        write_small(tmp_path / "b", unary=unary)


def test_a_faulty_rewrite_leaves_the_old_bundle(tmp_path: Path) -> None:
    write_small(tmp_path / "b")
    before = load_bundle(tmp_path / "b").digest
    with pytest.raises(BundleError):
        write_small(tmp_path / "b", entities=["v1"])
    assert load_bundle(tmp_path / "b").digest == before


def test_a_folder_that_is_not_a_bundle_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"a folder with other files: chapter\.txt"):
        write_small(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_the_digest_does_not_depend_on_row_order_or_pair_orientation(folder: Path, tiny: Bundle) -> None:
    (folder / "bundle.yaml").write_text((folder / "bundle.yaml").read_text().partition("digests:")[0])
    lines = (folder / "pairwise.csv").read_text().splitlines()
    lines[1] = "bleeding,CXCL8,MUC2,-1.0,0.6,opposite directions"
    (folder / "pairwise.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    (folder / "costs.csv").write_text("feature,cost\nTFF3,0.50\nMUC2,0\nMMP9,1\nCXCL8,2e0\nAQP8,1\n")
    assert load_bundle(folder).digest == tiny.digest


def test_the_digest_does_not_depend_on_zero_rows_confidence_or_evidence(folder: Path, tiny: Bundle) -> None:
    (folder / "bundle.yaml").write_text((folder / "bundle.yaml").read_text().partition("digests:")[0])
    (folder / "unary.csv").write_text(
        "entity,feature,potential\nbleeding,CXCL8,1\nbleeding,MUC2,-1\ndiarrhea,AQP8,-1\nfistula,MMP9,1\n"
        "fistula,CXCL8,1\nfistula,AQP8,-0.0\n"
    )
    assert load_bundle(folder).digest == tiny.digest


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("unary.csv", "diarrhea,AQP8,-1", "diarrhea,AQP8,1"),
        ("pairwise.csv", "MUC2,CXCL8,-1", "MUC2,MMP9,-1"),
        ("priors.csv", "-1.5", "-1.25"),
        ("costs.csv", "AQP8,1", "AQP8,3"),
        ("bundle.yaml", "[bleeding, diarrhea, fistula]", "[diarrhea, bleeding, fistula]"),
        ("bundle.yaml", "[AQP8, CXCL8,", "[CXCL8, AQP8,"),
    ],
)
def test_the_digest_depends_on_content_and_order(folder: Path, tiny: Bundle, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    stamp_bundle(folder)
    assert load_bundle(folder).digest != tiny.digest


def test_stamping_accepts_a_meant_edit_and_keeps_the_other_lines(folder: Path) -> None:
    header = folder / "bundle.yaml"
    header.write_text(header.read_text() + "# a last remark\n")
    (folder / "priors.csv").write_text("entity,log_odds\nfistula,-2\n")
    assert validate_bundle(folder)[0]
    before = header.read_text().splitlines()
    stamp_bundle(folder)
    assert validate_bundle(folder)[0] == []
    changed = [(old, new) for old, new in zip(before, header.read_text().splitlines(), strict=True) if old != new]
    assert [new.split(":")[0].strip() for _, new in changed] == ["priors.csv"]


@pytest.mark.parametrize("digests", ["", "digests: {}\n", "digests:\n", "digests: {unary.csv: abc}\n"])
def test_stamping_works_on_any_form_of_the_key(folder: Path, digests: str) -> None:
    header = folder / "bundle.yaml"
    header.write_text(digests + header.read_text().partition("digests:")[0])
    stamp_bundle(folder)
    assert validate_bundle(folder)[0] == []
    assert header.read_text().count("digests:") == 1


def test_stamping_a_header_in_flow_style_works(folder: Path) -> None:
    (folder / "bundle.yaml").write_text('{name: tiny, version: "1"}\n')
    stamp_bundle(folder)
    assert validate_bundle(folder)[0] == []


def test_stamping_a_folder_without_a_header_says_so(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"bundle\.yaml: found No such file"):
        stamp_bundle(tmp_path)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: text.isprintable() and text == text.strip()
)
NUMBERS = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-LARGEST_CELL_NUMBER, LARGEST_CELL_NUMBER))


@st.composite
def arguments(draw: st.DrawFn) -> dict:
    """Arguments of `write_bundle` for a valid bundle."""
    entities = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    features = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    cells = [(entity, feature) for entity in entities for feature in features]
    pairs = [(entity, a, b) for entity in entities for a in features for b in features if a < b]
    notes = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda text: not CONTROLS.search(text))
    unary = [(*cell, draw(NUMBERS), draw(notes)) for cell in draw(st.permutations(cells)) if draw(st.booleans())]
    pairwise = [(*pair, draw(NUMBERS)) for pair in draw(st.permutations(pairs)) if draw(st.booleans())]
    return {
        "name": draw(NAMES),
        "version": draw(NAMES),
        "entities": entities,
        "features": features,
        "unary": pd.DataFrame(unary, columns=["entity", "feature", "potential", "evidence"]),
        "pairwise": pd.DataFrame(pairwise, columns=["entity", "feature_a", "feature_b", "potential"]),
        "priors": draw(st.none() | st.fixed_dictionaries(dict.fromkeys(entities, NUMBERS))),
        "costs": draw(st.none() | st.fixed_dictionaries({name: NUMBERS.map(abs) for name in features})),
    }


@given(arguments())
@examples(30, suppress_health_check=[HealthCheck.too_slow])
def test_any_bundle_written_loads_back_equal(tmp_path_factory: pytest.TempPathFactory, written: dict) -> None:
    path = tmp_path_factory.mktemp("any") / "bundle"
    write_bundle(path, **written)
    bundle = load_bundle(path)
    assert (bundle.name, bundle.version) == (written["name"], written["version"])
    assert bundle.entities == tuple(written["entities"])
    assert bundle.features == tuple(written["features"])
    unary = np.zeros((len(bundle.entities), len(bundle.features)))
    for row in written["unary"].itertuples():
        unary[bundle.entities.index(row.entity), bundle.features.index(row.feature)] = row.potential
    assert (bundle.unary == unary).all()
    stated = {(row.entity, row.feature_a, row.feature_b): row.potential for row in written["pairwise"].itertuples()}
    for entity in bundle.entities:
        matrix = bundle.couplings(entity).toarray()
        for i, a in enumerate(bundle.features):
            for j, b in enumerate(bundle.features):
                assert matrix[i, j] == stated.get((entity, min(a, b), max(a, b)), 0.0)
    save_bundle(bundle, path.with_name("again"))
    assert load_bundle(path.with_name("again")).digest == bundle.digest


@pytest.mark.slow
def test_a_bundle_of_a_million_pairs_loads_in_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n_entities, n_features, per_entity = 2000, 5000, 500
    entities = [f"entity_{n:04d}" for n in range(n_entities)]
    features = [f"GENE{m:04d}" for m in range(n_features)]
    first = rng.integers(0, n_features // 2, size=(n_entities, per_entity))
    second = n_features // 2 + np.array([rng.permutation(n_features // 2)[:per_entity] for _ in entities])
    names = np.array(features, dtype=object)
    pairwise = pd.DataFrame(
        {
            "entity": np.repeat(entities, per_entity),
            "feature_a": names[first.ravel()],
            "feature_b": names[second.ravel()],
            "potential": rng.choice([-1, 1], size=first.size),
            "confidence": rng.random(first.size).round(2),
            "evidence": "reported together, with a comma",
        }
    )
    unary = pairwise.drop_duplicates(["entity", "feature_a"]).rename(columns={"feature_a": "feature"})
    unary[["entity", "feature", "potential"]].to_csv(tmp_path / "unary.csv", index=False)
    pairwise.to_csv(tmp_path / "pairwise.csv", index=False)
    (tmp_path / "bundle.yaml").write_text(
        f"name: large\nversion: '1'\nentities: [{', '.join(entities)}]\nfeatures: [{', '.join(features)}]\n"
    )
    start = time.process_time()
    bundle = load_bundle(tmp_path)
    assert time.process_time() - start < 15
    assert len(bundle.packed.value) == 1_000_000
    assert bundle.couplings("entity_0007").nnz == 2 * per_entity
