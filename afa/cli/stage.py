"""`afa stage`, `afa gather`, `afa summarise`, `afa join`: the jobs of the workflow, for every stage alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afa.cli.options import BundleIfAny, CohortIfAny, Out, Shard, Threads

if TYPE_CHECKING:
    from types import ModuleType

    from afa.stages.base import Stage

app = typer.Typer()

Name = Annotated[str, typer.Argument(help="a module of afa/stages")]
Chosen = Annotated[str, typer.Option("--settings", help="JSON like config.yaml, of what the stage reads alone")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="NAME=PATH, another input; repeatable")]
Parts = Annotated[list[Path], typer.Argument(help="what the jobs before wrote, in order")]


@app.command("stage", hidden=True)
def stage(
    name: Name,
    out: Out,
    settings: Chosen = "{}",
    bundle: BundleIfAny = None,
    cohort: CohortIfAny = None,
    inputs: Inputs = None,
    shard: Shard = "1/1",
    threads: Threads = 1,
) -> None:
    """Run one stage of the workflow; writes a folder of tables."""
    from inspect import signature

    from afa.stages.base import check_tables, stored
    from afa.stages.inputs import check_duels, load_inputs, load_stage_bundle, pairs, shard_of
    from afa.stats.tables import Tables, write_tables

    module = _module(name)
    described = module.STAGE
    folders: dict[str, Path] = {key: Path(value) for key, value in pairs("--input", inputs or []).items()}
    folders |= {key: value for key, value in (("bundle", bundle), ("cohort", cohort)) if value is not None}
    _check_inputs(name, described, folders)
    given: dict[str, Any] = {
        key: Tables(path) if _is_stage(key) else path
        for key, path in folders.items()
        if key in (*described.inputs, *described.optional)
    }
    if "cohort" in given:
        given["bundle"], given["cohort"] = load_inputs(folders["bundle"], folders["cohort"])
    elif "bundle" in given:
        given["bundle"] = load_stage_bundle(folders["bundle"])
    if described.duels:
        check_duels(given["bundle"], folders["bundle"])
    if described.sharded:
        given["patients"] = shard_of(len(given["cohort"].patients), shard)
    given |= _settings(module, described.settings, settings)
    if "threads" in signature(module.run).parameters:
        given["threads"] = threads
    tables = module.run(**given)
    check_tables(name, tables, described.tables)
    write_tables(stored(tables, described.single), out)


@app.command("summarise", hidden=True)
def summarise(name: Name, tables: Parts, out: Out, settings: Chosen = "{}", inputs: Inputs = None) -> None:
    """Write the rows of summary.csv that one stage's tables make."""
    from afa.stages.inputs import pairs
    from afa.stats.summary import write_summary
    from afa.stats.tables import Tables

    module = _module(name)
    beside = {key: Tables(Path(value)) for key, value in pairs("--input", inputs or []).items()}
    chosen = _settings(module, module.STAGE.summary, settings)
    write_summary([module.summarise(Tables(tables[0]), **beside, **chosen)], out)


@app.command("gather", hidden=True)
def gather(shards: Parts, out: Out) -> None:
    """Join the tables of all shards of a stage."""
    from afa.stats.tables import gather_tables

    gather_tables(shards, out)


@app.command("join", hidden=True)
def join(parts: Parts, out: Out) -> None:
    """Write summary.csv: the numbers of a run, one to a line."""
    from afa.stats.summary import join_summaries

    join_summaries(parts, out)


def _module(name: str) -> ModuleType:
    """The module of a stage; a `ConfigError` names those that there are."""
    from importlib import import_module

    from afa.errors import ConfigError, Fault

    if not _is_stage(name):
        raise ConfigError(Fault("afa stage", repr(name), "the name of a stage", "see the modules of afa/stages"))
    return import_module(f"afa.stages.{name}")


def _is_stage(name: str) -> bool:
    from importlib.util import find_spec

    return name.isidentifier() and find_spec(f"afa.stages.{name}") is not None


def _check_inputs(name: str, described: Stage, folders: Mapping[str, Path]) -> None:
    from afa.errors import ConfigError, Fault

    if missing := [key for key in described.inputs if key not in folders]:
        options = [f"--{key} FOLDER" if key in ("bundle", "cohort") else f"--input {key}=PATH" for key in missing]
        found, step = f"no {', '.join(missing)}", f"add {' '.join(options)}"
        raise ConfigError(Fault(f"afa stage {name}", found, "all its inputs", step))


def _settings(module: ModuleType, keys: Sequence[str], text: str) -> dict[str, Any]:
    """What a stage reads of the settings, by section."""
    from importlib import import_module
    from json import JSONDecodeError, loads

    from afa.errors import ConfigError, Fault
    from afa.stages.base import chosen

    try:
        document = loads(text)
    except JSONDecodeError as error:
        step = "pass for example '{\"top_k\": 3}'"
        raise ConfigError(Fault("--settings", str(error), "a JSON object", step)) from None
    # By name, so that no digest covers it: what a rule reads of the settings is in its parameters.
    known = dict(import_module("afa.stages.settings").SHARED)
    if own := module.STAGE.section:
        known[module.__name__.rpartition(".")[2]] = (own, own())
    return chosen(keys, known, document)
