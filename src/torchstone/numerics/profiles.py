"""What a correct implementation may do: the profiles that a verdict can be asked for. Importable without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

SUSPICIOUS_ABOVE = 2.0  # times the noise
WRONG_ABOVE = 3.0
GUIDE = "docs/how-it-works/verdicts.md"


@dataclass(frozen=True)
class Profile:
    """What a correct implementation may do; `format` None means the dtype that the code has."""

    name: str
    format: str | None = None  # the format of activations
    weights: str | None = None  # of what the code reads and does not make; None: as activations
    libraries: bool = True  # kernels of another library: exp, erf and others may be off by more than one step
    roundings: float = 0.5  # by how many steps of a narrow format a result may be off, beside its own rounding


PROFILES = {
    "exact": Profile("exact", libraries=False),
    "default": Profile("default"),
    "tt": Profile("tt", format="bfloat16", roundings=1.0),
    "tt-bfloat8_b": Profile("tt-bfloat8_b", format="bfloat16", weights="bfloat8_b", roundings=1.0),
    "tt-bfloat4_b": Profile("tt-bfloat4_b", format="bfloat16", weights="bfloat4_b", roundings=1.0),
}


def profile_for(profile: Profile, number_format: str) -> Profile:
    """The profile for a candidate whose values have a format: it says so itself, or the candidate does."""
    return profile if profile.format else replace(profile, format=number_format)


def rule_in_words(profile: str = "", *, asked: bool = False) -> str:
    """What the verdicts of a report rest on, with the page that explains it; `asked`: by tolerances of the user."""
    which = f" (profile {profile})" if profile else ""
    by_noise = (
        f"by noise{which}: passed up to {SUSPICIOUS_ABOVE:g} times, suspicious up to {WRONG_ABOVE:g} times "
        "the error of a correct implementation, wrong beyond"
    )
    rule = "by the tolerances that were asked for" if asked else by_noise
    return f"Judged {rule}. How a verdict is made: {GUIDE}"
