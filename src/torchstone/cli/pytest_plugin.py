"""A pytest plugin: the vectors of a sweep as tests, and the ops that a test run calls into the database.

pytest --torchstone-backend inductor            # each vector of the folder `sweep` is a test item
pytest --torchstone-trace                       # each passing test's op calls go to the database
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torchstone.record.vector import Quarantine, SweepPlan, Vector, VectorResult
    from torchstone.workers.executor import Executor

_MARKER = "torchstone: a vector of a sweep, run in a process of its own on a backend"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the plugin."""
    group = parser.getgroup("torchstone", "sweeps of ops (torchstone)")
    group.addoption(
        "--torchstone-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="Run the vectors of --torchstone-dir on this backend, one test each; give it again for more backends.",
    )
    group.addoption(
        "--torchstone-dir", default="sweep", metavar="DIR", help="The folder of the sweep.  [default: sweep]"
    )
    group.addoption(
        "--torchstone-timeout", type=float, default=30.0, metavar="SECONDS", help="Timeout per vector.  [default: 30]"
    )
    group.addoption(
        "--torchstone-trace",
        nargs="?",
        const="",
        default=None,
        metavar="DATABASE",
        help="Record the op calls of each passing test in this database.  [default: $TORCHSTONE_DB, or torchstone.db]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and record the run where the user asks for it."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--torchstone-trace") is not None:
        config.pluginmanager.register(_tracing_plugin(config), "torchstone-trace")


# --- Vectors as test items ---


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose among the items
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add an item for each valid vector and backend."""
    for backend in config.getoption("--torchstone-backend"):
        folder = Path(config.getoption("--torchstone-dir"))
        name = f"torchstone::{backend}"
        collector = SweepCollector.from_parent(session, name=name, nodeid=name, backend=backend, folder=folder)
        items.extend(collector.collect())


class SweepCollector(pytest.Collector):
    """The vectors of a folder on one backend."""

    def __init__(self, *, backend: str, folder: Path, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]  # name, parent: pytest's own
        self.backend = backend
        self.folder = folder
        self._opened: AbstractContextManager[Executor] | None = None
        self._executor: Executor | None = None
        self._plan: SweepPlan | None = None
        self._quarantine: Quarantine | None = None

    def collect(self) -> Iterable[VectorItem]:
        """One item for each vector of an op; those that are not valid are skipped with their reason."""
        from torchstone.errors import InputError
        from torchstone.sweep.folder import read_quarantine, read_vectors, select

        try:
            vectors = [one for one in select(read_vectors(self.folder)) if one.configuration is not None]
            self._quarantine = read_quarantine(self.folder)
        except InputError as error:
            raise pytest.UsageError(str(error)) from error
        if not vectors:
            msg = f"{self.folder} has no vectors of ops; make some with `torchstone sweep generate`"
            raise pytest.UsageError(msg)
        return [
            VectorItem.from_parent(self, name=f"{vector.op}[{vector.suite}-{vector.id}]", vector=vector)
            for vector in vectors
        ]

    def run(self, vector: Vector) -> VectorResult:
        """Run one vector; the processes stay for the next."""
        from torchstone.sweep.history import quarantined
        from torchstone.sweep.run import Runner, RunPolicy, extra_of

        executor, plan = self._ready()
        policy = RunPolicy(extra=extra_of(plan.run, plan.settings), timeout_s=plan.settings.timeout)
        *_, last = Runner(executor, policy).results([vector])
        (result,) = quarantined([last], self._quarantine, self.backend) if self._quarantine else (last,)
        return result

    def _ready(self) -> tuple[Executor, SweepPlan]:
        from torchstone.errors import InputError
        from torchstone.workflows.sweep_run import open_for_vectors

        if self._executor is None or self._plan is None:
            timeout_s: float = self.config.getoption("--torchstone-timeout")
            try:
                self._plan, self._opened = open_for_vectors(self.backend, timeout_s=timeout_s)
            except InputError as error:
                pytest.exit(str(error), returncode=2)
            self._executor = self._opened.__enter__()
        return self._executor, self._plan

    def close(self) -> None:
        """End the processes."""
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
            self._opened = self._executor = None


class VectorItem(pytest.Item):
    """One vector on one backend."""

    def __init__(self, *, vector: Vector, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]  # name, parent: pytest's own
        self.vector = vector
        self.add_marker("torchstone")
        self.extra_keyword_matches.update((vector.op, vector.suite, *vector.models))

    def runtest(self) -> None:
        """Run the vector: a failure fails the test, what did not run is skipped, a known failure is expected."""
        from torchstone.record.vector import FAILED, Status

        if self.vector.reason:
            pytest.skip(self.vector.reason)
        assert isinstance(self.parent, SweepCollector)  # noqa: S101 - made by it
        result = self.parent.run(self.vector)
        if result.status is Status.NOT_RUN:
            pytest.skip(result.detail)
        if result.status in FAILED:
            if result.quarantined:
                pytest.xfail(f"quarantined: {result.quarantined}")
            raise VectorFailedError(result)
        if result.status is Status.XFAIL:
            pytest.xfail(result.detail)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # noqa: ARG002 - pytest's own
        """What the backend did, instead of the traceback of this plugin."""
        if not isinstance(excinfo.value, VectorFailedError):
            return str(super().repr_failure(excinfo))
        from torchstone.sweep.vectors import call_text

        result = excinfo.value.result
        parts = [f"{result.op}: {result.outcome.value}: {result.detail}", call_text(self.vector)]
        return "\n".join([*parts, *filter(None, [result.traceback, result.last_output])])

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where the vector comes from."""
        assert isinstance(self.parent, SweepCollector)  # noqa: S101 - made by it
        return self.parent.folder, None, self.name


class VectorFailedError(AssertionError):
    """A vector that failed on a backend."""

    def __init__(self, result: VectorResult) -> None:
        super().__init__(result.detail)
        self.result = result


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close a backend after its last vector."""
    is_last = nextitem is None or nextitem.parent is not item.parent
    if is_last and isinstance(item.parent, SweepCollector):
        item.parent.close()


# --- Recording a test run ---


def _tracing_plugin(config: pytest.Config) -> object:
    from torchstone.capture.op_log import Recording
    from torchstone.capture.trace_pytest import RecordingPlugin

    class TracingPlugin(RecordingPlugin[Recording]):
        """Records every test, and adds what the passing ones called to the database at the end."""

        def pytest_sessionfinish(self) -> None:
            from torchstone.workflows.trace_ops import add_recordings

            database: str = config.getoption("--torchstone-trace")
            added = add_recordings(self.recordings, self.endings, database or None)
            reporter = config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None and added:
                reporter.write_line(added)

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
            if isinstance(item, VectorItem):  # it runs in other processes
                return (yield)
            return (yield from super().pytest_runtest_setup(item))

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
            if isinstance(item, VectorItem):
                return (yield)
            return (yield from super().pytest_runtest_call(item))

    return TracingPlugin(lambda _source: Recording())
