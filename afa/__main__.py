"""`python -m afa`: the same as `afa`."""

from afa.cli import main

if __name__ == "__main__":
    main()
