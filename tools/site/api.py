"""The pages of the public names: one entry for each, with signature, parameters, example, and where it is explained.

`entries()` reads the docstrings at run time, because decorators fill many of them in. The text of a datum is the string
below its assignment, which exists in the source only. `floatsim.torch` and `floatsim.triton` are read from their
source, so that the pages need no PyTorch. `markdown(page)` is the text of one page. tests/test_site.py checks every
entry, and runs the examples of data; pytest runs those of functions and classes.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import importlib.util
import inspect
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "Entry", "Member", "anchor", "entries", "explained", "linked", "markdown", "sentence"]

ROOT = Path(__file__).resolve().parents[2]

PAGES: dict[str, tuple[str, str, str]] = {
    "formats": (
        "Formats and rounding modes", "floatsim",
        ".formats.format .formats.rounding ._warnings",
    ),
    "settings": (
        "Settings and records", "floatsim",
        ".arrays.call.options .arrays.events.record .arrays.call.random_stream "
        ".arrays.call.random_sources .emulator.parallel",
    ),
    "numbers": (
        "Arrays and conversions", "floatsim",
        ".arrays.array.float_array .arrays.array.conversion .arrays.array.torch_jax .arrays.elementwise.projection "
        ".quantization.blocks .quantization.calibration .quantization.packing",
    ),
    "arithmetic": (
        "Arithmetic and comparison", "floatsim",
        ".arrays.elementwise.arithmetic .arrays.elementwise.comparison .arrays.elementwise.ulps .analysis.equality",
    ),
    "functions": (
        "Mathematical functions", "floatsim", ".arrays.elementwise.functions .arrays.elementwise.library_functions",
    ),
    "sums": (
        "Products and reductions", "floatsim",
        ".arrays.sums.products .arrays.sums.product_bounds .arrays.sums.einsum .arrays.scaled_mm "
        ".arrays.sums.reductions .arrays.library_reductions",
    ),
    "accumulations": ("Descriptions of sums", "floatsim", ".accumulation .accumulation.libraries"),
    "analysis": (
        "Analysis", "floatsim",
        ".analysis.summation_order .analysis.explain .analysis.explain_operation .analysis.explain_expression "
        ".analysis.exponent_histogram .analysis.conversion_losses .analysis.random_bits .analysis.survey.survey "
        ".analysis.significant_digits .analysis.sweeps .analysis.trace.trace .operators.errors "
        ".testing.identify.identification .testing.quantizers.identification",
    ),
    "explorer": ("The explorer", "floatsim", ".explorer.page"),
    "operators": ("Operators: fs.operators", "floatsim.operators", ""),
    "quantization": ("Quantization: fs.quantization", "floatsim.quantization", ""),
    "algorithms": ("Published algorithms: fs.algorithms", "floatsim.algorithms", ""),
    "training": ("Training: fs.training", "floatsim.training", ""),
    "torch": ("PyTorch: floatsim.torch", "floatsim.torch", ""),
    "triton": ("Triton: floatsim.triton", "floatsim.triton", ""),
    "plot": ("Pictures: fs.plot", "floatsim.plot", ""),
    "testing": ("Checks of kernels: fs.testing", "floatsim.testing", ""),
    "tensorcore": ("Matrix units: fs.tensorcore", "floatsim.tensorcore", ""),
    "hardware": ("GPUs and CPUs: fs.hardware", "floatsim.hardware", ""),
    "approx": ("Approximations of a GPU: fs.approx", "floatsim.approx", ""),
    "njit": ("Compiled loops: fs.njit", "floatsim.njit", ""),
    "datasets": ("Data sets: fs.datasets", "floatsim.datasets", ""),
    "reference": ("The specification: fs.reference", "floatsim.reference", ""),
}  # fmt: skip
"""Page to its title, its package, and the modules of the package whose names it has; without modules, all names."""

FROM_SOURCE = {"floatsim.torch", "floatsim.triton"}
"""Packages that need a library: their pages are written without an import."""

ALIASES = {"ft": "floatsim.torch", "ftl": "floatsim.triton"}
"""The short names of packages in the pages."""


@dataclass(frozen=True)
class Member:
    """A public method, property or member of an enumeration, with its signature and its documentation."""

    name: str
    signature: str
    doc: str


@dataclass(frozen=True)
class Entry:
    """A public name.

    `kind` is "function", "class" or "data". `module` and `line` say where its documentation stands.
    """

    page: str
    package: str
    name: str
    kind: str
    signature: str
    doc: str
    module: str
    members: tuple[Member, ...] = ()

    @property
    def path(self) -> str:
        """The name as users write it: fs.matmul, fs.plot.bit_strip, floatsim.torch.emulate."""
        return f"{short(self.package)}.{self.name}"

    @property
    def examples(self) -> str:
        """The prompts of the documentation, with their results."""
        return "\n".join(block for kind, block in blocks(self.doc) if kind == "example")


def short(package: str) -> str:
    """Return a package as users write it."""
    return package if package in FROM_SOURCE else package.replace("floatsim", "fs", 1)


# -- names -------------------------------------------------------------------------------------------------------------


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Return every public name, page by page."""
    return tuple(_entries())


def _entries() -> Iterator[Entry]:
    import floatsim

    pages = {module: page for page, (_, package, modules) in PAGES.items() for module in modules.split()}
    left = set(vars(floatsim)["_HOMES"]) - set(pages)
    if left:
        raise ValueError(f"PAGES of tools/site/api.py has no page for the names of {', '.join(sorted(left))}")
    for page, (_, package, modules) in PAGES.items():
        if package in FROM_SOURCE:
            yield from _from_source(page, package)
            continue
        home = importlib.import_module(package)
        names = home.__all__
        if modules:
            homes = vars(home)["_HOMES"]
            names = [name for module in modules.split() for name in sorted(homes[module].split())]
        for name in names:
            value = getattr(home, name)
            if not isinstance(value, types.ModuleType):
                yield _entry(page, package, name, value)


def _entry(page: str, package: str, name: str, value: Any) -> Entry:
    if inspect.isclass(value) and not isinstance(value, types.GenericAlias):
        doc, module = inspect.getdoc(value) or "", value.__module__
        signature = "" if issubclass(value, enum.Enum | Exception) else _signature(value)
        return Entry(page, package, name, "class", f"{name}{signature}", doc, module, tuple(_members(value)))
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, types.GenericAlias):
        doc = inspect.getdoc(value) or ""
        return Entry(page, package, name, "function", f"{name}{_signature(value)}", doc, value.__module__)
    module = _module_of(package, name)
    return Entry(page, package, name, "data", name, data_docs(module).get(name, ""), module)


def _signature(function: Callable[..., Any]) -> str:
    """Return a signature without the annotation of self, and with long defaults written as "..."."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return "(...)"
    changed = [
        each.replace(default=_Text("..."))
        if each.default is not each.empty and len(repr(each.default)) > 40
        else each.replace(default=_Text(each.default.__name__))
        if inspect.isclass(each.default) and each.default is not each.empty
        else each
        for each in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=changed))
    return re.sub(r"(?<=: |> )'((?:[^'\\]|\\.)*)'", lambda m: m[1], text)


class _Text:
    """A default value that is written as this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _members(kind: type) -> Iterator[Member]:
    """Yield the public members that floatsim defines, in the order of their definition, those of bases last."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("floatsim"):
            continue
        texts = _texts_of_class(owner)
        for name, member in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            inherited = (inspect.getdoc(vars(base)[name]) for base in kind.__mro__ if name in vars(base))
            doc = next((text for text in inherited if text), "")
            if issubclass(kind, enum.Enum) and name in kind.__members__:
                yield Member(name, "", texts.get(name, ""))
            elif isinstance(function, property | functools.cached_property):
                yield Member(name, "", doc)
            elif inspect.isfunction(function):
                yield Member(name, _signature(function), doc)


@functools.cache
def _tree(module: str) -> ast.Module:
    from_source = any(module == package or module.startswith(f"{package}.") for package in FROM_SOURCE)
    spec = None if from_source else importlib.util.find_spec(module)  # which imports the packages above
    path = Path(spec.origin) if spec and spec.origin else _path(module)
    return ast.parse(path.read_text(encoding="utf-8"))


def _path(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _texts(body: list[ast.stmt]) -> dict[str, str]:
    """Return the strings below assignments, by the assigned name; names without a string have an empty one."""
    found = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            text = inspect.cleandoc(after.value.value)
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = text
    return found


def _texts_of_class(kind: type) -> dict[str, str]:
    body = next(
        (n.body for n in _tree(kind.__module__).body if isinstance(n, ast.ClassDef) and n.name == kind.__name__), []
    )
    return _texts(body)


def data_docs(module: str) -> dict[str, str]:
    """Return the documentation of the data of a module: the strings below the assignments."""
    return _texts(_tree(module).body)


def _module_of(package: str, name: str) -> str:
    """Return the module that assigns a datum, which other modules import."""
    waiting, seen = [package], set()
    while waiting:
        module = waiting.pop(0)
        if module in seen:
            continue
        seen.add(module)
        if module != package and name in data_docs(module):
            return module
        homes = vars(importlib.import_module(module)).get("_HOMES", {})
        waiting += [importlib.util.resolve_name(home, module) for home, names in homes.items() if name in names.split()]
        waiting += [
            node.module for node in _tree(module).body
            if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names)
        ]  # fmt: skip
    raise ValueError(f"no module assigns {package}.{name}")


# -- names that are read from the source -------------------------------------------------------------------------------


def _from_source(page: str, package: str) -> Iterator[Entry]:
    names = ast.literal_eval(_assigned(package, "__all__").value)
    for name in names:
        module, original = _defining(package, name)
        if not module.startswith(package):  # of another package of floatsim, which can be imported
            yield _entry(page, package, name, getattr(importlib.import_module(module), original))
            continue
        node = next((each for each in _tree(module).body if getattr(each, "name", "") == original), None)
        if node is not None:
            yield _node_entry(page, package, name, module, node)
            continue
        value = ast.unparse(_assigned(module, original).value)
        if value in _imports(module):  # another name of something in another package
            home, wanted = _defining(module, value)
            yield _entry(page, package, name, getattr(importlib.import_module(home), wanted))
        else:
            yield Entry(page, package, name, "data", name, data_docs(module).get(name, ""), module)


def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Return the names that a module imports from others: each to the module and its name there."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in _tree(module).body if isinstance(node, ast.ImportFrom) and node.module for alias in node.names
    }  # fmt: skip


def _defining(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines a name, and its name there: packages import the names of their modules."""
    while name in _imports(module):
        module, name = _imports(module)[name]
    return module, name


def _assigned(module: str, name: str) -> ast.Assign | ast.AnnAssign:
    for node in _tree(module).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if name in map(ast.unparse, targets):
            return node
    raise ValueError(f"{module} assigns no {name}")


def _node_entry(page: str, package: str, name: str, module: str, node: Any) -> Entry:
    doc = ast.get_docstring(node) or ""
    if isinstance(node, ast.FunctionDef):
        return Entry(page, package, name, "function", f"{name}{_node_signature(node)}", doc, module)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    made = next((_node_signature(each) for each in methods if each.name == "__init__"), None)
    if made is None:
        fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
        made = f"({', '.join(each for each in fields if not each.startswith('_'))})"
    members = tuple(
        Member(
            each.name,
            "" if any("property" in ast.unparse(one) for one in each.decorator_list) else _node_signature(each),
            ast.get_docstring(each) or "",
        )
        for each in methods if not each.name.startswith("_")
    )  # fmt: skip
    return Entry(page, package, name, "class", f"{name}{made}", doc, module, members)


def _node_signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)}){returns}"


# -- docstrings --------------------------------------------------------------------------------------------------------


def sentence(doc: str) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join(doc.strip().partition("\n\n")[0].split())


def blocks(doc: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a docstring: ("section", its title), ("example", prompts and results), ("text", a paragraph).

    An example ends at an empty line. Paragraphs keep their indentation.
    """
    lines = doc.splitlines()
    i = 0
    while i < len(lines):
        if not lines[i].strip():
            i += 1
        elif i + 1 < len(lines) and re.fullmatch(r" *-{3,}", lines[i + 1]):
            yield "section", lines[i].strip()
            i += 2
        else:
            end = i
            while end < len(lines) and lines[end].strip():
                if end > i and end + 1 < len(lines) and re.fullmatch(r" *-{3,}", lines[end + 1]):
                    break
                if end > i and lines[end].lstrip().startswith(">>> ") and not lines[i].lstrip().startswith(">>> "):
                    break
                end += 1
            block = lines[i:end]
            yield (
                "example" if block[0].lstrip().startswith(">>> ") else "text",
                inspect.cleandoc("\n".join(["", *block])) if block[0].lstrip().startswith(">>> ") else "\n".join(block),
            )
            i = end


LISTED = {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "See Also"}


def escaped(text: str) -> str:
    """Return text in which only the code spans have a meaning in Markdown."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([*_<>\[\]|\\#])", r"\\\1", part) for i, part in enumerate(parts))


def _prose(doc: str) -> Iterator[str]:
    """Yield the Markdown of a docstring after its first paragraph."""
    section = ""
    first = True
    for kind, block in blocks(doc):
        if kind == "section":
            section, first = block, False
            if block not in ("Examples", "Notes"):
                yield f"**{block}**"
        elif kind == "example":
            yield f"```pycon\n{block}\n```"
        elif section in LISTED:
            yield from _definitions(block)
        elif first:
            first = False
        else:
            lines = block.splitlines()
            if all(line.startswith("    ") for line in lines):
                yield "```text\n" + inspect.cleandoc("\n" + block) + "\n```"
            elif re.match(r" *(- |\* |\d+\. )", lines[0]):
                yield "\n".join(_item(line) for line in lines)
            else:
                yield escaped(" ".join(line.strip() for line in lines))


def _item(line: str) -> str:
    """Return a line of a list, nested lists with four spaces."""
    indent = len(line) - len(line.lstrip())
    mark = re.match(r"(- |\* |\d+\. )?(.*)", line.strip())
    return " " * (4 * (indent // 2)) + (mark[1] or "") + escaped(mark[2])


def _definitions(block: str) -> Iterator[str]:
    """Yield the parameters of a section as a list of definitions: "name : type" and lines that are indented."""
    found: list[tuple[str, list[str]]] = []
    base = min(len(line) - len(line.lstrip()) for line in block.splitlines())
    for line in block.splitlines():
        if len(line) - len(line.lstrip()) == base:
            found.append((line.strip(), []))
        elif found:
            found[-1][1].append(line.strip())
    for head, texts in found:
        names, _, kind = head.partition(" : ")
        title = f"`{names}`" + (f": *{escaped(kind)}*" if kind else "")
        yield f"{title}\n:   {escaped(' '.join(texts)) or '&nbsp;'}"


# -- where a name is explained -----------------------------------------------------------------------------------------


def _sections(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (heading, fragment, text) of each section of a page, code blocks included."""
    heading, lines, inside = "", [], False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        if line.startswith("#") and not inside:
            yield heading, slug(heading), "\n".join(lines)
            heading, lines = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("# ")), []
        lines.append(line)
    yield heading, slug(heading), "\n".join(lines)


def slug(heading: str) -> str:
    """Return the fragment of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@functools.cache
def explained() -> dict[str, tuple[tuple[str, str, str], ...]]:
    """Return (page, fragment, title) of the sections that use a name, by the name's path; the best ones first.

    A section whose heading has the name comes first, then those that use it most.
    """
    uses: dict[str, list[tuple[float, str, str, str]]] = {}
    known = {entry.path: entry for entry in entries()}
    prefix = re.compile(r"\b(fs|floatsim|ftl?)((?:\.[a-zA-Z_]\w*)+)")
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name == "README.md":
            continue
        text = page.read_text(encoding="utf-8")
        title = text.partition("\n")[0].lstrip("# ")
        for heading, fragment, body in _sections(text):
            counts: dict[str, int] = {}
            for m in prefix.finditer(body):
                start = ALIASES.get(m[1], "fs")
                for path in (f"{start}{m[2]}", f"{start}.{m[2].split('.')[1]}"):
                    if path in known:
                        counts[path] = counts.get(path, 0) + 1
                        break
            for path, number in counts.items():
                named = known[path].name.lower() in heading.lower()
                name = heading if heading == title or not heading else f"{title}: {heading}"
                uses.setdefault(path, []).append((-(number + 100 * named), page.name, fragment, name))
    return {path: tuple(found[1:] for found in sorted(all_)) for path, all_ in uses.items()}


# -- pages -------------------------------------------------------------------------------------------------------------


def anchor(entry: Entry) -> str:
    """Return the fragment of a name on its page."""
    return entry.path


@functools.cache
def addresses() -> dict[str, str]:
    """Return page.md#fragment of each name that pages use: fs.matmul, floatsim.matmul, ft.emulate, methods."""
    found = {}
    for entry in entries():
        address = f"{entry.page}.md#{anchor(entry)}"
        short_names = {f"{alias}.{entry.name}" for alias, package in ALIASES.items() if package == entry.package}
        for path in {entry.path, f"{entry.package}.{entry.name}", *short_names}:
            found.setdefault(path, address)
            for member in entry.members:
                found.setdefault(f"{path}.{member.name}", f"{entry.page}.md#{anchor(entry)}.{member.name}")
    for page, (_, package, modules) in PAGES.items():
        if not modules:
            found.setdefault(short(package), f"{page}.md")
            found.setdefault(package, f"{page}.md")
    return found


def linked(text: str, start: str) -> str:
    """Return Markdown whose code spans with a public name are links to its entry. `start` leads to the pages.

    Code blocks, headings and links are left as they are.
    """
    pattern = re.compile(
        r"(?P<keep>^(?P<fence>```+|~~~+).*?^(?P=fence)[^\n]*$|^#[^\n]*$|!?\[(?:[^\]`]|`[^`]*`)*\]\([^)]*\)|<[^>\n]+>|``[^`].*?``)"
        r"|`(?P<name>(?:fs|floatsim|ftl?)(?:\.\w+)+)(?P<call>\([^`]*\)|\.\.\.)?`",
        re.MULTILINE | re.DOTALL,
    )

    def replace(m: re.Match[str]) -> str:
        if m["keep"] is not None:
            return m[0]
        address = addresses().get(m["name"])
        return f"[{m[0]}]({start}{address})" if address else m[0]

    return pattern.sub(replace, text)


def _wrapped(signature: str, width: int = 88) -> str:
    """Return a signature in lines: one for each parameter if it is long."""
    if len(signature) <= width:
        return signature
    start = signature.index("(") + 1
    depth, parts, last, end = 1, [], start, len(signature)
    for i in range(start, len(signature)):
        depth += (signature[i] in "([{") - (signature[i] in ")]}")
        if depth == 0:
            end = i
            break
        if depth == 1 and signature[i] == ",":
            parts.append(signature[last : i + 1].strip())
            last = i + 1
    parts.append(signature[last:end].strip())
    inner = "\n".join(f"    {part}" for part in parts if part)
    return f"{signature[:start]}\n{inner}\n{signature[end:]}"


def _entry_markdown(entry: Entry) -> Iterator[str]:
    yield f"## `{entry.path}` {{ #{anchor(entry)} }}"
    if entry.kind != "data":
        prefix = "class " if entry.kind == "class" else ""
        yield f"```python\n{prefix}{_wrapped(entry.signature)}\n```"
    yield escaped(sentence(entry.doc))
    yield from _prose(entry.doc)
    if entry.members:
        yield "**Members**"
        for member in entry.members:
            name = f"`{member.name}{re.sub(r'^[(](self|cls)(, )?', '(', member.signature)}`"
            text = escaped(sentence(member.doc)) or "&nbsp;"
            yield f'<span id="{anchor(entry)}.{member.name}"></span>{name}\n:   {text}'
    pages = explained().get(entry.path, ())[:4]
    if pages:
        links = ", ".join(
            f"[{escaped(title).replace('`', '')}](../{page}#{fragment})" for page, fragment, title in pages
        )
        yield f"Explained in: {links}."


def markdown(page: str) -> str:
    """Return the Markdown of a page of names."""
    title, package, modules = PAGES[page]
    chosen = [entry for entry in entries() if entry.page == page]
    parts = [f"# {title}"]
    if not modules:
        doc = ast.get_docstring(_tree(package)) or ""
        parts += [escaped(sentence(doc)), *_prose(doc)]
    table = ["| name | |", "| --- | --- |"]
    for entry in chosen:
        text = escaped(sentence(entry.doc))
        table.append(f"| [`{entry.path}`](#{anchor(entry)}) | {text} |")
    parts.append("\n".join(table))
    for entry in chosen:
        parts += _entry_markdown(entry)
    return linked("\n\n".join(parts) + "\n", "")


def index() -> str:
    """Return the Markdown of the list of all public names."""
    parts = [
        "# Public names",
        f"All {len(entries())} public names, by topic. Each has its signature, its parameters, an example that the "
        "tests run, and links to the pages that explain it. In Python, `help(fs.matmul)` shows the same text.",
    ]
    for page, (title, _, _) in PAGES.items():
        names = [f"[`{entry.name}`]({page}.md#{anchor(entry)})" for entry in entries() if entry.page == page]
        parts += [f"## [{title}]({page}.md)", " ".join(names)]
    return "\n\n".join(parts) + "\n"
