"""`afa plan`, `afa serve` and `afa demo` suggest the next measurement for one patient.

The commands use a terminal, a page or JSON lines.
"""

from __future__ import annotations

import csv
import gc
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from afa.cli import options
from afa.errors import CohortError, ConfigError, Fault
from afa.io.files import atomic_folder

if TYPE_CHECKING:
    from afa.dialogue.sessions import Keeper
    from afa.model.bundle import Bundle
    from afa.planner import Planner

Session = Annotated[
    Path | None,
    typer.Option(help="file in which the session is saved after every step; an existing session is resumed"),
]
Replay = Annotated[bool, typer.Option("--replay", help="repeat the session's values on a bundle that was edited later")]
EXAMPLES = Path(__file__).parent.parent / "examples"
HERE = "127.0.0.1"
LOADING = "loading"
Values = dict[str, int]
STOPPING = ("budget", "certain", "posterior", "probability", "min_gain")
"""Options that are parts of a `Stop`."""
SMALL, MIDDLE = 20_000, 200_000
"""Entities squared times features up to which a decision takes some 20 or 200 ms without compiled kernels."""


@dataclass(frozen=True)
class PlanOptions(options.TaskOptions):
    """Options of a planner: its question, its rules and its stopping conditions."""

    score: Annotated[
        str | None, typer.Option(help="score of a duel: linearity, wald, two_elbo, stack_a, kl_nonzero or background")
    ] = None
    gain: Annotated[
        str | None, typer.Option(help="gain of a feature: cmi, f_target, wald_magnitude or information")
    ] = None
    allocation: Annotated[
        str | None, typer.Option(help="rule that chooses the next feature, such as frontier, or module:Class")
    ] = None
    background: options.Background = None
    together: Annotated[int | None, typer.Option(min=1, help="features or panels to ask for at once")] = None
    inference: Annotated[
        str | None, typer.Option(help="mean_field (default) or exact, which is slower if features are coupled")
    ] = None
    first: Annotated[str | None, typer.Option(help="features or panels to measure first, comma-separated")] = None
    costs: options.Costs = None
    panels: Annotated[
        Path | None,
        typer.Option(help="YAML file of features measured together, with their cost (docs/plan.md)"),
    ] = None
    budget: Annotated[float | None, typer.Option(help="largest total cost")] = None
    certain: Annotated[
        bool | None, typer.Option("--certain/--to-the-end", help="stop when no remaining feature can change the answer")
    ] = None
    posterior: Annotated[
        float | None, typer.Option(help="stop when the answer has at least this posterior probability")
    ] = None
    probability: Annotated[
        float | None, typer.Option(help="stop when the answer will not change, with at least this probability")
    ] = None
    min_gain: Annotated[float | None, typer.Option(help="stop when no remaining feature has a gain above this")] = None
    patient: Annotated[str | None, typer.Option(help="name of the patient, saved in the session")] = None

    def planner(self, bundle: Bundle, session: Path | None, keeper: Keeper, replay: bool = False) -> Planner:
        """Return the planner of the saved session if there is one.

        Without a saved session, return a new planner, and save its session.
        """
        from afa.dialogue.sessions import new_planner, read_panels, resumed_planner
        from afa.planner import Stop
        from afa.planner.options import tau_of

        asked = vars(self) | {"panels": read_panels(self.panels) if self.panels else None, "tau": tau_of(self.tau)}
        asked["background"] = options.background_of(self.background, bundle, self.patient)
        asked["first"] = [name.strip() for name in self.first.split(",")] if self.first else None
        if session is not None and keeper.found:
            return resumed_planner(session, bundle, asked, keeper.changes if replay else None)
        if replay:
            step = "name the file with --session, or leave --replay out"
            raise ConfigError(Fault("--replay", f"no session {session or ''}".rstrip(), "a session file", step))
        stop = Stop(self.budget, self.certain is not False, self.probability, self.min_gain, self.posterior)
        given = {name: value for name, value in asked.items() if name not in STOPPING}
        planner = new_planner(bundle, stop=stop, **given)
        keeper.keep(planner)
        return planner


def plan(
    bundle: options.BundleArgument,
    session: Session = None,
    replay: Replay = False,
    json: Annotated[bool, typer.Option("--json", help="read and write JSON lines, for another program")] = False,
    *,
    question: PlanOptions,
) -> None:
    """Ask what to measure next, answer low, usual or high, and follow the conclusion (docs/plan.md)."""
    with _opened(bundle, question, session, replay) as (planner, keeper):
        if json:
            from afa.dialogue.conversation import converse

            for line in converse(planner, sys.stdin, keeper):
                typer.echo(line)
                sys.stdout.flush()
        else:
            _talk(planner, keeper)


def serve(
    bundle: options.BundleArgument,
    session: Session = None,
    replay: Replay = False,
    host: Annotated[str, typer.Option(help="address to serve at")] = HERE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port to serve at; a free one by default")] = 0,
    show: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
    *,
    question: PlanOptions,
) -> None:
    """Plan on a page in the browser (docs/plan.md).

    The page is the same conversation as `afa plan`, with buttons and bars.
    """
    with _opened(bundle, question, session, replay) as (planner, keeper):
        _serve(planner, keeper, host, port, show)


def demo(
    example: Annotated[
        Literal["cooling", "anaemia"], typer.Option(help="faults of an air conditioner, or causes of anaemia")
    ] = "cooling",
    patient: Annotated[
        str | None, typer.Option(help="one of the example's made-up cases; the first by default")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="plan on a page in the browser")] = False,
    copy: Annotated[
        Path | None, options.written(to="--copy", about="write the example's files to this new folder, and end")
    ] = None,
) -> None:
    """Plan for a made-up case of an example. The Return key enters the case's value."""
    folder = EXAMPLES / example
    if copy is not None:
        with atomic_folder(copy) as made:
            shutil.copytree(folder, made, dirs_exist_ok=True)
        typer.echo(f"wrote {copy}: try `afa plan {copy / 'bundle'}`, and `afa bundle show {copy / 'bundle'}`")
        return
    patients: dict[str, Values] = {}
    with (folder / "vignettes.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            patients.setdefault(row["patient"], {})[row["feature"]] = int(row["value"])
    patient = patient or next(iter(patients))
    if patient not in patients:
        raise CohortError(Fault("--patient", repr(patient), f"one of {', '.join(patients)}", "choose one of these"))
    values = patients[patient]
    with _opened(folder / "bundle", PlanOptions(posterior=0.8), None) as (planner, keeper):
        about = f"An example: {patient}, a made-up case; --patient chooses among {', '.join(patients)}."
        if page:
            _wrapped(f"{about} Its values are marked on the page.")
            _serve(planner, keeper, patient=values)
            return
        _wrapped(f"{about} Return takes what was measured; or type a value.")
        _talk(planner, keeper, values)
    _wrapped("Your own: `afa demo --copy mine`, edit its bundle, then `afa plan mine/bundle` (docs/your_own_bundle.md)")


def _wrapped(text: str) -> None:
    """Print a text in lines that break between words."""
    from rich.console import Console

    Console().print(text, highlight=False, markup=False)


@contextmanager
def _opened(
    folder: Path, question: PlanOptions, session: Path | None, replay: bool = False
) -> Iterator[tuple[Planner, Keeper]]:
    """Yield a planner with its first suggestion, and the keeper of its session.

    While the planner is loading, a line on the terminal says so.
    """
    from rich.console import Console

    with ExitStack() as until_the_end:
        with Console(stderr=True).status(LOADING) as waiting, ExitStack() as loading:
            gc.disable()  # garbage collection would take a third of the start-up time and free little
            loading.callback(gc.enable)
            loading.callback(gc.freeze)
            from afa.model.bundle import load_bundle

            bundle = load_bundle(folder)
            waiting.update(prepare(bundle))

            from afa.dialogue.sessions import open_session

            keeper = until_the_end.enter_context(open_session(session))
            planner = question.planner(bundle, session, keeper, replay)
            planner.suggest()
        yield planner, keeper


def _talk(planner: Planner, keeper: Keeper, patient: Values | None = None) -> None:
    """Run a conversation in the terminal. If `patient` is given, an empty line enters the patient's value."""
    from rich.console import Console

    from afa.dialogue.terminal import Terminal, line_reader

    Terminal(planner, Console(), line_reader(planner), keeper, patient).run()
    if patient is None and (words := keeper.closing_words(planner)):
        typer.echo(words)


def _serve(
    planner: Planner, keeper: Keeper, host: str = HERE, port: int = 0, show: bool = True, patient: Values | None = None
) -> None:
    """Serve a conversation until Ctrl-C."""
    import asyncio
    import webbrowser

    from afa.dialogue.conversation import Conversation
    from afa.dialogue.server import Served, serve

    if host != HERE:
        typer.echo(f"note: whoever reaches {host} and has the address below sees and changes this session", err=True)
    served = Served(Conversation(planner, keeper), patient)
    with TemporaryDirectory() as folder, suppress(KeyboardInterrupt):

        def announce(address: str) -> None:
            typer.echo(f"{address}\nOpen this address in a browser; Ctrl-C ends.")
            if show:
                webbrowser.open(forwarding(address, Path(folder)).as_uri())

        asyncio.run(serve(served, host, port, announce))
    talk = served.conversation
    if words := talk.keeper.closing_words(talk.planner):
        typer.echo(words)


def forwarding(address: str, folder: Path) -> Path:
    """Write a page that redirects to an address, and return its path. Only the owner can read the page.

    The browser gets this file instead of the address, because every user of the machine can read command lines.
    """
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={escape(address)}">', encoding="utf-8")
    return page


def prepare(bundle: Bundle) -> str:
    """Decide whether a bundle is planned with compiled kernels. Return the text to show while loading.

    A small bundle is planned without compiled kernels, because loading them takes longer than the planning. A bundle of
    middle size is planned without compiled kernels until another process has compiled them. The decision is made before
    any kernel is imported.
    """
    loaded = any(name.startswith("afa.engine.") for name in sys.modules)

    from afa.engine import compile as compiling

    size = len(bundle.entities) ** 2 * len(bundle.features)
    if loaded or size > MIDDLE or (size > SMALL and compiling.PLANNER_KERNELS in compiling.compiled_groups()):
        return LOADING
    compiling.do_without()
    if size > SMALL and compiling.keeps_kernels():
        background = [sys.executable, "-m", "afa.engine.warm", "planners"]
        quiet = subprocess.DEVNULL
        subprocess.Popen(background, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        return "first use: loading; another process prepares faster starts"
    return LOADING
