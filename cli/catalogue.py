"""`qevict-diag policies | metrics | quantizers | tables | figures`: what there is, one line each."""

from collections.abc import Callable, Sequence
from typing import Any

from qevict_diag.cli import options


def policies(as_json: options.AsJson = False) -> None:
    """List the policies and the estimators that can rank their windows."""
    import polars as pl

    from qevict_diag.cli.show import print_frame
    from qevict_diag.policies.catalogue import estimator_class, estimator_names, policy, policy_names

    def of_policy(name: str) -> dict[str, Any]:
        one = policy(name)
        return {"name": one.name, "window": one.grain, "summary": one.summary, "source": one.source}

    known = [{"kind": "policy", **_entry(name, of_policy)} for name in policy_names()]
    known += [
        {"kind": "estimator", **_entry(name, lambda one: {"summary": _first_sentence(estimator_class(one))})}
        | {"name": f"R3[{name}]"}
        for name in estimator_names()
    ]
    columns = {"name": pl.String, "kind": pl.String, "window": pl.Int32, "summary": pl.String, "source": pl.String}
    print_frame(pl.DataFrame(known, schema=columns), as_json=as_json)


def metrics(as_json: options.AsJson = False) -> None:
    """List the metrics, their units and which direction is better."""
    from qevict_diag.metrics import metric, metric_names

    _list(metric_names(), metric, ("name", "summary", "unit", "better"), as_json)


def quantizers(as_json: options.AsJson = False) -> None:
    """List the quantizers of the recoverable tier; `R3(quantizer=NAME)` is R3 with another one."""
    from qevict_diag.quantizers import quantizer, quantizer_names

    _list(quantizer_names(), quantizer, ("name", "summary", "source"), as_json)


def tables(as_json: options.AsJson = False) -> None:
    """List the tables that `table` prints."""
    from qevict_diag.figures.tables import table, table_names

    _list(table_names(), table, ("name", "summary"), as_json)


def figures(as_json: options.AsJson = False) -> None:
    """List the figures that `figure` draws."""
    from qevict_diag.figures.catalogue import figure, figure_names

    _list(figure_names(), figure, ("name", "summary"), as_json)


def _list(names: Sequence[str], find: Callable[[str], Any], told: Sequence[str], as_json: bool) -> None:
    import polars as pl

    from qevict_diag.cli.show import print_frame

    known = [_entry(name, lambda one: {key: getattr(find(one), key) for key in told}) for name in names]
    print_frame(pl.DataFrame(known, schema=dict.fromkeys(told, pl.String)), as_json=as_json)


def _entry(name: str, describe: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """What is told about a name; of one that another package has announced in vain, why it cannot be used."""
    from qevict_diag.errors import InputError

    try:
        return describe(name)
    except InputError as error:
        return {"name": name, "summary": str(error)}


def _first_sentence(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0].removesuffix(".")
