"""What the adviser costs a server: reads that all hit, with `adviser=yes` and `adviser=no`, in turn. Prints a table with
medians and ranges.

  advice.py UNDERCROFT [--rounds N] [--seconds S] [--instructions]

With --instructions the server runs under callgrind instead, once for each way; that counts the adviser's thread, too,
which gets no more processor time than nobody else wants.
"""

import recording

WITHOUT = "adviser=no"
WAYS = {WITHOUT: ",adviser=no", "adviser=yes": ",adviser=yes"}

if __name__ == "__main__":
    recording.main(WAYS, WITHOUT)
