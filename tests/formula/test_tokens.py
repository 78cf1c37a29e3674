import pytest

from torchstone.formula.tokens import MAX_CHARACTERS, Kind, TemplateError, is_parameter_name, read_tokens


def kinds(text: str) -> list[Kind]:
    return [token.kind for token in read_tokens(text)]


def test_each_word_has_its_kind_and_place() -> None:
    tokens = read_tokens("2 * ${B} + {torch.nn.Linear}(min(x))")

    assert [token.text for token in tokens] == [
        "2",
        "*",
        "B",
        "+",
        "torch.nn.Linear",
        "(",
        "min",
        "(",
        "x",
        ")",
        ")",
        "",
    ]
    assert [token.position for token in tokens][:5] == [0, 2, 4, 9, 11]
    assert tokens[-1].kind is Kind.END


def test_a_parameter_may_leave_its_sigil_away() -> None:
    assert kinds("num_heads") == kinds("${num_heads}") == [Kind.PARAMETER, Kind.END]


def test_a_module_may_name_its_variant() -> None:
    assert [token.text for token in read_tokens("{ Net[eager] }")] == ["Net[eager]", ""]


@pytest.mark.parametrize("text", ["$B", "${}", "{}", "a.b", "'x'", "a[0]", "é", "x & y", "${a.b}", "{A B}", "@", "\0"])
def test_what_is_not_in_the_language_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(TemplateError, match=r"cannot read .* at character \d"):
        read_tokens(text)


def test_a_template_of_absurd_length_is_refused() -> None:
    with pytest.raises(TemplateError, match="too long"):
        read_tokens("1+" * MAX_CHARACTERS)


def test_a_number_of_absurd_length_is_refused() -> None:
    with pytest.raises(TemplateError, match="a number of 5000 digits is too long"):
        read_tokens("7" * 5000)


@pytest.mark.parametrize("name", ["min", "if", "not", "_x", "a-b", "", "1a", "é"])
def test_words_of_the_language_are_no_parameter_names(name: str) -> None:
    assert not is_parameter_name(name)


def test_config_attributes_are_parameter_names() -> None:
    assert all(is_parameter_name(name) for name in ("B", "num_key_value_heads", "d_model2"))
