"""One probability, the posterior, and the same words for it: in the terminal, on the page, by JSON lines, in Python."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from bundles import bundle_of
from rated import FEVERS, written
from rich.console import Console

from afa.dialogue.conversation import Conversation, converse
from afa.dialogue.server import Served
from afa.dialogue.sessions import SessionFile
from afa.dialogue.terminal import Terminal
from afa.model.bundle import load_bundle
from afa.planner import BinaryPlanner, Planner, TopKPlanner
from afa.planner.values import word_of

NO_COUPLINGS = [[[0.0] * 3] * 3] * 3


def planner_of(question: str, folder: Path) -> Planner:
    """A planner that is asked for the best of three, for two of them, or for one, of directions or of how often."""
    directions = bundle_of(
        [[1.0, 0.0, -1.0], [0.5, 1.0, 0.0], [0.0, -1.0, 1.0]], NO_COUPLINGS, entities=("cold", "fever", "rust")
    )
    often = load_bundle(written(folder, FEVERS))
    return {
        "directions": lambda: TopKPlanner(directions, k=1),
        "two": lambda: TopKPlanner(directions, k=2),
        "binary": lambda: BinaryPlanner(directions, entity="fever"),
        "one": lambda: TopKPlanner(often, k=1, holds="one", first=["cough"]),
        "one or none": lambda: TopKPlanner(often, k=1, holds="one or none", first=["cough"]),
        "several": lambda: TopKPlanner(often, k=1, holds="several", first=["cough"]),
        "binary, how often": lambda: BinaryPlanner(often, entity="flu"),
    }[question]()


def shown(planner: Planner) -> str:
    """What the terminal shows of a planner."""
    screen = io.StringIO()

    def read(_: str) -> str:
        raise EOFError

    Terminal(planner, Console(file=screen, width=300, no_color=True), read, SessionFile()).run()
    return screen.getvalue()


@pytest.mark.parametrize(
    ("question", "of"),
    [
        ("directions", "Ordered by preference score"),
        ("two", "Ordered by preference score"),
        ("binary", "The probabilities of fever and of not fever add up to 1."),
        ("one", "The probabilities assume that exactly one of these is true."),
        ("one or none", "The probabilities assume that at most one of these is true."),
        ("several", "Each of these has its own probability"),
        ("binary, how often", "The probabilities of flu and of not flu add up to 1."),
    ],
)
@pytest.mark.parametrize("value", [0, 1])
def test_every_face_says_the_same_number_and_words_and_what_they_are_of(
    question: str, of: str, value: int, tmp_path: Path
) -> None:
    planner = planner_of(question, tmp_path / "fevers")
    first = planner.next_feature()
    assert first is not None
    foreseen = {row["value"]: row for row in planner.outcomes(first).to_dict("records")}[value]
    before, page_before = shown(planner), Served(Conversation(planner, SessionFile())).state()
    word = word_of(planner.question_bundle, first, value)
    assert re.search(rf"if {word}: +{re.escape(foreseen['words'])}", before)
    (of_page,) = [row for row in page_before["view"]["outcomes"][first] if row["value"] == value]
    explained = json.loads(list(converse(planner, ['{"do": "explain"}'], SessionFile()))[-1])["candidates"]
    (of_explain,) = [
        row for each in explained if each["feature"] == first for row in each["outcomes"] if row["value"] == value
    ]

    planner.observe(first, value)
    told: dict[str, Any] = json.loads(next(converse(planner, [], SessionFile())))["answer"]
    page = Served(Conversation(planner, SessionFile())).state()
    assert planner.in_words() in shown(planner)
    assert planner.in_words() in repr(planner)
    words = [foreseen["words"], of_page["words"], of_explain["words"], told["words"], page["answer"]["words"]]
    assert words == [planner.in_words()] * 5
    numbers = [each["probability"] for each in (foreseen, of_page, of_explain, told, page["answer"])]
    assert numbers == pytest.approx([planner.answer_probability()] * 5, abs=1e-12)
    if not planner.undecided() and not told["none"]:
        number = f"{planner.answer_probability():.2f}"
        if planner.ordered_by == "score":
            number = f"ahead by {planner.lead():.2f}"
        assert number in planner.in_words()
        inside = [page["view"]["posterior"][name] for name in planner.answer()]
        together = min(inside) if question == "several" else sum(inside)
        assert together == pytest.approx(planner.answer_probability())
    assert of in before
    assert page["view"]["assumption"].startswith(of)
    order = [row["entity"] for row in page["view"]["order"]]
    assert order[: len(planner.answer())] == planner.answer()
    if planner.ordered_by == "probability":
        shares = [round(row["number"], 9) for row in page["view"]["order"]]
        assert shares == sorted(shares, reverse=True)


def test_a_tie_and_nothing_unusual_are_said_alike_everywhere() -> None:
    alike = bundle_of(
        [[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]], [[[0.0] * 2] * 2] * 3, entities=("cold", "fever", "rust")
    )
    for value, words in (
        (1, "undecided between cold and fever"),
        (0, "none of these: nothing that was measured is unusual"),
    ):
        planner = TopKPlanner(alike, k=1)
        planner.observe(alike.features[0], value)
        told = json.loads(next(converse(planner, [], SessionFile())))["answer"]
        page = Served(Conversation(planner, SessionFile())).state()["answer"]
        assert told["words"] == page["words"] == planner.in_words()
        assert planner.in_words().startswith(words)
        assert words in shown(planner)
        assert words in repr(planner)
        assert (told["undecided"] == ["cold", "fever"]) == (value == 1)
        assert told["none"] == (value == 0)
