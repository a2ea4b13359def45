"""A check as a small drawing: its interval, its threshold, and a dot for each article."""

import math
from collections.abc import Mapping
from html import escape
from typing import Any

WIDTH, HEIGHT, MARGIN = 170, 16, 5
INK, PALE, CLAIM = "#1d2329", "#0b4f8a", "#c26a1a"


def strip(check: Mapping[str, Any]) -> str:
    """Draw a check as inline SVG; nothing where no article has a number of its own.

    A bar from limit to limit, a tick at the estimate, a pale dot for each article and a dashed line at the threshold.
    """
    articles = [one for one in check["by_article"] if one is not None]
    if not articles:
        return ""
    known = [check[name] for name in ("estimate", "low", "high") if not math.isnan(check[name])]
    ends = [*articles, *known, check["threshold"]]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def x(value: float) -> str:
        return f"{MARGIN + (WIDTH - 2 * MARGIN) * (value - low) / span:.1f}"

    middle = HEIGHT / 2
    marks = [_line(x(check["threshold"]), 1, HEIGHT - 1, CLAIM, ' stroke-dasharray="2 2"')]
    if not math.isnan(check["low"]):
        ends_at = f'x1="{x(check["low"])}" x2="{x(check["high"])}" y1="{middle}" y2="{middle}"'
        marks.append(f'<line {ends_at} stroke="{INK}" stroke-width="1.4" />')
    marks += [f'<circle cx="{x(one)}" cy="{middle}" r="2.6" fill="{PALE}" fill-opacity=".45" />' for one in articles]
    marks.append(_line(x(check["estimate"]), 3, HEIGHT - 3, INK))
    told = f"{check['statistic']}: {len(articles)} articles, " + ", ".join(f"{one:.4g}" for one in articles)
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg class="strip" role="img" {size}><title>{escape(told)}</title>{"".join(marks)}</svg>'


def _line(x: str, top: float, bottom: float, color: str, more: str = "") -> str:
    return f'<line x1="{x}" x2="{x}" y1="{top}" y2="{bottom}" stroke="{color}" stroke-width="1.2"{more} />'
