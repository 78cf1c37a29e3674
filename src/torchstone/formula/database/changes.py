"""Two databases -> which formulas changed, as removed and added terms."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torchstone.formula.database.files import with_variant
from torchstone.formula.language.expression import Expression, Sum
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show
from torchstone.record.formula import FormulaEntry, Quantity

Terms = tuple[list[str], list[str]]  # gone, new


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one entry."""

    name: str
    kind: str  # added, removed or changed
    fields: dict[str, Terms]
    versions: str = ""  # of the libraries: transformers 5.1.0 -> 5.2.0

    @property
    def differs(self) -> bool:
        """Whether a formula that both databases have is another."""
        return self.kind == "changed"

    @property
    def title(self) -> str:
        """One line: name, kind, versions."""
        return f"{self.kind}: {self.name}" + (f" ({self.versions})" if self.versions else "")


def changes(old: Mapping[str, FormulaEntry], new: Mapping[str, FormulaEntry]) -> list[Change]:
    """Every entry that is not the same in both, by name."""
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        name = _name(before or after)
        if before is None:
            found.append(Change(name=name, kind="added", fields={}))
        elif after is None:
            found.append(Change(name=name, kind="removed", fields={}))
        else:
            fields = _fields(before, after)
            if fields:
                found.append(Change(name=name, kind="changed", fields=fields, versions=_versions(before, after)))
    return found


def _name(entry: FormulaEntry | None) -> str:
    assert entry is not None  # noqa: S101 - the key is in one of the two
    return with_variant(entry.module_path, entry.variant)


def _fields(before: FormulaEntry, after: FormulaEntry) -> dict[str, Terms]:
    pairs = {str(quantity): (before.template(quantity), after.template(quantity)) for quantity in Quantity}
    fields = {name: _terms(old, new) for name, (old, new) in pairs.items() if old != new}
    if set(before.domain) != set(after.domain):
        gone = [one for one in before.domain if one not in after.domain]
        fields["domain"] = (gone, [one for one in after.domain if one not in before.domain])
    return fields


def _terms(old: str | None, new: str | None) -> Terms:
    before, after = Counter(_parts(old)), Counter(_parts(new))
    return list((before - after).elements()), list((after - before).elements())


def _parts(template: str | None) -> list[str]:
    if template is None:
        return []
    tree = parse(template)
    terms: tuple[Expression, ...] = tree.terms if isinstance(tree, Sum) else (tree,)
    return [show(term, plain=True) for term in terms]


def _versions(before: FormulaEntry, after: FormulaEntry) -> str:
    names = sorted({*before.versions, *after.versions})
    changed = [name for name in names if before.versions.get(name) != after.versions.get(name)]
    return ", ".join(f"{name} {before.versions.get(name, '?')} -> {after.versions.get(name, '?')}" for name in changed)
