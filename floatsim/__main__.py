"""`python -m floatsim` is the command `floatsim`."""

from floatsim.cli.main import main

if __name__ == "__main__":
    main()
