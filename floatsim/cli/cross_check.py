"""`floatsim check`, `floatsim identify` and `floatsim strength`: the cross-check kit on files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from floatsim.arrays.array.float_array import FloatArray
from floatsim.cli.console import BadInputError, Json, bad_input, finish, named_format, one_line, print_json, split
from floatsim.cli.matrix_files import READABLE
from floatsim.cli.operand_files import Codes, Operands, code_formats, names_codes, read_operand, rounded
from floatsim.cli.triton_files import triton_product
from floatsim.formats import FloatFormat
from floatsim.testing import calc_diff, compare_arrays, compare_product, identify, strength

__all__ = ["CROSS_CHECK_EXIT_CODES", "check_command", "identify_command", "strength_command"]

CROSS_CHECK_EXIT_CODES = "Exit codes: 0 yes, 1 no, 2 bad input, 3 could not run."

A = Annotated[str, typer.Option("--a", metavar="FILE", help=f"The operand a, (..., M, K): {READABLE}.")]
B = Annotated[str, typer.Option("--b", metavar="FILE", help="The operand b, (..., K, N).")]
C = Annotated[str | None, typer.Option("--c", metavar="FILE", help="The accumulator at the start.")]
Out = Annotated[str | None, typer.Option("--out", metavar="FILE", help="The result of the kernel, (..., M, N).")]
Accumulate = Annotated[
    str, typer.Option("--accumulate", "-a", help="The sums of the product: hopper, 'blocked(hopper, 128, fp32)', fp32.")
]
Format = Annotated[str | None, typer.Option("--format", "-f", help="The format of the result.")]
Triton = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME",
        help="In place of --out: a function of torch tensors a and b (and c) that launches a Triton kernel. The "
        "file runs, and the kernel runs in Triton's interpreter.",
    ),
]
Dot = Annotated[
    str, typer.Option(help="With --triton: the sums of tl.dot: hopper, or a description as for --accumulate.")
]
Casts = Annotated[str, typer.Option(help="With --triton: the casts to FP8: ieee or hopper.")]
MaxUlp = Annotated[int, typer.Option("--maxulp", min=0, help="The largest accepted distance in ulps.")]


class _Product(NamedTuple):
    """The operands of a command, and the result of the kernel."""

    a: FloatArray
    b: FloatArray
    c: FloatArray | None
    out: FloatArray | None


def _format(text: str | None) -> FloatFormat | None:
    return None if text is None else named_format(text, "--format")


def _read(
    a: str, b: str, c: str | None, out: str | None, codes: Sequence[str] | None, operands: str | None,
    fmt: FloatFormat | None = None,
) -> _Product:  # fmt: skip
    """Return the arrays of the files. Codes of `out` have the format `fmt`, unless --codes names another one for it."""
    names = ["a", "b", "c", "out"]
    given = code_formats(codes, names)
    named = {name for name in names if names_codes(codes, name)}
    if fmt is not None and "out" not in named:
        given["out"] = fmt
    wanted = None if operands is None else named_format(operands, "--operands")
    files = {"a": a, "b": b, "c": c, "out": out}
    read = {
        name: read_operand(
            file, name, given.get(name), must_be_codes=name in named, text=fmt if name == "out" else None
        )
        for name, file in files.items()
        if file is not None
    }
    left, right = (rounded(read[name], wanted, name) for name in "ab")
    return _Product(left, right, read.get("c"), read.get("out"))


def _error(error: Exception) -> BadInputError:
    """Return an error about the arguments of a function as an error about the options."""
    text = re.sub(r"^(actual|kernel)\b", "--out", one_line(error))
    return bad_input(ValueError(re.sub(r"^([abc])\b", r"--\1", text)))


def check_command(
    out: Out = None,
    a: Annotated[str | None, typer.Option("--a", metavar="FILE", help="The operand a, (..., M, K).")] = None,
    b: Annotated[str | None, typer.Option("--b", metavar="FILE", help="The operand b, (..., K, N).")] = None,
    c: C = None,
    accumulate: Annotated[
        str | None,
        typer.Option("--accumulate", "-a", help="The sums of the product: hopper, 'blocked(hopper, 128, fp32)', fp32."),
    ] = None,
    desired: Annotated[
        str | None, typer.Option("--desired", metavar="FILE", help="The expected array, in place of a product.")
    ] = None,
    fmt: Format = None,
    codes: Codes = None,
    operands: Operands = None,
    maxulp: MaxUlp = 0,
    equal_nan: Annotated[bool, typer.Option("--equal-nan", help="A NaN equals every NaN.")] = False,
    unlike: Annotated[
        list[str] | None,
        typer.Option("--unlike", help="A description that the inputs must exclude. Repeat it, or use commas."),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the mismatches: FILE.png, FILE.svg or FILE.pdf.")] = None,
    triton: Triton = None,
    dot: Dot = "hopper",
    casts: Casts = "ieee",
    as_json: Json = False,
) -> None:
    """Compare the result of a kernel, saved in a file, with the emulated product, bit by bit. Locate the faults.

    floatsim check --a a.npy --b b.npy --out out.npy --accumulate hopper --format bf16
    """
    chosen = _format(fmt)
    excluded = [part for text in unlike or () for part in split(text)]
    if (out is None) is (triton is None):
        raise BadInputError("check needs one result: --out FILE, or --triton FILE.py:NAME")
    if desired is not None:
        if out is None:
            raise BadInputError("--desired excludes --triton")
        if any(x is not None for x in (a, b, c, accumulate, operands)) or excluded:
            raise BadInputError("--desired excludes --a, --b, --c, --accumulate, --operands and --unlike")
        given = code_formats(codes, ["out", "desired"])
        pair = [
            read_operand(x, n, given.get(n, chosen), must_be_codes=names_codes(codes, n), text=chosen)
            for x, n in ((out, "out"), (desired, "desired"))
        ]
        compared: Callable[..., Any] = partial(compare_arrays, pair[0], pair[1])
    else:
        if a is None or b is None or accumulate is None:
            raise BadInputError("check needs --a, --b and --accumulate, such as --accumulate hopper; or --desired FILE")
        x = _read(a, b, c, out, codes, operands, chosen)
        if triton is not None:
            kernel = triton_product(triton, dot=dot, casts=casts)
            x = x._replace(out=kernel(x.a, x.b) if x.c is None else kernel(x.a, x.b, x.c))
        compared = partial(compare_product, x.out, x.a, x.b, x.c, accumulate=accumulate, unlike=excluded)
    try:
        report = compared(format=chosen, maxulp=maxulp, equal_nan=equal_nan)
    except (TypeError, ValueError, AssertionError) as error:
        found = _error(error)
        if operands is None and "does not multiply FP32 by FP32" in str(found):
            found = BadInputError(f"{found}; --operands bf16 rounds the files first")
        raise found from None
    if picture is not None:
        _draw(report, picture)
    if as_json:
        print_json({**report.to_dict(), "picture": None if picture is None else str(picture.resolve())})
    else:
        print(str(report).replace("actual ", "out "))
    finish(differ=not report.passed, failed=False)


def _draw(report: Any, picture: Path) -> None:
    try:
        report.plot().figure.savefig(picture)
    except (OSError, ValueError) as error:
        raise BadInputError(f"--picture: {picture} cannot be written: {one_line(error)}") from None


def identify_command(
    a: A,
    b: B,
    out: Out = None,
    c: C = None,
    fmt: Format = None,
    codes: Codes = None,
    operands: Operands = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--more", help="A description to try beside the vocabulary. Repeat it, or use commas."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="The GPU or CPU that the kernel ran on, as h200: only its unit is named.")
    ] = None,
    triton: Triton = None,
    dot: Dot = "hopper",
    casts: Casts = "ieee",
    other_k: Annotated[
        int, typer.Option("--other-k", min=0, help="With --triton: call it with other K, multiples of N; 0 for none.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Find the descriptions of sums that reproduce a kernel: its result, saved in a file, or a Triton kernel.

    floatsim identify --a a.npy --b b.npy --out out.npy --format bf16
    """
    if (out is None) is (triton is None):
        raise BadInputError("identify needs one kernel: --out FILE, or --triton FILE.py:NAME")
    chosen = _format(fmt)
    x = _read(a, b, c, out, codes, operands, chosen)
    kernel = x.out if triton is None else triton_product(triton, dot=dot, casts=casts)

    def in_format(result: Any) -> Any:
        return result if chosen is None else compare_arrays(result, result, format=chosen).actual

    def stored(*operands: FloatArray) -> Any:
        assert callable(kernel)
        return in_format(kernel(*operands))

    try:
        tried = [part for text in more or () for part in split(text)]
        given = in_format(kernel) if triton is None else stored
        found = identify(given, x.a, x.b, x.c, more=tried, device=device, other_k=other_k)
    except (TypeError, ValueError, AssertionError) as error:
        raise _error(error) from None
    if as_json:
        print_json({"name": found.name, **found.to_dict()})
    else:
        print(str(found).replace("inputs that separate them: .separating", "fs.identify returns inputs for this"))
    finish(differ=not found.names, failed=False)


class _Rule(NamedTuple):
    """A check by options: its text, its reference ("exact" or None for the correct result), and the function."""

    text: str
    reference: str | None
    accepts: Callable[[Any, Any], bool]


def _values(x: Any) -> Any:
    return np.asarray(x.values if isinstance(x, FloatArray) else x, np.float64)


def _rule(maxulp: int | None, rtol: float | None, atol: float | None, limit: float | None) -> _Rule:
    """Return the check that the options describe. Exactly one is needed."""
    close = rtol is not None or atol is not None
    if sum((maxulp is not None, close, limit is not None)) != 1:
        raise BadInputError("strength needs one check: --maxulp N, --rtol X with --atol Y, or --calc-diff X")
    if maxulp is not None:
        return _Rule(f"at most {maxulp} ulps", None, lambda x, y: bool(compare_arrays(x, y, maxulp).passed))
    if limit is not None:
        return _Rule(f"calc_diff below {limit:g}", "exact", lambda x, y: calc_diff(x, y) < limit)
    relative, absolute = rtol or 0.0, atol or 0.0

    def accepts(x: Any, y: Any) -> bool:
        return bool(np.allclose(_values(x), _values(y), rtol=relative, atol=absolute))

    return _Rule(f"rtol {relative:g}, atol {absolute:g}", "exact", accepts)


def strength_command(
    a: A,
    b: B,
    accumulate: Accumulate,
    c: C = None,
    fmt: Format = None,
    codes: Codes = None,
    operands: Operands = None,
    maxulp: Annotated[
        int | None, typer.Option("--maxulp", min=0, help="The check: a distance in ulps from the emulated product.")
    ] = None,
    rtol: Annotated[float | None, typer.Option(help="The check: a relative error, against the exact product.")] = None,
    atol: Annotated[float | None, typer.Option(help="An absolute error, added to that of --rtol.")] = None,
    limit: Annotated[
        float | None, typer.Option("--calc-diff", help="The check: DeepGEMM's measure, against the exact product.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Report which bugs a tolerance catches on the operands of a test: exit code 0 if it catches all.

    floatsim strength --a a.npy --b b.npy --accumulate fp32 --format bf16 --rtol 1.6e-2 --atol 1e-5
    """
    rule = _rule(maxulp, rtol, atol, limit)
    x = _read(a, b, c, None, codes, operands)
    try:
        found = strength(
            rule.accepts, x.a, x.b, x.c, accumulate=accumulate, format=_format(fmt), reference=rule.reference
        )
    except (TypeError, ValueError) as error:
        raise _error(error) from None
    if as_json:
        print_json({"check": rule.text, **found.to_dict()})
    else:
        print(f"check: {rule.text}\n{found}")
    finish(differ=bool(found.missed) or found.rejects_correct, failed=False)
