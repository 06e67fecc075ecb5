"""Generators of random bits that libraries and hardware use: equal to their libraries, and the same in every kernel."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.emulator.random_draws import source_draws
from floatsim.reference import sums as reference_sums
from floatsim.reference.random_sources import lfsr_state, lfsr_step, philox, source_draw, threefry2x32
from tests.arrays.jax_random_bits import PATH, bits_of

WIDE, NARROW = (1 << 64) - 1, (1 << 32) - 1
PI = 0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89, 0x452821E638D01377, \
    0xBE5466CF34E90C6C  # fmt: skip
PI32 = 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0

# The file kat_vectors of Random123 1.14.0 (D. E. Shaw Research): (width, rounds, counter and key, the four words).
PHILOX_ANSWERS = [
    (32, 7, (0,) * 6, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (32, 7, (NARROW,) * 6, "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (32, 7, PI32, "4dfccaba 190a87f0 c47362ba b6b5242a"),
    (32, 10, (0,) * 6, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (32, 10, (NARROW,) * 6, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (32, 10, PI32, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    (64, 7, (0,) * 6, "5dc8ee6268ec62cd 139bc570b6c125a0 84d6deb4fb65f49e aff7583376d378c2"),
    (64, 7, (WIDE,) * 6, "071dd84367903154 48e2bbdc722b37d1 6afa9890bb89f76c 9194c8d8ada56ac7"),
    (64, 7, PI, "513a366704edf755 f05d9924c07044d3 bef2cb9cbea74c6c 8db948de4caa1f8a"),
    (64, 10, (0,) * 6, "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
    (64, 10, (WIDE,) * 6, "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0"),
    (64, 10, PI, "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6"),
]
THREEFRY_ANSWERS = [
    (13, (0,) * 4, "9d1c5ec6 8bd50731"), (13, (NARROW,) * 4, "fd36d048 2d17272c"), (13, PI32[:4], "ba3e4725 f27d669e"),
    (20, (0,) * 4, "6b200159 99ba4efe"), (20, (NARROW,) * 4, "1cb996fc bb002be7"), (20, PI32[:4], "c4923a9c 483df7a0"),
    (32, (0,) * 4, "cee3d47e a23dfd5c"), (32, (NARROW,) * 4, "6e2fe0d0 b1b76f82"), (32, PI32[:4], "e2827716 c3c05cdf"),
]  # fmt: skip

TAPS = {  # maximal-length registers: P. Alfke, Xilinx application note XAPP 052 (1996), table 3
    3: (3, 2), 4: (4, 3), 5: (5, 3), 7: (7, 6), 8: (8, 6, 5, 4), 12: (12, 6, 4, 1), 16: (16, 15, 13, 4),
    24: (24, 23, 22, 17), 32: (32, 22, 2, 1), 64: (64, 63, 61, 60),
}  # fmt: skip

GENERATORS = [
    *(fs.Philox((7 << 32) + 42, name) for name in fs.PHILOX_ARRANGEMENTS), fs.Philox(5, rounds=7),
    fs.Threefry((9 << 40) + 3), fs.Lfsr(48, (48, 47, 21, 20), seed=12345, steps=7), fs.Lfsr(16, TAPS[16], seed=0xACE1),
    fs.Lfsr(7, TAPS[7], seed=3, steps=200),
]  # fmt: skip


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


# -- the generators ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "rounds", "start", "answer"), PHILOX_ANSWERS)
def test_known_answers_of_philox(width, rounds, start, answer):
    assert philox(start[:4], start[4:], width, rounds) == words(answer)


@pytest.mark.parametrize(("rounds", "start", "answer"), THREEFRY_ANSWERS)
def test_known_answers_of_threefry(rounds, start, answer):
    """The file lists the counter first, then the key."""
    assert threefry2x32(start[2:], start[:2], rounds) == words(answer)


@pytest.mark.parametrize("generator", GENERATORS, ids=str)
def test_kernel_equals_reference(generator):
    source, seed = generator.source, generator.seed
    for bits in (1, 7, 16, 32, 33, 64):
        if bits > source.width:
            continue
        for start, site in itertools.product((0, 1, 2**32 - 3, 2**63 + 5), (0, 9, 2**33 + 1)):
            found = source_draws(source, seed, start, 5, bits, site)
            assert found.tolist() == [source_draw(source, seed, start + i, bits, site) for i in range(5)]
        assert generator.draws(9, bits, 4).tolist() == source_draws(source, seed, 4, 9, bits).tolist()


@pytest.mark.parametrize("width", [3, 4, 5, 7, 8, 12, 16])
def test_register_has_its_period(width):
    """A maximal-length register runs through every state but 0."""
    register = fs.Lfsr(width, TAPS[width])
    states = register.draws((1 << width) - 1, width)
    assert sorted(states.tolist()) == list(range(1, 1 << width))
    assert register.draws(1, width, offset=(1 << width) - 1).tolist() == [register.seed]


def test_register_state_after_many_steps():
    """Steps that are jumped over equal steps that are made."""
    for width, taps in TAPS.items():
        mask = fs.Lfsr(width, taps).source.taps
        state = first = 5 % (1 << width)
        for n in range(70):
            assert lfsr_state(first, n, width, mask) == state, (width, n)
            state = lfsr_step(state, width, mask)


def test_first_states_of_the_register_of_an_article():
    """The register of Wikipedia's article on LFSRs: 16, 14, 13, 11 from 0xACE1; its C code has period 65535."""
    register = fs.Lfsr(16, (16, 14, 13, 11), seed=0xACE1)
    state = 0xACE1
    for drawn in register.draws(200, 16).tolist():
        assert drawn == state
        bit = (state ^ state >> 2 ^ state >> 3 ^ state >> 5) & 1
        state = state >> 1 | bit << 15
    assert register.draws(1, 16, offset=65535).tolist() == [0xACE1]


# -- libraries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 42, WIDE])
def test_numpy(seed):
    """NumPy's Philox is 4x64 and has the first counter 1."""
    raw = np.random.Philox(key=seed).random_raw(1001)
    assert (fs.Philox(seed, "numpy").draws(1001, 64) == raw).all()
    assert (fs.Philox(seed, "numpy").draws(1001, 16) == raw >> np.uint64(48)).all()
    assert (fs.Philox(seed, "numpy").draws(10, 64, offset=991) == raw[991:]).all()


@pytest.mark.parametrize("width", list(TAPS))
def test_scipy(width):
    """The low bit of a register is SciPy's maximum-length sequence."""
    signal = pytest.importorskip("scipy.signal", reason="needs SciPy")
    seed = 0x9E3779B97F4A7C15 & (1 << width) - 1
    state = [seed >> i & 1 for i in range(width)]
    sequence, _ = signal.max_len_seq(width, state, 500, [width - tap for tap in TAPS[width] if tap != width])
    assert (fs.Lfsr(width, TAPS[width], seed=seed).draws(500, width) & np.uint64(1) == sequence).all()


def test_recorded_bits_of_jax():
    recorded = json.loads(PATH.read_text(encoding="utf-8"))
    for row in recorded["rows"]:
        site = 0 if row["folded"] is None else row["folded"]
        drawn = source_draws(fs.Threefry(0).source, row["seed"], 0, len(row["drawn"]), row["bits"], site)
        assert drawn.tolist() == row["drawn"], row


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_jax(dtype):
    """Against the installed JAX. A site in a sum is folded into the key."""
    jax = pytest.importorskip("jax", reason="needs JAX: the extra `jax`")
    for seed in (42, 0xFEDCBA9876543210):
        expected, bits = bits_of(jax, seed, dtype), int(dtype[4:])
        assert fs.Threefry(seed).draws(len(expected), bits).tolist() == expected
        folded = source_draws(fs.Threefry(seed).source, seed, 0, len(expected), bits, 77)
        assert folded.tolist() == bits_of(jax, seed, dtype, 77)
    assert fs.Threefry(42).draws(5, bits).tolist() == jax.random.bits(jax.random.key(42), (5,), dtype).tolist()


TRITON = """
import json
import sys
import numpy as np
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(out, seed, n: tl.constexpr, first):
    i = tl.arange(0, n)
    words = tl.randint4x(seed, i + first)
    tl.store(out + 4 * i, words[0])
    tl.store(out + 4 * i + 1, words[1])
    tl.store(out + 4 * i + 2, words[2])
    tl.store(out + 4 * i + 3, words[3])
    tl.store(out + 4 * n + i, tl.randint(seed, i + first))

found = []
for seed, first in json.loads(sys.argv[1]):
    out = torch.zeros(5 * 64, dtype=torch.int32)
    kernel[(1,)](out, seed, 64, first)
    found.append(out.numpy().view(np.uint32).tolist())
print(json.dumps(found))
"""


@pytest.mark.torch
@pytest.mark.full
def test_triton(tmp_path):
    """`tl.randint4x` and `tl.randint` in Triton's interpreter, for offsets of 32 bits."""
    pytest.importorskip("triton", reason="needs Triton: the extra `test-libraries`")
    pytest.importorskip("torch", reason="needs torch: the extra `torch`")
    path = tmp_path / "kernel.py"  # the interpreter reads the source of a kernel from its file
    path.write_text(TRITON, encoding="utf-8")
    cases = [(42, 0), ((3 << 32) + 5, 1000)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, str(path), json.dumps(cases)], capture_output=True, text=True, check=True, env=environment
    )
    for (seed, first), found in zip(cases, json.loads(run.stdout), strict=True):
        assert fs.Philox(seed, "curand").draws(256, 32, 4 * first).tolist() == found[:256]
        assert fs.Philox(seed, "triton").draws(64, 32, first).tolist() == found[256:]


AT_PHILOX = """
#include <ATen/core/PhiloxRNGEngine.h>
#include <cstdio>

int main() {
  for (unsigned long long subsequence : {0ull, 5ull}) {
    at::Philox4_32 engine((7ull << 32) + 42, subsequence, 3);
    for (int i = 0; i < 9; i++) std::printf("%u\\n", engine());
  }
}
"""


@pytest.mark.torch
@pytest.mark.full
def test_torch_engine(tmp_path):
    """at::Philox4_32 of PyTorch's C++ headers; its subsequence is the site, and its offset counts counters."""
    torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
    include = Path(torch.__file__).parent / "include"
    source, program = tmp_path / "philox.cpp", tmp_path / "philox"
    source.write_text(AT_PHILOX, encoding="utf-8")
    try:
        subprocess.run(["g++", "-std=c++20", f"-I{include}", str(source), "-o", str(program)], check=True)
    except FileNotFoundError:
        pytest.skip("needs the compiler g++")
    found = [int(line) for line in subprocess.run([program], capture_output=True, check=True).stdout.split()]
    seed = (7 << 32) + 42
    for name, n in (("torch", 9), ("curand", 9)):
        drawn = [source_draws(fs.Philox(seed, name).source, seed, 12, n, 32, site).tolist() for site in (0, 5)]
        assert [*drawn[0], *drawn[1]] == found


@pytest.mark.torch
@pytest.mark.full
def test_torchao(monkeypatch):
    """torchao rounds away from zero where its draw is below the discarded fraction: floatsim's draw is its complement.

    A million FP32 values, among them every exponent, subnormal numbers and both signs; the draws of torchao's call of
    `torch.randint` are those of fs.Philox.
    """
    torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
    module = pytest.importorskip("torchao.optim.quant_utils", reason="needs torchao: the extra `test-libraries`")
    n, generator = 1 << 20, fs.Philox(42, "torch")
    codes = np.random.default_rng(0).integers(0, 1 << 32, n, dtype=np.uint32)
    codes[(codes >> 23 & 0xFF) >= 254] &= np.uint32(0xBFFFFFFF)  # no overflow, which torchao leaves undefined
    drawn = generator.draws(n, 16)

    def randint(low, high, shape, **keywords):
        assert (low, high, tuple(shape)) == (0, 1 << 16, (n,))
        return torch.from_numpy((np.uint64(0xFFFF) - drawn).astype(np.int32))

    monkeypatch.setattr(module.torch, "randint", randint)
    x = codes.view(np.float32)
    found = module._fp32_to_bf16_sr(torch.from_numpy(x)).view(torch.int16).numpy().view(np.uint16)
    assert (fs.encode(x, "bf16", rounding="SR", seed=generator, random_bits=16) == found).all()


# -- every operation ---------------------------------------------------------------------------------------------------


def numbers(n, fmt="fp16", seed=0):
    return fs.array(np.random.default_rng(seed).standard_normal(n), fmt)


@pytest.mark.parametrize("generator", [fs.Philox(42), fs.Threefry(3), fs.Lfsr(16, TAPS[16], seed=5)], ids=str)
def test_elementwise(generator):
    """Conversions, arithmetic, functions and integers draw for the index of the element, and by the definition."""
    n, bits = 60, 16
    options = {"rounding": "SR", "seed": generator, "random_bits": bits}
    drawn, x = generator.draws(n, bits).tolist(), numbers(n)
    settled = fs.reference.RoundingAttributes(fs.Rounding.STOCHASTIC, random_bits=bits)
    exact = [fs.reference.decode(code, fs.FP16) for code in x.codes.tolist()]

    def expected(operation, fmt):
        return [operation(number, fmt, settled, random)[0] for number, random in zip(exact, drawn, strict=True)]

    assert fs.convert(x, "e4m3", **options).codes.tolist() == expected(fs.reference.convert, fs.E4M3)
    assert fs.encode(x.values, "e4m3", **options).tolist() == expected(fs.reference.convert, fs.E4M3)
    assert fs.encode(x.values.tolist(), "e4m3", **options).tolist() == expected(fs.reference.convert, fs.E4M3)
    squares = fs.multiply(x, x, format="e5m2", **options).codes.tolist()
    assert squares == expected(lambda a, *rest: fs.reference.multiply(a, a, *rest), fs.E5M2)
    by_function = fs.reference.functions.apply
    assert fs.exp(x, **options).codes.tolist() == expected(lambda a, *rest: by_function("exp", (a,), *rest), fs.FP16)
    halves = fs.quantize(x.values, "e4m3", **options)
    assert (halves == fs.decode(np.array(expected(fs.reference.convert, fs.E4M3), np.uint8), "e4m3")).all()
    integers = np.arange(n, dtype=np.int64) * 7777 - 99999
    from_reference = [
        fs.reference.convert(fs.reference.from_text(str(i)), fs.E5M2, settled, random)[0]
        for i, random in zip(integers.tolist(), drawn, strict=True)
    ]
    assert fs.array(fs.from_integer(integers, "e5m2", **options), "e5m2").codes.tolist() == from_reference
    found = fs.to_integer(fs.array(np.full(n, 0.3), "fp32"), np.int32, **options)
    fraction = int(np.float32(0.3) * 2.0**bits)
    assert found.tolist() == [int(fraction + random >= 1 << bits) for random in drawn]


def test_chunks_and_pieces_draw_alike():
    """An array longer than a piece, in one call and in parts with `offset=`."""
    x = np.random.default_rng(3).standard_normal((1 << 17) + 1000).astype(np.float32)
    for generator in (fs.Philox(1, "curand"), fs.Lfsr(32, TAPS[32], seed=9, steps=3)):
        options = {"rounding": "SR", "seed": generator, "random_bits": 12}
        whole, cut = fs.encode(x, "bf16", **options), 77_777
        parts = fs.encode(x[:cut], "bf16", **options), fs.encode(x[cut:], "bf16", offset=cut, **options)
        assert (np.concatenate(parts) == whole).all()


SUMS = [
    "fp16", "sequential(bf16, product=fp16)", "kahan(fp16)", "neumaier(fp16)", "pairwise(fp16)", "exact(fp16)",
    "blocked(fp16, 3, bf16)", "splitk(2, sequential(bf16, rounding=sr), fp32)", "blocked(hopper, 4, fp16)",
]  # fmt: skip


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("generator", [fs.Philox(42), fs.Threefry(3), fs.Lfsr(16, TAPS[16], seed=5)], ids=str)
def test_sums(generator, accumulate):
    """Every kind of sum draws by the definition: the seed of the part, the site of the step, the element's index."""
    a, b = numbers((3, 9)), numbers((9, 2), seed=1)
    options = {"seed": generator, "random_bits": 16}
    if "rounding" not in accumulate:
        options["rounding"] = "SR"
    found = fs.matmul(a, b, accumulate=accumulate, **options)
    description = fs.accumulation.as_accumulation(accumulate)
    description = fs.accumulation.fitted(description, fs.FP16, fs.FP16, None)
    rounding = fs.Rounding.STOCHASTIC if "rounding" in options else fs.Rounding.TIES_TO_EVEN
    attributes = fs.reference.RoundingAttributes(rounding, random_bits=16, source=generator.source)
    call = fs.formats.call.CallOptions(attributes, generator.seed)
    for (i, j), code in np.ndenumerate(found.codes):
        terms = [
            tuple(reference_sums.Code(int(x), fs.FP16) for x in pair)
            for pair in zip(a.codes[i], b.codes[:, j], strict=True)
        ]
        assert reference_sums.accumulate(description, terms, call, 2 * i + j, None).code == code


def test_generators_differ_in_sums():
    """The bits of the generator reach the sums: other bits for another seed and for another generator."""
    a, b = numbers((8, 64)), numbers((64, 8), seed=1)
    found = {
        fs.matmul(a, b, accumulate="bf16", rounding="SR", seed=seed).codes.tobytes()
        for seed in (1, fs.Philox(1), fs.Philox(2), fs.Philox(1, "numpy"), fs.Threefry(1))
    }
    assert len(found) == 5


def test_running_sums_and_products():
    """A product along an axis is that of its steps; both draw from the generator."""
    x, generator = numbers((6, 5)), fs.Philox(8)
    for call in (fs.cumsum, fs.prod):
        of_generator = call(x, axis=0, accumulate="e5m2", rounding="SR", seed=generator).codes
        assert (of_generator == call(x, axis=0, accumulate="e5m2", rounding="SR", seed=fs.Philox(8)).codes).all()
        assert (of_generator != call(x, axis=0, accumulate="e5m2", rounding="SR", seed=8).codes).any()
    total = fs.cumsum(x, axis=0, accumulate="e5m2", rounding="SR", seed=generator).codes[-1]
    assert (total == fs.sum(x, axis=0, accumulate="e5m2", rounding="SR", seed=generator).codes).all()


def test_p3109_projection():
    """fs.project takes the same draws as fs.encode."""
    x = np.random.default_rng(0).standard_normal(50)
    drawn = fs.Philox(4).draws(50, 8)
    options = {"rounding": "stochastic", "random_bits": 8}
    given = fs.project(x, "binary8p3sf", random=drawn, **options)
    assert (fs.project(x, "binary8p3sf", seed=fs.Philox(4), **options).codes == given.codes).all()


def test_plan_says_why_fast_kernels_refuse():
    one = fs.array([[1.0]], "bf16")
    plan = fs.explain_plan(one, one, accumulate="bf16", rounding="SR", seed=fs.Philox(1))
    assert plan.candidate == "integer"
    assert "not stochastic bf16: draws come from another generator than floatsim's own" in str(plan)
    assert fs.explain_plan(one, one, accumulate="bf16", rounding="SR", seed=1).candidate == "stochastic bf16"
    nearest = fs.explain_plan(one, one, accumulate="bf16", seed=fs.Philox(1))
    assert nearest.candidate == fs.explain_plan(one, one, accumulate="bf16").candidate


# -- seeds and streams -------------------------------------------------------------------------------------------------


def test_context_stream_and_copies():
    x = np.full(500, 1.03)
    expected = fs.encode(x, "e4m3", rounding="SR", seed=fs.Philox(5))
    with fs.context(rounding="SR", seed=fs.Philox(5)):
        assert (fs.encode(x, "e4m3") == expected).all()
        with pytest.warns(fs.FloatsimWarning, match=r"seed=fs\.Philox\(seed=5.*fs\.RandomStream\(fs\.Philox"):
            fs.encode(x, "e4m3")
    stream = fs.RandomStream(fs.Philox(5))
    again = pickle.loads(pickle.dumps(stream))
    calls = [fs.encode(x, "e4m3", rounding="SR", seed=stream) for _ in range(3)]
    assert len({call.tobytes() for call in calls}) == 3
    for i, call in enumerate(calls):
        seed = fs.Philox(fs.reference.split_seed(5, i + 1))
        assert (call == fs.encode(x, "e4m3", rounding="SR", seed=seed)).all()
        assert (call == fs.encode(x, "e4m3", rounding="SR", seed=again)).all()
    assert pickle.loads(pickle.dumps(fs.Threefry(9))) == fs.Threefry(9)


def test_optimizers_and_policies_take_a_generator():
    weights, gradients = {"w": fs.array(np.ones(200), "bf16")}, {"w": fs.array(np.full(200, 0.3), "bf16")}
    found = {}
    for seed in (1, fs.Philox(1), fs.Philox(1), fs.Threefry(1)):
        optimizer = fs.training.SGD(1e-3, weights="bf16", weight_rounding="stochastic", seed=seed)
        codes = optimizer.step(weights, gradients)["w"].codes
        assert found.setdefault(seed, codes.tobytes()) == codes.tobytes()
    assert len(set(found.values())) == 3
    assert fs.training.Policy("bf16", seed=fs.Lfsr(16, TAPS[16])).seed == fs.Lfsr(16, TAPS[16])


ERRORS = [
    (lambda: fs.Philox(-1), ValueError, r"seed must be at least 0, not -1"),
    (lambda: fs.Philox("42"), TypeError, r"seed must be an integer, not '42'"),
    (lambda: fs.Philox(1, "cuda"), ValueError, r"arrangement='cuda' is not known; did you mean 'curand'\?"),
    (lambda: fs.Philox(1, rounds=0), ValueError, r"rounds must be 1 to 16, not 0"),
    (lambda: fs.Threefry(1 << 64), ValueError, r"seed must be 0 to"),
    (lambda: fs.Threefry(1, rounds=33), ValueError, r"rounds must be 1 to 32, not 33"),
    (lambda: fs.Lfsr(65, (65,)), ValueError, r"width must be 2 to 64, not 65"),
    (lambda: fs.Lfsr(16, (15, 14)), ValueError, r"taps must be different and contain the width 16, not \(15, 14\)"),
    (lambda: fs.Lfsr(16, (16, 16)), ValueError, r"taps must be different"),
    (lambda: fs.Lfsr(16, (16, 17)), ValueError, r"a tap must be 1 to 16, not 17"),
    (lambda: fs.Lfsr(16, 16), TypeError, r"taps must be a sequence of integers such as \(16, 15\), not 16"),
    (lambda: fs.Lfsr(16, (16, 15), seed=0), ValueError, r"seed=0 is the state that a register never leaves"),
    (lambda: fs.Lfsr(16, (16, 15), steps=0), ValueError, r"steps must be 1 to"),
    (lambda: fs.Lfsr(16, (16, 15)).draws(3), ValueError, r"random_bits=32 is more than the 16 bits of the register"),
    (lambda: fs.encode(1.1, "bf16", rounding="SR", seed=fs.Lfsr(8, TAPS[8])), ValueError, r"pass random_bits=8 or"),
    (lambda: fs.encode(1.1, "bf16", rounding="SR", seed="Philox"), TypeError, r"a generator such as fs\.Philox\(42\)"),
    (lambda: fs.RandomStream(1.5), TypeError, r"seed must be an integer, a generator"),
    (lambda: fs.Philox(1).draws(-1), ValueError, r"count must be at least 0, not -1"),
    (lambda: fs.Philox(1).draws(1, 65), ValueError, r"random_bits must be 1 to 64, not 65"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# -- the bias of few random bits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "fmt", "bits"), [
    ("fp16", "e4m3", 4), ("fp16", "e5m2", 8), ("fp16", "e4m3", 7), ("fp16", "e4m3", 9), ("fp32", "fp16", 8),
])  # fmt: skip
def test_bias_counts_every_draw_for_every_discarded_fraction(source, fmt, bits):
    """The kernel rounds every number of one ulp by every draw: the fractions are those of the results."""
    from fractions import Fraction

    from floatsim_kernels.elementwise import loops

    from floatsim.emulator.elementwise.pieces import NO_DRAWS
    from floatsim.emulator.params import format_params, rounding_params

    bias, (given, target) = fs.random_bits_bias(fmt, bits, source=source), (fs.as_format(source), fs.as_format(fmt))
    discarded = given.precision - target.precision
    assert bias.discarded_bits == discarded
    one = int(fs.encode(1.0, given))
    x = np.repeat(np.arange(one, one + (1 << discarded), dtype=np.uint64), 1 << bits)
    draws = np.tile(np.arange(1 << bits, dtype=np.uint64), 1 << discarded)
    params = rounding_params(fs.reference.RoundingAttributes(fs.Rounding.STOCHASTIC, random_bits=bits))
    out, events = np.empty(x.size, np.uint64), np.empty(x.size, np.uint8)
    loops.convert(
        x, format_params(given), out, format_params(target), params, np.concatenate([NO_DRAWS, draws]), events
    )
    up = (out - np.uint64(int(fs.encode(1.0, target)))).reshape(-1, 1 << bits).sum(axis=1).tolist()
    errors = [Fraction(n, 1 << bits) - Fraction(k, 1 << discarded) for k, n in enumerate(up)]
    assert bias.mean == sum(errors) / len(errors)
    assert bias.worst == min(errors) and max(errors) == 0
    assert bias.never_up == Fraction(sum(n == 0 for n in up[1:]), len(up) - 1)


def test_bias_refuses_a_narrow_source():
    with pytest.raises(ValueError, match="source=FP16 does not hold every number of format=BF16; use a wider source"):
        fs.random_bits_bias("bf16", 8, source="fp16")
    with pytest.raises(ValueError, match="random_bits must be 1 to 64, not 65"):
        fs.random_bits_bias("bf16", 65)
