"""The oracles, compared with each other. They must be correct, and must report wrong results."""

import numpy as np
import oracles as o
import pytest
from oracles import DETERMINISTIC, OracleRounding

import floatsim as fs
from tests.exhaustive import loops

pytestmark = pytest.mark.full

ids = {"ids": str}
EVERY_ROUNDING = o.every_rounding()
OPERATIONS = ("add", "subtract", "multiply", "divide")


@pytest.mark.parametrize("fmt", o.VECTOR, **ids)
def test_the_vectorised_oracle_equals_the_rational_one(fmt):
    """Two ways to the same definition: arrays with an error term, and bisection over exact values with MPFR."""
    r = o.rng("oracles", fmt)
    for operation, arity in o.ARITY.items():
        codes = [c.astype(np.uint64) for c in o.structured(fmt, arity, 160, r)]
        for part, k in zip(np.array_split(r.permutation(len(codes[0])), 8), r.permutation(144), strict=False):
            rounding, columns = EVERY_ROUNDING[k], tuple(c[part] for c in codes)
            ways = [None, False] if fmt.bits <= 16 else [None]  # search in the table, and arithmetic
            results = [o.vector_operation(operation, columns, fmt, rounding, table) for table in ways]
            for i, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
                values = tuple(o.layout(fmt).decode(c, rounding.daz) for c in row)
                if operation in ("remainder", "fmod"):
                    want = o.integer_remainder(operation, *values, fmt, rounding)
                else:
                    want = o.Exact(operation, values, fmt)(rounding)
                for code, events in results:
                    got = (int(code[i]), int(events[i]))
                    assert got == want, o.report(operation, fmt, rounding, row, got, want)


@pytest.mark.parametrize("fmt", [f for f in (*o.NAMED, *o.CUSTOM) if f.precision <= 24], **ids)
def test_the_cast_loop_equals_the_rational_oracle(fmt):
    r = o.rng("cast32", fmt)
    at, source = o.layout(fmt), o.layout(fs.FP32)
    codes = np.concatenate([*o.structured(fs.FP32, 1, 500, r), o.special_codes(fs.FP32)]).astype(np.uint32)
    for mode in DETERMINISTIC:
        out, flags = np.empty(codes.size, np.int64), np.empty(codes.size, np.uint8)
        if fmt.is_scale:
            loops.cast32_to_scale(codes, at.bias, at.largest, at.nan, mode.value, out, flags)
        else:
            infinity, nan = (-1 if c is None else c for c in (at.inf, at.nan))
            loops.cast32(codes, at.t, 1 - at.bias, at.largest, infinity, nan, at.sign_bit, at.signed_zero,
                         mode.value, 0, out, flags)  # fmt: skip
        for i, code in enumerate(codes.tolist()):
            want = o.convert(source.decode(code), fmt, OracleRounding(mode))
            got = (int(out[i]), int(flags[i]))
            assert got == (want[0], want[1] & 31), o.report(f"cast to {fmt.name}", fs.FP32, mode, (code,), got, want)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fmt", [fs.FP16, fs.BF16], **ids)
def test_the_verification_of_pairs(fmt, operation):
    """It accepts the oracle's result only: no neighbour, no other sign, no other flags."""
    r = o.rng("judge", fmt, operation)
    at = o.layout(fmt)
    a = r.choice(o.structured(fmt, 1, 400, r)[0], 90).astype(np.uint16)
    b = np.concatenate([r.choice(o.special_codes(fmt), 30), r.choice(o.structured(fmt, 1, 400, r)[0], 60)])
    for mode in DETERMINISTIC:
        code, events = o.vector_operation(operation, (a[:, None], b[None, :]), fmt, OracleRounding(mode))

        def wrong_pairs(codes, flags, mode=mode):
            wrong = np.zeros(codes.shape, bool)
            arguments = (OPERATIONS.index(operation), a, b.astype(np.uint16), codes.astype(np.uint16), flags)
            specials = at.inf, at.nan, at.sign_bit
            count = loops.verify_pairs(
                *arguments, o.table_of_values(fmt), at.t, at.largest, *specials, mode.value, wrong
            )
            assert count == wrong.sum()
            return wrong

        flags = (events & 31).astype(np.uint8)
        assert not wrong_pairs(code, flags).any(), mode
        for changed in (code + 1, code - 1, code ^ at.sign_bit):
            assert wrong_pairs(changed & 0xFFFF, flags).all(), mode
        for bit in (1, 2, 4, 8, 16):
            assert wrong_pairs(code, flags ^ np.uint8(bit)).all(), (mode, bit)
