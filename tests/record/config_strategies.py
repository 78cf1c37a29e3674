"""Hypothesis strategies for configurations and what is known about them."""

from hypothesis import strategies as st

from tests.record.strategies import arguments, numbers, texts, tuples_of, values
from torchstone.record.config import (
    Configuration,
    Damage,
    ForeignName,
    Occurrence,
    SeenConfiguration,
    TensorFacts,
    TraceFormat,
    TraceRun,
)
from torchstone.record.op import Phase
from torchstone.record.value import Entries

storable = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
counts = st.none() | st.integers(min_value=0, max_value=2**40)
details = st.none() | st.builds(Entries, entries=tuples_of(st.tuples(texts, values), most=2))
places = st.sampled_from(["", "a", "b"])
shares = st.none() | st.floats(min_value=0, max_value=1)

configurations = st.builds(
    Configuration,
    op=st.sampled_from(["aten.mm.default", "ttnn.add"]) | storable,
    arguments=tuples_of(arguments),
    aliases=tuples_of(tuples_of(st.integers(0, 5)), most=2),
    machine=st.none() | values,
)
occurrences = st.builds(
    Occurrence,
    source=places | storable,
    run=places,
    model=places,
    phase=st.none() | st.sampled_from(Phase),
    module_path=places,
    call_site=places,
    details=details,
    count=counts,
)
finite = st.floats(allow_nan=False, allow_infinity=False)
facts = st.builds(
    TensorFacts,
    tensor=st.integers(0, 2),
    lowest=st.none() | numbers | finite,
    highest=st.none() | numbers | finite,
    has_nan=st.none() | st.booleans(),
    has_inf=st.none() | st.booleans(),
    fewest_zeros=shares,
    most_zeros=shares,
    values=st.none() | tuples_of(numbers | finite | st.booleans()),
)
foreign_names = st.builds(ForeignName, format=places, hash=places, rule=places, op=texts, details=details)
damages = st.builds(Damage, where=places, kind=places, text=texts, repaired=st.booleans())


def seen_of(configuration: st.SearchStrategy[Configuration]) -> st.SearchStrategy[SeenConfiguration]:
    return st.builds(
        SeenConfiguration,
        configuration=configuration,
        occurrences=tuples_of(occurrences),
        facts=tuples_of(facts),
        foreign=tuples_of(foreign_names, most=2),
        damage=tuples_of(damages, most=2),
    )


seen = seen_of(configurations)
runs = st.builds(
    TraceRun,
    source=storable,
    run=storable,
    format=st.sampled_from(TraceFormat),
    details=details,
    kept_lines=tuples_of(st.tuples(st.integers(0, 9), texts), most=2),
)
