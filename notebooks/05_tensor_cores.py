# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5. What does a Tensor Core really add up?
#
# Not what IEEE 754 describes. A Tensor Core multiplies exactly, aligns a whole block of products to the largest of
# them, *cuts off* what lies too far below, and adds the rest at once. Where it cuts, and how many products make a
# block, is different from one generation to the next (and AMD's matrix cores have manners of their own); with it the
# bits of every matrix product change. Here it is, bit by bit:
#
# 1. [One dot product](#One-dot-product)
# 2. [Architectures side by side](#Architectures-side-by-side)
# 3. [What is added at once](#What-is-added-at-once)
# 4. [How much of the FP8 error is the accumulator?](#How-much-of-the-FP8-error-is-the-accumulator?)
# 5. [And what does silicon say?](#And-what-does-silicon-say?)
#
# Everything below is computed by floatsim's emulator; no GPU is needed. Beside each unit stands what its model rests
# on:
#
# - **silicon**: it reproduces published outputs of those cards, all rows (F. A. Khattak and M. Mikaitis, "Accurate
#   Models of NVIDIA Tensor Cores"). They are of ordinary numbers.
# - **authors' word**: the authors of a model say that it equals the card; not run again by us.
# - **mmasim**: it equals another emulator, mmasim 2.1.1, whose authors tested that on the card.
# - **nothing**: derived, and held against nothing.

# %%
try:
    import os
    from pathlib import Path

    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import plot
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None


def rests_on(unit, fmt, output="fp32"):
    """What the model of a unit has been checked against, for operands of that format."""
    return fs.tensorcore.describe(fs.as_accumulation(unit), fmt, output=output).rows()[1][-1]


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


# %% [markdown]
# ## One dot product
#
# Twelve products of FP8 numbers and an accumulator, through the FP8 instruction of Hopper's GEMM kernels (`wgmma`).
# Each line is one term, its bits where they stand.

# %%
rng = np.random.default_rng(3)
x, y = fs.array(rng.normal(size=12) * 2, "e4m3"), fs.array(rng.normal(size=12) * 3, "e4m3")
trace = fs.tensorcore.trace(x, y, 1000.1, accumulate="hopper")
ax = trace.plot()

# %% jupyter={"source_hidden": true}
block = trace.blocks[0]
cut = [term for term in block.terms if term.bits_lost]
Markdown(
    f"The largest exponent of all terms, {block.exponent}, fixes the window: {block.fraction_bits} bits below it, "
    f"down to 2^{block.quantum}, and nothing beyond. {len(cut)} of the {len(block.terms)} terms that are not "
    "padding lose bits. There is no guard bit and no sticky bit: what is cut off is gone. The unit says D = "
    f"{float(trace.value):g}, the exact sum is {float(trace.exact):g}.\n\n"
    f"These are the '14 bits' that are said of Hopper's FP8: {block.fraction_bits} and the leading one. The result is "
    f"called FP32, and its low {fs.FP32.trailing_bits - block.fraction_bits} bits are always zero.\n\n"
    f"*Rests on: {rests_on('hopper', 'e4m3')}; with another c, as here: mmasim.*"
)

# %% [markdown]
# The same as text is `print(trace)`, and as data `trace.blocks[0].terms[3].lost`. Choose another unit:


# %%
def one_dot(unit="hopper", c=1000.1, spread=2.0):
    rng = np.random.default_rng(3)
    x, y = (fs.array(rng.normal(size=8) * 2.0 ** rng.normal(0, spread, 8), "e4m3") for _ in range(2))
    print(fs.tensorcore.trace(x, y, c, accumulate=unit))


plot.explore(
    one_dot, unit=["hopper", "ada", "blackwell", "blackwell-rtx", "tensorcore(hopper, mma.m16n8k32)"],
    c=[1000.1, 0.0, 1e6], spread=[2.0, 0.0, 4.0],
)  # fmt: skip

# %% [markdown]
# ## Architectures side by side
#
# One dot product in FP16, in which two large terms cancel. What is left shows what each generation has kept meanwhile:

# %%
rng = np.random.default_rng(0)
x = fs.array([48.0, *(rng.normal(size=6) / 8), -48.0], "fp16")
y = fs.array([20.0, *(rng.normal(size=6) / 8), 20.0], "fp16")
units = ["volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna1", "cdna2", "cdna3"]
traces = {unit: fs.tensorcore.trace(x, y, accumulate=unit) for unit in units}
ax = plot.side_by_side(traces, title="8 products in FP16, the first and the last of which cancel")

# %% jupyter={"source_hidden": true}
worst = max(traces.values(), key=lambda trace: abs(trace.error))
Markdown(
    f"The same operands, {len({trace.code for trace in traces.values()})} different results. The largest error, "
    f"{worst.how.arch}'s, is {abs(float(worst.error / worst.exact)):.2%} of the result; beside the two large terms "
    f"it is next to nothing, {abs(float(worst.error)) / (x.values[0] * y.values[0]):.0e} of them."
)

# %% [markdown]
# NVIDIA's generations cut at another place each; AMD's have little in common. To see how much of a small term a large
# one leaves, ask every unit the same question: (M + s) - M, with s ever further below M. All bits of s are set, so that
# each bit that is cut off shows (`fs.reveal_width`). The three products stand next to each other, in one block:

# %%
UNITS = {
    "a plain FP32 accumulator": ("fp32", "fp16"),
    "Volta, FP16": ("volta", "fp16"),
    "Turing, FP16": ("turing", "fp16"),
    "Ampere and Ada, FP16": ("ampere", "fp16"),
    "Hopper, FP16 (wgmma)": ("hopper", "fp16"),
    "Blackwell, FP16": ("blackwell", "fp16"),
    "Ada, FP8": ("ada", "e4m3"),
    "Hopper, FP8 (wgmma)": ("hopper", "e4m3"),
    "Hopper, FP8 (mma.sync)": ("tensorcore(hopper, mma.m16n8k32)", "e4m3"),
    "Blackwell, FP8": ("blackwell", "e4m3"),
    "CDNA 1, BF16": ("cdna1", "bf16"),
    "CDNA 2, BF16": ("cdna2", "bf16"),
    "CDNA 3, BF16": ("cdna3", "bf16"),
    "CDNA 3, FP8": ("cdna3", "e4m3fnuz"),
}
gaps = range(8, 29)
widths = {name: fs.reveal_width(unit, gaps, format=fmt) for name, (unit, fmt) in UNITS.items()}

# %% tags=["picture"]
ax = plot.width_map(
    widths, gaps, formats={name: fmt for name, (_, fmt) in UNITS.items()},
    title="What is left of a small term after a large one has come and gone",
)  # fmt: skip

# %% [markdown]
# An IEEE accumulator *rounds*: a term is kept, nudged to the nearest (107 % is rounding up), and then gone; CDNA 1 and
# 2 do so, too. NVIDIA's units and CDNA 3 *cut*: first one bit is lost, then two, then three, always downward in size.
# FP8 on Ada and in Hopper's wgmma loses them long before everything else does.
#
# Two rows carry the same card's name and the same operands' format: `wgmma` on Hopper truncates FP8 sums at 13 bits,
# `mma.sync` does not, because there it is no FP8 hardware at all; the compiler turns it into FP16 instructions. Whoever
# measures "Hopper's FP8 accumulator" with one of the two learns nothing about the other.

# %% jupyter={"source_hidden": true}
rows = [(name, rests_on(unit, fmt)) for name, (unit, fmt) in UNITS.items() if unit != "fp32"]
table(("unit", "its model rests on"), rows)

# %% [markdown]
# ## What is added at once
#
# In which order? `fs.reveal_order` gives two products the values +M and -M, all others one small unit, and counts the
# units that survive: those that enter after the two have met ([notebook 4](04_orders.ipynb) has more). Even shades are
# blocks whose products enter at once, so that their order cannot matter:

# %%
shown = {
    name: UNITS[name]
    for name in (
        "Ada, FP8",
        "Hopper, FP8 (wgmma)",
        "Hopper, FP8 (mma.sync)",
        "Volta, FP16",
        "CDNA 1, BF16",
        "CDNA 2, BF16",
    )
}

figure, axes = plt.subplots(2, 3, figsize=(9.6, 6), layout="constrained")
for ax, (name, (unit, fmt)) in zip(axes.flat, shown.items(), strict=True):
    at_once = fs.tensorcore.describe(fs.as_accumulation(unit), fmt, output="fp32").rows()[1][4]
    plot.order_map(fs.reveal_order(unit, 32, format=fmt), ax=ax, title=f"{name}: {at_once}", colorbar=False)
bar = figure.colorbar(axes[0, 0].images[0], ax=axes, label="terms that survive when i and j cancel", shrink=0.7)

# %% [markdown]
# Above each stands how many products enter at once. The third is the compiler's doing: `mma.sync` in FP8 on Hopper
# takes the products whose k leaves 0 or 1 when divided by 4 first, then the others, because FP8 numbers are unpacked
# from registers of four. On CDNA 1 a block is an exact sum, so that nothing is lost where two terms meet in one.
#
# For a kernel this means: the K loop of a GEMM is a chain of such blocks, k ascending, and D of one block, *rounded or
# cut to its format*, is the accumulator of the next. So does it matter if a kernel permutes k, as layouts in shared
# memory do? Of K = 512, the share of elements that keep all their bits:


# %%
def unchanged(unit, fmt, n):
    """The share of elements with the same bits after a permutation of k within each n."""
    rng = np.random.default_rng(0)
    p, q = fs.array(rng.normal(size=(48, 512)), fmt), fs.array(rng.normal(size=(512, 48)), fmt)
    ks = (n * np.arange(512 // n)[:, None] + rng.permutation(n)).ravel()
    before, after = fs.matmul(p, q, accumulate=unit), fs.matmul(p[:, ks], q[ks], accumulate=unit)
    return np.mean(before.codes == after.codes)


rows = []
for name in ("Hopper, FP8 (wgmma)", "Ada, FP8", "Ampere and Ada, FP16", "Volta, FP16"):
    unit, fmt = UNITS[name]
    instruction, at_once = map(int, fs.tensorcore.describe(fs.as_accumulation(unit), fmt, output="fp32").rows()[1][3:5])
    shares = [f"{unchanged(unit, fmt, n):.0%} ({n})" for n in (at_once, instruction)]
    rows.append((name, *shares, f"{unchanged(unit, fmt, 512):.0%}"))
table(("unit", "permuted within what is added at once", "within one instruction", "anywhere"), rows)

# %% [markdown]
# If two kernels permute k only within what is *added at once*, any difference between them is a bug. An instruction is
# not enough: Ada's takes 32 products in FP8 and adds them 16 at a time, so that two right kernels that order them
# differently inside an instruction differ.

# %% [markdown]
# ## How much of the FP8 error is the accumulator?
#
# Multiply random matrices in FP8, each scaled to the format's range, and separate two errors, both relative to the
# exact product of the original numbers (Frobenius norms): of *rounding the operands* to E4M3, and of *adding their
# products* in the unit.


# %%
def scaled_to_fp8(z):
    scale = fs.E4M3.max / np.abs(z).max()
    return fs.array(z * scale, "e4m3"), scale


def budget(draw, k, ways, m=48):
    """{source of error: relative error} of an (m, k) by (k, m) product."""
    z, w = draw(np.random.default_rng(k), (m, k)), draw(np.random.default_rng(k + 1), (k, m))
    (p, s), (q, t) = scaled_to_fp8(z), scaled_to_fp8(w)
    true, exact = z @ w, fs.matmul(p, q, accumulate="exact(fp64)").values / (s * t)
    sums = {how: fs.matmul(p, q, accumulate=how).values / (s * t) for how in ways}
    size = np.linalg.norm(true)
    return {"rounding to E4M3": np.linalg.norm(exact - true) / size} | {
        how: np.linalg.norm(got - exact) / size for how, got in sums.items()
    }


SIGNS = {
    "both signs (normal, mean 0)": lambda rng, shape: rng.normal(size=shape),
    "one sign (uniform, 0 to 1)": lambda rng, shape: rng.random(shape),
}
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
WAYS = ("hopper", "blocked(hopper, 128, fp32)", "blackwell")
budgets = {signs: {k: budget(draw, k, WAYS) for k in LENGTHS} for signs, draw in SIGNS.items()}

# %%
NAMES = {"rounding to E4M3": "rounding to E4M3", "hopper": "Hopper", "blocked(hopper, 128, fp32)": "Hopper, promoted",
         "blackwell": "Blackwell"}  # fmt: skip
COLOURS = {"rounding to E4M3": "e4m3", "Hopper": fs.tensorcore.E8M13, "Hopper, promoted": fs.tensorcore.E8M13,
           "Blackwell": "fp32"}  # fmt: skip
figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.4), layout="constrained", sharey=True)
for ax, (signs, by_length) in zip(axes, budgets.items(), strict=True):
    curves = {NAMES[source]: {k: errors[source] for k, errors in by_length.items()} for source in NAMES}
    plot.error_curves(curves, ax=ax, title=signs, formats=COLOURS, ylabel="relative error of A @ B")

# %% jupyter={"source_hidden": true}
mixed, alike = (by_length[4096] for by_length in budgets.values())
k = 4096
promoted = "blocked(hopper, 128, fp32)"
Markdown(
    f"**It depends on the signs.** With terms of both signs, at K = {k}, the accumulator's error is "
    f"{mixed['hopper']:.2%} beside {mixed['rounding to E4M3']:.1%} from rounding the operands: 1 part in "
    f"{mixed['rounding to E4M3'] / mixed['hopper']:.0f}. With terms of one sign it is {alike['hopper']:.1%} beside "
    f"{alike['rounding to E4M3']:.2%}, {alike['hopper'] / alike['rounding to E4M3']:.0f} times as much: the sum "
    "grows, and the window with it, while rounding errors of the operands average out. Promotion to FP32 every 128 "
    f"products brings {alike['hopper']:.1%} down to {alike[promoted]:.2%} and keeps it there, however long the sum. "
    f"On Blackwell it is {alike['blackwell']:.0e}: nothing to promote.\n\nA layer's products lie between the two "
    "pictures: activations behind a ReLU times weights have both signs, sums of squares one, and probabilities "
    "times values whatever the values have. The cell above takes any `draw`; give it your tensors.\n\n"
    f"*Rests on: Hopper: {rests_on('hopper', 'e4m3')}; a chain of them, c not 0: our emulator and mmasim. "
    f"Blackwell: {rests_on('blackwell', 'e4m3')}. Promotion as DeepGEMM and CUTLASS describe it; FP32 additions are "
    "IEEE's.*"
)

# %% [markdown]
# Cutting has a direction. Of a plain accumulator's rounding errors half are up and half are down; what is cut off is
# always towards zero, so that errors of one sign add up:

# %%
z, w = (
    SIGNS["one sign (uniform, 0 to 1)"](np.random.default_rng(i), shape)
    for i, shape in enumerate([(48, 4096), (4096, 48)])
)
(p, _), (q, _) = scaled_to_fp8(z), scaled_to_fp8(w)
exact = fs.matmul(p, q, accumulate="exact(fp64)").values
rows = []
for how in ("fp32", "blackwell", promoted, "hopper"):
    errors = fs.matmul(p, q, accumulate=how).values - exact
    rows.append((f"`{how}`", f"{np.mean(errors < 0):.0%}", f"{np.mean(errors / exact):+.1e}"))
table(("sum", "too small", "mean relative error"), rows)

# %% [markdown]
# Does it reach what the kernel stores? BF16 has fewer bits than any of these accumulators. The share of results that
# are not the exact sum's BF16:

# %%
rows = []
for signs, draw in SIGNS.items():
    (p, _), (q, _) = (
        scaled_to_fp8(draw(np.random.default_rng(i), size)) for i, size in enumerate([(48, 4096), (4096, 48)])
    )
    right = fs.matmul(p, q, accumulate="exact(bf16)").codes
    ways = ("fp32", "blackwell", promoted, "hopper")
    wrong = {how: np.mean(fs.matmul(p, q, accumulate=how, format="bf16").codes != right) for how in ways}
    rows.append((signs, *(f"{share:.1%}" for share in wrong.values())))
table(("K = 4096", *(f"`{how}`" for how in wrong)), rows)

# %% [markdown]
# A right FP8 kernel on Hopper and a reference that adds in FP32 store different numbers, then, in a good part of all
# elements. No tolerance decides whether there is a bug as well; the kernel's own sum, as a description, does:
# `fs.hardware.compare(a, b, accumulate="blocked(hopper, 128, fp32)", against=ours)`.
#
# How often to promote? Every interval is a description, `blocked(hopper, n, fp32)`; 32 is after each instruction:

# %%
draw = SIGNS["one sign (uniform, 0 to 1)"]
INTERVALS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
found = budget(draw, 4096, [f"blocked(hopper, {n}, fp32)" for n in INTERVALS])
curve = {n: found[f"blocked(hopper, {n}, fp32)"] for n in INTERVALS}
ax = plot.error_curves(
    {"accumulator": curve, "rounding to E4M3": dict.fromkeys(INTERVALS, found["rounding to E4M3"])},
    formats={"accumulator": fs.tensorcore.E8M13, "rounding to E4M3": "e4m3"},
    xlabel="products between two promotions to FP32", ylabel="relative error of A @ B", title="K = 4096, one sign",
)  # fmt: skip

# %% [markdown]
# ## And what does silicon say?
#
# All above is a model. Its word can be held against cards in three ways:
#
# 1. **Published outputs** of eight GPUs, replayed here if you have them. In floatsim's tests
#    (`tests/tensorcore/test_tensorcore_silicon.py`) its model reproduces the first thousand dot products of each of
#    their 48 sets without a mismatch: of ordinary numbers, one instruction at a time
#    ([card by card](../docs/hardware.md#what-has-been-verified-where),
#    [what that leaves open](../docs/tensor-cores.md#what-has-been-checked-against-what)). Clone them and say where they
#    are before you start the notebook:
#
#    ```sh
#    git clone --depth 1 https://github.com/north-numerical-computing/MATLAB-tensor-core
#    export FLOATSIM_SILICON=$PWD/MATLAB-tensor-core/model_validation
#    ```
# 2. **Recordings** of `floatsim capture`: set the same variable to their folder.
# 3. **Your own card**: `floatsim probe` infers each instruction's model from what it answers, `floatsim compare` holds
#    it against the emulator bit by bit (`docs/hardware.md`).

# %%
folder = os.environ.get("FLOATSIM_SILICON", "")
if folder and Path(folder).exists():
    checked = list(fs.hardware.check_silicon(folder))
    shown = table(
        ("card", "instruction", "dot products", "other bits than the emulator's"),
        [(each.recording.card, str(each.recording.unit), f"{each.comparison.count}", f"{each.comparison.mismatches}")
         for each in checked],
    )  # fmt: skip
else:
    checked = []
    shown = Markdown(
        "**No recorded silicon here.** The variable FLOATSIM_SILICON "
        + (f"names {folder}, which does not exist." if folder else "is not set.")
        + " With it, this cell lists every recorded set: the card, the instruction, how many dot products, and how "
        "many of them have other bits than the emulator's. The next cell draws one that a Hopper card has computed, "
        "and shows that the sum of the generation before does not explain that card."
    )
shown

# %%
on_hopper = [each.recording for each in checked if str(each.recording.unit).startswith("hopper")]
fp8 = [each for each in on_hopper if "wgmma.k32: E4M3" in str(each.unit)]
if fp8:
    found = fp8[0]
    x, y = (fs.from_codes(side[0], found.unit.a) for side in (found.inputs.a, found.inputs.b))
    recorded = fs.tensorcore.trace(x, y, fs.from_codes(found.inputs.c[0], found.unit.output), accumulate=found.unit.how)
    recorded.plot()
    print(f"{found.card} gave 0x{int(found.d[0]):08X}, the emulator 0x{recorded.code:08X}")
for each in on_hopper:
    if "FP16 x FP16 to FP32" in str(each.unit):
        print(
            f"{each.card} as if it were Ampere: {each.compare('ampere').mismatches} of {len(each.d)} dot products "
            "have other bits"
        )
if not on_hopper:
    print("Nothing recorded by a Hopper card was found.")

# %% [markdown]
# What is known without them, for all that a unit multiplies:

# %%
fs.tensorcore.describe("hopper")

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** A long sum of ones in FP8 on Hopper, 32 at a time: where does it stop? And if it is promoted every
# 128?
#
# <details>
# <summary>Solution</summary>
#
# Each one is cut to nothing once the accumulator's window no longer reaches down to it: 13 bits below the leading one.
#
# ```python
# >>> ones = fs.array(np.ones(40_000), "e4m3")
# >>> {how: float(fs.sum(ones, accumulate=how).values) for how in ("hopper", "blocked(hopper, 128, fp32)", "blackwell")}
# {'hopper': 16384.0, 'blocked(hopper, 128, fp32)': 40000.0, 'blackwell': 40000.0}
# ```
#
# </details>
#
# **Exercise 2.** [Notebook 4](04_orders.ipynb) tests kernels on integers, where no order can matter. How large may the
# sums be for that test to be fair to an FP8 kernel on Hopper? Find integers on which `hopper`, `ada`, `blackwell`,
# `cdna3` (in its own FP8) and the exact sum agree, K = 512, and others on which they do not.
#
# <details>
# <summary>Solution</summary>
#
# Every partial sum, and every term beside the largest, must fit into 14 bits: sums below 2 to the power 14.
#
# ```python
# >>> def agree(low, high):
# ...     rng = np.random.default_rng(1)
# ...     z, w = rng.integers(low, high + 1, (32, 512)), rng.integers(low, high + 1, (512, 32))
# ...     found = {"largest sum": int(abs(z @ w).max())}
# ...     for unit, fmt in [("hopper", "e4m3"), ("ada", "e4m3"), ("blackwell", "e4m3"), ("cdna3", "e4m3fnuz")]:
# ...         d = fs.matmul(fs.array(z, fmt), fs.array(w, fmt), accumulate=unit)
# ...         found[unit] = f"{np.mean(d.values == z @ w):.0%}"
# ...     return found
# >>> agree(-8, 8)
# {'largest sum': 1856, 'hopper': '100%', 'ada': '100%', 'blackwell': '100%', 'cdna3': '100%'}
# >>> agree(0, 16)
# {'largest sum': 37012, 'hopper': '0%', 'ada': '0%', 'blackwell': '100%', 'cdna3': '100%'}
# ```
#
# </details>
#
# **Exercise 3.** Sums that are not monotonic: find a dot product on Volta whose result falls when c grows. (M. Fasi et
# al., PeerJ Computer Science 7:e330, found that such sums exist.) Does yours do so on Hopper?
#
# <details>
# <summary>Solution</summary>
#
# Four products of 2**-24 count beside a c just below 1, and are cut off beside 1:
#
# ```python
# >>> quarter = fs.array(np.full(4, 2.0**-12), "fp16")
# >>> for unit in ("volta", "ampere", "hopper"):
# ...     below, one = (fs.dot(quarter, quarter, c, accumulate=unit).item() for c in (1 - 2**-24, 1.0))
# ...     print(unit, (below - 1) * 2**24, (one - 1) * 2**24, "falls" if one < below else "does not fall")
# volta 2.0 0.0 falls
# ampere 2.0 4.0 does not fall
# hopper 2.0 4.0 does not fall
# ```
#
# With products of 2**-26, each further below, Hopper does the same:
#
# ```python
# >>> smaller = fs.array(np.full(16, 2.0**-13), "fp16")
# >>> below, one = (fs.dot(smaller, smaller, c, accumulate="hopper").item() for c in (1 - 2**-24, 1.0))
# >>> (below - 1) * 2**24, (one - 1) * 2**24
# (2.0, 0.0)
# ```
#
# </details>
