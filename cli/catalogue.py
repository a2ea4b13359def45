"""`qevict-diag policies | metrics`: what there is, one line each."""

from qevict_diag.cli import options


def policies(as_json: options.AsJson = False) -> None:
    """List the policies and the estimators that can rank their windows."""
    import polars as pl

    from qevict_diag.cli.show import print_frame
    from qevict_diag.policies.catalogue import estimator_class, estimator_names, policy, policy_names

    known = [
        {"name": one.name, "kind": "policy", "window": one.grain, "summary": one.summary, "source": one.source}
        for one in map(policy, policy_names())
    ]
    known += [
        {"name": f"R3[{name}]", "kind": "estimator", "summary": _first_sentence(estimator_class(name))}
        for name in estimator_names()
    ]
    print_frame(pl.DataFrame(known, schema_overrides={"window": pl.Int32}), as_json=as_json)


def metrics(as_json: options.AsJson = False) -> None:
    """List the metrics, their units and which direction is better."""
    import polars as pl

    from qevict_diag.cli.show import print_frame
    from qevict_diag.metrics import metric, metric_names

    told = ("name", "summary", "unit", "better")
    known = [{key: getattr(metric(name), key) for key in told} for name in metric_names()]
    print_frame(pl.DataFrame(known), as_json=as_json)


def _first_sentence(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0].removesuffix(".")
