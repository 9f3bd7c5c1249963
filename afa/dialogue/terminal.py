"""Run a planner in a terminal.

In each step, the program prints a suggested measurement with the reason for it, and reads a value or a command.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from afa.dialogue.conversation import Conversation
from afa.dialogue.sessions import SessionFile
from afa.dialogue.words import (
    answer_of,
    assumption_of,
    ending_of,
    feature_named,
    open_features,
    order_of,
    outcomes_of,
    question_of,
    start_of,
    value_words,
)
from afa.errors import AfaError, Fault, PlannerError
from afa.planner import Planner, Suggestion, TopKPlanner
from afa.planner.values import (
    CODES_WITHOUT_A_RANGE,
    FINDING,
    TYPED_CODES,
    WORD_CODES,
    code_words,
    grades_of,
    meanings_of,
    same_unit,
    scale_of,
    usual_range,
    with_number,
    word_of,
)

N_BARS, BAR_WIDTH = 5, 20
"""Number of entities with a bar, and the length of a full bar in characters."""
COMMANDS = ("skip", "undo", "fix", "why", "ranking", "history", "features", "save", "quit", "help")
HELP = (
    ("low, usual, high", "the value asked for (normal is usual; - and + do as well); yes or no of a finding"),
    ("12.5", "what was measured, where a range is shown; its unit may follow"),
    ("-1, 0, 1", "low, usual, high where no range is shown; where one is shown, these are numbers too"),
    ("NAME=VALUE ...", "one or more values that were not asked for, whatever their order"),
    ("skip [NAME]", "it cannot be measured"),
    ("undo", "undo the last step"),
    ("fix NAME VALUE", "correct an earlier value"),
    ("why", "the candidates and what each would teach"),
    ("why ENTITY", "what each finding says for and against it"),
    ("ranking", "all entities, best first"),
    ("history", "what was done, why, and what it cost"),
    ("features", "the names of what is still open"),
    ("save FILE", "keep the session in a new file; `afa plan BUNDLE --session FILE` takes it up again"),
    ("quit", "leave (Ctrl-D does as well)"),
)
CODES = WORD_CODES | FINDING | TYPED_CODES | CODES_WITHOUT_A_RANGE


class Terminal:
    """A conversation with a planner in a terminal.

    Parameters
    ----------
    read : function from a prompt to the next line; raises EOFError at the end
    patient : an example patient's value of each feature, which the user enters by an empty line. Without an example
        patient, an empty line does nothing

    """

    def __init__(
        self,
        planner: Planner,
        console: Console,
        read: Callable[[str], str],
        keeper: SessionFile,
        patient: Mapping[str, int] | None = None,
    ) -> None:
        self.planner, self.console, self.read = planner, console, read
        self.talk = Conversation(planner, keeper)
        self.patient = patient or {}
        looks = {
            "why": self._print_gain_table,
            "ranking": self._print_ranking,
            "history": self._print_history,
            "features": self._print_open_features,
        }
        looks |= {"w": self._print_gain_table, "r": self._print_ranking} | dict.fromkeys(
            ("?", "help"), lambda: self._print_table(("", ""), HELP)
        )
        self._looks = looks

    def run(self) -> None:
        """Ask for values and read lines until the user leaves."""
        self._greet()
        shown: Suggestion | str | None = ""
        while True:
            item = self.planner.suggest()
            if item is not shown:
                self._print_suggestion(item)
                shown = item
            try:
                line = self.read(f"{item.name}> " if item else "> ").strip()
            except (EOFError, KeyboardInterrupt):
                self.console.print()
                return
            if line in ("quit", "q", "exit"):
                return
            try:
                self._carry_out_line(line, item)
            except AfaError as error:
                for fault in error.faults:
                    self._say(f"[red]{escape(str(fault))}[/red]")

    def _greet(self) -> None:
        question_bundle, planner = self.planner.question_bundle, self.planner
        name, question = escape(f"{question_bundle.name} {question_bundle.version}"), escape(question_of(planner))
        whose = f"; patient {escape(planner.patient)}" if planner.patient else ""
        self._say(f"[bold]{name}[/bold]: {question} {len(planner.bundle.features)} features can be measured{whose}")
        self._say("[dim]Answer low, usual or high, or the number where a range is shown; ? lists the commands.[/dim]")
        for change in self.talk.keeper.changes:
            self._print_indented(f"[yellow]{escape(change)}[/yellow]", first="")
        for sentence in (assumption_of(planner), start_of(planner), ending_of(planner), "For research only."):
            self._say(f"[dim]{escape(sentence)}[/dim]")

    def _print_suggestion(self, item: Suggestion | None) -> None:
        """Print the answer so far. Then print the suggestion with its reason and runners-up, or the reason to stop."""
        self._say()
        if self.planner.observed:
            self._say(self._answer_so_far())
            self._print_bars()
        if item is None:
            self._say(f"[bold green]Done:[/bold green] {escape(self.planner.reason)}")
            return
        shown = self.planner.question_bundle.shown
        cost = "" if not self.planner.priced else f" [dim](cost {item.cost:g})[/dim]"
        features = "" if item.features == (item.name,) else f": {escape(', '.join(map(shown, item.features)))}"
        beside = escape(self._display_and_bundle_name(item.name).removeprefix(shown(item.name)))
        beside = f"[dim]{beside}[/dim]" if beside else ""
        self._say(f"[bold cyan]{escape(shown(item.name))}[/bold cyan]{beside}{features}{cost}")
        self._print_indented(f"[dim]because:[/dim] {escape(item.reason)}")
        for name in item.features:
            if words := self._input_help(name):
                of = "" if len(item.features) == 1 else f"{shown(name)}, "
                self._print_indented(f"[dim]{escape(of + words)}[/dim]")
        if len(item.features) == 1:
            rows = outcomes_of(self.planner, item).get(item.features[0], [])
            labels = [word_of(self.planner.question_bundle, item.features[0], row["value"]) for row in rows]
            wide = max(map(len, labels), default=0)
            for label, row in zip(labels, rows, strict=True):
                self._print_indented(f"[dim]if {f'{label}:'.ljust(wide + 1)}[/dim] {escape(row['words'])}")
        if others := self.planner.runners_up():
            self._print_indented(f"[dim]then:[/dim] {escape(', '.join(shown(other.name) for other in others))}")

    def _display_and_bundle_name(self, name: str) -> str:
        """Return the display name of a feature or entity, followed by its name in brackets if the names differ."""
        shown = self.planner.question_bundle.shown(name)
        return name if shown == name else f"{shown} ({name})"

    def _input_help(self, feature: str) -> str:
        """Return a feature's definition and how to enter its value, or an empty text if neither is known."""
        bundle = self.planner.question_bundle
        scale, usual = scale_of(bundle, feature), usual_range(bundle, feature)
        answer = f"{usual}; type the number" if usual else "yes or no?" if scale.kind == "binary" else ""
        if usual and (grades := grades_of(bundle, feature)):
            answer = f"{grades}; {answer}"
        if meanings := meanings_of(bundle, feature):
            answer = "no means {}, yes means {}".format(*meanings)
        return "; ".join(part for part in (scale.definition.removesuffix("."), answer) if part)

    def _answer_so_far(self) -> str:
        spent = f", spent {self.planner.spent:g}" if self.planner.priced else ""
        words = escape(str(answer_of(self.planner)["words"]))
        return f"[bold]{words}[/bold]  [dim]{len(self.planner.observed)} measured{spent}[/dim]"

    def _print_bars(self) -> None:
        """Print the highest-ranked entities, each with its probability or score and a bar."""
        shown = order_of(self.planner, N_BARS)
        numbers = [f"{place.number:.2f}" for place in shown]
        digits = max(map(len, numbers))
        left = max(self.console.width - digits - 6, 0)  # a longer name is wrapped
        entities = [self.planner.question_bundle.shown(place.entity) for place in shown]
        width = min(max(map(len, entities)), left)
        full = min(BAR_WIDTH, max(left - width, 0))
        for place, entity, number in zip(shown, entities, numbers, strict=True):
            bar = "█" * round(full * place.bar)
            self._say(f"  {escape(entity.ljust(width))}  {number.rjust(digits)}  {bar}".rstrip())

    def _carry_out_line(self, line: str, item: Suggestion | None) -> None:
        """Carry out one input line: a command that shows something, a command that makes a step, or measured values."""
        words = _split_line(line)
        match [words[0].lower(), *words[1:]] if words else []:
            case []:
                self._enter_example(item)
            case [look] if look in self._looks:
                self._looks[look]()
            case ["save", file]:
                self.talk.do(do="save", file=file)
                self._say(f"saved as {escape(file)}")
            case ["undo" | "u"]:
                undone = self.talk.do(do="undo")["undone"]
                done = {"observe": "", "skip": "the skip of ", "correct": "the correction of "}[undone["kind"]]
                names = map(self.planner.question_bundle.shown, undone["features"])
                self._say(f"undone: {done}{escape(', '.join(names))}")
            case ["skip" | "s"]:
                self.talk.do(do="skip", feature=_require_suggestion(item).name)
            case ["skip" | "s", *name]:
                self.talk.do(do="skip", feature=" ".join(name))
            case ["why" | "w", *name]:
                self._print_contributions(" ".join(name))
            case ["fix", _, _, *_]:
                self._fix_value(words[1:])
            case _ if pairs := self._name_value_pairs(words):
                self._record_named_values(pairs)
            case _:
                self._record_unnamed_values(words, item)

    def _enter_example(self, item: Suggestion | None) -> None:
        """Record the example patient's values of the suggested features."""
        known = {name: self.patient[name] for name in (item.features if item else ()) if name in self.patient}
        if known:
            for read_value in self.talk.do(do="observe", values=known)["read"]:
                self._say(f"  {escape(read_value['words'])}")

    def _submit_typed_values(self, **request: Any) -> None:
        """Carry out a request with typed values, and print how each number was interpreted."""
        for read_value in self.talk.do(**request)["read"]:
            if read_value["number"] is not None:
                self._say(f"  [dim]{escape(read_value['words'])}[/dim]")

    def _fix_value(self, words: list[str]) -> None:
        """Replace the value of the feature NAME by the typed value VALUE, which may be a number with its unit."""
        values = [place for place, word in enumerate(words) if place and _is_value(word)]
        at = values[-1] if values else len(words) - 1
        name, value = feature_named(self.planner, " ".join(words[:at])), " ".join(words[at:])
        self._submit_typed_values(do="correct", feature=name, typed=value)

    def _print_open_features(self) -> None:
        self._say(escape(", ".join(map(self._display_and_bundle_name, open_features(self.planner)))))

    def _record_unnamed_values(self, words: list[str], item: Suggestion | None) -> None:
        """Record values typed without feature names, as values of the suggested features in the order shown."""
        only = item.features[0] if item and len(item.features) == 1 else ""
        if only and " ".join(words).casefold() in (meanings_of(self.planner.question_bundle, only) or ()):
            words = [" ".join(words)]
        elif not _is_value(words[0]):
            codes = code_words(self.planner.question_bundle, item.features[0]) if item else ["low", "usual", "high"]
            expected = f"{', '.join(codes)}, NAME=VALUE, or a command"
            step = "type ? for the commands; a feature that was not asked for takes NAME=VALUE"
            for usage, _ in HELP:
                if usage.split()[0] == words[0].lower():
                    expected, step = usage, f"type {usage}, or ? for what it does"
            if words[0] in self.planner.bundle.features:
                step = f"type {words[0]}=VALUE"
            raise PlannerError(Fault("answer", repr(" ".join(words)), expected, step))
        asked, values = _require_suggestion(item), list[str]()
        for word in words:
            if values and (not _is_value(word) or self._is_unit(word, asked.features[: len(values)][-1])):
                values[-1] += f" {word}"
            else:
                values.append(word)
        if len(values) > len(asked.features):
            expected = f"{len(asked.features)}, for {', '.join(asked.features)}"
            raise PlannerError(Fault("answer", f"{len(values)} values", expected, "name the others as NAME=VALUE"))
        self._submit_typed_values(do="observe", typed=dict(zip(asked.features, values, strict=False)))

    def _is_unit(self, text: str, feature: str) -> bool:
        return same_unit(text, scale_of(self.planner.question_bundle, feature).unit)

    def _name_value_pairs(self, words: list[str]) -> list[tuple[str, str]]:
        """Split the typed words into pairs NAME=VALUE. If no word contains `=`, return an empty list.

        Names and units may contain blanks.
        """
        pairs, open_words = list[tuple[str, str]](), list[str]()
        for word in words:
            open_words.append(word)
            text = " ".join(open_words)
            if pairs and "=" not in text:
                feature, value = pairs[-1]
                with suppress(PlannerError):
                    if self._is_unit(text, feature_named(self.planner, feature)):
                        pairs[-1], open_words = (feature, f"{value} {text}"), []
            elif "=" in text and not text.endswith("="):
                name, _, value = text.rpartition("=")
                pairs.append((name.strip(), value.strip()))
                open_words = []
        if open_words and pairs:  # words after the last value become part of the value, which is then rejected
            pairs[-1] = pairs[-1][0], " ".join([pairs[-1][1], *open_words])
        return pairs

    def _record_named_values(self, pairs: list[tuple[str, str]]) -> None:
        typed = dict[str, str]()
        for name, value in pairs:
            feature = feature_named(self.planner, name)
            if feature in typed:
                raise PlannerError(Fault(f"feature {feature}", "two values", "one value", "leave one out"))
            if feature in self.planner.observed:
                step = f"write fix {feature} and the new value to replace it, or undo"
                found = f"the earlier value {value_words(self.planner, feature)}"
                raise PlannerError(Fault(f"feature {feature}", found, "a feature without a value", step))
            typed[feature] = value
        self._submit_typed_values(do="observe", typed=typed)

    def _print_gain_table(self) -> None:
        table = self.planner.explain()
        columns = ["feature", *(["item"] if self.planner.panels else []), "cost", "gain", "gain_per_cost", "tells"]
        columns = [name for name in columns if name in table]
        table["tells"] = table["tells"].str.removeprefix("tells ")
        if "item" in table:
            table["item"] = table["item"].where(table["item"] != table["feature"], "")  # a single feature
        table["feature"] = table["feature"].map(self.planner.question_bundle.shown)
        rows = [tuple(_format_table_cell(row[name]) for name in columns) for row in table.to_dict("records")]
        names = {"gain_per_cost": "gain per cost", "tells": "separates"}
        self._print_table(tuple(names.get(name, name) for name in columns), rows)

    def _print_contributions(self, typed: str) -> None:
        """Print how much each observation contributes for or against an entity, the largest contribution first."""
        answer = self.talk.do(do="why", entity=typed)
        found, shown = answer["findings"], self.planner.question_bundle.shown
        of = "log-odds" if answer["ordered_by"] == "probability" else "score"
        what = f"how much lower its {of} would be without each, in nats"
        self._say(f"[bold]{escape(shown(answer['entity']))}[/bold]: {len(found)} measured; {what}")
        most = max((abs(row["share"]) for row in found), default=0.0) or 1.0
        rows = [
            (
                shown(row["feature"]),
                value_words(self.planner, row["feature"]),
                f"{row['share']:+.2f}",
                ("+" if row["share"] > 0 else "-") * round(BAR_WIDTH / 2 * abs(row["share"]) / most),
            )
            for row in found
        ]
        if rows:
            self._print_table(("finding", "value", of, ""), rows)

    def _print_ranking(self) -> None:
        if not isinstance(self.planner, TopKPlanner):
            self._say(self._answer_so_far())
            return
        by_score = self.planner.ordered_by == "score"
        rows = [
            (
                str(place),
                self.planner.question_bundle.shown(row["entity"]),
                f"{row['score']:.2f}" if by_score else f"{row['posterior']:.2f}",
                f"{row['wins']:g}",
                str(row["certain"]),
            )
            for place, row in enumerate(self.talk.do(do="ranking")["ranking"], start=1)
        ]
        number = "score" if by_score else "probability"
        self._print_table(("", "entity", number, "duels won", "cannot change"), rows)

    def _print_history(self) -> None:
        rows = [
            (
                str(row["step"]),
                row["kind"],
                self.planner.question_bundle.shown(row["feature"]),
                ""
                if row["value"] is None
                else with_number(self.planner.question_bundle, row["feature"], row["value"], row["number"]),
                f"{row['spent']:g}",
                row["reason"],
            )
            for row in self.talk.do(do="history")["history"]
        ]
        self._print_table(("step", "kind", "feature", "value", "spent", "reason"), rows)

    def _print_table(self, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
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
        names = 1 if columns[0] else 2  # two columns: rank and name
        for row in cells:  # if the table is too wide, print each row as a line
            parts = [f"{name} {cell}" for name, cell in zip(columns[names:], row[names:], strict=True) if cell]
            self._print_indented(f"[bold]{escape(' '.join(row[:names]))}[/bold]  {escape(', '.join(parts))}", first="")

    def _print_indented(self, text: str, first: str = "  ") -> None:
        """Print a text whose continuation lines are indented by two characters."""
        lines = Text.from_markup(text).wrap(self.console, max(self.console.width - len(first) - 2, 1))
        for place, line in enumerate(lines):
            line.rstrip()
            self.console.print(Text.assemble(first + "  " if place else first, line), highlight=False)

    def _say(self, text: str = "") -> None:
        self.console.print(text, highlight=False)


def line_reader(planner: Planner) -> Callable[[str], str]:
    """Return a function that reads a line from standard input.

    In a terminal, the line can be edited, and the Tab key completes commands and names.
    """
    with suppress(ImportError):
        import readline  # noqa: PLC0415 (missing on some systems)

        names = [*COMMANDS, *planner.bundle.features, *planner.panels, *planner.bundle.entities]

        def complete(text: str, place: int) -> str | None:
            return next(islice((name for name in names if name.startswith(text)), place, None), None)

        if sys.stdin.isatty():
            readline.set_completer(complete)
            readline.set_completer_delims(" =")
            readline.parse_and_bind("tab: complete")
    return input


def _split_line(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise PlannerError(Fault("answer", repr(line), "quotes in pairs", "close the quote")) from None


def _is_value(word: str) -> bool:
    """Return True if a word is a code or the start of a number."""
    return word.casefold() in CODES or re.match(r"[-+]?[.,]?\d", word) is not None


def _require_suggestion(item: Suggestion | None) -> Suggestion:
    if item is None:
        step = "name the feature, as NAME=VALUE"
        raise PlannerError(Fault("answer", "a value", "a question that it answers", step))
    return item


def _format_table_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None or str(value) == "<NA>" else str(value)
