"""torchstone serve [DIR]: the reports of a folder in a browser."""

from contextlib import suppress
from pathlib import Path

import click

from torchstone.cli.options import Session, common_options

DEFAULT_PORT = 8765


@click.command()
@click.argument("folder", metavar="[DIR]", default=Path(), type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=click.IntRange(1, 65_000),
    help="First port to try; if it is taken, the next free one is used.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; an address that other machines can reach requires --token.",
)
@click.option("--token", is_flag=True, help="Require a token, which is part of the printed address.")
@click.option("--open", "open_page", is_flag=True, help="Open the index in the browser.")
@common_options
@click.pass_obj
def command(session: Session, folder: Path, *, port: int, host: str, token: bool, open_page: bool) -> None:
    """Serve all reports below DIR (default: the current folder) to a browser, until Ctrl-C.

    Only this machine can reach the server unless you set --host, and only files in the folder are served.
    """
    from torchstone.report.server import new_token, open_server

    with (
        open_server(folder, host=host, port=port, token=new_token() if token else "") as server,
        suppress(KeyboardInterrupt),
    ):
        click.echo(server.url)
        if not session.quiet:
            tunnel = f"ssh -L {server.port}:127.0.0.1:{server.port} THIS-HOST"
            click.echo(f"From another machine: {tunnel}, then open the address. Ctrl-C ends it.", err=True)
        if open_page:
            click.launch(server.url)
        server.serve_forever()
