from tests.report.traces import TraceBuilder, spec, transformer
from torchstone.report.view.modules import depths_of, inclusive_parameters, own_parameters


def test_a_module_counts_its_own_parameters_and_those_below_it() -> None:
    build = TraceBuilder()
    root = build.module("", "Net", weights=[("scale", spec(5))])
    layer = build.module("a", "Block", parent=root)
    build.module("a.b", "torch.nn.Linear", parent=layer, weights=[("weight", spec(2, 3)), ("bias", spec(2))])
    trace = build.build()

    assert [held.elements for held in inclusive_parameters(trace)] == [13, 8, 8]
    assert own_parameters(trace) == (5, 0, 8)


def test_a_tied_parameter_counts_once_where_its_holders_meet_and_once_in_each_of_them() -> None:
    tied, untied = transformer(2, tied=True), transformer(2, tied=False)
    held = dict(zip([module.path for module in tied.modules], inclusive_parameters(tied), strict=True))

    assert held["lm_head"].elements == held["model.embed"].elements == 64_000
    assert inclusive_parameters(untied)[0].elements - held[""].elements == 64_000


def test_three_holders_of_one_tensor_are_counted_once_at_every_height() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    left = build.module("left", "Block", parent=root)
    first = build.module("left.a", "Holder", parent=left, weights=[("w", spec(10))])
    shared = build.modules[first].parameters[0].tensor
    build.module("left.b", "Holder", parent=left, weights=[("w", shared)])
    build.module("right", "Holder", parent=root, weights=[("w", shared)])

    assert [held.elements for held in inclusive_parameters(build.build())] == [10, 10, 10, 10, 10]


def test_a_shared_module_counts_for_both_of_its_parents() -> None:
    build = TraceBuilder()
    root = build.module("", "Net")
    left = build.module("left", "Block", parent=root)
    build.module("left.inner", "Inner", parent=left, other_paths=("right.inner",))
    build.module("left.inner.lin", "torch.nn.Linear", parent=2, weights=[("weight", spec(4))])
    build.module("right", "Block", parent=root)

    assert [held.elements for held in inclusive_parameters(build.build())] == [4, 4, 4, 4, 4]


def test_an_element_type_of_unknown_size_is_counted_apart() -> None:
    build = TraceBuilder()
    build.module("", "Net", weights=[("a", spec(4)), ("b", spec(4, dtype="float3_strange"))])
    (held,) = inclusive_parameters(build.build())

    assert (held.elements, held.size_bytes, held.unsized) == (8, 16, 1)


def test_depth_starts_at_the_root() -> None:
    assert depths_of([-1, 0, 1, 0]) == [0, 1, 2, 1]
