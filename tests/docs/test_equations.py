"""The equation index: which gaps it notices, by a package of a few lines, and that this project has none."""

import ast
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from equations import COMPLETE, LABEL, PAGE, Index, Label

from afa.errors import ReportError

ROOT = Path(__file__).parents[2]

SUM = '''
def total(x):
    """The sum (eq:sum)."""
    return _add(x)

def _add(x):
    """Step by step (eq:step)."""
    return sum(x)
'''


def source(modules, tests, labels=()):
    """An index of a package of the given texts, by dotted name, and its tests, by file."""
    parsed = ({name: ast.parse(dedent(text)) for name, text in texts.items()} for texts in (modules, tests))
    return Index(labels, *parsed)


def index(modules=None, tests=None, labels=("eq:sum", "eq:step"), reasons=None):
    modules = {"p": "", "p.a": SUM} if modules is None else modules
    tests = {"tests/test_a.py": "from p.a import total\ndef test_it():\n    total([])"} if tests is None else tests
    entries = tuple(Label(name, "a number", (reasons or {}).get(name, "")) for name in labels)
    return source(modules, tests, entries)


@pytest.fixture(scope="module")
def project():
    return Index.read(ROOT)


def test_every_label_of_this_project_is_known_placed_or_explained_and_every_place_tested(project):
    assert [str(fault) for fault in project.faults()] == []
    assert len(project.labels) > 100


def test_the_page_of_this_project_is_what_its_docstrings_and_tests_give(project):
    written = (ROOT / PAGE).read_text(encoding="utf-8")
    assert written == project.page(), "run: make schema"


def test_the_index_of_this_project_knows_where_its_first_equations_are_computed(project):
    places = {label: [place.full for place in places] for label, places in project.places.items()}
    assert places["eq:cmi"][0] == "afa.scores.gain.cmi"
    assert places["eq:wald_mag"][-1].startswith("afa.engine.")
    assert "afa.scores.preference.two_elbo" in places["eq:two-elbo-def"]
    assert "tests/scores/test_gain.py" in project.tested("afa.scores.gain.cmi")[0]


def test_without_a_gap_there_is_no_fault_and_the_page_has_a_row_for_each_place():
    page = index().page()
    assert "| `eq:sum` | a number | `p.a.total` | test_a |" in page
    assert "| `eq:step` | a number | `p.a._add` | through `p.a`: test_a |" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"labels": ("eq:sum", "eq:step", "eq:lost")}, ["eq:lost", "found none", "say in docs/equations.csv why"]),
        ({"labels": ("eq:sum", "eq:step", "prop:lost")}, ["prop:lost", "found none"]),
        ({"labels": ("eq:sum",)}, ["p.a._add", "the label eq:step", "correct the docstring"]),
        ({"tests": {}}, ["p.a.total", "no test that leads to it"]),
        ({"reasons": {"eq:step": "not needed"}}, ["p.a._add", "said not to be implemented"]),
    ],
    ids=["equation without a place", "claim without a place", "label unknown", "no test", "reason out of date"],
)
def test_a_gap_is_a_fault_that_names_it_and_there_is_no_page(changed, words):
    faulty = index(**changed)
    assert any(all(word in str(fault) for word in words) for fault in faulty.faults()), faulty.faults()
    with pytest.raises(ReportError):
        faulty.page()


def test_a_label_with_a_reason_or_of_a_section_needs_no_place():
    explained = index(labels=("eq:sum", "eq:step", "eq:lost", "sec:intro"), reasons={"eq:lost": "never needed"})
    assert explained.faults() == []
    assert "| `eq:lost` | a number | not computed: never needed | |" in explained.page()
    assert "sec:intro" not in explained.page()


def test_a_module_stands_for_a_label_only_where_nothing_in_it_names_it():
    modules = {
        "p": "",
        "p.a": '"""About eq:sum and eq:step."""' + SUM.replace("(eq:step)", ""),
        "p.b": "from p import a",
    }
    assert {label: [each.full for each in places] for label, places in index(modules).places.items()} == {
        "eq:sum": ["p.a.total"],
        "eq:step": ["p.a"],
    }


def test_the_text_below_a_constant_and_the_docstring_of_a_method_name_labels_too():
    modules = {
        "p": "",
        "p.a": '''
        LIMIT = 3
        """The most (eq:limit)."""
        class Sum:
            STEP = 1
            """Its step (eq:step)."""
            def total(self):
                """The sum (eq:sum)."""
        ''',
    }
    assert sorted(each.full for places in index(modules).places.values() for each in places) == [
        "p.a.LIMIT",
        "p.a.Sum.STEP",
        "p.a.Sum.total",
    ]


@pytest.mark.parametrize(
    "test",
    [
        "from p.a import total\ndef test_it():\n    assert total([]) == 0",
        "from p.a import total as other\ndef test_it():\n    other([])",
        "from p import total\ndef test_it():\n    total([])",
        "import p\ndef test_it():\n    p.total([])",
        "import p.a\ndef test_it():\n    p.a.total([])",
        "from p import a\ndef test_it():\n    a.total([])",
        "def test_it():\n    from p.a import total\n    total([])",
        "from p.a import total\ndef helper():\n    return total([])\ndef test_it():\n    helper()",
        "from p.a import total\n@fixture\ndef made():\n    return total([])\ndef test_it(made):\n    pass",
        "from p.a import total\nCASES = [total([])]\n@parametrize(CASES)\ndef test_it(case):\n    pass",
    ],
)
def test_a_test_names_a_function_by_any_import_and_through_what_of_its_own_file_it_uses(test):
    modules = {"p": "from p.a import total", "p.a": SUM}
    assert source(modules, {"tests/test_a.py": test}).tested("p.a.total") == (["tests/test_a.py"], [])


@pytest.mark.parametrize(
    "test",
    [
        "def total(x):\n    return x\ndef test_it():\n    total([])",
        "from q import total\ndef test_it():\n    total([])",
    ],
)
def test_a_function_that_no_test_uses_is_not_tested(test):
    assert source({"p": "", "p.a": SUM}, {"tests/test_a.py": test}).tested("p.a.total") == ([], [])


def test_a_method_is_named_by_its_attribute_in_a_test_file_of_its_module():
    modules = {"p": "", "p.a": "class Sum:\n    def total(self): ...\n    def rest(self): ...", "p.b": ""}
    found = source(modules, {"tests/test_a.py": "from p.a import Sum\ndef test_it():\n    Sum().total()"})
    assert found.tested("p.a.Sum.total") == (["tests/test_a.py"], [])
    assert found.tested("p.a.Sum.rest") == (["tests/test_a.py"], ["p.a"])
    elsewhere = source(modules, {"tests/test_b.py": "import p.b\ndef test_it(sums):\n    p.b\n    sums.total()"})
    assert elsewhere.tested("p.a.Sum.total") == ([], [])


def test_the_nearest_module_that_a_test_imports_from_stands_for_what_it_imports_itself():
    modules = {
        "p": "",
        "p.a": SUM,
        "p.b": "from p.a import total\ndef near():\n    return total([])",
        "p.c": "from p import b\ndef far():\n    return b.near()",
    }
    tests = {
        "tests/test_b.py": "from p.b import near\ndef test_it():\n    near()",
        "tests/test_c.py": "from p.c import far\ndef test_it():\n    far()\ndef test_again():\n    far()",
    }
    assert source(modules, tests).tested("p.a._add") == (["tests/test_b.py"], ["p.b"])


def test_the_file_of_the_module_comes_first_and_then_those_that_have_its_name():
    test = "from p.a import total\ndef test_it():\n    total([])"
    tests = {f"tests/{name}.py": test for name in ("test_0", "test_a", "test_aa", "test_b")}
    assert "| `p.a.total` | test_a, test_aa, test_0, test_b |" in index(tests=tests).page()


def test_the_labels_of_this_project_are_those_of_the_paper_in_its_order_with_a_reason_only_where_one_can_stand(project):
    labels = [label.name for label in project.labels]
    assert len(set(labels)) == len(labels)
    assert [label for label in project.labels if not LABEL.fullmatch(label.name) or not label.what] == []
    assert (
        labels.index("eq:class_mrf") < labels.index("eq:cmi") < labels.index("eq:mf-update") < labels.index("eq:lc-mf")
    )
    assert {label.kind for label in project.labels if label.not_implemented} <= set(COMPLETE)


def test_outside_a_checkout_the_command_says_where_to_run_it(tmp_path):
    command = [sys.executable, str(ROOT / "tools/equations.py")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("afa: ")
    assert "run this in the project's folder" in ran.stderr
    assert not (tmp_path / PAGE).exists()
