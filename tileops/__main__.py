"""The entry point of ``python -m tileops``."""

from tileops.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
