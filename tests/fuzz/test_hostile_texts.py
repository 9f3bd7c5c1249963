"""Names, numbers and YAML that are legal to a parser and hostile to what comes after it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from afa import TopKPlanner
from afa.cohort.config import load_cohort_config
from afa.cohort.encode import read_aliases
from afa.cohort.expression import read_gene_matrix
from afa.cohort.samples import read_family, read_series_matrix
from afa.errors import LONGEST_PART, AfaError, BundleError, CohortError, ConfigError, ElicitationError, Fault
from afa.io.yamlfile import read_mapping
from afa.model.bundle import load_bundle, save_bundle
from afa.model.study import load_study
from afa.paper.experiments.layer0_synthetic.portfolio import load_portfolio

ROOT = Path(__file__).parent.parent.parent


def bundle_at(folder: Path, *, unary: str | bytes, header: str = "name: x\nversion: '1'\n") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "bundle.yaml").write_text(header, encoding="utf-8")
    (folder / "unary.csv").write_bytes(unary if isinstance(unary, bytes) else unary.encode())
    (folder / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n", encoding="utf-8")
    return folder


def named(folder: Path, name: str) -> Path:
    quoted = name.replace('"', '""')
    return bundle_at(folder, unary=f'entity,feature,potential\n"{quoted}",A,1\nb,A,-1\n')


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a\r\nb",
        "a\tb",
        "a\x00b",
        "\u202egpj.exe",
        "a\u200fb",
        "\ufeffa",
        "a\u2028b",
        " a",
        "a" * 201,
        "\x1b[2J",
    ],
)
def test_a_name_that_cannot_be_shown_is_refused_on_one_line_that_can(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError) as caught:
        load_bundle(named(tmp_path / "b", name))
    assert "unary.csv" in str(caught.value)
    assert all(str(fault).isprintable() and len(str(fault)) < 500 for fault in caught.value.faults)


@pytest.mark.parametrize(
    "name", ["=HYPERLINK(1)", "-catenin", "+x", "@y", "a,b", 'a"b', "名前", "עברית", "a" * 200, "null"]
)
def test_a_name_that_can_be_shown_is_kept_exactly(tmp_path: Path, name: str) -> None:
    bundle = load_bundle(named(tmp_path / "b", name))
    assert bundle.entities[0] == name
    save_bundle(bundle, tmp_path / "again")
    assert load_bundle(tmp_path / "again").digest == bundle.digest


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        (lambda text: text, True),
        (lambda text: b"\xef\xbb\xbf" + text, True),
        (lambda text: text.replace(b"\n", b"\r\n"), True),
        (lambda text: text.replace(b"\n", b"\r"), True),
        (lambda text: text.decode().encode("utf-16"), False),
        (lambda text: text.decode().encode("utf-32"), False),
        (lambda text: text.replace(b"a", b"\xff", 1), False),
        (lambda text: text + b"\x00", False),
    ],
    ids=["plain", "BOM", "CRLF", "CR", "UTF-16", "UTF-32", "not UTF-8", "NUL"],
)
def test_a_table_in_each_encoding_is_read_alike_or_refused_by_its_name(
    tmp_path: Path, change: Callable[[bytes], bytes], is_read: bool
) -> None:
    folder = bundle_at(tmp_path / "b", unary=change(b"entity,feature,potential\na,A,1\nb,A,-1\n"))
    if is_read:
        np.testing.assert_array_equal(load_bundle(folder).unary, [[1], [-1]])
    else:
        with pytest.raises(BundleError, match=r"unary\.csv"):
            load_bundle(folder)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "nan", "inf", "1_0", "\u0661", "\uff11", "0x1", "9" * 400])
def test_a_number_without_a_size_of_this_world_is_refused(tmp_path: Path, number: str) -> None:
    with pytest.raises(BundleError, match=r"line 2, column potential: .* a finite number"):
        load_bundle(bundle_at(tmp_path / "b", unary=f"entity,feature,potential\na,A,{number}\nb,A,-1\n"))


def test_large_numbers_give_finite_scores(tmp_path: Path) -> None:
    bundle = load_bundle(
        bundle_at(tmp_path / "b", unary="entity,feature,potential\na,A,1e100\nb,A,-1e100\nc,B,1e100\n")
    )
    planner = TopKPlanner(bundle, k=1, score="linearity", gain="cmi")
    planner.observe("A", 1)
    assert np.isfinite(planner.scores()).all()
    assert planner.top_k() == ["a"]


def test_values_whose_sum_is_infinite_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("Gene\tGSM1\nA\t1e308\nB\t1e308\n", encoding="utf-8")
    with pytest.raises(CohortError, match="whose sum is not finite"):
        read_gene_matrix(path, {"GSM1": "GSM1"}, {"A"})


def test_a_table_of_many_unknown_names_is_refused_in_seconds(tmp_path: Path) -> None:
    names = [f"g{i:05d}" for i in range(20_000)]
    header = "name: x\nversion: '1'\nentities: [a]\nfeatures: [" + ", ".join(names) + "]\n"
    rows = "".join(f"a,h{i:05d},1\n" for i in range(20_000))
    folder = bundle_at(tmp_path / "b", unary="entity,feature,potential\n" + rows, header=header)
    begin = time.process_time()
    with pytest.raises(BundleError, match="19950 more rows with this fault"):
        load_bundle(folder)
    assert time.process_time() - begin < 30


def test_a_header_of_many_columns_is_refused_in_seconds(tmp_path: Path) -> None:
    columns = ",".join(f"c{i}" for i in range(30_000))
    begin = time.process_time()
    with pytest.raises(BundleError, match="30000 unknown columns") as caught:
        load_bundle(bundle_at(tmp_path / "b", unary=f"entity,feature,potential,{columns}\n"))
    assert len(caught.value.faults) < 100
    assert time.process_time() - begin < 10


def test_lists_that_would_need_a_table_of_many_gigabytes_are_refused(tmp_path: Path) -> None:
    entities = ", ".join(f"e{i}" for i in range(11_000))
    features = ", ".join(f"f{i}" for i in range(10_000))
    header = f"name: x\nversion: '1'\nentities: [{entities}]\nfeatures: [{features}]\n"
    with pytest.raises(BundleError, match="11000 entities on 10000 features"):
        load_bundle(bundle_at(tmp_path / "b", unary="entity,feature,potential\n", header=header))


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (laughs(9), "aliases that stand for more than"),
        ("a: &a [1, *a]\n", "aliases that stand for more than"),
        ("a: " + "[" * 100_000, "more than 50 levels"),
        ("a: " + '{"b": ' * 100_000, "more than 50 levels"),
        ("a: *b\n", "a text that begins with @, *"),
        ("a: 1\na: 2\n", "key 'a' given twice"),
        ("a: 2024-99-99\n", "no timestamp"),
        ("a: " + "9" * 5000 + "\n", "no int"),
        ("a: 0x" + "f" * 5000 + "\n", "beyond 64 bits"),
        ("a: 9223372036854775808\n", "beyond 64 bits"),
        ("a: !!int x\n", "no int"),
        ("a: !!bool maybe\n", "no bool"),
        ("a: !!timestamp x\n", "no timestamp"),
        ("a: !!float x\n", "no float"),
        ('a: "\\ud800"\n', "half a character"),
        ('a: "\\UFFFFFFFF"\n', "not YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "a text that begins with @, *, !"),
        ("a: !!python/name:os.system\n", "a text that begins with @, *, !"),
        ("a: !own {b: 1}\n", "a text that begins with @, *, !"),
        ("a: b\x00\n", "text that can be printed"),
        ("a: b\x1b[2J\n", "text that can be printed"),
    ],
)
def test_hostile_yaml_is_refused_at_once_by_its_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    begin = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_mapping(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()
    assert time.process_time() - begin < 2


def test_a_yaml_alias_of_ordinary_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &a [1, 2]\nb: *a\nc: [*a, *a]\n", encoding="utf-8")
    assert read_mapping(path) == {"a": [1, 2], "b": [1, 2], "c": [[1, 2], [1, 2]]}


def test_a_yaml_file_beyond_any_sensible_size_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 30)
    with pytest.raises(ConfigError, match="1073741824 bytes, of which at most"):
        read_mapping(path)


@pytest.mark.parametrize("name", ["bundle.yaml", "unary.csv", "pairwise.csv"])
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = bundle_at(tmp_path / "b", unary="entity,feature,potential\na,A,1\n")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(BundleError, match="a pipe or a device"):
        load_bundle(folder)


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1.0e+400"])
def test_a_threshold_that_no_value_can_be_held_against_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "x.yaml"
    own = read_mapping(ROOT / "config" / "cohorts" / "gse109142.yaml")
    own["labels"] = {"fever": {"key": "k", "reason": "r"}}
    body = json.dumps(own)[:-3] + f', "at_least": {value}' + "}}}"
    path.write_text(body, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"labels\.fever\.at_least: .*finite number"):
        load_cohort_config(path)


@pytest.mark.parametrize("name", ["../../x.gz", "/etc/passwd", "a/b", "..", ".hidden", "a\\b", "a\nb", ""])
def test_a_cohorts_files_have_names_and_no_folders(tmp_path: Path, name: str) -> None:
    own = read_mapping(ROOT / "config" / "cohorts" / "gse109142.yaml")
    own["metadata_file"] = name
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps(own), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"metadata_file: .*without folders"):
        load_cohort_config(path)


@pytest.mark.parametrize("pattern", ["(a{99999999999999999999})", "(" * 5000, "(?P<x", "[", "a"])
def test_a_pattern_that_is_none_is_refused(tmp_path: Path, pattern: str) -> None:
    own = read_mapping(ROOT / "config" / "cohorts" / "gse109142.yaml")
    own.setdefault("select", {})["derive"] = {"x": {"source": "title", "pattern": pattern}}
    path = tmp_path / "x.yaml"
    path.write_text(json.dumps(own), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"select\.derive\.x\.pattern"):
        load_cohort_config(path)


def test_a_story_that_is_a_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("one: {story: [drug-family]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="one, key story"):
        load_portfolio(path)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a\\b", ".x"])
def test_a_phenotype_is_a_name_that_a_file_can_have(tmp_path: Path, name: str) -> None:
    (tmp_path / "study.yaml").write_text("name: recorded\ndisease: influenza\n", encoding="utf-8")
    (tmp_path / "phenotypes.csv").write_text(f"phenotype,group,definition\n{name},g,d\n", encoding="utf-8")
    with pytest.raises(ElicitationError, match=r"phenotypes\.csv, line 2, column phenotype"):
        load_study(tmp_path)


def test_a_line_of_many_quotes_is_read_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("!Sample_title\t" + '"a\t' * 300_000 + "\n", encoding="utf-8")
    begin = time.process_time()
    with pytest.raises(CohortError, match="a quoted cell without its end"):
        read_series_matrix(path)
    assert time.process_time() - begin < 5


def test_an_entry_of_an_unknown_type_is_no_silent_loss(tmp_path: Path) -> None:
    path = tmp_path / "x.soft"
    text = "^SERIES = GSE1\n!Series_title = t\n^SAMPLE = GSM1\n!Sample_title = a\n^SAMPL = GSM2\n!Sample_title = b\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CohortError, match=r"an entry of the unknown type '\^SAMPL'"):
        read_family(path)


def test_a_table_of_gene_names_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for content in (b"symbol,alias\n\xff,a\n", b'symbol,alias\n"' + b"x" * 200_000 + b'",b\n'):
        path.write_bytes(content)
        with pytest.raises(
            CohortError, match=r"x\.csv, line \d: found (bytes that are not UTF-8|text that is not CSV)"
        ):
            read_aliases(path)


def test_a_fault_is_one_line_of_bounded_length_whatever_it_quotes() -> None:
    text = str(Fault("a\ud800\n", "\x1b[2J\u202e", "é", "x" * (LONGEST_PART * 2)))
    assert text.startswith(r"a\ud800\n: found \x1b[2J\u202e; expected é. Next step: xxx")
    assert text.isprintable()
    assert len(text) < LONGEST_PART + 100
    assert isinstance(AfaError(Fault("\ud800", "", "", "")).args[0].encode(), bytes)
