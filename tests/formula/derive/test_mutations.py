"""Planted wrong formulas: hidden points must contradict every one of them."""

import re
from collections.abc import Iterator
from functools import cache
from random import Random

import msgspec

from tests.formula.derive.benches import bench, seeded
from tests.formula.derive.test_derive_recipe import CASES, entry_of, library_of
from torchstone.errors import FormulaError
from torchstone.formula.database.compute import compute
from torchstone.formula.database.files import Formulas, key_of
from torchstone.formula.derive.gate import formulas_of, judge
from torchstone.formula.derive.library import Library
from torchstone.formula.derive.observe import Observation, observe
from torchstone.formula.derive.recipes import constants_of, measured_hidden, prepare
from torchstone.record.formula import FormulaEntry, Quantity

SUBJECTS = ("EvenOdd", "MultipleOf64", "Above16", "Strided")
WANTED = 200


@cache
def hidden_calls(name: str) -> tuple[Observation, ...]:
    make, sizes = CASES[name]
    subject = prepare(make, sizes, bench())
    module, _ = make(dict.fromkeys(sizes, 8))
    samples = measured_hidden(subject, constants_of(module) | subject.boundaries.numbers, 7)
    return tuple(one for sample in samples for one in observe(sample) if not one.path)


def test_no_planted_mistake_passes_the_gate() -> None:
    caught, missed = 0, []
    mutants = [(name, one) for name in SUBJECTS for one in mutants_of(library_of(name), name)]
    seeded(3).shuffle(mutants)
    for name, mutant in mutants:
        if caught == WANTED:
            break
        library = library_of(name)
        formulas = with_entry(library, mutant)
        if equal_everywhere(formulas_of(library.entries.values()), formulas, mutant, CASES[name][1]):
            continue
        verdict = judge(formulas, hidden_calls(name))
        if verdict.contradictions or not verdict.checked:  # an entry that no point confirms is refused, too
            caught += 1
        else:
            missed.append((name, mutant.flop_analysis.formula_template, mutant.memory_analysis))
    assert missed == []
    assert caught == WANTED


def with_entry(library: Library, entry: FormulaEntry) -> Formulas:
    known = formulas_of(library.entries.values()).entries
    return Formulas(entries={**known, key_of(entry.module_path, entry.variant): entry})


def mutants_of(library: Library, name: str) -> Iterator[FormulaEntry]:
    entry = entry_of(library, name)
    for text in set(mutated(entry.flop_analysis.formula_template, entry.parameters(Quantity.FLOPS))):
        yield msgspec.structs.replace(
            entry, flop_analysis=msgspec.structs.replace(entry.flop_analysis, formula_template=text)
        )
    memory = entry.memory_analysis
    assert memory is not None
    for field in ("reads_template", "writes_template"):
        for text in set(mutated(getattr(memory, field), memory.parameters)):
            yield msgspec.structs.replace(entry, memory_analysis=msgspec.structs.replace(memory, **{field: text}))
    for table in tables(library, entry, CASES[name][1]):
        yield msgspec.structs.replace(
            entry, flop_analysis=msgspec.structs.replace(entry.flop_analysis, formula_template=table)
        )


def mutated(template: str, parameters: tuple[str, ...]) -> Iterator[str]:
    """Another coefficient, off by one, a swapped parameter, a missing branch, a neighbouring threshold."""
    for number in re.finditer(r"(?<![\w}])\d+(?!\w)", template):
        for shift in (1, -1):
            yield f"{template[: number.start()]}{int(number[0]) + shift}{template[number.end() :]}"
    for name in re.finditer(r"\$\{(\w+)\}", template):
        yield f"{template[: name.start()]}({name[0]} + 1){template[name.end() :]}"
        for other in parameters:
            if other not in (name[1], "dtype_bytes"):
                yield f"{template[: name.start()]}${{{other}}}{template[name.end() :]}"
    branch = re.fullmatch(r"(.*) if (.*) else (.*)", template)
    if branch:
        yield branch[1]
        yield branch[3]
        yield f"{branch[3]} if {branch[2]} else {branch[1]}"
    yield f"{template} + 1"


def tables(library: Library, entry: FormulaEntry, sizes: tuple[str, ...]) -> Iterator[str]:
    """The right values at a few settings, and a number elsewhere: what an author who saw these could write."""
    formulas = formulas_of(library.entries.values())
    for seed in range(4):
        random = Random(seed)  # noqa: S311 - not for secrets
        text = "7"
        for _ in range(3):
            point = {name: random.randint(5, 40) for name in sizes}
            value = compute(formulas, entry.module_path, Quantity.FLOPS, point)
            condition = " and ".join(f"${{{name}}} == {size}" for name, size in point.items())
            text = f"{value} if {condition} else ({text})"
        yield text


def equal_everywhere(right: Formulas, wrong: Formulas, entry: FormulaEntry, sizes: tuple[str, ...]) -> bool:
    """Whether a mutant is the same function: it is then no mistake."""
    random = seeded(11)
    for _ in range(60):
        point = {name: random.randint(5, 200) for name in sizes}
        for quantity in (Quantity.FLOPS, Quantity.READS, Quantity.WRITES):
            given = point if quantity is Quantity.FLOPS else {**point, "dtype_bytes": 4}
            try:
                values = [compute(each, entry.module_path, quantity, given) for each in (right, wrong)]
            except FormulaError:
                return False
            if values[0] != values[1]:
                return False
    return True
