"""See every attention call of one model, without changing what the model computes.

transformers hands each attention module its kernel through `AttentionInterface`; for the life of `intercept` that
hand-over is wrapped, and calls of this model's modules are shown to an observer after the kernel has run. The
configured backend, its kernel and its mask stay untouched. Source: transformers `modeling_utils.AttentionInterface`;
`get_interface` since 5.1, before that (and in some models still) `__getitem__` and each modelling module's
`eager_attention_forward`. A kernel that comes by two of these ways is wrapped once.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from qevict_diag.errors import RecordError

Function = Callable[..., Any]
_RUNNING = threading.Lock()  # the wrap is process-wide, so one recording at a time


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of a kernel: query [B, H, S, d], key [B, KV, n, d], value [B, KV, n, d_v], output [B, S, H, d_v]."""

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    output: Tensor
    options: dict[str, Any] = field(default_factory=dict)


Observer = Callable[[AttentionCall], None]


@contextmanager
def intercept(model: Any, observer: Observer) -> Iterator[None]:
    """Show ``observer`` every attention call of ``model``'s modules; RecordError while another recording runs."""
    from transformers.modeling_utils import AttentionInterface

    if not _RUNNING.acquire(blocking=False):
        raise RecordError("another recording runs in this process; one at a time is allowed, wait for it to end")
    try:
        watch = _Watch(frozenset(map(id, model.modules())), observer)
        with ExitStack() as patches:
            for name in ("get_interface", "__getitem__"):
                if hasattr(AttentionInterface, name):
                    patches.enter_context(patched(AttentionInterface, name, watch.hand_over))
            for namespace in modelling_modules(model):
                if hasattr(namespace, "eager_attention_forward"):
                    patches.enter_context(patched(namespace, "eager_attention_forward", watch.wrap))
            yield
    finally:
        _RUNNING.release()


@contextmanager
def patched(owner: Any, name: str, change: Callable[[Function], Function]) -> Iterator[None]:
    """Replace ``owner.name`` by ``change`` of it and put it back afterwards."""
    original = getattr(owner, name)
    setattr(owner, name, change(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def modelling_modules(model: Any) -> list[Any]:
    """The Python modules that define the classes of ``model``'s parts, transformers' and remote code alike."""
    names = {type(module).__module__ for module in model.modules()}
    return [sys.modules[name] for name in sorted(names) if not name.startswith("torch.") and name in sys.modules]


@dataclass(frozen=True, eq=False)
class _Watch:
    modules: frozenset[int]
    observer: Observer
    wrapped: dict[Function, Function] = field(default_factory=dict)

    def hand_over(self, original: Function) -> Function:
        """`get_interface` or `__getitem__`, whose result is wrapped."""

        @functools.wraps(original)
        def get(*args: Any, **kwargs: Any) -> Function:
            return self.wrap(original(*args, **kwargs))

        return get

    def wrap(self, kernel: Function) -> Function:
        """The kernel, which also shows its call to the observer; one wrapper per kernel."""
        if kernel in self.wrapped.values():
            return kernel
        if kernel not in self.wrapped:
            self.wrapped[kernel] = self._watched(kernel)
        return self.wrapped[kernel]

    def _watched(self, kernel: Function) -> Function:
        @functools.wraps(kernel)
        def watched(module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
            result = kernel(module, query, key, value, *args, **options)
            if id(module) in self.modules:
                mask = args[0] if args else options.get("attention_mask")
                self.observer(AttentionCall(module, query, key, value, mask, result[0], options))
            return result

        return watched
