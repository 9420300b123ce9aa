"""The studies that are reproduced: where each stands, what it is, and on which traces it runs."""

import dataclasses
import typing

import cooperation
import locality
import movement
import policies
import queues
import runs
import systems
from runs import CLOUD, MARIADB, OLTP, P3, P6, POSTGRES, POSTGRES_L1, SPRITE


@dataclasses.dataclass(frozen=True)
class Study:
    """One published table or figure."""

    # Also the name of its marks on the page, and of its picture.
    name: str
    page: str
    title: str
    what: str
    make: typing.Callable
    traces: list
    # The published traces that are not here.
    missing: str
    has_picture: bool = True

    def link(self):
        """Of the heading on its page."""
        return f"{self.page}.md#{self.title.lower().replace(' ', '-')}"


TPDS = "the traces of the paper are not public"
POSTER = "the poster's traces (Auspex, TPC-C on DB2) are not public"
HFA = "WebSearch (UMass Trace Repository), FIU, MSN-SFS, Exchange, TPC-E and TPC-C (SNIA IOTTA)"
STREAMS = [POSTGRES, MARIADB, OLTP, SPRITE, POSTGRES_L1, P3, P6, CLOUD]
REFERENCES = [OLTP, SPRITE, POSTGRES_L1]
MOVED = [OLTP, SPRITE, POSTGRES_L1, P6, CLOUD]

CLOCKED = [OLTP, POSTGRES_L1]
TOLD = [POSTGRES, MARIADB, *REFERENCES]


def study(paper, page, number, what, make, traces, has_picture=True):
    missing = (HFA if paper == "HFA" else TPDS) if traces else ""
    name = f"{paper.lower()}-{number.replace(' ', '')}"
    return Study(name, page, f"{paper} {number}", what, make, traces, missing, has_picture)


ALL = [
    study("TPDS", "locality", "table 1", "traces", locality.table1, runs.ALL, False),
    study("TPDS", "locality", "figure 2", "distances at the first level", locality.figure2, REFERENCES),
    study("TPDS", "locality", "figure 3", "distances at the second level", locality.figure3, STREAMS),
    study("TPDS", "locality", "figure 4", "frequencies", locality.figure4, STREAMS),
    study("TPDS", "policies", "table 2", "eight policies and OPT", policies.table2, STREAMS),
    study("TPDS", "policies", "table 3", "hits by distance", policies.table3, STREAMS[:5]),
    study("TPDS", "policies", "figure 8", "ARC and LIRS", policies.figure8, STREAMS),
    study("TPDS", "cooperation", "figure 9", "global algorithms", cooperation.figure9, REFERENCES),
    study("TPDS", "cooperation", "figure 10", "global algorithms, small caches", cooperation.figure10, [OLTP, SPRITE]),
    study("TPDS", "systems", "figure 11", "and 12: a real system", systems.figure11, [], False),
    study("TPDS", "systems", "figure 13", "RAW and OPT", systems.figure13, CLOCKED),
    study("TPDS", "cooperation", "figure 14", "reload thresholds", cooperation.figure14, [POSTGRES, MARIADB]),
    study("TPDS", "systems", "figure 15", "reloads and demotions", systems.figure15, CLOCKED),
    study("TPDS", "systems", "space", "MQ's memory of evicted blocks", systems.space, [], False),
    study("USENIX", "cooperation", "figure 2", "idle distances", cooperation.usenix2, TOLD),
    study("USENIX", "cooperation", "figure 3", "placement at eviction", cooperation.usenix3, TOLD),
    study("USENIX", "cooperation", "figure 4", "the same, small caches", cooperation.usenix4, [OLTP, SPRITE]),
    study("USENIX", "systems", "figure 6", "and on: a real system", systems.usenix6, [], False),
    Study("poster", "cooperation", "Poster", "content-aware caches", cooperation.poster, [SPRITE, POSTGRES_L1], POSTER),
    Study("poster-overhead", "systems", "Poster overhead", "what they cost", systems.overhead, [], "", False),
    study("HFA", "movement", "table 3", "traces", movement.table3, MOVED, False),
    study("HFA", "movement", "table 4", "best gains", movement.table4, MOVED, False),
    study("HFA", "movement", "figure 1", "hint reuse distance", movement.figure1, MOVED),
    study("HFA", "movement", "figure 4", "hit ratios", movement.figure4, MOVED),
    study("HFA", "movement", "figure 5", "response times", movement.figure5, MOVED),
    study("HFA", "movement", "figure 6", "hint frequency", movement.figure6, MOVED),
    study("HFA", "movement", "figure 7", "space", movement.figure7, MOVED),
    study("HFA", "movement", "figure 8", "stability", queues.figure8, CLOCKED),
    study("HFA", "movement", "figure 9", "fixed split", queues.figure9, REFERENCES),
    study("HFA", "movement", "figure 10", "the effect of k", queues.figure10, CLOCKED),
]  # fmt: skip
