"""Identify a quantizer: find the rules that reproduce the codes and scales of a tensor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from floatsim.arrays.array.float_array import FloatArray
from floatsim.formats import E8M0
from floatsim.quantization import Quantized
from floatsim.quantization.scheme import BlockLike
from floatsim.testing.quantizers.known import KNOWN
from floatsim.testing.quantizers.reading import AS_GIVEN, Given, Grid, Reading, read, readings
from floatsim.testing.quantizers.search import STORED, Codes, Refused, ScaleMatch, Search, zero_rules_of

__all__ = ["QuantizerIdentification", "QuantizerRow", "identify_quantizer", "quantizer_by_rule"]

_NEAR = 3  # refused candidates that the text shows
_LISTED = 4  # values of an ambiguous property that the text shows


class QuantizerRow(NamedTuple):
    """One quantizer that reproduces the data: a value for each property. "" where a property does not apply.

    Attributes
    ----------
    format, layout, block : str
        The format of the elements, the layout of the codes, and the elements that share a scale.
    scale_format : str
        The format of the scales; a narrower one that has all of their numbers is named first.
    tensor_scale : str
        The rule of the scale p of the tensor. `top` is the largest scale times the largest element.
    scale, scale_rounding, least_scale : str
        The rule of the scale of a block, how it is rounded to the format of the scales, and which number replaces
        smaller scales. The number is compared only if a scale of the rule is subnormal.
    factor, scale_of_codes, arithmetic : str
        How an element x is scaled, with which scale, in which format. q is 1 / p.
    zero_point, zero_point_offset, zero_point_added : str
        The rule of the zero point, what the stored one differs by, and where it is added.
    rounding, clipping, zeros : str
        How a scaled element becomes a code, what codes beyond the ends become, and the signs of zeros.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([[1.5, -0.3, 0.2, 2.0]], "fp32")
    >>> row = fs.identify_quantizer(fs.quantize_blocks(x, "int8"), None, x).rows[0]
    >>> row.format, row.block, row.scale
    ('INT8', 'tensor', 'amax / max')
    """

    format: str
    layout: str
    block: str
    scale_format: str
    tensor_scale: str
    scale: str
    scale_rounding: str
    least_scale: str
    factor: str
    scale_of_codes: str
    arithmetic: str
    zero_point: str
    zero_point_offset: str
    zero_point_added: str
    rounding: str
    clipping: str
    zeros: str


_WORDS = {
    "format": "elements", "layout": "layout of the codes", "block": "block", "scale_format": "format of the scales",
    "tensor_scale": "scale of the tensor", "scale": "scale", "scale_rounding": "rounding of the scale",
    "least_scale": "least scale",
    "factor": "element", "scale_of_codes": "scale of the codes", "arithmetic": "arithmetic",
    "zero_point": "zero point", "zero_point_offset": "stored zero point", "zero_point_added": "zero point added",
    "rounding": "rounding", "clipping": "clipping", "zeros": "zeros",
}  # fmt: skip


@dataclass(frozen=True)
class QuantizerIdentification:
    """The quantizers that reproduce the codes and scales of a tensor. Prints as text.

    Attributes
    ----------
    rows : tuple of QuantizerRow
        The quantizers whose codes, scales and zero points are those of the data. If no rule of the vocabulary has the
        scales, `scale` is "no rule", and the rows have the codes of the stored scales.
    names : tuple of str
        The published quantizers among them, the simplest first.
    deviations : tuple of str
        What differs from codes that are computed with the stored numbers: scales that are NaN, infinite, zero or
        negative, codes that were computed with the scales before their rounding, zero points that are stored with an
        offset, a scale of the tensor that is stored as its reciprocal.
    refused : tuple of Refused
        The candidates that differ: each with its first mismatch, and how many of the first elements or blocks differ.
    notes : tuple of str
        What was not compared.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    >>> q = fs.quantize_blocks(x, "mxfp4", rule="rceil")
    >>> found = fs.identify_quantizer(q.packed("low-nibble-first"), q.scales.codes, x)
    >>> found.format, found.layout, found.scale
    ('E2M1', 'low-nibble-first', '2**ceil(log2(amax / max))')
    """

    rows: tuple[QuantizerRow, ...]
    names: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values that a property has in the rows. Several: the data do not separate them."""
        if name not in QuantizerRow._fields:
            raise ValueError(f"name={name!r} is no property; known are {', '.join(QuantizerRow._fields)}")
        return tuple(dict.fromkeys(getattr(row, name) for row in self.rows))

    def __getattr__(self, name: str) -> str | None:
        """Return the value of a property that all rows share; None if they differ: cannot tell."""
        if name.startswith("_") or name not in QuantizerRow._fields:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        found = self.values(name)
        return found[0] if len(found) == 1 else None

    @property
    def name(self) -> str | None:
        """The one published quantizer that the data allow; None if there is none or several."""
        return self.names[0] if len(self.names) == 1 else None

    def __str__(self) -> str:
        lines = []
        if self.names:
            lines.append(("cannot tell: " if len(self.names) > 1 else "") + " or ".join(self.names))
        elif self.rows:
            lines.append("no published quantizer is known by these rules")
        else:
            lines.append("no quantizer of the vocabulary has these codes")
        for name, word in _WORDS.items() if self.rows else ():
            found = self.values(name)
            if found == ("",) or (name == "layout" and found == (AS_GIVEN,)):
                continue
            texts = [each or "as none" for each in found[:_LISTED]]
            more = f" or {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            lines.append(f"{word}: {'cannot tell: ' if len(found) > 1 else ''}{' or '.join(texts)}{more}")
        lines += [f"deviation: {each}" for each in self.deviations]
        if not self.rows or self.values("scale") == ("no rule",):
            lines += [f"near: {each}" for each in self._near()]
        if not self.rows and self.refused:
            lines.append(
                "hint: is x the tensor that was quantized, bit for bit? The two levels of NVFP4 need tensor_scale="
            )
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__

    def _near(self) -> list[Refused]:
        """Return the nearest candidates: with the nearest rule of the scales, and of the codes, if there are such."""
        texts = {str(each): each for each in self.refused}
        ordered = sorted(texts.values(), key=lambda each: each.mismatches / each.compared)
        best = [next((each for each in ordered if each.kind == kind), None) for kind in ("block", "element")]
        kept = [each for each in best if each is not None]
        kept += [each for each in ordered if each not in kept][: _NEAR - len(kept)]
        return [each for each in ordered if each in kept]

    def to_dict(self) -> dict[str, Any]:
        """Return names, rows, deviations, notes and the refused candidates in JSON types."""
        return {
            "names": list(self.names), "rows": [row._asdict() for row in self.rows],
            "deviations": list(self.deviations), "notes": list(self.notes),
            "refused": [each._asdict() for each in self.refused],
        }  # fmt: skip

    def to_json(self) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2)


def identify_quantizer(
    codes: Any, scales: Any, x: Any, *, zero_points: Any = None, tensor_scale: Any = None, offsets: Any = None,
    format: Any = None, layout: str | None = None, bits: int | None = None, block: BlockLike | None = None,
    scale_format: Any = None,
) -> QuantizerIdentification:  # fmt: skip
    """Return the rules by which a tensor was quantized: of scales, zero points, divisions, roundings and packing.

    Parameters
    ----------
    codes : array_like of int, floats of a narrow format, Quantized, or tensor of a checkpoint file
        The codes of the elements in the shape of x, or packed: uint8, or int32 and uint32 words of a layout of
        `fs.quantization.PACKED_LAYOUTS`. A `Quantized` has scales and zero points of its own. The bytes of a GGUF type
        have the name of the type as their layout. Of a `SafetensorsTensor` or `GgufTensor`, its `quantized()` is taken.
    scales : array_like of floats or uint8
        One scale for each block: floats, or bytes of E8M0 or E4M3. None for a `Quantized`, a tensor of a file, and
        GGUF. The blocks follow from the shape, as in a `Quantized`; a vector has one scale for each row, column, or
        part of the memory.
        For "gptq", "awq" and codes that are transposed, the scales are transposed, too.
    x : array_like of floats
        The tensor before its quantization, of the same precision: the rules differ in last bits.
    zero_points : array_like of int, optional
        The stored zero points in the shape of the scales, or packed as the library packs them.
    tensor_scale : float or array_like of floats, optional
        The second scale, of the whole tensor (NVFP4), or its reciprocal. Or one for each row, of shape (..., M, 1), or
        for each group of whole blocks in a row, of shape (..., M, groups).
    offsets : array_like of floats, optional
        Numbers that are added after the scaling, in the shape of the scales.
    format : format, optional
        The format of the elements. Default: all formats of this width. Codes without a sign that are not packed have 4
        bits if the largest one is below 16, 6 or 8 bits if it is below 64, and otherwise 8.
    layout : str, optional
        The layout of packed codes, or a type of GGUF such as "q4_k". Default: all layouts that fit.
    bits : int, optional
        The width of packed codes, if the shape leaves it open.
    block : str, int or tuple, optional
        The blocks as in `fs.quantize_blocks`, if the shape of the scales leaves them open.
    scale_format : format, optional
        The format of scales that are bytes. Default: E8M0 and E4M3 are tried.

    Returns
    -------
    QuantizerIdentification
        All candidates that have the bits of the data. A property with several values cannot be told from these data.

    Raises
    ------
    TypeError
        For codes, scales and zero points of unsuitable dtypes.
    ValueError
        For shapes that fit no layout and no blocks, codes out of range, unknown names, and an empty x. A second scale
        can have one number for the tensor, a row, or a group of blocks in a row; other shapes are an error.

    Notes
    -----
    The first call compiles its kernels, which takes some seconds.

    The scales are compared first: each rule, in FP32 and in the format of x, with each rounding to the format of the
    scales. A rule is named only if it has the scales of all blocks. Then the codes are computed with the stored scales,
    and with those before their rounding. Blocks of zeros, blocks with NaN or infinity, and blocks whose scale is zero,
    NaN or infinite are not compared. A scale that a search, a clipping ratio or calibration determined has no rule.

    Examples
    --------
    >>> import numpy as np
    >>> import floatsim as fs
    >>> x = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    >>> q = fs.quantize_blocks(x, "nf4")
    >>> print(fs.identify_quantizer(q.packed("high-nibble-first"), q.scales, x))
    bitsandbytes NF4
    elements: NF4
    layout of the codes: high-nibble-first
    block: (1, 64)
    format of the scales: FP32
    scale: amax / max
    element: cannot tell: x / scale or x * (1 / scale)
    scale of the codes: as stored
    arithmetic: FP32
    rounding: nearest of the table
    """
    return _identified(
        read(codes, scales, x, format, layout, bits, block, scale_format, zero_points, tensor_scale, offsets)
    )


def quantizer_by_rule(q: Quantized, x: FloatArray) -> QuantizerIdentification | None:
    """Return the identification of a quantizer whose scales follow a rule, or None.

    >>> import floatsim as fs
    >>> x = fs.array([[1.5, -0.3, 0.2, 2.0]], "fp32")
    >>> quantizer_by_rule(fs.quantize_blocks(x, "int8"), x).values("scale")[0]
    'amax / max'
    >>> quantizer_by_rule(fs.quantize_blocks(x, "int8", scale=0.02), x)
    """
    found = _identified(read(q, None, x, *[None] * 8), by_rule=True)
    return found if found.rows else None


def _identified(given: Given, by_rule: bool = False) -> QuantizerIdentification:
    """Return the identification; with `by_rule` only if a rule has the scales."""
    searches = [Search(given, each) for each in readings(given)]
    matches = [search.scales() for search in searches]
    if any(matches):
        kept = [(search, found) for search, found in zip(searches, matches, strict=True) if found]
    else:
        kept = [] if by_rule else [(search, search.unnamed()) for search in searches]
    rows: dict[QuantizerRow, Grid] = {}
    names: dict[str, None] = {}
    shown = kept[0][0] if kept else searches[0]  # its scales are those of the notes and deviations
    for search, found in kept:
        codes_found = search.codes(found) if search.live.any() else []
        for row in _joined(codes_found, found):
            shown = search if not rows else shown
            rows.update(dict.fromkeys(_rows_of(search, row), search.reading.grid))
    names.update({each.name: None for each in KNOWN if any(each.matches(*row) for row in rows.items())})
    ggml = [] if by_rule else [(search, kind) for search in searches for kind in search.gguf()]
    names.update({f"ggml {kind}": None for _, kind in ggml})
    if ggml and all(row.scale == "no rule" for row in rows):
        rows, shown = {_ggml_row(search.reading, kind): search.reading.grid for search, kind in ggml}, ggml[0][0]
    notes = _notes(shown)
    deviations = _deviations(shown, tuple(rows))
    refused = tuple(each for search in searches for each in search.refused)
    return QuantizerIdentification(tuple(rows), tuple(names), deviations, refused, notes)


def _joined(codes: list[Codes], matches: list[ScaleMatch]) -> list[Codes]:
    """Return the rows of codes for each rule that has the scales, of one arithmetic if there are such."""
    found = []
    for row in codes:
        for match in matches:
            same = match.stores == row.scale.stores and match.second == row.scale.second
            if row.used == STORED and same:
                found.append(row._replace(scale=match))
            elif row.used != STORED and match is row.scale:
                found.append(row)
    found.sort(key=lambda row: (row.used != STORED, row.offset != 0))
    return [row for row in found if row.arithmetic == row.scale.arithmetic] or found


def _rows_of(search: Search, row: Codes) -> list[QuantizerRow]:
    reading, match = search.reading, row.scale
    zero_points = zero_rules_of(search, row) if reading.zero_points is not None else ()
    if not zero_points:
        zero_points = ("",) if reading.zero_points is None and row.implied is None else (
            (str(row.implied),) if row.implied is not None else ("no rule",)
        )  # fmt: skip
        zero_points = ("",) if zero_points == ("0",) else zero_points
    offset = {0: "", 1: "less 1 (GPTQ version 1)", -1: "plus 1"}[row.offset]
    form = row.form.name
    if match.format == E8M0 and form == "x / scale":
        form = "x / scale = x * (1 / scale)"
    return [
        QuantizerRow(
            reading.format.name, reading.layout, reading.grid.text, _scale_format(reading, match), match.tensor,
            match.text, match.rounding, match.least, form, row.used, row.arithmetic.format.name, zero, offset,
            row.placement, row.rounding, row.clipping, row.zeros,
        )
        for zero in zero_points
    ]  # fmt: skip


def _scale_format(reading: Reading, match: ScaleMatch) -> str:
    stored = reading.scales.stored
    if match.stored:
        return match.stored
    return match.format.name if match.format == stored else f"{match.format.name}, stored as {stored.name}"


def _ggml_row(reading: Reading, kind: str) -> QuantizerRow:
    empty = QuantizerRow(*[""] * len(QuantizerRow._fields))
    return empty._replace(
        format=reading.format.name, layout=reading.layout, block=reading.grid.text,
        scale_format=reading.scales.stored.name, scale=f"the search of ggml's {kind}",
        rounding=f"that of ggml's {kind}",
    )  # fmt: skip


def _notes(search: Search) -> tuple[str, ...]:
    """Return what was not compared."""
    notes = []
    beyond = int(np.count_nonzero(~search.finite))
    if beyond:
        notes.append(f"{beyond} blocks have NaN or infinity in x, and were not compared")
    zeros = search.finite & (search.statistics.amax == 0)
    if zeros.any():
        values = sorted({f"{v:.6g}" for v in search.reading.scales.values[zeros].tolist()})
        shown = ", ".join(values[:_LISTED]) + (" ..." if len(values) > _LISTED else "")
        notes.append(f"{int(zeros.sum())} blocks of zeros, which were not compared, have the scale {shown}")
    if not search.live.any():
        notes.append("no block can be compared")
    return tuple(notes)


def _deviations(search: Search, rows: tuple[QuantizerRow, ...]) -> tuple[str, ...]:
    scales, busy = search.reading.scales.values, search.finite & (search.statistics.amax > 0)
    found = []
    kinds = {
        "NaN": np.isnan(scales), "infinite": np.isinf(scales), "zero": (scales == 0) & busy, "negative": scales < 0,
    }  # fmt: skip
    for word, where in kinds.items():
        count = int(np.count_nonzero(where))
        if word == "negative" and any("may be negative" in row.scale or "ggml" in row.scale for row in rows):
            continue
        if count:
            first = ", ".join(map(str, search.place_of(int(np.argmax(where)))))
            found.append(f"{count} of {scales.size} scales are {word}; the first one is that of block [{first}]")
    second = np.ones(1) if search.given.tensor_scale is None else np.asarray(search.given.tensor_scale).reshape(-1)
    wrong = second[~(np.isfinite(second) & (second > 0))]
    if wrong.size:
        parts = f"{wrong.size} of {second.size} scales of parts of the tensor are no positive numbers, such as"
        found.append(f"{'the scale of the tensor is' if second.size == 1 else parts} {wrong[0]:g}")
    if rows and all(row.scale_of_codes not in (STORED, "") for row in rows):
        found.append(f"the codes were computed with the scales before their rounding to {rows[0].scale_format}")
    if rows and all(row.zero_point_offset for row in rows):
        found.append(f"the zero points are stored {rows[0].zero_point_offset}: the codes have others")
    if rows and all("reciprocal" in row.tensor_scale for row in rows):
        found.append("the scale of the tensor is stored as its reciprocal: values are element * scale / tensor_scale")
    return tuple(found)
