"""torchstone formula: what a module class costs, as a formula."""

import click

from torchstone.cli import (
    formula_agent,
    formula_approve,
    formula_derive,
    formula_diff,
    formula_eval,
    formula_generate,
    formula_list,
    formula_show,
    formula_solve,
    formula_validate,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """What a module class costs, as a formula of its parameters.

    `list` and `show` look at the formulas that are known, `eval` computes one, `solve` finds the largest batch that
    fits, `generate` writes them all as a Python package. NAME is a class path, such as torch.nn.Linear, or the class
    name alone where only one class has it. None of this needs torch.
    """


for name, one in (
    ("list", formula_list),
    ("show", formula_show),
    ("eval", formula_eval),
    ("solve", formula_solve),
    ("generate", formula_generate),
    ("derive", formula_derive),
    ("validate", formula_validate),
    ("diff", formula_diff),
    ("agent", formula_agent),
    ("approve", formula_approve),
):
    command.add_command(one.command, name)
