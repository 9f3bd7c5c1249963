"""The code digest changes when what a command runs changes, and at no other time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from afa import codedigest
from afa.codedigest import Code, user_files
from afa.errors import ConfigError

ROOT = Path(__file__).parent.parent
SIGN = "afa.stages.sign:run"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that digests are taken of."""
    copy = tmp_path / "afa"
    shutil.copytree(ROOT / "afa", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(codedigest, "PACKAGE", copy)
    return copy


def digest(root: str = SIGN) -> str:
    return Code().digest(root)


def edit(file: Path, change: Callable[[str], str]) -> None:
    text = file.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text
    file.write_text(changed, encoding="utf-8")


def test_a_copy_has_the_digest_of_the_original(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = digest()
    monkeypatch.setattr(codedigest, "PACKAGE", ROOT / "afa")
    assert digest() == copied


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: "# a comment\n" + text, id="comment"),
        pytest.param(lambda text: text.replace("\n\n\ndef ", "\n\n\n\n\ndef "), id="white space"),
        pytest.param(lambda text: text.replace('"""', '"""Another docstring. ', 1), id="docstring of the module"),
        pytest.param(lambda text: text.replace(') -> Floats:\n    """', ') -> Floats:\n    """More. '), id="docstring"),
    ],
)
def test_comments_white_space_and_docstrings_do_not_change_it(package: Path, change: Callable[[str], str]) -> None:
    before = digest("afa.preference")
    edit(package / "preference.py", change)
    assert digest("afa.preference") == before


def test_the_words_below_a_setting_do_not_change_what_reads_it(package: Path) -> None:
    before = digest("afa.stages.gauge:run")
    edit(
        package / "stages" / "gauge.py",
        lambda text: text.replace('    """random orders', '    """other words on orders'),
    )
    assert digest("afa.stages.gauge:run") == before
    edit(package / "stages" / "gauge.py", lambda text: text.replace("seeds: Seeds = (0,)", "seeds: Seeds = (1,)"))
    assert digest("afa.stages.gauge:run") != before


def test_a_changed_function_of_an_imported_module_changes_it(package: Path) -> None:
    before = digest()
    edit(package / "orders.py", lambda text: text.replace("key.digest()", "key.digest()[:8]"))
    assert digest() != before


def test_a_changed_module_that_is_imported_by_an_imported_one_changes_it(package: Path) -> None:
    before = digest()
    edit(package / "engine" / "state.py", lambda text: text + "\n\nANOTHER = 1\n")
    assert digest() != before


@pytest.mark.parametrize("module", ["cohort/simulate.py", "layer0.py", "copeland.py"])
def test_a_changed_module_that_is_not_imported_does_not_change_it(package: Path, module: str) -> None:
    before = digest()
    edit(package / module, lambda text: text + "\n\nANOTHER = 1\n")
    assert digest() == before


def test_a_change_in_how_a_stage_is_summarised_does_not_change_how_it_is_run(package: Path) -> None:
    neighbour = "afa.stages.sign:summarise"
    before, other = digest(), digest(neighbour)
    edit(
        package / "stages" / "sign.py",
        lambda text: text.replace('purpose="sign_convergence"', 'purpose="signs"'),
    )
    assert digest() == before
    assert digest(neighbour) != other


def test_a_package_itself_is_read_where_names_are_imported_from_it(package: Path) -> None:
    before = digest("afa.planner")
    edit(package / "allocate" / "__init__.py", lambda text: text.replace('"Choice"', '"Another"'))
    assert digest("afa.planner") != before


def test_a_package_that_imports_whatever_is_in_its_folder_has_all_of_it(package: Path) -> None:
    before, other = digest("afa.planner"), digest("afa.orders")
    (package / "allocate" / "mine.py").write_text("class Mine:\n    def choose(self, view):\n        return None\n")
    assert digest("afa.planner") != before
    assert digest("afa.orders") == other


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
        "from afa.orders import random_order\n\ndef with_it():\n    random_order\n\ndef without():\n    0\n"
    )
    with_it, without = digest("afa.made:with_it"), digest("afa.made:without")
    edit(package / "orders.py", lambda text: text.replace("key.digest()", "key.digest()[:8]"))
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
    made = notebook(tmp_path, "%matplotlib inline\nfrom afa.orders import random_order", "1 + 1")
    before = Code().notebook(made)
    edit(package / "copeland.py", lambda text: text + "\n\nANOTHER = 1\n")
    assert Code().notebook(made) == before
    edit(package / "orders.py", lambda text: text.replace("key.digest()", "key.digest()[:8]"))
    assert Code().notebook(made) != before


@pytest.mark.parametrize("text", ["", "[]", '{"cells": [{"cell_type": "code", "source": ["import"]}]}'])
def test_a_file_that_is_no_notebook_is_a_config_error_with_its_name(tmp_path: Path, text: str) -> None:
    made = tmp_path / "made.ipynb"
    made.write_text(text)
    with pytest.raises(ConfigError, match=r"made\.ipynb: found no notebook"):
        Code().notebook(made)


def test_a_function_that_there_is_not_is_an_error(package: Path) -> None:
    with pytest.raises(KeyError, match="no top-level nosuch"):
        digest("afa.cli.bundle:nosuch")


def test_the_files_of_a_users_module_are_its_own_and_those_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "rule_of_a_user.py": "import numpy.linalg\nimport afa.allocate\nfrom helpers_of_a_user import near\n",
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
    (tmp_path / "helpers_of_a_user/far.py").write_text("def\n")
    with pytest.raises(ConfigError, match=r"far.py: found no Python"):
        user_files("rule_of_a_user")
