"""The command `floatsim`: look at numbers, formats, and what happens to real matrices.

Exit codes: 0 yes, 1 "they differ", 2 bad input (one line on stderr says what). With `--json`, stdout is JSON alone.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from zipfile import BadZipFile

import typer

import floatsim
from floatsim.formats import FloatFormat, as_format, named_formats

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

__all__ = ["app", "main"]

app = typer.Typer(
    name="floatsim",
    help="Low-precision floating point, bit for bit.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, and nothing else.")]


class BadInputError(Exception):
    """Something the user gave cannot be used; the message says what, and what would do."""


# -- talking ---------------------------------------------------------------------------------------------------------


def _console(*, error: bool = False) -> Console:
    """Rich's console; where the output is no terminal, wide enough for the tables."""
    from rich.console import Console

    console = Console(stderr=error, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = max(120, console.width)
    return console


def _json_value(value: Any) -> Any:
    """The value as JSON can hold it: NaN and infinities as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    return [_json_value(item) for item in value] if isinstance(value, list | tuple) else value


def _print_json(value: Any) -> None:
    print(json.dumps(_json_value(value), indent=2, allow_nan=False))


def _bad_input(error: Exception) -> BadInputError:
    """What a function said about its arguments, said about the command's."""
    text = re.sub(r"^x is not", "VALUE is not", _one_line(error))
    text = re.sub(r"\bproducts(?= must|:|=)", "--multiply", text).replace("--multiply='", "--multiply '")
    return BadInputError(re.sub(r"needs a seed: .*", "needs a seed: add --seed 1, or any other integer", text))


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _format(text: str, option: str) -> FloatFormat:
    try:
        return as_format(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {error}") from None


def _formats(texts: Sequence[str], option: str) -> list[FloatFormat]:
    """Formats given one by one or separated by commas ("ieee(4,3)" stays whole)."""
    names: list[str] = []
    for text in texts:
        names += _split(text)
    return [_format(name, option) for name in names]


def _split(text: str) -> list[str]:
    """Split at the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


# -- floatsim formats ------------------------------------------------------------------------------------------------


def _format_facts(fmt: FloatFormat) -> dict[str, Any]:
    return {
        "name": fmt.name,
        "bits": fmt.bits,
        "layout": fmt.layout,
        "exponent_bits": fmt.exponent_bits,
        "trailing_bits": fmt.trailing_bits,
        "precision": fmt.precision,
        "bias": fmt.bias,
        "emin": fmt.emin,
        "emax": fmt.emax,
        "max": fmt.max,
        "smallest_normal": fmt.smallest_normal,
        "smallest_subnormal": fmt.smallest_subnormal if fmt.has_subnormals else None,
        "eps": fmt.eps,
        "has_infinity": fmt.has_infinity,
        "has_nan": fmt.has_nan,
        "has_signed_zero": fmt.has_signed_zero,
        "dtype": fmt.dtype.name if fmt.dtype is not None else None,
    }


@app.command("formats")
def formats_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which ones, as bf16 or ieee(4,3). Default: all.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """The table of formats: layout, range, precision, special values."""
    from rich.table import Table

    chosen = _formats(names, "NAMES") if names else list(named_formats())
    if as_json:
        _print_json({"formats": [_format_facts(fmt) for fmt in chosen]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("format", "bits", "layout", "p", "exponents", "max", "smallest\nnormal", "smallest\nsubnormal", "eps"):
        table.add_column(head, justify="left" if head in ("format", "layout") else "right", vertical="bottom")
    table.add_column("special values", vertical="bottom")
    for fmt in chosen:
        special = [word for word, has in (("inf", fmt.has_infinity), ("NaN", fmt.has_nan)) if has]
        special.append("-0" if fmt.has_signed_zero else "no zero" if fmt.is_scale else "no -0")
        table.add_row(
            fmt.name, str(fmt.bits), f"{int(fmt.signed)}+{fmt.exponent_bits}+{fmt.trailing_bits}", str(fmt.precision),
            f"{fmt.emin}..{fmt.emax}", f"{fmt.max:.5g}", f"{fmt.smallest_normal:.3g}",
            f"{fmt.smallest_subnormal:.3g}" if fmt.has_subnormals else "none", f"{fmt.eps:.3g}", " ".join(special),
        )  # fmt: skip
    console = _console()
    console.print(table)
    console.print("layout: sign + exponent + trailing significand bits; p counts the hidden bit too", style="dim")


# -- floatsim show ---------------------------------------------------------------------------------------------------

_SHOWN = ("fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1")
_FLAGS = {"invalid": 16, "divide_by_zero": 8, "overflow": 4, "underflow": 2, "inexact": 1}


def _exact(value: str) -> Fraction | None:
    """The number that a text means, exactly; None for infinities, NaN, and what is too long to hold."""
    try:
        if "x" not in value.lower():
            return (
                Fraction(value) if len(value) < 400 and abs(int(value.lower().partition("e")[2] or 0)) < 5000 else None
            )
        mantissa, _, exponent = value.lower().partition("p")
        whole, _, part = mantissa.replace("0x", "").partition(".")
        return Fraction(int(whole + part, 16)) * Fraction(2) ** (int(exponent or 0) - 4 * len(part))
    except ValueError:
        return None


def _number(x: Fraction, digits: int = 6) -> float | str:
    """As a float where that is accurate; else, beyond float64's normal range, as text: "-1e-400"."""
    if x == 0 or sys.float_info.min <= abs(x) <= sys.float_info.max:
        return float(x)
    with localcontext(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX):
        return f"{(Decimal(x.numerator) / Decimal(x.denominator)).normalize():g}"


def _signed(x: float | str, spec: str) -> str:
    return f"{x:{spec}}" if isinstance(x, float) else x if x.startswith("-") else f"+{x}"


def _bits(code: int, fmt: FloatFormat) -> str:
    """The code's bits, in groups: sign, exponent, trailing significand."""
    bits = iter(f"{code:0{fmt.bits}b}")
    return " ".join("".join(next(bits) for _ in group) for group in fmt.layout.split())


def _number_facts(code: int, fmt: FloatFormat) -> dict[str, Any]:
    from floatsim.conversion import decode

    value = float(decode(code, fmt))
    facts = {"code": f"0x{code:0{(fmt.bits + 3) // 4}X}", "bits": _bits(code, fmt), "value": value,
             "hex": value.hex() if math.isfinite(value) else str(value)}  # fmt: skip
    return facts | ({"nan": _nan_facts(code, fmt)} if math.isnan(value) else {})


def _nan_facts(code: int, fmt: FloatFormat) -> dict[str, Any]:
    """Quiet or signalling, and the payload: the trailing bits below the quiet bit. None where there is no quiet bit."""
    from floatsim import reference

    quiet = reference.decode(code, fmt).kind is not reference.Kind.SIGNALING_NAN
    return {"quiet": quiet, "payload": code & ((1 << fmt.trailing_bits - 1) - 1) if fmt.has_infinity else None}


def _neighbour(code: int, fmt: FloatFormat, up: bool) -> dict[str, Any] | None:
    from floatsim.arithmetic import next_down, next_up
    from floatsim.arrays import from_codes
    from floatsim.conversion import decode

    if fmt.is_scale or math.isnan(float(decode(code, fmt))):
        return None
    move = next_up if up else next_down
    return _number_facts(int(move(from_codes([code], fmt)).codes[0]), fmt)


def _rounded(value: str, fmt: FloatFormat, rounding: str | None, seed: int | None) -> dict[str, Any]:
    """What one format makes of a number, with its neighbours and the error."""
    from floatsim.conversion import encode
    from floatsim.ulps import ulp

    code, flags = encode(value, fmt, rounding=rounding, seed=seed, return_flags=True)
    facts = _number_facts(int(code), fmt)
    exact, error, ulps = _exact(value), None, None
    if exact is not None and math.isfinite(facts["value"]):
        difference = Fraction(facts["value"]) - exact
        error = _number(difference)
        if not fmt.is_scale:
            ulps = _number(difference / Fraction(float(ulp(facts["value"], fmt))), 3)
    return {
        "format": fmt.name, **facts, "error": error, "error_ulps": ulps,
        "below": _neighbour(int(code), fmt, up=False), "above": _neighbour(int(code), fmt, up=True),
        "flags": [name for name, bit in _FLAGS.items() if int(flags) & bit],
    }  # fmt: skip


def _coloured_bits(bits: str, fmt: FloatFormat) -> Any:
    from rich.text import Text

    text, colours = Text(), iter(("red", "blue", "green") if fmt.signed else ("blue", "green"))
    for group in bits.split():
        text.append(group, next(colours)).append(" ")
    text.rstrip()
    return text


def _plain(value: float) -> str:
    """The shortest decimal text that means this float64."""
    text = repr(value)
    return text.removesuffix(".0")


def _error(row: dict[str, Any], spec: str) -> str:
    if row["error"] is None:
        return ""
    return _signed(row["error"], spec) if row["error"] else "exact"


def _value(row: dict[str, Any]) -> str:
    """The value in decimal and in hexadecimal; of a NaN, what kind it is."""
    if (nan := row.get("nan")) is None:
        return f"{_plain(row['value'])}   = {row['hex']}"
    payload = "" if nan["payload"] is None else f", payload {nan['payload']:#x}"
    return f"NaN, {'quiet' if nan['quiet'] else 'signalling'}{payload}"


def _print_shown(given: str, main: dict[str, Any], others: list[dict[str, Any]], explanation: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console, fmt = _console(), as_format(main["format"])
    console.print(Text(f"{given} in {fmt.name}", "bold"))
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_row("  bits", Text.assemble(_coloured_bits(main["bits"], fmt), f"  {main['code']}"))
    facts.add_row("  value", _value(main))
    if main["error"] is not None:
        ulps = f"   ({_signed(main['error_ulps'], '+.3g')} ulp)" if main["error_ulps"] else ""
        facts.add_row("  error", _error(main, "+.6g") + ulps)
    for side in ("above", "below"):
        if main[side] is not None:
            facts.add_row(f"  {side}", f"{_plain(main[side]['value'])}   {main[side]['code']}")
    facts.add_row("  flags", ", ".join(main["flags"]) or "none")
    console.print(facts)
    if explanation:
        console.print(Text(f"\n{explanation}"))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("format", "code", "bits", "value", "error", "ulps", "flags"):
        table.add_column(head, justify="right" if head in ("error", "ulps") else "left", overflow="fold")
    for row in others:
        ulps = _signed(row["error_ulps"], "+.2f") if row["error_ulps"] else ""
        ulps = f"{row['error_ulps']:+.0e}" if ulps in ("+0.00", "-0.00") else ulps
        table.add_row(row["format"], row["code"], _coloured_bits(row["bits"], as_format(row["format"])),
                      _plain(row["value"]), _error(row, "+.2e"), ulps, " ".join(row["flags"]))  # fmt: skip
    console.print(table)


@app.command()
def show(
    value: Annotated[
        str | None, typer.Argument(help="A number: 0.1, -1e-3, 0x1.8p3, inf, nan. Rounded once, exactly.")
    ] = None,
    fmt: Annotated[str, typer.Option("--format", "-f", help="The format to look at closely.")] = "fp32",
    code: Annotated[str | None, typer.Option(help="Look at this code (0x3DCD, 0b..., 15821) of --format.")] = None,
    rounding: Annotated[str | None, typer.Option(help="RNE, RTZ, toward_positive, ...: see fs.Rounding.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of stochastic rounding.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Tell the rounding step by step.")] = False,
    as_json: Json = False,
) -> None:
    """One number: its bits, neighbours and error in a format, and all formats side by side."""
    chosen = _format(fmt, "--format")
    if (value is None) == (code is None):
        raise BadInputError(
            "show takes a number or --code, one of them: `floatsim show 0.1` or `floatsim show --code 0x3DCD`"
        )
    given = (value or "").strip()
    if code is not None:
        itself = _number_facts(_code(code, chosen), chosen)
        given = itself["hex"] if itself.get("nan", {"quiet": True})["quiet"] else "snan"
    formats = list(dict.fromkeys([*(as_format(name) for name in _SHOWN), chosen]))
    try:
        main_row = _rounded(given, chosen, rounding, seed)
        others = [_rounded(given, each, rounding, seed) for each in formats]
        text = str(floatsim.explain_rounding(given, chosen, rounding=rounding, seed=seed)) if explain else ""
    except ValueError as error:
        raise _bad_input(error) from None
    if code is not None:  # the code itself, not rounded: a NaN keeps its own
        main_row |= itself | {"flags": []}
        others[formats.index(chosen)] = main_row
    label = f"code {main_row['code']}" if code is not None else given
    if as_json:
        _print_json({"given": label, "shown": main_row, "formats": others} | ({"steps": text} if text else {}))
    else:
        _print_shown(label, main_row, others, text)


def _code(text: str, fmt: FloatFormat) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise BadInputError(f"--code: {text!r} is no integer; write it as 0x3DCD, 0b1010 or 15821") from None
    if not 0 <= number < 1 << fmt.bits:
        raise BadInputError(f"--code: {text} does not fit the {fmt.bits} bits of {fmt.name}")
    return number


# -- floatsim survey -------------------------------------------------------------------------------------------------

_READABLE = ".npy, .npz and .csv"


def _load(argument: str) -> dict[str, NDArray[Any]]:
    """The matrices of a file by name; `file.npz:name` is one of them. Anything else in it is an error."""
    path, chosen = Path(argument), None
    if not path.exists() and ":" in argument:
        before, _, chosen = argument.rpartition(":")
        path = Path(before)
    if not path.exists():
        raise BadInputError(f"FILES: there is no file {argument}")
    suffix = path.suffix.lower()
    try:
        if suffix == ".npz":
            found = _load_npz(path, chosen)
        elif suffix == ".npy":
            found = {path.stem: _load_npy(path)}
        elif suffix == ".csv":
            found = {path.stem: _load_csv(path)}
        else:
            raise BadInputError(f"FILES: {path} is of a kind that cannot be read; {_READABLE} can")
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        why = _one_line(error).partition(";")[0]
        if "pickle" in why:
            why = "it is no NumPy file of plain numbers"
            why += f"; {path}:NAME picks one array" if suffix == ".npz" and chosen is None else ""
        raise BadInputError(f"FILES: {path} cannot be read: {why}") from None
    if chosen is not None:
        found = {chosen: found[_known(chosen, found, path)]}
    if not found:
        raise BadInputError(f"FILES: {path} holds no array; np.savez({path.name!r}, a=...) puts one in")
    flaws = {name: flaw for name, x in found.items() if (flaw := _flaw(x))}
    for name, flaw in flaws.items():
        others = ", ".join(other for other in found if other not in flaws)
        hint = f"; {path}:NAME picks one array, and NAME can be {others}" if others else ""
        raise BadInputError(f"FILES: {path}: {name} {flaw}{hint}")
    return found


def _flaw(x: NDArray[Any]) -> str:
    """Why an array cannot be multiplied; empty if it can be."""
    kind = x.dtype.kind
    if kind == "V":
        return f"has dtype {x.dtype}: np.save forgets ml_dtypes; use fs.save"
    if kind in "UST":
        return f"holds text (dtype {x.dtype}), not numbers"
    if kind == "c":
        return "is complex: save its real and imaginary parts as two arrays"
    if kind == "f" and x.dtype.itemsize > 8:
        return f"is an array of longdouble (dtype {x.dtype}); save x.astype('float64')"
    if kind not in "fiu":
        return f"has dtype {x.dtype}; make it a float or integer array"
    return "" if x.ndim == 2 else f"must be a matrix (2 dimensions), but its shape is {x.shape}"


def _load_npy(path: Path) -> NDArray[Any]:
    import numpy as np

    with path.open("rb") as file:
        x: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return x


def _load_npz(path: Path, chosen: str | None) -> dict[str, NDArray[Any]]:
    """The arrays of the file, or the one chosen; what `fs.save` wrote is one by the file's name."""
    import numpy as np

    with path.open("rb") as file:  # np.load leaves a file open that it cannot read
        arrays = np.load(file, allow_pickle=False)
        names = list(getattr(arrays, "files", ()))
        if set(names) == {"codes", "format"}:
            return {path.stem: floatsim.load(path).values}
        if chosen is not None:
            return {chosen: arrays[_known(chosen, names, path)]}
        return {name: arrays[name] for name in names}


def _known(chosen: str, names: Collection[str], path: Path) -> str:
    if chosen not in names:
        raise BadInputError(f"FILES: {path} has no {chosen!r}; it has {', '.join(names) or 'no array'}")
    return chosen


_CSV = "write plain numbers, without quotes, separated by commas: 1,-2.5,3e-4"


def _csv_number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_header(cells: list[str]) -> bool:
    """Whether no cell is a number, nor numbers in quotes or between other separators."""
    pieces = [[piece for piece in re.split(r"[\s;\"']+", cell) if piece] for cell in cells]
    return not any(all(_csv_number(piece) is not None for piece in cell) for cell in pieces if cell)


def _load_csv(path: Path) -> NDArray[np.float64]:
    """Numbers separated by commas, one line a row; a first line without any number is skipped, and stderr says so."""
    import numpy as np

    lines = enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1)
    rows = [(number, [cell.strip() for cell in line.split(",")]) for number, line in lines if line.strip()]
    header = rows.pop(0) if rows and _is_header(rows[0][1]) else None
    if not rows:
        raise BadInputError(f"FILES: {path} cannot be read: it holds no row of numbers; {_CSV}")
    values = []
    for number, cells in rows:
        if len(cells) != len(rows[0][1]):
            raise BadInputError(f"FILES: {path} cannot be read: row {number} has another number of cells "
                                f"({len(cells)}) than row {rows[0][0]} ({len(rows[0][1])}); {_CSV}")  # fmt: skip
        values.append([_csv_number(cell) for cell in cells])
        if None in values[-1]:
            place = values[-1].index(None)
            where = f"row {number}, cell {place + 1}: {_cut(cells[place])!r}"
            raise BadInputError(f"FILES: {path} cannot be read: {where} is no number; {_CSV}")
    if header is not None:
        names = ",".join(header[1])
        print(f"floatsim: {path}: row {header[0]} skipped as a header: {_cut(names)}", file=sys.stderr)
    return np.array(values, np.float64)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tensors(files: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Every matrix of the files by name; equal names are told apart by a number."""
    tensors: dict[str, NDArray[Any]] = {}
    for argument in files:
        for name, x in _load(argument).items():
            free = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in tensors)
            tensors[free] = x
    return tensors


def _track(tasks: Sequence[Any]) -> Iterator[Any]:
    """Tasks with a progress bar on stderr, where that is a terminal."""
    from rich.progress import Progress

    console = _console(error=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(tasks, description="multiplying")


@app.command()
def survey(
    files: Annotated[
        list[str] | None,
        typer.Argument(help=f"Matrices to multiply, in this order ({_READABLE}; FILE.npz:NAME for one of several). "
                            "Default: a network trained on the UCI digits.", show_default=False),
    ] = None,
    multiply: Annotated[
        list[str] | None, typer.Option("--multiply", "-m", help="Which product, by the matrices' names: 'a.T @ b'.")
    ] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", "-f", help="Format of the inputs; several, or with commas.")
    ] = None,
    accumulate: Annotated[
        list[str] | None,
        typer.Option("--accumulate", "-a", help="fp32, 'sequential(fp16, fused)', 'exact(fp32)', 'tensorcore(hopper)'; "
                                                "`same` is the inputs' format, `tensorcore` every matrix unit. "
                                                "Several, or with commas."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the picture (.png, .pdf, .svg).")] = Path(
        "floatsim-survey.png"
    ),
    limit: Annotated[int, typer.Option(min=1, help="At most so many multiply-adds of each product.")] = 1 << 22,
    rounding: Annotated[str | None, typer.Option(help="Of everything: RNE, RTZ, ..., SR (with --seed).")] = None,
    overflow: Annotated[str | None, typer.Option(help="Of the inputs: infinity, saturate_finite, ...")] = None,
    daz: Annotated[bool, typer.Option("--daz", help="Read subnormal operands as zeros.")] = False,
    ftz: Annotated[bool, typer.Option("--ftz", help="Flush tiny results to zero.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of stochastic rounding.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Multiply real matrices in every format and accumulator; say what happened, and draw it."""
    if not out.parent.is_dir():
        raise BadInputError(f"--out: there is no folder {out.parent}")
    if out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise BadInputError(f"--out: {out} must end in .png, .pdf or .svg")
    tensors = _tensors(files) if files else None
    accumulators = [part for text in accumulate for part in _split(text)] if accumulate else None
    try:
        with floatsim.context(rounding=rounding, overflow=overflow, daz=daz, ftz=ftz, seed=seed):
            report = floatsim.survey(
                tensors, products=multiply or None, formats=_formats(formats, "--format") if formats else None,
                accumulators=accumulators, limit=limit, progress=_track,
            )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise _bad_input(error) from None
    from floatsim.plot import survey_figure

    try:
        survey_figure(report).savefig(out)
    except OSError as error:
        raise BadInputError(f"--out: {out} cannot be written: {error.strerror}") from None
    if as_json:
        _print_json({"floatsim": floatsim.__version__, **report.to_dict(), "picture": str(out.resolve())})
        return
    console = _console()
    console.print(report)
    console.print(f"\npicture: {out.resolve()}", soft_wrap=True)


# -- the door --------------------------------------------------------------------------------------------------------


def _version(wanted: bool) -> None:
    if wanted:
        print(f"floatsim {floatsim.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Low-precision floating point, bit for bit."""
    if context.invoked_subcommand is None:
        print(context.get_help())


_NEGATIVE = re.compile(r"^-(?=[.\d]|inf|nan)", re.IGNORECASE)  # a number, not an option: a space in front says so
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]  # click's ClickException, wherever this version of typer keeps it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 yes, 1 "they differ", 2 bad input.

    >>> main(["--version"])
    Traceback (most recent call last):
    SystemExit: 0
    """
    code: Any = 2
    try:
        given = sys.argv[1:] if arguments is None else arguments
        code = app([_NEGATIVE.sub(r" \g<0>", text) for text in given], standalone_mode=False) or 0
    except BadInputError as error:
        print(f"floatsim: {_one_line(error)}", file=sys.stderr)
    except _CLICK_ERROR as error:
        print(f"floatsim: {_one_line(error.format_message()).rstrip('.')}; see `floatsim --help`", file=sys.stderr)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("floatsim: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        code = 0
    sys.exit(code)
