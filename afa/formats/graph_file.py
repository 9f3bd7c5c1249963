"""A bundle's graph as a file: GraphML, or the node-link JSON of NetworkX."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from afa.bundle import Bundle
from afa.errors import BundleError, Fault
from afa.files import atomic_file
from afa.formats.extra import library
from afa.formats.graph import from_networkx, to_networkx

NO_SUCH_GRAPH = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError)
"""What the readers of NetworkX raise over a file that holds something else."""


def write_graph(bundle: Bundle, path: str | Path, *, entity: str | None = None) -> None:
    """Write the graph of a bundle, or of one entity, by its suffix `.graphml` or `.json`; the same bytes again."""
    target = Path(path)
    writer, _ = _format(target)
    text = writer(to_networkx(bundle, entity))
    with atomic_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_graph(
    path: str | Path, *, name: str | None = None, version: str | None = None, entity: str | None = None
) -> Bundle:
    """The bundle of a graph file; options and faults as `from_networkx`, and a `BundleError` for a file of no graph."""
    source = Path(path)
    _, reader = _format(source)
    unusable = (*NO_SUCH_GRAPH, library("networkx").NetworkXException)
    try:
        graph = reader(source)
    except OSError as error:
        raise BundleError(
            Fault(str(source), error.strerror or "an error", "a readable file", "check the path")
        ) from None
    except unusable as error:
        found = f"text that is no such graph ({type(error).__name__}: {error})"
        raise BundleError(Fault(str(source), found, "a graph in this format", "write it anew with NetworkX")) from error
    return from_networkx(graph, name=name, version=version, entity=entity)


def _format(path: Path) -> tuple[Callable[[Any], str], Callable[[Path], Any]]:
    formats = {".graphml": (_graphml_text, _read_graphml), ".json": (_json_text, _read_json)}
    if path.suffix.lower() not in formats:
        found = f"the suffix {path.suffix!r}"
        raise BundleError(Fault(str(path), found, " or ".join(formats), "choose one of these formats"))
    return formats[path.suffix.lower()]


def _graphml_text(graph: Any) -> str:
    lines = library("networkx").generate_graphml(graph)
    return "<?xml version='1.0' encoding='utf-8'?>\n" + "\n".join(lines) + "\n"


def _read_graphml(path: Path) -> Any:
    return library("networkx").read_graphml(path)


def _json_text(graph: Any) -> str:
    return json.dumps(library("networkx").node_link_data(graph, edges="edges"), ensure_ascii=False, indent=1) + "\n"


def _read_json(path: Path) -> Any:
    return library("networkx").node_link_graph(json.loads(path.read_text(encoding="utf-8")), edges="edges")
