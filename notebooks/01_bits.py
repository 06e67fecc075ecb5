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
# # 1. What do the bits mean, and why is 0.1 not 0.1?
#
# A computer stores bits, each 0 or 1, and a *format* defines which number a row of bits stands for. This notebook
# explains [floating-point formats](../docs/glossary.md#floating-point-format), shows five that machines use today, and
# answers the question above. It needs no knowledge of floating point. Each new word is explained where it first
# appears, and again in the [glossary](../docs/glossary.md).

# %%
try:
    from decimal import Decimal
    from fractions import Fraction
    from math import log10

    import floatsim as fs
    from floatsim import plot
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None

# %% [markdown]
# ## A sum that is not equal
#
# Python's numbers are FP64, also called "double precision":

# %%
print("0.1 + 0.2        =", 0.1 + 0.2)
print("0.1 + 0.2 == 0.3 :", 0.1 + 0.2 == 0.3)
print("0.1 is stored as =", Decimal.from_float(0.1))  # every digit of the stored number

# %% [markdown]
# So `0.1` is not one tenth. It is a number close to it, and this is not an error. The bits show why.
#
# ## The fields of one number
#
# In scientific notation, the distance to the sun is 1.5 × 10⁸ km: a sign, a
# *[significand](../docs/glossary.md#significand)* between 1 and 10, and a power of ten. A floating-point number has the
# same parts, with two instead of ten: **sign × significand × 2^exponent**, with a significand between 1 and 2. Three
# fields of bits hold the three parts. This is 6.5 in FP16, a format of 16 bits:

# %%
ax = plot.anatomy(6.5, "fp16")

# %% [markdown]
# From left to right:
#
# - **Sign**, one bit: 0 is plus, 1 is minus.
# - **Exponent**, five bits: a whole number in binary. Exponents can be negative, so a fixed number, the
#   [bias](../docs/glossary.md#bias), is subtracted.
# - **Significand**, ten bits: halves, quarters, eighths and so on. A significand between 1 and 2 always starts with 1,
#   so this 1 is not stored. The significand has eleven bits, and ten are stored.
#
# The effect of flipping one bit depends on its place. This is the same number with each of its bits flipped in turn:

# %%
code = int(fs.encode(6.5, "fp16"))
print("bit flipped    value")
for place in reversed(range(16)):
    field = "sign" if place == 15 else "exponent" if place >= 10 else "significand"
    print(f"{field:12} {fs.decode(code ^ 1 << place, 'fp16'):<12g}")

# %% [markdown]
# A flipped exponent bit multiplies or divides the number by a power of two: by 2 for the last bit of the field, by 2^16
# for its first bit. (A field of only ones or only zeros is special, see below: in FP16, this flip turns 1 into
# [infinity](../docs/glossary.md#infinity).) A flipped significand bit changes the number by half or less.
#
# ## Why one tenth cannot be written
#
# A significand is a sum of halves, quarters, eighths and so on: fractions whose denominators are powers of two. The
# binary digits of one half, three quarters and 6.5 end. Those of one tenth do not end, as the decimal digits of one
# third do not. This is the division, digit by digit, with exact fractions:


# %%
def binary_digits(x, count):
    """The first digits of a fraction between 0 and 1, in base two."""
    digits = ""
    for _ in range(count):
        x *= 2
        digits += str(int(x))
        x -= int(x)
    return digits


for numerator, denominator in [(1, 2), (3, 4), (1, 10), (1, 3)]:
    print(f"{numerator}/{denominator:<3} = 0.{binary_digits(Fraction(numerator, denominator), 48)}...")

# %% [markdown]
# The last two repeat the same digits for ever. A format keeps a fixed number of digits, and *rounds*: it takes a
# neighbouring number that it has. `explain_rounding` shows the steps for BF16. Its output uses these words:
#
# - *p*, the [precision](../docs/glossary.md#precision): the number of bits of the significand, the leading 1 included.
# - [*guard bit*](../docs/glossary.md#guard-bit): the first bit that is not kept. It shows whether the rest is at least
#   half of the gap to the next number.
# - [*sticky*](../docs/glossary.md#sticky-bit): 1 if any later bit is 1. It distinguishes a rest of exactly one half
#   from a larger one.
# - [*ties to even*](../docs/glossary.md#ties): the rule for a rest of exactly one half. [Notebook 2](02_rounding.ipynb)
#   compares such rules.
# - [*flags*](../docs/glossary.md#exception-flag): signals of an operation; *inexact* means that the result was rounded.

# %%
print(fs.explain_rounding("0.1", "bf16"))

# %% [markdown]
# ## One tenth in five formats
#
# More bits give a closer number, but never one tenth. Dark cells are the exponent, pale cells the significand:

# %% tags=["picture"]
ax = plot.bit_strip("0.1")
_ = ax.set_title("0.1 in five formats: sign, exponent and significand bits, and the value to a few digits")

# %%
FORMATS = [fs.as_format(name) for name in plot.DEFAULT_FORMATS]
print("format   stored value                     relative error")
for fmt in FORMATS:
    stored = Fraction(float(fs.decode(fs.encode("0.1", fmt), fmt)))
    print(f"{fmt.name:8} {float(stored)!s:32} {float(stored / Fraction(1, 10) - 1):+.2e}")

# %% [markdown]
# FP32 is "single precision", the default of PyTorch and of other libraries for neural networks. Python and NumPy
# compute in "double precision", FP64. FP16 and BF16 ("brain float") have half as many bits as FP32. E4M3 and E5M2 are
# the two FP8 formats of the Open Compute Project (OCP), made for neural networks. The fields of each (a *normal* number
# has a significand between 1 and 2; smaller numbers follow below):

# %%
print("format  bits = sign + exponent + significand   largest number   smallest normal   decimal digits")
for fmt in FORMATS:
    fields = f"{fmt.bits:4} = {1:4} + {fmt.exponent_bits:8} + {fmt.trailing_bits:11}"
    print(f"{fmt.name:6} {fields}   {fmt.max:14.6g}   {fmt.smallest_normal:15.3g}   {log10(2**fmt.precision):14.1f}")

# %% [markdown]
# FP16 and BF16 have the same number of bits. FP16 has more significand bits and is more precise. BF16 has more exponent
# bits and a larger range, nearly that of FP32. E4M3 and E5M2 differ in the same way with eight bits. Their names give
# the number of bits of the exponent and of the stored significand (the "mantissa").
#
# Try other numbers. Which of them are the same in all rows?

# %%
plot.explore(plot.bit_strip, value=["0.2", "0.5", "0.1", "0.3", "3.14159", "1", "100", "65504", "448", "1e-6"])

# %% [markdown]
# ## All numbers of a format on one page
#
# Eight bits have 256 [codes](../docs/glossary.md#code), few enough to show them all. The row is the first four bits,
# the column the last four, each as one hexadecimal digit. This is E4M3 of the OCP standard:

# %%
ax = plot.code_grid("e4m3")

# %% [markdown]
# What it shows:
#
# - Two tints alternate: each stripe is one exponent. The numbers of one stripe are evenly spaced. From one plain stripe
#   to the next, every number **doubles**.
# - The lower half is the upper half with a minus sign, zero included: there is a -0.
# - **Hatched**: the [*subnormal*](../docs/glossary.md#subnormal) numbers, whose exponent field is 0. They have no
#   hidden 1, so they continue to zero with the gaps of the next stripe, and doubling them does not give that stripe.
#   [Notebook 3](03_ends.ipynb) is about them.
# - **Black**: codes that are not numbers. E4M3 has only two codes for [NaN](../docs/glossary.md#nan) ("not a number"),
#   and no [infinity](../docs/glossary.md#infinity).
#
# E5M2 has one more exponent bit and one significand bit less. It uses the whole last exponent for infinity and NaN, as
# IEEE 754, the standard for floating point, defines:

# %%
ax = plot.code_grid("e5m2")

# %% [markdown]
# ## The number line
#
# Each tick is one number. A format with very many numbers is a band:

# %%
ax = plot.number_line(["e2m1", "e3m2", "e5m2", "e4m3", "fp16"], limits=(0, 8))

# %% [markdown]
# Numbers are dense near zero, and their gaps double at every power of two: between 4 and 8 they are twice as wide as
# between 2 and 4. The *relative* gap stays about the same; this is the meaning of "floating". The next picture shows
# the gap against the size of the numbers. Each format is a staircase with one step per power of two. The flat parts at
# the left are the subnormal numbers:

# %%
ax = plot.spacing(limits=(-28, 20))

# %% [markdown]
# A lower line means smaller gaps. FP16 is below BF16 wherever both have [normal
# numbers](../docs/glossary.md#normal-number). But its range is smaller: its line ends near 2^16 at the right and 2^-24
# at the left. The lines of BF16 and FP32 continue far beyond the picture.
#
# One tenth lies between two numbers of each format:

# %%
ax = plot.number_line(["bf16", "e4m3", "e5m2"], limits=(0.092, 0.112), mark="0.1")

# %% [markdown]
# The dots are the nearest numbers, which are stored. No binary format has a number on the dashed line.
#
# ## And 0.1 + 0.2?
#
# There are three roundings: of one tenth, of two tenths, and of their sum. The result is compared with three tenths,
# which is rounded once. In some formats the errors cancel:

# %%
print("format   0.1 + 0.2              0.3                    equal?")
for fmt in [fs.FP64, *FORMATS]:
    a, b, c = (fs.array([text], fmt) for text in ("0.1", "0.2", "0.3"))
    total = fs.add(a, b)
    print(f"{fmt.name:8} {total.values[0]!s:22} {c.values[0]!s:22} {bool(fs.equal(total, c)[0])}")

# %% [markdown]
# In FP16, 0.1 is stored as 0.0999755859375, and 0.2 as 0.199951171875. Their exact sum 0.2999267578125 is the midpoint
# of the neighbours 0.2998046875 and 0.300048828125. Ties to even gives the former, but 0.3 is stored as the latter.
# `print(fs.explain_add("0.1", "0.2", "fp16"))` shows each step.
#
# Where the two sides differ, they are neighbours or nearly so. Python is correct: it rounds as IEEE 754 defines. So
# results are compared by their distance, not by equality. `fs.ulp_distance` counts the steps from one number to the
# next:

# %%
total = fs.add(fs.array(["0.1"], "fp64"), fs.array(["0.2"], "fp64"))
print("steps from 0.1 + 0.2 to 0.3 in FP64:", fs.ulp_distance(total, fs.array(["0.3"], "fp64"))[0])

# %% [markdown]
# ## What to remember
#
# - A number has a sign, an exponent and a significand. The format defines the number of bits of each.
# - A format has only fractions whose denominator is a power of two. Other numbers are rounded to a neighbour.
# - Gaps double at each power of two. Significand bits give precision, exponent bits give range.
# - A name can be ambiguous: four formats are called E4M3, see [Which E4M3?](../docs/formats.md#which-e4m3)
#
# Next: [2. Which rounding modes are biased?](02_rounding.ipynb)

# %% [markdown]
# ## Exercises
#
# Try them in new cells. The solutions unfold, and use the imports of this notebook.
#
# **Exercise 1.** Which of 0.5, 0.2, 0.75, 1/3 and 0.1 are numbers of FP16? Find a rule that needs no computer, then
# verify it with a program. (`fs.encode` takes a `Fraction`, and rounds it once.)
#
# **Exercise 2.** For every format there is a smallest positive whole number that it does not have. Find it for E5M2,
# E4M3, BF16, FP16 and FP32. How does it depend on the number of significand bits?
#
# **Exercise 3.** How many numbers does E4M3 have between 1 and 2, between 64 and 128, and between 256 and its largest
# number? Why is the last count different?

# %% [markdown]
# ## Check of the answers
#
# Write your answers into the cell below, and run it. It compares them with digests, which do not show the solutions.
#
# - Exercise 1: the numbers of FP16, as a list of texts such as `["0.5", "0.2"]`, in the order of the question.
# - Exercise 2: the five whole numbers, as a list.
# - Exercise 3: the three counts, as a list.

# %%
DIGESTS = {1: "d1d0dfff6a", 2: "f5b7d9767f", 3: "87832d77ba"}
answers = {1: ..., 2: ..., 3: ...}  # replace each ... by an answer
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# In lowest terms, the denominator must be a power of two, and small enough for the format.
#
# ```python
# >>> def is_exact(x, fmt):
# ...     return Fraction(float(fs.decode(fs.encode(x, fmt), fmt))) == x
# >>> for text in ["0.5", "0.2", "0.75", "1/3", "0.1"]:
# ...     print(text, Fraction(text).denominator, is_exact(Fraction(text), "fp16"))
# 0.5 2 True
# 0.2 5 False
# 0.75 4 True
# 1/3 3 False
# 0.1 10 False
# >>> print(fs.testing.check_answers({1: ["0.5", "0.75"]}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# Round all whole numbers, and find the first one that changes. With p significant bits (the hidden one included) a
# format has all whole numbers up to 2^p. The next one needs one bit more.
#
# ```python
# >>> import numpy as np
# >>> n = np.arange(1.0, 2**24 + 3)
# >>> for fmt in ["e5m2", "e4m3", "bf16", "fp16", "fp32"]:
# ...     first = int(n[fs.quantize(n, fmt) != n][0])
# ...     p = fs.as_format(fmt).precision
# ...     print(fmt, p, first, first == 2**p + 1)
# e5m2 3 9 True
# e4m3 4 17 True
# bf16 8 257 True
# fp16 11 2049 True
# fp32 24 16777217 True
# >>> print(fs.testing.check_answers({2: [9, 17, 257, 2049, 16777217]}, DIGESTS))
# exercise 2: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# Between two powers of two, a format has 2^t numbers, where t is the number of stored significand bits. The last
# interval has one number less, because its highest code is NaN.
#
# ```python
# >>> values = fs.decode(fs.E4M3.codes(), "e4m3")
# >>> for low, high in [(1, 2), (64, 128), (256, 512)]:
# ...     print(low, high, int(((low <= values) & (values < high)).sum()))
# 1 2 8
# 64 128 8
# 256 512 7
# >>> fs.E4M3.max, 2**fs.E4M3.trailing_bits
# (448.0, 8)
# >>> print(fs.testing.check_answers({3: [8, 8, 7]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>
