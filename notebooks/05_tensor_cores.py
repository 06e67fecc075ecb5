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
# A [Tensor Core](../docs/glossary.md#tensor-core) does not add as IEEE 754 defines. It multiplies exactly,
# [aligns](../docs/glossary.md#alignment) a [block](../docs/glossary.md#block) of products to the largest exponent,
# *truncates* the bits too far below it, and adds the rest at once. The place of the truncation and the size of the
# block differ between generations, and AMD's matrix cores use other methods. So the bits of a matrix product depend on
# the architecture. This notebook shows the sums bit by bit:
#
# 1. [One dot product](#One-dot-product)
# 2. [Architectures side by side](#Architectures-side-by-side)
# 3. [Products that are added at once](#Products-that-are-added-at-once)
# 4. [The accumulator's part of the FP8 error](#The-accumulator's-part-of-the-FP8-error)
# 5. [Comparison with real GPUs](#Comparison-with-real-GPUs)
#
# All results are computed by floatsim's emulator. No GPU is needed. Each model has a note with the evidence for
# it:
#
# - **verified by the project**: we ran the [instruction](../docs/glossary.md#instruction), and it returns the
#   model's bits, special values included. "Published outputs" names other GPUs whose published outputs the model
#   reproduces, too.
# - **verified on hardware**: the model reproduces the published outputs of these GPUs (F. A. Khattak and M. Mikaitis,
#   "Accurate Models of NVIDIA Tensor Cores"). The rows contain ordinary numbers only.
# - **reported by the authors**: the authors of a model report that it equals the GPU. We did not repeat their test.
# - **equal to mmasim**: the model equals another emulator, mmasim 2.1.1, whose authors tested it on the GPU.
# - **unverified**: the model is derived from other models.

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


def evidence(unit, fmt, output="fp32"):
    """The evidence for the model of a unit, for operands of the format."""
    return fs.tensorcore.describe(fs.as_accumulation(unit), fmt, output=output).rows()[1][-1]


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


# %% [markdown]
# ## One dot product
#
# The next picture shows twelve products of FP8 numbers and an [accumulator](../docs/glossary.md#accumulator) in the FP8
# [instruction](../docs/glossary.md#instruction) of Hopper's GEMM [kernels](../docs/glossary.md#kernel) (`wgmma`). Each
# row is one [term](../docs/glossary.md#term), with each bit at its place.

# %%
rng = np.random.default_rng(3)
x, y = fs.array(rng.normal(size=12) * 2, "e4m3"), fs.array(rng.normal(size=12) * 3, "e4m3")
trace = fs.tensorcore.trace(x, y, 1000.1, accumulate="hopper")
ax = trace.plot()

# %% jupyter={"source_hidden": true}
block = trace.blocks[0]
cut = [term for term in block.terms if term.bits_lost]
Markdown(
    f"The largest exponent of all terms, {block.exponent}, defines the bits that are kept: {block.fraction_bits} below "
    f"it, down to 2^{block.quantum}. {len(cut)} of the {len(block.terms)} terms that are not padding lose bits. There "
    "is no [guard bit](../docs/glossary.md#guard-bit) and no [sticky bit](../docs/glossary.md#sticky-bit): the lower "
    f"bits are dropped. The unit returns D = {float(trace.value):g}, the exact sum is {float(trace.exact):g}.\n\n"
    f"Texts about Hopper's FP8 call this a 14-bit accumulator: {block.fraction_bits} bits and the leading one. The "
    f"result has the format FP32, but its low {fs.FP32.trailing_bits - block.fraction_bits} bits are always zero.\n\n"
    f"*Evidence: {evidence('hopper', 'e4m3')}; with another c, as here: verified on the H200.*"
)

# %% [markdown]
# `print(trace)` writes the same as text, and `trace.blocks[0].terms[3].lost` is an example of its data. For another
# unit:


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
# The next dot product in FP16 has two large terms that [cancel](../docs/glossary.md#cancellation). The result shows
# which bits of the small terms each generation keeps beside them:

# %%
rng = np.random.default_rng(0)
x = fs.array([48.0, *(rng.normal(size=6) / 8), -48.0], "fp16")
y = fs.array([20.0, *(rng.normal(size=6) / 8), 20.0], "fp16")
units = ["volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna1", "cdna2", "cdna3"]
traces = {unit: fs.tensorcore.trace(x, y, accumulate=unit) for unit in units}
ax = plot.side_by_side(traces, title="8 products in FP16; the first and the last cancel")

# %% jupyter={"source_hidden": true}
worst = max(traces.values(), key=lambda trace: abs(trace.error))
Markdown(
    f"The same operands, {len({trace.code for trace in traces.values()})} different results. The largest error, "
    f"{worst.accumulation.arch}'s, is {abs(float(worst.error / worst.exact)):.2%} of the result. Relative to the two "
    f"large terms it is only {abs(float(worst.error)) / (x.values[0] * y.values[0]):.0e}."
)

# %% [markdown]
# NVIDIA's generations truncate at different places. AMD's generations use different methods. The next cell measures the
# part of a small term that remains beside a large one. It computes (M + s) - M with smaller and smaller s. All bits of
# s are set, so every truncated bit changes the result (`fs.reveal_width`). The three products are in one block:

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
    title="The part of a small term that is left after a large one is added and subtracted",
)  # fmt: skip

# %% [markdown]
# An IEEE accumulator *rounds*: the small term is kept, then rounded to nearest (107 % is rounding up), then
# [absorbed](../docs/glossary.md#absorption). CDNA 1 and 2 also round. NVIDIA's units and CDNA 3 *truncate*: they lose
# one bit, then two, then three, and the magnitude always decreases. The FP8 units of Ada and of Hopper's wgmma lose
# bits much earlier than all others.
#
# Two rows have the same GPU and the same format: `wgmma` on Hopper truncates FP8 sums at 13 bits, `mma.sync` does not.
# For `mma.sync` in FP8, the compiler generates FP16 instructions instead of FP8 ones. So a measurement of one of the
# two says nothing about the other.

# %% jupyter={"source_hidden": true}
rows = [(name, evidence(unit, fmt)) for name, (unit, fmt) in UNITS.items() if unit != "fp32"]
table(("unit", "evidence for its model"), rows)

# %% [markdown]
# ## Products that are added at once
#
# `fs.reveal_order` reveals the order of a sum. It sets two products to +M and -M and all others to one small unit, and
# counts the units that are added after the two have met ([notebook 4](04_orders.ipynb) explains it). A square with one
# shade is a block whose products are added at once, so their order has no effect:

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
bar = figure.colorbar(axes[0, 0].images[0], ax=axes, label="terms added after i and j have met", shrink=0.7)

# %% [markdown]
# The title of each picture has the number of products that are added at once. The third order comes from the compiler:
# `mma.sync` in FP8 on Hopper first adds the products with k mod 4 = 0 or 1, then the others, because FP8 numbers are
# [unpacked](../docs/glossary.md#pack-and-unpack) from registers with four each. On CDNA 1, a block is an exact sum, so
# terms that meet in one block lose nothing.
#
# The K loop of a GEMM is a chain of such blocks, with k ascending. The D of one block, *rounded or truncated to its
# format*, is the accumulator of the next. Some kernels permute k, for example for layouts in shared memory. The next
# table shows the effect for K = 512: the share of elements that keep all their bits:


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
table(("unit", "permuted among products added at once", "within one instruction", "anywhere"), rows)

# %% [markdown]
# If two kernels permute k only among products that are *added at once*, every difference between them is a bug. Within
# one instruction, differences can be correct: Ada's FP8 instruction takes 32 products and adds 16 at a time.

# %% [markdown]
# ## The accumulator's part of the FP8 error
#
# The next cell multiplies random matrices in FP8, each scaled to the format's range, and separates two errors. One
# comes from *rounding the operands* to E4M3, the other from *adding the products* in the unit. Both are relative to the
# exact product of the original numbers (Frobenius norms).


# %%
def scaled_to_fp8(z):
    scale = fs.E4M3.max / np.abs(z).max()
    return fs.array(z * scale, "e4m3"), scale


def budget(draw, k, ways, m=48):
    """{source of error: relative error} of an (m, k) by (k, m) product."""
    z, w = draw(np.random.default_rng(k), (m, k)), draw(np.random.default_rng(k + 1), (k, m))
    (p, s), (q, t) = scaled_to_fp8(z), scaled_to_fp8(w)
    true, exact = z @ w, fs.matmul(p, q, accumulate="exact(fp64)").values / (s * t)
    sums = {accumulation: fs.matmul(p, q, accumulate=accumulation).values / (s * t) for accumulation in ways}
    size = np.linalg.norm(true)
    return {"rounding to E4M3": np.linalg.norm(exact - true) / size} | {
        accumulation: np.linalg.norm(got - exact) / size for accumulation, got in sums.items()
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
    f"**The result depends on the signs.** With terms of both signs, at K = {k}, the accumulator's error is "
    f"{mixed['hopper']:.2%}, and {mixed['rounding to E4M3']:.1%} come from rounding the operands: a ratio of 1 to "
    f"{mixed['rounding to E4M3'] / mixed['hopper']:.0f}. With terms of one sign, the accumulator's error is "
    f"{alike['hopper']:.1%}, {alike['hopper'] / alike['rounding to E4M3']:.0f} times the "
    f"{alike['rounding to E4M3']:.2%} from rounding the operands. The sum grows, and with it the place of the "
    f"truncation, while the operands' errors partly cancel. Promotion to FP32 every 128 products reduces "
    f"{alike['hopper']:.1%} to {alike[promoted]:.2%}, for "
    f"sums of any length. On Blackwell the error is {alike['blackwell']:.0e}, so promotion is not needed.\n\n"
    "Products of a layer lie between the two pictures. Activations after a ReLU times weights have both signs, sums "
    "of squares have one, and probabilities times values have the signs of the values. The cell above takes any `draw` "
    "function, for example one that returns your tensors.\n\n"
    f"*Evidence for Hopper: {evidence('hopper', 'e4m3')}; a chain of instructions, with c not 0: verified on "
    f"the H200. Evidence for Blackwell: {evidence('blackwell', 'e4m3')}. Promotion follows DeepGEMM and CUTLASS; "
    "FP32 additions are those of IEEE 754.*"
)

# %% [markdown]
# Truncation is biased. The rounding errors of a plain accumulator have both signs. Truncation always rounds toward
# zero, so the errors of positive sums are all negative, and add up:

# %%
z, w = (
    SIGNS["one sign (uniform, 0 to 1)"](np.random.default_rng(i), shape)
    for i, shape in enumerate([(48, 4096), (4096, 48)])
)
(p, _), (q, _) = scaled_to_fp8(z), scaled_to_fp8(w)
exact = fs.matmul(p, q, accumulate="exact(fp64)").values
rows = []
for accumulation in ("fp32", "blackwell", promoted, "hopper"):
    errors = fs.matmul(p, q, accumulate=accumulation).values - exact
    rows.append((f"`{accumulation}`", f"{np.mean(errors < 0):.0%}", f"{np.mean(errors / exact):+.1e}"))
table(("sum", "too small", "mean relative error"), rows)

# %% [markdown]
# Kernels often store their results in BF16, which has fewer bits than each of these accumulators. The share of results
# that differ from the exact sum, rounded to BF16:

# %%
rows = []
for signs, draw in SIGNS.items():
    (p, _), (q, _) = (
        scaled_to_fp8(draw(np.random.default_rng(i), size)) for i, size in enumerate([(48, 4096), (4096, 48)])
    )
    right = fs.matmul(p, q, accumulate="exact(bf16)").codes
    wrong = {}
    for accumulation in ("fp32", "blackwell", promoted, "hopper"):
        wrong[accumulation] = np.mean(fs.matmul(p, q, accumulate=accumulation, format="bf16").codes != right)
    rows.append((signs, *(f"{share:.1%}" for share in wrong.values())))
table(("K = 4096", *(f"`{accumulation}`" for accumulation in wrong)), rows)

# %% [markdown]
# So many elements of a correct FP8 kernel on Hopper differ from a reference that adds
# in FP32. A tolerance cannot tell whether the kernel also has a bug. The kernel's own sum as a description can:
# `fs.hardware.compare(a, b, accumulate="blocked(hopper, 128, fp32)", against=ours)`.
#
# The interval between two [promotions](../docs/glossary.md#promotion) is a parameter of the description,
# `blocked(hopper, n, fp32)`; n = 32 is a promotion after each instruction:

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
# ## Comparison with real GPUs
#
# All results above come from models. There are three ways to compare the models with real GPUs:
#
# 1. **Published outputs** of eight GPUs, replayed here if you have them. In floatsim's tests, the models reproduce the
#    tested dot products of each of the 48 sets without a mismatch: ordinary numbers, one instruction at a time
#    ([results per GPU](../docs/hardware.md), [limits of the test](../docs/tensor-cores.md)). To replay them, clone the
#    repository and set the variable before you start the notebook:
#
#    ```sh
#    git clone --depth 1 https://github.com/north-numerical-computing/MATLAB-tensor-core
#    export FLOATSIM_SILICON=$PWD/MATLAB-tensor-core/model_validation
#    ```
# 2. **[Captures](../docs/glossary.md#capture)** made by `floatsim capture`: set the same variable to their folder. A
#    clone has those of an H200 in `data/silicon/nvidia-h200`.
# 3. **Your own GPU**: `floatsim probe` infers the model of each instruction from its results, and `floatsim compare`
#    compares the GPU with the emulator bit by bit ([Hardware](../docs/hardware.md)).

# %%
folder = os.environ.get("FLOATSIM_SILICON", "")
if folder and Path(folder).exists():
    checked = list(fs.hardware.check_silicon(folder))
    shown = table(
        ("GPU", "instruction", "dot products", "results that differ from the emulator"),
        [(each.capture.gpu, each.capture.title, f"{each.comparison.count}", f"{each.comparison.mismatches}")
         for each in checked],
    )  # fmt: skip
else:
    checked = []
    shown = Markdown(
        "**No outputs of real GPUs here.** The variable FLOATSIM_SILICON "
        + (f"names {folder}, which does not exist." if folder else "is not set.")
        + " With it, this cell lists every set of outputs: the GPU, the instruction, the number of dot products, and "
        "how many results differ from the emulator. The next cell draws a dot product of a Hopper GPU, and shows that "
        "the model of the previous generation does not reproduce that GPU."
    )
shown

# %%
on_hopper = [each.capture for each in checked if each.capture.title.startswith("hopper")]
fp8 = [each for each in on_hopper if "wgmma.k32: E4M3" in str(each.unit)]
if fp8:
    found = fp8[0]
    x, y = (fs.from_codes(side[0], found.unit.a) for side in (found.inputs.a, found.inputs.b))
    c = fs.from_codes(found.inputs.c[0], found.unit.output)
    recorded = fs.tensorcore.trace(x, y, c, accumulate=found.unit.accumulation)
    recorded.plot()
    print(f"{found.gpu} returned 0x{int(found.d[0]):08X}, the emulator 0x{recorded.code:08X}")
for each in on_hopper:
    if "FP16 x FP16 to FP32" in str(each.unit):
        mismatches = each.compare("ampere").mismatches
        print(f"{each.gpu} compared with the model of Ampere: {mismatches} of {len(each.d)} dot products differ")
if not on_hopper:
    print("No outputs of a Hopper GPU were found.")

# %% [markdown]
# The models of one architecture, for all operand formats:

# %%
fs.tensorcore.describe("hopper")

# %% [markdown]
# Next: [6. A kernel differs in one percent of its results: where is the bug?](06_cross_check.ipynb)
#
# ## Exercises
#
# **Exercise 1.** Where does a long sum of ones stop in FP8 on Hopper, 32 at a time? And with a promotion every 128?
#
# <details>
# <summary>Solution</summary>
#
# Each one is truncated to zero when it is more than 13 bits below the leading bit of the accumulator.
#
# ```python
# >>> ones = fs.array(np.ones(40_000), "e4m3")
# >>> {how: float(fs.sum(ones, accumulate=how).values) for how in ("hopper", "blocked(hopper, 128, fp32)", "blackwell")}
# {'hopper': 16384.0, 'blocked(hopper, 128, fp32)': 40000.0, 'blackwell': 40000.0}
# >>> print(fs.testing.check_answers({1: [16384, 40000]}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>
#
# **Exercise 2.** [Notebook 4](04_orders.ipynb) tests kernels on integers, whose sums do not depend on the order. How
# large can the sums be in such a test of an FP8 kernel on Hopper? Find integers for which `hopper`, `ada`, `blackwell`,
# `cdna3` (in its own FP8) and the exact sum agree with K = 512, and others for which they do not.
#
# <details>
# <summary>Solution</summary>
#
# Every partial sum must fit into 14 bits, so all sums must be below 2^14.
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
# >>> print(fs.testing.check_answers({2: 16384}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>
#
# **Exercise 3.** Find a sum that is not monotonic: a dot product on Volta whose result decreases when c increases. (M.
# Fasi et al., PeerJ Computer Science 7:e330, found such sums.) Is it also not monotonic on Hopper?
#
# <details>
# <summary>Solution</summary>
#
# Four products of 2^-24 are kept beside a c just below 1, and truncated beside 1:
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
# With smaller products of 2^-26, the sum on Hopper is not monotonic either:
#
# ```python
# >>> smaller = fs.array(np.full(16, 2.0**-13), "fp16")
# >>> below, one = (fs.dot(smaller, smaller, c, accumulate="hopper").item() for c in (1 - 2**-24, 1.0))
# >>> (below - 1) * 2**24, (one - 1) * 2**24
# (2.0, 0.0)
# >>> print(fs.testing.check_answers({3: [2, 0]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: both sums, as a list.
# - Exercise 2: the number that all sums must be below, a power of two.
# - Exercise 3: for four products of 2^-24 on Volta: the results for c = 1 - 2^-24 and for c = 1, as multiples of 2^-24
#   above 1, in a list.

# %%
DIGESTS = {1: "b09c5d6c92", 2: "ca902d4a8a", 3: "c37273e587"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))
