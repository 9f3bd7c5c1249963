"""The code digest changes when what a command runs changes, and at no other time."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from afa.errors import ConfigError
from afa.paper import codedigest
from afa.paper.codedigest import Code, user_files, versions

AFA = Path(codedigest.__file__).parents[1]
STAGE = "afa.stage:run"
FILES = {
    "__init__.py": "",
    "errors.py": (AFA / "errors.py").read_text(encoding="utf-8"),
    "io/__init__.py": "",
    "io/files.py": "def atomic_file():\n    return 1\n",
    "model/__init__.py": "",
    "model/orders.py": '''"""A module."""\n\n\ndef random_order():\n    """A function."""\n    return 1\n''',
    "engine/__init__.py": "from afa.engine.walk import STEP\n",
    "engine/state.py": "LEVEL = 1\n",
    "engine/walk.py": "from afa.engine.state import LEVEL\n\nSTEP = LEVEL\n",
    "other.py": "NUMBER = 1\n",
    "stage.py": (
        "import importlib\n\nfrom afa import engine\nfrom afa.model.orders import random_order\n\nPURPOSE = 'curve'\n\n"
        "def run():\n    return engine, random_order, importlib.import_module('afa.other')\n\n"
        "def summarise():\n    return PURPOSE\n"
    ),
}
"""A small package: a stage that imports a package, whose module imports another, and a function of one more."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small package, which digests are computed from."""
    folder = tmp_path / "afa"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(codedigest, "PACKAGE", folder)
    return folder


def digest(root: str = STAGE) -> str:
    return Code().digest(root)


def edit(file: Path, change: Callable[[str], str]) -> None:
    text = file.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text
    file.write_text(changed, encoding="utf-8")


def test_a_copy_has_the_digest_of_the_original(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = digest("afa.errors")
    monkeypatch.setattr(codedigest, "PACKAGE", AFA)
    (package / "errors.py").unlink()
    assert digest("afa.errors") == copied


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: "# a comment\n" + text, id="comment"),
        pytest.param(lambda text: text.replace("\n\n\ndef ", "\n\n\n\n\ndef "), id="white space"),
        pytest.param(lambda text: text.replace("A module.", "Another docstring."), id="docstring of the module"),
        pytest.param(lambda text: text.replace("A function.", "Another docstring."), id="docstring"),
    ],
)
def test_comments_white_space_and_docstrings_do_not_change_it(package: Path, change: Callable[[str], str]) -> None:
    before = digest()
    edit(package / "model/orders.py", change)
    assert digest() == before


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        pytest.param("model/orders.py", True, id="the module of an imported function"),
        pytest.param("engine/__init__.py", True, id="an imported package"),
        pytest.param("engine/state.py", True, id="a module that an imported one imports"),
        pytest.param("other.py", False, id="a module imported by its name alone, as settings are"),
        pytest.param("io/files.py", False, id="a module that nothing imports"),
    ],
)
def test_a_changed_module_changes_it_exactly_if_it_is_imported(package: Path, file: str, counts: bool) -> None:
    before = digest()
    edit(package / file, lambda text: text + "\n\nANOTHER = 1\n")
    assert (digest() != before) == counts


def test_a_change_in_how_a_stage_is_summarised_does_not_change_how_it_is_run(package: Path) -> None:
    before, other = digest(), digest("afa.stage:summarise")
    edit(package / "stage.py", lambda text: text.replace("'curve'", "'curves'"))
    assert digest() == before
    assert digest("afa.stage:summarise") != other


def test_a_helper_that_a_function_uses_belongs_to_it_and_one_it_does_not_use_does_not(package: Path) -> None:
    module = package / "made.py"
    module.write_text(
        "LEVEL = 1\n\ndef used():\n    return LEVEL\n\ndef unused():\n    return 2\n\ndef root():\n    return used()\n"
    )
    before = digest("afa.made:root")
    edit(module, lambda text: text.replace("return 2", "return 3"))
    assert digest("afa.made:root") == before
    edit(module, lambda text: text.replace("LEVEL = 1", "LEVEL = 5"))
    assert digest("afa.made:root") != before


def test_an_import_at_the_top_counts_only_for_the_functions_that_use_it(package: Path) -> None:
    (package / "made.py").write_text(
        "from afa.model.orders import random_order\n\ndef with_it():\n    random_order\n\ndef without():\n    0\n"
    )
    with_it, without = digest("afa.made:with_it"), digest("afa.made:without")
    edit(package / "model/orders.py", lambda text: text.replace("return 1", "return 2"))
    assert digest("afa.made:with_it") != with_it
    assert digest("afa.made:without") == without


def test_a_function_that_a_module_only_imports_has_the_digest_of_its_own_module(package: Path) -> None:
    (package / "made.py").write_text("from afa.home import root as root\n\ndef other():\n    return 1\n")
    home = package / "home.py"
    home.write_text("def used():\n    return 1\n\ndef unused():\n    return 2\n\ndef root():\n    return used()\n")
    before = digest("afa.made:root")
    edit(home, lambda text: text.replace("return 2", "return 3"))
    edit(package / "made.py", lambda text: text + "\n\nANOTHER = 1\n")
    assert digest("afa.made:root") == before
    edit(home, lambda text: text.replace("return 1", "return 4"))
    assert digest("afa.made:root") != before


def test_a_module_with_a_folder_of_data_of_its_name_beside_it_is_read(package: Path) -> None:
    (package / "made.py").write_text("LEVEL = 1\n")
    (package / "made").mkdir()
    (package / "made" / "text.md").write_text("data\n")
    (package / "user.py").write_text("from afa.made import LEVEL\n")
    before = digest("afa.user")
    edit(package / "made.py", lambda text: text.replace("1", "2"))
    assert digest("afa.user") != before


def notebook(folder: Path, *cells: str) -> Path:
    file = folder / "made.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]}))
    return file


def test_a_notebook_has_the_digest_of_what_its_cells_import_and_nothing_else(package: Path, tmp_path: Path) -> None:
    made = notebook(tmp_path, "%matplotlib inline\nfrom afa.model.orders import random_order", "1 + 1")
    before = Code().digest(str(made))
    edit(package / "other.py", lambda text: text + "\n\nANOTHER = 1\n")
    assert Code().digest(str(made)) == before
    edit(package / "model/orders.py", lambda text: text.replace("return 1", "return 2"))
    assert Code().digest(str(made)) != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "made.ipynb: found no notebook"),
        ("[]", "made.ipynb: found no notebook"),
        (
            '{"cells": [{"cell_type": "code", "source": ["import"]}]}',
            "made.ipynb, line 1: found a module that does not",
        ),
    ],
)
def test_a_file_that_is_no_notebook_is_a_config_error_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    made = tmp_path / "made.ipynb"
    made.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        Code().digest(str(made))


def test_a_function_that_there_is_not_is_an_error(package: Path) -> None:
    with pytest.raises(KeyError, match="no top-level nosuch"):
        digest("afa.stage:nosuch")


def test_the_files_of_a_users_module_are_its_own_and_those_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "rule_of_a_user.py": "import numpy.linalg\nimport afa.planner.rules\nfrom helpers_of_a_user import near\n",
        "helpers_of_a_user/__init__.py": "",
        "helpers_of_a_user/near.py": "from . import far\n",
        "helpers_of_a_user/far.py": "import json\n",
        "helpers_of_a_user/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert user_files("no_module_of_a_user") == []
    found = {path.relative_to(tmp_path).as_posix() for path in user_files("rule_of_a_user")}
    assert found == set(files) - {"helpers_of_a_user/unused.py"}
    (tmp_path / "helpers_of_a_user/far.py").write_text("import json\ndef\n")
    with pytest.raises(ConfigError, match=r"far\.py, line 2: found a module that does not parse"):
        user_files("rule_of_a_user")


def test_a_module_that_a_users_rule_imports_by_its_name_or_from_its_own_folder_belongs_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "rules_by_a_user/__init__.py": "",
        "rules_by_a_user/mine.py": (
            "import importlib\nfrom . import near\n"
            "def choose():\n    return importlib.import_module('rules_by_a_user.named')\n"
        ),
        "rules_by_a_user/near.py": (
            "from importlib import import_module\nfar = import_module('.far', package=__package__)\n"
        ),
        "rules_by_a_user/named.py": "",
        "rules_by_a_user/far.py": "",
        "rules_by_a_user/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {path.relative_to(tmp_path).as_posix() for path in user_files("rules_by_a_user.mine")}
    assert found == set(files) - {"rules_by_a_user/unused.py"}
    (tmp_path / "rules_by_a_user/far.py").write_text("import importlib\n\nimportlib.import_module('a' + 'b')\n")
    with pytest.raises(ConfigError, match=r"far\.py, line 3: found import_module\('a' \+ 'b'\)"):
        user_files("rules_by_a_user.mine")


MODULE = """\
from afa.errors import Fault
LOWER, *UPPER = 1, 2, 3
ONE, OTHER = 4, 5
COUNTS = [1]
COUNTS += [2]
TABLE = {}
TABLE["a"] = 6
try:
    LEVEL = 7
except ValueError:
    LEVEL = 8
if LEVEL:
    DEPTH = 9
with open(__file__) as TEXT:
    pass
for EACH in range(10):
    pass
while False:
    NEVER = 11
UNUSED = 12
COUNTS.append(13)

async def root():
    return LOWER, UPPER, OTHER, COUNTS, TABLE, LEVEL, DEPTH, TEXT, EACH, NEVER
"""


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13])
def test_every_statement_that_sets_or_changes_a_name_that_a_function_uses_belongs_to_it(
    package: Path, number: int
) -> None:
    made = package / "made.py"
    made.write_text(MODULE)
    before = digest("afa.made:root")
    edit(made, lambda text: re.sub(rf"\b{number}\b", "99", text))
    assert digest("afa.made:root") != before


def test_a_name_that_a_function_does_not_use_does_not_belong_to_it(package: Path) -> None:
    made = package / "made.py"
    made.write_text(MODULE)
    before = digest("afa.made:root")
    edit(made, lambda text: text.replace("UNUSED = 12", "UNUSED = 99"))
    assert digest("afa.made:root") == before


def test_a_local_name_of_a_function_is_not_the_same_name_of_its_module(package: Path) -> None:
    made = package / "made.py"
    made.write_text(
        "given = 1\nstored = 2\nchanged = [3]\nshared = 4\ndefault = 5\n\n"
        "def root(given, other=default):\n    global shared\n    shared = stored = given\n    changed[0] = 6\n"
        "    return [stored for _ in changed]\n"
    )
    before = digest("afa.made:root")
    for number, counts in {1: False, 2: False, 3: True, 4: True, 5: True}.items():
        whole = made.read_text()
        edit(made, lambda text, number=number: text.replace(str(number), "99", 1))
        assert (digest("afa.made:root") != before) == counts, number
        made.write_text(whole)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no statement `type`")
def test_a_type_alias_that_a_function_uses_belongs_to_it(package: Path) -> None:
    made = package / "made.py"
    made.write_text("type Number = int\n\ndef root(x: Number):\n    return x\n")
    before = digest("afa.made:root")
    edit(made, lambda text: text.replace("int", "float"))
    assert digest("afa.made:root") != before


def test_a_statement_that_is_not_known_is_named_with_its_file_and_line(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "made.py").write_text("A = 1\nassert A\n")
    known = tuple(kind for kind in codedigest._KNOWN_STATEMENTS if kind is not ast.Assert)
    monkeypatch.setattr(codedigest, "_KNOWN_STATEMENTS", known)
    with pytest.raises(ConfigError, match=r"made\.py, line 2: .* which names the statement Assert binds"):
        digest("afa.made")


def test_a_module_that_does_not_parse_is_named_with_its_line_and_stops_only_what_reaches_it(package: Path) -> None:
    before = digest()
    (package / "other.py").write_text("y = 1\nx = (\n")
    assert digest() == before
    with pytest.raises(ConfigError, match=r"other\.py, line 2: found a module that does not parse"):
        digest("afa.other")


ERRORS = """\
import typer
from afa.errors import ConfigError, Fault
STEP = "a constant"
def root(name: str = typer.Option("--name", help="words of the help"), step: str = "words of a default"):
    "words of a docstring"
    found, kind = f"words of a name {name!r}", "data in a name"
    if name == "data to compare with":
        raise ConfigError(Fault("words in place", found, "words of a" + "sum" if name else "words of a branch", step))
    raise ValueError("data of another error", kind, STEP, ", ".join(Fault(f"{name + 'data in a value'}", "", "", "")))
"""


@pytest.mark.parametrize("word", sorted(set(re.findall(r"words [a-z ]*[a-z]", ERRORS))))
def test_other_words_of_an_error_or_a_help_do_not_change_it(package: Path, word: str) -> None:
    made = package / "made.py"
    made.write_text(ERRORS)
    before = digest("afa.made:root")
    edit(made, lambda text: text.replace(word, f"other {word}"))
    assert digest("afa.made:root") == before


@pytest.mark.parametrize("word", ["a constant", *sorted(set(re.findall(r"data [a-z ]*[a-z]", ERRORS))), "--name", "!r"])
def test_a_text_that_may_be_data_and_the_values_in_a_text_change_it(package: Path, word: str) -> None:
    made = package / "made.py"
    made.write_text(ERRORS)
    before = digest("afa.made:root")
    edit(made, lambda text: text.replace(word, "!s" if word == "!r" else f"other {word}"))
    assert digest("afa.made:root") != before


def test_how_every_fault_is_worded_changes_no_digest(package: Path) -> None:
    before = digest("afa.errors")
    edit(package / "errors.py", lambda text: text.replace("; expected {expected}", "; we expected {expected}"))
    edit(package / "errors.py", lambda text: text.replace('"leave it out, or give such a number"', '"choose another"'))
    assert digest("afa.errors") == before
    edit(package / "errors.py", lambda text: text.replace("LONGEST_PART = 4_000", "LONGEST_PART = 40"))
    assert digest("afa.errors") != before


def test_what_was_found_in_a_source_is_kept_and_only_saves_time(package: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    first, before = Code(known), digest()
    assert first.digest(STAGE) == before
    first.keep()
    again = Code(known)
    assert again.digest(STAGE) == before
    known.unlink()
    again.keep()
    assert not known.exists()  # nothing was new
    known.write_text("[")
    assert Code(known).digest(STAGE) == before


def test_the_versions_of_the_packages_behind_the_numbers_are_the_installed_ones() -> None:
    assert versions() == ", ".join(f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "numba", "pandas"))
