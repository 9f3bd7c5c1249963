"""Changes of a module's text: one that changes what a function does, and one that changes nothing."""

from __future__ import annotations

import ast

ADDED = "added_by_the_test = 1"


def other_code(source: bytes, *, runs_now: bool) -> tuple[bytes, str]:
    """The module with a constant of one function changed, and the name at the top of the module that this lies under.

    Where no function has a constant, or the module `runs_now`, while the change is looked at, the first function gets
    an unused variable; a module without functions gets it at its end.
    """
    tree = ast.parse(source)
    for statement in [] if runs_now else tree.body:
        for function in _functions(statement):
            for constant in _constants(function):
                return _with_another(source, constant), _name(statement)
    for statement in tree.body:
        for function in _functions(statement):
            first = function.body[0]
            if first.lineno > function.lineno:
                line = " " * first.col_offset + ADDED + "\n"
                return _inserted(source, {(first.end_lineno or 0) + 1: line}), _name(statement)
    return source + f"\n\n{ADDED}\n".encode(), ADDED.partition(" ")[0]


def other_words(source: bytes, *, docstrings: bool) -> bytes:
    """The same code with comments, blank lines, other help and words of errors and, if wanted, other docstrings."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    for text in sorted(_spoken(tree), key=lambda text: (text.lineno, text.col_offset), reverse=True):
        line, opened = lines[text.lineno - 1], text.col_offset + 1
        if line[text.col_offset : opened] == b'"' and line[opened : opened + 2] != b'""':
            lines[text.lineno - 1] = line[:opened] + b"Said otherwise. " + line[opened:]
    for node in ast.walk(tree) if docstrings else ():
        texts = node.body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) else []
        for text in texts:
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                line = lines[text.lineno - 1]
                opened = line.index(b'"', text.col_offset)
                opened += 3 if line[opened : opened + 3] == b'"""' else 1
                lines[text.lineno - 1] = line[:opened] + b"Said otherwise. " + line[opened:]
    starts = [min([item.lineno, *(d.lineno for d in getattr(item, "decorator_list", []))]) for item in tree.body]
    return _inserted(b"".join(lines), dict.fromkeys(starts, "\n\n# a comment\n")) + b"\n# the last comment\n"


def _spoken(tree: ast.Module) -> list[ast.Constant]:
    """Texts in the place of an argument of `Fault`, or of `help=`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    faults = [call for call in calls if getattr(call.func, "id", "") == "Fault"]
    texts = [text for call in faults for text in call.args]
    texts += [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "help"]
    return [text for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]


def _functions(statement: ast.stmt) -> list[ast.FunctionDef]:
    inner = statement.body if isinstance(statement, ast.ClassDef) else [statement]
    return [node for node in inner if isinstance(node, ast.FunctionDef)]


def _constants(function: ast.FunctionDef) -> list[ast.Constant]:
    """Numbers in the body of a function; not those inside f-strings, whose places Python 3.11 does not tell."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    hidden = {inner for node in nodes if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    numbers = [node for node in nodes if isinstance(node, ast.Constant) and type(node.value) in (int, float)]
    return [node for node in numbers if node not in hidden]


def _with_another(source: bytes, constant: ast.Constant) -> bytes:
    lines = source.splitlines(keepends=True)
    line, start, end = constant.lineno - 1, constant.col_offset, constant.end_col_offset
    lines[line] = lines[line][:start] + f"{constant.value + 1}".encode() + lines[line][end:]
    return b"".join(lines)


def _name(statement: ast.stmt) -> str:
    assert isinstance(statement, ast.FunctionDef | ast.ClassDef)
    return statement.name


def _inserted(source: bytes, texts: dict[int, str]) -> bytes:
    """The source with a text before each of the given lines, counted from 1."""
    lines = source.splitlines(keepends=True)
    for line in sorted(texts, reverse=True):
        lines.insert(line - 1, texts[line].encode())
    return b"".join(lines)
