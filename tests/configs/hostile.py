"""Documents of other tools with one part replaced by something else: what a broken writer may leave behind."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.configs.samples import MACHINE, entry_v2, execution, master_v1, master_v2, new_tensor, old_arguments
from tests.configs.test_ttnn_graph import call as graph_call
from tests.configs.test_ttnn_operations import call as operation_call
from tests.configs.test_ttnn_report import call as report_call

Path = tuple[str | int, ...]

STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    "",
    "x",
    "{...}",
    [],
    {},
    [None],
    [[]],
    {"a": None},
    {"type": "ttnn.Tensor"},
    2**70,
)
DOCUMENTS: tuple[Any, ...] = (
    master_v1({"arguments": old_arguments(), "source": "x"}),
    master_v1({"arguments": old_arguments(), "contexts": [{"source": ["a"], "machine_info": [MACHINE]}]}),
    master_v2(
        entry_v2({"arg0": new_tensor([1])}, config_hash="a" * 64, executions=[execution(trace_run_ids=[1])]),
        entry_v2({"arg0": {"type": "Shape", "value": "Shape([1])"}}),
    ),
    {"content": [{"operation": "ttnn::add", "arguments": old_arguments()}]},
    graph_call(0, "ttnn::relu"),
    operation_call(values=[[1, 2]]),
    {"version": 1, "graph": graph_call(0, "ttnn::relu"), "python_io": [report_call(1, 2)]},
)


def paths_in(document: Any, here: Path = ()) -> Iterator[Path]:
    """The way to every part of a document."""
    yield here
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, part in pairs:
        yield from paths_in(part, (*here, key))


def replaced(document: Any, path: Path, part: Any) -> Any:
    """A document with something else in one place."""
    if not path:
        return part
    key, *rest = path
    if isinstance(document, dict):
        return {**document, key: replaced(document[key], tuple(rest), part)}
    return [replaced(item, tuple(rest), part) if place == key else item for place, item in enumerate(document)]


def _broken(document: Any) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda path, part: replaced(document, path, part),
        st.sampled_from(list(paths_in(document))),
        st.sampled_from(STRANGE),
    )


broken_documents = st.sampled_from(DOCUMENTS).flatmap(_broken)
