"""The studies that are reproduced: where each stands, what it is, and on which traces it runs."""

import dataclasses
import typing

import cooperation
import locality
import movement
import policies
import runs
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
HFA = "WebSearch (UMass Trace Repository), FIU, MSN-SFS, Exchange, TPC-E and TPC-C (SNIA IOTTA)"
STREAMS = [POSTGRES, MARIADB, OLTP, SPRITE, POSTGRES_L1, P3, P6, CLOUD]
REFERENCES = [OLTP, SPRITE, POSTGRES_L1]
MOVED = [OLTP, SPRITE, POSTGRES_L1, P6, CLOUD]

ALL = [
    Study("tpds-table1", "locality", "TPDS table 1", "traces", locality.table1, runs.ALL, TPDS, False),
    Study("tpds-figure2", "locality", "TPDS figure 2", "distances at the first level", locality.figure2, REFERENCES, TPDS),
    Study("tpds-figure3", "locality", "TPDS figure 3", "distances at the second level", locality.figure3, STREAMS, TPDS),
    Study("tpds-figure4", "locality", "TPDS figure 4", "frequencies", locality.figure4, STREAMS, TPDS),
    Study("tpds-table2", "policies", "TPDS table 2", "eight policies and OPT", policies.table2, STREAMS[:7], TPDS),
    Study("tpds-table3", "policies", "TPDS table 3", "hits by distance", policies.table3, STREAMS[:5], TPDS),
    Study("tpds-figure8", "policies", "TPDS figure 8", "ARC and LIRS", policies.figure8, STREAMS[:7], TPDS),
    Study("tpds-figure9", "cooperation", "TPDS figure 9", "global algorithms", cooperation.figure9, REFERENCES, TPDS),
    Study("tpds-figure10", "cooperation", "TPDS figure 10", "global algorithms, small caches", cooperation.figure10,
          [OLTP, SPRITE], TPDS),
    Study("tpds-figure14", "cooperation", "TPDS figure 14", "reload thresholds", cooperation.figure14,
          [POSTGRES, MARIADB], TPDS),
    Study("usenix-figure2", "cooperation", "USENIX figure 2", "idle distances", cooperation.usenix2,
          [POSTGRES, MARIADB, *REFERENCES], TPDS),
    Study("usenix-figure3", "cooperation", "USENIX figure 3", "placement at eviction", cooperation.usenix3,
          [POSTGRES, MARIADB, *REFERENCES], TPDS),
    Study("usenix-figure4", "cooperation", "USENIX figure 4", "the same, small caches", cooperation.usenix4,
          [OLTP, SPRITE], TPDS),
    Study("poster", "cooperation", "Poster", "content-aware caches", cooperation.poster, [SPRITE, POSTGRES_L1],
          "the poster's traces (Auspex, TPC-C on DB2) are not public"),
    Study("hfa-figure1", "movement", "HFA figure 1", "hint reuse distance", movement.figure1, MOVED, HFA),
    Study("hfa-figure4", "movement", "HFA figure 4", "hit ratios", movement.figure4, MOVED, HFA),
    Study("hfa-figure5", "movement", "HFA figure 5", "response times", movement.figure5, MOVED, HFA),
    Study("hfa-figure6", "movement", "HFA figure 6", "hint frequency", movement.figure6, MOVED, HFA),
    Study("hfa-figure7", "movement", "HFA figure 7", "space", movement.figure7, MOVED, HFA),
    Study("hfa-figure8", "movement", "HFA figure 8", "stability", movement.figure8, [OLTP, POSTGRES_L1], HFA),
    Study("hfa-figure9", "movement", "HFA figure 9", "fixed split", movement.figure9, REFERENCES, HFA),
    Study("hfa-figure10", "movement", "HFA figure 10", "the effect of k", movement.figure10, [OLTP, POSTGRES_L1], HFA),
]  # fmt: skip
