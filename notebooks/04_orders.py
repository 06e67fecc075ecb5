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
# # 4. Why do two right kernels differ?
#
# Two kernels multiply the same matrices. Neither has a bug, and many of their results have different bits. This
# notebook shows where the difference comes from, how large it may be, and how to tell it from a bug:
#
# 1. [A sum that stops growing](#A-sum-that-stops-growing)
# 2. [Who agrees with whom](#Who-agrees-with-whom)
# 3. [What an order looks like](#What-an-order-looks-like)
# 4. [Where along K it happens](#Where-along-K-it-happens)
# 5. [My kernel differs: order or bug?](#My-kernel-differs:-order-or-bug?)
#
# Everything is computed here, bit for bit as the descriptions say (`docs/sums.md`); no GPU is needed.

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import datasets, plot
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None


def table(head, rows):
    """A table of texts, shown as Markdown."""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


# %% [markdown]
# ## A sum that stops growing
#
# Add ones, one after the other, and round after every addition. The accumulator grows, and with it the distance to its
# next number; once a one is half that distance or less, it changes nothing any more. It is *absorbed*.

# %%
ones = np.ones(4096, np.float32)
ways = ["fp32", "fp16", "bf16", "e4m3", "e5m2", "kahan(bf16)", "pairwise(bf16)", "blocked(bf16, 64, fp32)"]
ax = plot.running_sums(ones, [*ways, "sequential(bf16, rounding=stochastic)"], title="The sum of 4096 ones")

# %% [markdown]
# Each line has the colour of the format in which it adds. Of those that add in BF16, one alone gets stuck: what saves
# the others is not a wider format but another *order* (in pairs, in blocks), a second number that remembers what was
# lost (Kahan), or dice (stochastic rounding, right on average).
#
# Where does a plain sum stop? `fs.record` knows: it counts what was absorbed, and at which k that first happened.

# %%
rows = []
for fmt in (fs.FP16, fs.BF16, fs.E4M3, fs.E5M2):
    with fs.record(events=["absorbed"]) as log:
        total = fs.sum(ones, accumulate=fs.Sequential(fmt), format="fp64")
    rows.append(
        (str(fmt), f"{fmt.precision}", f"{total:g}", f"{int(log.first['absorbed'])}", f"{log['sum.sum'].absorbed}")
    )
table(("accumulator", "bits of precision p", "stops at", "first absorbed, k", "absorbed in all"), rows)

# %% [markdown]
# The sum stops at 2 to the power p: from there on the numbers are 2 apart, and ties go to the even neighbour, which is
# where the sum already is.
#
# In FP32 the same happens, only later. It need not be ones: three numbers are enough for a sum to depend on its order.

# %%
tiny = np.float32(2**-24)
one_first = fs.sum(np.float32([1, tiny, tiny]), accumulate="fp32")
one_last = fs.sum(np.float32([tiny, tiny, 1]), accumulate="fp32")
Markdown(
    f"For t = 2**-24 in FP32, 1 + t + t = {one_first!s}, but t + t + 1 = {one_last!s}: "
    f"{fs.ulp_distance(one_first, one_last)} number apart. Both were rounded as IEEE 754 says, at every step."
)

# %% [markdown]
# ## Who agrees with whom
#
# Real numbers: the gradient of a layer's weights, activations.T @ gradients, of a small network that learns to read
# digits (`data/digits`). The operands are BF16, the accumulators FP32, as in most training. One product, and many right
# ways to add it up:

# %%
digits = datasets.digits()
a, b = fs.array(digits["activations"].T, "bf16"), fs.array(digits["gradients"], "bf16")
K = a.shape[1]
ORDERS = {
    "one after the other": "fp32",
    "fused multiply-adds": "sequential(fp32, fused)",
    "blocks of 64": "blocked(fp32, 64, fp32)",
    "split-K, 4 parts": "splitk(4, fp32, fp32)",
    "in pairs": "pairwise(fp32)",
    "first half + second half": "pairwise(fp32, halving)",
    "a warp: 32 lanes, then pairs": "strided(fp32, 32)",
    "compensated (Kahan)": "kahan(fp32)",
    "exact, rounded once": "exact(fp32)",
    "Ampere's Tensor Cores": "ampere",
    "Hopper's Tensor Cores": "hopper",
    "CDNA 3's matrix cores": "cdna3",
}
results = {name: fs.matmul(a, b, accumulate=how) for name, how in ORDERS.items()}

# %% tags=["picture"]
ax = plot.equality_matrix(
    results, title=f"One product, {len(results)} right results: share of elements whose bits are equal"
)

# %% jupyter={"source_hidden": true}
shares = plot.equal_shares(results)
names = list(results)
off = shares[~np.eye(len(names), dtype=bool)]
whole = [f"{names[i]} and {names[j]}" for i, j in np.argwhere(np.triu(shares == 1, 1))]
Markdown(
    f"Of {a.shape[0]} x {b.shape[1]} sums of {K} products, two right kernels have the same bits in "
    f"{off.min():.0%} to {off.max():.0%}. Equal throughout: {'; '.join(whole)}. That pair must be: a product of two "
    "BF16 numbers has 16 bits, so that FP32 rounds nothing off it, fused or not."
)

# %% [markdown]
# The three matrix units are in the picture because they are what most kernels run on. They do not add in IEEE steps,
# and what is said of them here is the emulator's word; [notebook 5](05_tensor_cores.ipynb) says what that rests on.
#
# So "is it equal?" is the wrong question to ask of two kernels. How far are they from the exact sums?

# %%
exact = fs.matmul(a, b, accumulate="exact(fp64)").values
mass = np.abs(a.values) @ np.abs(b.values)  # the sum of |a·b|: what the terms are worth before they cancel
u = fs.FP32.unit_roundoff


def scaled(result):
    """The largest error, in units of u times the sum of |a·b|."""
    return np.max(np.abs(result.values - exact)[mass > 0] / mass[mass > 0]) / u


rows = []
for name, result in results.items():
    error = np.abs(result.values - exact)
    rows.append(
        (name, f"`{ORDERS[name]}`", f"{np.mean(result.codes == results['exact, rounded once'].codes):.0%}",
         f"{fs.ulp_distance(result, results['exact, rounded once']).max()}",
         f"{np.max(error[exact != 0] / np.abs(exact[exact != 0])):.1e}", f"{scaled(result):.1f}")
    )  # fmt: skip
table(
    ("order", "description", "all bits right", "farthest off, in numbers of FP32", "relative to the result",
     "relative to u times the sum of abs(a·b)"), rows,
)  # fmt: skip

# %% [markdown]
# Read the last columns together. Counted in numbers (ulps), or relative to the result, a right kernel can look
# terrible: where positive and negative terms cancel, little is left to be relative to. Relative to what went *in*, the
# sum of |a·b|, the same errors are a few roundings. That is the measure with a theorem behind it: in whatever order n
# terms are added, each addition rounded to nearest, the error is at most (n - 1) u times the sum of |a·b|, to first
# order in the unit roundoff u (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition, SIAM 2002,
# section 4.2). Matrix units cut instead of rounding to nearest; for them allow a small multiple of it.
#
# And rounded to the format that the kernel really stores?

# %%
stored = {fmt: plot.equal_shares({name: fs.convert(x, fmt) for name, x in results.items()}) for fmt in ("fp16", "bf16")}
Markdown(
    "Least share of equal elements between any two: "
    + ", ".join(f"{fs.as_format(fmt)} {s.min():.2%}" for fmt, s in {"fp32": shares, **stored}.items())
    + ". Storing the result in fewer bits hides nearly all of the order: only sums that lie next to a rounding "
    "boundary "
    "can still fall on two sides of it. (These gradients are small: "
    f"{plot.fates(exact, 'fp16').subnormal:.0%} of those that are not zero are subnormal in FP16, with fewer bits yet.)"
)

# %% [markdown]
# ## What an order looks like
#
# An order can be seen from outside, without the source, with nothing but dot products (the method is
# [FPRev](https://www.usenix.org/conference/atc25)'s, P. Xie et al., USENIX ATC 2025). Make all products one small unit,
# but for +M at i and -M at j, with M so large that units added to it vanish. The units that are left at the end are
# those that were added after i and j had met. Do so for every pair:

# %%
shown = {
    "one after the other": ORDERS["one after the other"],
    "in pairs": "pairwise(fp32)",
    "8 lanes, then pairs": "strided(fp32, 8)",
    "split-K, 4 parts": "splitk(4, fp32, fp32)",
    "Ampere's Tensor Cores": "ampere",
    "Hopper's Tensor Cores": "hopper",
}
figure, axes = plt.subplots(2, 3, figsize=(9.6, 6), layout="constrained")
for ax, (name, how) in zip(axes.flat, shown.items(), strict=True):
    plot.order_map(fs.reveal_order(how, 32), ax=ax, title=name, colorbar=False)
bar = figure.colorbar(axes[0, 0].images[0], ax=axes, label="terms that survive when i and j cancel", shrink=0.7)

# %% [markdown]
# The last two have no shading inside their squares: 8 products on Ampere and 16 on Hopper enter *at once*, there is no
# order among them. (Ampere's instruction takes 16, and adds them in two goes.)
#
# `fs.reveal_order` takes a kernel of your own just as well: any function of two vectors that returns a number. NumPy's
# matrix product belongs to the BLAS that it was linked with, and its order to that; a sum has one that is written down:


# %%
def numpy_dot(x, y):
    return np.sum(x.astype(np.float32) * y.astype(np.float32))


mine = fs.reveal_order(numpy_dot, 64)
found = [how for how in [*ORDERS.values(), "pairwise(fp32, numpy)", "strided(fp32, 8)", "blocked(fp32, 16, fp32)"]
         if np.array_equal(mine, fs.reveal_order(how, 64))]  # fmt: skip
Markdown(f"`np.sum` of FP32 products has the print of: {', '.join(f'`{how}`' for how in found)}.")

# %% [markdown]
# ## Where along K it happens
#
# For every element of a product, `log.first` has the first k at which something happened on the way to it. Two
# accumulators that are too narrow, in two ways: FP16 ends at 65504, BF16 has 8 bits. The matrix is the layer's second
# moments, activations.T @ activations, on the left with activations 16 times as large, which is about what pixels from
# 0 to 255 would have made of them (these images have 0 to 16).

# %%
act = digits["activations"]
runs = {
    ("overflow", "fp16"): (fs.array(16 * act.T, "fp16"), fs.array(16 * act, "fp16")),
    ("absorbed", "bf16"): (fs.array(act.T, "bf16"), fs.array(act, "bf16")),
}
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for ax, ((event, how), (left, right)) in zip(axes, runs.items(), strict=True):
    with fs.record(events=[event]) as log:
        fs.matmul(left, right, accumulate=how)
    hit = np.mean(log.first[event] >= 0)
    plot.first_map(log.first[event], K, ax=ax, title=f"{event} in {fs.as_format(how)}: {hit:.0%} of the elements")

# %% [markdown]
# The pale stripes are activations that are zero, or small, for all images. An overflow is final: the element is
# infinite from that k on, whatever comes. An absorbed term is the beginning of the end, as with the ones above. Stripes
# point to *inputs*, a row of the one operand or a column of the other; a kernel that loses a tile would show as a
# rectangle, one that fails in its last split in one dark colour.

# %% [markdown]
# ## My kernel differs: order or bug?
#
# A split-K kernel in NumPy, as it might have been written for a GPU: four parts, each from its own zero, all in FP32.
# And two versions of it with a bug: one forgets the last term of every part, one keeps the partial sums in BF16.


# %%
def part(x, y, ks):
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for k in ks:
        total += x[:, k, None] * y[k]
    return total


def split_k(x, y, parts=4, forget=0, partials="fp32"):
    x, y = x.values.astype(np.float32), y.values.astype(np.float32)
    n = -(-x.shape[1] // parts)
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for p in range(parts):
        total += fs.quantize(part(x, y, range(p * n, min((p + 1) * n, x.shape[1]) - forget)), partials)
    return total


kernels = {
    "right": split_k,
    "forgets the last k of each part": lambda x, y: split_k(x, y, forget=1),
    "partial sums in BF16": lambda x, y: split_k(x, y, partials="bf16"),
}

# %% [markdown]
# Four ways to judge them:
#
# - **A tolerance**, `np.allclose(ours, reference, rtol=1e-2, atol=1e-2)`: the kind that is chosen until the right
#   kernel passes.
# - **Inputs on which no order can matter.** Integers, small enough that every partial sum, in any order, is an exact
#   integer of the accumulator: below 2**24 in FP32. Then *every* right kernel gives the same bits, split or not, fused
#   or not, atomics or not, and any difference is a bug. They should use many bits, or narrow partial sums pass.
# - **The order, named.** If the kernel's order is known (or read with `reveal_order`), a description reproduces it bit
#   by bit on real data: `fs.hardware.compare(a, b, accumulate="splitk(4, fp32, fp32)", against=ours)`.
# - **No order known?** The theorem above: more than (K - 1) u times the sum of |a·b| is no rounding.

# %%
rng = np.random.default_rng(4)
whole = [fs.array(rng.integers(-127, 128, shape), "bf16") for shape in (a.shape, b.shape)]
most = np.max(np.abs(whole[0].values) @ np.abs(whole[1].values))
assert most < 2**24  # so all partial sums are exact in FP32
reference = results["one after the other"].values
rows = []
for name, kernel in kernels.items():
    ours = kernel(a, b)
    loose = np.allclose(ours, reference, rtol=1e-2, atol=1e-2)
    on_integers = np.array_equal(kernel(*whole), whole[0].values @ whole[1].values)
    report = fs.hardware.compare(a, b, accumulate="splitk(4, fp32, fp32)", against=ours)
    error = scaled(fs.array(ours, "fp32"))
    say = {True: "passes", False: "**fails**"}
    rows.append(
        (name, f"{np.mean(ours == reference):.0%}", say[loose], say[on_integers],
         f"{say[report.equal]} ({report.share_equal:.1%} equal)", f"{say[error <= K - 1]} ({error:,.0f})")
    )  # fmt: skip
table(
    ("kernel", "bits equal to `fp32`", "`allclose`, 1e-2", "integers", "against `splitk(4, fp32, fp32)`",
     f"within K - 1 = {K - 1} roundings"), rows,
)  # fmt: skip

# %% [markdown]
# The share of equal bits says little: the right kernel differs from the plain sum nearly as often as a wrong one. The
# tolerance passes everything, because these gradients are smaller than its `atol`. The other three tell right from
# wrong, and the second needs no reference but integer arithmetic.
#
# What a description cannot vouch for is an order that changes from run to run, as with `atomicAdd`: see exercise 2.
#
# Move the sliders to see how the share of equal results depends on the length of the sums and on how much they cancel
# (`mean` 0: normally distributed terms of both signs; larger: ever more of one sign).


# %%
def two_kernels(k=256, parts=4, mean=0.0, stored="fp32"):
    rng = np.random.default_rng(0)
    x = fs.array(rng.normal(mean, 1, (48, k)), "bf16")
    y = fs.array(rng.normal(mean, 1, (k, 48)), "bf16")
    ways = ("fp32", f"splitk({parts}, fp32, fp32)", "pairwise(fp32)", "exact(fp32)", "hopper")
    results = {how: fs.convert(fs.matmul(x, y, accumulate=how), stored) for how in ways}
    plot.equality_matrix(results, title=f"K = {k}, stored in {fs.as_format(stored)}")


plot.explore(
    two_kernels, k=[256, 16, 64, 1024, 4096], parts=[4, 2, 8, 16], mean=[0.0, 0.5, 2.0], stored=["fp32", "bf16", "fp16"]
)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Where does a sum of ones stop in a format with 5 bits of precision? And a sum of threes? Say it first,
# then let `fs.FloatFormat.ieee(8, 4)` decide.
#
# <details>
# <summary>Solution</summary>
#
# Ones stop at 2 to the power p. Threes stop where the numbers are 8 apart, for 3 is less than half of that; where they
# are 4 apart, 3 is rounded up to 4, and the sum grows too fast.
#
# ```python
# >>> narrow = fs.FloatFormat.ieee(8, 4)
# >>> [float(fs.sum(np.full(100, x, np.float32), accumulate=fs.Sequential(narrow), format="fp64")) for x in (1, 3)]
# [32.0, 128.0]
# ```
#
# </details>
#
# **Exercise 2.** A kernel adds eight partial sums with `atomicAdd`, in whatever order its blocks come to an end. Model
# it: permute the eight blocks of K, twenty times. How many elements have the same bits in all runs? And after the
# result is stored in BF16?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> def run(seed):
# ...     ks = np.arange(K).reshape(8, -1)[np.random.default_rng(seed).permutation(8)].ravel()
# ...     return fs.matmul(a[:, ks], b[ks], accumulate=f"blocked(fp32, {K // 8}, fp32)")
# >>> runs = [run(seed) for seed in range(20)]
# >>> def equal_in_all(runs):
# ...     return f"{np.mean(np.all([x.codes == runs[0].codes for x in runs], axis=0)):.1%}"
# >>> equal_in_all(runs[:2]), equal_in_all(runs), equal_in_all([fs.convert(x, "bf16") for x in runs])
# ('76.3%', '41.1%', '100.0%')
# ```
#
# That is for two runs, for all twenty, and for all twenty in BF16. Compare such a kernel on integers, where all runs
# must agree, or by the size of its error; never run against run.
#
# </details>
#
# **Exercise 3.** Here is a kernel whose source you have lost. What is its order? Find a description that gives all its
# bits.
#
# ```python
# def mystery(x, y):
#     p = x.astype(np.float32) * y.astype(np.float32)
#     q = np.add.accumulate(p.reshape(-1, 4))[-1]
#     return (q[0] + q[2]) + (q[1] + q[3])
# ```
#
# <details>
# <summary>Solution</summary>
#
# `plot.order_map(fs.reveal_order(mystery, 16))` shows stripes, every fourth term: four lanes. The lanes 0 and 2 meet
# first, so the outer order halves:
#
# ```python
# >>> def mystery(x, y):
# ...     p = x.astype(np.float32) * y.astype(np.float32)
# ...     q = np.add.accumulate(p.reshape(-1, 4))[-1]
# ...     return (q[0] + q[2]) + (q[1] + q[3])
# >>> fs.reveal_order(mystery, 16)[0]
# array([-1,  0,  8,  0, 14,  0,  8,  0, 13,  0,  8,  0, 12,  0,  8,  0])
# >>> guess = "strided(fp32, 4, pairwise(fp32, halving))"
# >>> np.array_equal(fs.reveal_order(mystery, 16), fs.reveal_order(guess, 16))
# True
# >>> ours = np.array([[mystery(row, column) for column in np.asarray(b).T] for row in np.asarray(a)])
# >>> print(fs.hardware.compare(a, b, accumulate=guess, against=ours))
# strided(sequential(fp32), 4, pairwise(fp32, halving)), against the array given
# all 2048 results are equal, bit for bit
# ```
#
# </details>
