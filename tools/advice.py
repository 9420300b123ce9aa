"""Compares the adviser's figures with full simulations of the traces at hand, and writes the table into
docs/measurements/advice.md.

  advice.py COVERAGE [TRACES]
"""

import pathlib
import subprocess
import sys

from pages import TRACES, put

PAGE = pathlib.Path("docs/measurements/advice.md")


def main():
    program, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else str(TRACES)
    found = subprocess.run([program, folder], check=True, stdout=subprocess.PIPE, text=True)
    PAGE.write_text(put(PAGE.read_text(), "coverage", found.stdout.strip()))


if __name__ == "__main__":
    main()
