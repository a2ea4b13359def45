"""How every figure looks: the style sheet, the colours of policies and tiers, and how a figure is written to a file.

Colours are Okabe and Ito's, which stay apart for all common kinds of colour blindness; lines also differ in dashes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qevict_diag import files
from qevict_diag.errors import InputError
from qevict_diag.plain import plain

FORMATS = ("pdf", "png", "svg")
POLICY_COLORS = {
    "R1": "#D55E00",
    "R2": "#CC79A7",
    "R3": "#0072B2",
    "R4": "#009E73",
    "R3-full-only": "#56B4E9",
    "R3-one-way": "#E69F00",
}
POLICY_DASHES: dict[str, Any] = {
    "R2": (0, (1, 1.1)),
    "R4": (0, (6, 1.2, 1, 1.2)),
    "R3-full-only": (0, (4, 1.4)),
}
TIER_COLORS = {"full": "#0B4F8A", "quantized": "#7FBCE6", "evicted": "#E9C9A8", "local": "#6E6E6E"}
OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
MUTED = "#6B6B6B"
LONGEST_NAME = 60  # characters


@contextmanager
def style() -> Iterator[None]:
    """Use the style sheet for what is drawn or saved inside."""
    with resources.as_file(resources.files("qevict_diag.figures") / "qevict.mplstyle") as sheet, mpl.rc_context():
        matplotlib.style.use(sheet)
        yield


def shown_name(name: str) -> str:
    """How a picture writes a model's or a policy's name: on one short line, no character of it more than a letter."""
    return plain(name, LONGEST_NAME)


def color_of(policy: str) -> str:
    """A policy's own colour; others take turns, by name."""
    return POLICY_COLORS.get(policy, OTHERS[sum(policy.encode()) % len(OTHERS)])


def axes_of(ax: Axes | None, width: float = 3.4, height: float = 2.4) -> Axes:
    """Return the axes given, or new ones in a figure of ``width`` × ``height`` inches."""
    return ax if ax is not None else Figure(figsize=(width, height), layout="constrained").add_subplot()


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as .pdf, .png or .svg, the same bytes for the same figure, whole or not at all."""
    kind = picture_kind(path)
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {"Software": None}}[kind]
    drawn = BytesIO()  # what a full disk does to a file that matplotlib writes itself is not an OSError
    with style():
        figure.savefig(drawn, format=kind, metadata=metadata)
    with files.replacing(path) as scratch:
        scratch.write_bytes(drawn.getvalue())
    return path


def picture_kind(path: Path) -> str:
    """Tell the format from the ending; InputError for one not in `FORMATS`, and where no file can be written."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(f"figure file {path.name}: the ending must be one of .{', .'.join(FORMATS)}")
    files.check_target(path)
    return kind


def spread_apart(heights: list[float], gap: float) -> list[float]:
    """Move label heights up or down, keeping their order, until neighbours are at least ``gap`` apart."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = [heights[index] for index in order]
    for _ in range(200):
        pushed = False
        for low in range(len(moved) - 1):
            lack = gap - (moved[low + 1] - moved[low])
            if lack > 1e-9:
                moved[low] -= lack / 2
                moved[low + 1] += lack / 2
                pushed = True
        if not pushed:
            break
    placed = [0.0] * len(heights)
    for rank, index in enumerate(order):
        placed[index] = moved[rank]
    return placed
