"""The planner in a terminal: it asks for a measurement, says why, and takes the answer or another command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from math import isfinite

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from afa.csvfile import number
from afa.dialogue.sessions import Keeper, kept_or_taken_back
from afa.dialogue.words import (
    READ_AS,
    WRITTEN,
    answer_of,
    feature_named,
    outcomes_of,
    posterior_is_of,
    posterior_of,
    question_of,
    range_of,
    standings,
    value_written,
)
from afa.errors import AfaError, Fault, PlannerError
from afa.planner import Planner, Suggestion, TopKPlanner
from afa.planner.menu import history_of

BARS, WIDTH = 5, 20
"""Entities that have a bar, and the letters of a bar that is full."""
COMMANDS = ("skip", "undo", "fix", "why", "ranking", "history", "features", "save", "quit", "help")
HELP = (
    ("-1, 0, 1", "the value asked for: lower, as usual, higher (low, usual, high; - and + do as well)"),
    ("12.5", "what was measured, where a range is shown; the numbers 1, 0 and -1 as 1.0, 0.0 and -1.0"),
    ("NAME=VALUE ...", "one or more values that were not asked for, whatever their order"),
    ("skip [NAME]", "it cannot be measured"),
    ("undo", "take back the last step"),
    ("fix NAME VALUE", "correct an earlier value"),
    ("why", "the candidates and what each would teach"),
    ("ranking", "all entities, best first"),
    ("history", "what was done, why, and what it cost"),
    ("features", "the names of what is still open"),
    ("save FILE", "keep the session in a new file; `afa plan BUNDLE --session FILE` takes it up again"),
    ("quit", "leave (Ctrl-D does as well)"),
)


class Terminal:
    """One conversation. read : gives the next line for a prompt, or raises EOFError.

    patient : values by feature, which an empty line takes over; without them it does nothing.
    """

    def __init__(
        self,
        planner: Planner,
        console: Console,
        read: Callable[[str], str],
        keeper: Keeper,
        patient: Mapping[str, int] | None = None,
    ) -> None:
        self.planner, self.console, self.read, self.keeper = planner, console, read, keeper
        self.patient = patient or {}
        looks = {"why": self._why, "ranking": self._ranking, "history": self._history, "features": self._features}
        looks |= {"w": self._why, "r": self._ranking} | dict.fromkeys(
            ("?", "help"), lambda: self._table(("", ""), HELP)
        )
        self._looks = looks

    def run(self) -> None:
        """Ask and listen until the user leaves."""
        self._greet()
        shown: Suggestion | str | None = ""
        while True:
            item = self.planner.suggest()
            if item is not shown:
                self._ask(item)
                shown = item
            try:
                line = self.read(f"{item.name}> " if item else "> ").strip()
            except (EOFError, KeyboardInterrupt):
                self.console.print()
                return
            if line in ("quit", "q", "exit"):
                return
            try:
                with kept_or_taken_back(self.planner, self.keeper):
                    self._hear(line, item)
            except AfaError as error:
                for fault in error.faults:
                    self._say(f"[red]{escape(str(fault))}[/red]")

    def _greet(self) -> None:
        asked_of, planner = self.planner.asked_of, self.planner
        name, question = escape(f"{asked_of.name} {asked_of.version}"), escape(question_of(planner))
        self._say(f"[bold]{name}[/bold]: {question} {len(planner.bundle.features)} features can be measured")
        of = posterior_is_of(planner)
        self._say(f"[dim]Answer -1, 0 or 1; ? lists the commands. Probabilities are posteriors, {of}.[/dim]")
        self._say("[dim]For research only.[/dim]")

    def _ask(self, item: Suggestion | None) -> None:
        """The answer so far, then the next measurement with its reason and the runners-up, or why there is none."""
        self._say()
        if self.planner.observed:
            self._say(self._so_far())
            self._bars()
        if item is None:
            self._say(f"[bold green]Done:[/bold green] {escape(self.planner.reason)}")
            return
        cost = "" if not self.planner.priced else f" [dim](cost {item.cost:g})[/dim]"
        features = "" if item.features == (item.name,) else f": {escape(', '.join(item.features))}"
        self._say(f"[bold cyan]{escape(item.name)}[/bold cyan]{features}{cost}")
        self._hang(f"[dim]because:[/dim] {escape(item.reason)}")
        for name in item.features:
            if usual := range_of(self.planner.asked_of, name):
                of = "" if len(item.features) == 1 else f"{name}, "
                self._hang(f"[dim]{escape(of + usual)}; type the number, or -1, 0, 1[/dim]")
        if len(item.features) == 1:
            for row in outcomes_of(self.planner, item).get(item.features[0], []):
                self._hang(f"[dim]if {row['value']:2}:[/dim] {escape(row['words'])}")
        if others := self.planner.runners_up():
            self._hang(f"[dim]then:[/dim] {escape(', '.join(other.name for other in others))}")

    def _so_far(self) -> str:
        spent = f", spent {self.planner.spent:g}" if self.planner.priced else ""
        words = escape(str(answer_of(self.planner)["words"]))
        return f"[bold]{words}[/bold]  [dim]{len(self.planner.observed)} measured{spent}[/dim]"

    def _bars(self) -> None:
        """The entities of largest posterior, each with a bar."""
        shown = sorted(posterior_of(self.planner).items(), key=lambda pair: -pair[1])[:BARS]
        width = min(max(len(name) for name, _ in shown), max(self.console.width - 10, 0))  # a longer one wraps alone
        full = min(WIDTH, max(self.console.width - width - 10, 0))
        for name, share in shown:
            self._say(f"  {escape(name.ljust(width))}  {share:.2f}  {'█' * round(full * share)}".rstrip())

    def _hear(self, line: str, item: Suggestion | None) -> None:
        """Carry out one line: a look at something, a step, or values."""
        words = _words(line)
        match [words[0].lower(), *words[1:]] if words else []:
            case []:
                self._take_over(item)
            case [look] if look in self._looks:
                self._looks[look]()
            case ["save", file]:
                self.keeper.save_copy(self.planner, file)
                self._say(f"saved as {escape(file)}")
            case ["undo" | "u"]:
                undone = self.planner.undo()
                self._say(f"taken back: {undone.kind} {escape(', '.join(undone.features))}")
            case ["skip" | "s"]:
                self.planner.skip(_asked(item).name)
            case ["skip" | "s", *name]:
                self._skip(feature_named(self.planner, " ".join(name)))
            case ["fix", *name, value] if name:
                self._fix(feature_named(self.planner, " ".join(name)), value)
            case _ if pairs := _pairs(words):
                self._observe(self._named_values(pairs))
            case _:
                self._take_values(words, item)

    def _take_over(self, item: Suggestion | None) -> None:
        """Values of the patient that is at hand, for what was asked."""
        known = {name: self.patient[name] for name in (item.features if item else ()) if name in self.patient}
        if known:
            self._say("  " + escape(", ".join(f"{name} = {value}" for name, value in known.items())))
            self._observe(known)

    def _skip(self, name: str) -> None:
        if (value := self.planner.observed.get(name)) is not None:
            step = f"write fix {name} and the right one, or undo"
            raise PlannerError(Fault(f"feature {name}", f"the value {value}", "what is still open", step))
        self.planner.skip(name)

    def _fix(self, feature: str, value: str) -> None:
        if feature not in self.planner.observed:
            step = f"write {feature}={value}"
            raise PlannerError(Fault(f"feature {feature}", "no earlier value", "one to correct", step))
        self.planner.correct(feature, self._value(feature, value))

    def _value(self, feature: str, written: str) -> int:
        """The value that was typed; how a number was read is said."""
        value = value_written(self.planner.asked_of, feature, written)
        if written.casefold() not in WRITTEN:
            self._say(f"  [dim]{escape(feature)}: {number(written.replace(',', '.')):g} is {READ_AS[value]}[/dim]")
        return value

    def _features(self) -> None:
        closed = self.planner.observed.keys() | self.planner.skipped
        self._say(escape(", ".join(name for name in self.planner.bundle.features if name not in closed)))

    def _take_values(self, words: list[str], item: Suggestion | None) -> None:
        """Values without names: of the features asked for, in the order in which they were shown."""
        if not all(word.casefold() in WRITTEN or isfinite(number(word.replace(",", "."))) for word in words):
            expected = "-1, 0 or 1, NAME=VALUE, or a command"
            step = "type ? for the commands; a feature that was not asked for takes NAME=VALUE"
            for usage, _ in HELP:
                if usage.split()[0] == words[0].lower():
                    expected, step = usage, f"type {usage}, or ? for what it does"
            if words[0] in self.planner.bundle.features:
                step = f"type {words[0]}=VALUE"
            raise PlannerError(Fault("answer", repr(" ".join(words)), expected, step))
        asked = _asked(item)
        if len(words) > len(asked.features):
            expected = f"{len(asked.features)}, for {', '.join(asked.features)}"
            raise PlannerError(Fault("answer", f"{len(words)} values", expected, "name the others as NAME=VALUE"))
        pairs = zip(asked.features, words, strict=False)
        self._observe({name: self._value(name, word) for name, word in pairs})

    def _named_values(self, pairs: list[str]) -> dict[str, int]:
        values: dict[str, int] = {}
        for pair in pairs:
            name, _, value = pair.rpartition("=")
            feature = feature_named(self.planner, name.strip())
            if feature in values:
                raise PlannerError(Fault(f"feature {feature}", "two values", "one value", "leave one out"))
            values[feature] = self._value(feature, value.strip())
        return values

    def _observe(self, values: dict[str, int]) -> None:
        for name, value in values.items():
            if (earlier := self.planner.observed.get(name)) is not None:
                found, step = f"the earlier value {earlier}", f"write fix {name} {value} to replace it, or undo"
                raise PlannerError(Fault(f"feature {name}", found, "a feature without a value", step))
        self.planner.observe_all(values)

    def _why(self) -> None:
        table = self.planner.explain()
        columns = ["feature", *(["item"] if self.planner.panels else []), "cost", "gain", "gain_per_cost", "tells"]
        columns = [name for name in columns if name in table]
        table["tells"] = table["tells"].str.removeprefix("tells ")
        if "item" in table:
            table["item"] = table["item"].where(table["item"] != table["feature"], "")  # what is by itself
        rows = [tuple(_short(row[name]) for name in columns) for row in table.to_dict("records")]
        self._table(tuple(name.replace("_", " ") for name in columns), rows)

    def _ranking(self) -> None:
        if isinstance(self.planner, TopKPlanner):
            rows = [
                (str(place), row["entity"], f"{row['wins']:g}", str(row["certain"]), f"{row['posterior']:.2f}")
                for place, row in enumerate(standings(self.planner), start=1)
            ]
            self._table(("", "entity", "duels won", "duels certain", "probability"), rows)
        else:
            self._say(self._so_far())

    def _history(self) -> None:
        rows = [
            (str(row["step"]), row["kind"], row["feature"], _short(row["value"]), f"{row['spent']:g}", row["reason"])
            for row in history_of(self.planner.actions)
        ]
        self._table(("step", "kind", "feature", "value", "spent", "reason"), rows)

    def _table(self, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        table = Table(*columns, show_header=any(columns), box=None, pad_edge=False)
        for column in table.columns:
            column.overflow = "fold"  # a name is never cut
        cells = list(rows)
        for row in cells:
            table.add_row(*map(escape, row))
        wide = self.console.options.update(width=10_000)
        if not any(columns) or self.console.measure(table, options=wide).maximum <= self.console.width:
            self.console.print(table)
            return
        names = 1 if columns[0] else 2  # a place and a name
        for row in cells:  # too wide for a table: a line each, which wraps at words
            parts = [f"{name} {cell}" for name, cell in zip(columns[names:], row[names:], strict=True) if cell]
            self._hang(f"[bold]{escape(' '.join(row[:names]))}[/bold]  {escape(', '.join(parts))}", first="")

    def _hang(self, text: str, first: str = "  ") -> None:
        """A line that goes on below, two letters further in, where it is too long."""
        lines = Text.from_markup(text).wrap(self.console, max(self.console.width - len(first) - 2, 1))
        for place, line in enumerate(lines):
            line.rstrip()
            self.console.print(Text.assemble(first + "  " if place else first, line), highlight=False)

    def _say(self, text: str = "") -> None:
        self.console.print(text, highlight=False)


def line_reader(planner: Planner) -> Callable[[str], str]:
    """What reads a line: at a terminal one that can be edited, with the names of features completed by Tab."""
    with suppress(ImportError):
        import readline  # noqa: PLC0415 (not there on every system)

        names = [*COMMANDS, *planner.bundle.features, *planner.panels]

        def complete(text: str, place: int) -> str | None:
            return next(islice((name for name in names if name.startswith(text)), place, None), None)

        if sys.stdin.isatty():
            readline.set_completer(complete)
            readline.set_completer_delims(" =")
            readline.parse_and_bind("tab: complete")
    return input


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise PlannerError(Fault("answer", repr(line), "quotes in pairs", "close the quote")) from None


def _pairs(words: list[str]) -> list[str]:
    """The words as NAME=VALUE, in which a name may have blanks; none where the last word ends no such pair."""
    pairs, open_words = [], list[str]()
    for word in words:
        text = " ".join([*open_words, word])
        complete = "=" in text and not text.endswith("=")
        pairs += [text] if complete else []
        open_words = [] if complete else [*open_words, word]
    return [] if open_words else pairs


def _asked(item: Suggestion | None) -> Suggestion:
    if item is None:
        step = "name the feature, as NAME=VALUE"
        raise PlannerError(Fault("answer", "a value", "a question that it answers", step))
    return item


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None or str(value) == "<NA>" else str(value)
