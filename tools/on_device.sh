#!/usr/bin/env bash
# Run everything that needs a GPU, in one command, without installing anything:
#
#     bash tools/on_device.sh OUT [--seconds 480] [--rows 20000]
#
# It needs Python 3.11 or newer (python3, or PYTHON=...) with the dependencies of floatsim and with CuPy and NVRTC, and
# no network. OUT gets summary.txt, recordings.tgz and logs.tgz. The exit code is the number of stages that did not run,
# or 99 if nothing could be started or the results could not be written. A difference from the emulator is a finding:
# the summary lists it, and the exit code does not count it.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 99
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "on_device.sh: $python is not Python 3.11 or newer; PYTHON=... names another one" >&2
    exit 99
}
export PYTHONPATH="$root:$root/kernels${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" "$root/tools/on_device.py" "$@"
