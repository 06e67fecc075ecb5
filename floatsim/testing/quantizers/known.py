"""Published quantizers, as rows of the properties that identify them. `floatsim docs checkpoints` has the versions."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from floatsim.testing.quantizers.rules import SCHEME_RULES

__all__ = ["KNOWN", "Known"]


_Blocks: TypeAlias = tuple[tuple[int, int], ...]
_OF_ALL = {
    "scale_rounding": ("", "ties_to_even", "nearest of the table"),  # "": the scales were not rounded again
    "clipping": ("", "saturates", "full range", "symmetric range"),
}


class Known(NamedTuple):
    """A published quantizer: the values of its properties. A property may have several values.

    `blocks` are the sides of its blocks, of a matrix or of its transpose; () if it takes any blocks.
    All published quantizers round their scales to nearest, ties to even, and no element overflows or wraps, unless the
    properties have other values of `scale_rounding` and `clipping`.
    """

    name: str
    properties: dict[str, tuple[str, ...]]
    blocks: _Blocks = ()

    def matches(self, row: Any, grid: Any) -> bool:
        """Return whether a row has these properties, and the grid these blocks."""
        has_blocks = not self.blocks or any(grid.is_block(*sides) for sides in self.blocks)
        properties = {**_OF_ALL, **self.properties}
        return has_blocks and all(getattr(row, key) in values for key, values in properties.items())


_EVEN, _FLOATS = ("ties_to_even",), ("E2M1", "E4M3", "E5M2", "E3M2", "E2M3")
_STORED, _UNROUNDED = ("as stored",), ("before the rounding of the scales",)
_INTEGERS = tuple(f"INT{n}" for n in range(2, 9))
_UNSIGNED = tuple(f"UINT{n}" for n in range(2, 9))
_FULL, _ASYMMETRIC = ("2 amax / (max - min)",), ("(high - low) / (max - min)",)
_DIVIDE, _RECIPROCAL = ("x / scale",), ("x * (1 / scale)",)
_NO_MINUS_ZERO = ("+0 where x is -0", "without sign")
_ABSMAX_1E4 = ("amax / max", "amax / max, amax at least 0.0001")
_MIDDLE = ("(max + min + 1) // 2",)


_FLOOR, _RCEIL = "2**(floor(log2(amax)) - emax)", "2**ceil(log2(amax / max))"
_EVEN_SCALE = "2**(floor(log2(amax rounded to the precision of the elements)) - emax)"
_B32: _Blocks = ((1, 32),)
_B16: _Blocks = ((1, 16),)
_B128: _Blocks = ((1, 128), (128, 128))
_NOT_RAISED = ("", "none", "none: some are zero")


def _mx(
    name: str, scale: str, formats: tuple[str, ...] = (*_FLOATS, "MXINT8"), blocks: _Blocks = _B32,
    **more: tuple[str, ...],
) -> Known:  # fmt: skip
    return Known(name, {"format": formats, "scale_format": ("E8M0",), "scale": (scale,), "rounding": _EVEN,
                        "scale_of_codes": _STORED, "zeros": ("with the sign of x", ""), **more}, blocks)  # fmt: skip


def _plain(name: str, blocks: _Blocks = (), **properties: tuple[str, ...]) -> Known:
    return Known(name, {"scale_of_codes": _STORED, "rounding": _EVEN, **properties}, blocks)


def _nvfp4(name: str, blocks: _Blocks = _B16, **more: tuple[str, ...]) -> Known:
    return _plain(name, blocks, format=("E2M1",), scale_format=("E4M3", "E4M3, stored as FP32"), **more)


def _te_nvfp4(name: str, tensor_scale: tuple[str, ...], blocks: _Blocks = _B16, scale: str = "") -> Known:
    more = {"scale": (scale,)} if scale else {"scale": ("amax * ((1 / p) * (1 / max))",), "least_scale": _NOT_RAISED}
    return _nvfp4(name, blocks, tensor_scale=tensor_scale, factor=("x * (1 / (scale * p))",), **more)


_BY_ERRORS = {rule.name: rule.text for rule in SCHEME_RULES}
_WHOLE = "1 / (top / amax), p"
_WHOLE_256 = f"{_WHOLE}, for scales up to 256"
_GPTQ: dict[str, tuple[str, ...]] = {
    "format": _UNSIGNED, "scale_format": ("FP16",), "factor": _DIVIDE, "rounding": _EVEN, "scale_of_codes": _UNROUNDED,
}  # fmt: skip
_NESTED = "DYNAMIC8, less their mean"

KNOWN: tuple[Known, ...] = (
    _mx("OCP MX 1.0: torchao FLOOR", _FLOOR),
    _mx("torchao RCEIL, TransformerEngine MXFP8", _RCEIL, ("E4M3",)),
    _mx("torchao RCEIL", _RCEIL, ("E2M1", "E5M2", "E3M2", "E2M3", "MXINT8")),
    _mx("TransformerEngine MXFP8, 32x32", _RCEIL, ("E4M3",), ((32, 32),)),
    _mx("TransformerEngine FP8 block scaling", _RCEIL, ("E4M3", "E5M2"), _B128, scale_format=("E8M0, stored as FP32",)),
    _mx("DeepGEMM FP8, scales of powers of two", _RCEIL, ("E4M3",), _B128,
        scale_format=("E8M0", "E8M0, stored as FP32")),
    _mx("torchao CEIL", "2**(ceil(log2(amax)) - emax)"),
    _mx("torchao EVEN", _EVEN_SCALE, _FLOATS),
    _mx("compressed-tensors MXFP4", _EVEN_SCALE, ("E2M1",), zeros=_NO_MINUS_ZERO),
    _mx("compressed-tensors MXFP8", "2**(floor(log2(amax rounded to two significant bits)) - emax)",
        ("E4M3",), zeros=_NO_MINUS_ZERO),
    _nvfp4("torchao NVFP4, two levels", tensor_scale=("amax / top, p",), scale=("(amax / max) / p",),
           factor=("x * (q / scale)",), least_scale=("", "the smallest normal number")),
    _nvfp4("torchao NVFP4, one level", tensor_scale=("",), scale=("amax / max",), factor=_RECIPROCAL,
           least_scale=("", "the smallest normal number")),
    _nvfp4("Model Optimizer NVFP4", tensor_scale=("amax / top, p",), scale=("amax / (max * p)",),
           factor=("x / (scale * p)",), least_scale=("", "none", "the smallest subnormal number")),
    _te_nvfp4("TransformerEngine NVFP4", (_WHOLE,), ((1, 16), (16, 16))),
    _te_nvfp4("TransformerEngine NVFP4, scaled by rows", (f"{_WHOLE}, one for each row",)),
    _te_nvfp4("TransformerEngine NVFP4, scaled by 1x64", (f"{_WHOLE}, one for each 64 neighbours",)),
    *(_te_nvfp4(f"TransformerEngine NVFP4 with 4over6, {error.upper()}", (_WHOLE, _WHOLE_256), ((1, 16), (16, 16)),
                _BY_ERRORS[f"te_4over6_{error}"]) for error in ("mae", "mse")),
    *(_te_nvfp4(f"fouroversix, {error}", (_WHOLE, _WHOLE_256), _B16, _BY_ERRORS[f"fouroversix_{error}"])
      for error in ("mse", "mae", "absmax")),
    _nvfp4("compressed-tensors NVFP4", tensor_scale=("top * (1 / amax), 1 / p, the reciprocal",),
           scale=("(1 / p) * (amax / max)",), factor=("x / (scale / q)",), zeros=_NO_MINUS_ZERO),
    _plain("FP4 with scales in UE5M3 (arXiv 2601.19026)", _B16, format=("E2M1",), tensor_scale=("",),
           scale_format=("UE5M3", "E4M3, stored as UE5M3"), scale=("amax / max",), factor=_RECIPROCAL),
    _plain("compressed-tensors FP8", format=("E4M3",), scale_format=("FP32", "BF16", "FP16"), scale=("amax / max",),
           factor=_DIVIDE, zeros=_NO_MINUS_ZERO),
    _plain("DeepSeek FP8", _B128, format=("E4M3",), scale_format=("FP32",), scale=_ABSMAX_1E4, factor=_DIVIDE,
           zeros=("with the sign of x",)),
    _plain("DeepGEMM FP8", _B128, format=("E4M3",), scale_format=("FP32",), scale=_ABSMAX_1E4, factor=_RECIPROCAL),
    _plain("TransformerEngine current scaling", format=("E4M3", "E5M2"), scale_format=("FP32",), block=("tensor",),
           scale=("1 / (max / amax)",), factor=("x * (max / amax)",)),
    _plain("compressed-tensors integers, symmetric", format=_INTEGERS, scale_format=("FP32", "BF16", "FP16"),
           scale=_FULL, factor=_DIVIDE, zero_point=("",)),
    _plain("compressed-tensors integers, asymmetric", format=_INTEGERS, scale_format=("FP32", "BF16", "FP16"),
           scale=_ASYMMETRIC, factor=_DIVIDE, zero_point=("round(min - low / scale)",),
           zero_point_added=("before the rounding",), zero_point_offset=("",)),
    _plain("torchao integers, symmetric", format=(*_INTEGERS, *_UNSIGNED), scale_format=("FP32",), scale=_FULL,
           factor=_RECIPROCAL),
    _plain("torchao integers, asymmetric", format=(*_INTEGERS, *_UNSIGNED), scale_format=("FP32",), scale=_ASYMMETRIC,
           factor=_RECIPROCAL, zero_point=("min - round(low / scale)",), zero_point_added=("after the rounding",),
           zero_point_offset=("",)),
    _plain("torchao integers without clipping error", format=_INTEGERS, scale_format=("FP32",),
           scale=("the larger one of high / max and low / min",), factor=_RECIPROCAL),
    _plain("onnxruntime DynamicQuantizeLinear", format=("UINT8",), block=("tensor",), scale_format=("FP32",),
           scale=_ASYMMETRIC, factor=_DIVIDE, zero_point=("min - round(low / scale)",), zero_point_offset=("",)),
    *(Known(f"onnxruntime 4 bits, {name}", {
        "format": ("UINT4",), "scale_format": ("FP32",), "scale": scale, "scale_of_codes": _STORED,
        "rounding": ("ties_to_away", "floor(t + 1/2)"), "zero_point": zero, "zero_point_offset": ("",),
    }) for name, scale, zero in (
        ("symmetric", ("the element of the largest magnitude / min: the scale may be negative",), ("8", *_MIDDLE)),
        ("asymmetric", _ASYMMETRIC, ("min - round(low / scale)",)),
    )),
    Known("bitsandbytes NF4", {"format": ("NF4",), "scale": ("amax / max",), "factor": _RECIPROCAL,
                               "scale_of_codes": _STORED}),
    *(Known(f"bitsandbytes {name}, nested scales", {
        "format": (fmt,), "scale": ("amax / max",), "factor": _RECIPROCAL, "scale_format": (_NESTED,),
        "scale_of_codes": _UNROUNDED, "rounding": ("nearest of the table",),
    }) for name, fmt in (("NF4 (QLoRA)", "NF4"), ("FP4", "BNB_FP4"))),
    Known("bitsandbytes FP4 on CUDA", {"format": ("BNB_FP4",), "scale": ("amax / max",), "factor": _RECIPROCAL,
                                       "rounding": ("nearest of the table",), "scale_of_codes": _STORED}),
    Known("bitsandbytes FP4 on a CPU", {"format": ("BNB_FP4",), "scale": ("amax / max",), "factor": _RECIPROCAL,
                                        "rounding": ("nearest of the table by midpoints",), "scale_of_codes": _STORED}),
    Known("bitsandbytes 8-bit maps", {"format": ("DYNAMIC8",), "scale": ("amax / max",), "factor": _RECIPROCAL}),
    _plain("bitsandbytes INT8 on a CPU", format=("INT8",), block=("row",), scale=("amax, not divided",),
           factor=("x * (max * (1 / scale))",)),
    _plain("bitsandbytes LLM.int8() on CUDA", format=("INT8",), block=("row",),
           scale=("amax, not divided", "1 / (max / amax)"), factor=("x * (max / scale)", "x * (max / amax)")),
    *(_plain(f"GPTQ (arXiv 2210.17323), {name}", format=_UNSIGNED, scale_format=("FP32",), factor=_DIVIDE, scale=scale,
             zero_point=zero, zero_point_added=("after the rounding",), zero_point_offset=("",))
      for name, scale, zero in (
          ("symmetric", (*_FULL, "2 amax / (max - min), and amax / (max - min) where no element is negative"), _MIDDLE),
          ("asymmetric", _ASYMMETRIC, ("min - round(low / scale)",)),
      )),
    _plain("AWQ", format=("UINT4",), scale_format=("FP16",), factor=_DIVIDE, scale=_ASYMMETRIC,
           zero_point=("min - round(low / scale)",), zero_point_offset=("",)),
    Known("GPTQModel, symmetric", {**_GPTQ, "scale": _FULL, "zero_point": _MIDDLE}),
    Known("GPTQModel, asymmetric", {**_GPTQ, "scale": _ASYMMETRIC, "zero_point": ("min - round(low / scale)",),
                                    "zero_point_added": ("after the rounding",)}),
)  # fmt: skip
