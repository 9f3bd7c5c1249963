"""Other people's formats: NetworkX graphs, pgmpy Markov networks, and the method protocol of AFABench.

The libraries are imported when a function that needs one is called; `pip install 'afa[formats]'` brings them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afa.formats.afabench import REGISTRY, BinaryMethod, TopKMethod
    from afa.formats.graph import from_networkx, read_graph, to_networkx, write_graph
    from afa.formats.markov_network import from_markov_networks, to_markov_network

_HOME = {
    **dict.fromkeys(("REGISTRY", "BinaryMethod", "TopKMethod"), "afa.formats.afabench"),
    **dict.fromkeys(("from_networkx", "read_graph", "to_networkx", "write_graph"), "afa.formats.graph"),
    **dict.fromkeys(("from_markov_networks", "to_markov_network"), "afa.formats.markov_network"),
}

__all__ = [
    "REGISTRY",
    "BinaryMethod",
    "TopKMethod",
    "from_markov_networks",
    "from_networkx",
    "read_graph",
    "to_markov_network",
    "to_networkx",
    "write_graph",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'afa.formats' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
