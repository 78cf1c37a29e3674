"""The command torchstone, also as python -m torchstone."""

import sys


def main() -> None:
    """Run the command line of this process; an interrupt while it is being imported ends it as any other does."""
    try:
        from torchstone.cli.main import main as run_commands

        run_commands()
    except KeyboardInterrupt:
        from torchstone.errors import EXIT_INTERRUPTED

        sys.stderr.write("torchstone: interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
