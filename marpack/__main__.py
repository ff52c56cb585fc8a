"""`python -m marpack`, the same as `marpack`."""

from marpack.cli.main import main

if __name__ == "__main__":
    main()
