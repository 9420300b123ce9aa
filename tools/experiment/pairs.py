"""Paired differences with 95 % confidence intervals by bootstrap. Which figures are compared is in the report.

A bootstrap takes no distribution for granted. Differences between runs have none that is known: what disturbs a run
makes it slower and never faster, so they are skewed, and an interval by Student's t is as wide on the side where
nothing happens as on the other. The interval is BCa (bias-corrected and accelerated; Efron 1987) of the mean. With few
pairs a bootstrap claims too much: of ten normal differences BCa has the mean in 90 % of the cases, not in 95 %. So its
levels are those that make up for the size of the sample (Hesterberg 2015), which gives 94 % there, 93 % of exponential
ones and 88 % if one in ten is an outlier; Student's t has 95, 90 and 89 %. With less than six pairs there is no
interval: not even from the least to the largest of five is one of 95 % for the median.
"""

import bisect
import functools
import math
import random
import statistics

PAIRS_MIN = 6
RESAMPLES = 10_000
SEED = 1
NORMAL = statistics.NormalDist()


@functools.cache
def resamples(count):
    """The places of each resample: the same for all figures, and in each run of the program."""
    source = random.Random(SEED)
    return [source.choices(range(count), k=count) for _ in range(RESAMPLES)]


def widened(count):
    """What stands for the normal distribution's 1.96: Student's quantile, times what a resample varies less than a
    sample. The quantile is by the first terms of its expansion, to 1 % from five degrees of freedom on."""
    z, degrees = NORMAL.inv_cdf(0.975), count - 1
    t = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    return t * math.sqrt(count / degrees)


def interval(differences):
    """Mean of differences, and its 95 % confidence interval; without one where there are too few."""
    count, mean = len(differences), statistics.fmean(differences)
    if count < PAIRS_MIN:
        return mean, None, None
    means = sorted(sum(differences[place] for place in places) / count for places in resamples(count))
    away = [one - mean for one in differences]
    # Sums in another order differ in their last digits.
    near = 1e-9 * max(map(abs, away))
    if means[-1] - means[0] <= near:
        return mean, mean, mean
    below, up_to = (bisect.bisect(means, end) for end in (mean - near, mean + near))
    bias = NORMAL.inv_cdf((below + up_to) / 2 / RESAMPLES)
    acceleration = sum(one**3 for one in away) / (6 * sum(one**2 for one in away) ** 1.5)
    ends = []
    for z in (-widened(count), widened(count)):
        level = NORMAL.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        ends.append(means[min(RESAMPLES - 1, int(level * RESAMPLES))])
    return mean, *ends


def relative(values, others):
    """How much more the values are than the others, in percent: pairs as ratios, by their logarithms."""
    if min(*values, *others) <= 0:
        return None
    differences = [math.log(value / other) for value, other in zip(values, others)]
    return tuple(None if end is None else 100 * math.expm1(end) for end in interval(differences))


def absolute(values, others):
    return interval([value - other for value, other in zip(values, others)])
