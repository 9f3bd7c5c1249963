"""Define `afa plan`, `afa serve` and `afa demo`, which suggest the next measurement for one patient.

The user enters results in the terminal, on a browser page, or as JSON lines.
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
    from afa.dialogue.sessions import SessionFile
    from afa.model.bundle import Bundle
    from afa.planner import Planner

Session = Annotated[
    Path | None,
    typer.Option(help="file in which the session is saved after every step; an existing session is resumed"),
]
Replay = Annotated[
    bool,
    typer.Option("--replay", help="enter the saved values again, if the bundle was edited after the session was saved"),
]
EXAMPLES = Path(__file__).parent.parent / "examples"
LOCAL_ADDRESS = "127.0.0.1"
LOADING = "loading"
FeatureCodes = dict[str, int]
STOPPING = ("budget", "certain", "posterior", "probability", "min_gain")
"""Options that are parts of a `Stop`."""
FAST_SIZE, MODERATE_SIZE = 20_000, 200_000
"""Entities squared times features up to which a decision takes some 20 or 200 ms without compiled kernels."""


@dataclass(frozen=True)
class PlanOptions(options.TaskOptions):
    """Options of a planner: task, score, gain, allocation rule and stopping conditions."""

    score: Annotated[
        str | None,
        typer.Option(help="score that compares entities: linearity, wald, two_elbo, stack_a, kl_nonzero or background"),
    ] = None
    gain: Annotated[
        str | None, typer.Option(help="gain that ranks features: cmi, f_target, wald_magnitude or information")
    ] = None
    allocation: Annotated[
        str | None,
        typer.Option(help="rule that chooses the next feature, such as frontier, or your own class as module:Class"),
    ] = None
    background: options.BackgroundOption = None
    together: Annotated[int | None, typer.Option(min=1, help="number of features or panels to request at once")] = None
    inference: Annotated[
        str | None, typer.Option(help="mean_field (the default) or exact; exact is slower if features are coupled")
    ] = None
    first: Annotated[str | None, typer.Option(help="features or panels to measure first, comma-separated")] = None
    costs: options.CostsOption = None
    panels: Annotated[
        Path | None,
        typer.Option(help="YAML file of panels (features measured together) and their costs (docs/plan.md)"),
    ] = None
    budget: Annotated[float | None, typer.Option(help="largest total cost")] = None
    certain: Annotated[
        bool | None, typer.Option("--certain/--to-the-end", help="stop when no remaining feature can change the answer")
    ] = None
    posterior: Annotated[
        float | None, typer.Option(help="stop when the answer has at least this posterior probability")
    ] = None
    probability: Annotated[
        float | None,
        typer.Option(help="stop when the answer will stay unchanged with at least this probability"),
    ] = None
    min_gain: Annotated[float | None, typer.Option(help="stop when the gain of every feature is at most this")] = None
    patient: Annotated[str | None, typer.Option(help="name of the patient, saved in the session")] = None

    def planner(self, bundle: Bundle, session: Path | None, keeper: SessionFile, replay: bool = False) -> Planner:
        """Return the planner of the saved session. If no session is saved, create a planner and save its session."""
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
    json: Annotated[bool, typer.Option("--json", help="exchange JSON lines with another program")] = False,
    *,
    question: PlanOptions,
) -> None:
    """Plan a patient's measurements in the terminal: enter low, usual or high for each feature (docs/plan.md)."""
    with _open_planner(bundle, question, session, replay) as (planner, keeper):
        if json:
            from afa.dialogue.conversation import converse

            for line in converse(planner, sys.stdin, keeper):
                typer.echo(line)
                sys.stdout.flush()
        else:
            _run_in_terminal(planner, keeper)


def serve(
    bundle: options.BundleArgument,
    session: Session = None,
    replay: Replay = False,
    host: Annotated[str, typer.Option(help="address to serve at")] = LOCAL_ADDRESS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the server; by default a free port")] = 0,
    show: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
    *,
    question: PlanOptions,
) -> None:
    """Plan a patient's measurements on a page in the browser (docs/plan.md).

    The page offers the same dialogue as `afa plan`, with buttons and bars.
    """
    with _open_planner(bundle, question, session, replay) as (planner, keeper):
        _serve_planning_page(planner, keeper, host, port, show)


def demo(
    example: Annotated[
        Literal["cooling", "anaemia"],
        typer.Option(help="cooling: faults of an air conditioner; anaemia: causes of anaemia"),
    ] = "cooling",
    patient: Annotated[
        str | None, typer.Option(help="one of the example's made-up cases; by default the first case")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="plan on a browser page, not in the terminal")] = False,
    copy: Annotated[
        Path | None, options.output_option(to="--copy", about="write the example's files to this new folder, and end")
    ] = None,
) -> None:
    """Plan the measurements of a made-up patient, with an example bundle.

    If you press the Return key without typing a value, the patient's own value of the suggested feature is used.
    """
    folder = EXAMPLES / example
    if copy is not None:
        with atomic_folder(copy) as made:
            shutil.copytree(folder, made, dirs_exist_ok=True)
        typer.echo(f"wrote {copy}: try `afa plan {copy / 'bundle'}`, and `afa bundle show {copy / 'bundle'}`")
        return
    patients: dict[str, FeatureCodes] = {}
    with (folder / "vignettes.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            patients.setdefault(row["patient"], {})[row["feature"]] = int(row["value"])
    patient = patient or next(iter(patients))
    if patient not in patients:
        raise CohortError(Fault("--patient", repr(patient), f"one of {', '.join(patients)}", "choose one of these"))
    values = patients[patient]
    with _open_planner(folder / "bundle", PlanOptions(posterior=0.8), None) as (planner, keeper):
        about = f"An example: {patient}, a made-up case; --patient chooses among {', '.join(patients)}."
        if page:
            _print_wrapped(f"{about} Its values are marked on the page.")
            _serve_planning_page(planner, keeper, patient=values)
            return
        _print_wrapped(f"{about} Return takes what was measured; or type a value.")
        _run_in_terminal(planner, keeper, values)
    _print_wrapped(
        "Your own: `afa demo --copy mine`, edit its bundle, then `afa plan mine/bundle` (docs/your_own_bundle.md)"
    )


def _print_wrapped(text: str) -> None:
    """Print a text, with line breaks only between words."""
    from rich.console import Console

    Console().print(text, highlight=False, markup=False)


@contextmanager
def _open_planner(
    folder: Path, question: PlanOptions, session: Path | None, replay: bool = False
) -> Iterator[tuple[Planner, SessionFile]]:
    """Yield a planner that has computed its first suggestion, and the `SessionFile` that saves its session.

    The terminal shows a message while the planner is loaded.
    """
    from rich.console import Console

    with ExitStack() as until_the_end:
        with Console(stderr=True).status(LOADING) as waiting, ExitStack() as loading:
            gc.disable()  # garbage collection would take a third of the start-up time and free little memory
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


def _run_in_terminal(planner: Planner, keeper: SessionFile, patient: FeatureCodes | None = None) -> None:
    """Run a planning session in the terminal.

    The argument `patient` contains the values of an example patient. If the user presses the Return key without typing
    a value, the example patient's values of the suggested features are used.
    """
    from rich.console import Console

    from afa.dialogue.terminal import Terminal, line_reader

    Terminal(planner, Console(), line_reader(planner), keeper, patient).run()
    if patient is None and (words := keeper.save_message(planner)):
        typer.echo(words)


def _serve_planning_page(
    planner: Planner,
    keeper: SessionFile,
    host: str = LOCAL_ADDRESS,
    port: int = 0,
    show: bool = True,
    patient: FeatureCodes | None = None,
) -> None:
    """Serve the planning page until the user presses Ctrl-C."""
    import asyncio
    import webbrowser

    from afa.dialogue.conversation import Conversation
    from afa.dialogue.server import Served, serve

    if host != LOCAL_ADDRESS:
        typer.echo(
            f"note: everyone who can reach {host} and has the address below can see and change this session", err=True
        )
    served = Served(Conversation(planner, keeper), patient)
    with TemporaryDirectory() as folder, suppress(KeyboardInterrupt):

        def announce(address: str) -> None:
            typer.echo(f"{address}\nOpen this address in a browser; Ctrl-C ends.")
            if show:
                webbrowser.open(forwarding(address, Path(folder)).as_uri())

        asyncio.run(serve(served, host, port, announce))
    talk = served.conversation
    if words := talk.keeper.save_message(talk.planner):
        typer.echo(words)


def forwarding(address: str, folder: Path) -> Path:
    """Write an HTML page that redirects to `address` and that only this user can read, and return its path.

    The browser is started with the path of this page. The server's address must not be in the browser's command line,
    because the address contains a secret token, and every user of the machine can read command lines.
    """
    page = folder / "open.html"
    page.touch(mode=0o600)
    page.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={escape(address)}">', encoding="utf-8")
    return page


def prepare(bundle: Bundle) -> str:
    """Switch compiled numeric kernels on or off for a bundle, and return the message to show while loading.

    For a small bundle, compiled kernels are switched off, because loading the kernels takes longer than planning. For a
    bundle of middle size, this function starts another process that compiles the kernels, and later commands use the
    compiled kernels. This function must be called before any kernel is imported.
    """
    loaded = any(name.startswith("afa.engine.") for name in sys.modules)

    from afa.engine import compile as compiling

    size = len(bundle.entities) ** 2 * len(bundle.features)
    if (
        loaded
        or size > MODERATE_SIZE
        or (size > FAST_SIZE and compiling.PLANNER_KERNELS in compiling.compiled_groups())
    ):
        return LOADING
    compiling.do_without()
    if size > FAST_SIZE and compiling.keeps_kernels():
        background = [sys.executable, "-m", "afa.engine.warm", "planners"]
        quiet = subprocess.DEVNULL
        subprocess.Popen(background, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        return "first use: loading; another process prepares faster starts"
    return LOADING
