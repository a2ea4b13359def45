"""Where tasks run: in this process, on this machine's cores (loky), or on a Dask or Ray cluster, all through joblib.

The engine only decides who computes a task and when; what a task computes is fixed by the task alone.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import joblib

from qevict_diag.errors import InputError, SweepError, within

T = TypeVar("T")
ENGINES = ("loky", "dask", "ray")
CONNECT_SECONDS = 10
MOST_WORKERS = 4096  # processes on one machine
ORPHANED_SECONDS = 1  # after which a worker of this machine notices that the sweep's process is gone
ROUND = 4  # tasks for each Ray worker before anything is heard of them
LOST = "a worker or the scheduler died (killed, or out of memory)"


@dataclass(frozen=True)
class Engine:
    """``workers`` processes on this machine, or a cluster at ``scheduler`` (Ray: empty finds the local one)."""

    kind: str = "loky"
    workers: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ENGINES:
            raise InputError(f"engine {self.kind!r}: allowed are {', '.join(ENGINES)}")
        within("workers", self.workers, 1, MOST_WORKERS)
        if self.kind == "dask" and not self.scheduler:
            raise InputError("engine dask needs --scheduler ADDRESS, as `dask scheduler` prints it (tcp://HOST:8786)")
        if self.kind == "loky" and self.scheduler:
            raise InputError(f"--scheduler {self.scheduler}: engine loky has none; give --engine dask or ray")

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Generator[Any, None, None]:
        """Results of ``function(*arguments)`` as they come; SweepError when a worker or the scheduler is lost."""
        with BACKENDS[self.kind](self) as workers:
            call = joblib.delayed(_with_parent if self.kind == "loky" else function)
            before = (os.getpid(), function) if self.kind == "loky" else ()
            calls = [call(*before, *each) for each in arguments]
            results = _in_rounds(calls) if self.kind == "ray" else _streamed(calls, workers)
            try:
                for result in results:  # noqa: UP028, `yield from` would close the results before we can
                    yield result
            except _lost() as error:
                raise SweepError(LOST) from error
            finally:
                _stop(results)

    def collect(
        self, function: Callable[..., T], arguments: Sequence[tuple[Any, ...]], finished: Callable[[], None]
    ) -> list[T]:
        """All results, in the order of ``arguments``; ``finished`` is called as each comes. Raises as `map` does."""
        found: dict[int, T] = {}
        for at, result in self.map(_numbered, [(at, function, *each) for at, each in enumerate(arguments)]):
            found[at] = result
            finished()
        return [found[at] for at in range(len(arguments))]


def _numbered(at: int, function: Callable[..., T], *arguments: Any) -> tuple[int, T]:
    return at, function(*arguments)


def workers_here(device: str) -> int:
    """Processes that replay side by side on this machine: one for each core, or one for an accelerator."""
    return joblib.cpu_count() if device == "cpu" else 1


def _with_parent(parent: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``function`` in a worker that ends when the process ``parent``, which started it, is gone."""
    if os.getpid() != parent:
        _watch(parent)
    return function(*arguments)


@cache
def _watch(parent: int) -> None:
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ORPHANED_SECONDS)
    os._exit(1)  # nobody waits for anything any more; what is half-written is removed by the next sweep


def _streamed(calls: list[Any], workers: int) -> Generator[Any, None, None]:
    results: Generator[Any, None, None] = joblib.Parallel(workers, return_as="generator_unordered")(iter(calls))
    return results


def _in_rounds(calls: list[Any]) -> Generator[Any, None, None]:
    """Results round by round: Ray's joblib backend can't hand them over one by one."""
    size = ROUND * joblib.effective_n_jobs(-1)
    for start in range(0, len(calls), size):
        yield from joblib.Parallel(n_jobs=-1)(calls[start : start + size])


def _stop(results: Generator[Any, None, None]) -> None:
    """Let go of tasks that nobody waits for any more; that they are cancelled is what we want, no warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[0-9]+ tasks which were still being processed", UserWarning)
        results.close()


@contextmanager
def _loky(engine: Engine) -> Iterator[int]:
    with warnings.catch_warnings(), joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        # a worker that has grown is replaced by a fresh one, which is as it should be
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        yield engine.workers


@contextmanager
def _dask(engine: Engine) -> Iterator[int]:
    with _extra("dask"):
        from distributed import Client
    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(engine.scheduler, timeout=CONNECT_SECONDS, set_as_default=False))
            stack.enter_context(joblib.parallel_config(backend="dask", client=client))
        except (OSError, ValueError) as error:
            raise SweepError(
                f"no Dask scheduler at {engine.scheduler} ({error or type(error).__name__}); start one with `dask "
                "scheduler` and give its address"
            ) from error
        yield -1


@contextmanager
def _ray(engine: Engine) -> Iterator[int]:
    with _extra("ray"):
        import ray
        from ray.util.joblib import register_ray
    register_ray()
    try:
        ray.init(address=engine.scheduler, ignore_reinit_error=True, log_to_driver=False)
    except (ConnectionError, ValueError) as error:
        raise SweepError(
            f"no Ray cluster at {engine.scheduler} ({error}); start one with `ray start --head`"
        ) from error
    try:
        with joblib.parallel_config(backend="ray"):
            yield -1
    finally:
        ray.shutdown()


BACKENDS: dict[str, Callable[[Engine], AbstractContextManager[int]]] = {"loky": _loky, "dask": _dask, "ray": _ray}


@contextmanager
def _extra(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InputError(f"engine {name} is not installed; pip install 'qevict-diag[{name}]'") from error


def _lost() -> tuple[type[Exception], ...]:
    """The errors by which the engines say that a worker or the scheduler is gone."""
    from concurrent.futures import CancelledError

    from joblib.externals.loky.process_executor import BrokenProcessPool

    found: list[type[Exception]] = [BrokenProcessPool, CancelledError]
    try:
        from distributed import KilledWorker

        found.append(KilledWorker)
    except ImportError:
        pass
    return tuple(found)
