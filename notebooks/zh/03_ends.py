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
# # 3. 在格式的两端会发生什么？
#
# 格式有一个最小的正数和一个最大的数。就近舍入、[中点](../../docs/zh/glossary.md#ties)取偶时，结果不超过最小正数的一半就变成零。结果超出最大数时，则取决于[上溢](../../docs/zh/glossary.md#overflow)策略。本 notebook 用真实数据展示两端的情形：一个识别手写数字的小网络的梯度。数据包含在 floatsim 中，来源见 [data](../../data/digits/README.md)。
#
# 建议先读 [notebook 1](01_bits.ipynb)（数）和 [notebook 2](../02_rounding.ipynb)（舍入）。

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

# %% tags=["language"]
_ = plot.use_language("zh")  # 图中的文字用中文

# %% [markdown]
# ## 变成零的梯度
#
# 训练就是让*损失*尽量小，损失是衡量网络误差的一个数。*反向传播*从最后一层到第一层，依次求出损失对每个中间结果的导数。这里的数组就是其中之一：损失对中间一层*预激活值*（激活函数之前的和）的导数，共 512 幅训练图像。这一层权重的梯度由它算出：`activations.T @ gradients`。
#
# 这些值很小，因为网络已经记住了训练图像：300 轮之后，训练图像全部识别正确（新图像识别正确的占 87%）。训练初期的梯度要大一些。下面把数组转换为 E4M3，数一数还有多少个值不是零：

# %%
gradients = datasets.digits()["gradients"]
alive = np.abs(gradients[gradients != 0])
left = np.count_nonzero(fs.quantize(gradients, "e4m3"))
Markdown(
    f"{alive.size:,} 个梯度不是零，绝对值从 {alive.min():.1e} 到 {alive.max():.1e}。"
    f"转换为 E4M3 之后，不是零的还有 **{left}** 个。"
)

# %% [markdown]
# 梯度全是零，权重就不再变化。下一幅图说明原因，并给出其他格式的情形：各种大小的梯度有多少个（每个 2 的幂一根柱子），与各格式的范围对照：

# %% tags=["picture"]
ax = plot.exponent_histogram(gradients, limits=(-46, 20),
                             title="损失对预激活值的梯度，在五种格式中")  # fmt: skip

# %% [markdown]
# 各行柱子的高度相同。实心：[正规数](../../docs/zh/glossary.md#normal-number)。斜线：[次正规数](../../docs/zh/glossary.md#subnormal)，位数较少。黑色：[清零](../../docs/zh/glossary.md#flush-to-zero)，即结果为零。后面的色带是格式的范围，右端是最大数。
#
# E4M3 的范围在所有这些梯度的右边。在 FP16 中，超过三分之一的梯度变成零；在 BF16 中一个也没有：BF16 与 FP16 的位数相同，但指数位更多。
#
# ## 小的一端：次正规数
#
# 正规数在小数点前有一个隐含的 1，所以最小的正规数是 1.000 × 2^[emin](../../docs/zh/glossary.md#emin-and-emax)，emin 是最小的指数。如果没有别的数，从它到零就是一段空隙。*次正规数*填满了这段空隙：它们的指数字段是 0，没有隐含的 1。下面是 FP16 的一个次正规数：

# %%
ax = plot.anatomy(1e-6, "fp16")

# %% [markdown]
# 在数轴上，次正规数画成较短的线，间距与最小的那些正规数相同。第二幅图是没有次正规数的同一格式：

# %%
figure, axes = plt.subplots(2, 1, figsize=(10, 2.6), layout="constrained")
limits = (-0.04, 0.04)
plot.number_line("e4m3", limits=limits, ax=axes[0], title="有次正规数")
plot.number_line("e4m3", limits=limits, ftz=True, ax=axes[1], title="没有次正规数：清零")
for ax in axes:
    ax.title.set_fontsize("medium")

# %% [markdown]
# 可见小的一端有三个界限。对 FP16 是：

# %%
fp16 = fs.FP16
print(f"最小的正规数　　 {fp16.smallest_normal:.6e}   小于它时，位数越来越少")
print(f"最小的次正规数　 {fp16.smallest_subnormal:.6e}   小于它时，没有数")
print(f"后者的一半　　　 {fp16.smallest_subnormal / 2:.6e}   不超过它时，舍入为零")
print()
for x in (1e-4, 1e-5, 1e-6, 1e-7, 3e-8, 2.9e-8):
    y = fs.quantize(x, "fp16")
    print(f"{x:7.1e} 变成 {y:.6e}，相差 {abs(y - x) / x:.2%}")

# %% [markdown]
# 有些资料说，小于最小*正规数*的值在 FP16 中全部丢失。上表表明，那里损失的只是[精度](../../docs/zh/glossary.md#precision)，每小一个 2 的幂损失一位；只有不超过最小次正规数的一半，结果才变成零。下一幅图给出每个 2 的幂处的最大相对误差，虚线是没有次正规数的 FP16：

# %%
formats = ["bf16", "fp16", "e5m2", "e4m3"]
ax = plot.worst_error(formats, limits=(-32, 18))
ax = plot.worst_error(["fp16"], limits=(-32, 18), ftz=True, ax=ax)

# %% [markdown]
# 线平的地方，最大相对误差与数的大小无关。在左边，FP16、E5M2 和 E4M3 的线逐级升到 1，即误差 100%。BF16 在整幅图中都是平的：它的次正规数从 2^-126 以下才开始。如果清零，误差立刻升到 1。
#
# ## 清零
#
# 次正规数使硬件更贵，有些硬件可以关闭它们。*FTZ*（flush to zero，清零）把次正规数的结果换成零，[*DAZ*](../../docs/zh/glossary.md#daz)（denormals are zero）把次正规数的操作数当作零读入。在 x86 上，两者都是控制寄存器 MXCSR 的位（见 Intel 手册）。NVIDIA 的编译器对 FP32 有选项 `-ftz=true`，`-use_fast_math` 包含它（见其文档）。在 floatsim 中两者都是参数，默认为 False。`fs.record` 统计把梯度转换为 FP16 时的事件：

# %%
for ftz in (False, True):
    with fs.record() as log:
        fs.convert(gradients, "fp16", ftz=ftz)
    counts = log["convert"]
    print(f"ftz={ftz!s:6} 次正规数 {counts.subnormal:5}   清零 {counts.flushed:5}   共 {alive.size} 个")

# %% [markdown]
# 没有 FTZ 时，只有 x 等于 y，x - y 才是零。有些程序除以 x - y 之前检验 x != y，依靠的就是这一点。有 FTZ 时这不再成立：

# %%
x, y = fs.array([0.0176], "e4m3"), fs.array([0.0156], "e4m3")
for ftz in (False, True):
    difference = fs.subtract(x, y, ftz=ftz)
    print(f"ftz={ftz!s:6} x == y: {bool(fs.equal(x, y)[0])}   x - y = {difference.values[0]}")

# %% [markdown]
# ## 大的一端：上溢策略
#
# E4M3 的最大数是 448，所以 500 会*上溢*。常见的策略有两种。按照 IEEE 754，结果是[无穷](../../docs/zh/glossary.md#infinity)，上溢因此一目了然；没有无穷的格式用 [NaN](../../docs/zh/glossary.md#nan) 代替。机器学习中常取最大数，称为[*饱和*](../../docs/zh/glossary.md#saturation)。最大数附近的阶梯：

# %%
figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
for row, (fmt, limits) in zip(axes, [("e4m3", (380, 520)), ("e5m2", (44_000, 72_000))], strict=True):
    for ax, overflow in zip(row, ["infinity", "saturate_finite"], strict=True):
        plot.staircase(fmt, overflow=overflow, limits=limits, ax=ax, title=f"{fmt.upper()}, overflow={overflow!r}")

# %% [markdown]
# 超出最大数半个间距以后才上溢，因为更小的数舍入到最大数。对于无穷的输入，各策略也不相同：

# %%
inputs = np.array([448.0, 464.0, 465.0, 1e6, np.inf, np.nan])
print("E4M3              ", *(f"{x!s:>8}" for x in inputs))
for policy in fs.Overflow:
    print(f"{policy.name.lower():18}", *(f"{x!s:>8}" for x in fs.quantize(inputs, "e4m3", overflow=policy)))

# %% [markdown]
# 按照 NVIDIA 的 PTX 文档，转换到 E4M3 和 E5M2 的指令只有带 `.satfinite` 的形式，即 `saturate_finite` 一行。软件的做法因版本而异。floatsim 默认采用 `infinity`。
#
# 无穷容易察觉：它在运算中传播，也可能变成 NaN。此后的运算几乎都保留 NaN。IEEE 754 中的例外有 pow(NaN, 0)，结果是 1，以及 maximumNumber(NaN, 2)，结果是 2：

# %%
infinity, zero, two = (fs.array([x], "fp16") for x in (np.inf, 0.0, 2.0))
print("inf * 2   =", fs.multiply(infinity, two).values[0])
print("inf - inf =", fs.subtract(infinity, infinity).values[0])
print("inf * 0   =", fs.multiply(infinity, zero).values[0])
print("inf / inf =", fs.divide(infinity, infinity).values[0])

# %% [markdown]
# 饱和的结果难以察觉：它是有限的，看上去也合理，误差却可能很大。哪种策略更好，要看具体程序。
#
# ## 同时考虑两端：损失缩放
#
# 这些梯度对 E4M3 的范围来说太小，但可以乘以一个因子，把它们移进范围之内。[*损失缩放*](../../docs/zh/glossary.md#loss-scaling)在反向传播之前把**损失**乘以 2^k。求导是线性的，因此反向传播中每个梯度在舍入之前都乘上了 2^k。最后得到的权重梯度采用较宽的格式，再除以 2^k。乘以 2 的幂只改变指数，所以缩放本身没有舍入误差。（等到求出梯度之后再缩放就晚了：已经变成零的仍然是零。）
#
# 下一幅图中，每一列是一个因子：

# %%
ax = plot.scale_sweep(gradients, "e4m3", exponents=(-2, 34))

# %% [markdown]
# 因子越大，变成零的梯度越少（下方），但上溢的越多（上方），合适的因子在两者之间。E4M3 的范围太窄，容纳不下全部梯度，E5M2 则可以：

# %%
plot.explore(
    lambda format, scale: plot.scale_sweep(gradients, format, exponents=(-2, 34), mark=scale),
    format=["e5m2", "e4m3", "fp16", "e3m4"],
    scale=(0, 32),
)

# %% [markdown]
# 求这个数组是为了得到权重的梯度。下面计算反向传播的这一部分：从缩放后的损失对预激活值的导数开始，把它舍入到格式；它与激活值的乘积除 float64 的舍入之外是精确的，最后除以 2^k。对每个因子和两种策略，权重梯度的误差如下：

# %%
activations = datasets.digits()["activations"].astype(np.float64)
exact = activations.T @ gradients.astype(np.float64)
exponents = np.arange(0, 34)


def weight_gradient(seed, fmt, overflow):
    """这一层权重的梯度；`seed` 是损失对预激活值的导数。"""
    with np.errstate(invalid="ignore"):  # 无穷乘以 0 是 NaN
        return activations.T @ fs.quantize(seed, fmt, overflow=overflow)


def error(k, fmt, overflow):
    """损失乘以 2**k 时，权重梯度的相对误差。"""
    seed_of_scaled_loss = np.ldexp(gradients.astype(np.float64), k)
    unscaled = np.ldexp(weight_gradient(seed_of_scaled_loss, fmt, overflow), -k)
    return np.linalg.norm(unscaled - exact) / np.linalg.norm(exact)


figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
for fmt, named_at in [("e4m3", 9), ("e5m2", 2), ("fp16", 1)]:
    for overflow, line in [("saturate_finite", "--"), ("infinity", "-")]:
        errors = np.array([error(k, fmt, overflow) for k in exponents])
        finite = np.isfinite(errors)
        ax.plot(exponents[finite], errors[finite], line, color=plot.colour(fmt), lw=2)
        if not finite.all():
            last = exponents[finite][-1]
            ax.plot(last, errors[finite][-1], "X", color=plot.colour(fmt), ms=9)
            ax.annotate("再大：NaN", (last, errors[finite][-1]), (0, -7), textcoords="offset points", ha="right",
                        va="top")  # fmt: skip
    ax.annotate(fmt.upper(), (named_at, error(named_at, fmt, "infinity")), (6, 6), textcoords="offset points",
                color=plot.colour(fmt), fontweight="bold")  # fmt: skip
ax.set_yscale("log")
ax.set(xlabel="损失乘以 2ᵏ", ylabel="权重梯度的相对误差")
ax.set(xlim=(0, 33), ylim=(4e-5, 1.3))
labels = [1e-4, 1e-3, 0.01, 0.1, 1]
ax.set_yticks(labels, [f"{100 * label:g} %" for label in labels])
ax.set_yticks([], minor=True)
ax.grid(alpha=0.25)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# 曲线平的地方，误差来自[尾数](../../docs/zh/glossary.md#significand)的位数太少。那里 FP16 最好；E4M3 的尾数比 E5M2 多一位，误差也较小，尽管有些小的梯度变成了零。在右边，采用 `infinity`（实线）时，第一次上溢就使结果变成 NaN；采用 `saturate_finite`（虚线）时，结果一直有限，误差却在没有任何提示的情况下增大。训练配方自动选择这个因子。FP16 训练通常整个网络用一个因子（损失缩放），FP8 训练则每个张量或每[块](../../docs/zh/glossary.md#block)用一个。
#
# ## 要点
#
# - 小的一端有三个界限：最小的正规数、最小的次正规数，以及后者的一半。在前两者之间，精度逐渐降低；只有不超过第三个界限，结果才变成零。
# - 使用 FTZ 时，所有小于最小正规数的结果都变成零。
# - 在大的一端，结果取决于策略：无穷、NaN 或者最大数。
# - 乘以 2 的幂能把张量沿着范围移动，没有舍入误差，但不能使范围变宽。
#
# 下一个：[4. 两个正确的内核为什么给出不同的结果？](../04_orders.ipynb)（英文）

# %% [markdown]
# ## 练习
#
# **练习 1.** 求 FP16 *不*舍入为零的最小正数（[中点取偶](../../docs/zh/glossary.md#ties)）。它与最小的正规数、最小的次正规数是什么关系？改用 `rounding="toward_positive"` 会怎样？
#
# **练习 2.** 对 E4M3，乘以 2 的哪个幂，变成零或无穷的梯度最少？对 E5M2 呢？
#
# **练习 3.** E4M3 的正数 x > y 组成的数对中，有多少对的 x - y 是零？分别考虑有 FTZ 和没有 FTZ 的情形。

# %% [markdown]
# ## 检查答案
#
# 把答案写进下面的单元格并运行。它把答案与摘要比较，从摘要看不出答案。
#
# - 练习 1：不舍入为零的最小的数，以及 FP64 的最小正数（5e-324）向正无穷舍入的结果，写成列表。
# - 练习 2：两个幂的指数，写成列表。
# - 练习 3：没有 FTZ 与有 FTZ 时这种数对的个数，写成列表。

# %%
DIGESTS = {1: "1f6002ddf8", 2: "aeeedfeb8b", 3: "58e02d2fb1"}
answers = {1: ..., 2: ..., 3: ...}  # 把每个 ... 换成答案
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>答案 1</summary>
#
# 最小次正规数的一半是中点，舍入到偶数的一边，即零。比它大的下一个 float64 数则不会变成零。
#
# ```python
# >>> half = fs.FP16.smallest_subnormal / 2
# >>> above = np.nextafter(half, 1)
# >>> print(half, fs.quantize(half, "fp16"), fs.quantize(above, "fp16"))
# 2.9802322387695312e-08 0.0 5.960464477539063e-08
# >>> print(fs.FP16.smallest_normal / above, fs.FP16.smallest_subnormal / above)
# 2047.9999999999995 1.9999999999999996
# ```
#
# 向正无穷舍入时，没有正数舍入为零：
#
# ```python
# >>> print(fs.quantize(5e-324, "fp16", rounding="toward_positive"))
# 5.960464477539063e-08
# >>> print(fs.testing.check_answers({1: [2.980232238769532e-08, 5.960464477539063e-08]}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>答案 2</summary>
#
# `fs.conversion_losses` 返回图中画出的各个比例。
#
# ```python
# >>> def lost(k, fmt):
# ...     losses = fs.conversion_losses(np.ldexp(gradients.astype(np.float64), k), fmt)
# ...     return losses.flushed + losses.overflowed
# >>> for fmt in ["e4m3", "e5m2"]:
# ...     best = min(range(40), key=lambda k: lost(k, fmt))
# ...     print(f"{fmt}: 2^{best} loses {lost(best, fmt):.2%}, 2^0 loses {lost(0, fmt):.2%}")
# e4m3: 2^23 loses 5.20%, 2^0 loses 100.00%
# e5m2: 2^26 loses 0.00%, 2^0 loses 87.69%
# >>> print(fs.testing.check_answers({2: [23, 26]}, DIGESTS))
# exercise 2: correct
# ```
#
# 损失的值最少的因子，误差不一定最小：最大的梯度影响最大，而上溢的正是它们。
#
# </details>

# %% [markdown]
# <details>
# <summary>答案 3</summary>
#
# 有次正规数时一对也没有：两个数之差是最小次正规数的整数倍，不可能落在它与零之间。
#
# ```python
# >>> values = fs.decode(fs.E4M3.codes(), "e4m3")
# >>> values = np.sort(values[values > 0])
# >>> x, y = np.meshgrid(values, values)
# >>> pairs = x > y
# >>> for ftz in (False, True):
# ...     difference = fs.subtract(fs.array(x[pairs], "e4m3"), fs.array(y[pairs], "e4m3"), ftz=ftz)
# ...     print(f"ftz={ftz}: {np.count_nonzero(difference.values == 0)} of {pairs.sum()} pairs")
# ftz=False: 0 of 7875 pairs
# ftz=True: 123 of 7875 pairs
# >>> print(fs.testing.check_answers({3: [0, 123]}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>
