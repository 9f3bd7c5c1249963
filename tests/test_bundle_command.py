"""`afa bundle`: what stamping and showing say to someone who writes a bundle."""

import shutil
from pathlib import Path

from typer.testing import CliRunner

from afa.cli import app

TINY = Path(__file__).parent / "data" / "bundle_tiny"


def answer(*arguments):
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return ran.exit_code, ran.output


def test_stamping_a_bundle_that_has_faults_says_so(tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "mine")
    assert answer("bundle", "stamp", folder) == (0, f"stamped {folder}\n")
    with (folder / "costs.csv").open("a", encoding="utf-8") as costs:
        costs.write("MUC2,free\n")
    code, output = answer("bundle", "stamp", folder)
    assert (code, output.splitlines()[0]) == (0, f"stamped {folder}")
    assert f"note: it has faults (2); `afa bundle validate {folder}` names them" in output


def test_showing_the_features_has_a_row_for_each_with_its_cost():
    code, output = answer("bundle", "show", TINY, "--features")
    lines = [line.split() for line in output.splitlines()[1:]]
    assert code == 0
    assert lines[0] == ["feature", "unary_up", "unary_down", "couplings_same", "couplings_opposite", "cost"]
    assert lines[2] == ["CXCL8", "2", "0", "1", "1", "2.0"]
