"""Compare ONNX's Cast and QuantizeLinear with floatsim, and write the table of docs/onnx.md.

Usage: python tools/onnx_conformance.py. It needs the packages of the extra `onnx`, and writes the rows to
tests/quantization/onnx_conformance.json too.

Every model has one operator, and for onnxruntime a Cast of its result to FLOAT or INT32, because NumPy has no such
types. It runs in the reference evaluator of onnx and in onnxruntime, without optimizations. The operands are the corner
cases and midpoints of `floatsim vectors`; of 16-bit operands all codes. floatsim computes the results from the text of
the standard: "Float stored in 8 bits", "Float stored in 4 bits", "4 bit integer types", "2 bit integer types", Cast and
QuantizeLinear.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import floatsim as fs

TARGETS = {
    "FLOAT8E4M3FN": "e4m3", "FLOAT8E4M3FNUZ": "e4m3fnuz", "FLOAT8E5M2": "e5m2", "FLOAT8E5M2FNUZ": "e5m2fnuz",
    "FLOAT8E8M0": "e8m0", "FLOAT4E2M1": "e2m1", "BFLOAT16": "bf16", "FLOAT16": "fp16",
}  # fmt: skip
INTEGERS = {"INT2": (-2, 1), "UINT2": (0, 3), "INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255)}
CAST_INTEGERS = ("INT2", "UINT2", "INT4", "UINT4")
"""The integers whose Cast has a defined rounding: to nearest, ties to even. That of INT8 and UINT8 has none."""
SOURCES = {"FLOAT": "fp32", "FLOAT16": "fp16", "BFLOAT16": "bf16"}
SATURATING = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
"""The types of 8 bits with zero whose Cast has the attribute `saturate`. FLOAT8E8M0 has it, too; the other ones ignore
it."""
OPSETS = {"INT2": (25, 13), "UINT2": (25, 13)}
"""The opset and the version of the intermediate representation that have a type; other types: 24 and 11."""
ROUNDINGS = {"up": "toward_positive", "down": "toward_zero", "nearest": "ties_to_away"}
"""The values of the attribute `round_mode` of a Cast to FLOAT8E8M0; "up" is the default."""
ROOT = Path(__file__).parents[1]
ROWS = ROOT / "tests" / "quantization" / "onnx_conformance.json"
PAGE = ROOT / "docs" / "onnx.md"
START, END = "<!-- conformance: start -->", "<!-- conformance: end -->"


@dataclass
class Row:
    """One operator with its types, in one implementation."""

    operator: str
    source: str
    target: str
    saturate: int
    library: str
    vectors: int
    wrong: int | None
    """None if the implementation does not run the model."""
    first: str = ""
    error: str = ""


def operands(source: str, target: str) -> np.ndarray:
    """Return the codes of the operands."""
    fmt = fs.as_format(SOURCES[source])
    if fmt.bits == 16:
        return np.arange(1 << 16, dtype=np.uint16)
    unit = fs.testing.hardware_unit("convert", fmt, TARGETS.get(target, "int8"))
    return unit.vectors(20_000)[0]


def expected_cast(
    x: fs.FloatArray, target: str, saturate: int, round_mode: str = "up"
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of the standard's result, and where the standard defines one."""
    values = x.values.astype(float)
    if target in CAST_INTEGERS:  # "rounding to the nearest integer (with ties to even)"; "undefined if OOR"
        low, high = INTEGERS[target]
        rounded = np.rint(values)
        known = (rounded >= low) & (rounded <= high)
        return _integer_codes(np.where(known, rounded, 0), low), known
    name = TARGETS[target]
    fmt = fs.as_format(name)
    known = np.ones(len(values), bool)
    if target == "FLOAT4E2M1":  # no infinities and NaNs: the standard says nothing about NaN
        known &= ~np.isnan(values)
        return fs.convert(x, fmt, overflow="saturate_finite").codes, known
    if target == "FLOAT8E8M0":  # positive numbers, and special values in the two cases of the standard's table
        within = (values >= fmt.smallest_normal) & (values <= fmt.max)
        codes = fs.convert(x, fmt, rounding=ROUNDINGS[round_mode]).codes
        special = np.isnan(values) | (values == np.inf) | ((values == 0) & ~np.signbit(values))
        if (round_mode, saturate) == ("up", 1):
            special |= (values > 0) & ~within
            ends = np.where(values > fmt.max, fmt.max_code, 0)
        elif (round_mode, saturate) == ("nearest", 0):
            ends = np.full(len(values), fmt.canonical_nan)
        else:
            return codes, within
        ends = np.where(np.isnan(values), fmt.canonical_nan, ends).astype(np.uint8)
        return np.where(within, codes, ends), within | special
    if target in SATURATING and saturate:
        return fs.convert(x, fmt, overflow="saturate_finite").codes, known
    return fs.convert(x, fmt, overflow="infinity").codes, known


def expected_quantized(x: fs.FloatArray, target: str, scale: float, saturate: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of saturate(round(x / scale)): the quotient is rounded to the type of x first."""
    quotient = fs.divide(x, fs.array(np.float64(scale), x.format))
    if target not in INTEGERS:
        codes, known = expected_cast(quotient, target, saturate)
        return codes, known
    low, high = INTEGERS[target]
    values = quotient.values.astype(float)
    known = ~np.isnan(values)
    return _integer_codes(np.clip(np.rint(np.where(known, values, 0)), low, high), low), known


def _integer_codes(values: np.ndarray, low: int) -> np.ndarray:
    """Return integers as codes of 8 bits, those of a signed type with all copies of the sign."""
    integers = values.astype(np.int64)
    return (integers & 0xFF if low < 0 else integers).astype(np.uint8)


def same(codes: np.ndarray, expected: np.ndarray, target: str) -> np.ndarray:
    """Return where the codes are equal; a NaN equals every NaN."""
    equal = codes == expected
    if target in TARGETS:
        fmt = fs.as_format(TARGETS[target])
        equal |= np.isnan(fs.from_codes(codes, fmt).values.astype(float)) & np.isnan(
            fs.from_codes(expected, fmt).values.astype(float)
        )
    return equal


def model(operator: str, source: str, target: str, saturate: int, round_mode: str, cast_back: bool) -> Any:
    """Return a model with one operator, and with `cast_back` a Cast of its result to FLOAT or INT32."""
    from onnx import TensorProto, helper

    kinds = TensorProto.DataType
    to = kinds.Value(target)
    inputs = [helper.make_tensor_value_info("x", kinds.Value(source), [None])]
    attributes: dict[str, Any] = {"saturate": saturate} if target in (*SATURATING, "FLOAT8E8M0") else {}
    if target == "FLOAT8E8M0":
        attributes["round_mode"] = round_mode
    opset, representation = OPSETS.get(target, (24, 11))
    if operator == "Cast":
        nodes = [helper.make_node("Cast", ["x"], ["y"], to=to, **attributes)]
    else:
        inputs.append(helper.make_tensor_value_info("scale", kinds.Value(source), []))
        nodes = [helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=to, **attributes)]
    outputs = [helper.make_tensor_value_info("y", to, [None])]
    if cast_back:
        wide = kinds.Value("INT32" if target in INTEGERS else "FLOAT")
        nodes.append(helper.make_node("Cast", ["y"], ["z"], to=wide))
        outputs = [helper.make_tensor_value_info("z", wide, [None])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=representation)


DTYPES = {"FLOAT": np.float32, "FLOAT16": np.float16, "BFLOAT16": ml_dtypes.bfloat16}


def run_reference(proto: Any, feeds: dict[str, np.ndarray], target: str) -> np.ndarray:
    """Return the codes of onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    (y,) = ReferenceEvaluator(proto).run(None, feeds)
    return codes_of(y, target)


def run_onnxruntime(proto: Any, feeds: dict[str, np.ndarray], target: str) -> np.ndarray:
    """Return the codes of onnxruntime on the CPU."""
    import onnxruntime
    from onnx import TensorProto

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, x in feeds.items():
        kind = next(i.type for i in proto.graph.input if i.name == name).tensor_type.elem_type
        value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.ascontiguousarray(x).view(np.uint16) if kind == TensorProto.BFLOAT16 else x, kind
        )
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("z", "cpu")
    session.run_with_iobinding(binding)
    z = binding.get_outputs()[0].numpy()
    return codes_of(z if target in INTEGERS else fs.encode(z, TARGETS[target]), target)


def codes_of(y: np.ndarray, target: str) -> np.ndarray:
    """Return results as codes, one for each element."""
    y = np.asarray(y)
    if target in INTEGERS:
        low = INTEGERS[target][0]
        return (y.astype(np.int64) & 0xFF if low < 0 else y.astype(np.int64)).astype(np.uint8)
    fmt = fs.as_format(TARGETS[target])
    return y.view(fmt.code_dtype)


LIBRARIES = {"onnx": run_reference, "onnxruntime": run_onnxruntime}


def cases() -> Iterator[tuple[str, str, str, int, float, str]]:
    """Yield the operator, the types, `saturate`, the scale and `round_mode` of each row."""
    for operator in ("Cast", "QuantizeLinear"):
        for source in SOURCES:
            targets = [*TARGETS, *CAST_INTEGERS] if operator == "Cast" else [*SATURATING, "FLOAT4E2M1", *INTEGERS]
            for target in targets:
                if target == source:
                    continue
                for saturate in (1, 0) if target in SATURATING else (1,):
                    for round_mode in ROUNDINGS if target == "FLOAT8E8M0" else ("up",):
                        yield operator, source, target, saturate, 1.0, round_mode
                if target == "FLOAT8E8M0":
                    yield operator, source, target, 0, 1.0, "nearest"
    for source in SOURCES:
        for target in ("FLOAT8E4M3FN", "INT8", "INT4"):
            yield "QuantizeLinear", source, target, 1, 0.0117, "up"


def compare(
    operator: str, source: str, target: str, saturate: int, scale: float, round_mode: str = "up"
) -> Iterator[Row]:
    """Yield the row of each library."""
    fmt = fs.as_format(SOURCES[source])
    codes = operands(source, target)
    x = fs.from_codes(codes, fmt)
    feeds = {"x": codes.view(DTYPES[source])}
    if operator == "QuantizeLinear":
        feeds["scale"] = np.array(scale, DTYPES[source])
        wanted, known = expected_quantized(x, target, float(feeds["scale"]), saturate)
    else:
        wanted, known = expected_cast(x, target, saturate, round_mode)
    name = operator if scale == 1 else f"{operator}, scale {scale:g}"
    if target == "FLOAT8E8M0":
        name += f", round_mode={round_mode}"
    for library, run in LIBRARIES.items():
        row = Row(name, source, target, saturate, library, int(known.sum()), None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = run(model(operator, source, target, saturate, round_mode, run is run_onnxruntime), feeds, target)
        except Exception as error:  # the library's own, of many kinds
            row.error = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            yield row
            continue
        wrong = np.flatnonzero(~same(got, wanted, target) & known)
        row.wrong = len(wrong)
        if wrong.size:
            i = int(wrong[0])
            row.first = f"{x.values[i]:.9g}: 0x{int(got[i]):02X}, not 0x{int(wanted[i]):02X}"
        yield row


def versions() -> dict[str, str]:
    """Return the versions of the libraries."""
    import onnx
    import onnxruntime

    return {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__, "ml_dtypes": ml_dtypes.__version__,
            "numpy": np.__version__}  # fmt: skip


def table(rows: list[Row]) -> str:
    """Return the rows as a table: one line for each operator and target, one column for each library."""
    lines = ["| operator | result | saturate | onnx | onnxruntime |", "| --- | --- | --- | --- | --- |"]
    groups: dict[tuple[str, str, int], dict[str, list[Row]]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.target, row.saturate), {}).setdefault(row.library, []).append(row)
    for (operator, target, saturate), found in groups.items():
        shown = str(saturate) if target in (*SATURATING, "FLOAT8E8M0") else ""
        cells = [_cell(found[library]) for library in LIBRARIES]
        lines.append(f"| {operator} | {target} | {shown} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _cell(rows: list[Row]) -> str:
    right = [row.source for row in rows if row.wrong == 0]
    missing = [row.source for row in rows if row.wrong is None]
    texts = [f"equal: {', '.join(right)}" if len(right) < len(rows) else "equal"] if right else []
    texts += [f"**{row.source}: {row.wrong} of {row.vectors} wrong** ({row.first})" for row in rows if row.wrong]
    if missing:
        texts.append(f"does not run: {', '.join(missing)}" if len(missing) < len(rows) else "does not run")
    return "; ".join(texts)


def main() -> None:
    """Write the rows and the table of the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = [row for case in cases() for row in compare(*case)]
    content = {"versions": versions(), "rows": [asdict(row) for row in rows]}
    ROWS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(START)[0], page.split(END)[1]
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    PAGE.write_text(f"{before}{START}\n\n{table(rows)}\n\nMade with {named}.\n\n{END}{after}", encoding="utf-8")
    print(f"{sum(bool(row.wrong) for row in rows)} of {len(rows)} rows are wrong")


if __name__ == "__main__":
    sys.exit(main())
