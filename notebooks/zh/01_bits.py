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
# # 1. 这些位表示什么？0.1 为什么不是 0.1？
#
# 计算机存放的是位，每一位是 0 或 1；一串位代表哪个数，由*格式*规定。本 notebook 介绍[浮点格式](../../docs/zh/glossary.md#floating-point-format)，展示今天的机器使用的五种格式，并回答上面的问题。读者不需要事先了解浮点数。每个新词在第一次出现时解释，[术语表](../../docs/zh/glossary.md)中也能查到。

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

# %% tags=["language"]
_ = plot.use_language("zh")  # 图中的文字用中文

# %% [markdown]
# ## 一个不相等的和
#
# Python 的浮点数是 FP64，也叫“双精度”：

# %%
print("0.1 + 0.2        =", 0.1 + 0.2)
print("0.1 + 0.2 == 0.3 :", 0.1 + 0.2 == 0.3)
print("0.1 实际存为     =", Decimal.from_float(0.1))  # 实际存放的数的每一位数字

# %% [markdown]
# 可见 `0.1` 并不是十分之一，而是一个与它接近的数。这不是错误，看一看各个位就知道原因。
#
# ## 一个数的三个字段
#
# 用科学记数法，地球到太阳的距离是 1.5 × 10⁸ km：一个符号，一个 1 到 10 之间的*[尾数](../../docs/zh/glossary.md#significand)*，一个 10 的幂。浮点数也由这三部分组成，只是把 10 换成 2：**符号 × 尾数 × 2^指数**，尾数在 1 到 2 之间。三部分分别存放在三个字段里。下面是 FP16（一种 16 位的格式）中的 6.5：

# %%
ax = plot.anatomy(6.5, "fp16")

# %% [markdown]
# 从左到右依次是：
#
# - **符号**，一位：0 为正，1 为负。
# - **指数**，五位：一个二进制整数。指数可以是负的，所以要减去一个固定的数，称为[偏置](../../docs/zh/glossary.md#bias)。
# - **尾数**，十位：二分之一、四分之一、八分之一，依此类推。1 到 2 之间的尾数总以 1 开头，这个 1 不必存放。因此尾数有十一位，存放的是十位。
#
# 翻转一位产生多大影响，取决于这一位的位置。下面依次翻转同一个数的每一位：

# %%
code = int(fs.encode(6.5, "fp16"))
print("翻转的位      值")
for place in reversed(range(16)):
    field = "符号" if place == 15 else "指数" if place >= 10 else "尾数"
    print(f"{field:12} {fs.decode(code ^ 1 << place, 'fp16'):<12g}")

# %% [markdown]
# 翻转一个指数位，相当于把数乘以或除以 2 的一个幂：字段的末位对应 2，首位对应 2^16。（全 1 或全 0 的字段有特殊含义，见下文：在 FP16 中，翻转首位会把 1 变成[无穷](../../docs/zh/glossary.md#infinity)。）翻转一个尾数位，数的变化不超过一半。
#
# ## 十分之一为什么写不出来
#
# 尾数是二分之一、四分之一、八分之一等分数之和，它们的分母都是 2 的幂。二分之一、四分之三和 6.5 的二进制小数都是有限的；十分之一的二进制小数是无限的，就像三分之一的十进制小数一样。下面用精确的分数逐位做除法：


# %%
def binary_digits(x, count):
    """0 与 1 之间的分数的前若干位二进制数字。"""
    digits = ""
    for _ in range(count):
        x *= 2
        digits += str(int(x))
        x -= int(x)
    return digits


for numerator, denominator in [(1, 2), (3, 4), (1, 10), (1, 3)]:
    print(f"{numerator}/{denominator:<3} = 0.{binary_digits(Fraction(numerator, denominator), 48)}...")

# %% [markdown]
# 后两个数的数字循环不止。格式只能保留固定的位数，因此要*舍入*：取格式中相邻的一个数。`explain_rounding` 展示舍入到 BF16 的每一步，其中用到下面这些词：
#
# - *p*，[精度](../../docs/zh/glossary.md#precision)：尾数的位数，包括开头的 1。
# - [*guard bit*](../../docs/zh/glossary.md#guard-bit)，保护位：第一个不保留的位，表明余下的部分是否达到相邻两数间距的一半。
# - [*sticky*](../../docs/zh/glossary.md#sticky-bit)，粘滞位：再往后只要有一位是 1，它就是 1。它用来区分余下的部分恰好是一半，还是比一半大。
# - [*ties to even*](../../docs/zh/glossary.md#ties)，中点取偶：余下的部分恰好是一半时采用的规则。[Notebook 2](../02_rounding.ipynb) 比较各种规则。
# - [*flags*](../../docs/zh/glossary.md#exception-flag)，标志：一次运算发出的信号；*inexact*（不精确）表示结果经过了舍入。

# %%
print(fs.explain_rounding("0.1", "bf16"))

# %% [markdown]
# ## 五种格式中的十分之一
#
# 位数越多，得到的数越接近十分之一，但永远不会等于它。深色格子是指数，浅色格子是尾数：

# %% tags=["picture"]
ax = plot.bit_strip("0.1")
_ = ax.set_title("0.1 在五种格式中：符号位、指数位和尾数位，以及值的前几位数字")

# %%
FORMATS = [fs.as_format(name) for name in plot.DEFAULT_FORMATS]
print("格式     存放的值                         相对误差")
for fmt in FORMATS:
    stored = Fraction(float(fs.decode(fs.encode("0.1", fmt), fmt)))
    print(f"{fmt.name:8} {float(stored)!s:32} {float(stored / Fraction(1, 10) - 1):+.2e}")

# %% [markdown]
# FP32 是“单精度”，是 PyTorch 和其他神经网络库的默认格式。Python 和 NumPy 用“双精度”FP64 计算。FP16 和 BF16（“brain float”）的位数是 FP32 的一半。E4M3 和 E5M2 是开放计算项目（OCP）为神经网络制定的两种 FP8 格式。各格式的字段如下（*正规数*的尾数在 1 到 2 之间，更小的数后面再讲）：

# %%
print("格式    位数 = 符号 +     指数 +        尾数           最大数        最小正规数       十进制位数")
for fmt in FORMATS:
    fields = f"{fmt.bits:4} = {1:4} + {fmt.exponent_bits:8} + {fmt.trailing_bits:11}"
    print(f"{fmt.name:6} {fields}   {fmt.max:14.6g}   {fmt.smallest_normal:15.3g}   {log10(2**fmt.precision):14.1f}")

# %% [markdown]
# FP16 和 BF16 的位数相同。FP16 的尾数位较多，精度较高；BF16 的指数位较多，范围较大，与 FP32 几乎相同。E4M3 和 E5M2 只有八位，区别也是如此。它们的名字给出了指数（E）和存放的尾数（M，即 mantissa）的位数。
#
# 换几个数试试。哪些数在每一行都相同？

# %%
plot.explore(plot.bit_strip, value=["0.2", "0.5", "0.1", "0.3", "3.14159", "1", "100", "65504", "448", "1e-6"])

# %% [markdown]
# ## 一页上的全部数
#
# 八位有 256 个[编码](../../docs/zh/glossary.md#code)，可以全部画出来。行是前四位，列是后四位，各用一个十六进制数字表示。这是 OCP 标准的 E4M3：

# %%
ax = plot.code_grid("e4m3")

# %% [markdown]
# 从图中可以看到：
#
# - 两种深浅交替出现，每一条对应一个指数。同一条中的数间距相等。对没有斜线的各条，从一条到下一条，每个数都**加倍**。
# - 下半部分是上半部分加上负号，零也不例外：格式中有 -0。
# - **斜线**：[*次正规数*](../../docs/zh/glossary.md#subnormal)，指数字段为 0。它们没有隐含的 1，以下一条的间距一直延续到零，加倍之后得不到下一条。[Notebook 3](03_ends.ipynb) 专门讨论它们。
# - **黑色**：不代表数的编码。E4M3 只有两个编码表示 [NaN](../../docs/zh/glossary.md#nan)（非数），没有[无穷](../../docs/zh/glossary.md#infinity)。
#
# E5M2 多一个指数位，少一个尾数位。它按照浮点标准 IEEE 754 的规定，把最大的指数全部用来表示无穷和 NaN：

# %%
ax = plot.code_grid("e5m2")

# %% [markdown]
# ## 数轴
#
# 每一条短线是一个数。数特别多的格式看起来是一条带子：

# %%
ax = plot.number_line(["e2m1", "e3m2", "e5m2", "e4m3", "fp16"], limits=(0, 8))

# %% [markdown]
# 零附近的数很密，每过一个 2 的幂，间距就加倍：4 到 8 之间的间距是 2 到 4 之间的两倍。*相对*间距则大致不变，这就是“浮点”的含义。下一幅图画出间距随数的大小的变化。每种格式是一段阶梯，每过一个 2 的幂升一级，左端平的部分是次正规数：

# %%
ax = plot.spacing(limits=(-28, 20))

# %% [markdown]
# 线越低，间距越小。凡是两者都有[正规数](../../docs/zh/glossary.md#normal-number)的地方，FP16 都在 BF16 的下方。但 FP16 的范围较小：它的线右端止于 2^16 附近，左端止于 2^-24 附近，而 BF16 和 FP32 的线远远伸出图外。
#
# 在每种格式中，十分之一都落在两个数之间：

# %%
ax = plot.number_line(["bf16", "e4m3", "e5m2"], limits=(0.092, 0.112), mark="0.1")

# %% [markdown]
# 圆点是最近的数，也就是实际存放的数。没有哪种二进制格式的数落在虚线上。
#
# ## 那么 0.1 + 0.2 呢？
#
# 这里有三次舍入：十分之一、十分之二以及它们的和各一次。与之比较的十分之三只舍入一次。在有些格式中，误差恰好相互抵消：

# %%
print("格式     0.1 + 0.2              0.3                    相等？")
for fmt in [fs.FP64, *FORMATS]:
    a, b, c = (fs.array([text], fmt) for text in ("0.1", "0.2", "0.3"))
    total = fs.add(a, b)
    print(f"{fmt.name:8} {total.values[0]!s:22} {c.values[0]!s:22} {bool(fs.equal(total, c)[0])}")

# %% [markdown]
# 在 FP16 中，0.1 存为 0.0999755859375，0.2 存为 0.199951171875。它们的精确和 0.2999267578125 恰好是相邻两数 0.2998046875 与 0.300048828125 的中点。中点取偶得到前者，而 0.3 存为后者。`print(fs.explain_add("0.1", "0.2", "fp16"))` 显示每一步。
#
# 两边不同的时候，它们是相邻的数，或者相差不远。Python 没有错：它按照 IEEE 754 的规定舍入。所以应当比较结果相距多远，而不是比较是否相等。`fs.ulp_distance` 计算从一个数到另一个数要走几步：

# %%
total = fs.add(fs.array(["0.1"], "fp64"), fs.array(["0.2"], "fp64"))
print("FP64 中从 0.1 + 0.2 到 0.3 的步数：", fs.ulp_distance(total, fs.array(["0.3"], "fp64"))[0])

# %% [markdown]
# ## 要点
#
# - 一个数由符号、指数和尾数组成，各占多少位由格式规定。
# - 格式中只有分母是 2 的幂的分数。其他数舍入到相邻的数。
# - 每过一个 2 的幂，间距加倍。尾数位决定精度，指数位决定范围。
# - 名字可能有歧义：名为 E4M3 的格式有四种，见[哪一个 E4M3？](../../docs/formats.md#which-e4m3)
#
# 下一个：[2. 哪些舍入模式有偏？](../02_rounding.ipynb)（英文）

# %% [markdown]
# ## 练习
#
# 请在新的单元格里试做。答案可以展开，其中用到本 notebook 导入的模块。
#
# **练习 1.** 0.5、0.2、0.75、1/3 和 0.1 当中，哪些是 FP16 的数？先找出一条不用计算机就能判断的规则，再用程序验证。（`fs.encode` 接受 `Fraction`，只舍入一次。）
#
# **练习 2.** 每种格式都有一个它没有的最小正整数。求 E5M2、E4M3、BF16、FP16 和 FP32 的这个数。它与尾数的位数有什么关系？
#
# **练习 3.** E4M3 在 1 到 2 之间、64 到 128 之间、256 到最大数之间各有多少个数？最后一个区间为什么不同？

# %% [markdown]
# ## 检查答案
#
# 把答案写进下面的单元格并运行。它把答案与摘要比较，从摘要看不出答案。
#
# - 练习 1：FP16 的数，写成文本的列表，如 `["0.5", "0.2"]`，顺序与题目相同。
# - 练习 2：五个整数的列表。
# - 练习 3：三个个数的列表。

# %%
DIGESTS = {1: "d1d0dfff6a", 2: "f5b7d9767f", 3: "87832d77ba"}
answers = {1: ..., 2: ..., 3: ...}  # 把每个 ... 换成答案
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>答案 1</summary>
#
# 化为最简分数以后，分母必须是 2 的幂，而且不能大到超出格式的能力。
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
# <summary>答案 2</summary>
#
# 舍入每一个整数，找出第一个改变了的数。有效位为 p 位（含隐含位）的格式具有 2^p 以内的全部整数，再下一个整数就要多一位。
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
# <summary>答案 3</summary>
#
# 在相邻的两个 2 的幂之间，格式有 2^t 个数，t 是存放的尾数位数。最后一个区间少一个数，因为最大的编码是 NaN。
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
