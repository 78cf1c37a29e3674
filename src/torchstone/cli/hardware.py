"""torchstone hardware: the devices whose time `torchstone cost --hardware` predicts."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from torchstone.record.cost import Hardware

_TERA = 1e12
_GIGA = 1e9


@click.group(invoke_without_command=True)
@json_option
@common_options
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the devices that `torchstone cost --hardware` knows, or measure this machine's CPU.

    Describe any other device in a TOML file: start from `torchstone hardware show n150 > device.toml`, and use it with
    `torchstone cost MODEL --hardware device.toml`.
    """
    if context.invoked_subcommand is not None:
        return
    from torchstone.cost.roofline import presets

    devices = list(presets().values())
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"schema": "torchstone/hardware/1", "hardware": devices}))
        return
    click.echo(_table(devices))


def _table(devices: "list[Hardware]") -> str:
    from torchstone.report.text import aligned
    from torchstone.units import show_bytes

    rows = [("name", "device", "memory", "GB/s", "TFLOP/s by element type, dense")]
    rows.extend(
        (
            one.name,
            one.title,
            show_bytes(one.memory_bytes),
            f"{one.memory_bytes_per_s / _GIGA:,.0f}{'?' if 'bandwidth_gb_per_s' in one.unconfirmed else ''}",
            ", ".join(f"{dtype} {rate / _TERA:.4g}{_mark(one, dtype)}" for dtype, rate in one.peak_flops.items()),
        )
        for one in devices
    )
    hint = (
        "? assumed, derived, or stated differently by other documents: `torchstone hardware show NAME` names them all"
    )
    return f"{aligned(rows, right=(2, 3))}\n\n{hint}"


def _mark(device: "Hardware", dtype: str) -> str:
    """A question mark behind a rate that no document confirms."""
    return "" if {"peak_tflops", f"peak_tflops.{dtype}"}.isdisjoint(device.unconfirmed) else "?"


@command.command("show")
@click.argument("name")
@common_options
def show(name: str) -> None:
    """Print one device and the source of its numbers, as a TOML file for --hardware."""
    from torchstone.cost.roofline import find_hardware, hardware_toml

    click.echo(hardware_toml(find_hardware(name)), nl=False)


@command.command("measure")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Also write the result to this TOML file.")
@common_options
@click.pass_obj
def measure(session: Session, out: Path | None) -> None:
    """Measure this machine's CPU with torch: matmul rate, memory bandwidth, launch time of a small op."""
    from importlib.util import find_spec

    from torchstone.cost.roofline import hardware_toml
    from torchstone.record.codec import write_atomically

    if find_spec("torch") is None:
        raise MissingExtraError(needed_for="measuring the CPU", extra="torch")
    with step("measuring", session):
        from torchstone.cost.cpu_limits import measure_cpu

        text = hardware_toml(measure_cpu())
    click.echo(text, nl=False)
    if out is not None:
        try:
            write_atomically(out, text.encode())
        except OSError as error:
            msg = f"cannot write {out}: {error.strerror or error}; choose another --out"
            raise InputError(msg) from error
        if not session.quiet:
            click.echo(f"wrote {out}; use it with `torchstone cost MODEL --hardware {out}`", err=True)
