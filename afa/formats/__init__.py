"""Other people's formats: NetworkX graphs, pgmpy Markov networks, and the method protocol of AFABench.

The libraries are imported when a function that needs one is called; `pip install 'afa[formats]'` brings them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afa.formats.afabench import REGISTRY as REGISTRY
    from afa.formats.afabench import BinaryMethod as BinaryMethod
    from afa.formats.afabench import TopKMethod as TopKMethod
    from afa.formats.graph import from_networkx as from_networkx
    from afa.formats.graph import read_graph as read_graph
    from afa.formats.graph import to_networkx as to_networkx
    from afa.formats.graph import write_graph as write_graph
    from afa.formats.markov_network import from_markov_networks as from_markov_networks
    from afa.formats.markov_network import to_markov_network as to_markov_network

_HOME = {
    **dict.fromkeys(("REGISTRY", "BinaryMethod", "TopKMethod"), "afa.formats.afabench"),
    **dict.fromkeys(("from_networkx", "read_graph", "to_networkx", "write_graph"), "afa.formats.graph"),
    **dict.fromkeys(("from_markov_networks", "to_markov_network"), "afa.formats.markov_network"),
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'afa.formats' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
