"""What every figure of the report must have: an owner, its n, named axes, legible text; and every caption and notebook.

The figures are drawn from one small run of all stages, made here through the command line.
"""

import contextlib
import itertools
import json
import re
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from string import ascii_lowercase
from unittest import mock

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml
from bundles import bundle_of
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from nbclient import NotebookClient
from notebook_cells import run_cells
from typer.testing import CliRunner

from afa.cli import app
from afa.cohort.cohort import Cohort, load_cohort, write_codes, write_cohort
from afa.errors import ReportError
from afa.evaluate.figures import METHOD_STYLE, new_figure
from afa.evaluate.method_names import METHOD_NAMES
from afa.evaluate.summary import summary_rows, write_summary
from afa.model.bundle import save_bundle
from afa.paper.experiments.declared import STAGES
from afa.paper.report.cells import caption_of, located, show_caption

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if path.stem != "planner")
"""Those of the workflow; `planner` is for people, and tried in test_part_notebooks."""
SMALLEST_FONT = 8  # points
LEAST_CONTRAST = 0.2  # difference of luminance, from 0 to 1, that two greys are told apart by
SEED = {"seeds": [0]}
SETTINGS = {
    "sign": {"random_order": SEED},
    "chaos": {"chaos": {"selecting_seeds": [0], "measuring_seeds": [1]}},
    "allocation": {
        "top_k": 1,
        "allocation": {"rules": ["random", "greedy", "priority_clusters"], "gains": ["cmi"], **SEED},
    },
    "stopping": {"top_k": 1},
    "binary": {"random_order": SEED},
    "labels": {"labels": {"thresholds": [0.5], "percents": [50], "permutations": 2, "whole_permutations": 3, **SEED}},
    "labels_needed": {"labels_needed": {"sizes": [2, 4], "repeats": 2, "permuted": 1, "tested": 2, "of_each_class": 1}},
    "calibration": {"calibration": {"rounds": [2]}},
    "gauge": {"gauge": {"rounds": [2]}},
    "accurate": {
        "top_k": 1,
        "accurate": {"patients": 4, "linearity_patients": 2, "rounds": [2], "limit": 300},
    },
    "layer0": {"top_k": 1, "layer0": {"clusters": [2]}},
    "layer0_synthetic": {"layer0": {"simulated": 20}},
}
"""Small settings; a stage without an entry has the defaults."""
SHOWN = "Shown name"
"""What people are shown for the second entity."""
NOT_SUMMARISED = ("sanity",)
INPUTS = {"bundle": "bundle", "cohort": "cohort", "by_cohort": "by_cohort.parquet", "portfolio": "portfolio.yaml"}


def invoke(*words):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output


def run_stage(folder, name, settings):
    """The tables and rows of one stage, with all else as by default."""
    described = STAGES[name]
    paths = {stage: f"{folder}/tables/{stage}" for stage in STAGES}
    paths |= {key: f"{folder}/{path}" for key, path in INPUTS.items()}
    inputs = [f"--input={key}={paths[key]}" for key in described.inputs]
    invoke("stage", name, *inputs, "--settings", json.dumps(settings), "--out", paths[name])
    if name not in NOT_SUMMARISED:
        beside = [f"--input={key}={paths[key]}" for key in described.summary_inputs]
        quick = json.dumps({"bootstrap": {"resamples": 100}})
        rows = f"{folder}/curves/{name}.parquet"
        invoke("summarise", name, paths[name], *beside, "--settings", quick, "--out", rows)


def choosing_rows():
    """Made-up rows of a language model that chooses its own features, beside the planner and a constant answer."""
    own = {"allocation": "priority_all", "gain": "cmi", "guide": "linearity", "schedule": "every", "start": "uniform"}
    along = {"variant": "same_order", "stratum": "top_k", "reference": "mrf_llm", "start": "uniform"}
    lines = ({"method": "mrf_llm"}, own | {"method": "linearity"}, along | {"method": "linearity"})
    lines += ({"method": "fixed_top_k"},)
    share = {"metric": "p_at_k", "target": "likelihood", "low": 0.2, "high": 0.9, "n": 8}
    rows = [share | keys | {"t": t, "value": 0.3 + t / 40} for keys in lines for t in (0, 5, 10, 20)]
    gap = own | {"metric": "gap", "target": "likelihood", "method": "mrf_llm", "reference": "linearity", "n": 8}
    rows += [gap | {"t": t, "value": 0.1, "low": -0.1, "high": 0.3} for t in (0, 5, 10, 20)]
    return summary_rows("llm_choosing", pd.DataFrame(rows))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of eight simulated patients, four entities, six features and one synthetic configuration."""
    project = tmp_path_factory.mktemp("project")
    (project / "resources").symlink_to(ROOT / "resources")
    folder = project / "results" / "gse109142"  # where the defaults of a notebook's parameters look
    folder.mkdir(parents=True)
    random = np.random.default_rng(5)
    bundle = bundle_of(random.integers(-1, 2, (4, 6)), random.integers(-1, 2, (4, 6, 6)))
    bundle = replace(bundle, display_names={bundle.entities[1]: SHOWN})
    names = tuple(f"p{i}" for i in range(8))
    labels = pd.DataFrame(random.integers(0, 2, (8, 4)), list(names), list(bundle.entities)).astype("Int8")
    values = random.integers(-1, 2, (8, 6)).astype(np.int8)
    write_cohort(Cohort("tiny", bundle.features, names, values, labels, {"origin": "simulated"}), folder / "cohort")
    by_itself = random.integers(-1, 2, (8, 6)).astype(np.int8)
    write_codes({0.5: pd.DataFrame(by_itself, list(names), list(bundle.features))}, folder / "by_cohort.parquet")
    save_bundle(bundle, folder / "bundle")
    portfolio = yaml.safe_load((ROOT / "config" / "portfolio.yaml").read_text(encoding="utf-8"))
    (folder / "portfolio.yaml").write_text(yaml.safe_dump({"drug_C4": portfolio["drug_C4"]}), encoding="utf-8")
    curves = folder / "curves"
    read = {name: {*stage.inputs, *stage.summary_inputs} & set(STAGES) for name, stage in STAGES.items()}
    for name in TopologicalSorter(read).static_order():
        if not STAGES[name].elicited:
            run_stage(folder, name, SETTINGS.get(name, {}))
    write_summary([choosing_rows()], curves / "llm_choosing.parquet")
    invoke("join", *map(str, sorted(curves.glob("*.parquet"))), "--out", f"{folder}/summary.csv")
    (folder / "config.json").write_text(json.dumps({"bootstrap": {"confidence": 0.9}}), encoding="utf-8")
    paper = str(ROOT / "resources" / "paper")
    about = ("--cohort", f"{folder}/cohort", "--paper", paper)
    invoke("compare", f"{folder}/summary.csv", *about, "--out", f"{folder}/comparison")
    return folder


def cells_of(name):
    return json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def draw(name, run, figure=""):
    """Return the figure of a notebook that runs with its defaults in the folder above."""
    with contextlib.chdir(run.parents[1]):
        return run_cells(name, figure=str(figure)).variables["fig"]


@pytest.fixture(scope="module")
def figures(run):
    """All of them, laid out and not written: each would be rendered in three forms, which one test does for one."""
    with mock.patch("afa.evaluate.figures.save_figure"):
        drawn = {name: draw(name, run) for name in NOTEBOOKS}
    for figure in drawn.values():
        figure.draw_without_rendering()
    return drawn


def panels(figure):
    return [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]


def texts(figure):
    """All text that is drawn: labels of ticks out of view are not."""
    hidden = set()
    for axis in itertools.chain.from_iterable((axes.xaxis, axes.yaxis) for axes in figure.axes):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not axis.axes.axison or not low <= tick.get_loc() <= high:
                hidden |= {tick.label1, tick.label2}
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in hidden]


def luminance(color):
    return float(np.dot(to_rgb(color), (0.299, 0.587, 0.114)))


def look(handle):
    """How a reader without colour tells it apart, and its grey."""
    if isinstance(handle, Line2D):
        marker = handle.get_marker(), luminance(handle.get_markerfacecolor()) > 0.99
        lines = handle.get_linestyle() == "None" or (handle.get_linestyle(), handle.get_linewidth())
        return (lines, marker), luminance(handle.get_color())
    if isinstance(handle, Patch):
        return handle.get_hatch(), luminance(handle.get_facecolor()[:3])
    patch = handle.patches[0] if getattr(handle, "patches", None) else None
    return (patch.get_hatch(), luminance(patch.get_facecolor()[:3])) if patch else (type(handle), 0.0)


def without_a_name(axes):
    """Which of the two axes has no name; the vertical one may have it at the panel's left, or have words for ticks."""
    lacking = [] if axes.get_xlabel() else ["x"]
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    row = [other for other in panels(axes.figure) if other.get_subplotspec().rowspan == axes.get_subplotspec().rowspan]
    shared = any(other.get_ylabel() and other.get_ylim() == axes.get_ylim() for other in row)
    words = any(re.search("[A-Za-z]", tick) for tick in ticks) or not any(ticks)
    return lacking + ([] if axes.get_ylabel() or shared or words else ["y"])


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_figure_says_whose_it_is_and_that_the_patients_are_simulated(figures, name):
    title = figures[name].get_suptitle()
    assert re.search(r"[Cc]ohort tiny \(simulated\)", title), title
    assert "8 patients" in title


@pytest.mark.parametrize("name", ["bundle", "cohort"])
def test_an_entity_with_a_display_name_stands_by_it_on_an_axis(figures, name):
    ticks = {tick.get_text() for axes in panels(figures[name]) for tick in axes.get_yticklabels()}
    assert SHOWN in ticks
    assert "v1" not in ticks


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_panel_says_its_n_and_names_its_axes(figures, name):
    for axes in panels(figures[name]):
        title = axes.get_title(loc="left")
        assert re.search(r"\nn = [\d,]+ [a-z(]", title), title
        assert without_a_name(axes) == [], title


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_text_is_small_cut_off_or_over_another(figures, name):
    assert unreadable(figures[name]) == []


def unreadable(figure):
    """What is wrong with the text of a figure that is laid out, in words."""
    drawn = texts(figure)
    boxes = [text.get_window_extent() for text in drawn]
    page = figure.bbox
    faults = [
        f"{text.get_text()!r} has {text.get_fontsize()} points" for text in drawn if text.get_fontsize() < SMALLEST_FONT
    ]
    for text, box in zip(drawn, boxes, strict=True):
        if box.x0 < -1 or box.y0 < -1 or box.x1 > page.x1 + 1 or box.y1 > page.y1 + 1:
            faults.append(f"{text.get_text()!r} is cut off")
    for (one, a), (other, b) in itertools.combinations(zip(drawn, boxes, strict=True), 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1:
            faults.append(f"{one.get_text()!r} and {other.get_text()!r} overlap")
    return faults


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_a_legend_tells_apart_differs_in_more_than_colour(figures, name):
    assert alike(figures[name]) == []


def alike(figure):
    """Pairs of one panel's labels that a reader without colour takes for each other."""
    pairs = []
    for axes in panels(figure):
        entries = [(label, *look(handle)) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)]
        for (one, shape, grey), (other, another_shape, another_grey) in itertools.combinations(entries, 2):
            if shape == another_shape and abs(grey - another_grey) < LEAST_CONTRAST:
                pairs.append((one, other))
    return pairs


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_panel_by_t_begins_at_t_0(figures, name):
    for axes in panels(figures[name]):
        if axes.get_xlabel().startswith("features observed, t") and axes.get_xticks().size:
            starts = [line.get_xdata()[0] for line in curves(axes)]
            by_box = axes.get_xticklabels()[0].get_text() == "0"
            assert by_box or axes.get_xlim()[0] <= 0, axes.get_title(loc="left")
            assert by_box or not starts or 0 in starts, axes.get_title(loc="left")


def curves(axes):
    """Connected lines over the data, with something on them."""
    over = [line for line in axes.get_lines() if all(line.get_transform().contains_branch_seperately(axes.transData))]
    return [line for line in over if line.get_linestyle() != "None" and len(line.get_xdata())]


def test_what_cannot_be_read_or_told_apart_is_found():
    figure, (axes,) = new_figure(4, 3)
    axes.set(xticks=[], yticks=[])
    axes.text(0.1, 0.5, "small", fontsize=7)
    axes.text(0.5, 0.5, "one")
    axes.text(0.5, 0.5, "other")
    axes.text(0.9, 0.9, "far to the right")
    axes.plot([0, 1], [0, 1], color="#D55E00", label="a")
    axes.plot([0, 1], [1, 0], color="#0072B2", label="b")
    axes.plot([0, 1], [0, 0], color="#0072B2", label="c", linestyle="--")
    figure.set_layout_engine("none")
    figure.draw_without_rendering()
    faults = ["'small' has 7.0 points", "'far to the right' is cut off", "'one' and 'other' overlap"]
    assert unreadable(figure) == faults
    assert alike(figure) == [("a", "b")]


def test_methods_that_share_a_figure_differ_in_line_and_in_marker():
    styles = {name: style for name, style in METHOD_STYLE.items() if name != "stack_a"}
    for part in ("linestyle", "marker"):
        assert len({str(style[part]) for style in styles.values()}) == len(styles)
    together = ("wald", "two_elbo", "stack_a")
    assert len({str(METHOD_STYLE[name]["linestyle"]) for name in together}) == len(together)


def test_a_figure_drawn_twice_has_the_same_bytes(run, tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        draw("sign_convergence", run, tmp_path / folder / "drawn")
    for suffix in ("svg", "pdf"):
        one, other = ((tmp_path / folder / f"drawn.{suffix}").read_bytes() for folder in ("one", "other"))
        assert one == other, suffix


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_table_with_a_style_is_named_so_that_the_notebook_has_the_same_bytes(name):
    code = "".join("".join(cell["source"]) for cell in cells_of(name) if cell["cell_type"] == "code")
    assert code.count(".style.") == code.count(".style.set_uuid(")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_keeps_no_output_and_has_words_and_parameters(name):
    cells = cells_of(name)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert ["parameters" in cell["metadata"].get("tags", []) for cell in code].count(True) == 1
    assert "".join(cells[0]["source"]).startswith("# ")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_caption_has_five_sentences_at_most_and_names_the_cohort(name):
    caption = caption_of(ROOT / "notebooks" / f"{name}.ipynb")
    assert "{cohort}" in caption
    sentences = re.findall(r"[.!?](?=\s|$)", caption)
    assert 1 <= len(sentences) <= 5, sentences


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_figure_with_several_panels_has_a_letter_on_each_in_order(figures, name):
    titles = [axes.get_title(loc="left") for axes in panels(figures[name])]
    letters = [f"({letter}) " for letter in ascii_lowercase[: len(titles)]]
    assert [title[:4] for title in titles] == letters or len(titles) == 1, titles


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_figure_names_scores_gains_and_rules_in_words(figures, name):
    drawn = [text.get_text() for text in texts(figures[name])]
    assert [text for text in drawn if any(re.search(rf"\b{code}\b", text) for code in METHOD_NAMES)] == []


def test_a_notebook_that_is_opened_by_hand_in_its_folder_shows_a_caption_without_gaps(run, tmp_path):
    assert by_hand(["sign_convergence"], run, tmp_path) == []


@pytest.mark.slow
def test_every_notebook_opened_by_hand_in_its_folder_shows_a_caption_without_gaps(run, tmp_path):
    assert by_hand([*NOTEBOOKS, "planner"], run, tmp_path) == []


def by_hand(names, run, folder):
    """Run notebooks as Jupyter does, in the folder `notebooks` beside `results`; return what is not as it should be."""
    place = folder / "notebooks"
    place.mkdir()
    for linked in ("results", "resources"):
        (folder / linked).symlink_to((run.parents[1] / linked).resolve())
    faults = []
    for name in names:
        book = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        ran = NotebookClient(book, kernel_name="python3", resources={"metadata": {"path": str(place)}}).execute()
        shown = [output.get("data", {}) for cell in ran.cells for output in cell.get("outputs", [])]
        tagged = [cell for cell in ran.cells if "caption" in cell.metadata.get("tags", [])]
        captions = [output.data["text/markdown"] for cell in tagged for output in cell.outputs]
        plain = "\n".join([*captions, *(data.get("text/plain", "") for data in shown)])
        if not any("image/svg+xml" in data for data in shown):
            faults.append(f"{name}: no figure")
        if ["tiny" in caption for caption in captions] != [True] * (name != "planner"):
            faults.append(f"{name}: captions {captions}")
        if found := re.findall(r"\{\w+\}|\{\{|t=216", plain):
            faults.append(f"{name}: {found}")
    assert list(place.iterdir()) == []
    return faults


def test_a_caption_has_the_confidence_of_the_run(run):
    with mock.patch("IPython.display.display") as shown:
        show_caption(
            "Bands are {confidence}\n over patients of {cohort}, by two_elbo.", run, load_cohort(run / "cohort")
        )
    (caption,) = shown.call_args.args
    assert caption.data == "Bands are 90 % over patients of tiny, by two-ELBO."


def test_a_run_is_found_from_the_folder_of_the_notebooks_and_from_the_projects(run, tmp_path, monkeypatch):
    for folder in ("notebooks", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        with pytest.raises(ReportError, match=r"\.\./results/x: found no such folder"):
            located("../results/x")
    (tmp_path / "results" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "notebooks")
    assert located("../results/x").samefile(tmp_path / "results" / "x")
    monkeypatch.chdir(tmp_path)
    assert located("../results/x").samefile(tmp_path / "results" / "x")
    assert located(str(tmp_path / "results")) == tmp_path / "results"


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [{"cell_type": "code", "metadata": {"tags": ["caption"]}, "source": "x = 1"}],
        [{"cell_type": "code", "metadata": {"tags": ["caption"]}, "source": "show_caption(words, run, patients)"}],
        [{"cell_type": "code", "metadata": {"tags": ["caption"]}, "source": "show_caption('{cohrt}', run, patients)"}],
    ],
)
def test_a_notebook_without_a_caption_that_can_be_read_is_one_error(tmp_path, cells):
    (tmp_path / "in.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    with pytest.raises(ReportError, match=r"in\.ipynb: found no caption .*; expected a cell tagged `caption`"):
        caption_of(tmp_path / "in.ipynb")
    assert caption_of(tmp_path / "none.ipynb") == ""
