"""Tables and marked places in the documents, for the tools that measure and write there."""

import os
import pathlib

# Where real traces are; they are not part of the repository.
TRACES = pathlib.Path(os.environ.get("UNDERCROFT_TRACES", "../shared/traces"))


def table(heading, lines):
    """A table in Markdown."""
    rows = [heading, ["---"] * len(heading), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def put(text, mark, content):
    """A document with the content between the two marks of that name."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end {mark} -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + content + "\n\n" + end + rest.split(end)[1]
