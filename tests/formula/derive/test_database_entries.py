from tests.formula.derive.benches import llama_library, torch_library
from torchstone.formula.algebra.polynomial import ZERO, Polynomial
from torchstone.formula.database.files import Formulas, key_of
from torchstone.formula.database.templates import problems_of
from torchstone.formula.derive.code_paths import Body, Branch, Derived, Part
from torchstone.formula.derive.database_entries import Origin, make_entries
from torchstone.record.formula import FormulaEntry, Quantity, Status


def entry(short: str) -> FormulaEntry:
    (found,) = (
        one
        for library in (torch_library(), llama_library())
        for name, one in library.entries.items()
        if name.rpartition(".")[2] == short and (library is torch_library()) == name.startswith("torch.")
    )
    return found


def test_a_switch_becomes_a_parameter_with_a_default() -> None:
    linear = entry("Linear")

    assert linear.flop_analysis.parameters == ("batch_elements", "input_features", "output_features", "bias")
    assert linear.defaults == {"bias": "0", "dtype_bytes": "2"}
    assert linear.aliases == ("torch.nn.Linear",)


def test_attention_reads_like_its_code() -> None:
    attention = entry("LlamaAttention")

    assert attention.flop_analysis.formula_template.startswith(
        "{Linear}(batch_elements=${B} * ${S}, input_features=${hidden_size}, "
        "output_features=${head_dim} * ${num_heads}) + 2 * {Linear}("
    )
    assert "4 * ${B} * ${S}**2 * ${head_dim} * ${num_heads}" in attention.flop_analysis.formula_template
    assert attention.defaults["num_kv_heads"] == "num_heads"
    assert attention.domain == ("num_heads % num_kv_heads == 0", "head_dim % 2 == 0", "head_dim <= 256")
    assert attention.code_location is not None
    assert attention.code_location.file == "transformers/models/llama/modeling_llama.py"


def test_every_entry_says_how_it_was_checked() -> None:
    for one in llama_library().entries.values():
        assert one.validation.status is Status.VALIDATED
        assert one.validation.validator == "derived"
        assert one.evidence is not None
        assert one.evidence.max_error == "0"
        assert one.evidence.points_checked >= 8
        assert set(one.versions) == {"torch", "transformers"} or one.module_path.startswith("torch.")


def test_made_entries_are_sound() -> None:
    entries = llama_library().entries.values()

    assert list(problems_of(Formulas(entries={key_of(one.module_path, one.variant): one for one in entries}))) == []


def test_the_parts_of_a_breakdown_are_there_for_each_op() -> None:
    layer = entry("LlamaDecoderLayer")

    assert layer.flop_analysis.breakdown["add"] == "2 * ${B} * ${S} * ${hidden_size}"
    assert layer.template(Quantity.WEIGHTS) is not None


def test_a_case_that_the_other_one_includes_is_not_written_out() -> None:
    """S * 3 is B * S * 3 where B is 1; S * 4 is not."""
    batch, length = Polynomial.unknown("B"), Polynomial.unknown("S")

    def flops(of_one: Polynomial) -> str:
        yes, no = (
            Body(parts=(Part(op="aten.mul.Tensor", forms=(one, one, one)),), inner=(), weights=ZERO)
            for one in (of_one, batch * length * Polynomial.constant(3))
        )
        derived = Derived(
            class_name="pkg.Net",
            body=Branch(subject=batch, equals=1, yes=yes, no=no),
            parameters=("B", "S"),
            switches=(),
            domain=(),
            points=8,
            held_out=2,
        )
        return make_entries({"pkg.Net": derived}, Origin(), {})["pkg.Net"].flop_analysis.formula_template

    assert flops(length * Polynomial.constant(3)) == "3 * ${B} * ${S}"
    assert flops(length * Polynomial.constant(4)) == "4 * ${S} if ${B} == 1 else 3 * ${B} * ${S}"
