"""Published quantizers, as rows of the properties that identify them. `floatsim docs checkpoints` has the versions."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["KNOWN", "Known"]


class Known(NamedTuple):
    """A published quantizer: the values of its properties. A property may have several values."""

    name: str
    properties: dict[str, tuple[str, ...]]

    def matches(self, row: Any) -> bool:
        """Return whether a row has these properties."""
        return all(getattr(row, key) in values for key, values in self.properties.items())


_EVEN, _FLOATS = ("ties_to_even",), ("E2M1", "E4M3", "E5M2", "E3M2", "E2M3")
_STORED, _UNROUNDED = ("as stored",), ("before the rounding of the scales",)
_INTEGERS = tuple(f"INT{n}" for n in range(2, 9))
_UNSIGNED = tuple(f"UINT{n}" for n in range(2, 9))
_FULL, _ASYMMETRIC = ("2 amax / (max - min)",), ("(high - low) / (max - min)",)
_DIVIDE, _RECIPROCAL = ("x / scale",), ("x * (1 / scale)",)
_NO_MINUS_ZERO = ("+0 where x is -0", "without sign")
_MIDDLE = ("(max + min + 1) // 2",)


def _mx(name: str, scale: str, formats: tuple[str, ...] = (*_FLOATS, "MXINT8"), **more: tuple[str, ...]) -> Known:
    return Known(name, {"format": formats, "scale_format": ("E8M0",), "scale": (scale,), "rounding": _EVEN,
                        "scale_of_codes": _STORED, "zeros": ("with the sign of x", ""), **more})  # fmt: skip


def _plain(name: str, **properties: tuple[str, ...]) -> Known:
    return Known(name, {"scale_of_codes": _STORED, "rounding": _EVEN, **properties})


_NVFP4: dict[str, tuple[str, ...]] = {"format": ("E2M1",), "scale_format": ("E4M3", "E4M3, stored as FP32")}
_GPTQ: dict[str, tuple[str, ...]] = {
    "format": _UNSIGNED, "scale_format": ("FP16",), "factor": _DIVIDE, "rounding": _EVEN, "scale_of_codes": _UNROUNDED,
}  # fmt: skip

KNOWN: tuple[Known, ...] = (
    _mx("OCP MX 1.0: torchao FLOOR", "2**(floor(log2(amax)) - emax)"),
    _mx("torchao RCEIL, TransformerEngine MXFP8", "2**ceil(log2(amax / max))", ("E4M3",)),
    _mx("torchao RCEIL", "2**ceil(log2(amax / max))", ("E2M1", "E5M2", "E3M2", "E2M3", "MXINT8")),
    _mx("torchao CEIL", "2**(ceil(log2(amax)) - emax)"),
    _mx("torchao EVEN", "2**(floor(log2(amax rounded to the precision of the elements)) - emax)", _FLOATS),
    _mx("compressed-tensors MXFP4", "2**(floor(log2(amax rounded to the precision of the elements)) - emax)",
        ("E2M1",), zeros=_NO_MINUS_ZERO),
    _mx("compressed-tensors MXFP8", "2**(floor(log2(amax rounded to two significant bits)) - emax)",
        ("E4M3",), zeros=_NO_MINUS_ZERO),
    _plain("torchao NVFP4, two levels", **_NVFP4, tensor_scale=("amax / top, p",), scale=("(amax / max) / p",),
           factor=("x * (q / scale)",)),
    _plain("torchao NVFP4, one level", **_NVFP4, tensor_scale=("",), scale=("amax / max",), factor=_RECIPROCAL),
    _plain("TransformerEngine NVFP4", **_NVFP4, tensor_scale=("1 / (top / amax), p",),
           scale=("amax * ((1 / p) * (1 / max))",), factor=("x * (1 / (scale * p))",)),
    _plain("compressed-tensors NVFP4", **_NVFP4, tensor_scale=("top * (1 / amax), 1 / p, the reciprocal",),
           scale=("(1 / p) * (amax / max)",), factor=("x / (scale / q)",), zeros=_NO_MINUS_ZERO),
    _plain("compressed-tensors FP8", format=("E4M3",), scale_format=("FP32", "BF16", "FP16"), scale=("amax / max",),
           factor=_DIVIDE, zeros=_NO_MINUS_ZERO),
    _plain("DeepSeek FP8", format=("E4M3",), scale_format=("FP32",), scale=("amax / max",), factor=_DIVIDE,
           zeros=("with the sign of x",)),
    _plain("DeepGEMM FP8", format=("E4M3",), scale_format=("FP32",), scale=("amax / max",), factor=_RECIPROCAL),
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
    Known("bitsandbytes NF4", {"format": ("NF4",), "scale": ("amax / max",), "factor": _RECIPROCAL}),
    Known("bitsandbytes FP4 on CUDA", {"format": ("BNB_FP4",), "scale": ("amax / max",), "factor": _RECIPROCAL,
                                       "rounding": ("nearest of the table",)}),
    Known("bitsandbytes FP4 on a CPU", {"format": ("BNB_FP4",), "scale": ("amax / max",), "factor": _RECIPROCAL,
                                        "rounding": ("nearest of the table by midpoints",)}),
    Known("bitsandbytes 8-bit maps", {"format": ("DYNAMIC8",), "scale": ("amax / max",), "factor": _RECIPROCAL}),
    _plain("bitsandbytes INT8 on a CPU", format=("INT8",), block=("row",), scale=("amax, not divided",),
           factor=("x * (max * (1 / scale))",)),
    Known("GPTQModel, symmetric", {**_GPTQ, "scale": _FULL, "zero_point": _MIDDLE}),
    Known("GPTQModel, asymmetric", {**_GPTQ, "scale": _ASYMMETRIC, "zero_point": ("min - round(low / scale)",),
                                    "zero_point_added": ("after the rounding",)}),
)  # fmt: skip
