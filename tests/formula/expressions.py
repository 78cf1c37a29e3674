"""Random expressions, with and without calls of other modules."""

from fractions import Fraction

from hypothesis import strategies as st

from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
    Expression,
    Function,
    FunctionName,
    Logical,
    Negate,
    Not,
    Number,
    Operator,
    Parameter,
    Product,
    Relation,
    Sum,
)

PARAMETERS = ("B", "S", "hidden_size", "min_heads", "if_any")
ONE_ARGUMENT = [FunctionName.CEIL, FunctionName.FLOOR, FunctionName.CEIL_LOG2]
MODULES = ("Linear", "torch.nn.Linear", "pkg.mod_x.Net[eager]")

numbers = st.one_of(
    st.integers(-50, 50), st.integers(), st.fractions(min_value=-9, max_value=9, max_denominator=7)
).map(Number)
parameters = st.sampled_from(PARAMETERS).map(Parameter)


def _several(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[tuple[Expression, ...]]:
    return st.lists(parts, min_size=2, max_size=4).map(tuple)


def _larger(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        _several(parts).map(Sum),
        _several(parts).map(Product),
        parts.map(Negate),
        st.builds(Binary, st.sampled_from(Operator), parts, parts),
        st.builds(Compare, st.sampled_from(Relation), parts, parts),
        st.builds(Logical, st.sampled_from(Connective), _several(parts)),
        parts.map(Not),
        st.builds(Choose, parts, parts, parts),
        st.builds(Function, st.sampled_from([FunctionName.MIN, FunctionName.MAX]), _several(parts)),
        st.builds(Function, st.sampled_from(ONE_ARGUMENT), st.tuples(parts)),
    )


def _with_calls(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    named = st.dictionaries(st.sampled_from(PARAMETERS), parts, max_size=2).map(lambda given: tuple(given.items()))
    call = st.builds(Call, st.sampled_from(MODULES), st.lists(parts, max_size=2).map(tuple), named)
    return st.one_of(_larger(parts), call)


call_free: st.SearchStrategy[Expression] = st.recursive(st.one_of(numbers, parameters), _larger, max_leaves=12)
expressions: st.SearchStrategy[Expression] = st.recursive(st.one_of(numbers, parameters), _with_calls, max_leaves=12)
values = st.one_of(st.integers(-20, 20), st.builds(Fraction, st.integers(-9, 9), st.integers(1, 5)))
