"""Tables and figures of the papers, made anew: python3 tools/reproduce PROGRAM [STUDY ...]; without a name all of
them. Runs the program on the traces that are there (UNDERCROFT_TRACES, else ../shared/traces), computes the verdict
on each published statement, and writes the pages, the pictures and the index in docs/measurements.

    python3 tools/reproduce target/release/undercroft tpds-table2
    python3 tools/reproduce --list

The studies are listed in `studies`, the published figures in `published`, the traces in `runs`.
"""

import argparse
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent))

import runs  # noqa: E402
import studies  # noqa: E402
from pages import put, table  # noqa: E402

FOLDER = pathlib.Path("docs/measurements")
INDEX = FOLDER / "reproduction.md"


def picture_of(study):
    return f"pictures/reproduction-{study.name}.svg"


def make(program, study):
    """Makes one study anew; its line in the index."""
    import pictures

    here = [trace for trace in study.traces if trace.is_here()]
    absent = [f"{trace.file} ({trace.what})" for trace in study.traces if not trace.is_here()]
    if study.traces and not here:
        print(f"reproduce: {study.name} stays as it is: no trace in {runs.TRACES}")
        return None
    started = time.monotonic()
    found = study.make(program, here)
    if study.has_picture:
        pictures.draw(found.panels, FOLDER / picture_of(study), found.columns)
    page = FOLDER / "reproduction" / f"{study.page}.md"
    missing = "; ".join(filter(None, [study.missing, *absent]))
    text = found.markdown(f"../{picture_of(study)}", f"{study.title}: {study.what}", missing)
    page.write_text(put(page.read_text(), study.name, text))
    print(f"reproduce: {study.name} is in {page} ({time.monotonic() - started:.0f} s)", flush=True)
    return [f"[{study.title}](reproduction/{study.link()})", study.what, f"`{study.name}`", found.verdict()]


def kept(study):
    """The line of a study that the index has already."""
    for line in INDEX.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 4 and cells[2] == f"`{study.name}`":
            return cells
    return [f"[{study.title}](reproduction/{study.link()})", study.what, f"`{study.name}`", "not made yet"]


def main():
    as_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="reproduce", description=__doc__, formatter_class=as_is)
    parser.add_argument("program", nargs="?", help="undercroft")
    parser.add_argument("studies", nargs="*", metavar="STUDY")
    parser.add_argument("--list", action="store_true", help="name, page and picture of each study")
    options = parser.parse_args()
    if options.list:
        for study in studies.ALL:
            print(study.name, f"reproduction/{study.link()}", picture_of(study) if study.has_picture else "-")
        return
    if not options.program:
        parser.error("name the program, or --list")
    names = [study.name for study in studies.ALL]
    for name in options.studies:
        if name not in names:
            parser.error(f"no study {name}; there are {', '.join(names)}")
    program = runs.Program(options.program)
    for study in studies.ALL:
        if options.studies and study.name not in options.studies:
            continue
        line = make(program, study)
        if line:
            lines = [line if other is study else kept(other) for other in studies.ALL]
            index = table(["table or figure", "of what", "study", "verdict"], lines)
            INDEX.write_text(put(INDEX.read_text(), "index", index))


main()
