from dataclasses import replace

from tests.memory.log_generator.graphs import Graph, random_graph
from tests.memory.timelines import study_of
from torchstone.memory.ledger import live_before
from torchstone.memory.usage import find_peaks, module_shares


def located(graph: Graph) -> Graph:
    graph.ops = [
        replace(op, location=f'"{number}|Net[]|Block[blocks.{number % 2}]|net.py:1|forward|2|aten__x"')
        for number, op in enumerate(graph.ops)
    ]
    return graph


def test_ops_and_peak_bytes_are_shared_out_over_modules() -> None:
    study, _ = study_of([located(random_graph(3))])
    peak = find_peaks(study)[0]
    dram = live_before(study, peak.op)[0]

    shares = module_shares(study, dram)

    assert {share.path for share in shares} == {"blocks.0", "blocks.1"}
    run = study.timeline.programs[study.timeline.graphs[0].runs[-1]]
    assert sum(share.ops for share in shares) == run.end_op - run.first_op
    activations = sum(buffer.padded_bytes for buffer in dram.buffers if buffer.op >= 0)
    assert sum(share.peak_bytes for share in shares) == activations


def test_without_module_paths_there_are_no_shares() -> None:
    study, _ = study_of([random_graph(3)])

    assert module_shares(study, None) == ()
