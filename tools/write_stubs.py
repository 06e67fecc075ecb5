"""Write the generated files of static types: the stubs of the lazy packages, and the literal names.

A lazy package imports its public names when they are first used, so a type checker cannot see them. Its `__init__.pyi`
lists them. Some return types are markers, defined in `floatsim.arrays.array.types`: the tables below expand them to
overloads. All other names are imported from the module that defines them.

    python tools/write_stubs.py           writes the files
    python tools/write_stubs.py --check   fails if a file is not up to date
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from floatsim.accumulation import as_accumulation  # noqa: E402
from floatsim.formats import named_formats  # noqa: E402
from floatsim.tensorcore import ARCHITECTURES  # noqa: E402

PACKAGES = (
    "floatsim", "floatsim.algorithms", "floatsim.arrays", "floatsim.hardware", "floatsim.operators", "floatsim.plot",
    "floatsim.quantization", "floatsim.tensorcore", "floatsim.testing", "floatsim.training",
)  # fmt: skip
"""The packages that use `lazy_exports`. The overloads are in the first; the others import them from there."""

SCALARS = {"Floats": "Scalar", "Values": "Number", "Integers": "int | np.integer[Any]"}
"""The annotation of an operand to that of a single number."""

RESULTS = {
    "FloatResult": None,
    "SameKindResult": None,
    "FloatArrayResult": "FloatArray",
    "CodeResult": "NDArray[np.unsignedinteger[Any]]",
    "IntegerResult": "NDArray[np.integer[Any]]",
    "Int32Result": "NDArray[np.int32]",
    "UInt8Result": "NDArray[np.uint8]",
    "UInt64Result": "NDArray[np.uint64]",
    "Float64Result": "NDArray[np.float64]",
    "BoolResult": "NDArray[np.bool_]",
}
"""The markers of `floatsim.arrays.array.types` to the type of the result; None if it depends on the operands."""

WITH_DTYPE = {
    "format": "ArrayFormatName | type[np.floating[Any]] | None",
    "fmt": "ArrayFormatName | type[np.floating[Any]]",
    "accumulate": "ArrayAccumulationName | type[np.floating[Any]] | None",
}
"""The parameters that choose the format of the result, and their values for which it has a dtype."""

BASES = {
    "RoundingOptions": "RoundingKeywords", "FunctionOptions": "FunctionKeywords", "Summation": "SummationKeywords"
}  # fmt: skip
"""TypedDicts whose own keys change the type of the result, with the TypedDict of the other keys."""

SAME_KEYWORDS = {"dot": "matmul", "vdot": "matmul"}
"""Functions that pass their keywords on, and the function that documents them."""

IMPORTS = {
    "collections.abc": "Sequence",
    "typing": "Any Literal Unpack overload",
    "numpy.typing": "DTypeLike NDArray",
    "floatsim._literals": "ArrayAccumulationName ArrayFormatName",
    "floatsim.accumulation": "AccumulationLike",
    "floatsim.arrays.array.float_array": "FloatArray",
    "floatsim.arrays.call.options": "BackendName RoundingKeywords",
    "floatsim.arrays.call.random_stream": "SeedLike",
    "floatsim.arrays.array.types": (
        "Axes BoolOut CodeOut Flags Float64Out Floats Integers NanRule Number Out Scalar SummationKeywords Values"
    ),
    "floatsim.arrays.elementwise.library_functions": "FunctionKeywords",
    "floatsim.arrays.elementwise.ulps": "Kind",
    "floatsim.formats": "FormatLike",
    "floatsim.formats.rounding": "OverflowLike RoundingLike TininessLike",
    "floatsim.hardware.device_info": "Info",
}
"""The names that signatures use, by module."""

HEADER = "# Written by tools/write_stubs.py. Do not edit.\n"
WIDTH = 120


@dataclass(frozen=True)
class Parameter:
    """A parameter of a signature: `kind` is "positional", "keyword" or "options" (the ** parameter)."""

    kind: str
    name: str
    annotation: str
    default: str | None = None

    def __str__(self) -> str:
        stars = "**" if self.kind == "options" else ""
        return f"{stars}{self.name}: {self.annotation}" + ("" if self.default is None else f" = {self.default}")


# -- signatures --------------------------------------------------------------------------------------------------------


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a function. Keywords that change the type of the result are written out."""
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional", inspect.Parameter.VAR_KEYWORD: "options"}
    found = []
    for each in inspect.signature(function).parameters.values():
        default = None if each.default is each.empty else _default(each.default)
        found.append(Parameter(kinds.get(each.kind, "keyword"), each.name, str(each.annotation), default))
    if not found or found[-1].kind != "options":
        return found
    *found, options = found
    names = {each.name for each in found}
    if (model := SAME_KEYWORDS.get(function.__name__)) is not None:
        keywords = parameters(getattr(importlib.import_module("floatsim"), model))
        return found + [replace(each, kind="keyword") for each in keywords if each.name not in names | {"a", "b"}]
    typed_dict = options.annotation.removeprefix("Unpack[").removesuffix("]")
    scope = inspect.unwrap(function).__globals__
    base = inspect.get_annotations(vars(importlib.import_module(scope[typed_dict].__module__))[BASES[typed_dict]])
    for name, annotation in inspect.get_annotations(scope[typed_dict]).items():
        if name not in base:
            found.append(Parameter("keyword", name, getattr(annotation, "__forward_arg__", str(annotation)), "..."))
    return [*found, replace(options, annotation=f"Unpack[{BASES[typed_dict]}]")]


def _default(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, bool | int | str) else "..."


def overloads(function: Callable[..., Any], marker: str) -> Iterator[tuple[list[Parameter], str]]:
    """Yield the signatures of a function, as parameters and return type. A checker takes the first that fits."""
    given = parameters(function)
    operands = [each.name for each in given if each.kind == "positional" and each.annotation in SCALARS]
    optional = [each.name for each in given if each.kind == "positional" and each.annotation == "Floats | None"]
    scalar = SCALARS[given[0].annotation]
    result = RESULTS[marker]
    cases: list[tuple[dict[str, str], str]] = []
    if marker == "FloatArrayResult":
        cases = [({}, "FloatArray")]
    elif result is not None:
        cases = [(dict.fromkeys(operands, scalar), "Any"), ({}, result)]
    else:
        operands = [name for name in operands if name != "n" or len(operands) == 1]  # the exponents of scalb
        cases += [({name: "FloatArray", "out": "FloatArray | None"}, "FloatArray") for name in operands + optional]
        chosen = WITH_DTYPE if marker == "FloatResult" else {}
        for i, name in enumerate(operands):
            scalars = dict.fromkeys(operands[:i], scalar)
            others = dict.fromkeys(operands[i + 1 :], f"NDArray[Any] | {scalar}")
            others |= dict.fromkeys(optional, f"NDArray[Any] | {scalar} | None")
            cases.append(
                ({**scalars, name: "NDArray[Any]", **others, "out": "NDArray[Any] | None", **chosen}, "NDArray[Any]")
            )
        cases.append(({}, "Any"))
    for types, returned in cases:
        changed = [_changed(each, types) for each in given]
        if returned == "Any" or not any(each.name == "return_flags" for each in changed):
            yield changed, returned
            continue
        for flag, default, value in (("False", "...", returned), ("True", None, f"tuple[{returned}, Flags]")):
            literal = f"Literal[{flag}]"
            yield (
                [
                    replace(each, annotation=literal, default=default) if each.name == "return_flags" else each
                    for each in changed
                ],
                value,
            )


def _changed(parameter: Parameter, types: dict[str, str]) -> Parameter:
    """Return the parameter with its type of this case. A type without None makes an optional operand a required one.

    A required parameter is not None in any case.
    """
    annotation = types.get(parameter.name, parameter.annotation)
    if parameter.default is None and parameter.name in types:
        annotation = annotation.removesuffix(" | None")
    required = parameter.name in types and parameter.default == "None" and "None" not in annotation
    return replace(parameter, annotation=annotation, default=None if required else parameter.default)


def written(name: str, signature: list[Parameter], returned: str, body: str) -> str:
    """Return the text of a function, in lines of at most 120 characters."""
    parts = list(map(str, signature))
    keywords = [i for i, each in enumerate(signature) if each.kind == "keyword"]
    if keywords:
        parts.insert(keywords[0], "*")
    line = f"def {name}({', '.join(parts)}) -> {returned}:{body}"
    if len(line.partition("\n")[0]) <= WIDTH:
        return line
    return f"def {name}(\n{wrapped(parts)}\n) -> {returned}:{body}"


def declared(name: str, function: Callable[..., Any]) -> str:
    """Return the declaration of a function: its overloads, or its one signature, with its first line of documentation.

    Only the first overload has the documentation. Editors show it for all.
    """
    marker = str(inspect.signature(function).return_annotation)
    summary = f'\n    """{inspect.getdoc(function).splitlines()[0]}"""'  # type: ignore[union-attr]
    if marker not in RESULTS:
        return written(name, parameters(function), marker, summary)
    found = list(overloads(function, marker))
    texts = [written(name, *each, " ..." if i else summary) for i, each in enumerate(found)]
    return "\n".join(f"@overload\n{text}" if len(found) > 1 else text for text in texts)


# -- files -------------------------------------------------------------------------------------------------------------


def is_expanded(value: Any) -> bool:
    """Return whether a public name is a function whose return type is a marker."""
    return inspect.isfunction(value) and str(inspect.signature(value).return_annotation) in RESULTS


def stub(name: str) -> str:
    """Return the text of the `__init__.pyi` of a lazy package."""
    package = importlib.import_module(name)
    homes = {each: home for home, names in vars(package)["_HOMES"].items() for each in names.split()}
    imports: dict[str, set[str]] = {}
    functions = []
    for public in package.__all__:
        value = getattr(package, public)
        if is_expanded(value) and name != PACKAGES[0]:
            imports.setdefault(PACKAGES[0], set()).add(public)
        elif public in homes and not is_expanded(value):
            imports.setdefault(importlib.util.resolve_name(homes[public], name), set()).add(public)
        elif inspect.ismodule(value):
            imports.setdefault(name, set()).add(f"{public} as {public}")
        else:
            functions.append(declared(public, value))
    for module in vars(package).get("_OPTIONAL", "").split():  # needs a library, which is not installed everywhere
        imports.setdefault(name, set()).add(f"{module} as {module}")
    body = "\n\n".join(functions)
    words = set(re.findall(r"\b\w+\b", body))
    for module, names in IMPORTS.items():
        if needed := words.intersection(names.split()):
            imports.setdefault(module, set()).update(needed)
    listed = ["import numpy as np"] if "np" in words else []
    for own in (False, True):  # floatsim's modules come last
        listed += [
            lines(f"from {module} import ", sorted(names), "()") for module, names in sorted(imports.items())
            if module.startswith(PACKAGES[0]) is own
        ]  # fmt: skip
    quoted = [f'"{public}"' for public in package.__all__]
    version = ["__version__: str"] if hasattr(package, "__version__") else []
    return "\n".join([HEADER, *listed, "", lines("__all__ = ", quoted, "[]"), *version, "", body]).rstrip() + "\n"


def lines(start: str, items: list[str], brackets: str) -> str:
    """Return an import or a list, in one line or with the items in lines of at most 120 characters."""
    opening, closing = brackets if brackets == "[]" else ("", "")
    line = f"{start}{opening}{', '.join(items)}{closing}"
    if len(line) <= WIDTH:
        return line
    return f"{start}{brackets[0]}\n{wrapped(items)}\n{brackets[1]}"


def wrapped(items: Iterable[str]) -> str:
    """Return the items, each with a comma, in indented lines of at most 120 characters."""
    rows = [""]
    for item in items:
        if len(rows[-1]) + len(item) + 5 > WIDTH:
            rows.append("")
        rows[-1] += f" {item},"
    return "\n".join(f"   {row}" for row in rows)


def literals() -> str:
    """Return the text of `floatsim/_literals.py`: the names of formats and of architectures."""
    formats = named_formats()
    names = [fmt.name.lower() for fmt in formats]
    with_dtype = [fmt.name.lower() for fmt in formats if fmt.dtype is not None]
    dtypes = [fmt.dtype.name for fmt in formats if fmt.dtype is not None]
    architectures = list(ARCHITECTURES)
    assert all(as_accumulation(name) for name in architectures)
    aliases = {
        "FormatName": (names + dtypes, "The names of formats and of their dtypes."),
        "ArrayFormatName": (with_dtype + dtypes, "The names of the formats that have a NumPy or ml_dtypes dtype."),
        "AccumulationName": (names + architectures, "The descriptions of sums that are one word."),
        "ArrayAccumulationName": (
            with_dtype + dtypes + architectures, "The descriptions of one word whose result has a dtype.",
        ),
    }  # fmt: skip
    parts = [
        '"""Literal names for type checkers and editors."""\n\n' + HEADER,
        "from typing import Literal, TypeAlias\n",
        f"__all__ = {sorted(aliases)}\n".replace("'", '"'),
    ]
    for alias, (members, documentation) in aliases.items():
        inner = wrapped(f'"{member}"' for member in dict.fromkeys(members))
        parts.append(f'{alias}: TypeAlias = Literal[\n{inner}\n]  # fmt: skip\n"""{documentation}"""\n')
    return "\n".join(parts)


def files() -> dict[Path, str]:
    """Return the texts of all generated files."""
    stubs = {ROOT / name.replace(".", "/") / "__init__.pyi": stub(name) for name in PACKAGES}
    return {ROOT / "floatsim" / "_literals.py": literals(), **stubs}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with `--check`. Return the exit code."""
    outdated = {
        path: text for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }  # fmt: skip
    for path, text in outdated.items():
        print(f"{'not up to date' if '--check' in arguments else 'written'}: {path.relative_to(ROOT)}")
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    return int(bool(outdated) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
