"""The command `floatsim`: show numbers and formats, survey real matrices, and check GPUs.

Exit codes: 0 success; 1 a difference was found; 2 bad input (one line on stderr names it), or no device; 3 a row could
not run, or an unhandled error. With `--json`, stdout holds only JSON. Errors are JSON, too:
{"error": {"message": ..., "exit_code": ...}}.
"""

from __future__ import annotations

import math
import re
import sys
import traceback
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import floatsim
import floatsim.cli.hardware as hardware_commands
from floatsim.arrays.call.options import RoundingOptions
from floatsim.cli.checkpoints import READABLE_CHECKPOINTS, is_checkpoint, show_checkpoint, survey_checkpoint
from floatsim.cli.console import (
    BAD_INPUT,
    EXIT_CODES,
    FAILED,
    BadInputError,
    Json,
    bad_input,
    named_format,
    named_formats_of,
    one_line,
    print_columns,
    print_json,
    rich_console,
    split,
    track,
)
from floatsim.cli.cross_check import CROSS_CHECK_EXIT_CODES, check_command, identify_command, strength_command
from floatsim.cli.docs import docs_command
from floatsim.cli.explain import explain_command
from floatsim.cli.explorer import explorer_command
from floatsim.cli.kernel import kernel_command
from floatsim.cli.matrix_files import READABLE, load_all
from floatsim.cli.operators import operators_command
from floatsim.cli.testfloat import testfloat_command
from floatsim.cli.train import train_command
from floatsim.cli.twin import twin
from floatsim.cli.vectors import vectors_command
from floatsim.cli.verify import verify_command
from floatsim.cli.warmup import warmup_command
from floatsim.formats import FloatFormat, as_format, named_formats

__all__ = ["app", "main"]

app = typer.Typer(
    name="floatsim",
    help="Low-precision floating point, bit for bit.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
        list[str] | None, typer.Argument(help="Formats, as bf16 or ieee(4,3). Default: all.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the table of formats: layout, range, precision, special values."""
    chosen = named_formats_of(names, "NAMES") if names else list(named_formats())
    if as_json:
        print_json({"formats": [_format_facts(fmt) for fmt in chosen]})
        return
    columns = "format", "bits", "layout", "p", "exponents", "max", "smallest\nnormal", "smallest\nsubnormal", "eps"
    heads = [(head, "left" if head in ("format", "layout") else "right") for head in columns]
    rows = []
    for fmt in chosen:
        special = [word for word, has in (("inf", fmt.has_infinity), ("NaN", fmt.has_nan)) if has]
        special.append("-0" if fmt.has_signed_zero else "no zero" if fmt.is_scale else "no -0")
        rows.append((
            fmt.name, str(fmt.bits), f"{int(fmt.signed)}+{fmt.exponent_bits}+{fmt.trailing_bits}", str(fmt.precision),
            f"{fmt.emin}..{fmt.emax}", f"{fmt.max:.5g}", f"{fmt.smallest_normal:.3g}",
            f"{fmt.smallest_subnormal:.3g}" if fmt.has_subnormals else "none", f"{fmt.eps:.3g}", " ".join(special),
        ))  # fmt: skip
    console = rich_console()
    print_columns(console, [*heads, ("special values", "left")], rows)
    console.print("layout: sign + exponent + trailing significand bits; p includes the hidden bit", style="dim")


# -- floatsim show ---------------------------------------------------------------------------------------------------

Configuration = Annotated[
    Path | None,
    typer.Option(help="A file of JSON that describes the quantization of a .safetensors file. Default: config.json or "
                      "quantize_config.json beside it."),
]  # fmt: skip
_CHECKPOINT = f"a checkpoint ({READABLE_CHECKPOINTS}), whose tensors are listed"
_SHOWN = ("fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3", "e3m2", "e2m3", "e2m1")
_FLAGS = {"invalid": 16, "divide_by_zero": 8, "overflow": 4, "underflow": 2, "inexact": 1}


def _exact(value: str) -> Fraction | None:
    """Return the exact number of a text; None for infinities, NaN, and texts that are too long."""
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
    """Return a float; beyond float64's normal range a text, as "-1e-400"."""
    if x == 0 or sys.float_info.min <= abs(x) <= sys.float_info.max:
        return float(x)
    with localcontext(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX):
        return f"{(Decimal(x.numerator) / Decimal(x.denominator)).normalize():g}"


def _signed(x: float | str, spec: str) -> str:
    return f"{x:{spec}}" if isinstance(x, float) else x if x.startswith("-") else f"+{x}"


def _bits(code: int, fmt: FloatFormat) -> str:
    """Return the code's bits in groups: sign, exponent, trailing significand."""
    bits = iter(f"{code:0{fmt.bits}b}")
    return " ".join("".join(next(bits) for _ in group) for group in fmt.layout.split())


def _number_facts(code: int, fmt: FloatFormat) -> dict[str, Any]:
    from floatsim.arrays.array.conversion import decode

    value = float(decode(code, fmt))
    facts = {"code": f"0x{code:0{(fmt.bits + 3) // 4}X}", "bits": _bits(code, fmt), "value": value,
             "hex": value.hex() if math.isfinite(value) else str(value)}  # fmt: skip
    return facts | ({"nan": _nan_facts(code, fmt)} if math.isnan(value) else {})


def _nan_facts(code: int, fmt: FloatFormat) -> dict[str, Any]:
    """Return whether a NaN is quiet, and its payload: the bits below the quiet bit (None without a quiet bit)."""
    from floatsim import reference

    quiet = reference.decode(code, fmt).kind is not reference.Kind.SIGNALING_NAN
    return {"quiet": quiet, "payload": code & (fmt.quiet_bit - 1) if fmt.quiet_bit else None}


def _neighbour(code: int, fmt: FloatFormat, up: bool) -> dict[str, Any] | None:
    from floatsim.arrays.array.conversion import decode
    from floatsim.arrays.array.float_array import from_codes
    from floatsim.arrays.elementwise.arithmetic import next_down, next_up

    if fmt.is_scale or math.isnan(float(decode(code, fmt))):
        return None
    move = next_up if up else next_down
    return _number_facts(int(move(from_codes([code], fmt)).codes[0]), fmt)


def _rounded(value: str, fmt: FloatFormat, options: RoundingOptions) -> dict[str, Any]:
    """Return the rounding of a number to one format, with its neighbours and its error."""
    from floatsim.arrays.array.conversion import encode
    from floatsim.arrays.elementwise.ulps import ulp

    with_flags: RoundingOptions = {**options, "return_flags": True}
    code, flags = encode(value, fmt, **with_flags)
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
    """Return the shortest decimal text of a float64."""
    text = repr(value)
    return text.removesuffix(".0")


def _error(row: dict[str, Any], spec: str) -> str:
    if row["error"] is None:
        return ""
    return _signed(row["error"], spec) if row["error"] else "exact"


def _value(row: dict[str, Any]) -> str:
    """Return the value in decimal and in hexadecimal, or the kind of a NaN."""
    if (nan := row.get("nan")) is None:
        return f"{_plain(row['value'])}   = {row['hex']}"
    payload = "" if nan["payload"] is None else f", payload {nan['payload']:#x}"
    return f"NaN, {'quiet' if nan['quiet'] else 'signalling'}{payload}"


def _print_shown(given: str, main: dict[str, Any], others: list[dict[str, Any]], explanation: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console, fmt = rich_console(), as_format(main["format"])
    console.print(Text(f"{given} in {fmt.name}", "bold"))
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
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
    names = "format", "code", "bits", "value", "error", "ulps", "flags"
    rows = []
    for row in others:
        ulps = _signed(row["error_ulps"], "+.2f") if row["error_ulps"] else ""
        ulps = f"{row['error_ulps']:+.0e}" if ulps in ("+0.00", "-0.00") else ulps
        rows.append((row["format"], row["code"], _coloured_bits(row["bits"], as_format(row["format"])),
                     _plain(row["value"]), _error(row, "+.2e"), ulps, " ".join(row["flags"])))  # fmt: skip
    print_columns(console, [(head, "right" if head in ("error", "ulps") else "left") for head in names], rows)


@app.command()
def show(
    value: Annotated[
        str | None,
        typer.Argument(help=f"A number: 0.1, 1/3, -1e-3, 0x1.8p3, inf, nan. Rounded once, exactly. Or {_CHECKPOINT}."),
    ] = None,
    fmt: Annotated[str, typer.Option("--format", "-f", help="The format to show in detail.")] = "fp32",
    code: Annotated[str | None, typer.Option(help="Show this code (0x3DCD, 0b..., 15821) of --format.")] = None,
    rounding: Annotated[
        str | None, typer.Option(help="Rounding mode: RNE, RTZ, toward_positive, ... (fs.Rounding).")
    ] = None,
    overflow: Annotated[
        str | None, typer.Option(help="Overflow policy: infinity, saturate_finite or saturate_propagate.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of stochastic rounding.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Explain the rounding step by step.")] = False,
    tensor: Annotated[str | None, typer.Option(help="Show this tensor of a checkpoint.")] = None,
    config: Configuration = None,
    as_json: Json = False,
) -> None:
    """Show a number in a format, or the tensors of a checkpoint file.

    Of a number: its bits, neighbours and error, and its rounding to all formats.
    """
    if value is not None and is_checkpoint(value):
        show_checkpoint(value, tensor, config, as_json=as_json)
        return
    if tensor is not None:
        raise BadInputError("--tensor is for a checkpoint: `floatsim show model.gguf --tensor NAME`")
    _without_configuration(config)
    chosen = named_format(fmt, "--format")
    if (value is None) == (code is None):
        raise BadInputError(
            "show needs either a number or --code: `floatsim show 0.1` or `floatsim show --code 0x3DCD`"
        )
    given = (value or "").strip()
    if code is not None:
        itself = _number_facts(_code(code, chosen), chosen)
        given = itself["hex"] if itself.get("nan", {"quiet": True})["quiet"] else "snan"
    formats = list(dict.fromkeys([*(as_format(name) for name in _SHOWN), chosen]))
    options: Any = {"rounding": rounding, "overflow": overflow, "seed": seed}  # checked by the functions that take them
    try:
        main_row = _rounded(given, chosen, options)
        others = [_rounded(given, each, options) for each in formats]
        text = str(floatsim.explain_rounding(given, chosen, **options)) if explain else ""
    except ValueError as error:
        raise bad_input(error) from None
    if code is not None:  # show the code itself: a NaN keeps its code
        main_row |= itself | {"flags": []}
        others[formats.index(chosen)] = main_row
    label = f"code {main_row['code']}" if code is not None else given
    if as_json:
        print_json({"given": label, "shown": main_row, "formats": others} | ({"steps": text} if text else {}))
    else:
        _print_shown(label, main_row, others, text)


def _code(text: str, fmt: FloatFormat) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise BadInputError(f"--code: {text!r} is not an integer; write it as 0x3DCD, 0b1010 or 15821") from None
    if not 0 <= number < 1 << fmt.bits:
        raise BadInputError(f"--code: {text} does not fit the {fmt.bits} bits of {fmt.name}")
    return number


def _without_configuration(config: Path | None) -> None:
    if config is not None:
        raise BadInputError("--config is for a checkpoint: `floatsim show model.safetensors --config FILE`")


# -- floatsim survey -------------------------------------------------------------------------------------------------


@app.command()
def survey(
    files: Annotated[
        list[str] | None,
        typer.Argument(help=f"Matrices to multiply, in this order ({READABLE}; FILE.npz:NAME selects one array), or "
                            f"one checkpoint ({READABLE_CHECKPOINTS}), whose tensors are listed with the range of "
                            "their numbers. "
                            "Default: a network trained on the UCI digits.", show_default=False),
    ] = None,
    multiply: Annotated[
        list[str] | None, typer.Option("--multiply", "-m", help="The product, by the matrices' names: 'a.T @ b'.")
    ] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--operands", help="Round the inputs to this format. Repeat it, or use commas.")
    ] = None,
    accumulate: Annotated[
        list[str] | None,
        typer.Option("--accumulate", "-a", help="fp32, 'sequential(fp16, fused)', 'exact(fp32)', 'tensorcore(hopper)'; "
                                                "`same` is the inputs' format, `tensorcore` every matrix unit. "
                                                "Repeat it, or use commas."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the picture (.png, .pdf, .svg).")] = Path(
        "floatsim-survey.png"
    ),
    limit: Annotated[int, typer.Option(min=1, help="Largest number of multiply-adds of each product.")] = 1 << 22,
    rounding: Annotated[str | None, typer.Option(help="Rounding mode: RNE, RTZ, ..., SR (with --seed).")] = None,
    overflow: Annotated[str | None, typer.Option(help="Overflow of the inputs: infinity, saturate_finite, ...")] = None,
    daz: Annotated[bool, typer.Option("--daz", help="Read subnormal operands as zeros.")] = False,
    ftz: Annotated[bool, typer.Option("--ftz", help="Flush tiny results to zero.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of stochastic rounding.")] = None,
    config: Configuration = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Multiply real matrices in several formats and accumulators. Print the events and errors, and draw them."""
    alone = files is not None and len(files) == 1 and not (multiply or formats or accumulate)
    if files and any(is_checkpoint(file, alone=alone) for file in files):
        if len(files) > 1 or multiply:
            raise BadInputError(f"FILES: a checkpoint is surveyed alone and without --multiply, not {' '.join(files)}")
        survey_checkpoint(files[0], config, as_json=as_json)
        return
    _without_configuration(config)
    if not out.parent.is_dir():
        raise BadInputError(f"--out: there is no folder {out.parent}")
    if out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise BadInputError(f"--out: {out} must end in .png, .pdf or .svg")
    tensors = load_all(files) if files else None
    accumulators = [part for text in accumulate for part in split(text)] if accumulate else None
    names: Any = {"rounding": rounding, "overflow": overflow, "seed": seed}  # checked by `context`
    try:
        with floatsim.context(**names, daz=daz, ftz=ftz):
            report = floatsim.survey(
                tensors, products=multiply or None,
                formats=named_formats_of(formats, "--operands") if formats else None, accumulators=accumulators,
                limit=limit, progress=track,
            )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise bad_input(error) from None
    from floatsim.plot import survey_figure

    try:
        survey_figure(report).savefig(out)
    except OSError as error:
        raise BadInputError(f"--out: {out} cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"floatsim": floatsim.__version__, **report.to_dict(), "picture": str(out.resolve())})
        return
    console = rich_console()
    console.print(report)
    console.print(f"\npicture: {out.resolve()}", soft_wrap=True)


# -- GPUs ------------------------------------------------------------------------------------------------------------

for _command in (
    hardware_commands.probe, hardware_commands.compare, hardware_commands.capture, hardware_commands.check_silicon,
    hardware_commands.bench_hardware,
):  # fmt: skip
    app.command(epilog=EXIT_CODES)(_command)


app.command("operators")(operators_command)
app.command("train")(train_command)
app.command("explain", context_settings={"ignore_unknown_options": True})(explain_command)
app.command("explorer")(explorer_command)
app.command("kernel")(kernel_command)
app.command("warmup")(warmup_command)
app.command("docs")(docs_command)
app.command("testfloat", epilog=CROSS_CHECK_EXIT_CODES)(testfloat_command)
app.command("vectors", epilog=CROSS_CHECK_EXIT_CODES)(vectors_command)
app.command("verify", epilog=CROSS_CHECK_EXIT_CODES)(verify_command)
app.command("check", epilog=CROSS_CHECK_EXIT_CODES)(check_command)
app.command("identify", epilog=CROSS_CHECK_EXIT_CODES)(identify_command)
app.command("strength", epilog=CROSS_CHECK_EXIT_CODES)(strength_command)

app.add_typer(twin, name="twin")


# -- the entry point -------------------------------------------------------------------------------------------------


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


_NEGATIVE = re.compile(
    r"^-(?=[.\d]|inf|nan)", re.IGNORECASE
)  # a negative number; a space in front marks it as no option
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]  # click's ClickException, in every version of typer


def _usage(error: Any) -> str:
    """Return a click error in one line: the mistake, a correct example, and the command that prints help."""
    message = one_line(error.format_message()).rstrip(".")
    command = "floatsim" if error.ctx is None else error.ctx.command_path
    missing = getattr(error, "param", None) if message.startswith("Missing") else None
    if missing is None:
        return f"{message}; see `{command} --help`"
    option, word = missing.opts[0], missing.metavar or missing.name.upper()
    example = f"{option} {word}" if option.startswith("-") else word
    return f"{message}: write `{command} {example}`; see `{command} --help`"


def _print_error(message: str, code: int, *, as_json: bool) -> None:
    """Print an error as one line on stderr, and with --json also as JSON on stdout."""
    print(f"floatsim: {message}", file=sys.stderr)
    if as_json:
        print_json({"error": {"message": message, "exit_code": code}})


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with 0 (success), 1 (a difference was found), 2 (bad input) or 3 (an error).

    >>> main(["--version"])
    Traceback (most recent call last):
    SystemExit: 0
    """
    code: Any = BAD_INPUT
    given = list(sys.argv[1:] if arguments is None else arguments)
    report = partial(_print_error, as_json="--json" in given)
    try:
        code = app([_NEGATIVE.sub(r" \g<0>", text) for text in given], prog_name="floatsim", standalone_mode=False) or 0
    except BadInputError as error:
        report(one_line(error), code)
    except _CLICK_ERROR as error:
        code = error.exit_code
        report(_usage(error), code)
    except (KeyboardInterrupt, typer.Abort):
        print("floatsim: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.stderr.close()
        code = 0
    except MemoryError as error:
        code = FAILED
        report(f"not enough memory: {one_line(error)}", code)
    except Exception as error:  # the exit code of Python is 1, which means a difference
        traceback.print_exc()
        code = FAILED
        if "--json" in given:
            print_json({"error": {"message": f"{type(error).__name__}: {one_line(error)}", "exit_code": code}})
    sys.exit(code)
