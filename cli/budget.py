"""`qevict-diag budget`: how many windows a budget buys."""

from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.replay.settings import Settings


@options.with_settings("budget", "sinks", "recent", "quantized_fraction", "bits")
def budget(
    prefill: Annotated[int, typer.Option(help="Prompt length P in tokens.")] = 512,
    decode: Annotated[int, typer.Option(help="Decode queries G.")] = 256,
    head_dim: Annotated[int, typer.Option(help="Key width d in channels.")] = 128,
    value_dim: Annotated[int | None, typer.Option(help="Value width. Default: as the keys.")] = None,
    element_size: Annotated[int, typer.Option(help="Bytes of an element at full precision.")] = 2,
    window: options.Window = None,
    *,
    settings: "Settings",
    as_json: options.AsJson = False,
) -> None:
    """Show the capacities and bytes of every policy, per layer and key-value head."""
    from qevict_diag.cache.budget import Geometry
    from qevict_diag.cli.show import print_frame
    from qevict_diag.measure.bytes import budget_table
    from qevict_diag.policies.catalogue import policies
    from qevict_diag.policies.conditions import CONDITIONS

    geometry = Geometry(prefill, decode, head_dim, head_dim if value_dim is None else value_dim, element_size)
    shown = policies(CONDITIONS, window=window)
    print_frame(budget_table(shown, settings.budget, geometry), as_json=as_json)
