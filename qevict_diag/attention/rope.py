"""Rotary position embedding on recorded keys: rotate, and exactly undo it.

A rotation acts on the channels ``[start, start + rotary_dim)`` of the last axis; the other channels pass through.
``cos`` and ``sin`` are the model's own tables (already multiplied by its attention factor, if it has one), so that

    rotate(x)   = x · cos + turn(x) · sin
    unrotate(y) = (y · cos - turn(y) · sin) / (cos² + sin²)

where ``turn`` maps a pair (a, b) to (-b, a). Pairs are (c, c + rotary_dim/2) in the ``half`` style (Llama, GPT-NeoX)
and (2c, 2c + 1) in the ``interleaved`` style (GPT-J, Cohere, GLM). Source: Su et al. 2021, RoFormer.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Style = Literal["half", "interleaved"]
STYLES: tuple[Style, ...] = ("half", "interleaved")


def turn(x: Tensor, style: Style) -> Tensor:
    """Turn every rotary pair by 90 degrees, ``(a, b) -> (-b, a)``; ``x`` is [..., rotary_dim]."""
    if style == "half":
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, style: Style, start: int = 0) -> Tensor:
    """Rotate ``x`` [..., position, channel] by the tables [position, rotary_dim]."""
    return _on_rotary_channels(x, lambda part: part * cos + turn(part, style) * sin, cos.shape[-1], start)


def unrotate(y: Tensor, cos: Tensor, sin: Tensor, style: Style, start: int = 0) -> Tensor:
    """Undo `rotate` exactly (up to rounding): the inverse divides by ``cos² + sin²``, the squared attention factor."""
    scale = cos.square() + sin.square()
    return _on_rotary_channels(y, lambda part: (part * cos - turn(part, style) * sin) / scale, cos.shape[-1], start)


def _on_rotary_channels(x: Tensor, change: Callable[[Tensor], Tensor], rotary_dim: int, start: int) -> Tensor:
    head, part, tail = torch.split(x, [start, rotary_dim, x.shape[-1] - start - rotary_dim], dim=-1)
    return torch.cat((head, change(part), tail), dim=-1)
