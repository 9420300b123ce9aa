"""Medians, and paired differences with confidence intervals. Which figures are compared is in the report."""

import math
import statistics

# Student's t for 95 % (two-sided), by degrees of freedom from 1.
T_975 = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
]  # fmt: skip


def t_975(degrees):
    """Beyond the table by the first terms of the expansion around the normal distribution: exact to 0.001."""
    if degrees <= len(T_975):
        return T_975[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def interval(differences):
    """Mean of differences, and its 95 % confidence interval; without one where there is a single difference."""
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return mean, None, None
    half = t_975(len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half


def relative(values, others):
    """How much more the values are than the others, in percent: pairs as ratios, by their logarithms."""
    if min(*values, *others) <= 0:
        return None
    differences = [math.log(value / other) for value, other in zip(values, others)]
    return tuple(None if end is None else 100 * math.expm1(end) for end in interval(differences))


def absolute(values, others):
    return interval([value - other for value, other in zip(values, others)])
