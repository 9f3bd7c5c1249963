"""Compute digests of the code that a job runs.

The code of a job consists of the functions that the job calls and all code of afa that these functions use.

Snakemake runs a job again if its rule has changed, but not if an imported module has changed. For this reason, each
rule has a parameter that describes the code of its jobs. The parameter contains the digest of the functions that the
rule's command calls, and the versions of the packages that affect the numbers (`versions`). The digest of a function
covers the function and everything in its module that the function uses. The digest also covers all code of every module
that is imported before the function runs.

Digests exclude comments, docstrings and messages to the user: help texts of options (`help=`) and the arguments of
`Fault(...)` (see `_message_string_ids`). Imports under `if TYPE_CHECKING:` are ignored, because Python does not run
these imports. Modules that afa itself imports with `importlib.import_module` are also ignored. The declaration of a
stage and its settings are parameters of the rule too: if one changes, Snakemake runs the rule again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec, resolve_name
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeGuard

from afa.errors import ConfigError, Fault
from afa.io.files import atomic_file
from afa.paper.sources import PACKAGE

DIGEST_LENGTH = 16
"""Number of hexadecimal digits of a code digest."""
NUMERICS = ("numpy", "scipy", "numba", "pandas")
"""Packages whose versions are in a parameter of every job. If one of these versions changes, all jobs run again."""
MOST_SOURCES = 2_000
"""Largest number of sources in the cache file. If there are more, only the latest are kept."""


@cache
def versions() -> str:
    """Return the installed versions of the packages in `NUMERICS`, such as `numpy 2.4.0, scipy 1.17.0`."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in NUMERICS)


class Piece(NamedTuple):
    """One top-level statement of a Python source, or one name that a top-level import statement imports.

    Parameters
    ----------
    digest : digest of the statement's code
    binds : names of the module that the statement sets or changes. A statement that sets no name runs at every import
        of the module
    uses : names of the module in the statement
    imports : pairs (`afa.module.name`, `afa.module`) of the imports in the statement. If the first name is a module,
        this module is imported, else the second
    is_import : True if the statement is only an import

    """

    digest: str
    binds: frozenset[str]
    uses: frozenset[str]
    imports: frozenset[tuple[str, str]]
    is_import: bool


class Code:
    """The Python sources of the package `afa`. Each source file is read only once, when a digest first needs the file.

    Parameters
    ----------
    known : a cache file of parsed sources, keyed by the content of a source. It only saves time.

    """

    def __init__(self, known: Path | None = None) -> None:
        self._known = known
        self._before = _read_cache(known) if known is not None else {}
        self._new: dict[str, tuple[Piece, ...]] = {}
        self._files = {
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
            for path in PACKAGE.rglob("*.py")
        }
        self._sources: dict[str, tuple[Piece, ...]] = {}
        self._modules: dict[str, tuple[str, set[str]]] = {}

    def digest(self, *roots: str) -> str:
        """Return the first `DIGEST_LENGTH` digits of the SHA-256 of all code that `roots` use."""
        digest = hashlib.sha256()
        for name, part in sorted(self.parts(*roots).items()):
            digest.update(f"{name}\0{part}\0".encode())
        return digest.hexdigest()[:DIGEST_LENGTH]

    def parts(self, *roots: str) -> dict[str, str]:
        """Return {name: digest} for every module and function that `roots` use.

        A root is a module (`afa.cohort.encode`), a function (`afa.paper.experiments.sign:run`), or the path of a
        notebook (`notebooks/chaos.ipynb`). For a notebook, the result contains only the modules that the notebook
        imports. The code in the notebook is excluded, because Snakemake already treats the notebook as an input of its
        rule.

        Raises
        ------
        ConfigError : a module does not parse, a module has a top-level statement of an unknown kind, or a notebook
            cannot be read.

        """
        found: dict[str, str] = {}
        pending = set[str]()
        for root in roots:
            if root.endswith(".ipynb"):
                pending |= self._notebook_imports(Path(root))
            elif ":" in root:
                part, imported = self._digest_function(*root.split(":"))
                found |= part
                pending |= imported
            else:
                pending.add(root)
        while pending:
            current = pending.pop()
            if current not in found:
                found[current], imported = self._digest_module(current)
                pending |= imported - found.keys()
        return found

    def keep(self) -> None:
        """Add the newly parsed sources to the cache file."""
        if self._known is not None and self._new:
            entries = [*self._before.items(), *self._new.items()][-MOST_SOURCES:]
            text = json.dumps({key: [[*map(_json_value, piece)] for piece in pieces] for key, pieces in entries})
            with suppress(OSError), atomic_file(self._known) as path:  # a dry run may lack permission to write
                path.write_text(text, encoding="utf-8")

    def _digest_module(self, module: str) -> tuple[str, set[str]]:
        """Return two results: the digest of a whole module, and the names of the modules that this module imports."""
        if module not in self._modules:
            pieces = self._pieces_of_module(module)
            digest = hashlib.sha256("".join(piece.digest for piece in pieces).encode()).hexdigest()
            self._modules[module] = digest, self._imported_modules(pieces)
        return self._modules[module]

    def _digest_function(self, module: str, name: str) -> tuple[dict[str, str], set[str]]:
        """Return two results: a dictionary with one function's digest, and the modules that must be imported first.

        If the module only imports the function (`from afa.module import run`), the digest is computed in the module
        that defines the function.
        """
        pieces = self._pieces_of_module(module)
        own = [piece for piece in pieces if name in piece.binds]
        if len(own) == 1 and own[0].is_import and (home := next(iter(self._imported_modules(own)), "")):
            return self._digest_function(home, name)
        reached = needed(pieces, name)
        digest = hashlib.sha256("".join(piece.digest for piece in reached if not piece.is_import).encode()).hexdigest()
        return {f"{module}:{name}": digest}, self._imported_modules(reached) - {module}

    def _notebook_imports(self, notebook: Path) -> set[str]:
        try:
            cells = json.loads(notebook.read_bytes())["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(Fault(str(notebook), f"no notebook ({error})", "a notebook", "correct it")) from None
        return self._imported_modules(self._pieces_of_source("\n".join(map(_without_magics, code)).encode(), notebook))

    def _pieces_of_module(self, module: str) -> tuple[Piece, ...]:
        if module not in self._sources:
            file = self._files[module]
            self._sources[module] = self._pieces_of_source(file.read_bytes(), file)
        return self._sources[module]

    def _pieces_of_source(self, source: bytes, file: Path) -> tuple[Piece, ...]:
        key = hashlib.sha256(f"{sys.version_info[:2]}\0".encode() + source).hexdigest()
        if key in self._before:
            return self._before[key]
        if key not in self._new:
            self._new[key] = pieces_of(source, file)
        return self._new[key]

    def _imported_modules(self, pieces: Iterable[Piece]) -> set[str]:
        """Return the modules of afa that the given statements import."""
        pairs = chain.from_iterable(piece.imports for piece in pieces)
        return {next((name for name in pair if name in self._files), "") for pair in pairs} - {""}


def _json_value(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value


def _read_cache(known: Path) -> dict[str, tuple[Piece, ...]]:
    """Return the parsed sources in a cache file. If the file is missing or incomplete, return an empty dictionary."""
    try:
        return {
            key: tuple(
                Piece(digest, frozenset(binds), frozenset(uses), frozenset((a, b) for a, b in imports), is_import)
                for digest, binds, uses, imports, is_import in pieces
            )
            for key, pieces in json.loads(known.read_bytes()).items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def needed(pieces: Sequence[Piece], name: str) -> list[Piece]:
    """Return all statements of a module that a name depends on, in the order of the source.

    The result contains the statements that set the name, and all statements that these statements depend on. Every name
    depends on all statements that set no name, such as a top-level call, because these statements always run.
    """
    binding: dict[str, list[int]] = {}
    for number, piece in enumerate(pieces):
        for bound in piece.binds:
            binding.setdefault(bound, []).append(number)
    if name not in binding:
        raise KeyError(f"no top-level {name} in this module")
    found = set[int]()
    pending = binding[name] + [number for number, piece in enumerate(pieces) if not piece.binds]
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending += chain.from_iterable(binding[used] for used in pieces[number].uses & binding.keys())
    return [pieces[number] for number in sorted(found)]


def pieces_of(source: bytes, file: Path) -> tuple[Piece, ...]:
    """Split a Python source into its top-level statements. Skip statements that do nothing when the module is imported.

    Raises
    ------
    ConfigError : the source is invalid Python, or has a statement of an unknown kind. The message has file and line.

    """
    with _convert_parse_errors(file):
        return _pieces_of_source(source)


@contextmanager
def _convert_parse_errors(file: Path) -> Iterator[None]:
    """Turn a parse error of Python into a `ConfigError` with file and line."""
    try:
        yield
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        found = f"a module that does not parse ({getattr(error, 'msg', error)})"
        where, step = f"{file}, line {line}" if line else str(file), "correct the file, or save the whole of it"
        raise ConfigError(Fault(where, found, "Python", step)) from None


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_KNOWN_STATEMENTS = (
    *(*_NAMED, *_IMPORTS, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.If, ast.Try, ast.TryStar, ast.With),
    *(ast.For, ast.While, ast.Match, ast.Expr, ast.Assert, ast.Raise, ast.Pass),
    getattr(ast, "TypeAlias", ast.Pass),  # exists since Python 3.12
)


@cache
def _pieces_of_source(source: bytes) -> tuple[Piece, ...]:
    found: list[Piece] = []
    for statement in _statements_that_run(ast.parse(source).body):
        if not isinstance(statement, _KNOWN_STATEMENTS):
            message = f"afa.paper.codedigest does not know which names the statement {type(statement).__name__} binds"
            raise SyntaxError(message, (None, statement.lineno, None, None))
        if isinstance(statement, _IMPORTS):
            for alias in statement.names:
                one = _with_names(statement, [alias])
                whole = alias.name == "*" or getattr(statement, "module", "") == "__future__"
                bound = () if whole else [alias.asname or alias.name.partition(".")[0]]
                found.append(_piece(one, frozenset(bound), is_import=not whole))
        else:
            found.append(_piece(statement, frozenset(_bound_names(statement)), is_import=False))
    names = frozenset[str]().union(*(piece.binds for piece in found))
    return tuple(piece._replace(uses=piece.uses & names) for piece in found)


def _statements_that_run(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run at import: all except strings, `pass`, and imports for type checking."""
    for statement in body:
        if isinstance(statement, ast.If) and _is_for_types(statement):
            yield from _statements_that_run(statement.orelse)
        elif not _is_string_statement(statement) and not isinstance(statement, ast.Pass):
            yield statement


def _is_for_types(statement: ast.If) -> bool:
    test = statement.test
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _is_string_statement(node: ast.AST) -> bool:
    """Return True if a statement is only a string, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _with_names(statement: ast.Import | ast.ImportFrom, names: list[ast.alias]) -> ast.Import | ast.ImportFrom:
    if isinstance(statement, ast.Import):
        return ast.copy_location(ast.Import(names), statement)
    return ast.copy_location(ast.ImportFrom(statement.module, names, statement.level), statement)


def _bound_names(node: ast.AST, *, changed: bool = True) -> Iterator[str]:
    """Yield the names that a statement binds in its scope.

    If `changed` is True, also yield the names whose values the statement changes (`name[0] = ...`).
    """
    if isinstance(node, _NAMED):
        yield node.name
        return
    if isinstance(node, _IMPORTS):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        inner: ast.expr = node
        while changed and isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield inner.id
    elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from _bound_names(child, changed=changed)


def _used_names(node: ast.AST) -> set[str]:
    """Return the names that a syntax node uses, except the parameters and local variables of functions."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names = {node.id} if isinstance(node, ast.Name) else set()
        return names.union(*map(_used_names, ast.iter_child_nodes(node)))
    given = node.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    own = {argument.arg for argument in arguments}.union(*(_bound_names(part, changed=False) for part in node.body))
    own -= {name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names}
    inside, outside = set[str]().union(*map(_used_names, node.body)), [*node.decorator_list, given, node.returns]
    return (inside - own).union(*(_used_names(part) for part in outside if part is not None))


def _piece(statement: ast.stmt, binds: frozenset[str], *, is_import: bool) -> Piece:
    nodes = list(ast.walk(statement))
    words: list[str] = []
    _append_syntax_tree(statement, _message_string_ids(statement, nodes), words)
    imported = chain.from_iterable(map(_imports, nodes))
    ours = frozenset(pair for pair in imported if pair[1].partition(".")[0] in (PACKAGE.name, ""))
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()
    return Piece(digest[:DIGEST_LENGTH], binds, frozenset(_used_names(statement)), ours, is_import)


def _append_syntax_tree(node: ast.AST, omitted: set[int], words: list[str]) -> None:
    """Append the syntax tree below a node to `words` as text. Skip line numbers, docstrings and `omitted` nodes."""
    words.append(type(node).__name__)
    for field in node._fields:
        value = getattr(node, field, None)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                if (
                    not isinstance(part, ast.expr_context)
                    and not _is_string_statement(part)
                    and id(part) not in omitted
                ):
                    words.append(field)
                    _append_syntax_tree(part, omitted, words)
            elif part is not None:
                words.append(f"{field} {part!r}")
    words.append(".")


def _message_string_ids(statement: ast.stmt, nodes: Sequence[ast.AST]) -> set[int]:
    """Return the `id` of every string constant that is part of a message to the user, such as an error message.

    Messages to the user are the arguments of `Fault(...)`, the argument `help=` of any call, and the return value of
    `Fault.__str__`. Strings inside f-strings, conditionals and sums in these places also count as parts of a message.
    The code digest ignores all these strings. A string that is assigned to a variable is also ignored if the function
    uses the variable only in messages to the user. A parameter's default value is also ignored if the function uses the
    parameter only in messages to the user.

    The digest covers the texts of all other exceptions, because such a text can influence a result: if an answer of a
    language model is invalid, the next prompt quotes the text of the `ValueError`.
    """
    spoken: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            if getattr(node.func, "id", getattr(node.func, "attr", "")) == "Fault":
                spoken += [*node.args, *(keyword.value for keyword in node.keywords)]
            spoken += [keyword.value for keyword in node.keywords if keyword.arg == "help"]
    if isinstance(statement, ast.ClassDef) and statement.name == "Fault":
        texts = [part for part in statement.body if isinstance(part, ast.FunctionDef) and part.name == "__str__"]
        returned = (node for part in texts for node in ast.walk(part) if isinstance(node, ast.Return))
        spoken += [node.value for node in returned if node.value is not None]
    leaves = list(chain.from_iterable(map(_text_parts, spoken)))
    if any(isinstance(leaf, ast.Name) for leaf in leaves):
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        in_place = {id(leaf) for leaf in leaves}
        for function in functions:
            leaves += chain.from_iterable(map(_text_parts, _message_only_values(function, in_place)))
    return {id(leaf) for leaf in leaves if isinstance(leaf, ast.Constant)}


def _text_parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the strings and names from which an expression builds a text by conditionals, sums and f-strings."""
    if isinstance(node, ast.IfExp):
        yield from chain(_text_parts(node.body), _text_parts(node.orelse))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from chain(_text_parts(node.left), _text_parts(node.right))
    elif isinstance(node, ast.JoinedStr):
        yield from (part for part in node.values if isinstance(part, ast.Constant))
    elif isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node


def _message_only_values(function: ast.FunctionDef | ast.AsyncFunctionDef, in_place: set[int]) -> Iterator[ast.expr]:
    """Yield the values that a function uses only in messages to the user.

    Such a value is assigned to a variable, or is the default value of a parameter.

    `in_place` contains the Python `id` of each name and each string that is part of a message to the user.
    """
    nodes = list(ast.walk(function))
    used = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    spoken = {node.id for node in used if id(node) in in_place} - {node.id for node in used if id(node) not in in_place}
    spoken -= {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    if not spoken:
        return
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in spoken:
                    yield node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    both = [*target.elts, *node.value.elts]
                    each = [] if any(isinstance(part, ast.Starred) for part in both) else target.elts
                    pairs = zip(each, node.value.elts, strict=False)
                    yield from (value for part, value in pairs if isinstance(part, ast.Name) and part.id in spoken)
        elif isinstance(node, ast.arguments):
            plain = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
            given = [*zip(plain, node.defaults, strict=True), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            yield from (value for argument, value in given if value is not None and argument.arg in spoken)


def _imports(node: ast.AST, package: str | None = None) -> list[tuple[str, str]]:
    """Return (`module.name`, `module`) for each name that a statement imports.

    Parameters
    ----------
    package : the package of the node's module, for relative imports

    """
    if isinstance(node, ast.Import):
        return [(each.name, each.name) for each in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        if node.level:
            module = resolve_name(module, package)
        return [(f"{module}.{each.name}", module) for each in node.names]
    return []


def _calls_import_module(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call) or not node.args:
        return False
    return getattr(node.func, "id", getattr(node.func, "attr", "")) in ("import_module", "__import__")


def user_files(module: str) -> list[Path]:
    """Return the files of a user's module, and the files of all modules that this module imports, also indirectly.

    The list is empty if the module does not exist.

    Modules of afa, of Python and of installed packages are excluded.

    Raises
    ------
    ConfigError : a file is not Python, or it calls `import_module` with a name that is only known at run time.

    """
    files: dict[str, Path] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        # Look for the top-level package first, because Python imports a package to find a module inside the package.
        top, _ = _find_source_file(name.partition(".")[0])
        file, package = (
            (None, None) if top is not None and _is_installed(top) and name != module else _find_source_file(name)
        )
        if file is None or name in files:
            continue
        files[name] = file
        if not _is_installed(file):
            with _convert_parse_errors(file):
                tree = ast.parse(file.read_bytes())
            for node in ast.walk(tree):
                pending += chain.from_iterable(_imports(node, package))
                if _calls_import_module(node):
                    pending.append(_imported_by_call(node, package, file))
    return list(dict.fromkeys(files.values()))


def _imported_by_call(call: ast.Call, package: str | None, file: Path) -> str:
    """Return the name of the module that a call of `import_module` imports."""
    name = call.args[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        where, found = f"{file}, line {call.lineno}", f"import_module({ast.unparse(name)})"
        step = "name the module in quotes, or import it: a change of it must run the rule again"
        raise ConfigError(Fault(where, found, "the name of a module as text", step))
    return resolve_name(name.value, package) if name.value.startswith(".") else name.value


def _is_installed(file: Path) -> bool:
    folders = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    return any(file.is_relative_to(folder) for folder in (*folders, PACKAGE))


def _find_source_file(module: str) -> tuple[Path | None, str | None]:
    """Return the source file of a module and the name of its package, or (None, None) if the module does not exist."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None, None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None, None
    return Path(spec.origin), spec.parent


def _without_magics(cell: str) -> str:
    return "\n".join("" if line.startswith(("%", "!")) else line for line in cell.split("\n"))
