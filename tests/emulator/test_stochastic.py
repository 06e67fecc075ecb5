"""Stochastic rounding: the counter generator, unbiasedness to the stated resolution, and independence of everything
that must not matter (chunks, threads, shapes). Statistical bounds lie at six standard deviations and fixed seeds, so
that they hold every time and fail for every bias worth the name."""

import itertools
import math
import threading
from fractions import Fraction

import numpy as np
import oracles as o
import pytest
from oracles import OracleRounding

import floatsim as fs
from floatsim import Rounding, reference
from tests.marks import cases

pytestmark = pytest.mark.versions

SR = Rounding.STOCHASTIC
SIGMAS = 6


def draws(seed: int, n: int, bits: int = 32, site: int = 0, start: int = 0) -> np.ndarray:
    """Many draws of the reference's generator, at NumPy's speed (compared with the reference below)."""
    index = np.arange(start, start + n, dtype=np.uint64)
    assert index[0] >> np.uint64(32) == index[-1] >> np.uint64(32)
    block = int(index[0]) >> 32

    def words(key):
        low, high = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
        with np.errstate(over="ignore"):
            x = (index & np.uint64(0xFFFFFFFF)).astype(np.uint32) + low
            x = (x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB)
            x = ((x ^ (x >> np.uint32(11))) + high) * np.uint32(0xAC4C1B51)
            x = (x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB)
        return (x ^ (x >> np.uint32(14))).astype(np.uint64)

    word = words(reference.draw_key(seed, 2 * site, block))
    if bits <= 32:
        return word >> np.uint64(32 - bits)
    more = words(reference.draw_key(seed, 2 * site + 1, block))
    return (word << np.uint64(32) | more) >> np.uint64(64 - bits)


def chi_square_is_fine(counts: np.ndarray, expected: float) -> bool:
    """Within six standard deviations of what equal chances give, on both sides."""
    freedom = counts.size - 1
    chi2 = float(((counts - expected) ** 2).sum() / expected)
    return abs(chi2 - freedom) < SIGMAS * math.sqrt(2 * freedom)


# -- the generator ---------------------------------------------------------------------------------------------------


def test_known_draws():
    """The generator is part of the format of results: it may not change silently."""
    assert [reference.draw(1, i, 8) for i in range(4)] == [51, 154, 150, 68]
    assert reference.draw(1, 0, 32) >> 24 == 51
    assert reference.draw(1, 0, 64) >> 32 == reference.draw(1, 0, 32)


@pytest.mark.parametrize("bits", [1, 7, 8, 31, 32, 33, 40, 63, 64])
def test_draws_have_their_bits_and_repeat(bits):
    r = o.rng("draws", bits)
    for seed in (0, 1, 2**64 - 1, int(r.integers(2**63))):
        for site in (0, 1, 12):
            for start in (0, 2**32 - 40, 2**32, 2**63):
                fast = draws(seed, 40, bits, site, start)
                slow = [reference.draw(seed, start + i, bits, site) for i in range(40)]
                assert fast.tolist() == slow
                assert all(0 <= x < 1 << bits for x in slow)


SEEDS = [0, 1, 2, 3, 12345, 2**32, 2**63 + 1, 2**64 - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_are_uniform(seed):
    """Each byte of 2^18 consecutive words, chi-square; so is each single bit."""
    n = 1 << 18
    words = draws(seed, n, 64)
    for byte in range(8):
        values = (words >> np.uint64(8 * byte)) & np.uint64(255)
        assert chi_square_is_fine(np.bincount(values.astype(np.int64), minlength=256), n / 256), byte
    for bit in range(64):
        ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
        assert abs(ones - n / 2) < SIGMAS * math.sqrt(n) / 2, bit


@pytest.mark.parametrize("stride", [1, 2, 3, 16, 64, 128, 1000, 1024, 4096])
def test_strided_indices_are_uniform(stride):
    """Columns of a matrix see a uniform sequence too."""
    n = 1 << 16
    for seed in SEEDS[:4]:
        words = draws(seed, n * stride if stride <= 64 else n * 64, 32)[::stride]
        values = (words >> np.uint64(24)).astype(np.int64)
        assert chi_square_is_fine(np.bincount(values, minlength=256), len(values) / 256)


def independent(a: np.ndarray, b: np.ndarray) -> bool:
    """The joint histogram of the first four bits of each, and the agreement of every bit."""
    joint = (a >> np.uint64(28)) * np.uint64(16) + (b >> np.uint64(28))
    if not chi_square_is_fine(np.bincount(joint.astype(np.int64), minlength=256), len(a) / 256):
        return False
    differ = a ^ b
    n = len(a)
    return all(
        abs(int(((differ >> np.uint64(bit)) & np.uint64(1)).sum()) - n / 2) < SIGMAS * math.sqrt(n) / 2
        for bit in range(32)
    )


def test_neighbouring_indices_are_independent():
    for seed in SEEDS:
        words = draws(seed, (1 << 17) + 4096)
        for lag in (1, 2, 3, 4, 7, 8, 15, 16, 32, 64, 100, 128, 256, 1000, 1024, 4096):
            assert independent(words[: 1 << 17], words[lag : lag + (1 << 17)]), (seed, lag)


def test_seeds_are_independent():
    """Consecutive seeds, seeds one bit apart, and a seed against its neighbours shifted by a few elements."""
    n = 1 << 17
    base = draws(1000, n + 64)
    others = [1000 + k for k in range(1, 9)] + [1000 ^ 1 << k for k in range(10, 64, 6)]
    for other in others:
        words = draws(other, n + 64)
        assert independent(base[:n], words[:n]), other
        for shift in (1, 2, 17, 64):
            assert independent(base[:n], words[shift : shift + n]), (other, shift)
            assert independent(base[shift : shift + n], words[:n]), (other, shift)


def test_sites_and_halves_are_independent():
    """Product and sum of one element draw differently; so do the two words of a 64-bit draw."""
    n = 1 << 17
    for seed in SEEDS:
        words = [draws(seed, n, 32, site) for site in range(5)]
        for i in range(5):
            for j in range(i):
                assert independent(words[i], words[j]), (seed, i, j)
        whole = draws(seed, n, 64)
        assert independent(whole >> np.uint64(32), whole & np.uint64(0xFFFFFFFF))


def test_a_site_is_not_another_seed():
    """(seed, site) pairs do not fall together."""
    keys = {reference.draw_key(seed, site, block) for seed in range(40) for site in range(20) for block in range(20)}
    assert len(keys) == 40 * 20 * 20


def test_sums_of_neighbours_are_normal():
    """Sums of 64 consecutive uniform numbers have the mean and variance of independent ones."""
    for seed in SEEDS:
        u = draws(seed, 1 << 20).astype(np.float64) / 2.0**32
        sums = u.reshape(-1, 64).sum(axis=1)
        n, mean, variance = len(sums), 32.0, 64 / 12
        assert abs(sums.mean() - mean) < SIGMAS * math.sqrt(variance / n)
        assert abs(sums.var() - variance) < SIGMAS * variance * math.sqrt(2 / n)


# -- the rounding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 5, 8])
@pytest.mark.parametrize("name", ["FP16", "E4M3", "E5M2FNUZ", "E2M1", "BF16"])
def test_exactly_as_many_draws_round_up_as_defined(name, bits):
    """All 2^N draws of one value: floor(delta * 2^N) of them go up. So the bias is below 2^-N ulp, always downward."""
    fmt = fs.as_format(name)
    at = o.layout(fmt)
    r = o.rng("all draws", fmt, bits)
    rounding = OracleRounding(SR, random_bits=bits)
    for _ in range(60):
        low = int(r.integers(0, at.largest))
        delta = Fraction(int(r.integers(1, 2**40)), 2**40)
        x = at.worth(low) + delta * (at.worth(low + 1) - at.worth(low))
        for sign in (0, 1):
            number = reference.from_fraction(-x if sign else x)
            codes = [reference.round_pack(number, fmt, rounding.attributes, k)[0] for k in range(1 << bits)]
            ups = sum(c not in (low + sign * at.sign_bit, at.zero(sign) if low == 0 else -1) for c in codes)
            assert ups == math.floor(delta * 2**bits), o.report("stochastic", fmt, rounding, (low,), ups, delta)


@pytest.mark.parametrize("bits", cases(quick=[8, 32], full=range(1, 65)))
def test_every_number_of_bits_against_the_oracle(bits):
    """Conversions to FP16, E4M3 and E8M0 and results of every operation, drawn by the reference's generator."""
    r = o.rng("bits", bits)
    seed = int(r.integers(2**63))
    x = r.normal(size=46) * 2.0 ** r.integers(-30, 18, 46)
    x[:6] = 0.0, -0.0, 1.0, 2.0**-26, 70000.0, np.inf
    for fmt in (fs.FP16, fs.E4M3, fs.E4M3FNUZ, fs.E2M1, fs.E8M0, fs.BF16):
        policy = o.POLICIES[bits % 3]
        rounding = OracleRounding(SR, policy, ftz=bool(bits & 4), tininess=o.TININESS[bits & 1], random_bits=bits)
        keywords = rounding.keywords | {"seed": seed, "random_bits": bits, "offset": 5}
        got, flags = fs.encode(x, fmt, return_flags=True, **keywords)
        for i, value in enumerate(x.view(np.uint64).tolist()):
            random = reference.draw(seed, 5 + i, bits)
            want = o.convert(o.layout(fs.FP64).decode(value), fmt, rounding, random)
            again = reference.convert(reference.decode(value, fs.FP64), fmt, rounding.attributes, random)
            assert again == want, o.report("convert", fs.FP64, rounding, (value,), again, want)
            mine = (int(got[i]), int(flags[i]))
            assert mine == (want[0], want[1] & 31), o.report("convert", fs.FP64, rounding, (value,), mine, want)
    for fmt in (fs.FP16, fs.E5M2, fs.FP64, fs.TF32):
        for operation in o.MPFR_OPERATIONS:
            columns = [r.choice(c, 25) for c in o.structured(fmt, o.ARITY[operation], 120, r)]
            rounding = OracleRounding(
                SR, o.POLICIES[bits % 3], ftz=bool(bits & 2), tininess=o.TININESS[bits & 1], random_bits=bits
            )
            keywords = rounding.keywords | {"seed": seed, "random_bits": bits, "return_flags": True}
            got, flags = getattr(fs, operation)(*(fs.from_codes(c, fmt) for c in columns), **keywords)
            for i, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
                random = reference.draw(seed, i, bits)
                want = o.Exact(operation, tuple(o.layout(fmt).decode(c) for c in row), fmt)(rounding, random)
                again = getattr(reference, operation)(
                    *(reference.decode(c, fmt) for c in row), fmt, rounding.attributes, random
                )
                assert again == want, o.report(operation, fmt, rounding, row, again, want)
                mine = (int(got.codes[i]), int(flags[i]))
                assert mine == (want[0], want[1] & 31), o.report(operation, fmt, rounding, row, mine, want)


@pytest.mark.parametrize("fmt", o.NAMED, ids=str)
def test_exact_values_never_move(fmt):
    codes = fmt.codes() if fmt.bits <= 16 else o.structured(fmt, 1, 5000, o.rng("exact", fmt))[0].astype(fmt.code_dtype)
    x = fs.from_codes(codes, fmt)
    keep = ~fs.isnan(x)
    for bits in (1, 16, 32, 53, 64):
        got, flags = fs.encode(x, fmt, rounding="SR", seed=bits, random_bits=bits, return_flags=True)
        assert (got[keep] == codes[keep]).all()
        assert not flags[keep].any()
    if fmt.bits <= 16:
        got = fs.encode(fs.decode(codes, fmt), fmt, rounding="SR", seed=3)
        assert (got[keep] == codes[keep]).all()


@pytest.mark.parametrize(
    ("fmt", "value"),
    [
        (fs.FP16, 1 + 2.0**-12), (fs.FP16, 1 + 3 * 2.0**-14), (fs.BF16, 3.14159), (fs.E4M3, 300.1), (fs.E5M2, 0.3),
        (fs.E4M3, 2.0**-10), (fs.E4M3, 2.0**-13), (fs.E5M2, 1.7 * 2.0**-18), (fs.FP16, 2.0**-30), (fs.E2M1, 0.1),
        (fs.E2M1, 5.5), (fs.BF16, 2.0**-134), (fs.E4M3FNUZ, -2.0**-12), (fs.FP32, 1 + 2.0**-26),
    ],
    ids=str,
)  # fmt: skip
def test_the_mean_is_the_value(fmt, value):
    """Normal, subnormal and below the smallest subnormal: the mean of a million roundings, within six sigmas."""
    n = 1 << 20
    got = fs.decode(fs.encode(np.full(n, value), fmt, rounding="SR", seed=99), fmt)
    levels = np.unique(got)
    assert len(levels) == 2
    low, high = levels
    p = (value - low) / (high - low)
    assert abs(np.count_nonzero(got == high) - n * p) < SIGMAS * math.sqrt(n * p * (1 - p))


def test_the_mean_of_many_values():
    """Not one value a million times, but a million values: the summed error stays within six sigmas."""
    r = np.random.default_rng(5)
    for fmt in (fs.FP16, fs.BF16, fs.E4M3, fs.E5M2):
        x = r.uniform(float(fmt.smallest_normal), 1.0, 1 << 20)
        error = (fs.quantize(x, fmt, rounding="SR", seed=1) - x).sum()
        ulp = fs.decode(fs.encode(x, fmt, rounding="RTZ") + np.array(1, fmt.code_dtype), fmt)
        ulp = ulp - fs.decode(fs.encode(x, fmt, rounding="RTZ"), fmt)
        assert abs(error) < SIGMAS * math.sqrt((ulp**2).sum() / 6)


# -- what must not matter ----------------------------------------------------------------------------------------------


def stochastic_calls(offset=0, part=slice(None)):
    """One call of each kind on a slice of the same data; codes and flags."""
    r = np.random.default_rng(8)
    x = r.normal(size=50_000) * 2.0 ** r.integers(-20, 16, 50_000)
    a, b = (fs.encode(v, "bf16") for v in (x, x[::-1]))
    keywords = {"rounding": "SR", "seed": 42, "offset": offset, "return_flags": True}
    for fmt in ("fp16", "bf16", "e4m3", "tf32", "e8m0"):
        for source in (x, x.astype(np.float32)):
            yield fs.encode(source[part], fmt, **keywords)
    for bits in (3, 32, 33, 64):
        yield fs.encode(x[part], "e5m2", random_bits=bits, **keywords)
    for source, fmt in ((x.astype(np.float32), "e4m3"), (x, "bf16"), (x.astype(np.float32), "fp16")):
        values, flags = fs.quantize(source[part], fmt, **keywords)
        yield values.view(f"u{values.itemsize}"), flags  # NaNs too are compared as bits
    for operation in ("add", "multiply", "divide"):
        operands = (fs.from_codes(codes[part], "bf16") for codes in (a, b))
        result, flags = getattr(fs, operation)(*operands, **keywords)
        yield result.codes, flags
    integers = r.integers(-(2**60), 2**60, 50_000)
    yield fs.encode(integers[part], "fp16", **keywords)
    yield fs.to_integer(fs.from_codes(a[part], "bf16"), np.int32, **keywords)


def test_chunks_with_offset_are_the_whole():
    whole = list(stochastic_calls())
    edges = [0, 1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 20_001, 49_999, 50_000]
    pieces = [list(stochastic_calls(i, slice(i, j))) for i, j in itertools.pairwise(edges)]
    for k, (codes, flags) in enumerate(whole):
        assert (np.concatenate([p[k][0] for p in pieces]) == codes).all(), k
        assert (np.concatenate([p[k][1] for p in pieces]) == flags).all(), k


def test_offsets_across_blocks():
    """Element indices beyond 2^32 and up to 2^64 - 1: other draws, and the reference's."""
    x = np.full(64, 1.0009765625 + 2.0**-12)
    seen = []
    for offset in (0, 2**32 - 32, 2**32, 2**40, 2**63, 2**64 - 64):
        codes = fs.encode(x, "fp16", rounding="SR", seed=3, offset=offset)
        rounding = OracleRounding(SR).attributes
        number = reference.decode(int(x[:1].view(np.uint64)[0]), fs.FP64)
        want = [reference.convert(number, fs.FP16, rounding, reference.draw(3, offset + i))[0] for i in range(64)]
        assert codes.tolist() == want
        seen.append(tuple(want))
    assert len(set(seen)) == len(seen)


def test_shape_and_layout_do_not_matter():
    x = np.random.default_rng(2).normal(size=6000)
    flat = fs.encode(x, "e4m3", rounding="SR", seed=5)
    assert (fs.encode(x.reshape(60, 100), "e4m3", rounding="SR", seed=5).ravel() == flat).all()
    turned = np.asfortranarray(x.reshape(60, 100))
    assert (fs.encode(turned, "e4m3", rounding="SR", seed=5).ravel() == flat).all()
    spread = np.empty(12_000)
    spread[::2] = x
    assert (fs.encode(spread[::2], "e4m3", rounding="SR", seed=5) == flat).all()
    assert (fs.encode(x[::-1][::-1], "e4m3", rounding="SR", seed=5) == flat).all()


def test_threads_do_not_matter():
    want = list(stochastic_calls())
    results = [None] * 4

    def work(k):
        results[k] = list(stochastic_calls())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        for (codes, flags), (want_codes, want_flags) in zip(result, want, strict=True):
            assert (codes == want_codes).all()
            assert (flags == want_flags).all()


def test_lists_and_arrays_draw_alike():
    """Exact Python numbers go through the reference, arrays through the kernels: the same draws."""
    x = [0.1, 1 / 3, 2.0**-25, 1.0, 1e5, -3.3]
    array = fs.encode(np.array(x), "fp16", rounding="SR", seed=11)
    assert fs.encode(x, "fp16", rounding="SR", seed=11).tolist() == array.tolist()
    texts = [format(Fraction(v).numerator / Fraction(v).denominator, ".60f") for v in x]
    assert fs.encode(texts, "fp16", rounding="SR", seed=11).tolist() == array.tolist()


# -- seeds -------------------------------------------------------------------------------------------------------------


def test_a_seed_is_required():
    for call in (
        lambda: fs.encode([0.1], "fp16", rounding="SR"),
        lambda: fs.add(fs.array([1.0], "fp16"), 1.0, rounding="stochastic"),
        lambda: fs.quantize(np.ones(3), "fp16", rounding=SR),
        lambda: fs.sqrt(np.float32([2.0]), rounding=SR),
        lambda: fs.to_integer([0.5], np.int32, rounding=SR),
    ):
        with pytest.raises(ValueError, match="seed"):
            call()


def test_an_integer_seed_is_one_draw_and_a_stream_advances():
    x = np.full(1000, 0.1)
    assert (fs.encode(x, "fp16", rounding="SR", seed=1) == fs.encode(x, "fp16", rounding="SR", seed=1)).all()
    stream = fs.RandomStream(1)
    calls = [fs.encode(x, "fp16", rounding="SR", seed=stream) for _ in range(4)]
    assert len({c.tobytes() for c in calls}) == 4
    again = fs.RandomStream(1)
    assert all((fs.encode(x, "fp16", rounding="SR", seed=again) == c).all() for c in calls)
    with fs.context(rounding="SR", seed=1):
        assert (fs.encode(x, "fp16") == fs.encode(x, "fp16", rounding="SR", seed=1)).all()
    with fs.context(seed=fs.RandomStream(1)):
        assert (fs.encode(x, "fp16", rounding="SR") == calls[0]).all()


def test_small_updates_survive_with_a_stream():
    """1 + 2^-13 a thousand times in FP16: nearest loses all of it, stochastic keeps it on average."""
    n, steps, update = 4000, 200, 2.0**-13
    for rounding, seed in (("RNE", None), ("SR", fs.RandomStream(4))):
        weights = fs.array(np.ones(n), "fp16")
        for _ in range(steps):
            weights = fs.add(weights, update, rounding=rounding, seed=seed)
        mean = weights.values.mean()
        if rounding == "RNE":
            assert mean == 1.0
        else:
            sigma = 2.0**-10 * math.sqrt(steps * (1 / 8) * (7 / 8) / n)
            assert abs(mean - 1 - steps * update) < SIGMAS * sigma


def test_all_bits_of_a_draw_count_in_sums_to_fp32():
    """1 + v goes up where the 32 bits of v behind 1's last and the draw carry; float64 keeps but 29 of them."""
    n, seed = 1 << 14, 5
    short = (1 << 32) - draws(seed, n, site=9).astype(np.int64)  # of the second term's addition: 8 * 1 + 1
    places = np.flatnonzero(short < 1 << 24)  # v has 24 bits
    assert places.size > 30
    for less in 0, 1:
        v = np.ldexp((short - less).astype(np.float64), -55)
        x = np.stack([np.ones(n), np.where(short < 1 << 24, v, 0.0)]).astype(np.float32)
        sums = fs.sum(x, axis=0, accumulate="sequential(fp32, rounding=stochastic)", seed=seed)
        assert np.array_equal(sums[places], np.full(places.size, 1.0 if less else 1 + 2.0**-23, np.float32))
        with fs.record():  # by the integer kernels
            slow = fs.sum(x, axis=0, accumulate="sequential(fp32, rounding=stochastic)", seed=seed)
        assert np.array_equal(sums, slow)
