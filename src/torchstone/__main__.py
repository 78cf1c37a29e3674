"""python -m torchstone."""

from torchstone.cli.main import main

if __name__ == "__main__":
    main()
