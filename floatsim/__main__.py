"""`python -m floatsim` is the command `floatsim`."""

from floatsim.cli import main

if __name__ == "__main__":
    main()
