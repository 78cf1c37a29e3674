"""How much of known models maps to ttnn and is accepted on a mock board: op calls and FLOPs, and what is missing.

    python benchmarks/ttnn_mapping.py --python ENV --cache FOLDER [--only capture|judge] [MODEL ...]

Without models, all zoo models and the tiny architectures below. Captures and verdicts are kept in the folder, so that
an interrupted run goes on; a verdict is asked for again where its rule may have changed (--again).
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchstone.backends.ttnn.boards import find_board
from torchstone.backends.ttnn.environment import describe_environment, interpreter_of
from torchstone.errors import TorchstoneError
from torchstone.workflows.map import judge_payloads, payloads_of
from torchstone.workflows.memory_plan import mapping_environment
from torchstone.workflows.model_source import ModelRequest, load_trace

RESULTS = Path(__file__).with_name("results") / "ttnn_mapping.md"
TINY = tuple(
    f"tiny:{name}" for name in (
        "albert", "bart", "beit", "bert", "bloom", "clip", "cohere", "convnext", "data2vec-vision", "deberta-v2",
        "deit", "detr", "dinov2", "distilbert", "efficientnet", "electra", "falcon", "gemma2", "gpt2", "gpt_neox",
        "granite", "gptj", "hubert", "llama", "mamba", "mistral", "mixtral", "mobilenet_v2", "opt", "phi3",
        "qwen2", "qwen3", "regnet", "resnet", "roberta", "segformer", "siglip", "starcoder2", "swin", "t5", "vit",
        "vit_mae", "wav2vec2", "whisper", "xlm-roberta", "yolos",
    )
)  # fmt: skip
MEANING = """\
Every distinct configuration is called once, in bfloat16, tiles and DRAM; shares are rounded down. A mock device has no
values: accepted means that ttnn takes the call, not that its result is right. A test compares each mapping with its op
on the CPU."""
HEAVY = re.compile(r"mm|conv|attention|linear|matmul|dot|einsum")


def zoo() -> list[str]:
    """All models that ship with torchstone."""
    from torchstone.models.zoo.catalogue import entries

    return [one.id for one in entries()]


def captured(model: str, cache: Path) -> list[list[Any]] | str:
    """The distinct configurations of a model with calls and FLOPs, or why there are none."""
    from torchstone.cost import price

    path = cache / f"{re.sub(r'[^A-Za-z0-9.-]', '_', model)}.json"
    if path.exists():
        known: list[list[Any]] | str = json.loads(path.read_text(encoding="utf-8"))
        return known
    try:
        trace = load_trace(ModelRequest(model=model))
        costs, counts = price(trace).signatures, trace.signature_calls()
        keys, _ = payloads_of(trace)
        found: list[list[Any]] | str = [
            [key, counts[number], costs[number].flops * counts[number]] for number, key in enumerate(keys)
        ]
        if trace.failure is not None:
            found = f"its forward pass failed: {trace.failure.error}"
    except (TorchstoneError, ArithmeticError, RuntimeError) as error:  # one model must not end the run
        found = f"{type(error).__name__}: {error}"
    path.write_text(json.dumps(found), encoding="utf-8")
    return found


def verdicts(keys: Iterable[str], cache: Path, python: str, device: str, *, again: bool) -> dict[str, dict[str, Any]]:
    """The answer of each configuration; known ones are not asked for again unless they were not accepted."""
    path = cache / f"verdicts_{device}.jsonl"
    known: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        key, answer = json.loads(line)
        known[key] = answer
    wanted = [key for key in dict.fromkeys(keys) if key not in known or (again and known[key]["outcome"] != "accepted")]
    environment = mapping_environment(find_board(device), interpreter_of(python))
    with path.open("a", encoding="utf-8") as file:
        for at in range(0, len(wanted), 500):
            found = judge_payloads(wanted[at : at + 500], environment)
            known.update(found)
            file.writelines(json.dumps([key, answer]) + "\n" for key, answer in found.items())
            print(f"judged {min(at + 500, len(wanted)):,} of {len(wanted):,}", flush=True)
    return known


def shares(rows: Sequence[Sequence[Any]], answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Calls and FLOPs of configurations that are mapped and accepted; heavy ones are products and convolutions."""
    total, good = Counter[str](), Counter[str]()
    for key, calls, flops in rows:
        answer = answers[key]
        heavy = HEAVY.search(json.loads(key)["op"]) is not None
        for one in (total, good) if answer["outcome"] == "accepted" else (total,):
            one["calls"] += calls
            one["flops"] += flops
            one["heavy"] += flops if heavy else 0
            one["configurations"] += 1
        if answer["outcome"] == "accepted" or answer.get("variant"):
            for name, value in (("calls", calls), ("flops", flops), ("heavy", flops if heavy else 0)):
                good[f"{name}_somehow"] += value
        if answer["outcome"] != "unmapped":
            good["mapped"] += calls
    for name in ("calls", "flops", "heavy"):
        total[f"{name}_somehow"] = total[name]
    return {"total": total, "accepted": good}


def percent(found: dict[str, Any], what: str) -> str:
    """A share in percent, rounded down: 100 means all."""
    total = found["total"][what]
    return "-" if not total else f"{int(10_000 * found['accepted'][what] / total) / 100:.2f}"


def missing(rows: Iterable[Sequence[Any]], answers: dict[str, dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What is not accepted, by op and cause: the largest share of FLOPs and calls first."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for key, calls, flops in rows:
        answer = answers[key]
        if answer["outcome"] != "accepted":
            cause = str(answer.get("cause") or answer.get("detail") or "no mapping")
            name = (json.loads(key)["op"], answer["outcome"], cause[:160], str(answer.get("variant") or ""))
            row = found.setdefault(name, [0, 0, 0])
            for at, value in enumerate((flops, calls, 1)):
                row[at] += value
    return sorted(((*values, *name) for name, values in found.items()), reverse=True)


def written(sets: dict[str, dict[str, list[list[Any]] | str]], answers: dict[str, dict[str, Any]], head: str) -> str:
    """The page."""
    titles = ("set", "models", "configurations", "calls", "calls mapped, %", "calls accepted, %", "FLOPs accepted, %",
              "of products, convolutions and attention, %", "the same, with another layout, %")  # fmt: skip
    lines = ["# Operator mapping: calls that ttnn accepts on a mock board", "", head, "", *_head(titles)]
    for title, models in sets.items():
        rows = [row for one in models.values() if isinstance(one, list) for row in one]
        if rows:
            of = shares(rows, answers)
            of["total"]["mapped"] = of["total"]["calls"]
            counted = sum(isinstance(one, list) for one in models.values())
            cells = [title, counted, f"{len({row[0] for row in rows}):,}", f"{of['total']['calls']:,}"]
            kinds = ("mapped", "calls", "flops", "heavy", "heavy_somehow")
            lines.append(_row([*cells, *(percent(of, what) for what in kinds)]))
    lines += ["", MEANING]
    for title, models in sets.items():
        rows = [row for one in models.values() if isinstance(one, list) for row in one]
        lines += ["", f"## Not accepted: {title}", ""]
        lines += _head(("FLOPs", "calls", "configurations", "op", "outcome", "cause", "accepted with"))
        for flops, calls, count, op, outcome, cause, variant in missing(rows, answers)[:40]:
            lines.append(_row([f"{flops:.3g}", f"{calls:,}", count, op, outcome, cause, variant or "-"]))
        lines += ["", *(f"Not captured: {name}: {one[:120]}" for name, one in models.items() if isinstance(one, str))]
        lines += ["", f"## {title}", "", *_head(("model", "calls", "calls accepted, %", "FLOPs accepted, %"))]
        for name, one in models.items():
            if isinstance(one, list) and one:
                of = shares(one, answers)
                lines.append(_row([name, f"{of['total']['calls']:,}", percent(of, "calls"), percent(of, "flops")]))
    return "\n".join(lines) + "\n"


def _head(titles: Sequence[str]) -> list[str]:
    return [_row(titles), _row(["---"] * len(titles))]


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def main() -> None:
    """Capture, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--python", default="")
    parser.add_argument("--device", default="n150")
    parser.add_argument("--cache", type=Path, default=Path(".cache/ttnn_mapping"))
    parser.add_argument("--only", choices=("capture", "judge"))
    parser.add_argument("--again", action="store_true", help="ask again for what was not accepted")
    parser.add_argument("--result", type=Path, default=RESULTS)
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    named = {"given": given.models} if given.models else {"zoo models": zoo(), "tiny architectures": list(TINY)}
    sets: dict[str, dict[str, list[list[Any]] | str]] = {}
    for title, models in named.items():
        sets[title] = {}
        for model in models:
            sets[title][model] = captured(model, given.cache)
            print(f"captured {model}", flush=True)
    if given.only == "capture":
        return
    keys = [row[0] for models in sets.values() for one in models.values() if isinstance(one, list) for row in one]
    answers = verdicts(keys, given.cache, given.python, given.device, again=given.again)
    version = describe_environment(interpreter_of(given.python)).ttnn
    head = f"{datetime.now(tz=UTC):%Y-%m-%d}, ttnn {version}, mock {given.device}. `python benchmarks/ttnn_mapping.py`"
    given.result.write_text(written(sets, answers, head), encoding="utf-8")


if __name__ == "__main__":
    main()
