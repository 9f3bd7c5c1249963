"""Define command-line options that several commands share, and print tables as JSON.

A command's main input is an argument: for example, the folder of a bundle, a cohort, a labelled data set or a study. If
a workflow command also needs a bundle or a cohort, the user gives it by the option `--bundle` or `--cohort`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.models import ArgumentInfo

from afa.errors import ConfigError, Fault

if TYPE_CHECKING:
    from pandas import DataFrame

    from afa.elicit.live import Terms
    from afa.inference.meanfield import Solver
    from afa.model.bundle import Bundle

FOLDER, FILE = "FOLDER", "FILE"
"""Metavar of an option for output; for a file, the allowed suffixes follow: FILE.csv|.parquet."""


def output_option(*endings: str, to: str = "--out", about: str = "where to write; no partial output is left") -> Any:
    """Return a Typer option for an output folder, or for an output file with one of the suffixes `endings`."""
    return typer.Option(to, metavar=FILE + "|".join(endings) if endings else FOLDER, help=about)


_BUNDLE, _COHORT = "bundle folder", "cohort folder"
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help=_BUNDLE)]
BundleFolder = Annotated[Path, typer.Option("--bundle", help=_BUNDLE)]
BundleIfAny = Annotated[Path | None, typer.Option("--bundle", help=_BUNDLE)]
CohortArgument = Annotated[Path, typer.Argument(metavar="COHORT", help=_COHORT)]
CohortFolder = Annotated[Path, typer.Option("--cohort", help=_COHORT)]
CohortIfAny = Annotated[Path | None, typer.Option("--cohort", help=_COHORT)]
CohortFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="a file of config/cohorts")]
FieldArgument = Annotated[Path, typer.Argument(metavar="FIELD", help="field folder: the folder of a labelled data set")]
FieldTables = Annotated[
    Path | None,
    typer.Option("--tables", help="folder of tables that are not in the repository; each table is at FIELD/FILE"),
]
RecordArgument = Annotated[Path, typer.Argument(metavar="RECORD", help="folder of recorded answers")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="folder of a finished run, results/<run>")]
PaperFolder = Annotated[
    Path, typer.Option("--paper", help="folder with the paper's tables and claims, and the file answers.yaml")
]
Out = Annotated[Path, output_option()]
RowsFile = Annotated[Path, output_option(".parquet", ".csv")]
Page = Annotated[Path, output_option(".html")]
FetchedFile = Annotated[Path, typer.Option("--source", help="file written by `afa cohort fetch`")]
TernaryTest = Annotated[
    Literal["empirical", "normal", "t"],
    typer.Option("--test", help="statistical test by which a value becomes -1, 0 or +1"),
]
Level = Annotated[float, typer.Option("--level", help="significance level of the test by which values are encoded")]
ReferenceOption = Annotated[
    Literal["controls", "cohort"],
    typer.Option("--reference", help="encode values by comparison with the controls, or with the cohort's median"),
]
Threshold = Annotated[
    float,
    typer.Option(
        "--threshold", min=0, help="with --reference cohort: distance of cut points from the median, in robust SDs"
    ),
]
AliasFile = Annotated[Path | None, typer.Option("--aliases", help="CSV file with alternative symbols of each gene")]
EnsemblFile = Annotated[Path | None, typer.Option("--ensembl", help="CSV file with the Ensembl ids of each gene")]
MinAgree = Annotated[
    int,
    typer.Option(
        min=1,
        help="a gene is used if at least this number of model runs name it, all with the same direction of shift",
    ),
]
DroppedFile = Annotated[
    Path | None, output_option(".csv", to="--dropped", about="where to write the excluded genes, with reasons")
]
Shard = Annotated[str, typer.Option(help="I/N: split the patients into N parts, and process part I (from 1 to N)")]
Threads = Annotated[int, typer.Option(min=1, help="number of threads; the results do not depend on it")]
Resamples = Annotated[int, typer.Option(min=1, help="number of bootstrap resamples of the patients")]
Confidence = Annotated[float, typer.Option(help="confidence level of the bootstrap intervals")]
AsJson = Annotated[bool, typer.Option("--json", help="print the table as JSON, for another program")]
PromptPrice = Annotated[float, typer.Option("--prompt-price", min=0, help="price of a million prompt tokens")]
AnswerPrice = Annotated[float, typer.Option("--answer-price", min=0, help="price of a million answer tokens")]
CostsOption = Annotated[
    Literal["own", "equal"] | None,
    typer.Option("--costs", help="own: use the costs in the bundle; equal: use the same cost for every feature"),
]


BackgroundOption = Annotated[
    str | None,
    typer.Option(
        "--background",
        help=(
            "source of the value frequencies that the score `background` and the rule `frontier` need: elicited, "
            "uniform, or a table or cohort folder of other patients; the default is elicited if the bundle has "
            "probabilities"
        ),
    ),
]


def background_of(named: str | None, bundle: Bundle, patient: str | None = None) -> str | dict[str, Any] | None:
    """Return the planner's option `background`: a name, or the value frequencies of a table as plain Python values.

    If `named` is the path of a table, `patient` is excluded from this table. If fewer than 30 other patients remain,
    their frequencies are mixed with the bundle's probabilities (`Background.mixture`).
    """
    if named in (None, "elicited", "uniform"):
        return named
    from afa.cohort.cells import read_patients
    from afa.scores.belief import FEW_PATIENTS
    from afa.scores.belief import Background as Frequencies

    table = read_patients(Path(named), bundle, drop_missing=True).frame().drop(index=[patient], errors="ignore")
    values = table.reindex(columns=list(bundle.features)).to_numpy(float)
    few = len(values) < FEW_PATIENTS
    return (Frequencies.mixture(bundle, values) if few else Frequencies.of_patients(bundle, values)).plain()


@dataclass(frozen=True)
class TaskOptions:
    """Options of the task: find the k likeliest entities, or decide whether the patient has one given entity."""

    k: Annotated[int | None, typer.Option("--k", min=1, help="number of entities to find; 1 by default")] = None
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity", help="decide only whether the patient has this entity, instead of ranking all entities"
        ),
    ] = None
    coupling: Annotated[
        Literal["differential", "shared", "explicit"] | None,
        typer.Option(
            "--coupling",
            help="how the models of patients with and without an entity are made: explicit uses the bundle's "
            "probabilities, differential and shared use the bundle's potentials; shared can only be used with --entity",
        ),
    ] = None
    holds: Annotated[
        Literal["several", "one", "one or none"] | None,
        typer.Option(
            "--holds",
            help=(
                "only for bundles with probabilities: number of entities that a patient can have; by default the "
                "bundle's setting"
            ),
        ),
    ] = None
    tau: Annotated[
        str | None,
        typer.Option(
            "--tau",
            help="factor by which the evidence is multiplied: a number up to 1, or `effective` (docs/decisions.md)",
        ),
    ] = None


@dataclass(frozen=True)
class Solves:
    """Options of the mean-field solver, and the number of threads."""

    damping: Annotated[float, typer.Option(help="weight of the new marginals in each mean-field sweep")] = 0.5
    tolerance: Annotated[
        float, typer.Option(help="mean-field sweeps stop when no probability changes by more than this")
    ] = 1e-4
    max_iterations: Annotated[int, typer.Option(help="largest number of damped sweeps")] = 200
    threads: Threads = 1

    def solver(self) -> Solver:
        """Return a mean-field solver with the settings of these options."""
        from afa.inference.meanfield import Solver

        return Solver(self.damping, self.tolerance, self.max_iterations)


@dataclass(frozen=True)
class Asks:
    """Options of a live run, which asks a language model for answers that are not recorded."""

    live: Annotated[
        bool, typer.Option("--live", help="ask the model named by AFA_LLM_MODEL for answers that are not recorded")
    ] = False
    calls: Annotated[
        int | None,
        typer.Option(min=0, help="cap on the number of model calls, including those in the recorded answers"),
    ] = None
    tokens: Annotated[int | None, typer.Option(min=0, help="cap on the total tokens of prompts and answers")] = None
    money: Annotated[float | None, typer.Option(min=0, help="cap on the cost, in the currency of the prices")] = None
    no_caps: Annotated[bool, typer.Option("--no-caps", help="ask a model, with no cap on calls, tokens and cost")] = (
        False
    )
    prompt_price: PromptPrice = 0.0
    answer_price: AnswerPrice = 0.0
    at_once: Annotated[int, typer.Option(min=1, help="number of concurrent model calls")] = 4

    def terms(self) -> Terms:
        """Return the caps, prices and number of concurrent calls of a live run."""
        from afa.elicit.budget import Caps, Prices
        from afa.elicit.live import Terms

        caps, prices = Caps(self.calls, self.tokens, self.money), Prices(self.prompt_price, self.answer_price)
        return Terms(caps, prices, self.no_caps, self.at_once)


def prepared(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with each dataclass parameter replaced by Typer options, one for each dataclass field.

    The returned function first checks all paths (`_check_places`) and then calls the command. For example, an output
    must not overwrite an input.
    """
    hints, defaults = get_type_hints(command, include_extras=True), dict[str, Any]()
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            hints |= get_type_hints(groups[name], include_extras=True)
            defaults |= {each.name: each.default for each in fields(groups[name])}
        else:
            defaults[name] = parameter.default
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
    ]

    @wraps(command)
    def checked(**given: Any) -> None:
        _check_places({each.name: each.annotation.__metadata__[0] for each in options}, given)
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    checked.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    checked.__annotations__ = {each.name: each.annotation for each in options}
    return checked


def _check_places(options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise a `ConfigError` if an output path equals or contains another path of the command.

    An output folder must not be an existing file. An output file must not be a folder, and needs one of the option's
    suffixes.
    """
    several = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    paths = [(name, path) for name, values in several.items() for path in values if isinstance(path, Path)]
    for name, path in paths:
        form = options[name].metavar or ""
        if not form.startswith((FOLDER, FILE)):
            continue
        target, endings = path.resolve(), form.removeprefix(FILE)
        found, expected = "", "a folder" if endings == FOLDER else f"a file {endings.replace('|', ' or ')}"
        for other, place in ((_name_in_help(other, options[other]), place) for other, place in paths if other != name):
            if place.resolve().is_relative_to(target):
                found = f"the same as {other}" if place.resolve() == target else f"{other} {place} in it"
                expected = "a place apart from the other paths"
        if not found and endings == FOLDER:
            found = "a file" if target.is_file() else ""
        elif not found and target.is_dir():
            found = "a folder"
        elif not found and path.suffix not in endings.split("|"):
            found, expected = f"the suffix '{path.suffix}'", expected.removeprefix("a file ")
        if found:
            raise ConfigError(
                Fault(f"{_name_in_help(name, options[name])} {path}", found, expected, "choose another name")
            )


def _name_in_help(name: str, option: Any) -> str:
    """Return the name of a parameter as shown in the help."""
    if isinstance(option, ArgumentInfo):
        return option.metavar or name.upper()
    return str((option.param_decls or [f"--{name.replace('_', '-')}"])[0])


def as_json(table: DataFrame | list[dict[str, Any]], **more: Any) -> str:
    """Return a table as a JSON object on one line.

    The value of the key `rows` is a list with one object for each row. Each keyword argument in `more` is a further
    key.
    """
    rows = table if isinstance(table, list) else loads(table.to_json(orient="records"))
    return dumps(more | {"rows": rows}, ensure_ascii=False)


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return a mapping of names to values, parsed from texts of the form NAME=VALUE."""
    found = dict(text.partition("=")[::2] for text in texts)
    for text in texts:
        if "=" not in text or text.startswith("=") or len(found) < len(texts):
            raise ConfigError(Fault(option, repr(text), "distinct names, each as NAME=VALUE", "pass e.g. run=demo"))
    return found
