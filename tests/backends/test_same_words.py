from torchstone.backends.failures import same_words

TWO = "no conversion rule for aten.histc.default, transformers.grouped_mm_fallback.default"
THREE = f"no conversion rule for aten.empty_permuted.default, {TWO.removeprefix('no conversion rule for ')}"


def test_the_ops_that_are_named_may_differ_however_long_their_list_is() -> None:
    assert same_words(TWO, THREE)
    assert same_words("no conversion rule for aten.histc.default", THREE)


def test_other_words_are_another_failure() -> None:
    assert not same_words("no conversion rule for aten.histc.default", "no kernel for aten.histc.default")
    assert not same_words("torch.float64 is not supported", "torch.int64 tensors are not supported")
