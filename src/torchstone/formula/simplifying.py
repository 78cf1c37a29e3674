"""A formula as short as its domain allows."""

from collections.abc import Sequence

from torchstone.formula.expression import (
    Binary,
    Compare,
    Connective,
    Expression,
    Logical,
    Number,
    Operator,
    Relation,
    rewrite,
)


def within_domain(tree: Expression, conditions: Sequence[Expression]) -> Expression:
    """The formula where the conditions hold: what divides without rest needs no rounding."""
    exact = {(left, right) for condition in conditions for left, right in _divisibilities(condition)}

    def change(node: Expression) -> Expression:
        if isinstance(node, Binary) and node.operator is Operator.FLOOR_DIVIDE and (node.left, node.right) in exact:
            return Binary(Operator.DIVIDE, node.left, node.right)
        return node

    return rewrite(tree, change)


def _divisibilities(condition: Expression) -> list[tuple[Expression, Expression]]:
    """The pairs that a condition says divide without rest."""
    if isinstance(condition, Logical) and condition.connective is Connective.AND:
        return [pair for one in condition.conditions for pair in _divisibilities(one)]
    match condition:
        case Compare(relation=Relation.EQUAL, left=Binary(operator=Operator.MODULO) as rest, right=Number(value=0)):
            return [(rest.left, rest.right)]
        case _:
            return []
