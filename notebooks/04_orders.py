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
# # 4. Why do two correct kernels return different bits?
#
# Two [kernels](../docs/glossary.md#kernel) multiply the same matrices. Neither has a bug, but many of their results
# have different bits. This notebook shows the cause of the differences, their size, and how to tell them from a bug:
#
# 1. [A sum that stops growing](#A-sum-that-stops-growing)
# 2. [Equal bits of correct kernels](#Equal-bits-of-correct-kernels)
# 3. [Fingerprints of summation orders](#Fingerprints-of-summation-orders)
# 4. [The first event along K](#The-first-event-along-K)
# 5. [A kernel differs: order or bug?](#A-kernel-differs:-order-or-bug?)
#
# All results are computed here, bit for bit as [Sums](../docs/sums.md) defines them. No GPU is needed.

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
# This sum adds ones, one after the other, and rounds after every addition. The
# [accumulator](../docs/glossary.md#accumulator) grows, and so does the gap to its next number. When a one is half that
# gap or less, it does not change the sum any more. It is [*absorbed*](../docs/glossary.md#absorption).

# %%
ones = np.ones(4096, np.float32)
accumulations = [
    "fp32", "fp16", "bf16", "e4m3", "e5m2",
    "kahan(bf16)", "pairwise(bf16)", "blocked(bf16, 64, fp32)", "sequential(bf16, rounding=stochastic)",
]  # fmt: skip
ax = plot.running_sums(ones, accumulations, title="The sum of 4096 ones")

# %% [markdown]
# Each line has the colour of the format in which it adds; the five BF16 lines have shades from dark to light. Only the
# plain BF16 sum stops at 256. Each of the other four has a repair:
#
# - The tree (`pairwise`) adds in another *order*, and `blocked` does so too: it adds
#   [blocks](../docs/glossary.md#block) of 64 in BF16, and the sums of the blocks in FP32.
# - Kahan's [compensated sum](../docs/glossary.md#compensated-summation) has a second number for the lost part.
# - [Stochastic rounding](../docs/glossary.md#stochastic-rounding) is correct on average.
#
# The tree, Kahan's sum and stochastic rounding do not use a wider format than BF16.
#
# `fs.record` counts the absorbed [terms](../docs/glossary.md#term), and reports the first k at which a term was
# absorbed:

# %%
rows = []
for fmt in (fs.FP16, fs.BF16, fs.E4M3, fs.E5M2):
    with fs.record(events=["absorbed"]) as log:
        total = fs.sum(ones, accumulate=fs.Sequential(fmt), format="fp64")
    rows.append(
        (fmt.name, f"{fmt.precision}", f"{total:g}", f"{int(log.first['absorbed'])}", f"{log['sum.sum'].absorbed}")
    )
table(("accumulator", "bits of precision p", "stops at", "first absorbed, k", "absorbed in all"), rows)

# %% [markdown]
# The sum stops at 2^p. From there on the gap is 2, so adding 1 gives a [tie](../docs/glossary.md#ties), and the even
# neighbour is the present sum.
#
# In FP32 the same happens at 2^24. Three numbers are enough to make a sum depend on its order:

# %%
tiny = np.float32(2**-24)
one_first = fs.sum(np.float32([1, tiny, tiny]), accumulate="fp32")
one_last = fs.sum(np.float32([tiny, tiny, 1]), accumulate="fp32")
Markdown(
    f"For t = 2**-24 in FP32, 1 + t + t = {one_first!s}, but t + t + 1 = {one_last!s}: "
    f"neighbouring numbers (distance {fs.ulp_distance(one_first, one_last)}). Both are rounded as IEEE 754 defines."
)

# %% [markdown]
# ## Equal bits of correct kernels
#
# The next product is the gradient of a layer's weights, activations.T @ gradients, of a small network that reads digits
# ([data](../data/digits/README.md); `gradients` is the derivative of the loss by the layer's pre-activations). The
# operands are BF16 and the accumulators FP32, as in most training. There are many correct [summation
# orders](../docs/glossary.md#summation-order):

# %%
digits = datasets.digits()
a, b = fs.array(digits["activations"].T, "bf16"), fs.array(digits["gradients"], "bf16")
K = a.shape[1]
ORDERS = {
    "sequential": "fp32",
    "fused multiply-adds": "sequential(fp32, fused)",
    "blocks of 64": "blocked(fp32, 64, fp32)",
    "split-K, 4 parts": "splitk(4, fp32, fp32)",
    "in pairs": "pairwise(fp32)",
    "first half + second half": "pairwise(fp32, halving)",
    "32 lanes (a warp), then pairs": "strided(fp32, 32)",
    "compensated (Kahan)": "kahan(fp32)",
    "exact, rounded once": "exact(fp32)",
    "Ampere's Tensor Cores": "ampere",
    "Hopper's Tensor Cores": "hopper",
    "CDNA 3's matrix cores": "cdna3",
}
results = {name: fs.matmul(a, b, accumulate=accumulation) for name, accumulation in ORDERS.items()}

# %% tags=["picture"]
ax = plot.equality_matrix(
    results, title=f"One product, {len(results)} correct results: share of elements with equal bits"
)

# %% jupyter={"source_hidden": true}
shares = fs.equal_shares(results)
names = list(results)
off = shares[~np.eye(len(names), dtype=bool)]
whole = [f"{names[i]} and {names[j]}" for i, j in np.argwhere(np.triu(shares == 1, 1))]
Markdown(
    f"Of {a.shape[0]} x {b.shape[1]} sums of {K} products, two correct kernels have the same bits in "
    f"{off.min():.0%} to {off.max():.0%}. Always equal: {'; '.join(whole)}. The reason: a product of two BF16 numbers "
    "has at most 16 bits, so it is exact in FP32, fused or not."
)

# %% [markdown]
# Most kernels run on [matrix units](../docs/glossary.md#matrix-unit) such as these three. They do not add in IEEE
# steps. Their results here are floatsim's emulation; [notebook 5](05_tensor_cores.ipynb) says how it was verified.
#
# So two correct kernels need not be equal. A better measure is the distance from the exact sums:

# %%
exact = fs.matmul(a, b, accumulate="exact(fp64)").values
mass = np.abs(a.values) @ np.abs(b.values)  # the sum of |a·b|, without cancellation
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
    ("order", "description", "correctly rounded", "largest error, in ulps", "relative to the result",
     "relative to u times the sum of abs(a·b)"), rows,
)  # fmt: skip

# %% [markdown]
# In [ulps](../docs/glossary.md#ulp), or relative to the result, the error of a correct kernel can be very large: where
# positive and negative terms [cancel](../docs/glossary.md#cancellation), the result is small. Relative to the sum of
# |a·b|, the same errors are a few roundings. There is a theorem about this measure: in every order of n terms, with
# each addition rounded to nearest, the error is at most (n - 1) u times the sum of |a·b|, to first order in the [unit
# roundoff](../docs/glossary.md#unit-roundoff) u (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
# edition, SIAM 2002, section 4.2). Matrix units truncate instead of rounding to nearest; their bound is a small
# multiple.
#
# Kernels often store their results in a narrower format:

# %%
stored = {fmt: fs.equal_shares({name: fs.convert(x, fmt) for name, x in results.items()}) for fmt in ("fp16", "bf16")}
Markdown(
    "Smallest share of equal elements of two results: "
    + ", ".join(f"{fs.as_format(fmt)} {s.min():.2%}" for fmt, s in {"fp32": shares, **stored}.items())
    + ". In a narrower format, nearly all differences disappear: two sums differ only if a rounding boundary lies "
    "between them. (These gradients are small: "
    f"{fs.conversion_losses(exact, 'fp16').subnormal:.0%} of those that are not zero are subnormal in FP16, with even "
    "fewer bits.)"
)

# %% [markdown]
# ## Fingerprints of summation orders
#
# Dot products reveal the order of a kernel without its source code. (The method is
# [FPRev](https://www.usenix.org/conference/atc25), P. Xie et al., USENIX ATC 2025.) All products are one small unit,
# except +M at i and -M at j, where M is so large that it absorbs units. The result counts the units that are added
# after i and j have met. The counts of all pairs are the [fingerprint](../docs/glossary.md#order-fingerprint) of the
# order:

# %%
shown = {
    "sequential": ORDERS["sequential"],
    "in pairs": "pairwise(fp32)",
    "8 lanes, then pairs": "strided(fp32, 8)",
    "split-K, 4 parts": "splitk(4, fp32, fp32)",
    "Ampere's Tensor Cores": "ampere",
    "Hopper's Tensor Cores": "hopper",
}
figure, axes = plt.subplots(2, 3, figsize=(9.6, 6), layout="constrained")
for ax, (name, accumulation) in zip(axes.flat, shown.items(), strict=True):
    plot.order_map(fs.reveal_order(accumulation, 32), ax=ax, title=name, colorbar=False)
bar = figure.colorbar(axes[0, 0].images[0], ax=axes, label="terms added after i and j have met", shrink=0.7)

# %% [markdown]
# The squares of the last two have one shade each: 8 products on Ampere and 16 on Hopper are added *at once*, without an
# order among them. (Ampere's [instruction](../docs/glossary.md#instruction) takes 16, and adds 8 at a time.)
#
# `fs.reveal_order` also takes a function of two vectors that returns a number, such as your own kernel. The order of
# NumPy's matrix product depends on its BLAS library. The documentation of NumPy's sum says that it
# adds in pairs, and not which pairs:


# %%
def numpy_dot(x, y):
    return np.sum(x.astype(np.float32) * y.astype(np.float32))


mine = fs.reveal_order(numpy_dot, 64)
found = [each for each in [*ORDERS.values(), "pairwise(fp32, numpy)", "strided(fp32, 8)", "blocked(fp32, 16, fp32)"]
         if np.array_equal(mine, fs.reveal_order(each, 64))]  # fmt: skip
Markdown(f"`np.sum` of FP32 products has the fingerprint of: {', '.join(f'`{each}`' for each in found)}.")

# %% [markdown]
# ## The first event along K
#
# For every element of a product, `log.first` has the first k at which an event occurred in its sum. The two
# accumulators here are too narrow: the largest number of FP16 is 65504, and BF16 has 8 bits of
# [precision](../docs/glossary.md#precision). The matrix is the layer's second moments, activations.T @ activations. On
# the left, the activations are 16 times as large, as for images with pixels from 0 to 255 (these images have 0 to 16).

# %%
act = digits["activations"]
runs = {
    ("overflow", "fp16"): (fs.array(16 * act.T, "fp16"), fs.array(16 * act, "fp16")),
    ("absorbed", "bf16"): (fs.array(act.T, "bf16"), fs.array(act, "bf16")),
}
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for ax, ((event, accumulation), (left, right)) in zip(axes, runs.items(), strict=True):
    with fs.record(events=[event]) as log:
        fs.matmul(left, right, accumulate=accumulation)
    hit = np.mean(log.first[event] >= 0)
    title = f"{event} in {fs.as_format(accumulation)}: {hit:.0%} of the elements"
    plot.first_map(log.first[event], K, ax=ax, title=title)

# %% [markdown]
# The stripes without events are activations that are zero, or small, for all images. After an
# [overflow](../docs/glossary.md#overflow), the element stays infinite or becomes [NaN](../docs/glossary.md#nan). After
# the first absorbed term, the sum loses more terms, as with the ones above. Stripes come from the *inputs*: a row of
# one operand or a column of the other. A kernel with a wrong [tile](../docs/glossary.md#tile) would show a rectangle.

# %% [markdown]
# ## A kernel differs: order or bug?
#
# The next cell has a [split-K](../docs/glossary.md#split-k) kernel in NumPy, with the order of a GPU kernel: four
# parts, each with its own sum, all in FP32. Two versions have a bug: one omits the last term of every part, and one
# keeps the partial sums in BF16.


# %%
def part(x, y, ks):
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for k in ks:
        total += x[:, k, None] * y[k]
    return total


def split_k(x, y, parts=4, omit=0, partials="fp32"):
    x, y = x.values.astype(np.float32), y.values.astype(np.float32)
    n = -(-x.shape[1] // parts)
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    for p in range(parts):
        total += fs.quantize(part(x, y, range(p * n, min((p + 1) * n, x.shape[1]) - omit)), partials)
    return total


kernels = {
    "correct": split_k,
    "omits the last k of each part": lambda x, y: split_k(x, y, omit=1),
    "partial sums in BF16": lambda x, y: split_k(x, y, partials="bf16"),
}

# %% [markdown]
# Four tests of them:
#
# - **A tolerance**, `np.allclose(ours, reference, rtol=1e-2, atol=1e-2)`. Such tolerances are often increased until the
#   correct kernel passes.
# - **Integer inputs.** If every partial sum, in every order, is an integer that the accumulator has (below 2^24 in
#   FP32), then *every* correct kernel returns the same bits, split or not, fused or not, with or without atomics. Every
#   difference is a bug. The integers should use many bits, because narrow partial sums can pass with few.
# - **The same order.** If the kernel's order is known (or found with `reveal_order`), a description reproduces its
#   results bit by bit on real data: `fs.hardware.compare(a, b, accumulate="splitk(4, fp32, fp32)", against=ours)`.
# - **The error bound.** If the order is not known, the theorem above helps: an error of more than (K - 1) u times the
#   sum of |a·b| is a bug.

# %%
rng = np.random.default_rng(4)
whole = [fs.array(rng.integers(-127, 128, shape), "bf16") for shape in (a.shape, b.shape)]
most = np.max(np.abs(whole[0].values) @ np.abs(whole[1].values))
assert most < 2**24  # so all partial sums are exact in FP32
reference = results["sequential"].values
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
    ("kernel", "bits equal to `fp32`", "`allclose`, 1e-2", "integers", "compared with `splitk(4, fp32, fp32)`",
     f"within K - 1 = {K - 1} roundings"), rows,
)  # fmt: skip

# %% [markdown]
# The share of equal bits does not separate the kernels: the correct one differs from the plain sum nearly as often as a
# wrong one. All pass the tolerance, because these gradients are smaller than its `atol`. The other three tests find the
# bugs, and the second one needs only integer arithmetic as its reference.
#
# A description cannot reproduce an order that changes from run to run, such as with `atomicAdd`: see exercise 2.
#
# The controls below change the length of the sums and the cancellation (`mean` 0: normally distributed factors of both
# signs; a larger mean: more terms of one sign). The picture shows the share of equal results.


# %%
def two_kernels(k=256, parts=4, mean=0.0, stored="fp32"):
    rng = np.random.default_rng(0)
    x = fs.array(rng.normal(mean, 1, (48, k)), "bf16")
    y = fs.array(rng.normal(mean, 1, (k, 48)), "bf16")
    ways = ("fp32", f"splitk({parts}, fp32, fp32)", "pairwise(fp32)", "exact(fp32)", "hopper")
    results = {accumulation: fs.convert(fs.matmul(x, y, accumulate=accumulation), stored) for accumulation in ways}
    plot.equality_matrix(results, title=f"K = {k}, stored in {fs.as_format(stored)}")


plot.explore(
    two_kernels, k=[256, 16, 64, 1024, 4096], parts=[4, 2, 8, 16], mean=[0.0, 0.5, 2.0], stored=["fp32", "bf16", "fp16"]
)

# %% [markdown]
# ## What to remember
#
# - A sum has no bits of its own: the order and the accumulator decide them.
# - A sum in order stops when the next term is below half of the last bit. Trees, blocks and compensation go on.
# - Two correct kernels agree in most bits, not in all. Compare a kernel with its own order, or with an error bound.
#
# Next: [5. What does a Tensor Core really add up?](05_tensor_cores.ipynb)

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Where does a sum of ones stop in a format with 5 bits of precision? And a sum of threes? Predict it,
# then verify it with `fs.FloatFormat.ieee(8, 4)`.
#
# <details>
# <summary>Solution</summary>
#
# Ones stop at 2^p. Threes stop where the gap is 8, because 3 is less than half of it. Where the gap is 4, 3 is rounded
# up to 4, and the sum grows too fast.
#
# ```python
# >>> narrow = fs.FloatFormat.ieee(8, 4)
# >>> [float(fs.sum(np.full(100, x, np.float32), accumulate=fs.Sequential(narrow), format="fp64")) for x in (1, 3)]
# [32.0, 128.0]
# >>> print(fs.testing.check_answers({1: [32, 128]}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>
#
# **Exercise 2.** A kernel adds eight partial sums with `atomicAdd`, in the order in which its blocks finish. Model it:
# permute the eight blocks of K, twenty times. How many elements have the same bits in all runs? And after the result is
# stored in BF16?
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
# >>> print(fs.testing.check_answers({2: 1}, DIGESTS))
# exercise 2: correct
# ```
#
# These are the shares for two runs, for all twenty, and for all twenty in BF16. Test such a kernel on integers, where
# all runs must agree, or by the size of its error. Do not compare one run with another.
#
# </details>
#
# **Exercise 3.** What is the order of this kernel? Find it without reading the source: find a description that returns
# the same bits.
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
# `plot.order_map(fs.reveal_order(mystery, 16))` shows stripes at every fourth term: four lanes. Lanes 0 and 2 meet
# first, so the outer order adds the first half to the second half:
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
# strength: these inputs tell strided(fp32, 4, pairwise(fp32, halving)) from all 23 other descriptions tried
# >>> print(fs.testing.check_answers({3: [-1, 0, 8, 0, 14, 0, 8, 0, 13, 0, 8, 0, 12, 0, 8, 0]}, DIGESTS))
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
# - Exercise 2: the share of elements of the BF16 result that are equal in all runs, 0 to 1.
# - Exercise 3: `fs.reveal_order(guess, 16)[0].tolist()` for your description.

# %%
DIGESTS = {1: "a81b28a87f", 2: "6b86b273ff", 3: "1b6945942c"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))
