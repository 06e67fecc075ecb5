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
# # 10. 16 位训练为什么会停滞？怎样修复？
#
# 用 FP32 学得很好的网络，换成 FP16 或 BF16 可能什么也学不到，而没有哪一步报告错误。本 notebook 用几秒钟就能跑完的训练展示这样的失败，以及修复的办法：
#
# 1. [变成零的梯度：损失缩放](#变成零的梯度：损失缩放)
# 2. [自动调整的缩放因子](#自动调整的缩放因子)
# 3. [被吞没的更新量：主权重](#被吞没的更新量：主权重)
# 4. [Adam 的二阶矩](#Adam-的二阶矩)
# 5. [autocast 的名单](#autocast-的名单)
#
# 网络有一个 64 个单元的隐藏层，识别 floatsim 自带的 8 × 8 手写数字图像。每次舍入都是精确模拟的，所以在任何机器上得到的数都相同。不需要 GPU，也不需要 PyTorch。细节见[训练](../../docs/training.md)一页。

# %%
try:
    import matplotlib.pyplot as plt
    import numpy as np
    from IPython.display import Markdown

    import floatsim as fs
    from floatsim import plot, training
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"This notebook needs {missing.name}. In a clone of floatsim's repository: "
        "pip install -e '.[notebooks]', then restart the kernel."
    ) from None


def table(head, rows):
    """由文本组成的表格，以 Markdown 显示。"""
    return Markdown("\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)))


# %% tags=["language"]
_ = plot.use_language("zh")  # 图中的文字用中文

# %% [markdown]
# ## 变成零的梯度：损失缩放
#
# 这个例子把损失乘以百万分之一。取这个因子，是为了让失败在小网络中也看得见；大网络不用它就有这么小的梯度。学习率按同样的倍数放大，因此在精确算术中什么也没有改变。[策略](../../docs/zh/glossary.md#training-policy)写明各种格式：`fp16` 全部用 FP16 计算，`+masters` 另外用 FP32 保存一份权重，`+scaling` 在反向传播之前把损失乘以一个因子（这里是 2^16），更新之前再把梯度除以它：

# %%
small = {"loss_factor": 1e-6, "lr": 2e5, "batch": 64, "epochs": 6}
runs = [training.train(name, **small) for name in ("fp16+masters", "fp16+masters+scaling", "bf16+masters", "fp32")]
table(
    ("策略", "新图像的准确率", "最后一批中为零的梯度"),
    [(run.policy, f"{run.accuracy:.3f}", f"{run.epochs[-1].zeros:.0%}") for run in runs],
)

# %% tags=["picture"]
_ = plot.training_accuracies(runs[:2], title="成败取决于一个因子：FP16，没有与有损失缩放")

# %% jupyter={"source_hidden": true}
half, images = fs.FP16.smallest_subnormal / 2, len(training.digits_data().y) % small["batch"]
Markdown(
    f"FP16 没有小于 **{fs.FP16.smallest_subnormal:.2e}** 的正数，"
    f"绝对值不超过 {half:.2e} 的值都舍入为零。"
    f"不缩放时，**{runs[0].epochs[-1].zeros:.0%}** 的梯度是零，准确率 "
    f"{runs[0].accuracy:.3f} 几乎不高于随机猜测。BF16 的指数与 FP32 相同，不需要缩放。"
    f"FP32 也有 **{runs[3].epochs[-1].zeros:.0%}** 的零。最后一批有 {images} 幅图像。如果在每一幅中，"
    "权重所连的像素与单元至少有一个为零，它的梯度就恰好是零。"
)

# %% [markdown]
# ## 自动调整的缩放因子
#
# 因子取多大合适？动态[损失缩放](../../docs/zh/glossary.md#loss-scaling)不断尝试。连续若干步正常，就把因子加倍；梯度中出现[无穷](../../docs/zh/glossary.md#infinity)或 [NaN](../../docs/zh/glossary.md#nan)，就跳过这一步，并把因子减半。PyTorch 等待 2000 个正常的步。这里只等 30 步，并从过大的 2^44 开始，好在一次短的训练中看到两条规则：

# %%
scaler = training.GradScaler(2.0**44, growth_interval=30)
run = training.train("fp16+masters", loss_scale=scaler, **small | {"epochs": 8})
figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.plot(run.scales, drawstyle="steps-post", color=plot.colour("fp16"), lw=2)
skipped = [event.step for event in run.events if event.kind == "skipped"]
ax.plot(
    skipped, [run.scales[step] for step in skipped], "x", color=plot.colour("e5m2"), ms=9, mew=2, label="跳过的步"
)
ax.set_yscale("log", base=2)
ax.set(xlabel="步", ylabel="损失缩放因子")
ax.set_title(
    "动态损失缩放找到不上溢的最大因子", loc="left", fontweight="bold", wrap=True
)
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %% jupyter={"source_hidden": true}
Markdown(
    f"最初跳过的 **{sum(step < 30 for step in skipped)}** 步把因子从 2^44 降到 "
    f"2^{np.log2(run.scales[29]):.0f}。之后它不断加倍，直到又有梯度上溢。8 轮之后，"
    "准确率达到 "
    f"**{run.accuracy:.3f}**，跳过的步有 {len(skipped)} 个，总共 {len(run.scales)} 步。"
    "更新之前，梯度要除以缩放因子。"
    "只要没有上溢和下溢，乘以 2 的幂就不产生舍入误差。"
)

# %% [markdown]
# ## 被吞没的更新量：主权重
#
# 下一组训练没有乘因子，并使用 BF16，它的范围足够大。学习率很小，在这十轮中，FP32 也只能学到带[主权重](../../docs/zh/glossary.md#master-weights)的 BF16 那个程度。在 BF16 中，1 的相邻数是 1 + 2^-7 和 1 - 2^-8。更新量不到与相邻数之差的一半，就会被[吞没](../../docs/zh/glossary.md#absorption)：权重加上更新量，舍入后还是原来的权重。

# %%
names = ("bf16+masters", "bf16+stochastic", "bf16")
slow = [training.train(name, lr=0.004, batch=64, epochs=10) for name in names]
title = "BF16 权重吞没大部分更新量；用主权重或随机舍入修复"
_ = plot.training_accuracies(slow, title=title)

# %%
monitor = training.Monitor(["fp32"], every=20)
training.train("bf16", lr=0.004, batch=64, epochs=1, monitor=monitor)
last = monitor.updates["layer0.weight"][-1]
Markdown(
    f"在第 {last.step} 步，第一层权重的非零更新量有 **{last.absorbed:.0%}** "
    "在 BF16 中被吞没。其余的更新量仍在改变权重，所以准确率还在上升，只是很慢。"
    "FP32 的主权重多 16 位。随机舍入不需要另存一份："
    "更新量是间距的十分之一时，"
    "权重移动一整个间距的"
    "概率是十分之一，所以平均值正确。"
)

# %% [markdown]
# 损失缩放在这里不起作用：更新之前已经除去了缩放因子。这是两种不同的失败，各有各的修复办法。
#
# ## Adam 的二阶矩
#
# Adam 要除以 v 的平方根，v 是梯度平方的滑动平均。小梯度的平方更小。下面从零权重开始走一步。无论梯度多大，Adam 的第一步都应当接近学习率 0.001：

# %%
gradients = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
cases = {
    "FP32": ("fp32", training.Adam(1e-3)),
    "FP16，eps 1e-8": ("fp16", training.Adam(1e-3)),
    "FP16，eps 1e-4": ("fp16", training.Adam(1e-3, eps=1e-4)),
    "FP16，存放时才舍入": ("fp16", training.Adam(1e-3, rounding="step")),
    "BF16，eps 1e-8": ("bf16", training.Adam(1e-3)),
}
rows = []
for name, (fmt, optimizer) in cases.items():
    moved = optimizer.step({"w": fs.array(np.zeros(5), fmt)}, {"w": fs.array(gradients, fmt)})["w"].values
    rows.append((name, *(f"{-float(step):.2g}" for step in moved)))
table(("Adam 第一步的大小，梯度为", *(f"{g:g}" for g in gradients)), rows)

# %% jupyter={"source_hidden": true}
Markdown(
    f"第一步之后，v 是梯度平方的千分之一。梯度为 1e-3 时，它等于 1e-9，而"
    " FP16 的最小正数是 "
    f"{fs.FP16.smallest_subnormal:.2e}：v 为零，eps = 1e-8 也为零，商是无穷，"
    "一步之后"
    "权重也成了无穷。较大的 eps 使步长有限，但对某个梯度大了十倍，"
    "对另一个"
    "又小了十倍。如果张量到存放时才舍入，这一步就是对的。但存放的 v 仍然为零，"
    "以后的步长就会太大。修复的办法是用 FP32 计算，矩也用 FP32 存放。"
)

# %% [markdown]
# BF16 的范围足够，但位数太少，使 v 停滞不前。v 的更新是 v + (1 - beta2)(g² - v)，其中 1 - beta2 = 0.001。如果梯度长时间等于 1，v 应当趋近 1。每次的变化是剩余距离的千分之一，很快就被吞没：


# %%
def second_moment(fmt, steps=1500, rounding="ties_to_even"):
    """梯度恒为 1，v 存为某种格式时，Adam 每一步之后的 v。"""
    v, found = 0.0, []
    for step in range(steps):
        v = float(fs.quantize(v + 0.001 * (1.0 - v), fmt, rounding=rounding, seed=step))
        found.append(v)
    return found


curves = {
    "FP32": (second_moment("fp32"), "fp32", "-", "top"),
    "BF16，随机舍入": (second_moment("bf16", rounding="stochastic"), "bf16", "--", "bottom"),
    "BF16": (second_moment("bf16"), "bf16", "-", "center"),
}
figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
for name, (values, fmt, line, side) in curves.items():
    ax.plot(values, line, color=plot.colour(fmt), lw=2)
    ax.annotate(f"{name}: {values[-1]:.3f}", (len(values), values[-1]), (6, 0), textcoords="offset points",
                va=side, color=plot.colour(fmt), annotation_clip=False)  # fmt: skip
ax.set(xlim=(0, 1500), ylim=(0, 1), xlabel="步（梯度为 1）", ylabel="二阶矩 v")
ax.set_title("Adam 的 v 在 BF16 中停滞", loc="left", fontweight="bold", wrap=True)
ax.spines[["top", "right"]].set_visible(False)

# %% [markdown]
# 图中每一步只把 v 舍入一次。PyTorch 的 Adam 分两行更新 v，每行舍入一次，v 停在 0.5。v 太小，步长就太大：倍数是应有的 v 与实际存放的 v 之比的平方根。
#
# ## autocast 的名单
#
# PyTorch 的 [autocast](../../docs/zh/glossary.md#autocast) 让权重保持 FP32，按一份名单为每个运算选择格式，策略 `autocast-fp16` 就是这份名单。下表每一行用 FP16 计算一个运算，输入都是 FP16 中有的数，并查出 autocast 采用什么格式：

# %%
policy = training.as_policy("autocast-fp16")
x = np.full(4096, 6.0)
one = {
    "linear": ("4096 个乘积 0.125 之和",
               fs.dot(fs.array(x / 48, "fp16"), fs.array(x / 6, "fp16"), accumulate="fp32", format="fp16"), 512),
    "relu": ("6 与 0 中较大的数", fs.maximum(fs.array(6.0, "fp16"), fs.array(0.0, "fp16")), 6),
    "exp": ("exp(12)", fs.exp(fs.array(12.0, "fp16")), np.exp(12)),
    "pow": ("300 的平方", fs.multiply(fs.array(300.0, "fp16"), fs.array(300.0, "fp16")), 300**2),
    "sum": ("4096 个 6 之和", fs.sum(fs.array(x, "fp16"), accumulate="fp16"), x.sum()),
    "norm": ("4096 个 6 的范数", fs.norm(fs.array(x, "fp16"), accumulate="fp16"), np.linalg.norm(x)),
}  # fmt: skip
rows = []
for name, (what, result, exact) in one.items():
    decision = policy.decide(name)
    computed = (
        "输入中最宽的格式" if name == "relu" else decision.operands.name if name == "linear" else decision.result.name
    )
    rows.append((name, what, f"{float(result.values):g}", f"{exact:g}", computed))
table(("运算", "例子", "用 FP16", "精确值", "autocast 采用"), rows)

# %% [markdown]
# 矩阵乘积用 FP16，因为求和用的是 FP32，而大部分时间都花在这里。增长很快的函数和很长的求和用 FP32。
#
# ## 要点
#
# - 变成零的梯度，要给损失乘一个因子。BF16 不需要，因为它的指数位多。
# - 被吞没的更新量，要给存放的权重增加位数，或者采用[随机舍入](../../docs/zh/glossary.md#stochastic-rounding)。乘因子不起作用。
# - Adam 的矩用 FP32 最稳妥。在 FP16 中，梯度的平方与 eps 都变成零；在 BF16 中就近舍入时，滑动平均可能停滞。尽管如此，有些方案（例如 DeepSeek-V3）的矩仍用 BF16。
# - 用 FP32 计算的运算名单，保护会[上溢](../../docs/zh/glossary.md#overflow)的函数和求和。
# - 在 PyTorch 中，参数和优化器的状态保持 FP32，前向计算放在 `torch.autocast` 之内。`dtype=torch.float16` 时，还要用 `torch.amp.GradScaler` 缩放损失；`dtype=torch.bfloat16` 时不需要。调用 `model.bfloat16()` 之后，小的更新量会被吞没，除非优化器带有[主权重](../../docs/zh/glossary.md#master-weights)，或者采用随机舍入或[补偿求和](../../docs/zh/glossary.md#compensated-summation)。
#
# 下一个：[11. 注意力在哪里上溢？它的输出在哪里变成零？](../11_attention.ipynb)（英文）

# %% [markdown]
# ## 练习
#
# 把每个答案写进下面的单元格并运行。它把答案与摘要比较，从摘要看不出答案。
#
# **练习 1.** FP16 舍入为零的最大梯度是多少？要使 10^-9 的梯度成为 FP16 的[正规数](../../docs/zh/glossary.md#normal-number)，损失至少要乘以 2 的多少次幂？写出这个指数。
#
# **练习 2.** BF16 的一个权重等于 1。使它仍为 1 的最大正更新量是多少？再把 0.001 加到这个权重上，共加 1000 次，每次相加之后都把权重就近舍入到 BF16。写出最后的权重。
#
# **练习 3.** `training.replay` 让缩放器依次处理一列上溢。连续三次上溢之后，`training.DeepSpeedLossScaler()` 的缩放因子是多少？`training.GradScaler()` 呢？把两者写成 2 的指数的列表。

# %%
DIGESTS = {1: "b17ef6d19c", 2: "6b86b273ff", 3: "ffe9bc6ede"}
answers = {1: ..., 2: ..., 3: ...}  # 把每个 ... 换成答案
print(fs.testing.check_answers(answers, DIGESTS))

# %% [markdown]
# <details>
# <summary>答案 1</summary>
#
# 最小[次正规数](../../docs/zh/glossary.md#subnormal)的一半是[中点](../../docs/zh/glossary.md#ties)，舍入到偶数的一边，即零。因子必须使 10^-9 至少达到最小的正规数 2^-14。
#
# ```python
# >>> print(fs.FP16.smallest_subnormal / 2)
# 2.9802322387695312e-08
# >>> exponent = next(k for k in range(40) if 1e-9 * 2**k >= fs.FP16.smallest_normal)
# >>> exponent
# 16
# >>> print(fs.testing.check_answers({1: exponent}, DIGESTS))
# exercise 1: correct
# ```
#
# </details>

# %% [markdown]
# <details>
# <summary>答案 2</summary>
#
# 1 的下一个数是 1 + 2^-7。间距的一半是中点，而 1 是偶数。
#
# ```python
# >>> gap = float(fs.ulp(1.0, "bf16"))
# >>> float(fs.quantize(1 + gap / 2, "bf16")), float(fs.quantize(1 + gap / 2 + 1e-9, "bf16"))
# (1.0, 1.0078125)
# >>> weight = 1.0
# >>> for _ in range(1000):
# ...     weight = float(fs.quantize(weight + 0.001, "bf16"))
# >>> print(fs.testing.check_answers({2: weight}, DIGESTS))
# exercise 2: correct
# ```
#
# 在精确算术中，权重会变成 2。
#
# </details>

# %% [markdown]
# <details>
# <summary>答案 3</summary>
#
# DeepSpeed 遇到第一次上溢时只减小一个计数，即[滞回](../../docs/zh/glossary.md#hysteresis)。
#
# ```python
# >>> exponents = []
# >>> for scaler in (training.DeepSpeedLossScaler(), training.GradScaler()):
# ...     steps = training.replay(scaler, [True] * 3)
# ...     exponents.append(int(np.log2(scaler.scale)))
# >>> exponents
# [14, 13]
# >>> print(fs.testing.check_answers({3: exponents}, DIGESTS))
# exercise 3: correct
# ```
#
# </details>
