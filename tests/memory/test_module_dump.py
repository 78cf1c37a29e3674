from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.style import Style, module_dump
from torchstone.memory.mlir_text import ModuleDumpReader, OpReader
from torchstone.record.memory import ArgumentKind, CompiledModule


def modules_in(lines: list[str], *, stage: str = "ttnn") -> list[CompiledModule]:
    reader = ModuleDumpReader(OpReader())
    reader.begin(stage)
    for line in lines:
        reader.feed(line.encode())
    reader.end()
    return reader.modules


def test_arguments_come_with_kind_name_and_size() -> None:
    graph = random_graph(3)
    lines = module_dump(graph, Style())

    (module,) = modules_in(lines[lines.index("#dram = #ttnn.buffer_type<dram>") : -1])

    assert module.name == graph.module
    assert [(found.name, found.kind.value, found.size_bytes) for found in module.arguments] == [
        (argument.name, argument.kind, argument.tensor.logical_bytes()) for argument in graph.arguments
    ]


def test_a_local_shape_is_the_size_on_one_chip() -> None:
    (module,) = modules_in(
        [
            "func.func @main(%arg0: tensor<64x64xf32> {ttcore.argument_type = #ttcore.argument_type<default>, "
            "ttcore.kv_cache, "
            "ttcore.local_shape = #ttcore<local_shape local_shape = tensor<8x64xf32>>} loc(unknown)) -> () {",
            "return",
        ]
    )

    assert module.arguments[0].size_bytes == 8 * 64 * 4
    assert module.arguments[0].local_shape == (8, 64)
    assert module.arguments[0].kind is ArgumentKind.INPUT
    assert module.arguments[0].is_kv_cache


def test_the_same_graph_compiled_again_is_one_module() -> None:
    reader = ModuleDumpReader(OpReader())
    for _ in range(2):
        reader.begin("ttnn")
        reader.feed(b"func.func @main(%arg0: tensor<64x64xf32>) -> () {")
        reader.end()

    assert len(reader.modules) == 1


def test_other_stages_are_passed_over() -> None:
    assert modules_in(["func.func @main(%arg0: tensor<64x64xf32>) -> () {"], stage="ttir") == []


def test_a_private_function_is_not_the_graph() -> None:
    assert modules_in(["func.func private @f(%arg0: tensor<64x64xf32>) -> () {"]) == []


def test_a_signature_that_breaks_off_gives_no_module() -> None:
    assert modules_in(["func.func @main(%arg0: tensor<64x64xf32>, %arg1: ten"]) == []


def test_the_alignment_of_rows_comes_from_the_system_description() -> None:
    reader = ModuleDumpReader(OpReader())
    reader.begin("ttnn")
    reader.feed(b"#system_desc = #ttcore.system_desc<[{noc_dram_address_align_bytes = 64}]>")

    assert reader.row_alignment_bytes == 64
    assert reader.is_open
