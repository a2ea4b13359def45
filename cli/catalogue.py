"""`qevict-diag policies | metrics`: what there is, one line each."""

from qevict_diag.cli import options


def policies(as_json: options.AsJson = False) -> None:
    """List the policies and the estimators that can rank their windows."""
    import polars as pl

    from qevict_diag.cli.show import print_frame
    from qevict_diag.policies.catalogue import estimators
    from qevict_diag.policies.conditions import POLICIES

    known = [
        {"name": p.name, "kind": "policy", "window": p.window, "summary": p.summary} for p in POLICIES.values()
    ] + [
        {"name": f"R3[{name}]", "kind": "estimator", "window": None, "summary": _first_sentence(estimator)}
        for name, estimator in estimators().items()
    ]
    print_frame(pl.DataFrame(known, schema_overrides={"window": pl.Int32}), as_json=as_json)


def metrics(as_json: options.AsJson = False) -> None:
    """List the metrics, their units and which direction is better."""
    import polars as pl

    from qevict_diag.cli.show import print_frame
    from qevict_diag.metrics import METRICS

    print_frame(pl.DataFrame([vars(metric) for metric in METRICS.values()]), as_json=as_json)


def _first_sentence(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0].removesuffix(".")
