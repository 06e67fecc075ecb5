"""The recorded calls that the project ships: epilogues, convolutions, scaled products and Triton's dots, all bits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import floatsim as fs
from tests import marks
from tests.accumulation import sample_calls
from tests.accumulation.recorded_products import needs_recordings


def _kinds(accumulation):
    """The kinds of descriptions inside of one, with the options that epilogues, parts and conversions have."""
    yield type(accumulation).__name__
    for option in ("rule", "fused", "through", "activation", "rounding"):
        value = getattr(accumulation, option, None)
        if isinstance(accumulation, fs.Epilogue | fs.Converted | fs.SplitK) and value is not None:
            yield f"{type(accumulation).__name__} {option}={getattr(value, 'name', value)}"
    for child in accumulation.children:
        yield from _kinds(child)


@marks.needs_sample(sample_calls.SAMPLE)
def test_every_recorded_call_is_equal():
    kinds, calls = Counter(), Counter()
    for key, note, arrays in sample_calls.shipped():
        assert np.array_equal(sample_calls.replayed(note, arrays), arrays["result"]), key
        calls[note["call"]] += 1
        if note["call"] != "scaled":
            kinds.update(set(_kinds(sample_calls.described(note))))
    assert calls == {"product": 17, "convolution": 8, "scaled": 6, "dot": 7}
    assert sample_calls.SAMPLE.stat().st_size < 1_600_000
    due = {
        "Epilogue fused=sum", "Epilogue fused=c", "Epilogue through=FP16", "Epilogue activation=relu", "Residue",
        "SplitK", "Converted rounding=TIES_TO_EVEN", "Converted rounding=TOWARD_ZERO", "Tf32x3", "Permuted", "Blocked",
        "TensorCore", "Sequential",
    }  # fmt: skip
    assert due <= kinds.keys(), due - kinds.keys()


@needs_recordings
@pytest.mark.full
def test_the_shipped_calls_are_those_of_the_recordings():
    due = list(sample_calls.collected())
    found = list(sample_calls.shipped())
    assert [key for key, *_ in due] == [key for key, *_ in found]
    for (key, note, arrays), (_, same_note, same_arrays) in zip(due, found, strict=True):
        assert note == same_note and arrays.keys() == same_arrays.keys(), key
        for name, x in arrays.items():
            codes, others = (getattr(y, "codes", y) for y in (x, same_arrays[name]))
            assert np.array_equal(codes, others), (key, name)
