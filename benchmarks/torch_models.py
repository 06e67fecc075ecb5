"""The models of `python -m benchmarks.pytorch`: small ones, as people write them, without a thought of emulation.

A step of training takes one to twenty milliseconds in PyTorch, in which it dispatches some hundred small operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODELS"]

_WORDS, _BATCH, _TIMES = 96, 2, 32


class RMSNorm(nn.Module):  # type: ignore[misc]
    """The norm of Llama, in the operations of its reference code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x: Tensor) -> Tensor:
    """Return rotary embeddings of (batch, heads, times, width)."""
    rates = 10000.0 ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float32) / x.shape[-1])
    angles = torch.arange(x.shape[-2])[:, None].float() * rates[None]
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):  # type: ignore[misc]
    """A layer of a GPT: attention with rotary embeddings, and SwiGLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = RMSNorm(width), RMSNorm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 4 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        given = self.norm_1(x)
        shape = (*given.shape[:2], self.heads, -1)
        query, key, value = (layer(given).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        found = functional.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        x = x + self.output(found.transpose(1, 2).reshape(given.shape))
        given = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(given)) * self.up(given))


class GPT(nn.Module):  # type: ignore[misc]
    """Two layers with four heads; the head has the weights of the embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(_WORDS, width), RMSNorm(width)
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.head = nn.Linear(width, _WORDS, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(words))))


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions of 3 x 3 with batch norm, beside the input."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv_1, self.norm_1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv_2, self.norm_2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.beside: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.beside = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        found = functional.relu(self.norm_1(self.conv_1(x)))
        return functional.relu(self.norm_2(self.conv_2(found)) + self.beside(x))


class ResNet(nn.Module):  # type: ignore[misc]
    """A stem and three residual blocks of 16, 32 and 64 channels, for images of 16 x 16."""

    def __init__(self) -> None:
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(stem, Residual(16, 16), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.body(images), 1).flatten(1))


class LSTM(nn.Module):  # type: ignore[misc]
    """Two layers, 64 wide, between an embedding and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_WORDS, 64), nn.Linear(64, _WORDS)
        self.layers = nn.LSTM(64, 64, 2, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(words))[0])


def _of_words(make: Callable[[], nn.Module]) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    words = torch.randint(0, _WORDS, (_BATCH, _TIMES + 1))
    return make(), lambda model: functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def _of_images() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    images, labels = torch.randn(_BATCH, 3, 16, 16), torch.randint(0, 10, (_BATCH,))
    return ResNet(), lambda model: functional.cross_entropy(model(images), labels)


MODELS: dict[str, Callable[[], Any]] = {
    "GPT, 2 layers, 64 wide": lambda: _of_words(lambda: GPT(64)),
    "GPT, 2 layers, 256 wide": lambda: _of_words(lambda: GPT(256)),
    "ResNet, 7 convolutions": _of_images,
    "LSTM, 2 layers, 64 wide": lambda: _of_words(LSTM),
}
"""Functions that return a new model and its loss."""
