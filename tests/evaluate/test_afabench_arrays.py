"""The arrays of AFABench: tensors, features with cut points, measurements of several features."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from batches import values_of
from bundles import bundle_of

from afa.errors import PlannerError
from afa.evaluate.afabench import REGISTRY, BinaryMethod, TopKMethod
from afa.evaluate.entrants import read_entrant
from afa.evaluate.field import build_field_bundle
from afa.model.bundle import load_bundle
from afa.planner import BinaryPlanner, TopKPlanner


class Tensor:
    """As much of a tensor of torch as a batch needs; NumPy alone cannot read it while it is part of a graph."""

    def __init__(self, array, device="gpu", attached=True):
        self.array, self.device, self.attached = np.asarray(array), device, attached

    def detach(self):
        return Tensor(self.array, self.device, attached=False)

    def cpu(self):
        return Tensor(self.array, "cpu", self.attached)

    def to(self, device):
        return Tensor(self.array, device, self.attached)

    def __array__(self, dtype=None, copy=None):
        assert self.device == "cpu"
        assert not self.attached
        return self.array.astype(dtype or self.array.dtype)


def test_a_batch_of_tensors_is_answered_with_tensors_on_its_device(monkeypatch, method):
    stand_in = SimpleNamespace(Tensor=Tensor, from_numpy=lambda array: Tensor(array, "cpu"))
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    features, mask = values_of(method, 3), np.random.default_rng(3).random((3, len(method.features))) < 0.4
    for answer, plain in (
        (method.act(Tensor(features), Tensor(mask), Tensor(~mask & False)), method.act(features, mask)),
        (method.predict(Tensor(features), Tensor(mask)), method.predict(features, mask)),
    ):
        assert isinstance(answer, Tensor)
        assert answer.device == "gpu"
        assert answer.array.dtype == plain.dtype
        np.testing.assert_array_equal(answer.array, plain)


def test_a_device_is_noted(method):
    assert method.device == "cpu"
    assert method.to("gpu") is method
    assert method.device == "gpu"


def in_selections(folder):
    """Three features of which two come of one blood draw and have cut points, on one entity each way."""
    (folder / "bundle.yaml").write_text("name: draw\nversion: '1'\nfeatures: [urea, rash, sodium]\n")
    (folder / "unary.csv").write_text("entity,feature,potential\na,urea,1\na,rash,1\nb,sodium,1\n")
    (folder / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n")
    cuts = "urea,continuous,2.5,7\nrash,continuous,,\nsodium,continuous,135,145\n"
    (folder / "features.csv").write_text("feature,kind,low,high\n" + cuts)
    (folder / "groups.csv").write_text("feature,measurement\nurea,draw\nsodium,draw\n")
    return load_bundle(folder)


def test_features_with_cut_points_come_as_they_were_measured(tmp_path):
    method = TopKMethod(in_selections(tmp_path), k=1)
    measured, mask = np.array([[7.1, 1, 140], [7.0, 1, 134.9]]), np.ones((2, 3), dtype=bool)
    plain = TopKMethod(
        bundle_of([[1.0, 1, 0], [0, 0, 1]], np.zeros((2, 3, 3)), features=("urea", "rash", "sodium")), k=1
    )
    coded = np.array([[1.0, 1, 0], [0, 1, -1]])
    np.testing.assert_allclose(method.predict(measured, mask), plain.predict(coded, mask), atol=1e-6)
    with pytest.raises(
        PlannerError, match=r"feature rash: found 2.0; expected -1, 0 or 1. Next step: give the feature"
    ):
        method.predict(np.array([[7.0, 2, 140]]), mask[:1])
    with pytest.raises(PlannerError, match=r"feature urea: found nan"):
        method.predict(np.array([[np.nan, 1, 140]]), mask[:1])


def test_a_measurement_of_several_features_is_one_selection(tmp_path):
    bundle = in_selections(tmp_path)
    method = TopKMethod(bundle, k=1)
    method.force_acquisition = True
    nothing, unseen = np.zeros((1, 3)), np.zeros((1, 3), dtype=bool)
    assert int(method.act(nothing, unseen, np.array([[False, True]]))[0, 0]) == 1
    assert int(method.act(nothing, unseen, np.array([[True, False]]))[0, 0]) == 2
    assert int(method.act(nothing, unseen, np.array([[True, True]]))[0, 0]) == 0
    with pytest.raises(PlannerError, match=r"selection_mask: found \(1, 3\); expected \(1, 2\)"):
        method.act(nothing, unseen, np.zeros((1, 3), dtype=bool))
    method.save(tmp_path / "saved")
    assert TopKMethod.load(tmp_path / "saved")._selections == ((0, 2), (1,))
    alone = TopKMethod(bundle, k=1, panels={})
    assert alone.act(nothing, unseen, np.zeros((1, 3), dtype=bool)).shape == (1, 1)


@pytest.mark.parametrize("field", ["pima", "dermatology"])
def test_numbers_of_patients_are_acquired_by_how_often_as_the_stepwise_planner_does(field, tmp_path):
    folder = Path(__file__).parents[2] / "resources" / "fields" / field
    bundle, found = build_field_bundle(folder, tmp_path / "bundle", how_often=True), read_entrant(folder)
    assert bundle.has_probabilities
    assert (np.isfinite(bundle.rates.table.low) | np.isfinite(bundle.rates.table.high)).any()
    cells = pd.read_csv(folder / "values.csv.gz", index_col=0)
    numbers = cells.loc[list(found.patients), list(bundle.features)].to_numpy(dtype=float)
    if field == "pima":
        method, fresh = BinaryMethod(bundle, entity="diabetes"), BinaryPlanner(bundle, entity="diabetes")
    else:
        method, fresh = TopKMethod(bundle, k=1), TopKPlanner(bundle, k=1, holds="one")
    method.force_acquisition = True
    for row in (0, 5, 9):
        planner, seen = fresh.copy(), np.zeros((1, len(bundle.features)), dtype=bool)
        asked = np.zeros((1, len(method._selections)), dtype=bool)
        for _ in range(6):
            batch, suggested = np.where(seen, numbers[[row]], 0.0), planner.suggest()
            held = planner.probability() if field == "pima" else None
            expected = planner.posterior() if held is None else [1 - held, held]
            np.testing.assert_allclose(method.predict(batch, seen)[0], expected, atol=1e-6)
            chosen = int(method.act(batch, seen, asked)[0, 0]) - 1
            column = method.features.index(suggested.features[0])
            assert column in method._selections[chosen]
            asked[0, chosen] = True
            for column in method._selections[chosen]:
                seen[0, column] = np.isfinite(numbers[row, column])
                if seen[0, column]:
                    planner.observe(bundle.features[column], int(found.values[row, column]))
                else:
                    planner.skip(bundle.features[column])


def test_the_benchmark_finds_our_classes_by_their_names():
    for name, place in REGISTRY.items():
        module, _, attribute = place.rpartition(".")
        assert getattr(import_module(module), attribute).__name__ == name
