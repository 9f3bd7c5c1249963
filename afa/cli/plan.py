"""`afa plan`: the next measurement of one patient, asked for in a terminal or by another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def plan(
    bundle: Annotated[Path, typer.Argument(help="bundle folder")],
    session: Annotated[
        Path | None, typer.Option(help="file that keeps the session after every step; taken up where it exists")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", min=1, help="size of the top set; 5, or 1 of few entities")] = None,
    entity: Annotated[str | None, typer.Option(help="ask whether this one entity holds, not for the top set")] = None,
    coupling: Annotated[
        Literal["differential", "shared"] | None, typer.Option(help="with --entity: the couplings of its two classes")
    ] = None,
    score: Annotated[str | None, typer.Option(help="linearity, wald, two_elbo, stack_a or kl_nonzero")] = None,
    gain: Annotated[str | None, typer.Option(help="cmi, f_target or wald_magnitude")] = None,
    allocation: Annotated[str | None, typer.Option(help="the rule that chooses, such as priority_all")] = None,
    costs: Annotated[
        Literal["own", "equal"] | None, typer.Option(help="the bundle's own costs, or every feature alike")
    ] = None,
    panels: Annotated[
        Path | None, typer.Option(help="YAML file of features that come together and their cost (docs/plan.md)")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="the most that may be spent")] = None,
    certain: Annotated[
        bool | None, typer.Option("--certain/--to-the-end", help="stop when nothing left can change the answer")
    ] = None,
    probability: Annotated[float | None, typer.Option(help="stop at this probability of the answer")] = None,
    min_gain: Annotated[float | None, typer.Option(help="stop when nothing left gains more than this")] = None,
    patient: Annotated[str | None, typer.Option(help="a name to keep with the session")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines in and out, for another program")] = False,
) -> None:
    """Ask what to measure next, answer -1, 0 or 1, and see where it leads (docs/plan.md)."""
    import io
    import sys
    from contextlib import suppress

    from rich.console import Console

    from afa.bundle import load_bundle
    from afa.cli.first_use import tell_first_use
    from afa.dialogue.jsonlines import converse
    from afa.dialogue.keeping import open_session
    from afa.dialogue.opening import new_planner, read_panels, resumed_planner
    from afa.dialogue.terminal import Terminal
    from afa.planner import Stop

    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # bytes that are not UTF-8 are an unknown name, and no traceback
            stream.reconfigure(errors="surrogateescape")
    model = load_bundle(bundle)
    options = {"coupling": coupling, "score": score, "gain": gain, "allocation": allocation, "patient": patient}
    rules = {"--budget": budget, "--certain": certain, "--probability": probability, "--min-gain": min_gain}
    ordered = read_panels(panels) if panels else None
    tell_first_use()
    with open_session(session) as keeper:
        if session is not None and keeper.found:
            given: dict[str, Any] = {f"--{name}": value for name, value in options.items()}
            given |= {"--k": k, "--entity": entity, "--costs": costs, "--panels": ordered, **rules}
            planner = resumed_planner(session, model, given)
        else:
            planner = new_planner(
                model,
                k=k,
                entity=entity,
                panels=ordered,
                stop=Stop(budget, certain is not False, probability, min_gain),
                costs="equal" if costs == "equal" else None,
                **{name: value for name, value in options.items() if value is not None},
            )
            keeper.keep(planner)
        if json:
            for line in converse(planner, sys.stdin, keeper):
                typer.echo(line)
                sys.stdout.flush()
            return
        with suppress(ImportError):  # where it is there, a typed line can be edited
            import readline  # noqa: F401
        Terminal(planner, Console(), input, keeper).run()
        if words := keeper.closing_words(planner):
            typer.echo(words)
