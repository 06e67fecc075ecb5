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
# # 6. A kernel differs in one percent of its results: where is the bug?
#
# A [kernel](../docs/glossary.md#kernel) passes its test, and yet a few of its results have other bits than expected.
# This notebook takes such a kernel from "some elements differ" to the line with the bug:
#
# 1. [A tolerance accepts it](#A-tolerance-accepts-it)
# 2. [The place of the differences](#The-place-of-the-differences)
# 3. [The sum behind them](#The-sum-behind-them)
# 4. [The line, and the proof](#The-line,-and-the-proof)
# 5. [Another bug: one wrong product](#Another-bug:-one-wrong-product)
# 6. [The strength of a test](#The-strength-of-a-test)
#
# The kernels are written in NumPy here, so that every line can be read. The functions do the same with the results of a
# GPU. The page [Cross-check](../docs/cross-check.md) has all of them. No GPU is needed.

# %%
try:
    import ml_dtypes
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None

bf16 = ml_dtypes.bfloat16

# %% [markdown]
# ## A tolerance accepts it
#
# The kernel multiplies BF16 matrices. It adds in FP32, one product after the other, and rounds each result once to
# BF16: this is what its documentation says. The columns are computed in [tiles](../docs/glossary.md#tile) of 32. The
# last tile may be incomplete, and a second function computes it.


# %%
def in_order(a, b, start, stop):
    """The sum of the products start to stop - 1, in FP32."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(start, stop):
            total += a[:, k, None].astype(np.float32) * b[k].astype(np.float32)
    return total


def whole_tiles(a, b):
    return in_order(a, b, 0, a.shape[1]).astype(bf16)


def last_tile(a, b):
    out = np.zeros((len(a), b.shape[1]), bf16)
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], 64):
            out = (out.astype(np.float32) + in_order(a, b, start, start + 64)).astype(bf16)
    return out


def kernel(a, b, last=last_tile):
    whole = b.shape[1] // 32 * 32
    return np.concatenate([whole_tiles(a, b[:, :whole]), last(a, b[:, whole:])], axis=1)


rng = np.random.default_rng(0)
a = rng.standard_normal((96, 256)).astype(bf16)
b = rng.standard_normal((256, 165)).astype(bf16)
out = kernel(a, b)

# %% [markdown]
# A frequent test compares the result with an exact one. DeepGEMM's measure must be below 0.001. It is far below, and
# hardly larger than that of a correct result:

# %%
exact = a.astype(np.float64) @ b.astype(np.float64)
correct = fs.matmul(a, b, accumulate="fp32", format="bf16")
measure, of_correct = (fs.testing.calc_diff(x, exact) for x in (out, correct))
Markdown(f"`calc_diff` of the kernel: **{measure:.2e}**. Of the correct result: **{of_correct:.2e}**.")

# %% [markdown]
# ## The place of the differences
#
# `fs.testing.compare_product` computes the product as described, and compares the bits. `fs.testing.assert_product`
# does the same in a test and fails.

# %%
report = fs.testing.compare_product(out, a, b, accumulate="fp32", format="bf16")
print(report)

# %% [markdown]
# The differences are not spread over the result. The report names the columns, and the map shows them:

# %% tags=["picture"]
ax = report.plot()

# %% [markdown]
# ## The sum behind them
#
# So the last tile adds in another way. In which one? `fs.identify` calls a kernel on inputs of its own choice and finds
# the [description](../docs/sums.md) that has the same bits. Here it is given this tile only:

# %%
first = b.shape[1] // 32 * 32


def of_the_last_tile(a, b):
    return kernel(a, np.concatenate([np.zeros((len(b), 32), bf16), np.asarray(b, bf16)], axis=1))[:, 32:]


found = fs.identify(of_the_last_tile, a, b[:, first:], other_k=False)
print(found)

# %% [markdown]
# The name says what to look for. K is split in parts, `fp32` adds the products of each part, and after each part the
# running sum is stored in BF16 (`through=bf16`). `fs.identify` found the [summation
# tree](../docs/glossary.md#summation-tree), in which the [terms](../docs/glossary.md#term) of a part meet first, and
# compared the bits of thousands of elements.
#
# ## The line, and the proof
#
# There is one line that stores a sum in BF16 and reads it again:
#
# ```python
# out = (out.astype(np.float32) + in_order(a, b, start, start + 64)).astype(bf16)
# ```
#
# It adds into the output instead of an [accumulator](../docs/glossary.md#accumulator). The repaired kernel rounds once,
# at the end, as the other tiles do:


# %%
def repaired(a, b):
    return kernel(a, b, last=whole_tiles)


report = fs.testing.assert_product(repaired(a, b), a, b, accumulate="fp32", format="bf16")
print(report)

# %% [markdown]
# All bits are equal. The report adds which other sums these inputs would accept as well. Products that
# [cancel](../docs/glossary.md#cancellation) exclude more of them:

# %%
x, y = fs.testing.hard_inputs((96, 256, 165), "bf16", "cancelling", result="bf16")
report = fs.testing.assert_product(repaired(x, y), x, y, accumulate="fp32", format="bf16")
print(report)

# %% [markdown]
# ## Another bug: one wrong product
#
# This kernel reads one row of b from the wrong address. The order of the sums is right, so the places of the
# differences say nothing: nearly all elements differ.


# %%
def swizzled(a, b):
    rows = np.arange(len(b))
    rows[200] ^= 4
    return repaired(a, np.asarray(b)[rows])


report = fs.testing.compare_product(swizzled(a, b), a, b, accumulate="fp32", format="bf16")
Markdown(f"**{report.mismatches}** of {out.size} elements differ.")

# %% [markdown]
# `fs.testing.check_each_k` asks for one product at a time, and needs no order at all:

# %%
print(fs.testing.check_each_k(swizzled, (96, 256, 64), "bf16"))

# %% [markdown]
# ## The strength of a test
#
# Which bugs does a test catch? `fs.testing.strength` changes a correct result as bugs do, and tries the test on each:

# %%
checks = {
    "`calc_diff` below 0.001": (lambda x, y: fs.testing.calc_diff(x, y) < 0.001, {"reference": "exact"}),
    "`allclose`, 1.6 %": (lambda x, y: np.allclose(x, y, rtol=1.6e-2, atol=1e-5), {}),
    "equal bits": (np.array_equal, {}),
}
rows = []
for name, (check, options) in checks.items():
    strength = fs.testing.strength(check, a, b[:, :64], format="bf16", **options)
    tried = len(strength.caught) + len(strength.missed)
    rows.append(f"| {name} | {len(strength.caught)} of {tried} | {'; '.join(strength.missed) or 'none'} |")
Markdown("\n".join(["| test | caught | missed |", "| --- | --- | --- |", *rows]))

# %% [markdown]
# A tolerance is right where the order of the sums is unknown. Where it is known, equal bits are the stronger test, and
# they need no tuning.
#
# Next: [7. Which layer of my PyTorch model fails in FP8?](07_pytorch.ipynb)
#
# ## Exercises
#
# **Exercise 1.** What does `fs.identify` say of NumPy's own matrix product in float16?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> halves = [x.astype(np.float16) for x in (a[:16, :100], b[:100, :16])]
# >>> fs.identify(np.matmul, *halves).names[0]
# 'fp32'
# >>> print(fs.testing.check_answers({1: "fp32"}, DIGESTS))
# exercise 1: correct
# ```
#
# NumPy adds float16 products in FP32, in order, and rounds once. Matrix
# [instructions](../docs/glossary.md#instruction) that carry out one [fused
# multiply-add](../docs/glossary.md#fused-multiply-add) for each k have the same bits, and are named as well.
#
# </details>
#
# **Exercise 2.** Which elements of a result do 16 wrong rows leave behind? Set 16 rows of a correct result to zero, and
# read the places and the explanation of `fs.testing.compare_arrays`.
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> broken = correct.copy()
# >>> broken[32:48] = 0
# >>> report = fs.testing.compare_arrays(broken, correct)
# >>> [str(place) for place in report.places]
# ['rows 32 to 47: 2640 of its 2640 elements']
# >>> report.explanation
# 'actual is 0 there: these elements were not written, or no product was added'
# >>> print(fs.testing.check_answers({2: 2640}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>
#
# **Exercise 3.** A test draws small integers as inputs. Every order of the sums returns equal bits for them. What is
# such a test good for, and what does it miss?
#
# <details>
# <summary>Solution</summary>
#
# ```python
# >>> small = fs.testing.hard_inputs((32, 64, 32), "bf16", "integers")
# >>> report = fs.testing.assert_product(fs.matmul(*small, accumulate="pairwise(fp32)"), *small, accumulate="fp32")
# >>> "pairwise(fp32)" in report.strength.same
# True
# >>> print(fs.testing.check_answers({3: "pairwise(fp32)"}, DIGESTS))
# exercise 3: correct
# ```
#
# It finds faults of addresses and of tiles without knowledge of the order. It misses everything that is a rounding: the
# width of the accumulator, the order, and a second rounding.
#
# </details>

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: the first name, as a text.
# - Exercise 2: the number of elements that differ.
# - Exercise 3: an order other than `fp32` that this test accepts, a tree of neighbours, as a text.

# %%
DIGESTS = {1: "078f158288", 2: "6c6ece85b5", 3: "83f6d8498e"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))
