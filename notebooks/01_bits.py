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
# A computer has no numbers. It has switches, on or off, and an agreement on what a row of switches means. This page
# takes one such agreement apart, shows it for five formats that today's machines use, and answers the question above.
# You need no knowledge of floating point; arithmetic from school will do.

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
# ## It starts with a surprise
#
# Python's own numbers are FP64, "double precision". Ask them:

# %%
print("0.1 + 0.2        =", 0.1 + 0.2)
print("0.1 + 0.2 == 0.3 :", 0.1 + 0.2 == 0.3)
print("what 0.1 is      =", Decimal.from_float(0.1))  # every digit of the number that is stored

# %% [markdown]
# So `0.1` is not one tenth. It is a number close by, and nobody has made a mistake. To see why it must be so, look at
# the switches.
#
# ## One number, taken apart
#
# You know scientific notation: the distance to the sun is 1.5 × 10⁸ km. A sign, a *significand* between 1 and 10, and
# a power of ten. A floating-point number is the same with two in place of ten: **sign × significand × 2^exponent**,
# with a significand between 1 and 2. Three fields of bits hold the three parts. This is six and a half in FP16,
# sixteen bits:

# %%
ax = plot.anatomy(6.5, "fp16")

# %% [markdown]
# Read it from left to right.
#
# - **Sign**, one bit: 0 is plus, 1 is minus.
# - **Exponent**, five bits: a whole number in binary. Exponents may be negative, so a fixed number, the *bias*, is
#   subtracted.
# - **Significand**, ten bits: halves, quarters, eighths... A significand between 1 and 2 always starts with 1, so
#   that 1 is not stored: eleven bits for the price of ten.
#
# What changes if one switch is flipped depends on where it stands. Here is the same number with each of its bits
# flipped in turn:

# %%
code = int(fs.encode(6.5, "fp16"))
print("bit flipped    value")
for place in reversed(range(16)):
    field = "sign" if place == 15 else "exponent" if place >= 10 else "significand"
    print(f"{field:12} {fs.decode(code ^ 1 << place, 'fp16'):<12g}")

# %% [markdown]
# A flipped exponent bit moves the point by many places; a flipped significand bit hardly shows.
#
# ## Why one tenth cannot be written
#
# The significand counts halves, quarters, eighths: sums of fractions whose denominators are powers of two. One half,
# three quarters, 6.5: all of these end. One tenth does not, as one third does not end in decimals. This is the
# division, digit by digit, done with exact fractions:


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
# The last two repeat a few digits for ever. A format keeps as many as it has room for, and rounds there.
# `explain_rounding` shows the steps:

# %%
print(fs.explain_rounding("0.1", "bf16"))

# %% [markdown]
# ## One tenth in five formats
#
# More bits do not make it right, only closer. Dark squares are the exponent, pale ones the significand:

# %% tags=["picture"]
ax = plot.bit_strip("0.1")
_ = ax.set_title("One tenth is in none of them: sign, exponent, significand, and (rounded for print) what they make")

# %%
print("format   stored value                     off by, relative to 1/10")
for fmt in plot.FIVE:
    stored = Fraction(float(fs.decode(fs.encode("0.1", fmt), fmt)))
    print(f"{fmt.name:8} {float(stored)!s:32} {float(stored / Fraction(1, 10) - 1):+.2e}")

# %% [markdown]
# FP32 is "single precision", what most programs compute in; FP16 and BF16 (the "brain float") halve it; E4M3 and E5M2
# are the two FP8 formats of the Open Compute Project (OCP), made for neural networks. What each spends its bits on:

# %%
print("format  bits = sign + exponent + significand   largest number   smallest normal   decimal digits")
for fmt in plot.FIVE:
    fields = f"{fmt.bits:4} = {1:4} + {fmt.exponent_bits:8} + {fmt.trailing_bits:11}"
    print(f"{fmt.name:6} {fields}   {fmt.max:14.6g}   {fmt.smallest_normal:15.3g}   {log10(2**fmt.precision):14.1f}")

# %% [markdown]
# Look at the pairs. FP16 and BF16 have the same number of bits and spend them differently: FP16 on the significand
# (closer), BF16 on the exponent (a larger range, nearly that of FP32). E4M3 and E5M2, with eight bits, do the same on
# a smaller scale; their names say how many bits the exponent and the stored significand (the "mantissa") have.
#
# Try other numbers. Which ones are the same in all rows?

# %%
plot.explore(plot.bit_strip, value=["0.1", "0.5", "0.2", "0.3", "3.14159", "1", "100", "65504", "448", "1e-6"])

# %% [markdown]
# ## All numbers of a format on one page
#
# Eight bits make 256 codes, few enough to look at each. The row is the first four bits, the column the last four,
# both written as one hexadecimal digit. E4M3 of the OCP standard:

# %%
ax = plot.code_grid("e4m3")

# %% [markdown]
# Things to find in it:
#
# - Two tints take turns: each stripe is one exponent. In the next stripe every number is **twice** as large. Within a
#   stripe numbers are evenly spaced.
# - The lower half is the upper half with a minus sign, zero included: there is a -0.
# - **Hatched** are the *subnormal* numbers, whose exponent field is 0. They have no hidden 1, go down to zero in even
#   steps, and are the subject of [notebook 3](03_ends.ipynb).
# - **Black** is what is no number. E4M3 gives up only two codes for NaN ("not a number"), and has no infinity.
#
# E5M2 has one more exponent bit, one significand bit less, and keeps the whole last exponent for infinity and NaN as
# IEEE 754, the standard for floating point, has it:

# %%
ax = plot.code_grid("e5m2")

# %% [markdown]
# ## The number line
#
# Where do the numbers stand? One tick is one number:

# %%
ax = plot.number_line(["e2m1", "e3m2", "e5m2", "e4m3", "fp16"], limits=(0, 8))

# %% [markdown]
# Crowded near zero, and sparser at every power of two: between 4 and 8 the gaps are twice as wide as between 2 and 4.
# This is what "floating" means: the point moves, and the *relative* gap stays about the same. Drawn as size against
# gap, each format is a staircase, one step up for each power of two. Flat beginnings are the subnormal numbers:

# %%
ax = plot.spacing(limits=(-20, 20))

# %% [markdown]
# The lower the line, the closer the numbers; FP16 lies below BF16 wherever both have normal numbers. But it ends
# earlier, left and right.
#
# Now the surprise can be seen. Between which two numbers does one tenth lie?

# %%
ax = plot.number_line(["bf16", "e4m3", "e5m2"], limits=(0.092, 0.112), mark="0.1")

# %% [markdown]
# The dots are the nearest numbers, and are what is stored. None stands on the dashed line, in any format, ever.
#
# ## And 0.1 + 0.2?
#
# Three roundings happen: of one tenth, of two tenths, and of their sum. Compared is the result with three tenths,
# rounded once. Sometimes the errors cancel, sometimes they do not:

# %%
print("format   0.1 + 0.2              0.3                    equal?")
for fmt in ["fp64", *plot.FIVE]:
    a, b, c = (fs.array([text], fmt) for text in ("0.1", "0.2", "0.3"))
    total = fs.add(a, b)
    print(f"{fs.as_format(fmt).name:8} {total.values[0]!s:22} {c.values[0]!s:22} {bool(fs.equal(total, c)[0])}")

# %% [markdown]
# Where the answer is no, the two sides are neighbours or nearly so; elsewhere they happen to agree. It was no flaw of
# Python, then. It is why one compares with the distance in mind, which `fs.ulp_distance` counts in numbers:

# %%
total = fs.add(fs.array(["0.1"], "fp64"), fs.array(["0.2"], "fp64"))
print("numbers from 0.1 + 0.2 to 0.3 in FP64:", fs.ulp_distance(total, fs.array(["0.3"], "fp64"))[0])

# %% [markdown]
# ## What to remember
#
# - Bits are sign, exponent, significand; a format says how many of each.
# - Only fractions whose denominator is a power of two can be written. The rest is rounded to a neighbour.
# - Gaps double at each power of two: significand bits buy precision, exponent bits buy range.
# - A name is not enough: there are four formats called E4M3, see [Which E4M3?](../docs/formats.md#which-e4m3)
#
# Next: [2. Who rounds, and who is biased?](02_rounding.ipynb)

# %% [markdown]
# ## Exercises
#
# Try them in new cells here. Solutions unfold; they continue from this page's imports.
#
# **Exercise 1.** Which of 0.5, 0.2, 0.75, 1/3 and 0.1 can FP16 hold exactly? Find a rule that needs no computer, then
# let the computer check it. (`fs.encode` takes a `Fraction`, and rounds it once.)
#
# **Exercise 2.** Every format has a first whole number that it cannot hold. Find it for E5M2, E4M3, BF16, FP16 and
# FP32. What does it have to do with the number of significand bits?
#
# **Exercise 3.** How many numbers has E4M3 between 1 and 2, between 64 and 128, and between 256 and its largest
# number? Why is the last count different?

# %% [markdown]
# <details>
# <summary>Solution 1</summary>
#
# In lowest terms the denominator must be a power of two, small enough for the format.
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
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 2</summary>
#
# Round all whole numbers, and see which is the first that does not come back. With p significant bits (the hidden one
# included) all whole numbers up to 2^p are there; the next one would need one bit more.
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
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>Solution 3</summary>
#
# Each full power of two holds as many numbers as the significand's bits can count. The last one is cut short: its
# highest code is NaN, so the largest number is one step lower.
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
# ```
#
# </details>
