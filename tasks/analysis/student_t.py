"""PURE. Student's t distribution: how wide an interval from a few measurements has to be.

The tail is the regularised incomplete beta function I_x(df/2, 1/2) with x = df/(df + t^2), evaluated
by its continued fraction (DLMF 8.17.22); degrees of freedom may be fractions (Welch and Satterthwaite).
"""

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p

_STEPS = 500
_TINY = 1e-300
_PRECISION = 1e-14


def two_sided_p(t: float, df: float) -> float:
    """The probability of a t at least as far from 0, for `df` > 0 degrees of freedom."""
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


@lru_cache(maxsize=1024)
def critical_t(confidence: float, df: float) -> float:
    """The t that is exceeded on either side with probability 1 - `confidence` (0 < confidence < 1)."""
    if not (0 < confidence < 1 and df > 0):
        raise ValueError(f"confidence {confidence} is not within 0 and 1, or df {df} is not above 0")
    low, high = 0.0, 1.0
    while two_sided_p(high, df) > 1 - confidence:
        low, high = high, high * 2
        if high == inf:
            raise ValueError(f"confidence {confidence} is too near to 1 for {df} degrees of freedom")
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, df) > 1 - confidence else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction by Lentz's method."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / _away(1 + term * d), _away(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < _PRECISION:
            break
    return value


def _away(value: float) -> float:
    """Not zero: the method divides by it."""
    return value if abs(value) > _TINY else _TINY
