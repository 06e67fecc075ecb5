"""The command `floatsim`, also as `python -m floatsim`."""

import sys
import traceback

try:
    from floatsim.cli.main import main
except Exception:  # a missing package. The exit code of Python is 1, which means a difference
    traceback.print_exc()
    sys.exit(3)

if __name__ == "__main__":
    main()
