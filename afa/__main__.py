"""Run the command `afa` as `python -m afa`."""

from afa.cli import main

if __name__ == "__main__":
    main()
