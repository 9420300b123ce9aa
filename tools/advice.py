"""Compares the adviser's figures with full simulations of the traces at hand, and writes the table into
docs/measurements/advice.md. With further arguments, which choose some of the cases (the example `coverage` of lab/tools
explains them), it prints the table instead.

  advice.py COVERAGE [TRACES [PART-OF-A-NAME [BLOCKS]]]
"""

import pathlib
import subprocess
import sys

from pages import TRACES, put

PAGE = pathlib.Path("docs/measurements/advice.md")


def main():
    program, folder, *chosen = sys.argv[1:] if len(sys.argv) > 2 else [sys.argv[1], str(TRACES)]
    found = subprocess.run([program, folder, *chosen], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if chosen:
        print(found)
    else:
        PAGE.write_text(put(PAGE.read_text(), "coverage", found))


if __name__ == "__main__":
    main()
